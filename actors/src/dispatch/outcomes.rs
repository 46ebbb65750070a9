//! What becomes of a row once it was attempted: decided here, written in batches.

use tracing::warn;

use super::attempts::{Done, End, Job};
use crate::model::delivery::{DeliveryRow, RowState};
use crate::model::keys::{ClearedKey, DueKind, LaneKey};
use crate::model::ops::{Claimed, Ops};
use crate::model::retry::{Next, RetryPolicy};
use crate::model::value_version::ValueVersion;
use crate::ports::{Event, Events, Outcome};

/// Outcomes in one batch. A batch of the store costs little more than a row of it.
pub(super) const BATCH: usize = 256;

/// Characters kept of what a sink said. A row is written again at every attempt.
const MAX_REASON_CHARS: usize = 1_000;

/// Why a row waits whose sink keeps failing.
pub(super) const BREAKER_OPEN: &str = "breaker open";

/// By what rules rows are settled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    pub(super) retry: RetryPolicy,
    pub(super) attempt_timeout_ms: u64,
    pub(super) version: ValueVersion,
}

/// A claimed row and what it becomes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Settled {
    pub(super) claimed: Claimed,
    /// Whose head it is, if it is one.
    pub(super) lane: Option<LaneKey>,
    pub(super) change: Change,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Change {
    Delivered,
    /// Due again after a failed attempt.
    Retry {
        row: Vec<u8>,
        at_ms: u64,
        kind: DueKind,
    },
    /// Due again without an attempt used up.
    Park {
        row: Vec<u8>,
        at_ms: u64,
        kind: DueKind,
    },
    Dead(DeadLetter),
    /// There is no hook to deliver.
    NoHook,
    /// There is no row.
    NoRow,
}

/// A row that is given up.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DeadLetter {
    /// The row as it is to be written.
    pub(super) row: Vec<u8>,
    pub(super) at_ms: u64,
    /// Empty where the hook cannot be read.
    pub(super) source_id: String,
    /// Empty where the hook cannot be read.
    pub(super) hook_id: String,
    /// What metrics call the sink.
    pub(super) sink: &'static str,
    pub(super) reason: String,
}

impl Rules {
    /// What follows from an attempt. `unit` is chance, uniform in `[0, 1)`.
    pub(super) fn settle(&self, done: Done, unit: f64) -> Settled {
        let Done { job, end, at_ms } = done;
        let attempt = job.row.attempts.saturating_add(1);
        let (claimed, lane) = (job.claimed, job.lane);
        let (next, reason) = match end {
            End::Answered(Outcome::Ok) => {
                return Settled { claimed, lane, change: Change::Delivered };
            }
            End::Parked { until_ms } => {
                let change = self.park(job.row, lane.is_some(), until_ms, BREAKER_OPEN);
                return Settled { claimed, lane, change };
            }
            End::Answered(Outcome::Permanent(reason)) => (Next::GiveUp, reason),
            End::Answered(Outcome::RetryAfter { ms, reason }) => {
                (self.retry.after_asked(attempt, unit, ms), reason)
            }
            End::Answered(Outcome::Retry(reason)) => (self.retry.after(attempt, unit), reason),
            End::TimedOut => {
                let reason = format!("attempt timed out after {} ms", self.attempt_timeout_ms);
                (self.retry.after(attempt, unit), reason)
            }
            End::Panicked => (self.retry.after(attempt, unit), "the sink panicked".to_owned()),
        };
        let reason = cut(reason);
        let change = match next {
            Next::RetryIn(wait_ms) => {
                let at_ms = at_ms.saturating_add(wait_ms);
                let error = Some(reason);
                let row = DeliveryRow { attempts: attempt, at_ms, error, ..job.row };
                let kind = DueKind::put_back(lane.is_some(), attempt);
                Change::Retry { row: row.encode(self.version), at_ms, kind }
            }
            Next::GiveUp => Change::Dead(self.give_up(job, attempt, at_ms, reason)),
        };
        Settled { claimed, lane, change }
    }

