//! Opens the database, keeps it open, and reopens it when a write has failed.
//!
//! A disk that is full, slow or failing is not a crash of this process: it stays alive with its database closed, says so
//! in its state, and tries again. Reopening is what clears a latched write error and what a fence stands on
//! ("Durability, corruption, full disk").
//!
//! * **Owns:** the life of the database: opens, closes, generations. The open handle itself hangs in the door of
//!   [`StoreHandle`], which outlives this process.
//! * **Talks to:** the engine port; told by every other process (`WriteFailed`).
//! * **Supervised by:** `core`, rest_for_one: everything that uses the store restarts behind it.

mod boot;
mod config;
mod handle;
pub mod ready;
mod reopen;

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;
use tracing::{error, info, warn};

pub use boot::BootError;
pub use config::StoreConfig;
pub use handle::{Lease, StoreHandle, StoreState};
pub use reopen::{PROBE_RETRY, ReopenPlan};

use crate::model::failure::FailureClass;
use crate::ports::{Engine, Entropy, Event, Events, ReopenResult};
use crate::supervision::{Crash, told_to_crash};

pub enum StoreMsg {
    /// A write failed in this generation, whichever process made it.
    WriteFailed { class: FailureClass, generation: u64 },
    /// Look again whether the store can be reopened.
    Wake,
    /// Close and reopen now, asked for by an operator.
    Reopen(RpcReplyPort<Result<(), String>>),
    /// Panic, for a drill.
    Crash,
}

impl Crash for StoreMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct StoreArgs {
    pub config: StoreConfig,
    pub engine: Arc<dyn Engine>,
    pub entropy: Arc<dyn Entropy>,
    pub events: Arc<dyn Events>,
    pub handle: StoreHandle,
}

pub struct StoreActorState {
    args: StoreArgs,
    plan: ReopenPlan,
    last_reopen: Option<Instant>,
    /// A `Wake` is on its way.
    waking: bool,
}

pub struct Store;

impl Actor for Store {
    type Msg = StoreMsg;
    type State = StoreActorState;
    type Arguments = StoreArgs;

    /// Opens the database. The first boot has no retries: what cannot be opened refuses the boot.
    async fn pre_start(
        &self,
        _: ActorRef<StoreMsg>,
        args: StoreArgs,
    ) -> Result<StoreActorState, ActorProcessingErr> {
        let state =
            StoreActorState { args, plan: ReopenPlan::default(), last_reopen: None, waking: false };
        // A predecessor that crashed left its database behind the door.
        state.close().await;
        state.open().await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<StoreMsg>,
        message: StoreMsg,
        state: &mut StoreActorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            StoreMsg::WriteFailed { class, generation } => {
                state.write_failed(class, generation, &myself);
            }
            StoreMsg::Wake => state.wake(&myself).await,
            StoreMsg::Reopen(reply) => {
                let reopened = state.reopen(&myself).await;
                let _ = reply.send(reopened);
            }
            StoreMsg::Crash => told_to_crash(),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<StoreMsg>,
        state: &mut StoreActorState,
    ) -> Result<(), ActorProcessingErr> {
        state.close().await;
        Ok(())
    }
}

impl StoreActorState {
    fn write_failed(&mut self, class: FailureClass, generation: u64, myself: &ActorRef<StoreMsg>) {
        self.args.events.emit(&Event::StoreWriteFailed { class });
        if generation != self.args.handle.state().generation {
            return;
        }
        if cfg!(feature = "canary-no-reopen-after-eio") {
            return;
        }
        self.args.handle.door.failing(class);
        warn!(class = class.as_str(), "a store write failed; reopening");
        let since_last = self.last_reopen.map(|at| at.elapsed());
        self.wake_after(ReopenPlan::after_report(&self.args.config, since_last), myself);
    }

    fn wake_after(&mut self, wait: Duration, myself: &ActorRef<StoreMsg>) {
        if !self.waking {
            self.waking = true;
            myself.send_after(wait, || StoreMsg::Wake);
        }
    }

    async fn wake(&mut self, myself: &ActorRef<StoreMsg>) {
        self.waking = false;
        let state = self.args.handle.state();
        if state.open && state.failing.is_none() {
            return;
        }
        let _ = self.reopen(myself).await;
    }

    /// Closes and opens, if the disk takes a synced write; a disk that still fails keeps its database open and readable.
    async fn reopen(&mut self, myself: &ActorRef<StoreMsg>) -> Result<(), String> {
        let started = Instant::now();
        if let Err(error) = self.args.engine.probe_disk().await {
            self.args.events.emit(&Event::StoreReopened {
                result: ReopenResult::Deferred,
                took: started.elapsed(),
            });
            warn!(%error, class = error.class.as_str(), "the disk does not take writes; reopen deferred");
            self.tell_unavailable();
            self.wake_after(PROBE_RETRY, myself);
            return Err(error.to_string());
        }
        self.close().await;
        self.last_reopen = Some(Instant::now());
        let opened = self.open().await;
        let result = if opened.is_ok() { ReopenResult::Ok } else { ReopenResult::Error };
        self.args.events.emit(&Event::StoreReopened { result, took: started.elapsed() });
        match opened {
            Ok(()) => {
                info!(took_ms = started.elapsed().as_millis(), "store reopened");
                self.plan.opened();
                self.tell_unavailable();
                Ok(())
            }
            Err(error) => {
                let wait = self.plan.after_failed_open(&self.args.config, self.args.entropy.unit());
                error!(%error, wait_ms = wait.as_millis(), "the store stays closed");
                self.tell_unavailable();
                self.wake_after(wait, myself);
                Err(error.to_string())
            }
        }
    }

    async fn close(&self) {
        if let Some(kv) = self.args.handle.door.take().await {
            self.args.engine.close(kv).await;
        }
    }

    async fn open(&self) -> Result<(), ActorProcessingErr> {
        let kv = self.args.engine.open().await.inspect_err(|error| {
            self.args.handle.door.failing(error.class);
        })?;
        match boot::check_format(kv.as_ref()).await {
            Ok(()) => {
                self.args.handle.door.put(kv);
                Ok(())
            }
            Err(error) => {
                self.args.engine.close(kv).await;
                Err(error.into())
            }
        }
    }

    fn tell_unavailable(&self) {
        let state = self.args.handle.state();
        let closed = state.since.filter(|_| !state.open);
        let for_ = closed.map_or(Duration::ZERO, |since| since.elapsed());
        self.args.events.emit(&Event::StoreUnavailable { for_ });
    }
}
