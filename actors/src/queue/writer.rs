//! The only process that gives out seqs: builds a group, applies it, hands it to the Syncer.
//!
//! A group is every batch that waits, up to the caps, as one atomic batch of the store. It is applied without an fsync;
//! while the Syncer makes it durable the next group is built ("The commit: one synced batch"). A group that fails, or
//! that a crash left between apply and answer, is fenced: deleted durably, and only then refused.
//!
//! * **Owns:** the next seq, the tenant ordinals, the dedupe keys. What it needs of them is read back at the start.
//! * **Talks to:** the store (apply), the Syncer (through the ledger and its bell).
//! * **Supervised by:** `queue`, one_for_all with the Syncer: an unanswered group belongs to both.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;
use tracing::{error, info, warn};

use super::canary;
use super::config::{BatcherConfig, DedupeConfig, TenantsConfig};
use super::fence;
use super::group::{Built, GroupPlan, Known, NewGroup};
use super::joined::JoinedLanes;
use super::key_quota::KeyQuota;
use super::ledger::{Group, Ledger};
use super::mark::SyncedMark;
use super::recent_keys::RecentKeys;
use super::syncer::SyncerHandle;
use super::tenants::Tenants;
use super::writer_handle::{CommitBatch, WriterHandle};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::ids::Seq;
use crate::model::keys::{HookKey, META_NEXT_SEQ, is_sentinel, read_u64};
use crate::model::ops::Ops;
use crate::ports::{Clock, Direction, Event, Events, KvError, Lane, Scan};
use crate::store::{StoreConfig, StoreHandle};
use crate::supervision::{Crash, told_to_crash};

mod collect;
mod keys;

/// Wait between two attempts to fence, or to read the state back.
const FENCE_RETRY: Duration = Duration::from_millis(50);

/// How long after a group its own seqs are noted as synced, if no other group has said so by then.
const NOTE_AFTER: Duration = Duration::from_secs(1);

pub enum WriterMsg {
    /// There are batches in the inbox, or room for another group.
    Commit,
    /// Read the state back, and keep trying until it is read.
    ReadBack,
    /// A failure was seen: fence what is unanswered, and keep trying until it is durable. The store must have been
    /// reopened after `after_generation`, where a write of the store failed.
    Fence { after_generation: Option<u64> },
    /// Say in the log how far it is synced: behind the last group nobody else does.
    NoteSynced,
    /// Panic, for a drill.
    Crash,
}

impl Crash for WriterMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct WriterArgs {
    pub config: BatcherConfig,
    pub tenants: TenantsConfig,
    pub dedupe: DedupeConfig,
    pub store_config: StoreConfig,
    /// Whether the storage role runs: each hook then carries an archive obligation.
    pub archive: bool,
    pub clock: Arc<dyn Clock>,
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    pub ledger: Ledger,
    pub mark: SyncedMark,
    pub joined: JoinedLanes,
    pub syncer: SyncerHandle,
    pub handle: WriterHandle,
}

/// A fence under way.
#[derive(Clone, Copy, Debug)]
struct Fencing {
    since: Instant,
    /// The store must have been reopened since the failure: an error of RocksDB is latched until then.
    after_generation: Option<u64>,
}

pub struct WriterState {
    args: WriterArgs,
    /// What ordinals are given out from, and what is known of keys; `None` until the store has been read.
    known: Option<Known>,
    fencing: Option<Fencing>,
    next_seq: Seq,
    last_group_hooks: usize,
    /// What the log says was synced, at least.
    noted: Seq,
    /// A `NoteSynced` is on its way.
    noting: bool,
}

pub struct Writer;

