//! For the tests of this module: a store that is a map, and batches as text.

use std::collections::BTreeMap;

use super::batch::{Batch, Change};
use super::cf::Cf;
use super::counters;
use super::ids::TenantOrd;
use super::invariants::{Dump, Violation, check};
use super::keys::*;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MapStore {
    pub(super) rows: BTreeMap<(Cf, Vec<u8>), Vec<u8>>,
}

impl MapStore {
    pub(super) fn apply(&mut self, batch: &Batch) {
        for change in batch.changes() {
            match change {
                Change::Put { cf, key, value } => self.put(cf, key, value),
                Change::Delete { cf, key } => self.delete(cf, key),
                Change::Merge { cf, key, operand } => {
                    let folded = counters::fold(self.get(cf, key), [operand]);
                    assert_eq!(folded.unreadable, 0);
                    self.put(cf, key, &folded.bytes);
                }
            }
        }
    }

    pub(super) fn put(&mut self, cf: Cf, key: &[u8], value: &[u8]) {
        self.rows.insert((cf, key.to_vec()), value.to_vec());
    }

    pub(super) fn delete(&mut self, cf: Cf, key: &[u8]) {
        self.rows.remove(&(cf, key.to_vec()));
    }

    pub(super) fn get(&self, cf: Cf, key: &[u8]) -> Option<&[u8]> {
        self.rows.get(&(cf, key.to_vec())).map(Vec::as_slice)
    }

    /// The keys of a family that decode.
    pub(super) fn keys<'s, K: 's>(
        &'s self,
        cf: Cf,
        decode: impl Fn(&'s [u8]) -> Option<K>,
    ) -> Vec<(K, &'s [u8])> {
        let of_cf = self.rows.iter().filter(|((of, _), _)| *of == cf);
        of_cf.filter_map(|((_, key), value)| Some((decode(key)?, value.as_slice()))).collect()
    }

    pub(super) fn dump(&self) -> Dump {
        Dump::from_rows(self.rows.iter().map(|((cf, key), value)| (*cf, key, value)))
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        check(&self.dump())
    }
}

/// A batch as lines, one a change.
pub(super) fn lines(batch: &Batch) -> Vec<String> {
    let line = |change| match change {
        Change::Put { cf, key, value } => {
            format!("put {} = {}", key_text(cf, key), value_text(cf, key, value))
        }
        Change::Delete { cf, key } => format!("delete {}", key_text(cf, key)),
        Change::Merge { cf, key, operand } => {
            format!("add {} {:+}", key_text(cf, key), counters::read(operand).unwrap())
        }
    };
    batch.changes().map(line).collect()
}

fn key_text(cf: Cf, key: &[u8]) -> String {
    match cf {
        Cf::Hooks => format!("hook {}", HookKey::decode(key).unwrap().0),
        Cf::Deliveries => {
            let DeliveryKey { seq, sink } = DeliveryKey::decode(key).unwrap();
            format!("row {seq}/{sink}")
        }
        Cf::Index => index_key_text(key),
        Cf::Tenants => {
            let name = || TenantNameKey::decode(key).unwrap().0;
            TenantKey::decode(key)
                .map_or_else(|| format!("n {}", name()), |key| format!("t {}", key.0.0))
        }
        Cf::Counters => {
            let CounterKey { tenant, field } = CounterKey::decode(key).unwrap();
            let whose =
                if tenant == TenantOrd::NODE { "node".into() } else { format!("t{}", tenant.0) };
            format!("{whose} {}", field.as_str())
        }
        Cf::Default => String::from_utf8(key.to_vec()).unwrap(),
        Cf::Archive | Cf::Quarantine | Cf::Audit => panic!("the builders write no {cf:?}"),
    }
}

fn index_key_text(key: &[u8]) -> String {
    if let Some(DueKey { tenant, at_ms, seq, sink }) = DueKey::decode(key) {
        format!("D t{} @{at_ms} {seq}/{sink}", tenant.0)
    } else if let Some(ClaimedKey { tenant, seq, sink }) = ClaimedKey::decode(key) {
        format!("F t{} {seq}/{sink}", tenant.0)
    } else if let Some(DeadKey { at_ms, seq, sink }) = DeadKey::decode(key) {
        format!("x @{at_ms} {seq}/{sink}")
    } else if let Some(DeadByTenantKey { tenant, at_ms, seq, sink }) = DeadByTenantKey::decode(key)
    {
        format!("X t{} @{at_ms} {seq}/{sink}", tenant.0)
    } else if let Some(ActiveKey { second, tenant }) = ActiveKey::decode(key) {
        format!("A {second} t{}", tenant.0)
    } else if let Some(ArchiveKey(seq)) = ArchiveKey::decode(key) {
        format!("a {seq}")
    } else if let Some(ClearedKey { seq, kind, sink }) = ClearedKey::decode(key) {
        format!("c {seq} {kind:?} {sink}")
    } else if let Some(LaneMemberKey { tenant, lane, seq, sink }) = LaneMemberKey::decode(key) {
        format!("O t{} {lane} {seq}/{sink}", tenant.0)
    } else if let Some(LaneHeadKey { tenant, lane }) = LaneHeadKey::decode(key) {
        format!("H t{} {lane}", tenant.0)
    } else if let Some(LaneMarkerKey { tenant, lane }) = LaneMarkerKey::decode(key) {
        format!("P t{} {lane}", tenant.0)
    } else {
        format!("k {}", ClaimRefKey::decode(key).unwrap().0)
    }
}

fn value_text(cf: Cf, key: &[u8], value: &[u8]) -> String {
    let tag = key.first().copied();
    match (cf, tag) {
        (Cf::Index, Some(DueKey::TAG)) => {
            let DueValue { size, kind } = DueValue::decode(value).unwrap();
            format!("{size} {kind:?}")
        }
        (Cf::Index, Some(LaneHeadKey::TAG)) => {
            let LaneHeadValue { seq, sink } = LaneHeadValue::decode(value).unwrap();
            format!("{seq}/{sink}")
        }
        (Cf::Index, Some(ClaimedKey::TAG | LaneMemberKey::TAG)) => {
            SizeValue::decode(value).unwrap().0.to_string()
        }
        (Cf::Index, Some(ArchiveKey::TAG)) => {
            let ArchiveValue { size, tenant } = ArchiveValue::decode(value).unwrap();
            format!("{size} t{}", tenant.0)
        }
        (Cf::Index, Some(DeadKey::TAG)) => {
            let DeadValue { source_id, hook_id, tenant } = DeadValue::decode(value).unwrap();
            format!("{source_id} {hook_id} t{}", tenant.unwrap().0)
        }
        (Cf::Default, _) => read_tolerant(value).unwrap().to_string(),
        (Cf::Tenants, Some(TenantNameKey::TAG)) => {
            TenantNameKey::read_value(value).unwrap().0.to_string()
        }
        (_, _) => String::from_utf8_lossy(value).into_owned(),
    }
}
