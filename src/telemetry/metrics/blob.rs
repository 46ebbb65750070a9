//! What happens to object stores.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;

use ankusa_actors::ports::{BlobEvent, BlobScope, BlobVerb};

use super::Registrar;
use super::series::Family;

/// Of operations that were made: a node without an object store shows none.
#[derive(Debug)]
pub(super) struct BlobSeries {
    operations: Family<Counter>,
    duration: Family<Histogram>,
    bytes: Family<Counter>,
    retries: Family<Counter>,
    breaker: Family<Gauge<u64, AtomicU64>>,
    transitions: Family<Counter>,
}

impl BlobSeries {
    pub(super) fn new(to: &mut Registrar) -> Self {
        Self {
            operations: to
                .counters("ankusa_blob_store_operations", "Operations on object stores, as they ended"),
            duration: to.histograms(
                "ankusa_blob_store_duration_seconds",
                "How long operations on object stores took, with every attempt and wait",
            ),
            bytes: to.counters("ankusa_blob_store_bytes", "Bytes of objects written or read"),
            retries: to.counters("ankusa_blob_store_retries", "Requests sent again"),
            breaker: to.add(
                "ankusa_blob_store_breaker_open",
                "Whether the breaker before a bucket lets nothing through: 0 closed, 1 open, 2 one request is let through",
                Family::new(Gauge::<u64, AtomicU64>::default),
            ),
            transitions: to.counters(
                "ankusa_blob_store_breaker_transitions",
                "How often the breaker before a bucket came into a state",
            ),
        }
    }

    pub(super) fn emit(&self, event: BlobEvent<'_>) {
        match event {
            BlobEvent::Done { scope, verb, outcome, bytes, took } => {
                self.done((scope, verb), outcome, bytes, took);
            }
            BlobEvent::Retried { scope } => {
                self.retries.of([("store", scope.as_str())]).inc();
            }
            BlobEvent::Breaker { endpoint, bucket, state } => {
                self.breaker(endpoint, bucket, state);
            }
        }
    }

    fn done(
        &self,
        (scope, verb): (BlobScope, BlobVerb),
        outcome: &str,
        bytes: u64,
        took: Duration,
    ) {
        let (store, verb) = (("store", scope.as_str()), ("verb", verb.as_str()));
        self.operations.of([store, verb, ("outcome", outcome)]).inc();
        self.duration.of([store, verb]).observe(took.as_secs_f64());
        self.bytes.of([store, verb]).inc_by(bytes);
    }

    fn breaker(&self, endpoint: &str, bucket: &str, state: &str) {
        let (endpoint, bucket) = (("endpoint", endpoint), ("bucket", bucket));
        self.transitions.of([endpoint, bucket, ("state", state)]).inc();
        self.breaker.of([endpoint, bucket]).set(match state {
            "closed" => 0,
            "open" => 1,
            _half_open => 2,
        });
    }
}
