//! The metrics: the documented names, labels and buckets, and one series for every limit.
//!
//! Whatever can be known at boot is looked up once: an event on the ingest path is a search among the configured
//! sources and an atomic add, without an allocation. Series therefore exist, at zero, before anything has happened.

mod gauges;
mod series;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Metric, Registry};

use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{
    DeliveryResult, Event, Events, IngestOutcome, RefusedReason, ReopenResult,
};

use crate::config::Config;
use crate::config::schema::{KEYS, Kind};

pub use gauges::{DispatchGauges, Gauges, QueueGauges};
use series::{Family, SumCounter};

/// What `GET /metrics` is answered as.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4";

/// Upper bounds of every histogram, in seconds.
const BUCKETS_SECONDS: [f64; 10] = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];

/// Stands for a source that is not configured (any more): label values are bounded.
const OTHER: &str = "other";

const OUTCOMES: [IngestOutcome; 6] = [
    IngestOutcome::Committed,
    IngestOutcome::Rejected,
    IngestOutcome::Overload,
    IngestOutcome::StoreUnavailable,
    IngestOutcome::Unknown,
    IngestOutcome::TenantLimit,
];

const REASONS: [RefusedReason; 5] = [
    RefusedReason::UnknownSource,
    RefusedReason::PayloadTooLarge,
    RefusedReason::BodyReadFailed,
    RefusedReason::InvalidHeader,
    RefusedReason::StoreUnavailable,
];

const REOPENS: [ReopenResult; 3] = [ReopenResult::Ok, ReopenResult::Error, ReopenResult::Deferred];

type Float = Gauge<f64, AtomicU64>;

/// Every series of one instance.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Sampled from outside, every `admin.gauge_interval_ms`.
    pub gauges: Gauges,
    sources: BTreeMap<String, SourceSeries>,
    other_source: SourceSeries,
    refused: BTreeMap<RefusedReason, Counter>,
    verify_failures: Family<Counter>,
    load_shed: Counter,
    commit_duration: Histogram,
    commit_batch_size: SumCounter,
    commit_bytes: Counter,
    sync_duration: Histogram,
    synced_groups: Counter,
    write_failures: BTreeMap<FailureClass, Counter>,
    reopens: BTreeMap<ReopenResult, Counter>,
    wal_replay: Float,
    store_unavailable: Float,
    deliveries: Family<Counter>,
    attempts: Family<Histogram>,
    sinks: RwLock<BTreeMap<(&'static str, DeliveryResult), (Counter, Histogram)>>,
    dead_lettered: Family<Counter>,
    restarts: Family<Counter>,
    subtrees_down: Family<Counter>,
}

#[derive(Debug)]
struct SourceSeries {
    outcomes: BTreeMap<IngestOutcome, Counter>,
    duration: Histogram,
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
}

impl Metrics {
    pub fn new(config: &Config) -> Self {
        let instance = ("instance".into(), config.node.instance.clone().into());
        let mut registrar = Registrar(Registry::with_labels([instance].into_iter()));
        let to = &mut registrar;

        let requests = to.add(
            "ankusa_ingest_requests",
            "Requests of a known source, by how they ended",
            Family::new(Counter::default),
        );
        let durations = to.add(
            "ankusa_ingest_duration_seconds",
            "From a request to its answer",
            Family::new(histogram),
        );
        let source = |id: &str| SourceSeries {
            outcomes: OUTCOMES
                .map(|outcome| {
                    (outcome, requests.of([("source_id", id), ("outcome", outcome.as_str())]))
                })
                .into(),
            duration: durations.of([("source_id", id)]),
        };
        let sources = config.sources.keys().map(|id| (id.clone(), source(id))).collect();
        // No request of a source that is not configured gets this far: it stays out of the text until one does.
        let other_source = SourceSeries {
            outcomes: OUTCOMES.map(|outcome| (outcome, Counter::default())).into(),
            duration: histogram(),
        };

        let refused = to.add(
            "ankusa_ingest_refused",
            "Requests refused before their source was known",
            Family::new(Counter::default),
        );
        let write_failures = to.add(
            "ankusa_store_write_failures",
            "Store writes that failed, by class",
            Family::new(Counter::default),
        );
        let reopens = to.add(
            "ankusa_store_reopen",
            "Reopens of the store after a failure",
            Family::new(Counter::default),
        );
        let deliveries = to.add(
            "ankusa_dispatch_deliveries",
            "Delivery attempts, by how they ended",
            Family::new(Counter::default),
        );
        let attempts = to.add(
            "ankusa_dispatch_attempt_duration_seconds",
            "Delivery attempts, by how long they took",
            Family::new(histogram),
        );
        limits(to, config);

        Self {
            gauges: Gauges::new(to),
            sources,
            other_source,
            refused: REASONS
                .map(|reason| (reason, refused.of([("reason", reason.as_str())])))
                .into(),
            verify_failures: to.add(
                "ankusa_verify_failures",
                "Hooks that did not verify",
                Family::new(Counter::default),
            ),
            load_shed: to.add(
                "ankusa_load_shed",
                "Hooks answered 503 overload",
                Counter::default(),
            ),
            commit_duration: to.add(
                "ankusa_wal_commit_duration_seconds",
                "Writing a group, without its fsync",
                histogram(),
            ),
            commit_batch_size: to.add(series::BATCH_SIZE, "Hooks committed", SumCounter::default()),
            commit_bytes: to.add(
                "ankusa_wal_commit_bytes",
                "Bytes of hooks committed",
                Counter::default(),
            ),
            sync_duration: to.add(
                "ankusa_wal_sync_duration_seconds",
                "The fsync every answer waits for",
                histogram(),
            ),
            synced_groups: to.add(
                "ankusa_wal_synced_groups",
                "Groups made durable",
                Counter::default(),
            ),
            write_failures: FailureClass::ALL
                .map(|class| (class, write_failures.of([("class", class.as_str())])))
                .into(),
            reopens: REOPENS
                .map(|result| (result, reopens.of([("result", reopen_result(result))])))
                .into(),
            wal_replay: to.add(
                "ankusa_store_wal_replay_seconds",
                "How long the last reopen took, close to open",
                Float::default(),
            ),
            store_unavailable: to.add(
                "ankusa_store_unavailable_seconds",
                "How long the store has been closed; 0 while open",
                Float::default(),
            ),
            deliveries,
            attempts,
            sinks: RwLock::default(),
            dead_lettered: to.add(
                "ankusa_dispatch_dead_lettered",
                "Deliveries given up",
                Family::new(Counter::default),
            ),
            restarts: to.add(
                "ankusa_instance_child_restarts",
                "Restarts of a child of the supervision tree",
                Family::new(Counter::default),
            ),
            subtrees_down: to.add(
                "ankusa_instance_subtree_down",
                "Failure domains that used up their restarts",
                Family::new(Counter::default),
            ),
            registry: registrar.0,
        }
    }