impl Actor for Writer {
    type Msg = WriterMsg;
    type State = WriterState;
    type Arguments = WriterArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<WriterMsg>,
        args: WriterArgs,
    ) -> Result<WriterState, ActorProcessingErr> {
        args.handle.awake();
        let mut state = WriterState {
            args,
            known: None,
            fencing: None,
            next_seq: Seq::FIRST,
            last_group_hooks: 0,
            noted: Seq(0),
            noting: false,
        };
        if state.args.ledger.is_clean() {
            let read = state.read_back().await;
            let is_boot = !state.args.handle.has_read() && state.args.store.state().open;
            // State that cannot be read refuses the boot; it is never taken as empty. Later it is waited for.
            if is_boot {
                read?;
            }
            myself.cast(WriterMsg::ReadBack)?;
        } else {
            // A predecessor left groups between apply and answer.
            myself.cast(WriterMsg::Fence { after_generation: None })?;
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<WriterMsg>,
        message: WriterMsg,
        state: &mut WriterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WriterMsg::Commit => state.commit_waiting(&myself).await,
            WriterMsg::ReadBack => state.begin(&myself).await,
            WriterMsg::Fence { after_generation } => state.fence(after_generation, &myself).await,
            WriterMsg::NoteSynced => state.note_synced(&myself).await,
            WriterMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl WriterState {
    async fn read_back(&mut self) -> Result<(), KvError> {
        let store = &self.args.store;
        let marker = store.get(Cf::Default, META_NEXT_SEQ)?;
        let marker = marker.as_deref().and_then(read_u64).map_or(Seq::FIRST, Seq);
        let last = last_hook(store).await?.map_or(Seq::FIRST, |seq| seq.plus(1));
        // A group that was never applied has used up its seqs too, whichever Writer gave them out: the mark is past them,
        // and what is at or below the mark is taken for synced.
        let unused = self.args.mark.get().plus(1);
        self.next_seq = self.next_seq.max(marker).max(last).max(unused);
        let tenants = Tenants::load(store).await?;
        // What the store holds at its open, it holds durably: recovery wrote it into synced files.
        self.args.mark.raise(Seq(self.next_seq.0.saturating_sub(1)));
        let keys = RecentKeys::new(self.args.handle.key_epoch().clone());
        let quota = KeyQuota::new(self.args.dedupe.clone());
        self.known = Some(Known { tenants, keys, quota });
        self.args.handle.commits_again();
        Ok(())
    }

    /// Reads the state back, if that has not been done, and begins to commit. Until then every hook is refused.
    async fn begin(&mut self, myself: &ActorRef<WriterMsg>) {
        if self.known.is_none()
            && self.fencing.is_none()
            && let Err(error) = self.read_back().await
        {
            if self.args.handle.blocked().is_none() {
                warn!(%error, "the state cannot be read; committing nothing until it can");
            }
            self.args.handle.is_blocked(error.class);
            self.args.handle.refuse_waiting();
            myself.send_after(FENCE_RETRY, || WriterMsg::ReadBack);
            return;
        }
        self.commit_waiting(myself).await;
    }

    /// Group after group, while there are batches and fewer unsynced groups than allowed.
    async fn commit_waiting(&mut self, myself: &ActorRef<WriterMsg>) {
        self.args.handle.awake();
        loop {
            // Into a closed store nothing is applied: there is nothing to fence, and nobody has to wait for it.
            let is_ready = self.fencing.is_none() && self.known.is_some();
            if !is_ready || !self.args.store.state().open {
                self.args.handle.refuse_waiting();
                return;
            }
            if self.args.ledger.open_groups() >= self.args.config.max_unsynced_groups {
                return;
            }
            if self.end_expired(myself).await {
                continue;
            }
            let batches = self.collect().await;
            if batches.is_empty() {
                return;
            }
            self.commit(batches, myself).await;
        }
    }

    async fn commit(&mut self, batches: Vec<CommitBatch>, myself: &ActorRef<WriterMsg>) {
        let (mut entries, mut rooms) = (Vec::new(), Vec::with_capacity(batches.len()));
        for batch in batches {
            entries.extend(batch.entries);
            rooms.push(batch.room);
        }
        self.ready_keys(&mut entries).await;
        let Some(known) = &mut self.known else { return };
        let plan = GroupPlan {
            first: self.next_seq,
            at_ms: self.args.ledger.stamp(self.args.clock.now_ms()),
            archive: self.args.archive,
            max_tenants: self.args.tenants.max,
            synced_through: self.args.mark.get(),
        };
        let Built { new, repeated } = plan.build(entries, known);
        for (seq, caller) in repeated {
            self.args.ledger.join(seq, caller);
        }
        let Some(NewGroup { group, batch, lanes, next_seq }) = new else { return };
        let hooks = next_seq.0.saturating_sub(plan.first.0);
        self.next_seq = next_seq;
        self.last_group_hooks = group.callers.len();
        let (started, bytes) = (Instant::now(), u64::try_from(batch.bytes()).unwrap_or(u64::MAX));
        let joined = self.args.joined.clone();
        let group = canary::before_apply(group);
        let applied = self.apply(group, batch, move || joined.add(lanes), myself).await;
        drop(rooms);
        if applied {
            let took = started.elapsed();
            self.args.events.emit(&Event::CommitApplied { hooks, bytes, took });
        }
    }

    /// Applies a group and hands it to the Syncer. False where it was not applied: it is refused, or being fenced.
    async fn apply(
        &mut self,
        group: Group,
        batch: Batch,
        before_it_is_synced: impl FnOnce(),
        myself: &ActorRef<WriterMsg>,
    ) -> bool {
        let (last, hooks) = (group.last, group.callers.len());
        if let Err(group) = self.args.ledger.enter(group) {
            // An fsync failed in between, and its fence is in our mailbox. This group was never applied, and whatever was
            // remembered of it is wrong: the fence reads it all back.
            self.known = None;
            group.refuse();
            return false;
        }
        let generation = self.args.store.state().generation;
        if let Err(error) = canary::heeded(canary::apply(&self.args.store, batch).await) {
            warn!(%error, hooks, "a group was not applied; fencing");
            self.args.ledger.fail();
            self.fence(Some(generation), myself).await;
            return false;
        }
        before_it_is_synced();
        if let Some(known) = &mut self.known {
            known.keys.applied(last, self.args.mark.get());
        }
        self.args.ledger.applied();
        self.args.syncer.wake();
        self.note_later(myself);
        true
    }

    fn note_later(&mut self, myself: &ActorRef<WriterMsg>) {
        if !self.noting {
            self.noting = true;
            myself.send_after(NOTE_AFTER, || WriterMsg::NoteSynced);
        }
    }

    /// Every group says how far the log was synced when it was built, so of the last one nothing does, and were it
    /// damaged later it would pass for a torn tail. A write without an fsync: a power cut may lose it, rot does not.
    async fn note_synced(&mut self, myself: &ActorRef<WriterMsg>) {
        self.noting = false;
        let synced = self.args.mark.get();
        if !self.args.ledger.is_clean() {
            self.note_later(myself);
        } else if synced > self.noted && self.fencing.is_none() && self.args.store.state().open {
            let mut note = Ops::default();
            note.set_synced_through(synced);
            // No group hangs on it, and the store has been told of the failure.
            if self.args.store.apply(note.finish(), Lane::Commit).await.is_ok() {
                self.noted = synced;
            }
        }
    }

    /// One attempt; tried again until it is durable.
    async fn fence(&mut self, after_generation: Option<u64>, myself: &ActorRef<WriterMsg>) {
        if self.fencing.is_none() && self.args.ledger.is_clean() {
            return;
        }
        let begin = Fencing { since: Instant::now(), after_generation };
        let fencing = *self.fencing.get_or_insert(begin);
        match self.try_fence(fencing).await {
            Ok(()) => {
                info!(took_ms = fencing.since.elapsed().as_millis(), "fenced; committing again");
                self.fencing = None;
                self.args.ledger.fenced();
                let _ = myself.cast(WriterMsg::Commit);
            }
            Err(not_yet) => {
                self.args.handle.is_blocked(not_yet.class);
                self.give_up_callers(fencing, &not_yet);
                // Nobody waits for a fence: what came meanwhile is refused by its guards.
                self.args.handle.refuse_waiting();
                myself.send_after(FENCE_RETRY, || WriterMsg::Fence { after_generation: None });
            }
        }
    }

    fn give_up_callers(&self, fencing: Fencing, not_yet: &KvError) {
        let deadline = Duration::from_millis(self.args.store_config.fence_deadline_ms);
        if fencing.since.elapsed() < deadline {
            return;
        }
        let callers = self.args.ledger.abandon_callers();
        if callers > 0 {
            error!(callers, reason = %not_yet, "the fence is not durable in time; closing unanswered");
        }
    }

    async fn try_fence(&mut self, fencing: Fencing) -> Result<(), KvError> {
        // From here on no fsync answers any of them, even one that is under way.
        let spans = self.args.ledger.fence();
        canary::before_fence(&self.args.ledger);
        fence::wait_for_reopen(&self.args.store, fencing.after_generation)?;
        if !canary::fences_nothing() {
            fence::delete(&self.args.store, &spans, self.args.mark.get()).await?;
        }
        // Ordinals and seqs of a group that was lost are read back as the store has them.
        self.read_back().await
    }
}

/// The highest seq of the hooks family.
async fn last_hook(store: &StoreHandle) -> Result<Option<Seq>, KvError> {
    let page = store
        .scan(Scan {
            cf: Cf::Hooks,
            range: HookKey::all(),
            direction: Direction::Reverse,
            max_rows: 2,
            max_bytes: usize::MAX,
        })
        .await?;
    let mut hooks = page.pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Hooks, key, value));
    Ok(hooks.next().and_then(|(key, _)| HookKey::decode(key)).map(|HookKey(seq)| seq))
}
