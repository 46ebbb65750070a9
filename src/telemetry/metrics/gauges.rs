//! The state gauges, sampled every `admin.gauge_interval_ms`. What a probe could not read is not set: the gauge keeps
//! its last value, and is absent while there has been none.

use std::sync::atomic::AtomicU64;

use ankusa_actors::ports::StoreStats;
use prometheus_client::metrics::gauge::Gauge;

use super::Registrar;
use super::series::{Family, Sampled, SampledAge};
use super::store_gauges::{RoomGauges, RoomSeries, StoreGauges};

/// One that is known whenever its series is there.
type Count = Gauge<u64, AtomicU64>;

/// The queue's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueGauges {
    /// Rows waiting for their first attempt.
    pub pending: u64,
    /// Rows waiting for another.
    pub scheduled: u64,
    /// Rows claimed.
    pub inflight: u64,
    /// Rows given up.
    pub dead: u64,
    /// Lanes with a row due, claimed or waiting for a retry.
    pub lanes: u64,
    /// Those among them that wait for a retry.
    pub lanes_blocked: u64,
    /// Rows waiting in a lane behind another.
    pub lane_members: u64,
    /// Hooks not archived yet.
    pub archive_pending: u64,
    /// Dedupe keys, of which some may have expired.
    pub dedupe_keys: u64,
    /// How long the oldest due row has been due, in milliseconds; 0 when none is.
    pub oldest_due_age_ms: u64,
}

/// What dispatch holds at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchGauges {
    /// Attempts running.
    pub running: u64,
    /// Rows claimed and not finished.
    pub claimed: u64,
    /// Bytes of their hooks.
    pub claimed_bytes: u64,
    /// Claimed rows that wait for a slot.
    pub runnable: u64,
    pub breakers_open: u64,
}

/// Every state gauge.
#[derive(Debug)]
pub struct Gauges {
    store: StoreGauges,
    room: RoomSeries,
    queue_pending: Sampled,
    queue_scheduled: Sampled,
    queue_inflight: Sampled,
    queue_dead: Sampled,
    queue_archive_pending: Sampled,
    queue_lanes: Sampled,
    queue_lane_members: Sampled,
    dispatch_lanes_blocked: Sampled,
    dedupe_keys: Sampled,
    queue_oldest_due_age: SampledAge,
    disk_free_bytes: Sampled,
    disk_total_bytes: Sampled,
    dispatch_running: Sampled,
    dispatch_claimed: Sampled,
    dispatch_claimed_bytes: Sampled,
    dispatch_runnable: Sampled,
    dispatch_breakers_open: Sampled,
    dispatch_tenant_inflight: Family<Count>,
    quarantine_entries: Sampled,
    quarantine_bytes: Sampled,
}

impl Gauges {
    pub(super) fn new(to: &mut Registrar) -> Self {
        let (store, room) = (StoreGauges::new(to), RoomSeries::new(to));
        let mut gauge = |name: &str, help: &str| to.add(name, help, Sampled::default());
        Self {
            store,
            room,
            queue_pending: gauge(
                "ankusa_queue_pending",
                "Deliveries waiting for their first attempt",
            ),
            queue_scheduled: gauge(
                "ankusa_queue_scheduled",
                "Deliveries waiting for another attempt",
            ),
            queue_inflight: gauge("ankusa_queue_inflight", "Deliveries claimed"),
            queue_dead: gauge("ankusa_queue_dead", "Deliveries given up"),
            queue_archive_pending: gauge("ankusa_queue_archive_pending", "Hooks not archived yet"),
            dedupe_keys: gauge("ankusa_dedupe_keys", "Dedupe keys that are remembered"),
            queue_lanes: gauge(
                "ankusa_queue_lanes",
                "Ordering lanes with a delivery under way or waiting",
            ),
            queue_lane_members: gauge(
                "ankusa_queue_lane_members",
                "Deliveries waiting in a lane behind another",
            ),
            dispatch_lanes_blocked: gauge(
                "ankusa_dispatch_lanes_blocked",
                "Ordering lanes held up by a delivery that waits for another attempt",
            ),
            disk_free_bytes: gauge("ankusa_disk_free_bytes", "Bytes free where the store is"),
            disk_total_bytes: gauge(
                "ankusa_disk_total_bytes",
                "Bytes there are where the store is",
            ),
            dispatch_running: gauge("ankusa_dispatch_running", "Attempts running"),
            dispatch_claimed: gauge(
                "ankusa_dispatch_claimed",
                "Deliveries claimed and not finished",
            ),
            dispatch_claimed_bytes: gauge("ankusa_dispatch_claimed_bytes", "Bytes of their hooks"),
            dispatch_runnable: gauge(
                "ankusa_dispatch_runnable",
                "Claimed deliveries waiting for a slot",
            ),
            quarantine_entries: gauge("ankusa_quarantine_entries", "Hooks in the quarantine pen"),
            quarantine_bytes: gauge("ankusa_quarantine_bytes", "Bytes of the quarantine pen"),
            dispatch_breakers_open: gauge(
                "ankusa_dispatch_breakers_open",
                "Sinks left alone for a while",
            ),
            dispatch_tenant_inflight: to.add(
                "ankusa_dispatch_tenant_inflight",
                "Deliveries of a tenant claimed and not finished, of the tenants that have the most",
                Family::new(Count::default),
            ),
            queue_oldest_due_age: to.add(
                "ankusa_queue_oldest_due_age_seconds",
                "How long the oldest due delivery has been due",
                SampledAge::default(),
            ),
        }
    }

    pub fn set_store(&self, stats: StoreStats) {
        self.store.set(stats);
    }

    pub fn set_room(&self, room: RoomGauges) {
        self.room.set(room);
    }

    pub(super) fn set_accepting(&self, accepting: bool) {
        self.room.set_accepting(accepting);
    }

    pub fn set_queue(&self, queue: QueueGauges) {
        self.queue_pending.set(queue.pending);
        self.queue_scheduled.set(queue.scheduled);
        self.queue_inflight.set(queue.inflight);
        self.queue_dead.set(queue.dead);
        self.queue_archive_pending.set(queue.archive_pending);
        self.dedupe_keys.set(queue.dedupe_keys);
        self.queue_lanes.set(queue.lanes);
        self.queue_lane_members.set(queue.lane_members);
        self.dispatch_lanes_blocked.set(queue.lanes_blocked);
        self.queue_oldest_due_age.set_ms(queue.oldest_due_age_ms);
    }

    pub fn set_quarantine(&self, entries: u64, bytes: u64) {
        self.quarantine_entries.set(entries);
        self.quarantine_bytes.set(bytes);
    }

    pub fn set_disk(&self, free_bytes: u64, total_bytes: u64) {
        self.disk_free_bytes.set(free_bytes);
        self.disk_total_bytes.set(total_bytes);
    }

    pub fn set_dispatch(&self, dispatch: DispatchGauges) {
        self.dispatch_running.set(dispatch.running);
        self.dispatch_claimed.set(dispatch.claimed);
        self.dispatch_claimed_bytes.set(dispatch.claimed_bytes);
        self.dispatch_runnable.set(dispatch.runnable);
        self.dispatch_breakers_open.set(dispatch.breakers_open);
    }

    /// Tenants and their claimed deliveries; the series of others end.
    pub fn set_tenants(&self, inflight: impl IntoIterator<Item = (String, u64)>) {
        let series = inflight.into_iter().map(|(tenant, rows)| {
            let gauge = Count::default();
            gauge.set(rows);
            (tenant, gauge)
        });
        self.dispatch_tenant_inflight.replace("tenant", series);
    }
}
