//! I7: hooks, rows and index keys fit together, with nothing missing and nothing left over.

use std::collections::BTreeSet;

use super::{Evidence, Findings, Moment};
use crate::dump::to_hex;
use crate::rows::{Delivery, Slot, State};
use crate::store::{Place, PlaceKind, Store};

pub(super) fn judge(evidence: &Evidence<'_>, store: &Store, findings: &mut Findings) {
    for words in &store.undecodable {
        findings.misfit(words.clone());
    }
    for seq in store.hooks.keys() {
        hook_has_an_obligation(store, *seq, evidence.moment, findings);
    }
    for (slot, delivery) in &store.deliveries {
        row_is_in_its_place(store, *slot, delivery, findings);
    }
    for (slot, places) in &store.places {
        for place in places {
            key_has_its_row(store, *slot, place, findings);
        }
    }
    held_hooks_are_two_rows(store, findings);
    obligations_have_their_hooks(store, findings);
    lanes_are_busy_or_idle(store, findings);
    keys_and_their_expiry_agree(store, findings);
    tenants_and_ordinals_agree(store, findings);
    if evidence.moment == Moment::Drained {
        nothing_waits(store, findings);
    }
}

/// A hook lives while something is owed for it. Right after a crash it may also be waiting to be reclaimed, which its
/// cleared marker says.
fn hook_has_an_obligation(store: &Store, seq: u64, moment: Moment, findings: &mut Findings) {
    let owed = store.archive.contains_key(&seq) || store.deliveries_of(seq).next().is_some();
    let being_reclaimed = moment == Moment::Crash && store.cleared.contains(&seq);
    if !owed && !being_reclaimed {
        findings.misfit(format!("hook {seq} has no obligation left and is still stored"));
    }
}

/// The hook and its summary, under one key, of one id and one source.
fn held_hooks_are_two_rows(store: &Store, findings: &mut Findings) {
    for (key, hook) in &store.held {
        let of_hook = (hook.id.clone(), hook.source.clone());
        match store.held_summaries.get(key) {
            Some(summary) if *summary == of_hook && key.ends_with(hook.id.as_bytes()) => {}
            Some(summary) => {
                findings.misfit(format!("the held {of_hook:?} is told as {summary:?}"))
            }
            None => findings.misfit(format!("the held {of_hook:?} has no summary")),
        }
    }
    for (key, summary) in &store.held_summaries {
        if !store.held.contains_key(key) {
            findings.misfit(format!("the summary of the held {summary:?} has no hook"));
        }
    }
}

fn row_is_in_its_place(store: &Store, slot: Slot, delivery: &Delivery, findings: &mut Findings) {
    let Slot { seq, sink } = slot;
    match store.hooks.get(&seq) {
        None => findings.misfit(format!("delivery {seq}/{sink} has no hook")),
        Some(hook) if hook.stored_bytes != delivery.size => {
            findings.misfit(format!(
                "delivery {seq}/{sink} says its hook has {} bytes, and it has {}",
                delivery.size, hook.stored_bytes
            ));
        }
        Some(_) => {}
    }
    let mut kinds: Vec<PlaceKind> =
        store.places.get(&slot).into_iter().flatten().map(|place| place.kind).collect();
    kinds.sort_unstable();
    let fits = match delivery.state {
        State::Pending => matches!(
            kinds.as_slice(),
            [PlaceKind::DueFirst | PlaceKind::DueRetry | PlaceKind::Claimed | PlaceKind::Member]
        ),
        State::Dead => kinds == [PlaceKind::DeadByTime, PlaceKind::DeadByTenant],
    };
    if !fits {
        findings.misfit(format!(
            "delivery {seq}/{sink} is {:?} and has the index keys {kinds:?}",
            delivery.state
        ));
    }
}

fn key_has_its_row(store: &Store, slot: Slot, place: &Place, findings: &mut Findings) {
    let Slot { seq, sink } = slot;
    let kind = place.kind;
    let Some(delivery) = store.deliveries.get(&slot) else {
        findings.misfit(format!("the {kind:?} key of delivery {seq}/{sink} has no row"));
        return;
    };
    if let Some(at) = place.at {
        // A claim that came back after a crash is due again now; its row was not written and says when it was due before.
        let agrees = match kind {
            PlaceKind::DueFirst | PlaceKind::DueRetry => at >= delivery.at,
            PlaceKind::Claimed
            | PlaceKind::Member
            | PlaceKind::DeadByTime
            | PlaceKind::DeadByTenant => at == delivery.at,
        };
        if !agrees {
            findings.misfit(format!(
                "the {kind:?} key of delivery {seq}/{sink} says {at}, and the row says {}",
                delivery.at
            ));
        }
    }
    if let Some(size) = place.size
        && u64::from(size) != delivery.size
    {
        findings.misfit(format!(
            "the {kind:?} key of delivery {seq}/{sink} says {size} bytes, and the row says {}",
            delivery.size
        ));
    }
    belongs_to_its_tenant(
        store,
        seq,
        place.ord,
        &format!("the {kind:?} key of delivery {seq}/{sink}"),
        findings,
    );
    if let (PlaceKind::DueFirst | PlaceKind::DueRetry, Some(at)) = (kind, place.at)
        && !store.active.contains(&(at / 1000, place.ord))
    {
        findings.misfit(format!("the {kind:?} key of delivery {seq}/{sink} has no active marker for second {} of tenant ordinal {}", at / 1000, place.ord));
    }
}

