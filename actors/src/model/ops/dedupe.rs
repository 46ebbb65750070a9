//! Dedupe keys: taken by the hook that comes first, ended by time. The key and its expiry always change together.
//!
//! A key counts for as long as something stands under it, readable or not, expired or not.

use super::Ops;
use crate::model::cf::Cf;
use crate::model::counters::Field;
use crate::model::ids::TenantOrd;
use crate::model::keys::{DedupeKey, DedupeValue, ExpiryKey, Held};

impl Ops {
    /// Puts `value` under a key, in place of what is `held` there and is not live any more.
    pub fn take_key(
        &mut self,
        tenant: TenantOrd,
        key: DedupeKey<'_>,
        value: DedupeValue,
        held: Held,
    ) {
        match held {
            Held::Nothing => self.count(tenant, &[(Field::Dedupe, 1)]),
            // When it would have expired is not known: the sweep ends that entry in its time.
            Held::Unreadable => {}
            Held::By(before) => self.delete_expiry(key, before.expires_at_ms),
        }
        let expiry = ExpiryKey { expires_at_ms: value.expires_at_ms, dedupe: key };
        self.batch.put(Cf::Index, &key.encode(), &value.encode());
        self.batch.put(Cf::Index, &expiry.encode(), &[]);
    }

    /// Removes a key under which something stands, and its entry for `expires_at_ms`. A key of a tenant without an ordinal
    /// is in nobody's count but the node's, which only a recount puts right.
    pub fn end_key(&mut self, tenant: Option<TenantOrd>, key: DedupeKey<'_>, expires_at_ms: u64) {
        self.batch.delete(Cf::Index, &key.encode());
        self.delete_expiry(key, expires_at_ms);
        if let Some(tenant) = tenant {
            self.count(tenant, &[(Field::Dedupe, -1)]);
        }
    }

    /// Removes an entry of the expiry index, by its bytes, that stands for no key any more.
    pub fn end_expiry(&mut self, entry: &[u8]) {
        debug_assert_eq!(entry.first(), Some(&ExpiryKey::TAG));
        self.batch.delete(Cf::Index, entry);
    }

    fn delete_expiry(&mut self, dedupe: DedupeKey<'_>, expires_at_ms: u64) {
        self.batch.delete(Cf::Index, &ExpiryKey { expires_at_ms, dedupe }.encode());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::counters;
    use crate::model::ids::HookId;
    use crate::model::keys::CounterKey;
    use crate::model::map_store::MapStore;

    const ACME: TenantOrd = TenantOrd(1);

    fn value(expires_at_ms: u64) -> DedupeValue {
        DedupeValue { expires_at_ms, original: HookId::v7(7, 1) }
    }

    fn key() -> DedupeKey<'static> {
        DedupeKey::new("acme", "github", b"d1").unwrap()
    }

    fn store() -> MapStore {
        let mut store = MapStore::default();
        let mut ops = Ops::default();
        ops.new_tenant(ACME, "acme", TenantOrd(2));
        store.apply(&ops.finish());
        store
    }

    fn apply(store: &mut MapStore, change: impl FnOnce(&mut Ops)) {
        let mut ops = Ops::default();
        change(&mut ops);
        store.apply(&ops.finish());
    }

    fn count(store: &MapStore, tenant: TenantOrd) -> i64 {
        let key = CounterKey { tenant, field: Field::Dedupe }.encode();
        store.get(Cf::Counters, &key).and_then(counters::read).unwrap_or(0)
    }

    #[test]
    fn a_key_is_taken_replaced_and_ended_with_its_expiry_and_its_count() {
        let mut store = store();
        apply(&mut store, |ops| ops.take_key(ACME, key(), value(100), Held::Nothing));
        assert_eq!(count(&store, ACME), 1);
        assert_eq!(store.violations(), []);
        apply(&mut store, |ops| ops.take_key(ACME, key(), value(300), Held::By(value(100))));
        assert_eq!(count(&store, ACME), 1);
        assert_eq!(store.violations(), []);
        let held = Held::read(store.get(Cf::Index, &key().encode()));
        assert_eq!((held.live_at(299), held.live_at(300)), (Some(value(300)), None));
        apply(&mut store, |ops| ops.end_key(Some(ACME), key(), 300));
        assert_eq!(count(&store, ACME), 0);
        assert_eq!(count(&store, TenantOrd::NODE), 0);
        assert_eq!(store.violations(), []);
        assert_eq!(Held::read(store.get(Cf::Index, &key().encode())), Held::Nothing);
    }

    #[test]
    fn what_cannot_be_read_is_replaced_in_place_and_its_entry_ended_later() {
        let mut store = store();
        apply(&mut store, |ops| ops.take_key(ACME, key(), value(100), Held::Nothing));
        store.put(Cf::Index, &key().encode(), b"short");
        assert_eq!(Held::read(store.get(Cf::Index, &key().encode())), Held::Unreadable);
        apply(&mut store, |ops| ops.take_key(ACME, key(), value(300), Held::Unreadable));
        assert_eq!(count(&store, ACME), 1);
        let entry = ExpiryKey { expires_at_ms: 100, dedupe: key() }.encode();
        apply(&mut store, |ops| ops.end_expiry(&entry));
        assert_eq!(store.violations(), []);
    }
}