    /// Everything, as [`CONTENT_TYPE`].
    pub fn encode(&self) -> String {
        let mut text = String::new();
        // Writing to a string does not fail.
        let _ = prometheus_text::encode(&mut text, &self.registry);
        SumCounter::name_the_type(text)
    }

    fn source(&self, id: &str) -> &SourceSeries {
        self.sources.get(id).unwrap_or(&self.other_source)
    }

    /// The label of a source: its id if it is configured.
    fn source_label<'a>(&self, id: &'a str) -> &'a str {
        if self.sources.contains_key(id) { id } else { OTHER }
    }

    fn delivered(&self, sink: &'static str, result: DeliveryResult, took: Duration) {
        let known = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((deliveries, attempts)) = known.get(&(sink, result)) {
            deliveries.inc();
            attempts.observe(took.as_secs_f64());
            return;
        }
        drop(known);
        let label = delivery_result(result);
        let deliveries = self.deliveries.of([("result", label), ("sink", sink)]);
        let attempts = self.attempts.of([("sink", sink), ("result", label)]);
        deliveries.inc();
        attempts.observe(took.as_secs_f64());
        let mut known = self.sinks.write().unwrap_or_else(PoisonError::into_inner);
        known.insert((sink, result), (deliveries, attempts));
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
    for (key, kind) in KEYS {
        let is_limit = match kind {
            Kind::Whole { .. } | Kind::WholeOrNull { .. } => true,
            Kind::Flag
            | Kind::Port
            | Kind::Text
            | Kind::TextOrNull
            | Kind::Secret
            | Kind::Secrets
            | Kind::Word(_)
            | Kind::Ip => false,
        };
        let value = json.pointer(&format!("/{}", key.replace('.', "/")));
        if let (true, Some(limit)) = (is_limit, value.and_then(serde_json::Value::as_u64)) {
            family.of([("name", *key)]).set(limit);
        }
    }
}

const fn reopen_result(result: ReopenResult) -> &'static str {
    match result {
        ReopenResult::Ok => "ok",
        ReopenResult::Error => "error",
        ReopenResult::Deferred => "deferred",
    }
}

const fn delivery_result(result: DeliveryResult) -> &'static str {
    match result {
        DeliveryResult::Ok => "ok",
        DeliveryResult::Error => "error",
        DeliveryResult::Timeout => "timeout",
    }
}

fn count<K: Ord>(counters: &BTreeMap<K, Counter>, key: &K) {
    // The maps hold every variant.
    if let Some(counter) = counters.get(key) {
        counter.inc();
    }
}

impl Events for Metrics {
    fn emit(&self, event: &Event<'_>) {
        match *event {
            Event::IngestAnswered { source_id, outcome, took } => {
                let source = self.source(source_id);
                count(&source.outcomes, &outcome);
                source.duration.observe(took.as_secs_f64());
            }
            Event::IngestRefused { reason } => count(&self.refused, &reason),
            Event::VerifyFailed { source_id, provider, scheme } => {
                let source_id = self.source_label(source_id);
                let labels = [("source_id", source_id), ("provider", provider), ("scheme", scheme)];
                self.verify_failures.of(labels).inc();
            }
            Event::LoadShed => {
                self.load_shed.inc();
            }
            Event::CommitApplied { hooks, bytes, took } => {
                self.commit_duration.observe(took.as_secs_f64());
                self.commit_batch_size.inc_by(hooks);
                self.commit_bytes.inc_by(bytes);
            }
            Event::WalSynced { groups, took } => {
                self.sync_duration.observe(took.as_secs_f64());
                self.synced_groups.inc_by(groups);
            }
            Event::StoreWriteFailed { class } => count(&self.write_failures, &class),
            Event::StoreReopened { result, took } => {
                count(&self.reopens, &result);
                if result == ReopenResult::Ok {
                    self.wal_replay.set(took.as_secs_f64());
                }
            }
            Event::StoreUnavailable { for_ } => {
                self.store_unavailable.set(for_.as_secs_f64());
            }
            Event::Delivered { sink, result, took } => self.delivered(sink, result, took),
            Event::DeadLettered { source_id, sink } => {
                let labels = [("source_id", self.source_label(source_id)), ("sink", sink)];
                self.dead_lettered.of(labels).inc();
            }
            Event::ChildRestarted { child } => {
                self.restarts.of([("child", child)]).inc();
            }
            Event::SubtreeDown { domain } => {
                self.subtrees_down.of([("domain", domain)]).inc();
            }
        }
    }
}
