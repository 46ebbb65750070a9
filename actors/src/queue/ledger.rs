//! Every group that has been given seqs and has not been answered.
//!
//! The Writer enters a group before it applies it; the Syncer takes it out once its fsync has returned, and answers it in
//! one block without an await. Whatever is still here when something fails, or when a Writer starts, is exactly what
//! must be fenced: deleted durably and only then refused. The ledger is made with the tree, so a crash of either
//! process loses neither the list nor the callers.

use std::collections::VecDeque;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

use super::admission::Permit;
use super::reply::{CommitAnswer, Refusal, Reply};
use crate::model::ids::Seq;
use crate::sync::{Arc, Mutex, MutexGuard};

/// One hook's caller, and the room it holds until it is answered.
#[derive(Debug)]
pub struct Caller {
    pub reply: Reply,
    /// What it is told once the group is synced.
    pub answer: CommitAnswer,
    pub permit: Permit,
}

/// What one batch of the store was written for: hooks, mostly.
#[derive(Debug)]
pub struct Group {
    /// After `last` where it has no hook.
    pub first: Seq,
    pub last: Seq,
    pub opened_at: Instant,
    pub callers: Vec<Caller>,
}

impl Group {
    /// It was never applied: its callers can be told so at once.
    pub fn refuse(self) {
        for caller in self.callers {
            caller.reply.send(CommitAnswer::Refused(Refusal::StoreUnavailable));
        }
    }
}

#[derive(Debug, Default)]
struct Groups {
    /// Entered, in order; the first `applied` of them have been applied.
    open: VecDeque<Group>,
    applied: usize,
    /// Taken away from the Syncer, to be deleted before they are refused.
    fenced: Vec<Group>,
    /// Set by the first failure; nothing is entered or synced until the fence is through.
    failed: bool,
    /// When the rows of the newest group are due, in Unix milliseconds.
    stamp_ms: u64,
}

/// Shared by the Writer and the Syncer.
#[derive(Clone, Debug, Default)]
pub struct Ledger {
    groups: Arc<Mutex<Groups>>,
}

impl Ledger {
    /// When the rows of the next group are due: now, and never before those of an earlier one, whatever the wall clock
    /// does and whichever Writer asks. Dispatch does not look where nothing new can be.
    pub fn stamp(&self, now_ms: u64) -> u64 {
        let mut groups = self.groups();
        groups.stamp_ms = groups.stamp_ms.max(now_ms);
        groups.stamp_ms
    }

    /// Enters a group about to be applied. Refused after a failure: the group must not be applied.
    pub fn enter(&self, group: Group) -> Result<(), Group> {
        let mut groups = self.groups();
        if groups.failed {
            return Err(group);
        }
        groups.open.push_back(group);
        Ok(())
    }

    /// The group entered last has been applied.
    pub fn applied(&self) {
        let mut groups = self.groups();
        groups.applied = groups.open.len();
    }

    /// A caller repeats the hook with this seq: it is told so once that hook is synced, which it may be, and refused if it
    /// never is.
    pub fn join(&self, seq: Seq, caller: Caller) {
        let failed = {
            let Groups { open, fenced, failed, .. } = &mut *self.groups();
            let holds = |group: &&mut Group| (group.first..=group.last).contains(&seq);
            if let Some(group) = open.iter_mut().chain(fenced).find(holds) {
                group.callers.push(caller);
                return;
            }
            *failed
        };
        // Of what is neither waiting nor fenced nothing certain is known while a failure is.
        let unknown = CommitAnswer::Refused(Refusal::StoreUnavailable);
        caller.reply.send(if failed { unknown } else { caller.answer });
    }

    /// The last seq that an fsync starting now would cover; `None` when there is nothing to sync, or nothing may be.
    pub fn syncable(&self) -> Option<Seq> {
        let groups = self.groups();
        if groups.failed {
            return None;
        }
        let last = groups.applied.checked_sub(1)?;
        groups.open.get(last).map(|group| group.last)
    }

    /// Takes out every applied group up to `last`: its fsync has returned.
    pub fn take_synced(&self, last: Seq) -> Vec<Group> {
        let mut groups = self.groups();
        let applied = groups.applied;
        let covered =
            groups.open.iter().take(applied).take_while(|group| group.last <= last).count();
        groups.applied -= covered;
        groups.open.drain(..covered).collect()
    }

