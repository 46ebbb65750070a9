//! The series of each source: how its requests end, and how long they take.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::IngestOutcome;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::histogram::Histogram;

use super::parts::count;
use super::series::Family;
use super::{Registrar, histogram};

const OUTCOMES: [IngestOutcome; 14] = [
    IngestOutcome::Committed,
    IngestOutcome::Duplicate,
    IngestOutcome::Rejected,
    IngestOutcome::Overload,
    IngestOutcome::StoreUnavailable,
    IngestOutcome::Unknown,
    IngestOutcome::TenantLimit,
    IngestOutcome::RateLimited,
    IngestOutcome::TenantOverload,
    IngestOutcome::Quarantined,
    IngestOutcome::QuarantineRateLimited,
    IngestOutcome::QuarantineFull,
    IngestOutcome::Handshake,
    IngestOutcome::DedupeQuota,
];

/// Of one source.
#[derive(Debug)]
pub(super) struct SourceSeries {
    outcomes: BTreeMap<IngestOutcome, Counter>,
    quarantine_rate_limited: Counter,
    quarantine_full: Counter,
    duration: Histogram,
}

impl SourceSeries {
    /// Counts, and is never shown.
    pub(super) fn hidden() -> Self {
        Self {
            outcomes: OUTCOMES.map(|outcome| (outcome, Counter::default())).into(),
            quarantine_rate_limited: Counter::default(),
            quarantine_full: Counter::default(),
            duration: histogram(),
        }
    }

    pub(super) fn answered(&self, outcome: IngestOutcome, took: Duration) {
        count(&self.outcomes, &outcome);
        if outcome == IngestOutcome::QuarantineRateLimited {
            self.quarantine_rate_limited.inc();
        } else if outcome == IngestOutcome::QuarantineFull {
            self.quarantine_full.inc();
        }
        self.duration.observe(took.as_secs_f64());
    }
}

/// The series there are of each source.
#[derive(Debug)]
pub(super) struct SourceFamilies {
    requests: Family<Counter>,
    durations: Family<Histogram>,
    quarantine_rate_limited: Family<Counter>,
    quarantine_full: Family<Counter>,
}

impl SourceFamilies {
    pub(super) fn new(to: &mut Registrar) -> Self {
        Self {
            requests: to.counters(
                "ankusa_ingest_requests",
                "Requests of a known source, by how they ended",
            ),
            durations: to
                .histograms("ankusa_ingest_duration_seconds", "From a request to its answer"),
            quarantine_rate_limited: to.counters(
                "ankusa_quarantine_rate_limited",
                "Hooks that did not verify and were too many to be held or flagged",
            ),
            quarantine_full: to.counters(
                "ankusa_quarantine_full",
                "Hooks that did not verify and found no room in the quarantine pen",
            ),
        }
    }

    pub(super) fn of(&self, id: &str) -> Arc<SourceSeries> {
        let count = |outcome: IngestOutcome| {
            (outcome, self.requests.of([("source_id", id), ("outcome", outcome.as_str())]))
        };
        Arc::new(SourceSeries {
            outcomes: OUTCOMES.map(count).into(),
            quarantine_rate_limited: self.quarantine_rate_limited.of([("source_id", id)]),
            quarantine_full: self.quarantine_full.of([("source_id", id)]),
            duration: self.durations.of([("source_id", id)]),
        })
    }

    pub(super) fn forget(&self, id: &str) {
        let Self { requests, durations, quarantine_rate_limited, quarantine_full } = self;
        for counters in [requests, quarantine_rate_limited, quarantine_full] {
            counters.forget("source_id", id);
        }
        durations.forget("source_id", id);
    }
}
