//! Which ordinal a tenant has. The Writer is the only process that gives one out ("Tenants, counters and the active index").

use std::collections::BTreeMap;

use crate::model::cf::Cf;
use crate::model::ids::TenantOrd;
use crate::model::keys::{META_NEXT_ORD, TenantKey, is_sentinel, read_tolerant};
use crate::ports::{Direction, KvError, Scan};
use crate::store::StoreHandle;

/// Rows of the `tenants` family read at a time.
const CHUNK_ROWS: usize = 10_000;

/// A tenant's ordinal, as a commit sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    Known(TenantOrd),
    /// Given out now: the group must write it.
    New(TenantOrd),
    /// `tenants.max` is reached.
    Full,
}

/// Every tenant of the store, in memory.
#[derive(Debug)]
pub(super) struct Tenants {
    by_id: BTreeMap<String, TenantOrd>,
    next: u32,
}

impl Tenants {
    /// Reads them all. The next ordinal is above every one in use, whatever the marker says.
    pub(super) async fn load(store: &StoreHandle) -> Result<Self, KvError> {
        let marker = store.get(Cf::Default, META_NEXT_ORD)?;
        let marker =
            marker.as_deref().and_then(read_tolerant).and_then(|next| u32::try_from(next).ok());
        let mut next = marker.unwrap_or(TenantOrd::FIRST.0);
        let mut by_id = BTreeMap::new();
        let mut range = TenantKey::all();
        loop {
            let page = store.scan(Self::chunk(range.clone())).await?;
            for (key, id) in &page.pairs {
                if is_sentinel(Cf::Tenants, key, id) {
                    continue;
                }
                let Some(TenantKey(ord)) = TenantKey::decode(key) else { continue };
                next = next.max(ord.0.saturating_add(1));
                if let Ok(id) = std::str::from_utf8(id) {
                    by_id.insert(id.to_owned(), ord);
                }
            }
            match page.pairs.last() {
                Some((last, _)) if page.more => {
                    range.start = last.clone();
                    range.start.push(0);
                }
                Some(_) | None => return Ok(Self { by_id, next }),
            }
        }
    }

    /// These and no others.
    #[cfg(test)]
    pub(super) fn of<const N: usize>(ids: [&str; N]) -> Self {
        let mut tenants = Self { by_id: BTreeMap::new(), next: TenantOrd::FIRST.0 };
        for id in ids {
            tenants.resolve(id, u32::MAX);
        }
        tenants
    }

    fn chunk(range: std::ops::Range<Vec<u8>>) -> Scan {
        let max_bytes = usize::MAX;
        Scan {
            cf: Cf::Tenants,
            range,
            direction: Direction::Forward,
            max_rows: CHUNK_ROWS,
            max_bytes,
        }
    }

    /// The ordinal of a tenant, if it has one.
    pub(super) fn known(&self, id: &str) -> Option<TenantOrd> {
        self.by_id.get(id).copied()
    }

    pub(super) fn resolve(&mut self, id: &str, max: u32) -> Resolved {
        if let Some(ord) = self.by_id.get(id) {
            return Resolved::Known(*ord);
        }
        if self.next > max {
            return Resolved::Full;
        }
        let ord = TenantOrd(self.next);
        self.next += 1;
        self.by_id.insert(id.to_owned(), ord);
        Resolved::New(ord)
    }

    /// The ordinal the next new tenant will get.
    pub(super) fn next(&self) -> TenantOrd {
        TenantOrd(self.next)
    }
}
