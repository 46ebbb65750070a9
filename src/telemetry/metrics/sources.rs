//! The series of the sources that the API keeps.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;

use super::Registrar;
use super::parts::count;

/// What a change of a source can be.
const CHANGES: [&str; 3] = ["created", "updated", "deleted"];

/// What happens to sources.
#[derive(Debug)]
pub(super) struct SourceStoreSeries {
    stored: Gauge<u64, AtomicU64>,
    unreadable: Gauge<u64, AtomicU64>,
    changes: BTreeMap<&'static str, Counter>,
}

impl SourceStoreSeries {
    pub(super) fn new(to: &mut Registrar) -> Self {
        let changes = to.counters("ankusa_source_changes", "Changes of sources over the API");
        Self {
            stored: to.add(
                "ankusa_sources_stored",
                "Sources that the API keeps and that work",
                Gauge::default(),
            ),
            unreadable: to.add(
                "ankusa_sources_unreadable",
                "Stored sources that cannot be used: their hooks are answered 503",
                Gauge::default(),
            ),
            changes: CHANGES.map(|change| (change, changes.of([("change", change)]))).into(),
        }
    }

    pub(super) fn counted(&self, stored: usize, unreadable: usize) {
        self.stored.set(u64::try_from(stored).unwrap_or(u64::MAX));
        self.unreadable.set(u64::try_from(unreadable).unwrap_or(u64::MAX));
    }

    pub(super) fn changed(&self, what: &'static str) {
        count(&self.changes, &what);
    }
}
