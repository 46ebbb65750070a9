//! Every change of the queue's rows, as a builder that writes the row, its index keys, its active marker and the counter
//! deltas together ("Tenants, counters and the active index"). Nothing else writes those rows, and nothing else can move
//! a counter.
//!
//! Deltas are summed, so a group of hooks costs one merge operand per tenant and field however many hooks it has.
//! `size` is always the bytes of the stored hook value. A pending row has exactly one of a due key, a claimed key and a
//! lane member key.

use std::collections::{BTreeMap, BTreeSet};

use super::batch::Batch;
use super::cf::Cf;
use super::counters::{self, Field};
use super::ids::{Seq, TenantOrd};
use super::keys::{
    ActiveKey, ClaimedKey, CounterKey, DeliveryKey, DueKey, DueKind, DueValue, LaneKey, SizeValue,
};

mod commit;
mod dedupe;
mod dispatch;
mod lanes;
mod purge;
mod reclaim;

pub use commit::{FencedHook, FencedRow, NewHook, NewRow, STORE_FORMAT, stored_size};
pub use lanes::{LaneWas, Member};

type Deltas = [i64; Field::COUNT];

/// A batch in the making.
#[derive(Debug, Default)]
pub struct Ops {
    batch: Batch,
    /// Per tenant; the node's are their sum.
    deltas: BTreeMap<TenantOrd, Deltas>,
    /// Active markers this batch has already put.
    marked: BTreeSet<ActiveKey>,
    /// Lane markers likewise.
    marked_lanes: BTreeSet<LaneKey>,
}

/// A row claimed by dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimed {
    pub tenant: TenantOrd,
    pub seq: Seq,
    pub sink: u16,
    /// Bytes of the stored hook value.
    pub size: u32,
}

impl Claimed {
    pub const fn new(key: ClaimedKey, size: SizeValue) -> Self {
        Self { tenant: key.tenant, seq: key.seq, sink: key.sink, size: size.0 }
    }

    pub const fn key(&self) -> ClaimedKey {
        ClaimedKey { tenant: self.tenant, seq: self.seq, sink: self.sink }
    }

    pub const fn row(&self) -> DeliveryKey {
        DeliveryKey { seq: self.seq, sink: self.sink }
    }

    const fn due(&self, at_ms: u64) -> DueKey {
        DueKey { tenant: self.tenant, at_ms, seq: self.seq, sink: self.sink }
    }
}

impl Ops {
    /// With room for `ops` changes whose keys and small values take `bytes`.
    pub fn with_capacity(ops: usize, bytes: usize) -> Self {
        Self { batch: Batch::with_capacity(ops, bytes), ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.batch.is_empty()
    }

    /// Bytes of the keys and values written so far.
    pub fn bytes(&self) -> usize {
        self.batch.bytes()
    }

    /// For rows that no counter counts and that must land with these: a job's cursor, the deletes of a release.
    pub fn batch_mut(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// The batch, with one merge operand for each tenant and field that moved, and for the node.
    pub fn finish(self) -> Batch {
        let Self { mut batch, deltas, marked: _, marked_lanes: _ } = self;
        let mut node = [0; Field::COUNT];
        for (sum, delta) in deltas.values().flat_map(|deltas| deltas.iter().enumerate()) {
            if let Some(sum) = node.get_mut(sum) {
                *sum = delta.saturating_add(*sum);
            }
        }
        for (tenant, deltas) in std::iter::once((TenantOrd::NODE, node)).chain(deltas) {
            for (field, delta) in
                Field::ALL.into_iter().zip(deltas).filter(|(_, delta)| *delta != 0)
            {
                let key = CounterKey { tenant, field }.encode();
                batch.merge(Cf::Counters, &key, &counters::operand(delta));
            }
        }
        batch
    }

    fn count(&mut self, tenant: TenantOrd, moves: &[(Field, i64)]) {
        debug_assert_ne!(tenant, TenantOrd::NODE, "the node's counters are summed, not moved");
        let deltas = self.deltas.entry(tenant).or_default();
        for (field, by) in moves {
            if let Some(delta) = deltas.get_mut(field.index()) {
                *delta = delta.saturating_add(*by);
            }
        }
    }

    /// Counts rows that began (or, with -1 each, ended) waiting under a due key.
    fn count_due(&mut self, tenant: TenantOrd, kind: DueKind, by: i64) {
        match kind {
            DueKind::First | DueKind::LaneHeadFirst => self.count(tenant, &[(Field::Pending, by)]),
            DueKind::Retry => self.count(tenant, &[(Field::Scheduled, by)]),
            DueKind::LaneHeadRetry => {
                self.count(tenant, &[(Field::Scheduled, by), (Field::LanesBlocked, by)]);
            }
        }
    }

    /// A due key with its marker; the caller counts.
    fn put_due(&mut self, key: &DueKey, value: DueValue) {
        self.batch.put(Cf::Index, &key.encode(), &value.encode());
        self.mark_active(key.active());
    }

    /// Puts the marker of a second in which the tenant has a row due, once a batch.
    ///
    /// Also for dispatch, when a commit slipped a row in while it removed the marker.
    pub fn mark_active(&mut self, active: ActiveKey) {
        if self.marked.insert(active) {
            self.batch.put(Cf::Index, &active.encode(), &[]);
        }
    }

    /// Removes a marker whose second is over and whose tenant has nothing due in it. A commit may slip a row in
    /// meanwhile: look again afterwards, and [`Ops::mark_active`] if one did.
    pub fn unmark_active(&mut self, active: ActiveKey) {
        self.marked.remove(&active);
        self.batch.delete(Cf::Index, &active.encode());
    }
}

#[cfg(test)]
mod sequences_tests;
#[cfg(test)]
mod tests;
