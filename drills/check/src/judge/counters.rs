//! I4: every counter is what a recount of the rows says, for each tenant and, under ordinal 0, for the node.

use std::collections::{BTreeMap, BTreeSet};

use super::{Findings, Invariant};
use crate::rows::State;
use crate::store::{PlaceKind, Store};

/// The counter fields, by number and name. Others may be there and are not recounted yet.
const FIELDS: [(u8, &str); 11] = [
    (1, "pending"),
    (2, "scheduled"),
    (3, "inflight"),
    (4, "dead"),
    (5, "bytes"),
    (6, "archive_pending"),
    (7, "dedupe"),
    (8, "dead_bytes"),
    (10, "lanes"),
    (11, "lanes_blocked"),
    (12, "lane_members"),
];

/// The ordinal the node's own totals are kept under.
const NODE: u32 = 0;

type Counts = BTreeMap<(u32, u8), i128>;

pub(super) fn judge(store: &Store, findings: &mut Findings) {
    let recount = recount(store);
    let ordinals: BTreeSet<u32> =
        recount.keys().chain(store.counters.keys()).map(|(ord, _)| *ord).collect();
    for ord in ordinals {
        for (field, name) in FIELDS {
            let stored = store.counters.get(&(ord, field)).copied().unwrap_or(0);
            let counted = recount.get(&(ord, field)).copied().unwrap_or(0);
            if stored != counted {
                let whose = match store.tenants.get(&ord) {
                    Some(tenant) => format!("tenant {tenant}"),
                    None if ord == NODE => "the node".to_owned(),
                    None => format!("tenant ordinal {ord}"),
                };
                findings.add(
                    Invariant::CountersAreCounts,
                    format!("{name} of {whose} is {stored}, and a recount says {counted}"),
                );
            }
        }
    }
}

fn recount(store: &Store) -> Counts {
    let mut counts = Counts::new();
    let mut count = |ord: u32, field: u8, by: i128| {
        *counts.entry((ord, field)).or_default() += by;
        *counts.entry((NODE, field)).or_default() += by;
    };
    for place in store.places.values().flatten() {
        match place.kind {
            // First attempts waiting.
            PlaceKind::DueFirst => count(place.ord, 1, 1),
            // Retries waiting, due or not.
            PlaceKind::DueRetry => {
                count(place.ord, 2, 1);
                count(place.ord, 11, i128::from(place.is_head));
            }
            PlaceKind::Claimed => count(place.ord, 3, 1),
            PlaceKind::Member => count(place.ord, 12, 1),
            PlaceKind::DeadByTenant => count(place.ord, 4, 1),
            // The same rows again, in another order.
            PlaceKind::DeadByTime => {}
        }
    }
    for (ord, _) in store.heads.keys() {
        count(*ord, 10, 1);
    }
    for (slot, delivery) in &store.deliveries {
        // The index key says whose row it is; the hook's tenant speaks for a row that lost its key.
        let of_place =
            store.places.get(slot).and_then(|places| places.first()).map(|place| place.ord);
        if let Some(ord) = of_place.or_else(|| store.ordinal_of_hook(slot.seq)) {
            count(ord, 5, delivery.size.into());
            if delivery.state == State::Dead {
                count(ord, 8, delivery.size.into());
            }
        }
    }
    for (tenant, _) in store.dedupe_keys.values() {
        // A tenant without an ordinal is found by others.
        if let Some(ord) = store.ordinals.get(tenant) {
            count(*ord, 7, 1);
        }
    }
    for obligation in store.archive.values() {
        count(obligation.ord, 6, 1);
    }
    counts
}
