//! The series by what they tell of: requests, groups, the store, deliveries.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{DeliveryResult, IngestOutcome, RefusedReason, ReopenResult};

use super::series::{self, Family, SumCounter};
use super::source_series::{SourceFamilies, SourceSeries};
use super::{Registrar, histogram};
use crate::config::Config;

/// Stands for a source that is not configured (any more): label values are bounded.
pub(super) const OTHER: &str = "other";

const REASONS: [RefusedReason; 8] = [
    RefusedReason::UnknownSource,
    RefusedReason::PayloadTooLarge,
    RefusedReason::BodyReadFailed,
    RefusedReason::InvalidHeader,
    RefusedReason::StoreUnavailable,
    RefusedReason::NoRoute,
    RefusedReason::RouteMethod,
    RefusedReason::IpDenied,
];

/// The states of rows that can be purged.
const PURGED: [&str; 3] = ["pending", "inflight", "dead"];

const REOPENS: [ReopenResult; 3] = [ReopenResult::Ok, ReopenResult::Error, ReopenResult::Deferred];

type Float = Gauge<f64, AtomicU64>;

/// The series of a sink and a result, kept since its first attempt that ended so.
type SinkSeries = BTreeMap<(&'static str, DeliveryResult), (Counter, Histogram)>;

/// What happens to requests.
#[derive(Debug)]
pub(super) struct IngestSeries {
    families: SourceFamilies,
    configured: BTreeMap<String, Arc<SourceSeries>>,
    /// Of the configuration and of the API.
    sources: ArcSwap<BTreeMap<String, Arc<SourceSeries>>>,
    /// Counts what is not configured and never shows it.
    other_source: Arc<SourceSeries>,
    pub(super) refused: BTreeMap<RefusedReason, Counter>,
    pub(super) verify_failures: Family<Counter>,
    pub(super) load_shed: Counter,
}

impl IngestSeries {
    pub(super) fn new(to: &mut Registrar, config: &Config) -> Self {
        let families = SourceFamilies::new(to);
        let refused =
            to.counters("ankusa_ingest_refused", "Requests refused before their source was known");
        let source = |id: &String| (id.clone(), families.of(id));
        let configured: BTreeMap<_, _> = config.sources.keys().map(source).collect();
        Self {
            families,
            sources: ArcSwap::from_pointee(configured.clone()),
            configured,
            other_source: Arc::new(SourceSeries::hidden()),
            refused: REASONS
                .map(|reason| (reason, refused.of([("reason", reason.as_str())])))
                .into(),
            verify_failures: to.counters("ankusa_verify_failures", "Hooks that did not verify"),
            load_shed: to.add(
                "ankusa_load_shed",
                "Hooks answered 503 overload",
                Counter::default(),
            ),
        }
    }

    pub(super) fn answered(&self, source_id: &str, outcome: IngestOutcome, took: Duration) {
        let sources = self.sources.load();
        let source = sources.get(source_id).map_or(&self.other_source, |source| source);
        source.answered(outcome, took);
    }

    /// The label of a source: its id if it is configured.
    pub(super) fn label<'a>(&self, source_id: &'a str) -> &'a str {
        if self.sources.load().contains_key(source_id) { source_id } else { OTHER }
    }

    /// The API has these sources now, beside those of the configuration: what is gone is shown no more.
    pub(super) fn keep(&self, ids: &[String]) {
        let before = self.sources.load_full();
        let mut now = self.configured.clone();
        for id in ids {
            let known = before.get(id).map(Arc::clone);
            let series = known.unwrap_or_else(|| self.families.of(id));
            now.insert(id.clone(), series);
        }
        for gone in before.keys().filter(|id| !now.contains_key(*id)) {
            self.families.forget(gone);
            self.verify_failures.forget("source_id", gone);
        }
        self.sources.store(Arc::new(now));
    }
}

