//! The metrics: the documented names, labels and buckets, and one series for every limit.
//!
//! Whatever can be known at boot is looked up once: an event on the ingest path is a search among the configured
//! sources and an atomic add, without an allocation. Series therefore exist, at zero, before anything has happened.

mod blob;
mod gauges;
mod limits;
mod listeners;
mod parts;
mod series;
mod source_series;
mod sources;
mod store_gauges;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use ankusa_actors::ports::{Event, Events};

use crate::config::Config;
use crate::config::schema::{KEYS, Kind};

use blob::BlobSeries;
pub use gauges::{DispatchGauges, Gauges, QueueGauges};
use limits::LimitSeries;
use listeners::ListenerFamilies;
pub use listeners::{Cut, HandshakeFailure, ListenerSeries, ParseFailure};
use parts::{DispatchSeries, IngestSeries, StoreSeries, WalSeries, count};
use series::{Family, SumCounter};
use sources::SourceStoreSeries;
pub use store_gauges::RoomGauges;

/// What `GET /metrics` is answered as.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Upper bounds of every histogram, in seconds.
const BUCKETS_SECONDS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// Every series of one instance.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Sampled from outside, every `admin.gauge_interval_ms`.
    pub gauges: Gauges,
    /// Connections, by the listener they are of.
    pub listeners: Listeners,
    /// Bytes of the bodies that are being received.
    pub body_memory: Gauge<u64, AtomicU64>,
    ingest: IngestSeries,
    limits: LimitSeries,
    wal: WalSeries,
    store: StoreSeries,
    dispatch: DispatchSeries,
    sources: SourceStoreSeries,
    blob: BlobSeries,
    restarts: Family<Counter>,
    subtrees_down: Family<Counter>,
}

/// The series of each listener.
#[derive(Debug)]
pub struct Listeners {
    pub ingest: Arc<ListenerSeries>,
    pub admin: Arc<ListenerSeries>,
    pub control: Arc<ListenerSeries>,
    /// Where there is a route guard.
    pub routes: Option<Arc<ListenerSeries>>,
}

impl Listeners {
    fn new(to: &mut Registrar, config: &Config) -> Self {
        let families = ListenerFamilies::new(to);
        let of = |listener| Arc::new(families.of(listener));
        let routes = config.routes.enabled.then(|| of("routes_admin"));
        Self { ingest: of("ingest"), admin: of("admin"), control: of("control"), routes }
    }
}

fn histogram() -> Histogram {
    Histogram::new(BUCKETS_SECONDS)
}

/// Puts a metric into the registry and hands it back.
struct Registrar(Registry);

impl Registrar {
    fn add<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.0.register(name, help, metric.clone());
        metric
    }

    fn counters(&mut self, name: &str, help: &str) -> Family<Counter> {
        self.add(name, help, Family::new(Counter::default))
    }

    fn histograms(&mut self, name: &str, help: &str) -> Family<Histogram> {
        self.add(name, help, Family::new(histogram))
    }
}

impl Metrics {
    pub fn new(config: &Config) -> Self {
        let instance = ("instance".into(), config.node.instance.clone().into());
        let mut registrar = Registrar(Registry::with_labels([instance].into_iter()));
        let to = &mut registrar;
        let metrics = Self {
            ingest: IngestSeries::new(to, config),
            limits: LimitSeries::new(to, config),
            wal: WalSeries::new(to),
            store: StoreSeries::new(to),
            dispatch: DispatchSeries::new(to),
            sources: SourceStoreSeries::new(to),
            blob: BlobSeries::new(to),
            restarts: to.counters(
                "ankusa_instance_child_restarts",
                "Restarts of a child of the supervision tree",
            ),
            subtrees_down: to.counters(
                "ankusa_instance_subtree_down",
                "Failure domains that used up their restarts",
            ),
            listeners: Listeners::new(to, config),
            body_memory: to.add(
                "ankusa_ingest_body_memory_bytes",
                "Bytes of the bodies that are being received",
                Gauge::default(),
            ),
            gauges: Gauges::new(to),
            registry: Registry::default(),
        };
        limits(to, config);
        Self { registry: registrar.0, ..metrics }
    }

    /// How many restarts of a child have been counted, and how often its domain was counted as down.
    pub fn restarts_counted(&self, child: &str) -> (u64, u64) {
        let count = |found: Option<Counter>| found.map_or(0, |counter| counter.get());
        (
            count(self.restarts.find([("child", child)])),
            count(self.subtrees_down.find([("domain", child)])),
        )
    }

