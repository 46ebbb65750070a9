//! The counters, from the rows.

use std::collections::{BTreeMap, BTreeSet};

use super::dump::Dump;
use crate::model::counters::Field;
use crate::model::ids::TenantOrd;
use crate::model::keys::{
    ClaimedKey, CounterKey, DeadByTenantKey, DedupeKey, DeliveryKey, DueKey, DueKind,
    LaneMemberKey, LeaseKey,
};

/// What every counter should say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// By tenant, [`TenantOrd::NODE`] being the sum of all; in the order of [`Field::ALL`].
    pub counts: BTreeMap<TenantOrd, [i64; Field::COUNT]>,
    /// Every ordinal that rows are filed under.
    pub filed: BTreeSet<TenantOrd>,
    /// Tenants that hold rows by name and have no ordinal. The node counts them all the same.
    pub nameless: BTreeSet<String>,
}

/// A counter that does not say what its rows say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Miscount {
    pub key: CounterKey,
    /// `None` where it says no number. A damaged counter can say more than any count comes to.
    pub stored: Option<i128>,
    pub recounted: i64,
}

impl Counts {
    /// Adds the counts of other rows.
    pub fn add_all(&mut self, other: Self) {
        for (tenant, counts) in other.counts {
            for (field, count) in Field::ALL.into_iter().zip(counts) {
                self.add_to(tenant, field, count);
            }
        }
        self.filed.extend(other.filed);
        self.nameless.extend(other.nameless);
    }

    /// The counters of `stored` that are wrong, and those that are missing, in the order of their keys.
    pub fn miscounts(
        &self,
        stored: impl IntoIterator<Item = (CounterKey, Option<i128>)>,
    ) -> Vec<Miscount> {
        let mut all: BTreeMap<CounterKey, (Option<i128>, i64)> = BTreeMap::new();
        for (tenant, counts) in &self.counts {
            for (field, count) in Field::ALL.into_iter().zip(counts) {
                all.insert(CounterKey { tenant: *tenant, field }, (Some(0), *count));
            }
        }
        for (key, count) in stored {
            all.entry(key).or_default().0 = count;
        }
        let all =
            all.into_iter().map(|(key, (stored, recounted))| Miscount { key, stored, recounted });
        all.filter(|counter| counter.stored != Some(i128::from(counter.recounted))).collect()
    }

    fn add(&mut self, tenant: TenantOrd, field: Field, by: i64) {
        self.filed.insert(tenant);
        self.add_to(tenant, field, by);
        self.add_to(TenantOrd::NODE, field, by);
    }

    fn add_to(&mut self, tenant: TenantOrd, field: Field, by: i64) {
        if let Some(count) = self.counts.entry(tenant).or_default().get_mut(field.index()) {
            *count = count.saturating_add(by);
        }
    }
}

/// The delivery row that a key of the index family is about, if it is about one. Counts of a part of the index are those
/// of its keys and of these rows.
pub fn row_of(index_key: &[u8]) -> Option<DeliveryKey> {
    match *index_key.first()? {
        DueKey::TAG => Some(DueKey::decode(index_key)?.row()),
        ClaimedKey::TAG => Some(ClaimedKey::decode(index_key)?.row()),
        LaneMemberKey::TAG => Some(LaneMemberKey::decode(index_key)?.row()),
        DeadByTenantKey::TAG => Some(DeadByTenantKey::decode(index_key)?.dead().row()),
        _other => None,
    }
}

/// The tenant that a key of the index family names, if it names one.
pub fn named_tenant(index_key: &[u8]) -> Option<&str> {
    match *index_key.first()? {
        DedupeKey::TAG => DedupeKey::decode(index_key).map(|key| key.tenant()),
        LeaseKey::TAG => LeaseKey::decode(index_key).map(|key| key.tenant),
        _other => None,
    }
}

/// Counts every row of `dump`.
pub fn recount(dump: &Dump) -> Counts {
    let mut counts = Counts::default();
    for (due, value) in &dump.due {
        let (field, blocked) = match value.kind {
            DueKind::First | DueKind::LaneHeadFirst => (Field::Pending, 0),
            DueKind::Retry => (Field::Scheduled, 0),
            DueKind::LaneHeadRetry => (Field::Scheduled, 1),
        };
        counts.add(due.tenant, field, 1);
        counts.add(due.tenant, Field::LanesBlocked, blocked);
        row_bytes(dump, &mut counts, due.tenant, due.row(), value.size);
    }
    for (claim, size) in &dump.claimed {
        counts.add(claim.tenant, Field::Inflight, 1);
        row_bytes(dump, &mut counts, claim.tenant, claim.row(), size.0);
    }
    for (member, size) in &dump.lane_members {
        counts.add(member.tenant, Field::LaneMembers, 1);
        row_bytes(dump, &mut counts, member.tenant, member.row(), size.0);
    }
    for dead in &dump.dead_by_tenant {
        counts.add(dead.tenant, Field::Dead, 1);
        let key = dead.dead().row();
        let size = dump.rows.get(&key).map(|row| match row {
            Some(row) => row.size,
            // It died with the size of its hook.
            None => dump.hooks.get(&key.seq).map_or(0, |hook| hook.size),
        });
        let size = size.unwrap_or(0).into();
        counts.add(dead.tenant, Field::DeadBytes, size);
        counts.add(dead.tenant, Field::Bytes, size);
    }
    for owed in dump.archive.values() {
        counts.add(owed.tenant, Field::ArchivePending, 1);
    }
    for head in dump.lane_heads.keys() {
        counts.add(head.tenant, Field::Lanes, 1);
    }
    by_name(dump, &mut counts, &dump.dedupe, Field::Dedupe);
    by_name(dump, &mut counts, &dump.leases, Field::ClaimLeases);
    counts
}

/// The bytes of a row that waits: what the row says, or the index where the row cannot be read. An index key without a
/// row stands for no bytes.
fn row_bytes(dump: &Dump, counts: &mut Counts, tenant: TenantOrd, row: DeliveryKey, indexed: u32) {
    if let Some(row) = dump.rows.get(&row) {
        let size = row.map_or(indexed, |row| row.size);
        counts.add(tenant, Field::Bytes, size.into());
    }
}

fn by_name(dump: &Dump, counts: &mut Counts, of: &BTreeMap<String, i64>, field: Field) {
    for (name, count) in of {
        if let Some(tenant) = dump.names.get(name) {
            counts.add(*tenant, field, *count);
        } else {
            counts.nameless.insert(name.clone());
            counts.add_to(TenantOrd::NODE, field, *count);
        }
    }
}
