//! What becomes of a row: claimed, then delivered, due again or dead.
//!
//! The due key says when a row is due; `at` in the row says the same except where a move leaves the row unwritten: a
//! claim, and the recovery of claims after a crash.

use super::{Claimed, Ops};
use crate::model::cf::Cf;
use crate::model::counters::Field;
use crate::model::keys::{ClearedKey, DeadKey, DeadValue, DueKey, DueKind, DueValue, SizeValue};

impl Ops {
    /// Due to claimed. The row is not written.
    pub fn claim(&mut self, key: &DueKey, value: DueValue) -> Claimed {
        let DueKey { tenant, seq, sink, at_ms: _ } = *key;
        let claimed = Claimed { tenant, seq, sink, size: value.size };
        self.batch.delete(Cf::Index, &key.encode());
        let size = SizeValue(value.size).encode();
        self.batch.put(Cf::Index, &claimed.key().encode(), &size);
        self.count_due(tenant, value.kind, -1);
        self.count(tenant, &[(Field::Inflight, 1)]);
        claimed
    }

    /// The sink took it: the row is gone, and a marker asks whether the hook can go too.
    pub fn delivered(&mut self, claimed: &Claimed) -> ClearedKey {
        self.unclaim(claimed);
        self.remove_row(claimed)
    }

    /// The attempt failed and another is due at `at_ms`, which `row` says too.
    pub fn retry(&mut self, claimed: &Claimed, row: &[u8], at_ms: u64) {
        self.park(claimed, row, at_ms, DueKind::Retry);
    }

    /// Due again at `at_ms`, which `row` says too, with no attempt used up: `kind` is what the row waits for then.
    pub fn park(&mut self, claimed: &Claimed, row: &[u8], at_ms: u64, kind: DueKind) {
        self.batch.put(Cf::Deliveries, &claimed.row().encode(), row);
        self.recover(claimed, at_ms, kind);
    }

    /// Claimed by a process that is gone: due at `at_ms`. The row is not written, so that a start with thousands of
    /// claims reads and writes no rows; what it says in `at` is when it was due before, and nothing relies on it.
    pub fn recover(&mut self, claimed: &Claimed, at_ms: u64, kind: DueKind) {
        self.unclaim(claimed);
        self.put_due(&claimed.due(at_ms), DueValue { size: claimed.size, kind });
        self.count_due(claimed.tenant, kind, 1);
    }

    /// A row that waits, due at another time. The row is not written: as with [`Ops::recover`], nothing relies on what it
    /// says in `at`.
    pub fn move_due(&mut self, key: &DueKey, value: DueValue, at_ms: u64) {
        self.batch.delete(Cf::Index, &key.encode());
        self.put_due(&DueKey { at_ms, ..*key }, value);
    }

    /// Given up at `at_ms`, which `row` says too. `source_id` and `hook_id` are for the list of dead letters, and empty
    /// where the hook or the row cannot be read.
    pub fn dead(
        &mut self,
        claimed: &Claimed,
        row: &[u8],
        at_ms: u64,
        source_id: &str,
        hook_id: &str,
    ) {
        self.unclaim(claimed);
        self.put_dead(claimed, row, at_ms, source_id, hook_id);
    }

    pub(super) fn put_dead(
        &mut self,
        claimed: &Claimed,
        row: &[u8],
        at_ms: u64,
        source_id: &str,
        hook_id: &str,
    ) {
        let Claimed { tenant, seq, sink, size } = *claimed;
        self.batch.put(Cf::Deliveries, &claimed.row().encode(), row);
        let key = DeadKey { at_ms, seq, sink };
        let value = DeadValue { source_id, hook_id, tenant: Some(tenant) };
        self.batch.put(Cf::Index, &key.encode(), &value.encode());
        self.batch.put(Cf::Index, &key.by_tenant(tenant).encode(), &[]);
        self.count(tenant, &[(Field::Dead, 1), (Field::DeadBytes, i64::from(size))]);
    }

    /// A claim of a row that does not exist. No row, so no bytes are counted for it either.
    pub fn drop_claim(&mut self, claimed: &Claimed) {
        self.unclaim(claimed);
    }

    /// A due key of a row that does not exist.
    pub fn drop_due(&mut self, key: &DueKey, value: DueValue) {
        self.batch.delete(Cf::Index, &key.encode());
        self.count_due(key.tenant, value.kind, -1);
    }

    /// A claimed row whose hook does not exist: there is nothing to deliver. The marker has reclamation clear up what
    /// else hangs on the seq.
    pub fn drop_row(&mut self, claimed: &Claimed) -> ClearedKey {
        self.delivered(claimed)
    }

    pub(super) fn unclaim(&mut self, claimed: &Claimed) {
        self.batch.delete(Cf::Index, &claimed.key().encode());
        self.count(claimed.tenant, &[(Field::Inflight, -1)]);
    }

    pub(super) fn remove_row(&mut self, claimed: &Claimed) -> ClearedKey {
        self.batch.delete(Cf::Deliveries, &claimed.row().encode());
        let cleared = ClearedKey::delivery(claimed.seq, claimed.sink);
        self.batch.put(Cf::Index, &cleared.encode(), &[]);
        self.count(claimed.tenant, &[(Field::Bytes, -i64::from(claimed.size))]);
        cleared
    }
}