    /// A row whose sink is left alone until then. What went wrong last is kept.
    pub(super) fn park(
        &self,
        row: DeliveryRow,
        is_head: bool,
        until_ms: u64,
        why: &'static str,
    ) -> Change {
        let kind = DueKind::put_back(is_head, row.attempts);
        let error = row.error.or_else(|| Some(why.to_owned()));
        let row = DeliveryRow { at_ms: until_ms, error, ..row };
        Change::Park { row: row.encode(self.version), at_ms: until_ms, kind }
    }

    fn give_up(&self, job: Job, attempts: u32, at_ms: u64, reason: String) -> DeadLetter {
        let Job { claimed: _, lane: _, ticket: _, row, envelope, target } = job;
        let error = Some(reason.clone());
        let row = DeliveryRow { state: RowState::Dead, attempts, at_ms, error, ..row };
        DeadLetter {
            row: row.encode(self.version),
            at_ms,
            source_id: envelope.source_id.clone(),
            hook_id: envelope.id.to_string(),
            sink: target.sink.kind(),
            reason,
        }
    }
}

/// As much of a reason as is kept.
pub(super) fn cut(mut reason: String) -> String {
    if let Some((end, _)) = reason.char_indices().nth(MAX_REASON_CHARS) {
        reason.truncate(end);
    }
    reason
}

impl Settled {
    /// Adds it to a batch. Answers the marker it puts where the row is gone, for who knows what else its hook owes.
    pub(super) fn write(&self, ops: &mut Ops) -> Option<ClearedKey> {
        let claimed = &self.claimed;
        match &self.change {
            Change::Delivered => return Some(ops.delivered(claimed)),
            Change::NoHook => return Some(ops.drop_row(claimed)),
            Change::Retry { row, at_ms, kind } | Change::Park { row, at_ms, kind } => {
                ops.park(claimed, row, *at_ms, *kind);
            }
            Change::Dead(dead) => dead.write(claimed, ops),
            Change::NoRow => ops.drop_claim(claimed),
        }
        None
    }

    /// Whether its row is gone, and its hook to be looked at.
    pub(super) const fn clears(&self) -> bool {
        match self.change {
            Change::Delivered | Change::NoHook => true,
            Change::Retry { .. } | Change::Park { .. } | Change::Dead(_) | Change::NoRow => false,
        }
    }

    /// Whether it ends the row, and so hands its lane on.
    pub(super) const fn ends_the_row(&self) -> bool {
        match self.change {
            Change::Delivered | Change::Dead(_) | Change::NoHook | Change::NoRow => true,
            Change::Retry { .. } | Change::Park { .. } => false,
        }
    }

    /// Whether an attempt has ended, however it did.
    pub(super) const fn was_attempted(&self) -> bool {
        match self.change {
            Change::Delivered | Change::Retry { .. } | Change::Dead(_) => true,
            Change::Park { .. } | Change::NoHook | Change::NoRow => false,
        }
    }

    /// When the row is due again, if it is.
    pub(super) fn due_ms(&self) -> Option<u64> {
        match self.change {
            Change::Retry { at_ms, .. } | Change::Park { at_ms, .. } => Some(at_ms),
            Change::Delivered | Change::Dead(_) | Change::NoHook | Change::NoRow => None,
        }
    }
}

impl DeadLetter {
    fn write(&self, claimed: &Claimed, ops: &mut Ops) {
        ops.dead(claimed, &self.row, self.at_ms, &self.source_id, &self.hook_id);
    }

    /// Once it is written.
    pub(super) fn announce(&self, instance: &str, events: &dyn Events) {
        let Self { source_id, hook_id, sink, reason, row: _, at_ms: _ } = self;
        warn!(%instance, source = %source_id, hook = %hook_id, sink, %reason, "a delivery is given up");
        events.emit(&Event::DeadLettered { source_id, sink });
    }
}
