//! The state gauges of the store: its sizes, how far it is behind, and the room of its disk.

use ankusa_actors::ports::StoreStats;

use super::Registrar;
use super::series::{Sampled, SampledAge};

/// Sizes and states of the open database.
#[derive(Debug)]
pub(super) struct StoreGauges {
    hooks: Sampled,
    deliveries: Sampled,
    disk_bytes: Sampled,
    wal_bytes: Sampled,
    wal_oldest_age: SampledAge,
    write_stopped: Sampled,
    delayed_write_bytes_per_second: Sampled,
    pending_compaction_bytes: Sampled,
    running_compactions: Sampled,
    running_flushes: Sampled,
    background_errors: Sampled,
}

impl StoreGauges {
    pub(super) fn new(to: &mut Registrar) -> Self {
        let wal_oldest_age = to.add(
            "ankusa_store_wal_oldest_age_seconds",
            "How long ago the oldest write-ahead log still kept was begun",
            SampledAge::default(),
        );
        let mut gauge = |name: &str, help: &str| {
            to.add(&format!("ankusa_store_{name}"), help, Sampled::default())
        };
        Self {
            hooks: gauge("hooks", "Hooks stored, estimated"),
            deliveries: gauge("deliveries", "Delivery rows stored, estimated"),
            disk_bytes: gauge("disk_bytes", "Bytes the store takes on disk"),
            wal_bytes: gauge("wal_bytes", "Bytes of the store that are write-ahead log"),
            wal_oldest_age,
            write_stopped: gauge(
                "write_stopped",
                "1 while the store holds every write back until it has caught up",
            ),
            delayed_write_bytes_per_second: gauge(
                "delayed_write_bytes_per_second",
                "The rate the store slows writes down to; 0 while it does not",
            ),
            pending_compaction_bytes: gauge(
                "pending_compaction_bytes",
                "Bytes that compaction has to rewrite to catch up, estimated",
            ),
            running_compactions: gauge("running_compactions", "Compactions running"),
            running_flushes: gauge("running_flushes", "Flushes running"),
            background_errors: gauge(
                "background_errors",
                "Flushes and compactions that failed since the store was opened",
            ),
        }
    }

    pub(super) fn set(&self, stats: StoreStats) {
        self.hooks.set(stats.hooks);
        self.deliveries.set(stats.deliveries);
        self.disk_bytes.set(stats.disk_bytes);
        self.wal_bytes.set(stats.wal_bytes);
        self.wal_oldest_age.set_ms(stats.wal_oldest_age_ms);
        self.write_stopped.set(u64::from(stats.write_stopped));
        self.delayed_write_bytes_per_second.set(stats.delayed_write_bytes_per_s);
        self.pending_compaction_bytes.set(stats.pending_compaction_bytes);
        self.running_compactions.set(stats.running_compactions);
        self.running_flushes.set(stats.running_flushes);
        self.background_errors.set(stats.background_errors);
    }
}

/// The room of the store's disk at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoomGauges {
    /// Whether there is enough of it for new hooks.
    pub accepting: bool,
    /// Beyond the reserve.
    pub free_bytes: u64,
    pub reserve_bytes: u64,
    /// The limits, cut to the size of the disk.
    pub reserve_wanted_bytes: u64,
    pub min_free_bytes: u64,
    pub resume_free_bytes: u64,
}

/// Room and limits, so that one can be drawn against the other.
#[derive(Debug)]
pub(super) struct RoomSeries {
    accepting: Sampled,
    free_bytes: Sampled,
    reserve_bytes: Sampled,
    reserve_wanted_bytes: Sampled,
    min_free_bytes: Sampled,
    resume_free_bytes: Sampled,
}

impl RoomSeries {
    pub(super) fn new(to: &mut Registrar) -> Self {
        let mut gauge = |name: &str, help: &str| {
            to.add(&format!("ankusa_store_{name}"), help, Sampled::default())
        };
        Self {
            accepting: gauge(
                "accepting",
                "1 while there is room for new hooks, 0 while they are refused for want of it",
            ),
            free_bytes: gauge("free_bytes", "Bytes the store may still take, beyond the reserve"),
            reserve_bytes: gauge("reserve_bytes", "Bytes of the reserve file; 0 without one"),
            reserve_wanted_bytes: gauge(
                "reserve_wanted_bytes",
                "Bytes the reserve file is to have on this disk",
            ),
            min_free_bytes: gauge(
                "min_free_bytes",
                "With fewer bytes free, new hooks are refused on this disk",
            ),
            resume_free_bytes: gauge(
                "resume_free_bytes",
                "With as many bytes free, new hooks are taken again on this disk",
            ),
        }
    }

    pub(super) fn set(&self, room: RoomGauges) {
        self.set_accepting(room.accepting);
        self.free_bytes.set(room.free_bytes);
        self.reserve_bytes.set(room.reserve_bytes);
        self.reserve_wanted_bytes.set(room.reserve_wanted_bytes);
        self.min_free_bytes.set(room.min_free_bytes);
        self.resume_free_bytes.set(room.resume_free_bytes);
    }

    pub(super) fn set_accepting(&self, accepting: bool) {
        self.accepting.set(u64::from(accepting));
    }
}
