//! What the Writer writes: hooks with all they owe, tenants it saw for the first time, its own markers; and the exact
//! inverse of a hook, for the fence after a failed sync.

use bytes::Bytes;

use super::Ops;
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::delivery::PendingRow;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::invariants::Miscount;
use crate::model::keys::{
    ArchiveKey, ArchiveValue, DeliveryKey, DueKey, DueKind, DueValue, HookKey, META_FORMAT_VERSION,
    META_NEXT_ORD, META_NEXT_SEQ, META_SYNCED_THROUGH, TenantKey, TenantNameKey, u32_value,
    u64_value,
};

/// The store format this release reads and writes.
pub const STORE_FORMAT: u64 = 8;

/// The size of a hook value as the index keeps it. A value never comes near the 4 GiB where this would saturate.
pub fn stored_size(value: &[u8]) -> u32 {
    u32::try_from(value.len()).unwrap_or(u32::MAX)
}

/// A row as [`Ops::commit_hook`] takes it.
pub trait NewRow {
    /// Appends the encoded row, due at `at_ms` where that is not settled yet.
    fn write(&self, at_ms: u64, out: &mut Vec<u8>);
}

impl NewRow for PendingRow {
    fn write(&self, at_ms: u64, out: &mut Vec<u8>) {
        self.write_stamped(at_ms, out);
    }
}

/// An encoded row.
impl<T: AsRef<[u8]>> NewRow for T {
    fn write(&self, _at_ms: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(self.as_ref());
    }
}

/// A hook to commit.
#[derive(Clone, Debug)]
pub struct NewHook<'a, R> {
    pub seq: Seq,
    pub tenant: TenantOrd,
    /// When its rows are due, in Unix milliseconds: the Writer's stamp, which never goes back.
    pub at_ms: u64,
    /// The encoded envelope.
    pub value: Bytes,
    /// Sink and row, one per sink of its source.
    pub rows: &'a [(u16, R)],
    /// Whether it owes itself to the archive.
    pub archive: bool,
}

/// A hook to take back whole: applied, never synced, so nothing outside has relied on it.
#[derive(Clone, Copy, Debug)]
pub struct FencedHook<'a> {
    pub seq: Seq,
    pub tenant: TenantOrd,
    /// Bytes of the stored hook value.
    pub size: u32,
    /// Sink and due time of each row, all still waiting for their first attempt.
    pub rows: &'a [(u16, u64)],
    /// Whether it has an archive obligation.
    pub archive: bool,
}

impl Ops {
    /// A hook, a pending row and a due key per sink, and its archive obligation. A hook that owes nothing is not stored.
    pub fn commit_hook<R: NewRow>(&mut self, hook: NewHook<'_, R>) {
        let NewHook { seq, tenant, at_ms, value, rows, archive } = hook;
        if rows.is_empty() && !archive {
            return;
        }
        let size = stored_size(&value);
        self.batch.put_shared(Cf::Hooks, &HookKey(seq).encode(), value);
        for (sink, row) in rows {
            let row_key = DeliveryKey { seq, sink: *sink };
            self.batch.put_written(Cf::Deliveries, &row_key.encode(), |out| row.write(at_ms, out));
            let due = DueKey { tenant, at_ms, seq, sink: *sink };
            self.put_due(&due, DueValue { size, kind: DueKind::First });
        }
        if archive {
            let owed = ArchiveValue { size, tenant };
            self.batch.put(Cf::Index, &ArchiveKey(seq).encode(), &owed.encode());
        }
        self.count_hook(tenant, size, rows.len(), archive, 1);
    }

    /// The exact inverse of [`Ops::commit_hook`]; the active markers stay, and dispatch removes them in their time.
    pub fn fence_hook(&mut self, hook: &FencedHook<'_>) {
        let FencedHook { seq, tenant, size, rows, archive } = *hook;
        if rows.is_empty() && !archive {
            return;
        }
        self.batch.delete(Cf::Hooks, &HookKey(seq).encode());
        for (sink, at_ms) in rows {
            self.batch.delete(Cf::Deliveries, &DeliveryKey { seq, sink: *sink }.encode());
            let due = DueKey { tenant, at_ms: *at_ms, seq, sink: *sink };
            self.batch.delete(Cf::Index, &due.encode());
        }
        if archive {
            self.batch.delete(Cf::Index, &ArchiveKey(seq).encode());
        }
        self.count_hook(tenant, size, rows.len(), archive, -1);
    }

    fn count_hook(&mut self, tenant: TenantOrd, size: u32, rows: usize, archive: bool, by: i64) {
        // A row has a 16-bit sink, so there are few.
        let rows = i64::try_from(rows).unwrap_or(i64::MAX).saturating_mul(by);
        self.count(
            tenant,
            &[
                (Field::Pending, rows),
                (Field::Bytes, rows.saturating_mul(i64::from(size))),
                (Field::ArchivePending, if archive { by } else { 0 }),
            ],
        );
    }

    /// A tenant's ordinal, both ways, and the ordinal the next new tenant gets.
    pub fn new_tenant(&mut self, tenant: TenantOrd, id: &str, next: TenantOrd) {
        self.batch.put(Cf::Tenants, &TenantKey(tenant).encode(), id.as_bytes());
        self.batch.put(Cf::Tenants, &TenantNameKey(id).encode(), &TenantNameKey::value(tenant));
        self.batch.put(Cf::Default, META_NEXT_ORD, &u32_value(next.0));
    }

    /// The seq the next hook gets.
    pub fn set_next_seq(&mut self, next: Seq) {
        self.batch.put(Cf::Default, META_NEXT_SEQ, &u64_value(next.0));
    }

    /// The last seq known to be synced.
    pub fn set_synced_through(&mut self, seq: Seq) {
        self.batch.put(Cf::Default, META_SYNCED_THROUGH, &u64_value(seq.0));
    }

    /// Stamps [`STORE_FORMAT`].
    pub fn stamp_format(&mut self) {
        self.batch.put(Cf::Default, META_FORMAT_VERSION, &u64_value(STORE_FORMAT));
    }

    /// Adds to a counter what it was short of at the moment it was counted. Moves that come between the count and this
    /// stay: they moved a counter that was wrong by as much. Not to be written twice.
    pub fn correct_counter(&mut self, wrong: &Miscount) {
        let Miscount { key, stored, recounted } = *wrong;
        self.batch.merge(Cf::Counters, &key.encode(), &counters::correction(stored, recounted));
    }
}