/// What happens to groups of hooks.
#[derive(Debug)]
pub(super) struct WalSeries {
    pub(super) commit_duration: Histogram,
    pub(super) commit_batch_size: SumCounter,
    pub(super) commit_bytes: Counter,
    pub(super) sync_duration: Histogram,
    pub(super) synced_groups: Counter,
}

impl WalSeries {
    pub(super) fn new(to: &mut Registrar) -> Self {
        Self {
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
        }
    }
}

/// What happens to the store.
#[derive(Debug)]
pub(super) struct StoreSeries {
    pub(super) write_failures: BTreeMap<FailureClass, Counter>,
    reopens: BTreeMap<ReopenResult, Counter>,
    wal_replay: Float,
    pub(super) unavailable: Float,
    pub(super) counters_repaired: Counter,
    pub(super) dedupe_pruned: Counter,
    pub(super) scrub_bytes: Counter,
    pub(super) scrub_findings: Counter,
    pub(super) scrub_rounds: Counter,
}

impl StoreSeries {
    pub(super) fn new(to: &mut Registrar) -> Self {
        let write_failures =
            to.counters("ankusa_store_write_failures", "Store writes that failed, by class; no_space also when a disk becomes too full for new hooks");
        let reopens = to.counters("ankusa_store_reopen", "Reopens of the store after a failure");
        Self {
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
            unavailable: to.add(
                "ankusa_store_unavailable_seconds",
                "How long the store has been closed; 0 while open",
                Float::default(),
            ),
            counters_repaired: to.add(
                "ankusa_store_counters_repaired",
                "Counters that a recount put right, after a stop that was not clean or as an operator asked",
                Counter::default(),
            ),
            dedupe_pruned: to.add(
                "ankusa_dedupe_pruned",
                "Dedupe keys that had expired and were removed",
                Counter::default(),
            ),
            scrub_bytes: to.add(
                "ankusa_store_scrub_bytes",
                "Bytes of keys and values that the background scrub has read",
                Counter::default(),
            ),
            scrub_findings: to.add(
                "ankusa_store_scrub_findings",
                "Damaged files that the background scrub has met",
                Counter::default(),
            ),
            scrub_rounds: to.add(
                "ankusa_store_scrub_rounds",
                "Times the background scrub has read the whole store",
                Counter::default(),
            ),
        }
    }

    pub(super) fn reopened(&self, result: ReopenResult, took: Duration) {
        count(&self.reopens, &result);
        if result == ReopenResult::Ok {
            self.wal_replay.set(took.as_secs_f64());
        }
    }
}

/// What happens to deliveries.
#[derive(Debug)]
pub(super) struct DispatchSeries {
    deliveries: Family<Counter>,
    attempts: Family<Histogram>,
    sinks: RwLock<SinkSeries>,
    pub(super) dead_lettered: Family<Counter>,
    purged: BTreeMap<&'static str, Counter>,
}

impl DispatchSeries {
    pub(super) fn new(to: &mut Registrar) -> Self {
        Self {
            deliveries: to
                .counters("ankusa_dispatch_deliveries", "Delivery attempts, by how they ended"),
            attempts: to.histograms(
                "ankusa_dispatch_attempt_duration_seconds",
                "Delivery attempts, by how long they took",
            ),
            sinks: RwLock::default(),
            dead_lettered: to.counters("ankusa_dispatch_dead_lettered", "Deliveries given up"),
            purged: {
                let purged = to.counters(
                    "ankusa_dispatch_purged",
                    "Delivery rows removed by an operator, by the state they were in",
                );
                PURGED.map(|state| (state, purged.of([("state", state)]))).into()
            },
        }
    }

    pub(super) fn purged(&self, state: &str, rows: u64) {
        // The map holds every state.
        if let Some(purged) = self.purged.get(state) {
            purged.inc_by(rows);
        }
    }

    pub(super) fn delivered(&self, sink: &'static str, result: DeliveryResult, took: Duration) {
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

pub(super) fn count<K: Ord>(counters: &BTreeMap<K, Counter>, key: &K) {
    // The maps hold every variant.
    if let Some(counter) = counters.get(key) {
        counter.inc();
    }
}
