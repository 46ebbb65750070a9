//! What can go wrong with a simulated disk, and for how long.

use crate::model::failure::FailureClass;
use crate::ports::Lane;

/// What a fault or a delay hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SimOp {
    Open,
    /// The synced write of a small file beside the database.
    Probe,
    Apply,
    Sync,
    /// `get`, `multi_get`, `scan` and `stats`.
    Read,
}

/// How far the failing call got before it failed. All of these happen on real disks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It did nothing.
    Nothing,
    /// An apply reached the log and not the readers: the change shows up after a reopen.
    Logged,
    /// All of it was done, and the caller is told otherwise.
    Landed,
    /// The kernel marked the unwritten pages clean: a later sync answers ok and covers nothing until a reopen.
    PagesDropped,
    /// What the sync covers is on the disk; of the page behind it the kernel forgot that it owes it. Nothing appended
    /// later comes back after a power cut until a reopen.
    LandedThenDropped,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lasts {
    Times(u32),
    UntilReopened,
    UntilHealed,
}

/// One way to fail. Once, at the next call, unless told otherwise.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub(super) op: SimOp,
    pub(super) class: FailureClass,
    pub(super) effect: Effect,
    pub(super) lane: Option<Lane>,
    pub(super) skip: u32,
    pub(super) lasts: Lasts,
}

impl Fault {
    /// `op` fails and does nothing.
    pub fn refuse(op: SimOp, class: FailureClass) -> Self {
        Self { op, class, effect: Effect::Nothing, lane: None, skip: 0, lasts: Lasts::Times(1) }
    }

    /// The batch reaches the log and not the readers: it shows up after a reopen, and a power cut may lose it.
    pub fn apply_logged_unseen(class: FailureClass) -> Self {
        Self { effect: Effect::Logged, ..Self::refuse(SimOp::Apply, class) }
    }

    /// The batch takes effect whole; the caller is told it failed.
    pub fn apply_landed(class: FailureClass) -> Self {
        Self { effect: Effect::Landed, ..Self::refuse(SimOp::Apply, class) }
    }

    /// The log is on the disk; the caller is told it is not.
    pub fn sync_landed(class: FailureClass) -> Self {
        Self { effect: Effect::Landed, ..Self::refuse(SimOp::Sync, class) }
    }

    /// The log is not on the disk and the kernel forgets that it owes it: every later sync answers ok and makes nothing
    /// durable, until a reopen writes what was recovered into files of its own.
    pub fn sync_drops_pages(class: FailureClass) -> Self {
        Self { effect: Effect::PagesDropped, ..Self::refuse(SimOp::Sync, class) }
    }

    /// What the sync covers is on the disk, and the log has a hole behind it: later syncs answer ok, and nothing of what
    /// they cover comes back after a power cut, until a reopen writes what was recovered into files of its own.
    pub fn sync_lands_and_drops_what_follows(class: FailureClass) -> Self {
        Self { effect: Effect::LandedThenDropped, ..Self::refuse(SimOp::Sync, class) }
    }

    /// Lets `calls` pass first: `after(2)` hits the third.
    #[must_use]
    pub fn after(self, calls: u32) -> Self {
        Self { skip: calls, ..self }
    }

    /// Hits `calls` calls in a row.
    #[must_use]
    pub fn times(self, calls: u32) -> Self {
        Self { lasts: Lasts::Times(calls), ..self }
    }

    /// Hits every call until the database is opened again: a latched write error.
    #[must_use]
    pub fn until_reopened(self) -> Self {
        Self { lasts: Lasts::UntilReopened, ..self }
    }

    /// Hits every call until `SimDisk::heal`.
    #[must_use]
    pub fn until_healed(self) -> Self {
        Self { lasts: Lasts::UntilHealed, ..self }
    }

    /// Hits applies of one lane only.
    #[must_use]
    pub fn on(self, lane: Lane) -> Self {
        Self { lane: Some(lane), ..self }
    }
}

/// The faults that are switched on.
#[derive(Debug, Default)]
pub(super) struct Faults {
    active: Vec<Fault>,
}

impl Faults {
    pub(super) fn add(&mut self, fault: Fault) {
        self.active.push(fault);
    }

    pub(super) fn heal(&mut self) {
        self.active.clear();
    }

    pub(super) fn reopened(&mut self) {
        self.active.retain(|fault| fault.lasts != Lasts::UntilReopened);
    }

    /// What this call meets, if anything: the first fault that was switched on and is due.
    pub(super) fn hit(&mut self, op: SimOp, lane: Option<Lane>) -> Option<(FailureClass, Effect)> {
        let mut hit = None;
        for fault in &mut self.active {
            let concerns_it = fault.op == op && (fault.lane.is_none() || fault.lane == lane);
            if !concerns_it || fault.lasts == Lasts::Times(0) {
                continue;
            }
            if fault.skip > 0 {
                fault.skip -= 1;
                continue;
            }
            if hit.is_none() {
                hit = Some((fault.class, fault.effect));
                if let Lasts::Times(left) = &mut fault.lasts {
                    *left -= 1;
                }
            }
        }
        self.active.retain(|fault| fault.lasts != Lasts::Times(0));
        hit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_SPACE: Option<(FailureClass, Effect)> = Some((FailureClass::NoSpace, Effect::Nothing));

    #[test]
    fn a_fault_hits_the_calls_it_was_made_for_and_no_other() {
        let mut faults = Faults::default();
        faults.add(Fault::refuse(SimOp::Apply, FailureClass::NoSpace).after(1).times(2));
        let hits: Vec<_> = (0..4).map(|_| faults.hit(SimOp::Apply, None)).collect();
        assert_eq!(hits, [None, NO_SPACE, NO_SPACE, None]);
        assert_eq!(faults.hit(SimOp::Sync, None), None);
    }

    #[test]
    fn a_lasting_fault_ends_with_what_ends_it() {
        let mut faults = Faults::default();
        faults.add(Fault::refuse(SimOp::Sync, FailureClass::NoSpace).until_reopened());
        faults.add(Fault::refuse(SimOp::Probe, FailureClass::NoSpace).until_healed());
        assert_eq!(faults.hit(SimOp::Sync, None), NO_SPACE);
        faults.reopened();
        assert_eq!(faults.hit(SimOp::Sync, None), None);
        assert_eq!(faults.hit(SimOp::Probe, None), NO_SPACE);
        faults.heal();
        assert_eq!(faults.hit(SimOp::Probe, None), None);
    }

    #[test]
    fn a_lane_has_faults_of_its_own() {
        let mut faults = Faults::default();
        faults.add(Fault::refuse(SimOp::Apply, FailureClass::NoSpace).on(Lane::Commit));
        assert_eq!(faults.hit(SimOp::Apply, Some(Lane::Background)), None);
        assert_eq!(faults.hit(SimOp::Apply, Some(Lane::Commit)), NO_SPACE);
    }
}
