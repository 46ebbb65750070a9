//! What is true of a store at every moment, whatever crashed: predicates over all its rows. Tests, the simulation and a
//! recount on request call these.
//!
//! The rows alone are judged here. What only answers can tell (an acked hook is there, a refused one is not) is for
//! whoever kept the answers.

use std::collections::{BTreeMap, BTreeSet};

use super::cf::Cf;
use super::counters::Field;
use super::delivery::RowState;
use super::ids::{Seq, TenantOrd};
use super::keys::{
    ClaimedKey, ClearedKey, CounterKey, DeadByTenantKey, DeadKey, DeliveryKey, DueKey, LaneHeadKey,
    LaneMarkerKey, LaneMemberKey,
};
use super::quarantine::says_its_size;

mod dump;
mod recount;
mod rows;

pub use dump::Dump;
pub use recount::{Counts, Miscount, named_tenant, recount, row_of};

/// One thing that is not as it must be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    #[error("{} holds a row that cannot be read, under {key:02x?}", cf.name())]
    Unreadable { cf: Cf, key: Vec<u8> },
    #[error("{field:?} of {tenant:?} says {stored}, its rows say {recounted}")]
    Counter { tenant: TenantOrd, field: Field, stored: i64, recounted: i64 },

    #[error("hook {0} owes nothing, and nothing marks it for reclamation")]
    HookWithoutObligation(Seq),
    #[error("{0:?} has no hook")]
    RowWithoutHook(DeliveryKey),
    #[error("the archive obligation of {0} has no hook")]
    ArchiveWithoutHook(Seq),
    #[error("{0:?} has no hook")]
    ClearedWithoutHook(ClearedKey),
    #[error("the claim-check reference of {0} has no hook")]
    ClaimRefWithoutHook(Seq),

    #[error("{0:?} has no row")]
    DueWithoutRow(DueKey),
    #[error("{0:?} has no row")]
    ClaimedWithoutRow(ClaimedKey),
    #[error("{0:?} has no row")]
    MemberWithoutRow(LaneMemberKey),
    #[error("{0:?} has no row")]
    DeadWithoutRow(DeadKey),
    #[error("{0:?} has no row")]
    DeadByTenantWithoutRow(DeadByTenantKey),
    /// A pending row has one key that says where it waits, and a dead one has one of each kind of dead key.
    #[error(
        "{row:?} is {state:?} and has {waiting} waiting, {dead} dead, {by_tenant} dead-by-tenant keys"
    )]
    Misplaced {
        row: DeliveryKey,
        /// `None` where the row cannot be read.
        state: Option<RowState>,
        waiting: usize,
        dead: usize,
        by_tenant: usize,
    },
    #[error("the dead keys of {0:?} differ in time or tenant, from each other or from the row")]
    DeadKeysDiffer(DeliveryKey),
    #[error("hook {seq} has {stored} bytes, and {of} says {says}")]
    Size { seq: Seq, of: SizeOf, says: u32, stored: u32 },
    #[error("{0:?} has no active marker")]
    DueWithoutMarker(DueKey),

    #[error("{0:?} names a row that is neither due nor claimed")]
    LaneHeadIdle(LaneHeadKey),
    #[error("{0:?} is due as the head of a lane, or not as one, and the heads say otherwise")]
    LaneHeadKind(DueKey),
    #[error("{0:?} has members, and neither a head nor a marker")]
    LaneStalled(LaneMarkerKey),

    #[error("held hook {id} of {received_at_ms} {what}")]
    Held { received_at_ms: u64, id: String, what: &'static str },
    #[error("the dedupe key {key:02x?} expires at {expires_at_ms} and has no entry that says so")]
    KeyWithoutExpiry { key: Vec<u8>, expires_at_ms: u64 },
    #[error("an entry says that the dedupe key {key:02x?} expires at {expires_at_ms}: none does")]
    ExpiryWithoutKey { key: Vec<u8>, expires_at_ms: u64 },

    #[error("{0:?} has rows, and no tenant")]
    UnknownTenant(TenantOrd),
    #[error("tenant {0} has rows, and no ordinal")]
    UnknownTenantName(String),
    #[error("hook {seq} is of tenant {named}, and filed under {filed:?}")]
    ForeignTenant { seq: Seq, named: String, filed: TenantOrd },
    #[error("{0:?} is missing: ordinals are dense")]
    OrdinalMissing(TenantOrd),
    #[error("{tenant:?} is {id}, whose ordinal is {back:?}")]
    TenantNotBack { tenant: TenantOrd, id: String, back: Option<TenantOrd> },
    #[error("{id} has {tenant:?}, which is {back:?}")]
    NameNotBack { id: String, tenant: TenantOrd, back: Option<String> },
    #[error("the next ordinal is {stored:?}, after {last:?}")]
    NextOrd { stored: Option<u64>, last: TenantOrd },
    #[error("the next seq is {stored:?}, after {last}")]
    NextSeq { stored: Option<Seq>, last: Seq },
}

