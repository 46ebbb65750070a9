//! Samples the state of the node for the gauges.
//!
//! * **Owns:** nothing: what a probe cannot read is not set, and the gauge keeps its last value.
//! * **Talks to:** the store (counters, sizes), dispatch's snapshot.
//! * **Supervised by:** `front`, one_for_one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::Admin;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::Field;
use ankusa_actors::model::ids::TenantOrd;
use ankusa_actors::model::keys::TenantKey;
use ankusa_actors::ports::{Clock, Event, Events};
use ankusa_actors::supervision::{Crash, told_to_crash};
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::telemetry::metrics::{DispatchGauges, Metrics, QueueGauges, RoomGauges};

pub enum GaugesMsg {
    /// Sample, then again after the interval.
    Sample,
    /// Panic, for a drill.
    Crash,
}

impl Crash for GaugesMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct GaugesArgs {
    pub interval: Duration,
    /// Where the store is: the disk whose free bytes are shown.
    pub data_dir: PathBuf,
    pub clock: Arc<dyn Clock>,
    pub admin: Admin,
    pub metrics: Arc<Metrics>,
}

pub struct GaugesState {
    args: GaugesArgs,
}

pub struct Gauges;

impl Actor for Gauges {
    type Msg = GaugesMsg;
    type State = GaugesState;
    type Arguments = GaugesArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<GaugesMsg>,
        args: GaugesArgs,
    ) -> Result<GaugesState, ActorProcessingErr> {
        myself.cast(GaugesMsg::Sample)?;
        Ok(GaugesState { args })
    }

    async fn handle(
        &self,
        myself: ActorRef<GaugesMsg>,
        message: GaugesMsg,
        state: &mut GaugesState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            GaugesMsg::Sample => {
                state.sample().await;
                myself.send_after(state.args.interval, || GaugesMsg::Sample);
            }
            GaugesMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl GaugesState {
    async fn sample(&self) {
        self.count_restarts();
        let GaugesArgs { admin, metrics, data_dir, .. } = &self.args;
        if let Ok(stats) = admin.store_stats().await {
            metrics.gauges.set_store(stats);
        }
        if let Some(room) = self.room() {
            metrics.gauges.set_room(room);
        }
        if let Some(queue) = self.queue() {
            metrics.gauges.set_queue(queue);
        }
        if let Some(held) = admin.handles.quarantine.size() {
            metrics.gauges.set_quarantine(held.entries, held.bytes);
        }
        let snapshot = admin.handles.dispatch.snapshot();
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        metrics.gauges.set_dispatch(DispatchGauges {
            running: count(snapshot.running),
            claimed: count(snapshot.claimed),
            claimed_bytes: snapshot.claimed_bytes,
            runnable: count(snapshot.runnable),
            breakers_open: count(snapshot.breakers_open),
        });
        metrics.gauges.set_tenants(self.tenants());
        if let Ok(disk) = rustix::fs::statvfs(data_dir) {
            let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
            metrics.gauges.set_disk(bytes(disk.f_bavail), bytes(disk.f_blocks));
        }
    }

    /// By their ids. One that cannot be read now is left out.
    fn tenants(&self) -> Vec<(String, u64)> {
        let handles = &self.args.admin.handles;
        let named = |(tenant, rows): &(TenantOrd, usize)| {
            let id = handles.store.get(Cf::Tenants, &TenantKey(*tenant).encode()).ok()??;
            Some((String::from_utf8(id).ok()?, u64::try_from(*rows).unwrap_or(u64::MAX)))
        };
        handles.dispatch.tenants_inflight().iter().filter_map(named).collect()
    }

    /// The board says how often, the metrics how much of that has been counted: neither forgets when this process dies.
    fn count_restarts(&self) {
        let metrics = &self.args.metrics;
        for child in self.args.admin.handles.board.report() {
            let (restarts, downs) = metrics.restarts_counted(&child.id);
            for _ in restarts..child.restarts {
                metrics.emit(&Event::ChildRestarted { child: &child.id });
            }
            for _ in downs..child.downs {
                metrics.emit(&Event::SubtreeDown { domain: &child.id });
            }
        }
    }

    fn room(&self) -> Option<RoomGauges> {
        let state = self.args.admin.handles.store.state();
        let room = state.room?;
        Some(RoomGauges {
            accepting: state.accepting,
            free_bytes: state.limits.usable_bytes(&room),
            reserve_bytes: room.reserve_bytes,
            reserve_wanted_bytes: state.limits.reserve_bytes,
            min_free_bytes: state.limits.min_free_bytes,
            resume_free_bytes: state.limits.resume_free_bytes,
        })
    }

    fn queue(&self) -> Option<QueueGauges> {
        let admin = &self.args.admin;
        // A counter is never negative; one that reads so is shown as nothing.
        let counter =
            |field| admin.counter(field).ok().map(|count| u64::try_from(count).unwrap_or(0));
        let oldest = admin.handles.dispatch.snapshot().oldest_due_at_ms;
        Some(QueueGauges {
            pending: counter(Field::Pending)?,
            scheduled: counter(Field::Scheduled)?,
            inflight: counter(Field::Inflight)?,
            dead: counter(Field::Dead)?,
            lanes: counter(Field::Lanes)?,
            lanes_blocked: counter(Field::LanesBlocked)?,
            lane_members: counter(Field::LaneMembers)?,
            archive_pending: counter(Field::ArchivePending)?,
            dedupe_keys: counter(Field::Dedupe)?,
            oldest_due_age_ms: oldest.map_or(0, |at| self.args.clock.now_ms().saturating_sub(at)),
        })
    }
}
