//! Events that are told of more than once: what their requests come to together, and what they owe each other.
//!
//! The judge takes it that no body is sent twice. So the requests of one event, which have one body and one key, are one
//! request to it: acked if any of them was, unknown if any may have been, and refused only if all were. What it cannot see
//! is judged here: every request that was acked was told the same hook, and at most one of them that it was new.

use std::collections::{BTreeMap, BTreeSet};

use ankusa_drills_check::{Invariant, Outcome, Request, Violation};

use crate::load::LoadPlan;

/// What is known of events whose requests have left the evidence.
#[derive(Debug, Default)]
pub struct Repeats {
    /// The hook of each, if anybody was told.
    over: BTreeMap<u64, Option<String>>,
}

/// The requests of one event.
#[derive(Debug, Default)]
struct Event {
    /// Hooks that were told as new.
    new: Vec<String>,
    /// Hooks that were told as known.
    known: BTreeSet<String>,
    /// It is forged: nobody told of it but once.
    held: bool,
    unknown: bool,
}

impl Event {
    fn hooks(&self) -> BTreeSet<&String> {
        self.new.iter().chain(&self.known).collect()
    }

    fn outcome(&self) -> Outcome {
        match self.hooks().first() {
            Some(id) => Outcome::Acked { id: (*id).clone() },
            None if self.held => Outcome::Held,
            None if self.unknown => Outcome::Unknown,
            None => Outcome::Refused,
        }
    }
}

fn events(
    plan: &LoadPlan,
    answers: &BTreeMap<u64, Outcome>,
    repeated: &BTreeSet<u64>,
) -> BTreeMap<u64, Event> {
    let mut events: BTreeMap<u64, Event> = BTreeMap::new();
    for (number, outcome) in answers {
        let event = events.entry(plan.event(*number)).or_default();
        match outcome {
            Outcome::Acked { id } if repeated.contains(number) => {
                event.known.insert(id.clone());
            }
            Outcome::Acked { id } => event.new.push(id.clone()),
            Outcome::Held => event.held = true,
            Outcome::Unknown => event.unknown = true,
            Outcome::Refused => {}
        }
    }
    events
}

impl Repeats {
    /// The requests as the judge takes them, and what is wrong with how they were answered.
    #[must_use]
    pub fn requests(
        &self,
        plan: &LoadPlan,
        answers: &BTreeMap<u64, Outcome>,
        repeated: &BTreeSet<u64>,
    ) -> (Vec<Request>, Vec<Violation>) {
        let (mut requests, mut violations) = (Vec::new(), Vec::new());
        for (number, event) in events(plan, answers, repeated) {
            let before = self.over.get(&number);
            let told = before.and_then(Option::as_ref);
            let (hooks, new) = (event.hooks(), event.new.len());
            let is_one = hooks.iter().copied().chain(told).collect::<BTreeSet<_>>().len() <= 1;
            if !is_one || new > 1 || (new > 0 && told.is_some()) {
                let evidence = format!(
                    "event {number} was told as {hooks:?}, {new} times as new, and before as {told:?}"
                );
                violations.push(Violation { invariant: Invariant::KeysMakeOneHook, evidence });
            }
            match before {
                // It was delivered and reclaimed, and the evidence of that is gone.
                Some(Some(_)) => {}
                // It may have been.
                Some(None) if new == 0 => requests.push(plan.request(number, Outcome::Unknown)),
                Some(None) | None => requests.push(plan.request(number, event.outcome())),
            }
        }
        (requests, violations)
    }

    /// All that was acked is delivered and leaves the evidence. Answers the hooks that were new in it, each once.
    pub fn settle(
        &mut self,
        plan: &LoadPlan,
        answers: &BTreeMap<u64, Outcome>,
        repeated: &BTreeSet<u64>,
    ) -> Vec<String> {
        let mut ids = Vec::new();
        for (number, event) in events(plan, answers, repeated) {
            let hook = event.hooks().first().map(|id| (*id).clone());
            if hook.is_none() && !event.unknown {
                continue;
            }
            let known = self.over.entry(number).or_default();
            if known.is_none() && hook.is_some() {
                ids.extend(hook.clone());
                *known = hook;
            }
        }
        ids
    }

    /// Events that are over and were told.
    #[must_use]
    pub fn count(&self) -> usize {
        self.over.values().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Four requests of one event.
    fn plan() -> (LoadPlan, u64) {
        let plan = LoadPlan::with_repeats(1);
        let is_of_four = |first: &u64| (0..4).all(|n| plan.event(first + n) == *first);
        (plan, (0..).step_by(4).find(is_of_four).unwrap())
    }

    fn acked(id: &str) -> Outcome {
        Outcome::Acked { id: id.to_owned() }
    }

    fn judged(repeats: &Repeats, outcomes: &[Outcome], known: &[u64]) -> (Vec<Outcome>, usize) {
        let (plan, first) = plan();
        let answers = (first..).zip(outcomes.iter().cloned()).collect();
        let known = known.iter().map(|n| first + n).collect();
        let (requests, violations) = repeats.requests(&plan, &answers, &known);
        (requests.into_iter().map(|request| request.outcome).collect(), violations.len())
    }

    fn settle(repeats: &mut Repeats, outcomes: &[Outcome], known: &[u64]) -> Vec<String> {
        let (plan, first) = plan();
        let answers = (first..).zip(outcomes.iter().cloned()).collect();
        repeats.settle(&plan, &answers, &known.iter().map(|n| first + n).collect())
    }

    #[test]
    fn requests_of_one_event_are_one_request() {
        use Outcome::{Refused, Unknown};
        let repeats = Repeats::default();
        let as_one = |outcomes: &[Outcome], known: &[u64]| judged(&repeats, outcomes, known);
        assert_eq!(as_one(&[Refused, Refused], &[]), (vec![Refused], 0));
        assert_eq!(as_one(&[Refused, Unknown], &[]), (vec![Unknown], 0));
        assert_eq!(
            as_one(&[Refused, acked("a"), Unknown, acked("a")], &[1]),
            (vec![acked("a")], 0)
        );
        assert_eq!(as_one(&[Unknown, acked("a"), acked("a")], &[1, 2]), (vec![acked("a")], 0));
    }

    #[test]
    fn two_hooks_or_two_that_are_new_are_a_violation() {
        let repeats = Repeats::default();
        assert_eq!(judged(&repeats, &[acked("a"), acked("b")], &[1]).1, 1);
        assert_eq!(judged(&repeats, &[acked("a"), acked("a")], &[]).1, 1);
    }

    #[test]
    fn what_is_over_is_held_against_what_comes_later() {
        use Outcome::{Refused, Unknown};
        let mut repeats = Repeats::default();
        assert_eq!(settle(&mut repeats, &[acked("a"), acked("a")], &[1]), ["a"]);
        assert_eq!(judged(&repeats, &[acked("a")], &[0]), (vec![], 0));
        assert_eq!(judged(&repeats, &[acked("b")], &[0]).1, 1);
        assert_eq!(judged(&repeats, &[acked("a")], &[]).1, 1, "it is not new");
        assert_eq!(settle(&mut repeats, &[acked("a")], &[0]), [""; 0], "each once");
        assert_eq!(repeats.count(), 1);

        let mut repeats = Repeats::default();
        assert_eq!(settle(&mut repeats, &[Unknown, Refused], &[]), [""; 0]);
        assert_eq!(judged(&repeats, &[acked("a")], &[0]), (vec![Unknown], 0), "delivered before");
        assert_eq!(judged(&repeats, &[acked("a")], &[]), (vec![acked("a")], 0));
    }
}
