//! Every row of a store, read.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::delivery::{DeliveryRow, RowState};
use crate::model::envelope::Envelope;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::*;
use crate::model::quarantine::StoredSummary;

/// A committed hook, as far as the invariants look.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Hook {
    pub(super) size: u32,
    /// The tenant its envelope names, if the value is an envelope.
    pub(super) tenant: Option<String>,
}

/// A delivery row, as far as the invariants look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) state: RowState,
    pub(super) at_ms: u64,
    pub(super) size: u32,
}

/// All rows and counters of a store at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    pub(super) hooks: BTreeMap<Seq, Hook>,
    /// `None` where the value is no row.
    pub(super) rows: BTreeMap<DeliveryKey, Option<Row>>,
    pub(super) due: BTreeMap<DueKey, DueValue>,
    pub(super) claimed: BTreeMap<ClaimedKey, SizeValue>,
    /// With the ordinal the value names, if it does.
    pub(super) dead: BTreeMap<DeadKey, Option<TenantOrd>>,
    pub(super) dead_by_tenant: BTreeSet<DeadByTenantKey>,
    pub(super) active: BTreeSet<ActiveKey>,
    pub(super) archive: BTreeMap<Seq, ArchiveValue>,
    pub(super) cleared: BTreeSet<ClearedKey>,
    pub(super) claim_refs: BTreeSet<Seq>,
    pub(super) lane_members: BTreeMap<LaneMemberKey, SizeValue>,
    pub(super) lane_heads: BTreeMap<LaneHeadKey, LaneHeadValue>,
    pub(super) lane_markers: BTreeSet<LaneMarkerKey>,
    /// Dedupe keys, and leases, of each tenant.
    pub(super) dedupe: BTreeMap<String, i64>,
    pub(super) leases: BTreeMap<String, i64>,
    /// When each dedupe key that can be read expires, by the key without its tag.
    pub(super) key_expires: BTreeMap<Vec<u8>, u64>,
    /// The entries of the expiry index: key without tag, and when.
    pub(super) expiries: BTreeSet<(Vec<u8>, u64)>,
    pub(super) tenants: BTreeMap<TenantOrd, String>,
    pub(super) names: BTreeMap<String, TenantOrd>,
    /// Held hooks, by when and who they are: their summaries, and the bytes of their envelopes.
    pub(super) held: BTreeMap<(u64, Vec<u8>), Vec<u8>>,
    pub(super) held_envelopes: BTreeMap<(u64, Vec<u8>), usize>,
    pub(super) counters: BTreeMap<CounterKey, i64>,
    pub(super) next_seq: Option<Seq>,
    pub(super) next_ord: Option<u64>,
    pub(super) unreadable: Vec<(Cf, Vec<u8>)>,
}

