//! Buckets by what they are of, shared by every connection.
//!
//! A bucket is two atomic numbers, of hooks and of bytes, and what is taken from several is taken from all or from none: a
//! look first says whether each has enough, so that a denial writes nothing, and whoever loses the last of one to another
//! thread between the look and the taking gives back what it has taken.
//!
//! There are never more than a bound. A bucket that is full again is the same as none and is dropped when room is needed;
//! where all are in use, whoever comes shares one bucket with everybody else who finds no room.

use std::collections::BTreeMap;
use std::sync::PoisonError;

use smallvec::SmallVec;

use crate::model::gcra::{self, Gcra};
use crate::model::rate_limit::Limits;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Mutex, MutexGuard};

/// Maps that are locked one by one.
const SHARDS: usize = 16;

/// Buckets in one of them from which on those that are full again are dropped.
const SWEEP_FROM: usize = 64;

/// The least time between two looks for those.
const SWEEP_EVERY_NS: u64 = 1_000_000_000;

/// One bucket of hooks and one of bytes; their limits are the caller's.
#[derive(Debug, Default)]
pub(super) struct Cell {
    hooks: AtomicU64,
    bytes: AtomicU64,
}

impl Cell {
    fn is_idle(&self, now_ns: u64) -> bool {
        let is_full = |state: &AtomicU64| state.load(Ordering::Acquire) <= now_ns;
        is_full(&self.hooks) && is_full(&self.bytes)
    }

    fn reset(&self) {
        self.hooks.store(0, Ordering::Release);
        self.bytes.store(0, Ordering::Release);
    }
}

/// What one hook takes from one bucket.
struct Meter<'a> {
    state: &'a AtomicU64,
    limit: Gcra,
    cost_ns: u64,
}

/// Of one hook: as many as there may be, without an allocation.
type Meters<'a> = SmallVec<[Meter<'a>; METERS]>;

/// Hooks and bytes of the node, a source, a tenant and a client.
const METERS: usize = 8;

impl Meter<'_> {
    fn look(&self, now_ns: u64) -> Result<u64, u64> {
        self.limit.take(self.state.load(Ordering::Acquire), now_ns, self.cost_ns)
    }

    fn take(&self, now_ns: u64) -> Result<u64, u64> {
        loop {
            let before = self.state.load(Ordering::Acquire);
            let after = self.limit.take(before, now_ns, self.cost_ns)?;
            if self.swap(before, after) {
                return Ok(after);
            }
        }
    }

    fn give_back(&self, taken: u64, now_ns: u64) {
        loop {
            let before = self.state.load(Ordering::Acquire);
            let after = gcra::give_back(before, taken, now_ns, self.cost_ns);
            if self.swap(before, after) {
                return;
            }
        }
    }

    fn swap(&self, before: u64, after: u64) -> bool {
        self.state.compare_exchange(before, after, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

/// Takes one hook of `bytes` from every one of `cells`, each within its limits. `now_ns` is read again where something has
/// to be given back.
///
/// # Errors
/// One of them has not enough, and none has been taken from: how long it takes until all have, in nanoseconds.
pub(super) fn take_all<'a>(
    cells: impl IntoIterator<Item = (&'a Cell, Limits)>,
    bytes: u64,
    now_ns: impl Fn() -> u64,
) -> Result<(), u64> {
    let meters = meters(cells, bytes);
    let now = now_ns();
    let longest = meters.iter().filter_map(|meter| meter.look(now).err()).max();
    longest.map_or_else(|| take_each(&meters, now, now_ns), Err)
}

fn meters<'a>(cells: impl IntoIterator<Item = (&'a Cell, Limits)>, bytes: u64) -> Meters<'a> {
    let of_cell = |(cell, limits): (&'a Cell, Limits)| {
        let hooks = limits.hooks.map(|limit| (&cell.hooks, limit, limit.one()));
        let bytes = limits.bytes.map(|limit| (&cell.bytes, limit, limit.many(bytes)));
        hooks.into_iter().chain(bytes)
    };
    let meter = |(state, limit, cost_ns)| Meter { state, limit, cost_ns };
    cells.into_iter().flat_map(of_cell).map(meter).collect()
}