fn belongs_to_its_tenant(store: &Store, seq: u64, ord: u32, what: &str, findings: &mut Findings) {
    let Some(hook) = store.hooks.get(&seq) else { return };
    if store.ordinals.get(&hook.tenant) != Some(&ord) {
        findings.misfit(format!(
            "{what} has the tenant ordinal {ord}, and the hook's tenant is {}",
            hook.tenant
        ));
    }
}

fn obligations_have_their_hooks(store: &Store, findings: &mut Findings) {
    for (seq, obligation) in &store.archive {
        match store.hooks.get(seq) {
            None => findings.misfit(format!("the archive obligation of hook {seq} has no hook")),
            Some(hook) if hook.stored_bytes != u64::from(obligation.size) => {
                findings.misfit(format!(
                    "the archive obligation of hook {seq} says {} bytes, and the hook has {}",
                    obligation.size, hook.stored_bytes
                ));
            }
            Some(_) => belongs_to_its_tenant(
                store,
                *seq,
                obligation.ord,
                &format!("the archive obligation of hook {seq}"),
                findings,
            ),
        }
    }
    for seq in store.cleared.iter().filter(|seq| !store.hooks.contains_key(seq)) {
        findings.misfit(format!("hook {seq} has a cleared marker and is not stored"));
    }
}

/// A lane is busy exactly while it has a head, which is due or claimed; and an idle one with members is marked.
fn lanes_are_busy_or_idle(store: &Store, findings: &mut Findings) {
    for ((ord, lane), slot) in &store.heads {
        let busy = |place: &Place| {
            place.ord == *ord && (place.is_head || place.kind == PlaceKind::Claimed)
        };
        if !store.places.get(slot).into_iter().flatten().any(busy) {
            findings.misfit(format!(
                "lane {lane:032x} of tenant ordinal {ord} has the head {}/{}, which is neither due as one nor claimed",
                slot.seq, slot.sink
            ));
        }
    }
    let heads: BTreeSet<(u32, Slot)> =
        store.heads.iter().map(|((ord, _), slot)| (*ord, *slot)).collect();
    for (slot, places) in &store.places {
        for place in places.iter().filter(|place| place.is_head) {
            if !heads.contains(&(place.ord, *slot)) {
                findings.misfit(format!(
                    "delivery {}/{} is due as the head of a lane, and no lane has it",
                    slot.seq, slot.sink
                ));
            }
        }
    }
    for (ord, lane) in stalled_lanes(store) {
        findings.misfit(format!(
            "lane {lane:032x} of tenant ordinal {ord} has deliveries waiting, and neither a head nor a marker"
        ));
    }
}

/// Lanes with deliveries waiting, and neither a head nor a marker.
pub(super) fn stalled_lanes(store: &Store) -> impl Iterator<Item = &(u32, u128)> {
    let is_stalled = |lane: &&(u32, u128)| {
        !store.heads.contains_key(*lane) && !store.lane_markers.contains(*lane)
    };
    store.waiting.iter().filter(is_stalled)
}

/// A dedupe key is there together with the entry that says when it expires.
fn keys_and_their_expiry_agree(store: &Store, findings: &mut Findings) {
    for (key, (tenant, expires_at)) in &store.dedupe_keys {
        if !store.dedupe_expiries.contains(&(key.clone(), *expires_at)) {
            let key = to_hex(key);
            findings.misfit(format!(
                "the dedupe key {key} of {tenant} has no entry that it expires at {expires_at}"
            ));
        }
    }
    for (key, expires_at) in &store.dedupe_expiries {
        if store.dedupe_keys.get(key).is_none_or(|(_, says)| says != expires_at) {
            let key = to_hex(key);
            findings.misfit(format!("no dedupe key {key} expires at {expires_at}"));
        }
    }
}

fn tenants_and_ordinals_agree(store: &Store, findings: &mut Findings) {
    for (ord, tenant) in &store.tenants {
        if *ord == 0 || store.ordinals.get(tenant) != Some(ord) {
            findings.misfit(format!(
                "tenant ordinal {ord} is {tenant}, and {tenant} has the ordinal {:?}",
                store.ordinals.get(tenant)
            ));
        }
    }
    for (tenant, ord) in &store.ordinals {
        if !store.tenants.contains_key(ord) {
            findings.misfit(format!("{tenant} has the tenant ordinal {ord}, which is nobody's"));
        }
    }
}

fn nothing_waits(store: &Store, findings: &mut Findings) {
    for (Slot { seq, sink }, _) in
        store.deliveries.iter().filter(|(_, delivery)| delivery.state == State::Pending)
    {
        findings.misfit(format!("delivery {seq}/{sink} still waits after the drain"));
    }
}
