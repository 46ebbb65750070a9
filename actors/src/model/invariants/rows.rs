//! Hooks and what they owe, rows and where they stand.

use std::collections::{BTreeMap, BTreeSet};

use super::dump::{Dump, Row};
use super::{SizeOf, Violation};
use crate::model::delivery::RowState;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{DeadByTenantKey, DeadKey, DeliveryKey};

/// The index keys that name one row.
#[derive(Default)]
struct Places {
    /// Tenant and size of each due, claimed and lane member key.
    waiting: Vec<(TenantOrd, u32)>,
    dead: Vec<(DeadKey, Option<TenantOrd>)>,
    by_tenant: Vec<DeadByTenantKey>,
}

pub(super) fn check(dump: &Dump, found: &mut Vec<Violation>) {
    check_hooks(dump, found);
    check_index(dump, found);
    let mut places = places(dump);
    for (key, row) in &dump.rows {
        let places = places.remove(key).unwrap_or_default();
        check_row(dump, *key, row.as_ref(), &places, found);
    }
    let unmarked = dump.due.keys().filter(|due| !dump.active.contains(&due.active()));
    found.extend(unmarked.map(|due| Violation::DueWithoutMarker(*due)));
}

/// A hook is there exactly while something is owed, or about to be looked at.
fn check_hooks(dump: &Dump, found: &mut Vec<Violation>) {
    let mut owing: BTreeSet<Seq> = dump.rows.keys().map(|row| row.seq).collect();
    owing.extend(dump.archive.keys());
    owing.extend(dump.cleared.iter().map(|cleared| cleared.seq));
    let idle = dump.hooks.keys().filter(|seq| !owing.contains(seq));
    found.extend(idle.map(|seq| Violation::HookWithoutObligation(*seq)));

    let gone = |seq: &Seq| !dump.hooks.contains_key(seq);
    let rows = dump.rows.keys().filter(|row| gone(&row.seq));
    found.extend(rows.map(|row| Violation::RowWithoutHook(*row)));
    let owed = dump.archive.keys().filter(|seq| gone(seq));
    found.extend(owed.map(|seq| Violation::ArchiveWithoutHook(*seq)));
    let cleared = dump.cleared.iter().filter(|cleared| gone(&cleared.seq));
    found.extend(cleared.map(|cleared| Violation::ClearedWithoutHook(*cleared)));
    let refs = dump.claim_refs.iter().filter(|seq| gone(seq));
    found.extend(refs.map(|seq| Violation::ClaimRefWithoutHook(*seq)));

    for (seq, owed) in &dump.archive {
        check_size(dump, *seq, SizeOf::Archive, owed.size, found);
        check_tenant(dump, *seq, owed.tenant, found);
    }
}

/// Nothing in the index names a row that is not there.
fn check_index(dump: &Dump, found: &mut Vec<Violation>) {
    let gone = |row: DeliveryKey| !dump.rows.contains_key(&row);
    let due = dump.due.keys().filter(|key| gone(key.row()));
    found.extend(due.map(|key| Violation::DueWithoutRow(*key)));
    let claimed = dump.claimed.keys().filter(|key| gone(key.row()));
    found.extend(claimed.map(|key| Violation::ClaimedWithoutRow(*key)));
    let members = dump.lane_members.keys().filter(|key| gone(key.row()));
    found.extend(members.map(|key| Violation::MemberWithoutRow(*key)));
    let dead = dump.dead.keys().filter(|key| gone(key.row()));
    found.extend(dead.map(|key| Violation::DeadWithoutRow(*key)));
    let by_tenant = dump.dead_by_tenant.iter().filter(|key| gone(key.dead().row()));
    found.extend(by_tenant.map(|key| Violation::DeadByTenantWithoutRow(*key)));
}

fn places(dump: &Dump) -> BTreeMap<DeliveryKey, Places> {
    let mut places: BTreeMap<DeliveryKey, Places> = BTreeMap::new();
    let due = dump.due.iter().map(|(key, value)| (key.row(), (key.tenant, value.size)));
    let claimed = dump.claimed.iter().map(|(key, size)| (key.row(), (key.tenant, size.0)));
    let members = dump.lane_members.iter().map(|(key, size)| (key.row(), (key.tenant, size.0)));
    for (row, waiting) in due.chain(claimed).chain(members) {
        places.entry(row).or_default().waiting.push(waiting);
    }
    for (key, tenant) in &dump.dead {
        places.entry(key.row()).or_default().dead.push((*key, *tenant));
    }
    for key in &dump.dead_by_tenant {
        places.entry(key.dead().row()).or_default().by_tenant.push(*key);
    }
    places
}

fn check_row(
    dump: &Dump,
    key: DeliveryKey,
    row: Option<&Row>,
    places: &Places,
    found: &mut Vec<Violation>,
) {
    let Places { waiting, dead, by_tenant } = places;
    let state = row.map(|row| row.state);
    let is_pending = (waiting.len(), dead.len(), by_tenant.len()) == (1, 0, 0);
    let is_dead = (waiting.len(), dead.len(), by_tenant.len()) == (0, 1, 1);
    let in_place = match state {
        Some(RowState::Pending) => is_pending,
        Some(RowState::Dead) => is_dead,
        None => is_pending || is_dead,
    };
    if !in_place {
        let (waiting, dead, by_tenant) = (waiting.len(), dead.len(), by_tenant.len());
        found.push(Violation::Misplaced { row: key, state, waiting, dead, by_tenant });
    }
    if let ([(dead, tenant)], [by_tenant], Some(row)) = (&dead[..], &by_tenant[..], row) {
        let named = tenant.unwrap_or(by_tenant.tenant);
        if dead.at_ms != row.at_ms || dead.by_tenant(named) != *by_tenant {
            found.push(Violation::DeadKeysDiffer(key));
        }
    }
    if let Some(row) = row {
        check_size(dump, key.seq, SizeOf::Row(key.sink), row.size, found);
    }
    for (tenant, size) in waiting {
        check_size(dump, key.seq, SizeOf::Waiting(key.sink), *size, found);
        check_tenant(dump, key.seq, *tenant, found);
    }
    for key in by_tenant {
        check_tenant(dump, key.seq, key.tenant, found);
    }
}

fn check_size(dump: &Dump, seq: Seq, of: SizeOf, says: u32, found: &mut Vec<Violation>) {
    let stored = dump.hooks.get(&seq).map(|hook| hook.size);
    if let Some(stored) = stored.filter(|stored| *stored != says) {
        found.push(Violation::Size { seq, of, says, stored });
    }
}

/// The tenant a hook is filed under is the one it names. An ordinal without a tenant is another violation.
fn check_tenant(dump: &Dump, seq: Seq, filed: TenantOrd, found: &mut Vec<Violation>) {
    let named = dump.hooks.get(&seq).and_then(|hook| hook.tenant.as_ref());
    if let (Some(named), Some(id)) = (named, dump.tenants.get(&filed))
        && named != id
    {
        found.push(Violation::ForeignTenant { seq, named: named.clone(), filed });
    }
}