/// After the look: a denial here means that another thread has been faster.
fn take_each(meters: &[Meter<'_>], now: u64, now_ns: impl Fn() -> u64) -> Result<(), u64> {
    let mut taken: SmallVec<[(&Meter<'_>, u64); METERS]> = SmallVec::new();
    for meter in meters {
        match meter.take(now) {
            Ok(after) => taken.push((meter, after)),
            Err(wait_ns) => {
                let later = now_ns();
                taken.into_iter().for_each(|(meter, after)| meter.give_back(after, later));
                return Err(wait_ns);
            }
        }
    }
    Ok(())
}

#[derive(Debug, Default)]
struct Shard {
    cells: BTreeMap<Box<[u8]>, Arc<Cell>>,
    overflow: Arc<Cell>,
    sweep_at_ns: u64,
}

/// Buckets by key, at most so many.
#[derive(Debug)]
pub(super) struct Cells {
    shards: [Mutex<Shard>; SHARDS],
    max_in_shard: usize,
}

impl Cells {
    /// At most `max`, rounded up to a multiple of sixteen.
    pub(super) fn new(max: usize) -> Self {
        Self { shards: Default::default(), max_in_shard: max.div_ceil(SHARDS) }
    }

    /// The bucket of `key`, or the one that all share who find no room.
    pub(super) fn of(&self, key: &[u8], now_ns: u64) -> Arc<Cell> {
        let mut shard = self.shard(key);
        if let Some(cell) = shard.cells.get(key) {
            return Arc::clone(cell);
        }
        let is_full = shard.cells.len() >= self.max_in_shard;
        if (is_full || shard.cells.len() >= SWEEP_FROM) && now_ns >= shard.sweep_at_ns {
            shard.sweep_at_ns = now_ns.saturating_add(SWEEP_EVERY_NS);
            // Whoever still holds one got it under this lock and may be about to take from it.
            let is_used = |cell: &Arc<Cell>| Arc::strong_count(cell) > 1 || !cell.is_idle(now_ns);
            shard.cells.retain(|_, cell| is_used(cell));
        }
        if shard.cells.len() >= self.max_in_shard {
            return Arc::clone(&shard.overflow);
        }
        let cell = Arc::<Cell>::default();
        shard.cells.insert(key.into(), Arc::clone(&cell));
        cell
    }

    /// Fills the bucket of `key`.
    pub(super) fn reset(&self, key: &[u8]) {
        if let Some(cell) = self.shard(key).cells.get(key) {
            cell.reset();
        }
    }

    pub(super) fn len(&self) -> usize {
        let shard = |shard: &Mutex<Shard>| lock(shard).cells.len();
        self.shards.iter().map(shard).sum()
    }

    fn shard(&self, key: &[u8]) -> MutexGuard<'_, Shard> {
        // FNV-1a: names differ at their ends, and nobody gains by making one shard full.
        let mix = |hash: usize, byte: &u8| (hash ^ usize::from(*byte)).wrapping_mul(0x0100_0193);
        let hash = key.iter().fold(0x811c_9dc5, mix);
        let [first, ..] = &self.shards;
        lock(self.shards.get((hash >> 8) % SHARDS).unwrap_or(first))
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "cells_interleavings.rs"]
mod interleavings;

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::model::gcra::Rate;

    const SECOND: u64 = 1_000_000_000;

    fn hooks(rate: u64, burst: u64) -> Limits {
        Limits { hooks: Gcra::of_ones(Rate::whole(rate).unwrap(), burst), bytes: None }
    }

    fn bytes(rate: u64, burst: u64) -> Limits {
        Limits { hooks: None, bytes: Gcra::of_many(Rate::whole(rate).unwrap(), burst) }
    }

    fn states(cell: &Cell) -> (u64, u64) {
        (cell.hooks.load(Ordering::Acquire), cell.bytes.load(Ordering::Acquire))
    }

    #[test]
    fn a_denial_by_one_takes_from_none() {
        let (wide, narrow) = (Cell::default(), Cell::default());
        let take =
            |size: u64| take_all([(&wide, hooks(1, 10)), (&narrow, bytes(1, 10))], size, || SECOND);
        assert_eq!(take(8), Ok(()));
        let before = (states(&wide), states(&narrow));
        assert_eq!(before, ((2 * SECOND, 0), (0, 9 * SECOND)));
        assert_eq!(take(5), Err(3 * SECOND));
        assert_eq!((states(&wide), states(&narrow)), before);
    }

    #[test]
    fn the_longest_wait_is_told() {
        let cells: [Cell; 3] = Default::default();
        let limits = [hooks(1, 1), hooks(10, 1), bytes(1, 4)];
        let take = || take_all(cells.iter().zip(limits), 4, || SECOND);
        assert_eq!((take(), take()), (Ok(()), Err(4 * SECOND)));
    }

    #[test]
    fn who_loses_the_last_of_one_gives_back_what_it_took_of_the_others() {
        let (wide, narrow) = (Cell::default(), Cell::default());
        let meters = meters([(&wide, hooks(1, 5)), (&narrow, hooks(1, 1))], 0);
        assert_eq!(take_each(&meters, SECOND, || SECOND), Ok(()));
        let before = (states(&wide), states(&narrow));
        assert_eq!(take_each(&meters, SECOND, || SECOND), Err(SECOND));
        assert_eq!((states(&wide), states(&narrow)), before);
    }

    #[test]
    fn no_limits_take_nothing() {
        let cell = Cell::default();
        assert_eq!(take_all([(&cell, Limits::default())], u64::MAX, || SECOND), Ok(()));
        assert_eq!(states(&cell), (0, 0));
    }

    fn key(ix: u64) -> [u8; 8] {
        ix.to_be_bytes()
    }

    #[test]
    fn there_are_never_more_than_the_bound_and_who_finds_no_room_shares_one() {
        let cells = Cells::new(64);
        let limit = hooks(1, 1);
        let mut denied = 0;
        for ix in 0..10_000 {
            let cell = cells.of(&key(ix), SECOND);
            denied += u64::from(take_all([(&*cell, limit)], 0, || SECOND).is_err());
        }
        assert_eq!(cells.len(), 64);
        // One in each bucket, and one in what each shard has for all others.
        assert_eq!(denied, 10_000 - 64 - SHARDS as u64);
        // Later all of them are full again and make room.
        for ix in 10_000..10_064 {
            let cell = cells.of(&key(ix), 60 * SECOND);
            assert_eq!(take_all([(&*cell, limit)], 0, || 60 * SECOND), Ok(()), "{ix}");
        }
        assert!(cells.len() <= 64);
    }

    #[test]
    fn buckets_that_are_full_again_are_dropped_and_those_in_use_are_not() {
        let cells = Cells::new(SHARDS * SWEEP_FROM * 4);
        let used = cells.of(b"used", 0);
        take_all([(&*used, hooks(1, 100))], 0, || 100 * SECOND).unwrap();
        drop(used);
        let held = cells.of(b"held", 0);
        for ix in 0..(SHARDS * SWEEP_FROM * 2) as u64 {
            cells.of(&key(ix), 0);
        }
        let before = cells.len();
        // The next of each shard sweeps it.
        for ix in 0..SHARDS as u64 * 40 {
            cells.of(&key(1_000_000 + ix), 50 * SECOND);
        }
        assert!(cells.len() < before, "{} after {before}", cells.len());
        assert_eq!(states(&cells.of(b"used", 50 * SECOND)), (101 * SECOND, 0));
        assert!(Arc::ptr_eq(&held, &cells.of(b"held", 50 * SECOND)));
    }

    #[test]
    fn a_bucket_that_is_reset_is_full_and_its_neighbours_are_as_they_were() {
        let cells = Cells::new(64);
        for name in [b"acme", b"blue"] {
            take_all([(&*cells.of(name, 0), hooks(1, 1))], 0, || SECOND).unwrap();
        }
        cells.reset(b"acme");
        cells.reset(b"nobody");
        let states = [b"acme", b"blue"].map(|name| states(&cells.of(name, 0)));
        assert_eq!(states, [(0, 0), (2 * SECOND, 0)]);
    }
}