    /// Stops everything: no group is entered or synced from here on.
    pub fn fail(&self) {
        self.groups().failed = true;
    }

    /// Moves every group out of the Syncer's reach and answers the seqs to be deleted, oldest first.
    pub fn fence(&self) -> Vec<(Seq, Seq)> {
        let mut groups = self.groups();
        groups.failed = true;
        groups.applied = 0;
        let open = std::mem::take(&mut groups.open);
        groups.fenced.extend(open);
        groups.fenced.iter().map(|group| (group.first, group.last)).collect()
    }

    /// The fence is durable: its callers are refused and the way is free again.
    pub fn fenced(&self) {
        let refused = {
            let mut groups = self.groups();
            groups.failed = false;
            std::mem::take(&mut groups.fenced)
        };
        refused.into_iter().for_each(Group::refuse);
    }

    /// The fence takes too long, or nobody is left to make it: the callers are told nothing. The groups stay until they
    /// are fenced.
    pub fn abandon_callers(&self) -> usize {
        let abandoned: Vec<Caller> = {
            let Groups { fenced, open, .. } = &mut *self.groups();
            let groups = fenced.iter_mut().chain(open);
            groups.flat_map(|group| std::mem::take(&mut group.callers)).collect()
        };
        let count = abandoned.len();
        for caller in abandoned {
            caller.reply.send(CommitAnswer::Unknown);
        }
        count
    }

    /// For the broken build a drill must catch: refuses what is fenced before anything of it is deleted.
    pub(super) fn refuse_unfenced(&self) {
        let callers: Vec<Caller> = {
            let mut groups = self.groups();
            groups.fenced.iter_mut().flat_map(|group| std::mem::take(&mut group.callers)).collect()
        };
        for caller in callers {
            caller.reply.send(CommitAnswer::Refused(Refusal::StoreUnavailable));
        }
    }

    /// Whether a new hook may be queued behind what is here.
    ///
    /// # Errors
    /// `StoreUnavailable` while a failure is being fenced; `Overload` while the oldest unanswered group has waited for
    /// longer than `stall`.
    pub fn admits(&self, now: Instant, stall: Duration) -> Result<(), Refusal> {
        let groups = self.groups();
        if groups.failed {
            return Err(Refusal::StoreUnavailable);
        }
        let oldest = groups.open.front();
        let stalled = oldest.is_some_and(|group| now.duration_since(group.opened_at) > stall);
        if stalled { Err(Refusal::Overload) } else { Ok(()) }
    }

    /// Groups entered and not yet answered or fenced.
    pub fn open_groups(&self) -> usize {
        self.groups().open.len()
    }

    pub fn is_failed(&self) -> bool {
        self.groups().failed
    }

    /// Nothing to fence and nothing unanswered.
    pub fn is_clean(&self) -> bool {
        let groups = self.groups();
        groups.open.is_empty() && groups.fenced.is_empty() && !groups.failed
    }

    fn groups(&self) -> MutexGuard<'_, Groups> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "ledger_interleavings.rs"]
mod interleavings;

#[cfg(test)]
mod tests {
    use super::super::admission::Admission;
    use super::super::reply::{Waiting, reply};
    use super::*;
    use crate::model::ids::HookId;

    fn group(first: u64, last: u64) -> (Group, Waiting) {
        let (reply, waiting) = reply();
        assert!(reply.start());
        let permit = Admission::new(1, 1).admit("acme", 1, 100).unwrap();
        let callers = vec![Caller { reply, answer: CommitAnswer::Committed(Seq(first)), permit }];
        (Group { first: Seq(first), last: Seq(last), opened_at: Instant::now(), callers }, waiting)
    }

    fn spans(groups: &[Group]) -> Vec<(u64, u64)> {
        groups.iter().map(|group| (group.first.0, group.last.0)).collect()
    }

