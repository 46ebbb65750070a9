//! Delivers: claims rows that are due, attempts them, writes what came of them.
//!
//! Attempts run in tasks of their own ([`attempts`]) and never wait for the store; everything the store is asked or told
//! happens here, one call after the other, so nothing this process writes can overtake anything else it wrote. A row is
//! claimed, attempted and settled once per life of this process: what it says of a row is kept until the store has it.
//!
//! * **Owns:** the claimed rows, their attempts and outcomes. What is lost with it is due again at the next start.
//! * **Talks to:** the store, the sinks; woken by the Syncer.
//! * **Supervised by:** `services`, one_for_one; drained for as long as an attempt may take.

mod attempts;
mod breaker;
mod canary;
mod claim;
mod config;
pub mod dlq;
mod due;
mod flush;
mod handle;
mod held;
mod lane_reads;
mod lanes;
mod load;
mod markers;
mod outcomes;
mod page;
mod pull;
mod purge;
mod purge_cursor;
mod queues;
mod reclaim;
mod recover;
mod state;
mod targets;
mod weights;
mod writing;

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

pub use config::{DispatchConfig, RetryConfig, ShareConfig};
pub use handle::{DispatchHandle, DispatchSnapshot, PurgeError, TenantsInflight};
pub use pull::{PullStep, Waiting, waiting_of};
pub use purge::{PurgeChunk, PurgeStep, Purged};
pub use purge_cursor::{NoCursor, PurgeCursor, Purgeable};
pub use state::DispatchState;

use crate::model::value_version::ValueVersion;
use crate::ports::{Clock, Entropy, Events, KvError};
use crate::queue::{JoinedLanes, SyncedMark};
use crate::sources::SourceTable;
use crate::store::StoreHandle;
use crate::supervision::{Crash, told_to_crash};

pub enum DispatchMsg {
    /// There may be rows to claim.
    Wake,
    /// It is time to look, to write or to tidy up.
    Timer,
    /// Attempts have ended. Which and how they ended waits outside the mailbox.
    Finished,
    /// Remove a chunk of a tenant's rows.
    Purge(PurgeStep, RpcReplyPort<Result<PurgeChunk, KvError>>),
    /// Make rows of a source due now that wait for a retry.
    Pull(PullStep, RpcReplyPort<Result<Option<Vec<u8>>, KvError>>),
    /// Panic, for a drill.
    Crash,
}

impl Crash for DispatchMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct DispatchArgs {
    pub config: DispatchConfig,
    /// Which node this is, for the logs.
    pub instance: String,
    /// What rows are claimed and stamped by; must not go back.
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    /// How far rows may be claimed.
    pub mark: SyncedMark,
    /// Lanes that may have something to promote.
    pub joined: JoinedLanes,
    /// Delivered by what they are now, whatever they were when a hook came.
    pub sources: SourceTable,
    /// How rows are written.
    pub version: ValueVersion,
    pub handle: DispatchHandle,
}

pub struct Dispatch;

impl Actor for Dispatch {
    type Msg = DispatchMsg;
    type State = DispatchState;
    type Arguments = DispatchArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<DispatchMsg>,
        args: DispatchArgs,
    ) -> Result<DispatchState, ActorProcessingErr> {
        args.handle.bell.answered();
        // A store that is closed is no reason not to start: the first turn waits for it.
        myself.cast(DispatchMsg::Timer)?;
        Ok(DispatchState::new(args, myself))
    }

    async fn handle(
        &self,
        _: ActorRef<DispatchMsg>,
        message: DispatchMsg,
        state: &mut DispatchState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DispatchMsg::Wake => state.woken().await,
            DispatchMsg::Timer => state.timer_fired().await,
            DispatchMsg::Finished => state.turn().await,
            DispatchMsg::Purge(step, reply) => {
                let _ = reply.send(state.purge(&step).await);
                state.turn().await;
            }
            DispatchMsg::Pull(step, reply) => {
                let _ = reply.send(state.pull(&step).await);
                state.turn().await;
            }
            DispatchMsg::Crash => told_to_crash(),
        }
        Ok(())
    }

    async fn post_stop(
        &self,
        _: ActorRef<DispatchMsg>,
        state: &mut DispatchState,
    ) -> Result<(), ActorProcessingErr> {
        state.drain().await;
        Ok(())
    }
}
