//! I13: what was asked to be delivered in order was.
//!
//! Nobody outside the node sees a seq, but whoever sends a hook after another was acked knows which of the two is first.
//! This holds of one store that forgets nothing: a power cut may undo that a hook was delivered, and a kill may not.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Invariant, Violation};
use crate::ledger::{Delivery, Digest};

/// A request that was to be delivered in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRequest {
    pub body: Digest,
    /// What it was to be in order with.
    pub lane: String,
    /// When it was sent, on any clock that all requests share.
    pub sent_at: u64,
    /// When it was acked, if it was.
    pub acked_at: Option<u64>,
}

/// Every violation of order that the deliveries show, which are in the order they began in.
#[must_use]
pub fn judge_lanes(requests: &[LaneRequest], deliveries: &[Delivery]) -> Vec<Violation> {
    let requests: BTreeMap<Digest, &LaneRequest> =
        requests.iter().map(|request| (request.body, request)).collect();
    let mut lanes: BTreeMap<&str, Vec<(&LaneRequest, &Delivery)>> = BTreeMap::new();
    for delivery in deliveries {
        if let Some(request) = requests.get(&delivery.body) {
            lanes.entry(&request.lane).or_default().push((request, delivery));
        }
    }
    let mut findings = Findings::default();
    for (lane, deliveries) in lanes {
        one_after_the_other(lane, &deliveries, &mut findings);
        as_they_were_accepted(lane, &deliveries, &mut findings);
    }
    findings.0
}

/// A hook is begun once the one before it was accepted, and that does not come up again.
fn one_after_the_other(
    lane: &str,
    deliveries: &[(&LaneRequest, &Delivery)],
    findings: &mut Findings,
) {
    let mut over = BTreeSet::new();
    // The hook that is being delivered, and whether that has come about.
    let mut current: Option<(&Delivery, bool)> = None;
    for (_, delivery) in deliveries {
        let accepted = match current {
            Some((other, accepted)) if other.body == delivery.body => accepted,
            Some((other, accepted)) => {
                if !accepted {
                    let (id, other) = (&delivery.id, &other.id);
                    let evidence = format!(
                        "lane {lane}: hook {id} was begun before hook {other} was delivered"
                    );
                    findings.add(Invariant::LanesKeepOrder, evidence);
                }
                over.insert(other.body);
                false
            }
            None => false,
        };
        if over.contains(&delivery.body) {
            let evidence = format!("lane {lane}: hook {} came up again behind others", delivery.id);
            findings.add(Invariant::LanesKeepOrder, evidence);
        }
        current = Some((delivery, accepted || delivery.accepted));
    }
}

/// Of two hooks, one of which was sent when the other had been acked, the other is begun first.
fn as_they_were_accepted(
    lane: &str,
    deliveries: &[(&LaneRequest, &Delivery)],
    findings: &mut Findings,
) {
    let mut seen = BTreeSet::new();
    let first = deliveries.iter().filter(|(request, _)| seen.insert(request.body));
    let first: Vec<_> = first.collect();
    // From the end: the earliest ack among those that are begun later.
    let mut earliest: Option<(u64, &Delivery)> = None;
    for (request, delivery) in first.into_iter().rev() {
        if let Some((acked_at, later)) = earliest
            && acked_at < request.sent_at
        {
            findings.add(
                Invariant::LanesKeepOrder,
                format!(
                    "lane {lane}: hook {} was begun before hook {}, which was acked before the other was sent",
                    delivery.id, later.id
                ),
            );
        }
        if let Some(acked_at) = request.acked_at
            && earliest.is_none_or(|(earliest, _)| acked_at < earliest)
        {
            earliest = Some((acked_at, delivery));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hook `n` of a lane: sent and acked then.
    fn request(n: u8, lane: &str, sent_at: u64, acked_at: Option<u64>) -> LaneRequest {
        LaneRequest { body: Digest::of(&[n]), lane: lane.to_owned(), sent_at, acked_at }
    }

    /// One after the other, each acked before the next was sent.
    fn in_turn(hooks: u8) -> Vec<LaneRequest> {
        let at = |n: u8| u64::from(n) * 10;
        (0..hooks).map(|n| request(n, "a", at(n), Some(at(n) + 5))).collect()
    }

    /// Hook, and whether the sink accepted it.
    fn found(requests: &[LaneRequest], deliveries: &[(u8, bool)]) -> Vec<String> {
        let delivery = |(n, accepted): &(u8, bool)| Delivery {
            id: format!("{n}"),
            body: Digest::of(&[*n]),
            attempt: 1,
            accepted: *accepted,
        };
        let deliveries: Vec<_> = deliveries.iter().map(delivery).collect();
        judge_lanes(requests, &deliveries).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn hooks_in_turn_with_retries_and_a_redelivered_head_are_in_order() {
        let deliveries = [(0, false), (0, true), (1, true), (1, true), (2, false), (2, true)];
        assert_eq!(found(&in_turn(3), &deliveries), Vec::<String>::new());
        assert_eq!(found(&in_turn(3), &[]), Vec::<String>::new());
        // What was begun and refused last may still be under way.
        assert_eq!(found(&in_turn(3), &[(0, true), (1, false)]), Vec::<String>::new());
    }

    #[test]
    fn a_hook_that_is_begun_before_the_one_in_front_is_delivered_is_out_of_order() {
        assert_eq!(
            found(&in_turn(2), &[(0, false), (1, true), (0, true)]),
            [
                "I13: lane a: hook 1 was begun before hook 0 was delivered",
                "I13: lane a: hook 0 came up again behind others",
            ]
        );
        assert_eq!(
            found(&in_turn(3), &[(0, true), (1, false), (2, true)]),
            ["I13: lane a: hook 2 was begun before hook 1 was delivered"]
        );
    }

    #[test]
    fn a_hook_that_overtakes_one_that_was_acked_before_it_was_sent_is_out_of_order() {
        assert_eq!(
            found(&in_turn(3), &[(1, true), (2, true), (0, true)]),
            [
                "I13: lane a: hook 2 was begun before hook 0, which was acked before the other was sent",
                "I13: lane a: hook 1 was begun before hook 0, which was acked before the other was sent",
            ]
        );
    }

    #[test]
    fn of_hooks_that_were_under_way_together_either_may_be_first() {
        let together = [request(0, "a", 0, Some(9)), request(1, "a", 1, Some(8))];
        for order in [[0, 1], [1, 0]] {
            assert_eq!(found(&together, &order.map(|n| (n, true))), Vec::<String>::new());
        }
        let never_acked = [request(0, "a", 0, None), request(1, "a", 10, Some(12))];
        assert_eq!(found(&never_acked, &[(1, true), (0, true)]), Vec::<String>::new());
    }

    #[test]
    fn lanes_do_not_wait_for_each_other_and_what_has_none_is_free() {
        let lanes = [request(0, "a", 0, Some(1)), request(1, "b", 10, Some(11))];
        let deliveries = [(0, false), (9, true), (1, true), (9, true), (0, true)];
        assert_eq!(found(&lanes, &deliveries), Vec::<String>::new());
    }
}