    #[tokio::test]
    async fn only_groups_applied_before_the_fsync_are_covered_by_it() {
        let ledger = Ledger::default();
        let ((one, _one), (two, _two)) = (group(1, 3), group(4, 4));
        ledger.enter(one).unwrap();
        assert_eq!(ledger.syncable(), None, "entered is not applied");
        ledger.applied();
        let covered = ledger.syncable().unwrap();
        ledger.enter(two).unwrap();
        ledger.applied();
        assert_eq!(spans(&ledger.take_synced(covered)), [(1, 3)]);
        assert_eq!(ledger.syncable(), Some(Seq(4)));
    }

    #[tokio::test]
    async fn an_fsync_that_returns_after_the_fence_began_answers_nobody() {
        let ledger = Ledger::default();
        let (one, waiting) = group(1, 3);
        ledger.enter(one).unwrap();
        ledger.applied();
        let covered = ledger.syncable().unwrap();
        assert_eq!(ledger.fence(), [(Seq(1), Seq(3))]);
        assert_eq!(spans(&ledger.take_synced(covered)), []);
        ledger.fenced();
        let answer = waiting.answer(Instant::now()).await;
        assert_eq!(answer, CommitAnswer::Refused(Refusal::StoreUnavailable));
        assert!(ledger.is_clean());
    }

    fn caller(answer: CommitAnswer) -> (Caller, Waiting) {
        let (reply, waiting) = reply();
        assert!(reply.start());
        let permit = Admission::new(1, 1).admit("acme", 1, 100).unwrap();
        (Caller { reply, answer, permit }, waiting)
    }

    #[tokio::test]
    async fn who_repeats_a_hook_is_told_so_once_that_is_synced_and_refused_if_it_never_is() {
        let duplicate = CommitAnswer::Duplicate(HookId::v7(1, 1));
        let ledger = Ledger::default();
        let ((one, _one), (two, _two)) = (group(1, 3), group(4, 6));
        ledger.enter(one).unwrap();
        ledger.enter(two).unwrap();
        ledger.applied();
        let (of_the_first, waiting) = caller(duplicate);
        ledger.join(Seq(2), of_the_first);
        let synced = ledger.take_synced(Seq(3));
        assert_eq!(synced.first().unwrap().callers.last().unwrap().answer, duplicate);
        let (late, late_waiting) = caller(duplicate);
        ledger.join(Seq(2), late);
        assert_eq!(late_waiting.answer(Instant::now()).await, duplicate, "it is synced already");
        drop(synced);
        assert_eq!(waiting.answer(Instant::now()).await, CommitAnswer::Unknown);

        let (of_the_second, waiting) = caller(duplicate);
        ledger.join(Seq(6), of_the_second);
        ledger.fence();
        let (later, later_waiting) = caller(duplicate);
        ledger.join(Seq(5), later);
        let (other, other_waiting) = caller(duplicate);
        ledger.join(Seq(9), other);
        let refused = CommitAnswer::Refused(Refusal::StoreUnavailable);
        assert_eq!(other_waiting.answer(Instant::now()).await, refused, "nobody knows of it");
        ledger.fenced();
        assert_eq!(waiting.answer(Instant::now()).await, refused);
        assert_eq!(later_waiting.answer(Instant::now()).await, refused);
    }

    #[tokio::test]
    async fn after_a_failure_nothing_is_entered_or_synced_until_the_fence_is_through() {
        let ledger = Ledger::default();
        let ((one, _one), (two, _two), (three, _three)) = (group(1, 1), group(2, 2), group(3, 3));
        ledger.enter(one).unwrap();
        ledger.applied();
        ledger.fail();
        assert_eq!(ledger.syncable(), None);
        assert!(ledger.enter(two).is_err());
        assert_eq!(ledger.fence(), [(Seq(1), Seq(1))]);
        ledger.fenced();
        assert!(ledger.enter(three).is_ok());
    }

    #[tokio::test]
    async fn a_fence_that_takes_too_long_tells_its_callers_nothing_and_keeps_its_groups() {
        let ledger = Ledger::default();
        let (one, waiting) = group(1, 2);
        ledger.enter(one).unwrap();
        ledger.fence();
        assert_eq!(ledger.abandon_callers(), 1);
        assert_eq!(waiting.answer(Instant::now()).await, CommitAnswer::Unknown);
        assert_eq!(ledger.fence(), [(Seq(1), Seq(2))], "still to be deleted");
    }
}
