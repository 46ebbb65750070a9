//! The answer a caller waits for, in a guard that cannot forget it.
//!
//! Three outcomes, never two: acked, refused, unknown. A hook the Writer has not started can be given up by either side,
//! and exactly one of them wins; from the start on it is waited out, so a 503 is never followed by a commit.

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::model::ids::{HookId, Seq};
use crate::sync::Arc;
use crate::sync::atomic::{AtomicU8, Ordering};

/// What became of one hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitAnswer {
    /// An fsync that covers it has returned.
    Committed(Seq),
    /// Its dedupe key is held by this hook, which an fsync has covered. Nothing of it is stored.
    Duplicate(HookId),
    /// It is not stored and never will be: refused before it was applied, or fenced durably after.
    Refused(Refusal),
    /// It may or may not be stored: the connection is closed unanswered.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A queue is full or the commit path is stalled: 503 `overload`.
    Overload,
    /// The commit failed, the store is closed, or the start deadline passed: 503 `store_unavailable`.
    StoreUnavailable,
    /// It would be one tenant too many: 503 `tenant_limit`.
    TenantLimit,
    /// Its tenant holds its share of the batchers, while others find room: 429 `tenant_overload`.
    TenantOverload,
    /// Its dedupe key would be one too many: 503 `dedupe_quota`.
    DedupeQuota,
}

const WAITING: u8 = 0;
const STARTED: u8 = 1;
const GIVEN_UP: u8 = 2;

/// Held by the side that commits. Dropping it answers: refused while the hook was never applied, unknown after.
#[derive(Debug)]
pub struct Reply {
    sender: Option<oneshot::Sender<CommitAnswer>>,
    state: Arc<AtomicU8>,
}

/// Held by the side that waits. Dropping it gives the hook up, if it has not been started.
#[derive(Debug)]
pub struct Waiting {
    receiver: oneshot::Receiver<CommitAnswer>,
    state: Arc<AtomicU8>,
}

/// A connected pair.
pub(crate) fn reply() -> (Reply, Waiting) {
    let (sender, receiver) = oneshot::channel();
    let state = Arc::new(AtomicU8::new(WAITING));
    (Reply { sender: Some(sender), state: Arc::clone(&state) }, Waiting { receiver, state })
}

fn settle(state: &AtomicU8, to: u8) -> bool {
    state.compare_exchange(WAITING, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
}

impl Reply {
    /// Takes the hook on. False when the caller has given up: it must not be committed.
    #[must_use]
    pub fn start(&self) -> bool {
        settle(&self.state, STARTED)
    }

    pub fn send(mut self, answer: CommitAnswer) {
        if let Some(sender) = self.sender.take() {
            // The caller may be gone; its hook is committed all the same.
            let _ = sender.send(answer);
        }
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        let Some(sender) = self.sender.take() else { return };
        let started = self.state.load(Ordering::Acquire) == STARTED;
        let answer = if started {
            CommitAnswer::Unknown
        } else {
            CommitAnswer::Refused(Refusal::StoreUnavailable)
        };
        let _ = sender.send(answer);
    }
}

impl Waiting {
    /// Waits for the answer. A hook not started by `deadline` is given up and refused at once.
    pub async fn answer(mut self, deadline: Instant) -> CommitAnswer {
        match timeout_at(deadline, &mut self.receiver).await {
            Ok(answer) => answer.unwrap_or(CommitAnswer::Unknown),
            Err(_elapsed) if settle(&self.state, GIVEN_UP) => {
                CommitAnswer::Refused(Refusal::StoreUnavailable)
            }
            Err(_elapsed) => (&mut self.receiver).await.unwrap_or(CommitAnswer::Unknown),
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        settle(&self.state, GIVEN_UP);
    }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "reply_interleavings.rs"]
mod interleavings;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_hook_not_started_in_time_is_refused_and_cannot_be_started_any_more() {
        let (reply, waiting) = reply();
        let answer = waiting.answer(Instant::now() + Duration::from_secs(2)).await;
        assert_eq!(answer, CommitAnswer::Refused(Refusal::StoreUnavailable));
        assert!(!reply.start());
    }

    #[tokio::test(start_paused = true)]
    async fn a_hook_that_was_started_is_waited_out() {
        let (reply, waiting) = reply();
        assert!(reply.start());
        let answer = tokio::join!(waiting.answer(Instant::now()), async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            reply.send(CommitAnswer::Committed(Seq(7)));
        });
        assert_eq!(answer.0, CommitAnswer::Committed(Seq(7)));
    }

    #[tokio::test]
    async fn a_forgotten_reply_answers_refused_before_the_start_and_unknown_after() {
        let deadline = Instant::now() + Duration::from_secs(60);
        let (dropped, waiting) = reply();
        drop(dropped);
        let answer = waiting.answer(deadline).await;
        assert_eq!(answer, CommitAnswer::Refused(Refusal::StoreUnavailable));
        let (dropped, waiting) = reply();
        assert!(dropped.start());
        drop(dropped);
        assert_eq!(waiting.answer(deadline).await, CommitAnswer::Unknown);
    }

    #[tokio::test]
    async fn a_caller_that_hangs_up_gives_its_hook_up() {
        let (reply, waiting) = reply();
        drop(waiting);
        assert!(!reply.start());
    }
}