    /// Everything, as [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        SumCounter::name_the_type(text)
    }
}

/// Every number of the configuration, so that a dashboard can draw a gauge against its limit.
fn limits(to: &mut Registrar, config: &Config) {
    // A config has text keys and no floats: it always is JSON.
    let json = serde_json::to_value(config).unwrap_or_default();
    let family = to.add(
        "ankusa_limit",
        "What the configuration says, by its dotted key",
        Family::new(Gauge::<u64, AtomicU64>::default),
    );
    for (key, kind) in KEYS.iter() {
        let is_limit = match kind {
            Kind::Whole { .. } | Kind::WholeOrNull { .. } | Kind::Rate { .. } => true,
            Kind::Flag
            | Kind::FlagOrNull
            | Kind::Port
            | Kind::Text
            | Kind::TextOrNull
            | Kind::Secret
            | Kind::SecretOrNull
            | Kind::Secrets
            | Kind::Word(_)
            | Kind::Ip
            | Kind::Ordered
            | Kind::Limit
            | Kind::TenantLimit
            | Kind::Dedupe
            | Kind::Object => false,
        };
        let value = json.pointer(&format!("/{}", key.replace('.', "/")));
        if let (true, Some(limit)) = (is_limit, value.and_then(serde_json::Value::as_u64)) {
            family.of([("name", key.as_str())]).set(limit);
        }
    }
}

impl Events for Metrics {
    fn emit(&self, event: &Event<'_>) {
        let (ingest, wal, store, dispatch) = (&self.ingest, &self.wal, &self.store, &self.dispatch);
        match *event {
            Event::IngestAnswered { source_id, outcome, took } => {
                ingest.answered(source_id, outcome, took);
            }
            Event::IngestRefused { reason } => count(&ingest.refused, &reason),
            Event::VerifyFailed { source_id, provider, scheme } => {
                let source_id = ingest.label(source_id);
                let labels = [("source_id", source_id), ("provider", provider), ("scheme", scheme)];
                ingest.verify_failures.of(labels).inc();
            }
            Event::RateLimited { tenant_id } => self.limits.rejected(tenant_id),
            Event::TenantLimited { tenant_id } => self.limits.named(tenant_id),
            Event::QuarantineDeleted { reason, entries } => self.limits.deleted(reason, entries),
            Event::LoadShed => {
                ingest.load_shed.inc();
            }
            Event::CommitApplied { hooks, bytes, took } => {
                wal.commit_duration.observe(took.as_secs_f64());
                wal.commit_batch_size.inc_by(hooks);
                wal.commit_bytes.inc_by(bytes);
            }
            Event::WalSynced { groups, took } => {
                wal.sync_duration.observe(took.as_secs_f64());
                wal.synced_groups.inc_by(groups);
            }
            Event::StoreWriteFailed { class } => count(&store.write_failures, &class),
            Event::StoreReopened { result, took } => store.reopened(result, took),
            Event::StoreUnavailable { for_ } => {
                store.unavailable.set(for_.as_secs_f64());
            }
            Event::Purged { state, rows } => dispatch.purged(state, rows),
            Event::CountersRepaired { counters } => {
                store.counters_repaired.inc_by(counters);
            }
            Event::DedupePruned { keys } => {
                store.dedupe_pruned.inc_by(keys);
            }
            Event::ScrubRead { bytes } => {
                store.scrub_bytes.inc_by(bytes);
            }
            Event::ScrubFound => {
                store.scrub_findings.inc();
            }
            Event::ScrubFinished => {
                store.scrub_rounds.inc();
            }
            Event::StoreAccepting { accepting } => self.gauges.set_accepting(accepting),
            Event::Delivered { sink, result, took } => dispatch.delivered(sink, result, took),
            Event::DeadLettered { source_id, sink } => {
                let labels = [("source_id", ingest.label(source_id)), ("sink", sink)];
                dispatch.dead_lettered.of(labels).inc();
            }
            Event::Sources { ids, unreadable } => {
                ingest.keep(ids);
                self.limits.keep(ids.iter().filter_map(|id| Some(id.split_once('.')?.0)));
                self.sources.counted(ids.len(), unreadable);
            }
            Event::SourceChanged { source_id: _, what } => self.sources.changed(what),
            Event::Blob(event) => self.blob.emit(event),
            Event::ChildRestarted { child } => {
                self.restarts.of([("child", child)]).inc();
            }
            Event::SubtreeDown { domain } => {
                self.subtrees_down.of([("domain", domain)]).inc();
            }
        }
    }
}
