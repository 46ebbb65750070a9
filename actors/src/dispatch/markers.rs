//! Active markers: which tenants have rows due ("Tenants, counters and the active index").

use std::collections::BTreeMap;

use super::reclaim::{after, scan};
use super::writing::Writing;
use crate::model::cf::Cf;
use crate::model::ids::TenantOrd;
use crate::model::keys::{ActiveKey, DueKey, is_sentinel};
use crate::model::ops::Ops;
use crate::ports::{Direction, KvError, Pair, Scan};
use crate::store::StoreHandle;

/// Markers read at a time, oldest first.
const PAGE: usize = 256;

/// And newest first, where there are more: a tenant that has just got work does not wait for the walk past another's
/// backlog.
const NEWEST: usize = 64;

/// A look at the markers of the seconds up to now.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// Oldest first.
    pub(super) markers: Vec<ActiveKey>,
    /// Some of those behind them, newest first.
    pub(super) newest: Vec<ActiveKey>,
    /// Whether there are any behind `markers`.
    pub(super) more: bool,
    /// Whether there are none before `markers`.
    pub(super) is_first: bool,
}

impl Seen {
    /// Each tenant once, with the oldest second seen of it: oldest first, newcomers last.
    pub(super) fn tenants(&self) -> Vec<(TenantOrd, u64)> {
        let mut order = Vec::new();
        let mut seconds = BTreeMap::<TenantOrd, u64>::new();
        for marker in self.markers.iter().chain(&self.newest) {
            match seconds.get_mut(&marker.tenant) {
                Some(second) => *second = (*second).min(marker.second),
                None => {
                    seconds.insert(marker.tenant, marker.second);
                    order.push(marker.tenant);
                }
            }
        }
        let second = |tenant| seconds.get(&tenant).copied().unwrap_or_default();
        order.into_iter().map(|tenant| (tenant, second(tenant))).collect()
    }
}

/// How far below what is known the markers are read: a replay can date a row a moment before it shows up.
const SLACK_SECONDS: u64 = 2;

/// Where the walk over the markers stands, and what was removed and not looked at again.
#[derive(Debug, Default)]
pub(super) struct Markers {
    /// There are none before this second: the range below is full of deleted keys.
    floor_second: u64,
    /// The walk goes on behind this one; `None` begins it again.
    cursor: Option<ActiveKey>,
    removed: Vec<ActiveKey>,
}

impl Markers {
    pub(super) fn is_walking(&self) -> bool {
        self.cursor.is_some()
    }

    /// The walk goes on behind what was seen, or with the first tenant that found the page full.
    pub(super) fn walk_on(&mut self, seen: &Seen, unserved: Option<TenantOrd>) {
        let first = seen.markers.iter().position(|marker| Some(marker.tenant) == unserved);
        self.cursor = match first {
            Some(first) => {
                first.checked_sub(1).and_then(|at| seen.markers.get(at)).copied().or(self.cursor)
            }
            None => seen.markers.last().copied().filter(|_| seen.more),
        };
    }

    /// Forgets where there are none.
    pub(super) fn forget_floor(&mut self) {
        self.floor_second = 0;
    }

    /// A row was written that is due then.
    pub(super) fn put(&mut self, due_ms: u64) {
        self.floor_second = self.floor_second.min(due_ms / 1_000);
    }

    /// Once a walk from the beginning has removed what it could: nothing is before the first marker it left and, as the
    /// Writer's stamps never go back, nothing new before `stamp_ms`, which one of them was.
    pub(super) fn raise_floor(&mut self, seen: &Seen, removed: &[ActiveKey], stamp_ms: u64) {
        if seen.is_first {
            let left = seen.markers.iter().find(|marker| !removed.contains(marker));
            let left_second = left.map_or(u64::MAX, |marker| marker.second);
            let floor_second = left_second.min(stamp_ms / 1_000).saturating_sub(SLACK_SECONDS);
            self.floor_second = self.floor_second.max(floor_second);
        }
    }

