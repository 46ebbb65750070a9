//! The counters, from the rows.

use std::collections::{BTreeMap, BTreeSet};

use super::dump::Dump;
use crate::model::counters::Field;
use crate::model::ids::TenantOrd;
use crate::model::keys::{DeliveryKey, DueKind};

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

impl Counts {
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
        if let Some(Some(row)) = dump.rows.get(&dead.dead().row()) {
            counts.add(dead.tenant, Field::DeadBytes, row.size.into());
            counts.add(dead.tenant, Field::Bytes, row.size.into());
        }
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
