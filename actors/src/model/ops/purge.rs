//! Rows that an operator has removed: whatever they waited for, they are gone, and a marker asks whether their hook can
//! go too. Each is the end of a row that exists; an index key without one is dropped.

use super::{Claimed, Ops};
use crate::model::cf::Cf;
use crate::model::counters::Field;
use crate::model::ids::TenantOrd;
use crate::model::keys::{ClearedKey, DeadKey, DueKey, DueValue};

impl Ops {
    /// A row that waits. Its active marker stays, and dispatch removes it in its time.
    pub fn purge_due(&mut self, key: &DueKey, value: DueValue) -> ClearedKey {
        self.drop_due(key, value);
        let DueKey { tenant, seq, sink, at_ms: _ } = *key;
        self.remove_row(&Claimed { tenant, seq, sink, size: value.size })
    }

    /// A row that is claimed. Whoever claimed it must have forgotten it, or would settle it a second time.
    pub fn purge_claimed(&mut self, claimed: &Claimed) -> ClearedKey {
        self.unclaim(claimed);
        self.remove_row(claimed)
    }

    /// A dead row, of a hook of `size` bytes.
    pub fn purge_dead(&mut self, key: &DeadKey, tenant: TenantOrd, size: u32) -> ClearedKey {
        self.drop_dead(key, tenant);
        self.count(tenant, &[(Field::DeadBytes, -i64::from(size))]);
        let DeadKey { seq, sink, at_ms: _ } = *key;
        self.remove_row(&Claimed { tenant, seq, sink, size })
    }

    /// The dead keys of a row that does not exist.
    pub fn drop_dead(&mut self, key: &DeadKey, tenant: TenantOrd) {
        self.batch.delete(Cf::Index, &key.encode());
        self.batch.delete(Cf::Index, &key.by_tenant(tenant).encode());
        self.count(tenant, &[(Field::Dead, -1)]);
    }
}
