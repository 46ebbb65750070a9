//! Writes hooks that did not verify into the pen, and deletes them from it.
//!
//! Whatever waits is written as one batch and made durable by one fsync, and only then answered 202. A batch that failed
//! may be there all the same after the next open of the store; its senders are told 503 and send again, and what they were
//! refused must not be released one day. So it is deleted first, durably, once the store has been reopened: the fence.
//! Those that would have to wait too long for it are told nothing.
//!
//! Here and not in the Writer, because anybody can make work for it: a flood of forged hooks takes no turn of the hooks
//! that verify, and its fsyncs are its own.
//!
//! * **Owns:** the quarantine family, and the number of its entries and bytes, which it counts at its start.
//! * **Talks to:** the store.
//! * **Supervised by:** `services`, one_for_one: hooks for the pen are answered 503 while it is down.

mod counting;

use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;
use tracing::{error, info, warn};

use self::counting::Counting;
use super::pen::{Held, PenSize, QuarantineHandle};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::model::ids::Seq;
use crate::model::keys::QuarantinePart;
use crate::model::quarantine::{HeldKey, size_of};
use crate::ports::{KvError, Lane};
use crate::queue::{CommitAnswer, Refusal};
use crate::store::{StoreConfig, StoreHandle};
use crate::supervision::{Crash, told_to_crash};

/// Hooks in one batch.
const BATCH_HOOKS: usize = 256;

/// Bytes of one batch; a single hook may be larger.
const BATCH_BYTES: usize = 4 << 20;

/// Pages counted before a boot goes on; the rest is counted beside it.
const PAGES_AT_BOOT: usize = 20;

/// Wait between two attempts to fence, or to count.
const RETRY: Duration = Duration::from_millis(50);

/// A held hook has no seq: the first is 1.
const HELD: CommitAnswer = CommitAnswer::Committed(Seq(0));

pub enum QuarantineMsg {
    /// There are hooks in the inbox.
    Flush,
    /// Clear away what failed writes may have left, and keep trying until that is durable.
    Fence,
    /// Count on, and keep trying until all is counted.
    Count,
    /// Delete these, if they are there: answers how many were and what they took.
    Remove { keys: Vec<HeldKey>, reply: RpcReplyPort<Result<PenSize, KvError>> },
    /// Count what is held, now: answers what had been taken for it, and what it is.
    Recount { reply: RpcReplyPort<Result<(PenSize, PenSize), KvError>> },
    /// Panic, for a drill.
    Crash,
}

impl Crash for QuarantineMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct QuarantineArgs {
    pub config: StoreConfig,
    pub store: StoreHandle,
    pub handle: QuarantineHandle,
}

/// A failed write.
struct Fencing {
    since: Instant,
    /// The open it happened in: the store must have been reopened since.
    failed_in: u64,
    keys: Vec<HeldKey>,
    /// Refused once their keys are gone.
    callers: Vec<Held>,
    /// What is held has to be counted again: it is not known what of a deletion happened.
    recount: bool,
}

pub struct QuarantineState {
    args: QuarantineArgs,
    /// The open of the store whose rows were counted. What failed in an earlier one may show up in a later.
    counted_in: u64,
    fencing: Option<Fencing>,
    counting: Option<Counting>,
}

pub struct Quarantine;