/// What says a hook's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SizeOf {
    Row(u16),
    /// The due, claimed or lane member key of a row.
    Waiting(u16),
    Archive,
}

impl std::fmt::Display for SizeOf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Row(sink) => write!(f, "its row {sink}"),
            Self::Waiting(sink) => write!(f, "the index of its row {sink}"),
            Self::Archive => f.write_str("its archive obligation"),
        }
    }
}

/// Everything that is wrong, in a fixed order; empty for a sound store.
pub fn check(dump: &Dump) -> Vec<Violation> {
    let mut found = Vec::new();
    let unreadable = dump.unreadable.iter();
    found.extend(unreadable.map(|(cf, key)| Violation::Unreadable { cf: *cf, key: key.clone() }));
    rows::check(dump, &mut found);
    check_lanes(dump, &mut found);
    check_held(dump, &mut found);
    check_keys(dump, &mut found);
    check_tenants(dump, &mut found);
    check_next_seq(dump, &mut found);
    check_counters(dump, &mut found);
    found
}

fn check_lanes(dump: &Dump, found: &mut Vec<Violation>) {
    let due: BTreeSet<_> = dump.due.keys().map(|due| (due.tenant, due.row())).collect();
    for (head, row) in &dump.lane_heads {
        let claim = ClaimedKey { tenant: head.tenant, seq: row.seq, sink: row.sink };
        if !dump.claimed.contains_key(&claim) && !due.contains(&(head.tenant, row.row())) {
            found.push(Violation::LaneHeadIdle(*head));
        }
    }
    let heads: BTreeSet<_> =
        dump.lane_heads.iter().map(|(head, row)| (head.tenant, row.row())).collect();
    for (due, value) in &dump.due {
        if heads.contains(&(due.tenant, due.row())) != value.kind.is_lane_head() {
            found.push(Violation::LaneHeadKind(*due));
        }
    }
    let mut lanes: Vec<_> = dump
        .lane_members
        .keys()
        .map(|member| LaneMarkerKey { tenant: member.tenant, lane: member.lane })
        .collect();
    lanes.dedup();
    for lane in lanes {
        let head = LaneHeadKey { tenant: lane.tenant, lane: lane.lane };
        if !dump.lane_heads.contains_key(&head) && !dump.lane_markers.contains(&lane) {
            found.push(Violation::LaneStalled(lane));
        }
    }
}

fn check_held(dump: &Dump, found: &mut Vec<Violation>) {
    let mut wrong = |(received_at_ms, id): &(u64, Vec<u8>), what| {
        let (received_at_ms, id) = (*received_at_ms, String::from_utf8_lossy(id).into_owned());
        found.push(Violation::Held { received_at_ms, id, what });
    };
    for (held, summary) in &dump.held {
        match dump.held_envelopes.get(held) {
            None => wrong(held, "has no envelope"),
            Some(bytes) if !says_its_size(summary, *bytes) => wrong(held, "has another size"),
            Some(_) => {}
        }
    }
    let orphans = dump.held_envelopes.keys().filter(|held| !dump.held.contains_key(held));
    orphans.for_each(|held| wrong(held, "has no summary"));
}