    /// The next page of the walk.
    pub(super) async fn read(&self, store: &StoreHandle, second: u64) -> Result<Seen, KvError> {
        let mut range = ActiveKey::up_to(second);
        if self.floor_second > 0 {
            range.start =
                ActiveKey { second: self.floor_second, tenant: TenantOrd(0) }.encode().to_vec();
        }
        if let Some(cursor) = self.cursor {
            range.start = after(&cursor.encode());
        }
        let page = store.scan(scan(Cf::Index, range.clone(), PAGE)).await?;
        let mut seen = Seen {
            markers: decoded(&page.pairs),
            newest: Vec::new(),
            more: page.more,
            is_first: self.cursor.is_none(),
        };
        if let Some((last, _)) = page.pairs.last().filter(|_| page.more) {
            let newest = Scan {
                direction: Direction::Reverse,
                ..scan(Cf::Index, after(last)..range.end, NEWEST)
            };
            seen.newest = decoded(&store.scan(newest).await?.pairs);
        }
        Ok(seen)
    }

    /// The start of the first second after `second` that has a marker, in milliseconds.
    pub(super) async fn next_ms(store: &StoreHandle, second: u64) -> Result<Option<u64>, KvError> {
        let page = store.scan(scan(Cf::Index, ActiveKey::after(second), 1)).await?;
        Ok(decoded(&page.pairs).first().map(|marker| marker.second.saturating_mul(1_000)))
    }

    /// Removes markers whose tenants have nothing due in their seconds, and puts back those into whose second a commit
    /// slipped a row meanwhile. The Writer puts a row and its marker in one batch: if that lands before the removal, the
    /// row is seen here; if after, the marker stands.
    pub(super) async fn remove(
        &mut self,
        writing: &mut Writing,
        markers: Vec<ActiveKey>,
    ) -> Result<(), KvError> {
        if markers.is_empty() {
            return Ok(());
        }
        let mut ops = Ops::default();
        markers.iter().for_each(|marker| ops.unmark_active(*marker));
        // Remembered first: a removal that fails may have landed.
        self.removed.extend(markers);
        writing.apply(ops.finish()).await?;
        self.verify(writing).await
    }

    /// Looks again at what was removed.
    pub(super) async fn verify(&mut self, writing: &mut Writing) -> Result<(), KvError> {
        if self.removed.is_empty() {
            return Ok(());
        }
        let mut ops = Ops::default();
        for marker in &self.removed {
            if first_due(writing.store(), *marker).await?.is_some() {
                ops.mark_active(*marker);
                self.floor_second = self.floor_second.min(marker.second);
            }
        }
        writing.apply(ops.finish()).await?;
        self.removed.clear();
        Ok(())
    }
}

/// When the first row is due in a marker's second, if there is one: not yet synced ones count too.
pub(super) async fn first_due(
    store: &StoreHandle,
    marker: ActiveKey,
) -> Result<Option<u64>, KvError> {
    let page = store.scan(scan(Cf::Index, DueKey::of_active(marker), 1)).await?;
    Ok(page.pairs.first().and_then(|(key, _)| DueKey::decode(key)).map(|due| due.at_ms))
}

fn decoded(pairs: &[Pair]) -> Vec<ActiveKey> {
    let real = pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Index, key, value));
    real.filter_map(|(key, _)| ActiveKey::decode(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marker(second: u64, tenant: u32) -> ActiveKey {
        ActiveKey { second, tenant: TenantOrd(tenant) }
    }

    #[test]
    fn each_tenant_is_seen_once_with_its_oldest_second() {
        let seen = Seen {
            markers: vec![marker(1, 2), marker(2, 1), marker(2, 2), marker(3, 1)],
            newest: vec![marker(9, 3), marker(8, 1), marker(7, 3)],
            more: true,
            is_first: true,
        };
        let tenant = |tenant| TenantOrd(tenant);
        assert_eq!(seen.tenants(), [(tenant(2), 1), (tenant(1), 2), (tenant(3), 7)]);
    }

    #[test]
    fn the_walk_goes_on_with_whoever_was_not_served_and_begins_again_at_the_end() {
        let mut markers = Markers::default();
        let mut seen = Seen {
            markers: vec![marker(1, 1), marker(1, 2), marker(2, 1), marker(2, 3)],
            newest: vec![marker(9, 4)],
            more: true,
            is_first: true,
        };
        let mut behind = |seen: &Seen, unserved: Option<u32>| {
            markers.walk_on(seen, unserved.map(TenantOrd));
            markers.cursor
        };
        assert_eq!(behind(&seen, Some(3)), Some(marker(2, 1)));
        assert_eq!(behind(&seen, Some(1)), Some(marker(2, 1)), "no further than before");
        assert_eq!(behind(&seen, Some(4)), Some(marker(2, 3)), "only seen among the newest");
        assert_eq!(behind(&seen, None), Some(marker(2, 3)));
        seen.more = false;
        assert_eq!(behind(&seen, None), None);
    }
}