impl Actor for Quarantine {
    type Msg = QuarantineMsg;
    type State = QuarantineState;
    type Arguments = QuarantineArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<QuarantineMsg>,
        args: QuarantineArgs,
    ) -> Result<QuarantineState, ActorProcessingErr> {
        let needs_barrier = args.handle.starts();
        args.handle.forget_size();
        let mut state = QuarantineState { args, counted_in: 0, fencing: None, counting: None };
        state.begin_count(needs_barrier);
        for _ in 0..PAGES_AT_BOOT {
            match state.count_page().await {
                // A pen that cannot be read refuses the boot; it is never taken for an empty one.
                Err(error) if !needs_barrier && state.args.store.state().open => {
                    return Err(error.into());
                }
                Err(_later) => break,
                Ok(()) if state.counting.is_none() => break,
                Ok(()) => {}
            }
        }
        state.args.handle.block(false);
        myself.cast(QuarantineMsg::Count)?;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<QuarantineMsg>,
        message: QuarantineMsg,
        state: &mut QuarantineState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            QuarantineMsg::Flush => state.flush(&myself).await,
            QuarantineMsg::Fence => state.fence(&myself).await,
            QuarantineMsg::Count => state.count(&myself).await,
            QuarantineMsg::Remove { keys, reply } => {
                let _ = reply.send(state.remove(keys, &myself).await);
            }
            QuarantineMsg::Recount { reply } => {
                let _ = reply.send(state.recount(&myself).await);
            }
            QuarantineMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl QuarantineState {
    /// Batch after batch, until nothing waits.
    async fn flush(&mut self, myself: &ActorRef<QuarantineMsg>) {
        self.args.handle.awake();
        loop {
            if self.fencing.is_some() {
                self.args.handle.refuse_waiting();
                return;
            }
            if !self.is_settled(myself) {
                // What waits is looked at again once that is done.
                return;
            }
            let held = self.collect();
            if held.is_empty() {
                return;
            }
            self.write(held, myself).await;
        }
    }

    /// Whether what is held is known. If the store has been opened since it was counted, a count begins.
    fn is_settled(&mut self, myself: &ActorRef<QuarantineMsg>) -> bool {
        let is_known = self.fencing.is_none() && self.counting.is_none();
        if is_known && self.args.store.state().generation != self.counted_in {
            // Meanwhile what was counted last is near enough.
            self.counting = Some(Counting::begin(false));
            let _ = myself.cast(QuarantineMsg::Count);
        }
        is_known && self.counting.is_none()
    }

    /// What waits, up to the caps, without those whose callers have given up.
    fn collect(&self) -> Vec<Held> {
        let mut bytes = 0;
        let mut held: Vec<Held> = Vec::new();
        while held.len() < BATCH_HOOKS {
            let fits = |next: &Held| held.is_empty() || bytes + next.envelope.len() <= BATCH_BYTES;
            let Some(next) = self.args.handle.inbox.pop_if(fits) else { break };
            if next.reply.start() {
                bytes += next.envelope.len();
                held.push(next);
            }
        }
        held
    }

    async fn write(&mut self, held: Vec<Held>, myself: &ActorRef<QuarantineMsg>) {
        let mut batch = Batch::default();
        for one in &held {
            one.key.put(&one.summary, one.envelope.clone(), &mut batch);
        }
        let generation = self.args.store.state().generation;
        // Broken on purpose, for a drill to catch; never in a release.
        let written = if cfg!(feature = "canary-held-unsynced") {
            self.args.store.apply(batch, Lane::Commit).await
        } else {
            self.args.store.apply_synced(batch, Lane::Commit).await
        };
        match written {
            Ok(()) => held.into_iter().map(Held::into_reply).for_each(|reply| reply.send(HELD)),
            Err(error) => {
                warn!(%error, hooks = held.len(), "hooks were not put into the quarantine; fencing");
                let keys = held.iter().map(|one| one.key.clone()).collect();
                self.begin_fence(generation, keys, held, false, myself);
            }
        }
    }

    fn begin_fence(
        &mut self,
        failed_in: u64,
        keys: Vec<HeldKey>,
        callers: Vec<Held>,
        recount: bool,
        myself: &ActorRef<QuarantineMsg>,
    ) {
        self.args.handle.block(true);
        let since = Instant::now();
        self.fencing = Some(Fencing { since, failed_in, keys, callers, recount });
        myself.send_after(RETRY, || QuarantineMsg::Fence);
    }

    /// One attempt; tried again until it is durable.
    async fn fence(&mut self, myself: &ActorRef<QuarantineMsg>) {
        let Some(mut fencing) = self.fencing.take() else { return };
        self.args.handle.refuse_waiting();
        match self.clear_away(&mut fencing).await {
            Ok(()) => {
                let took_ms = fencing.since.elapsed().as_millis();
                info!(took_ms, "the quarantine is fenced; holding hooks again");
                for caller in fencing.callers {
                    caller.reply.send(CommitAnswer::Refused(Refusal::StoreUnavailable));
                }
                if fencing.recount {
                    self.begin_count(false);
                }
                self.args.handle.block(false);
                let _ = myself.cast(QuarantineMsg::Count);
            }
            Err(not_yet) => {
                let deadline = Duration::from_millis(self.args.config.fence_deadline_ms);
                if fencing.since.elapsed() >= deadline && !fencing.callers.is_empty() {
                    let callers = fencing.callers.len();
                    error!(callers, reason = %not_yet, "the fence of the quarantine is not durable in time; closing unanswered");
                    // Dropped after the start: their outcome is unknown.
                    fencing.callers.clear();
                }
                self.fencing = Some(fencing);
                myself.send_after(RETRY, || QuarantineMsg::Fence);
            }
        }
    }

    async fn clear_away(&self, fencing: &mut Fencing) -> Result<(), KvError> {
        let store = &self.args.store;
        let state = store.state();
        if state.generation <= fencing.failed_in || !state.open || state.failing.is_some() {
            return Err(not_yet("the store has not been reopened yet"));
        }
        let mut batch = Batch::default();
        for key in &fencing.keys {
            key.delete(&mut batch);
        }
        let written = store.apply_synced(batch, Lane::Commit).await;
        if written.is_err() {
            fencing.failed_in = state.generation;
        }
        written
    }

    /// The size and the rows: nothing else changes either meanwhile.
    async fn recount(
        &mut self,
        myself: &ActorRef<QuarantineMsg>,
    ) -> Result<(PenSize, PenSize), KvError> {
        self.settle(myself).await?;
        let before = self.args.handle.size().unwrap_or_default();
        self.counting = Some(Counting::begin(false));
        self.settle(myself).await?;
        let counted = self.args.handle.size().unwrap_or_default();
        if before != counted {
            warn!(?before, ?counted, "the size of the quarantine was put right");
        }
        Ok((before, counted))
    }

    /// Waits until what is held is known.
    async fn settle(&mut self, myself: &ActorRef<QuarantineMsg>) -> Result<(), KvError> {
        if self.fencing.is_some() {
            return Err(not_yet("a failed write is being cleared away"));
        }
        while !self.is_settled(myself) {
            self.count_page().await?;
        }
        Ok(())
    }

    async fn remove(
        &mut self,
        keys: Vec<HeldKey>,
        myself: &ActorRef<QuarantineMsg>,
    ) -> Result<PenSize, KvError> {
        self.settle(myself).await?;
        let store = &self.args.store;
        let summaries = keys.iter().map(|key| key.of(QuarantinePart::Summary)).collect();
        let found = store.multi_get(Cf::Quarantine, summaries).await?;
        let mut batch = Batch::default();
        let mut gone = PenSize::default();
        for (key, summary) in keys.iter().zip(&found) {
            let Some(summary) = summary else { continue };
            key.delete(&mut batch);
            gone.entries += 1;
            gone.bytes = gone.bytes.saturating_add(size_of(summary));
        }
        if gone.entries == 0 {
            return Ok(gone);
        }
        let generation = store.state().generation;
        if let Err(error) = store.apply_synced(batch, Lane::Commit).await {
            warn!(%error, "held hooks were not deleted; counting again once the store is open again");
            self.args.handle.forget_size();
            self.begin_fence(generation, Vec::new(), Vec::new(), true, myself);
            return Err(error);
        }
        self.args.handle.take_from_size(gone);
        Ok(gone)
    }

    fn begin_count(&mut self, needs_barrier: bool) {
        self.args.handle.forget_size();
        self.counting = Some(Counting::begin(needs_barrier));
    }

    /// Page after page: between two of them others have their turn.
    async fn count(&mut self, myself: &ActorRef<QuarantineMsg>) {
        if self.fencing.is_some() {
            return;
        }
        let counted = self.count_page().await;
        if let Err(error) = &counted {
            if error.class != FailureClass::NotRunning {
                warn!(%error, "the quarantine cannot be counted; holding nothing until it can");
            }
            self.args.handle.refuse_waiting();
            myself.send_after(RETRY, || QuarantineMsg::Count);
        } else if self.counting.is_some() {
            let _ = myself.cast(QuarantineMsg::Count);
        } else {
            // What waits has waited for this.
            self.args.handle.wake();
        }
    }

    async fn count_page(&mut self) -> Result<(), KvError> {
        let Some(counting) = &mut self.counting else { return Ok(()) };
        let store = &self.args.store;
        let state = store.state();
        // What has failed in this open may be there in the next.
        if !state.open || state.failing.is_some() {
            return Err(not_yet("the store has not been reopened yet"));
        }
        if let Some(held) = counting.page(store).await? {
            (self.counting, self.counted_in) = (None, state.generation);
            self.args.handle.set_size(held);
        }
        Ok(())
    }
}

fn not_yet(why: &str) -> KvError {
    KvError { class: FailureClass::NotRunning, op: "quarantine", detail: why.to_owned() }
}
