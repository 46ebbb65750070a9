//! A recording as a timeline: which operations can be cut at, and what had been promised at each.

use std::collections::{BTreeMap, BTreeSet};

use ankusa_drills_check::{Delivery, Outcome, Request};
use ankusa_drills_replay::Op;

use crate::journal::Event;
use crate::load::LoadPlan;

/// A moment at which the power may go: everything before operation `end` happened, and nothing from it on.
///
/// The disk has been as it is since just after the operation before `begin`: from `begin` on there are only marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub begin: usize,
    pub end: usize,
}

/// The journal of a recording, in the order of its operations.
#[derive(Debug)]
pub struct Timeline {
    plan: LoadPlan,
    requests: u64,
    events: BTreeMap<usize, Event>,
    cuts: Vec<Cut>,
}

impl Timeline {
    /// Reads the marks of a log in which requests `0..requests` of the plan were sent.
    #[must_use]
    pub fn new(ops: &[Op<'_>], plan: LoadPlan, requests: u64) -> Self {
        let mut events = BTreeMap::new();
        let mut cuts = Vec::new();
        let mut begin = 0;
        for (at, op) in ops.iter().enumerate() {
            if let Op::Mark { bytes } = op {
                events.extend(Event::from_mark(bytes).map(|event| (at, event)));
            } else {
                cuts.push(Cut { begin, end: at });
                begin = at + 1;
            }
        }
        cuts.push(Cut { begin, end: ops.len() });
        Self { plan, requests, events, cuts }
    }

    /// Every moment at which the disk is about to change, and the end.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// What clients knew at a cut. Whatever had not been answered is unknown.
    #[must_use]
    pub fn requests_at(&self, cut: Cut, requests: &[Request]) -> Vec<Request> {
        let mut known = requests.to_vec();
        for (_, event) in self.events.range(..cut.end) {
            if let Event::Answered { number, outcome } = event
                && let Some(request) =
                    usize::try_from(*number).ok().and_then(|number| known.get_mut(number))
            {
                request.outcome = outcome.clone();
            }
        }
        known
    }

    /// Every request of the recording, unanswered.
    #[must_use]
    pub fn unanswered(&self) -> Vec<Request> {
        (0..self.requests).map(|number| self.plan.request(number, Outcome::Unknown)).collect()
    }

    /// What the sink saw before a cut, as the strictest judge would have it.
    ///
    /// While the disk stood still, from `begin` to `end`, hooks were acked and hooks were delivered. The power could have
    /// gone at any point between: a hook that was acked, and delivered only later, had to be on the disk in the meantime.
    /// Such a delivery was seen, and does not count as accepted.
    #[must_use]
    pub fn deliveries_at(&self, cut: Cut) -> Vec<Delivery> {
        let mut acked: BTreeSet<&str> = BTreeSet::new();
        let mut deliveries = Vec::new();
        for (at, event) in self.events.range(..cut.end) {
            match event {
                Event::Answered { outcome: Outcome::Acked { id }, .. } => {
                    acked.insert(id);
                }
                Event::Answered { outcome: Outcome::Refused | Outcome::Unknown, .. } => {}
                Event::Seen(delivery) => {
                    let came_too_late = *at >= cut.begin && acked.contains(delivery.id.as_str());
                    deliveries.push(Delivery {
                        accepted: delivery.accepted && !came_too_late,
                        ..delivery.clone()
                    });
                }
            }
        }
        deliveries
    }
}

#[cfg(test)]
mod tests {
    use ankusa_drills_check::Digest;

    use super::*;

    fn seen(id: &str, accepted: bool) -> Delivery {
        Delivery { id: id.to_owned(), body: Digest::of(b""), attempt: 1, accepted }
    }

    fn timeline(events: &[Option<Event>]) -> Timeline {
        let marks: Vec<Option<String>> =
            events.iter().map(|event| event.as_ref().map(Event::to_mark)).collect();
        let ops: Vec<Op<'_>> = marks
            .iter()
            .map(|mark| match mark {
                Some(mark) => Op::Mark { bytes: mark.as_bytes() },
                None => Op::SyncBegin { file: 1, token: 1 },
            })
            .collect();
        Timeline::new(&ops, LoadPlan { seed: 1 }, 3)
    }

    fn acked(number: u64, id: &str) -> Option<Event> {
        Some(Event::Answered { number, outcome: Outcome::Acked { id: id.to_owned() } })
    }

    #[test]
    fn the_power_may_go_before_every_change_of_the_disk_and_at_the_end() {
        let timeline = timeline(&[None, acked(0, "a"), None, None]);
        let cuts: Vec<(usize, usize)> =
            timeline.cuts().iter().map(|cut| (cut.begin, cut.end)).collect();
        assert_eq!(cuts, [(0, 0), (1, 2), (3, 3), (4, 4)]);
    }

    #[test]
    fn what_was_answered_later_is_unknown_at_the_cut() {
        let refused = Some(Event::Answered { number: 1, outcome: Outcome::Refused });
        let timeline = timeline(&[acked(0, "a"), None, refused, acked(2, "c")]);
        let at = |cut: usize| -> Vec<Outcome> {
            timeline
                .requests_at(timeline.cuts()[cut], &timeline.unanswered())
                .into_iter()
                .map(|request| request.outcome)
                .collect()
        };
        let acked = |id: &str| Outcome::Acked { id: id.to_owned() };
        assert_eq!(at(0), [acked("a"), Outcome::Unknown, Outcome::Unknown]);
        assert_eq!(at(1), [acked("a"), Outcome::Refused, acked("c")]);
    }

    #[test]
    fn a_hook_acked_and_then_delivered_while_the_disk_stood_still_had_to_be_on_it() {
        let delivered = |id| Some(Event::Seen(seen(id, true)));
        let timeline = timeline(&[
            acked(0, "a"),
            delivered("a"),
            delivered("b"),
            acked(1, "b"),
            None,
            delivered("c"),
            None,
        ]);
        assert_eq!(timeline.deliveries_at(timeline.cuts()[0]), [seen("a", false), seen("b", true)]);
        assert_eq!(
            timeline.deliveries_at(timeline.cuts()[1]),
            [seen("a", true), seen("b", true), seen("c", true)]
        );
    }
}
