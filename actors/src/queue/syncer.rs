//! Makes groups durable and answers their callers: one fsync of the log for every group applied so far.
//!
//! While it syncs, the Writer builds and applies the next group, so a group costs the larger of its CPU and its fsync,
//! not their sum. The answers are sent in one block without an await: a crash cannot fall between two of them.
//!
//! * **Owns:** nothing: what is unanswered is in the ledger, how far the log is synced in the mark.
//! * **Talks to:** the store (sync), the Writer (room, fence), dispatch (there is work).
//! * **Supervised by:** `queue`, one_for_all with the Writer.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;
use tracing::warn;

use super::canary;
use super::ledger::{Group, Ledger};
use super::mark::SyncedMark;
use super::writer_handle::WriterHandle;
use crate::dispatch::DispatchHandle;
use crate::ports::{Event, Events};
use crate::store::StoreHandle;
use crate::supervision::{Crash, Doorbell, Slot, told_to_crash};

pub enum SyncerMsg {
    /// There are applied groups in the ledger.
    Sync,
    /// Panic, for a drill.
    Crash,
}

impl Crash for SyncerMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

/// How the Writer reaches the Syncer.
#[derive(Clone)]
pub struct SyncerHandle {
    slot: Slot<SyncerMsg>,
    bell: Doorbell<SyncerMsg>,
}

impl Default for SyncerHandle {
    fn default() -> Self {
        let slot = Slot::default();
        Self { bell: Doorbell::new(&slot, || SyncerMsg::Sync), slot }
    }
}

impl SyncerHandle {
    pub fn slot(&self) -> &Slot<SyncerMsg> {
        &self.slot
    }

    pub(super) fn wake(&self) {
        self.bell.ring();
    }
}

#[derive(Clone)]
pub struct SyncerArgs {
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    pub ledger: Ledger,
    pub mark: SyncedMark,
    pub writer: WriterHandle,
    pub dispatch: DispatchHandle,
    pub handle: SyncerHandle,
}

/// Nothing is remembered between fsyncs.
pub struct SyncerState {
    args: SyncerArgs,
}

pub struct Syncer;

impl Actor for Syncer {
    type Msg = SyncerMsg;
    type State = SyncerState;
    type Arguments = SyncerArgs;

    async fn pre_start(
        &self,
        _: ActorRef<SyncerMsg>,
        args: SyncerArgs,
    ) -> Result<SyncerState, ActorProcessingErr> {
        // Groups a predecessor left are the Writer's to fence: it starts after us.
        args.handle.bell.answered();
        Ok(SyncerState { args })
    }

    async fn handle(
        &self,
        _: ActorRef<SyncerMsg>,
        message: SyncerMsg,
        state: &mut SyncerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SyncerMsg::Sync => state.sync_applied().await,
            SyncerMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl SyncerState {
    /// Fsync after fsync, until nothing that is applied is unsynced.
    async fn sync_applied(&self) {
        let SyncerArgs { events, store, ledger, mark, writer, dispatch, handle } = &self.args;
        handle.bell.answered();
        while let Some(last) = ledger.syncable() {
            if canary::acks_before_sync() {
                ledger.take_synced(last).into_iter().for_each(answer);
                mark.raise(last);
            }
            let (generation, started) = (store.state().generation, Instant::now());
            if let Err(error) = canary::heeded(store.sync().await) {
                warn!(%error, "an fsync failed; every group it covers is fenced");
                ledger.fail();
                writer.fence(generation);
                return;
            }
            let groups = ledger.take_synced(last);
            let count = u64::try_from(groups.len()).unwrap_or(u64::MAX);
            if let Some(group) = groups.last() {
                mark.raise(group.last);
            }
            groups.into_iter().for_each(answer);
            writer.wake();
            dispatch.wake();
            events.emit(&Event::WalSynced { groups: count, took: started.elapsed() });
        }
    }
}

fn answer(group: Group) {
    for caller in group.callers {
        caller.reply.send(caller.answer);
    }
}