impl Dump {
    /// Reads rows in any order. Sentinels are passed over, and so is what no invariant is about: the archive's
    /// catalogue, the audit trail, and the single facts other than the two markers.
    pub fn from_rows<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        rows: impl IntoIterator<Item = (Cf, K, V)>,
    ) -> Self {
        let mut dump = Self::default();
        for (cf, key, value) in rows {
            let (key, value) = (key.as_ref(), value.as_ref());
            if !is_sentinel(cf, key, value) && dump.read(cf, key, value).is_none() {
                dump.unreadable.push((cf, key.to_vec()));
            }
        }
        dump
    }

    fn read(&mut self, cf: Cf, key: &[u8], value: &[u8]) -> Option<()> {
        match cf {
            Cf::Hooks => {
                let size = u32::try_from(value.len()).ok()?;
                let envelope = Envelope::decode(value).ok();
                let tenant = envelope.map(|envelope| envelope.tenant().to_owned());
                self.hooks.insert(HookKey::decode(key)?.0, Hook { size, tenant });
            }
            Cf::Deliveries => return self.read_row(key, value),
            Cf::Index => return self.read_index(key, value),
            Cf::Default => return self.read_fact(key, value),
            Cf::Tenants => return self.read_tenant(key, value),
            Cf::Counters => {
                let Some(counter) = CounterKey::decode(key) else {
                    // A field of a newer release.
                    return (key.len() == CounterKey::SIZE).then_some(());
                };
                self.counters.insert(counter, counters::read(value)?);
            }
            Cf::Quarantine => return self.read_held(key, value),
            Cf::Archive | Cf::Audit => {}
        }
        Some(())
    }

    fn read_row(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let key = DeliveryKey::decode(key)?;
        let row = DeliveryRow::decode(value).ok();
        let row = row.map(|row| Row { state: row.state, at_ms: row.at_ms, size: row.size });
        self.rows.insert(key, row);
        row.map(|_| ())
    }

    fn read_index(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        match *key.first()? {
            DueKey::TAG => {
                self.due.insert(DueKey::decode(key)?, DueValue::decode(value)?);
            }
            ClaimedKey::TAG => {
                self.claimed.insert(ClaimedKey::decode(key)?, SizeValue::decode(value)?);
            }
            DeadKey::TAG => {
                self.dead.insert(DeadKey::decode(key)?, DeadValue::decode(value)?.tenant);
            }
            DeadByTenantKey::TAG => {
                self.dead_by_tenant.insert(DeadByTenantKey::decode(key)?);
            }
            ActiveKey::TAG => {
                self.active.insert(ActiveKey::decode(key)?);
            }
            ArchiveKey::TAG => {
                self.archive.insert(ArchiveKey::decode(key)?.0, ArchiveValue::decode(value)?);
            }
            ClearedKey::TAG => {
                self.cleared.insert(ClearedKey::decode(key)?);
            }
            ClaimRefKey::TAG => {
                self.claim_refs.insert(ClaimRefKey::decode(key)?.0);
            }
            LaneMemberKey::TAG => {
                self.lane_members.insert(LaneMemberKey::decode(key)?, SizeValue::decode(value)?);
            }
            LaneHeadKey::TAG => {
                self.lane_heads.insert(LaneHeadKey::decode(key)?, LaneHeadValue::decode(value)?);
            }
            LaneMarkerKey::TAG => {
                self.lane_markers.insert(LaneMarkerKey::decode(key)?);
            }
            DedupeKey::TAG => {
                let dedupe = DedupeKey::decode(key)?;
                count(&mut self.dedupe, dedupe.tenant());
                let Held::By(value) = Held::read(Some(value)) else { return None };
                self.key_expires.insert(untagged(dedupe), value.expires_at_ms);
            }
            LeaseKey::TAG => count(&mut self.leases, LeaseKey::decode(key)?.tenant),
            ExpiryKey::TAG => {
                let ExpiryKey { expires_at_ms, dedupe } = ExpiryKey::decode(key)?;
                self.expiries.insert((untagged(dedupe), expires_at_ms));
            }
            OUTBOX_TAG => {}
            _unknown => return None,
        }
        Some(())
    }

    fn read_held(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let QuarantineKey { part, received_at_ms, id } = QuarantineKey::decode(key)?;
        let held = (received_at_ms, id.to_vec());
        match part {
            QuarantinePart::Summary => {
                StoredSummary::decode(value).ok()?;
                self.held.insert(held, value.to_vec());
            }
            QuarantinePart::Body => {
                self.held_envelopes.insert(held, value.len());
            }
        }
        Some(())
    }

    fn read_fact(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        if key == META_NEXT_SEQ {
            self.next_seq = Some(Seq(read_u64(value)?));
        } else if key == META_NEXT_ORD {
            self.next_ord = Some(read_tolerant(value)?);
        }
        Some(())
    }

    fn read_tenant(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        if let Some(TenantKey(tenant)) = TenantKey::decode(key) {
            self.tenants.insert(tenant, String::from_utf8(value.to_vec()).ok()?);
        } else {
            let TenantNameKey(id) = TenantNameKey::decode(key)?;
            self.names.insert(id.to_owned(), TenantNameKey::read_value(value)?);
        }
        Some(())
    }
}

/// `?o`, the audit outbox: its layout is not documented, and nothing of ours writes it.
const OUTBOX_TAG: u8 = b'o';

fn untagged(key: DedupeKey<'_>) -> Vec<u8> {
    key.encode().split_off(1)
}

fn count(of: &mut BTreeMap<String, i64>, tenant: &str) {
    *of.entry(tenant.to_owned()).or_default() += 1;
}