/// A dedupe key and its entry in the expiry index are there together, and say the same. Keys are told without their tag.
fn check_keys(dump: &Dump, found: &mut Vec<Violation>) {
    for (key, expires_at_ms) in &dump.key_expires {
        if !dump.expiries.contains(&(key.clone(), *expires_at_ms)) {
            let (key, expires_at_ms) = (key.clone(), *expires_at_ms);
            found.push(Violation::KeyWithoutExpiry { key, expires_at_ms });
        }
    }
    for (key, expires_at_ms) in &dump.expiries {
        if dump.key_expires.get(key) != Some(expires_at_ms) {
            let (key, expires_at_ms) = (key.clone(), *expires_at_ms);
            found.push(Violation::ExpiryWithoutKey { key, expires_at_ms });
        }
    }
}

fn check_tenants(dump: &Dump, found: &mut Vec<Violation>) {
    let mut expected = TenantOrd::FIRST;
    for (tenant, id) in &dump.tenants {
        while expected < *tenant {
            found.push(Violation::OrdinalMissing(expected));
            expected = TenantOrd(expected.0 + 1);
        }
        expected = TenantOrd(tenant.0.saturating_add(1));
        let back = dump.names.get(id).copied();
        if back != Some(*tenant) {
            found.push(Violation::TenantNotBack { tenant: *tenant, id: id.clone(), back });
        }
    }
    for (id, tenant) in &dump.names {
        let back = dump.tenants.get(tenant);
        if back != Some(id) {
            let (id, back) = (id.clone(), back.cloned());
            found.push(Violation::NameNotBack { id, tenant: *tenant, back });
        }
    }
    // Before the first tenant there is no marker, or it is still at the first ordinal.
    let stored = dump.next_ord;
    let first = u64::from(TenantOrd::FIRST.0);
    let last = dump.tenants.last_key_value().map_or(TenantOrd::NODE, |(last, _)| *last);
    if stored.unwrap_or(first) != u64::from(last.0) + 1 {
        found.push(Violation::NextOrd { stored, last });
    }
}

fn check_next_seq(dump: &Dump, found: &mut Vec<Violation>) {
    let hook = dump.hooks.keys().next_back();
    let row = dump.rows.keys().next_back().map(|row| &row.seq);
    let archive = dump.archive.keys().next_back();
    let Some(last) = [hook, row, archive].into_iter().flatten().max() else { return };
    if dump.next_seq.is_none_or(|next| next <= *last) {
        found.push(Violation::NextSeq { stored: dump.next_seq, last: *last });
    }
}

fn check_counters(dump: &Dump, found: &mut Vec<Violation>) {
    let recounted = recount(dump);
    let mut both: BTreeMap<CounterKey, (i64, i64)> = BTreeMap::new();
    for (tenant, counts) in &recounted.counts {
        for (field, count) in Field::ALL.into_iter().zip(counts) {
            both.entry(CounterKey { tenant: *tenant, field }).or_default().1 = *count;
        }
    }
    for (key, stored) in &dump.counters {
        both.entry(*key).or_default().0 = *stored;
    }
    for (CounterKey { tenant, field }, (stored, recounted)) in both {
        if stored != recounted {
            found.push(Violation::Counter { tenant, field, stored, recounted });
        }
    }
    let unknown = recounted.filed.iter().filter(|tenant| !dump.tenants.contains_key(tenant));
    found.extend(unknown.map(|tenant| Violation::UnknownTenant(*tenant)));
    found.extend(recounted.nameless.into_iter().map(Violation::UnknownTenantName));
}

#[cfg(test)]
mod tests;
