//! How much room the store needs: to be recovered, and to take new hooks. Pure ("Durability, corruption, full disk").
//!
//! A small file that can be written proves nothing of a recovery, which writes the whole log again, into tables. So a
//! file is kept that can be given up for it: the reserve. And a disk that has just room for a few hooks more takes none:
//! they would fill it again, and what deletes old ones needs room itself.

use super::StoreConfig;
use crate::ports::DiskRoom;

const MIB: u64 = 1 << 20;

/// Beside what a recovery rewrites: a new manifest, a new log, the filters and indexes of its tables.
const RECOVERY_SPARE_BYTES: u64 = 4 * MIB;

/// On a small disk the limits are cut to a share of it: with the configured ones it might take no hook at all.
const RESERVE_SHARE: u64 = 8;
const MIN_FREE_SHARE: u64 = 16;
const RESUME_FREE_SHARE: u64 = 8;

/// The configured limits, as they apply to the disk there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomLimits {
    /// How long the reserve is to be, in bytes.
    pub reserve_bytes: u64,
    /// Below it new hooks are refused, in bytes.
    pub min_free_bytes: u64,
    /// From it on they are taken again, in bytes.
    pub resume_free_bytes: u64,
}

/// Whether a recovery would get through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovery {
    Fits,
    /// Once the reserve has been given up.
    FitsWithReserve,
    /// It takes this many bytes.
    Needs(u64),
}

impl RoomLimits {
    pub fn of(config: &StoreConfig, total_bytes: u64) -> Self {
        let min_free_bytes = config.min_free_bytes.min(total_bytes / MIN_FREE_SHARE);
        let resume_free_bytes = config.resume_free_bytes.min(total_bytes / RESUME_FREE_SHARE);
        Self {
            reserve_bytes: config.reserve_bytes.min(total_bytes / RESERVE_SHARE),
            min_free_bytes,
            resume_free_bytes: resume_free_bytes.max(min_free_bytes),
        }
    }

    /// What is free beyond the reserve, whether or not there is one: hooks never get at its bytes.
    pub fn usable_bytes(&self, room: &DiskRoom) -> u64 {
        room.free_bytes.saturating_add(room.reserve_bytes).saturating_sub(self.reserve_bytes)
    }

    /// Whether new hooks are taken, given whether they were until now.
    pub fn accepts(&self, room: &DiskRoom, accepting: bool) -> bool {
        let floor = if accepting { self.min_free_bytes } else { self.resume_free_bytes };
        self.usable_bytes(room) >= floor
    }

    /// Whether the reserve is to be made now. The room it takes is room that new hooks had no part in.
    pub fn lacks_reserve(&self, room: &DiskRoom) -> bool {
        room.reserve_bytes != self.reserve_bytes && self.accepts(room, false)
    }
}

impl Recovery {
    /// With room for the log and two memtables the reserve is left alone. With less, what counts is whether the log can
    /// be written again: the rest is only comfort, and a small disk may never have it.
    pub fn on(room: &DiskRoom) -> Self {
        let needs = room.wal_bytes.saturating_add(room.wal_bytes / 8 + RECOVERY_SPARE_BYTES);
        let ample = room.wal_bytes.saturating_add(room.memtable_bytes.saturating_mul(2));
        if room.free_bytes >= needs.max(ample) {
            Self::Fits
        } else if room.reserve_bytes > 0
            && room.free_bytes.saturating_add(room.reserve_bytes) >= needs
        {
            Self::FitsWithReserve
        } else if room.free_bytes >= needs {
            Self::Fits
        } else {
            Self::Needs(needs)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn room(free_mib: u64, reserve_mib: u64) -> DiskRoom {
        DiskRoom {
            free_bytes: free_mib * MIB,
            total_bytes: 100 * GIB,
            reserve_bytes: reserve_mib * MIB,
            wal_bytes: 80 * MIB,
            memtable_bytes: 64 * MIB,
        }
    }

    fn limits() -> RoomLimits {
        RoomLimits::of(&StoreConfig::default(), 100 * GIB)
    }

    #[test]
    fn a_small_disk_has_small_limits() {
        let mib = |total_bytes| {
            let RoomLimits { reserve_bytes, min_free_bytes, resume_free_bytes } =
                RoomLimits::of(&StoreConfig::default(), total_bytes);
            [reserve_bytes, min_free_bytes, resume_free_bytes].map(|bytes| bytes / MIB)
        };
        assert_eq!(mib(100 * GIB), [64, 64, 128]);
        assert_eq!(mib(GIB), [64, 64, 128]);
        assert_eq!(mib(192 * MIB), [24, 12, 24]);
        assert_eq!(mib(0), [0, 0, 0]);
        let upside_down =
            StoreConfig { min_free_bytes: GIB, resume_free_bytes: GIB, ..StoreConfig::default() };
        let limits = RoomLimits::of(&upside_down, 100 * GIB);
        assert_eq!((limits.min_free_bytes, limits.resume_free_bytes), (GIB, GIB));
    }

    #[test]
    fn hooks_are_refused_below_one_mark_and_taken_again_from_another() {
        let accepts = |free_mib, accepting| limits().accepts(&room(free_mib, 64), accepting);
        assert_eq!([64, 63].map(|mib| accepts(mib, true)), [true, false]);
        assert_eq!([128, 127].map(|mib| accepts(mib, false)), [true, false]);
    }

    #[test]
    fn the_bytes_of_the_reserve_are_nobody_elses_while_it_is_gone() {
        let usable = |free, reserve| limits().usable_bytes(&room(free, reserve)) / MIB;
        assert_eq!([usable(100, 64), usable(164, 0), usable(10, 0)], [100, 100, 0]);
        // One that is longer than it is to be gives back the difference.
        assert_eq!(usable(100, 96), 132);
    }

    #[test]
    fn a_reserve_is_made_where_it_leaves_room_for_hooks_and_only_if_it_is_not_there() {
        let lacks = |free, reserve| limits().lacks_reserve(&room(free, reserve));
        assert_eq!([lacks(191, 0), lacks(192, 0), lacks(500, 64)], [false, true, false]);
        assert!(lacks(500, 32), "it has another size");
        let none = StoreConfig { reserve_bytes: 0, ..StoreConfig::default() };
        let none = RoomLimits::of(&none, 100 * GIB);
        assert!(!none.lacks_reserve(&room(500, 0)));
        assert!(none.lacks_reserve(&room(500, 64)), "it is not to be there any more");
    }

    #[test]
    fn a_recovery_needs_the_log_once_more_and_gives_the_reserve_up_only_where_it_is_tight() {
        let needs = 80 + 10 + 4;
        let on = |free, reserve| Recovery::on(&room(free, reserve));
        assert_eq!(on(80 + 128, 64), Recovery::Fits);
        assert_eq!(on(80 + 127, 64), Recovery::FitsWithReserve);
        assert_eq!(on(needs - 64, 64), Recovery::FitsWithReserve);
        assert_eq!(on(needs - 65, 64), Recovery::Needs(needs * MIB));
        // There is none: what there is has to do.
        assert_eq!(on(needs, 0), Recovery::Fits);
        assert_eq!(on(needs - 1, 0), Recovery::Needs(needs * MIB));
    }
}
