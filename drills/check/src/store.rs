//! A dump, decoded: the rows by what they mean, and the rows that mean nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::dump::{Dump, Family, Row, to_hex};
use crate::rows::{self, Delivery, HeldKey, Hook, Index, Refusal, Slot};

/// An index key that places a delivery row somewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub kind: PlaceKind,
    pub ord: u32,
    /// When it is due or died. Nothing for a claimed row.
    pub at: Option<u64>,
    /// Bytes of the stored hook, where the key says so.
    pub size: Option<u32>,
    /// Whether the key says that it is due as the head of a lane.
    pub is_head: bool,
}

/// One lane of one tenant.
pub type Lane = (u32, u128);

/// Where an index key puts a delivery row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlaceKind {
    /// Due for the first time.
    DueFirst,
    /// Due again.
    DueRetry,
    Claimed,
    /// In a lane, behind another.
    Member,
    DeadByTime,
    DeadByTenant,
}

/// An archive obligation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Archive {
    pub ord: u32,
    pub size: u32,
}

/// What a store holds.
#[derive(Clone, Debug, Default)]
pub struct Store {
    pub hooks: BTreeMap<u64, Hook>,
    pub deliveries: BTreeMap<Slot, Delivery>,
    pub places: BTreeMap<Slot, Vec<Place>>,
    pub active: BTreeSet<(u64, u32)>,
    pub archive: BTreeMap<u64, Archive>,
    pub cleared: BTreeSet<u64>,
    /// The row that is the head of each busy lane.
    pub heads: BTreeMap<Lane, Slot>,
    /// Lanes with members.
    pub waiting: BTreeSet<Lane>,
    pub lane_markers: BTreeSet<Lane>,
    /// Tenant of each dedupe key, and when it expires.
    pub dedupe_keys: BTreeMap<Vec<u8>, (String, u64)>,
    pub dedupe_expiries: BTreeSet<(Vec<u8>, u64)>,
    /// Hooks in the pen, and what their summaries say of them: the id and the source.
    pub held: BTreeMap<HeldKey, Hook>,
    pub held_summaries: BTreeMap<HeldKey, (String, String)>,
    pub tenants: BTreeMap<u32, String>,
    pub ordinals: BTreeMap<String, u32>,
    pub counters: BTreeMap<(u32, u8), i128>,
    /// The stored `m:next_seq`.
    pub next_seq: Option<u64>,
    /// Rows that do not decode, in words.
    pub undecodable: Vec<String>,
}

impl Store {
    /// Decodes a dump. Never fails: a row that means nothing is kept as evidence.
    #[must_use]
    pub fn decode(dump: &Dump) -> Self {
        let mut store = Self::default();
        for row in dump.rows.iter().filter(|row| !rows::is_sentinel(row)) {
            if let Err(refusal) = store.take(row) {
                store.undecodable.push(format!(
                    "{} row {} {refusal}",
                    row.family.name(),
                    to_hex(&row.key)
                ));
            }
        }
        store
    }

    fn take(&mut self, row: &Row) -> Result<(), Refusal> {
        let (key, value) = (row.key.as_slice(), row.value.as_slice());
        match row.family {
            Family::Hooks => {
                self.hooks.insert(rows::whole_u64(key)?, rows::hook(value)?);
            }
            Family::Deliveries => {
                self.deliveries.insert(rows::delivery_key(key)?, rows::delivery(value)?);
            }
            Family::Index => self.take_index(rows::index(key, value)?),
            Family::Tenants => self.take_tenant(key, value)?,
            Family::Counters => {
                self.counters.insert(rows::counter_key(key)?, rows::counter_value(value)?);
            }
            Family::Default => {
                if key == b"m:next_seq" {
                    self.next_seq = Some(rows::whole_u64(value)?);
                }
            }
            Family::Quarantine => match rows::held_key(key)? {
                (b'b', held) => drop(self.held.insert(held, rows::hook(value)?)),
                (_summary, held) => {
                    self.held_summaries.insert(held, rows::held_summary(value)?);
                }
            },
            Family::Archive | Family::Audit => {}
        }
        Ok(())
    }

    fn take_index(&mut self, index: Index) {
        let mut place = |slot, kind, ord, at, size| {
            let is_head = false;
            self.places.entry(slot).or_default().push(Place { kind, ord, at, size, is_head })
        };
        match index {
            Index::Due { slot, ord, at, size, kind } => {
                let is_head = kind >= 2;
                let kind = if kind % 2 == 0 { PlaceKind::DueFirst } else { PlaceKind::DueRetry };
                let place = Place { kind, ord, at: Some(at), size: Some(size), is_head };
                self.places.entry(slot).or_default().push(place);
            }
            Index::Member { slot, ord, lane, size } => {
                place(slot, PlaceKind::Member, ord, None, Some(size));
                self.waiting.insert((ord, lane));
            }
            Index::Head { slot, ord, lane } => {
                self.heads.insert((ord, lane), slot);
            }
            Index::LaneMarker { ord, lane } => {
                self.lane_markers.insert((ord, lane));
            }
            Index::Claimed { slot, ord, size } => {
                place(slot, PlaceKind::Claimed, ord, None, Some(size))
            }
            Index::DeadByTime { slot, ord, at, .. } => {
                place(slot, PlaceKind::DeadByTime, ord, Some(at), None)
            }
            Index::DeadByTenant { slot, ord, at } => {
                place(slot, PlaceKind::DeadByTenant, ord, Some(at), None)
            }
            Index::Active { second, ord } => {
                self.active.insert((second, ord));
            }
            Index::Archive { seq, ord, size } => {
                self.archive.insert(seq, Archive { ord, size });
            }
            Index::Cleared { seq } => {
                self.cleared.insert(seq);
            }
            Index::DedupeKey { tenant, key, expires_at } => {
                self.dedupe_keys.insert(key, (tenant, expires_at));
            }
            Index::DedupeExpiry { key, expires_at } => {
                self.dedupe_expiries.insert((key, expires_at));
            }
            Index::Other => {}
        }
    }

    fn take_tenant(&mut self, key: &[u8], value: &[u8]) -> Result<(), Refusal> {
        let text = |bytes: &[u8]| {
            String::from_utf8(bytes.to_vec()).map_err(|_| "is no tenant id".to_owned())
        };
        match key.split_first() {
            Some((b't', ord)) => {
                self.tenants.insert(rows::whole_u32(ord)?, text(value)?);
            }
            Some((b'n', id)) => {
                self.ordinals.insert(text(id)?, rows::whole_u32(value)?);
            }
            _ => return Err("has no known tag".to_owned()),
        }
        Ok(())
    }

    /// The delivery rows of a hook.
    pub fn deliveries_of(&self, seq: u64) -> impl Iterator<Item = (&Slot, &Delivery)> {
        self.deliveries.range(Slot { seq, sink: 0 }..=Slot { seq, sink: u16::MAX })
    }

    /// The ordinal of a hook's tenant, if the hook is stored and its tenant has one.
    #[must_use]
    pub fn ordinal_of_hook(&self, seq: u64) -> Option<u32> {
        self.ordinals.get(&self.hooks.get(&seq)?.tenant).copied()
    }
}
