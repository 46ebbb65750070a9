//! A recording as a timeline: which operations can be cut at, and what had been promised at each.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

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

/// What had happened before a recording began.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Requests, each with the outcome it will always have.
    pub requests: Vec<Request>,
    pub deliveries: Vec<Delivery>,
}

/// The journal of a recording, in the order of its operations.
#[derive(Debug)]
pub struct Timeline {
    past: Past,
    plan: LoadPlan,
    /// The numbers of the requests that were sent while it was recorded.
    numbers: Range<u64>,
    events: BTreeMap<usize, Event>,
    cuts: Vec<Cut>,
}

impl Timeline {
    /// Reads the marks of a log in which the requests `numbers` of the plan were sent.
    #[must_use]
    pub fn new(ops: &[Op<'_>], plan: LoadPlan, numbers: Range<u64>, past: Past) -> Self {
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
        Self { past, plan, numbers, events, cuts }
    }

    /// Every moment at which the disk is about to change, and the end.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Where in the log the first client was answered; the end of the log if none was.
    #[must_use]
    pub fn first_answer(&self) -> usize {
        let answers = |event: &Event| matches!(event, Event::Answered { .. });
        let first = self.events.iter().find(|(_, event)| answers(event));
        first.map_or(usize::MAX, |(at, _)| *at)
    }

    /// Where in the log hooks were acked again after some had been refused; the end of the log if they were not.
    #[must_use]
    pub fn acks_again(&self) -> usize {
        let refuses =
            |event: &Event| matches!(event, Event::Answered { outcome: Outcome::Refused, .. });
        let acks =
            |event: &Event| matches!(event, Event::Answered { outcome: Outcome::Acked { .. }, .. });
        let mut events = self.events.iter().skip_while(|(_, event)| !refuses(event));
        events.find(|(_, event)| acks(event)).map_or(usize::MAX, |(at, _)| *at)
    }

    /// What clients knew at a cut, of all that is in `requests` (see [`Self::unanswered`]). Whatever had not been answered
    /// is unknown.
    #[must_use]
    pub fn requests_at(&self, cut: Cut, requests: &[Request]) -> Vec<Request> {
        let mut known = requests.to_vec();
        let place = |number: u64| {
            let place = usize::try_from(number.checked_sub(self.numbers.start)?).ok()?;
            Some(self.past.requests.len() + place)
        };
        for (_, event) in self.events.range(..cut.end) {
            if let Event::Answered { number, outcome } = event
                && let Some(request) = place(*number).and_then(|place| known.get_mut(place))
            {
                request.outcome = outcome.clone();
            }
        }
        known
    }

    /// Every request of the past as it was answered, then every request of the recording, unanswered.
    #[must_use]
    pub fn unanswered(&self) -> Vec<Request> {
        let new = self.numbers.clone().map(|number| self.plan.request(number, Outcome::Unknown));
        self.past.requests.iter().cloned().chain(new).collect()
    }

    /// What the sink saw before a cut, as the strictest judge would have it.
    ///
    /// While the disk stood still, from `begin` to `end`, hooks were acked and hooks were delivered. The power could have
    /// gone at any point between: a hook that was acked, and delivered only later, had to be on the disk in the meantime.
    /// Such a delivery was seen, and does not count as accepted.
    #[must_use]
    pub fn deliveries_at(&self, cut: Cut) -> Vec<Delivery> {
        let mut acked: BTreeSet<&str> = self.past.requests.iter().filter_map(acked_id).collect();
        let mut deliveries = self.past.deliveries.clone();
        for (at, event) in self.events.range(..cut.end) {
            match event {
                Event::Answered { outcome: Outcome::Acked { id }, .. } => {
                    acked.insert(id);
                }
                Event::Answered {
                    outcome: Outcome::Held | Outcome::Refused | Outcome::Unknown,
                    ..
                } => {}
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

fn acked_id(request: &Request) -> Option<&str> {
    match &request.outcome {
        Outcome::Acked { id } => Some(id),
        Outcome::Held | Outcome::Refused | Outcome::Unknown => None,
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
        timeline_after(Past::default(), 0..3, events)
    }

    fn timeline_after(past: Past, numbers: Range<u64>, events: &[Option<Event>]) -> Timeline {
        let marks: Vec<Option<String>> =
            events.iter().map(|event| event.as_ref().map(Event::to_mark)).collect();
        let ops: Vec<Op<'_>> = marks
            .iter()
            .map(|mark| match mark {
                Some(mark) => Op::Mark { bytes: mark.as_bytes() },
                None => Op::SyncBegin { file: 1, token: 1 },
            })
            .collect();
        Timeline::new(&ops, LoadPlan::new(1), numbers, past)
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
        assert_eq!((timeline.first_answer(), timeline.acks_again()), (0, 3));
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

    #[test]
    fn a_recording_goes_on_from_its_past() {
        let plan = LoadPlan::new(1);
        let id = "old".to_owned();
        let requests =
            vec![plan.request(0, Outcome::Acked { id }), plan.request(1, Outcome::Unknown)];
        let past = Past { requests: requests.clone(), deliveries: vec![seen("gone", true)] };
        let delivered = Some(Event::Seen(seen("old", true)));
        let timeline = timeline_after(past, 5..7, &[delivered, None, acked(6, "new"), None]);
        assert_eq!(timeline.first_answer(), 2);
        let [first, second, _] = timeline.cuts() else { panic!("{:?}", timeline.cuts()) };
        let known = timeline.requests_at(*second, &timeline.unanswered());
        assert_eq!(known[..2], requests);
        let outcomes: Vec<Outcome> =
            known.into_iter().skip(2).map(|request| request.outcome).collect();
        assert_eq!(outcomes, [Outcome::Unknown, Outcome::Acked { id: "new".to_owned() }]);
        let gone = seen("gone", true);
        assert_eq!(timeline.deliveries_at(*first), [gone.clone(), seen("old", false)]);
        assert_eq!(timeline.deliveries_at(*second), [gone, seen("old", true)]);
    }
}
