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
    ArchiveKey, ArchiveValue, DeliveryKey, DueKey, DueKind, DueValue, HookKey, LaneMemberKey,
    META_FORMAT_VERSION, META_NEXT_ORD, META_NEXT_SEQ, META_SYNCED_THROUGH, SizeValue, TenantKey,
    TenantNameKey, u32_value, u64_value,
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

    /// The lane it waits in instead of being due.
    fn lane(&self) -> Option<u128> {
        None
    }
}

impl NewRow for PendingRow {
    fn write(&self, at_ms: u64, out: &mut Vec<u8>) {
        self.write_stamped(at_ms, out);
    }

    fn lane(&self) -> Option<u128> {
        Self::lane(self)
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
    /// All still waiting for their first attempt.
    pub rows: &'a [FencedRow],
    /// Whether it has an archive obligation.
    pub archive: bool,
}

/// Where a row to take back waits.
#[derive(Clone, Copy, Debug)]
pub struct FencedRow {
    pub sink: u16,
    /// When it is due.
    pub at_ms: u64,
    /// The lane it waits in instead.
    pub lane: Option<u128>,
}

impl Ops {
    /// A hook, a pending row and a due key per sink, and its archive obligation. The row of an ordered sink is a member
    /// of its lane instead of being due: what else is in the lane is not known here. A hook that owes nothing is not
    /// stored.
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
            if let Some(lane) = row.lane() {
                let member = LaneMemberKey { tenant, lane, seq, sink: *sink };
                self.batch.put(Cf::Index, &member.encode(), &SizeValue(size).encode());
                self.mark_lane(member.of());
            } else {
                let due = DueKey { tenant, at_ms, seq, sink: *sink };
                self.put_due(&due, DueValue { size, kind: DueKind::First });
            }
        }
        if archive {
            let owed = ArchiveValue { size, tenant };
            self.batch.put(Cf::Index, &ArchiveKey(seq).encode(), &owed.encode());
        }
        let members = rows.iter().filter(|(_, row)| row.lane().is_some()).count();
        self.count_hook(tenant, size, [rows.len(), members], archive, 1);
    }

    /// The exact inverse of [`Ops::commit_hook`]; the markers of seconds and lanes stay, and dispatch removes them in
    /// their time.
    pub fn fence_hook(&mut self, hook: &FencedHook<'_>) {
        let FencedHook { seq, tenant, size, rows, archive } = *hook;
        if rows.is_empty() && !archive {
            return;
        }
        self.batch.delete(Cf::Hooks, &HookKey(seq).encode());
        for FencedRow { sink, at_ms, lane } in rows.iter().copied() {
            self.batch.delete(Cf::Deliveries, &DeliveryKey { seq, sink }.encode());
            if let Some(lane) = lane {
                let member = LaneMemberKey { tenant, lane, seq, sink };
                self.batch.delete(Cf::Index, &member.encode());
            } else {
                self.batch.delete(Cf::Index, &DueKey { tenant, at_ms, seq, sink }.encode());
            }
        }
        if archive {
            self.batch.delete(Cf::Index, &ArchiveKey(seq).encode());
        }
        let members = rows.iter().filter(|row| row.lane.is_some()).count();
        self.count_hook(tenant, size, [rows.len(), members], archive, -1);
    }

    /// `rows` in all, and how many of them are members of lanes.
    fn count_hook(
        &mut self,
        tenant: TenantOrd,
        size: u32,
        rows: [usize; 2],
        archive: bool,
        by: i64,
    ) {
        // A row has a 16-bit sink, so there are few.
        let [rows, members] =
            rows.map(|count| i64::try_from(count).unwrap_or(i64::MAX).saturating_mul(by));
        self.count(
            tenant,
            &[
                (Field::Pending, rows - members),
                (Field::Bytes, rows.saturating_mul(i64::from(size))),
                (Field::ArchivePending, if archive { by } else { 0 }),
                (Field::LaneMembers, members),
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
