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
mod not_open;
mod offline;
pub mod ready;
mod recount;
mod reopen;
mod room;
mod state;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

pub use boot::BootError;
pub use config::StoreConfig;
pub use handle::{Lease, OpenNotes, StoreFailure, StoreHandle, StoreState};
pub use offline::{OfflineError, OfflineRecount, recount_offline};
pub use recount::{RECOUNT_ROWS_MAX, Recount, Recounted};
pub use reopen::{PROBE_RETRY, ReopenPlan};
pub use room::{Recovery, RoomLimits};
pub use state::{LOOK_EVERY, StoreActorState};

use crate::model::failure::FailureClass;
use crate::ports::{Engine, Entropy, Events};
use crate::supervision::{Crash, told_to_crash};

pub enum StoreMsg {
    /// A write failed in this generation, whichever process made it.
    WriteFailed { class: FailureClass, op: &'static str, generation: u64 },
    /// A readiness probe had no answer in time.
    ProbeTimedOut,
    /// Look again whether the store can be reopened. Only the newest of these counts.
    Wake { turn: u64 },
    /// See how much room there is.
    Look,
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

pub struct Store;

impl Actor for Store {
    type Msg = StoreMsg;
    type State = StoreActorState;
    type Arguments = StoreArgs;

    /// Opens the database. On the first boot what cannot be opened refuses the boot, unless it is for want of room; later,
    /// or then, the store stays closed and is tried again.
    async fn pre_start(
        &self,
        myself: ActorRef<StoreMsg>,
        args: StoreArgs,
    ) -> Result<StoreActorState, ActorProcessingErr> {
        let mut state = StoreActorState::new(args);
        state.boot(&myself).await?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<StoreMsg>,
        message: StoreMsg,
        state: &mut StoreActorState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            StoreMsg::WriteFailed { class, op, generation } => {
                state.write_failed(class, op, generation, &myself);
            }
            StoreMsg::ProbeTimedOut => state.probe_timed_out(),
            StoreMsg::Wake { turn } => state.wake(turn, &myself).await,
            StoreMsg::Look => state.look(&myself).await,
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
