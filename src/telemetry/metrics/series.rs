//! The kinds of series the metrics library has not: families told in order, gauges that say nothing until they are
//! sampled, and a sum under a name of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use prometheus_client::encoding::{EncodeMetric, MetricEncoder};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::TypedMetric;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::exemplar::Exemplar;

/// A label's name and value.
type Label = (&'static str, String);

/// Series of one name, told in the order of their labels.
#[derive(Clone)]
pub(super) struct Family<M> {
    series: Arc<RwLock<BTreeMap<Vec<Label>, M>>>,
    make: fn() -> M,
}

impl<M: Clone> Family<M> {
    pub(super) fn new(make: fn() -> M) -> Self {
        Self { series: Arc::default(), make }
    }

    /// The series with these labels, made if it is the first time. Keep it where it is asked for often.
    pub(super) fn of<const N: usize>(&self, labels: [(&'static str, &str); N]) -> M {
        let labels: Vec<Label> = labels.map(|(name, value)| (name, value.to_owned())).into();
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        series.entry(labels).or_insert_with(self.make).clone()
    }

    /// These series, by the value of their one label, and no others.
    pub(super) fn replace(&self, label: &'static str, all: impl IntoIterator<Item = (String, M)>) {
        let all = all.into_iter().map(|(value, metric)| (vec![(label, value)], metric)).collect();
        *self.series.write().unwrap_or_else(PoisonError::into_inner) = all;
    }

    /// Drops every series with this label.
    pub(super) fn forget(&self, label: &'static str, value: &str) {
        let mut series = self.series.write().unwrap_or_else(PoisonError::into_inner);
        series.retain(|labels, _| !labels.iter().any(|(name, is)| *name == label && is == value));
    }

    /// The series with these labels, if there is one.
    pub(super) fn find<const N: usize>(&self, labels: [(&'static str, &str); N]) -> Option<M> {
        let labels: Vec<Label> = labels.map(|(name, value)| (name, value.to_owned())).into();
        self.series.read().unwrap_or_else(PoisonError::into_inner).get(&labels).cloned()
    }
}

impl<M> fmt::Debug for Family<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Family").finish_non_exhaustive()
    }
}

impl<M: EncodeMetric + TypedMetric> EncodeMetric for Family<M> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let series = self.series.read().unwrap_or_else(PoisonError::into_inner);
        for (labels, metric) in series.iter() {
            metric.encode(encoder.encode_family(labels)?)?;
        }
        Ok(())
    }

    fn metric_type(&self) -> MetricType {
        M::TYPE
    }

    fn is_empty(&self) -> bool {
        self.series.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }
}

/// A gauge that is absent until it is first set: a zero that nobody measured raises alarms.
#[derive(Clone, Debug)]
pub(super) struct Sampled(Arc<AtomicU64>);

impl Sampled {
    const UNSET: u64 = u64::MAX;

    pub(super) fn set(&self, value: u64) {
        self.0.store(value.min(Self::UNSET - 1), Ordering::Relaxed);
    }
}

impl Default for Sampled {
    fn default() -> Self {
        Self(Arc::new(AtomicU64::new(Self::UNSET)))
    }
}

impl EncodeMetric for Sampled {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(&self.0.load(Ordering::Relaxed))
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == Self::UNSET
    }
}

/// The same for a time, set in milliseconds and told in seconds.
#[derive(Clone, Debug, Default)]
pub(super) struct SampledAge(Sampled);

impl SampledAge {
    pub(super) fn set_ms(&self, age_ms: u64) {
        self.0.set(age_ms);
    }
}

impl EncodeMetric for SampledAge {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        let age_ms = self.0.0.load(Ordering::Relaxed);
        encoder.encode_gauge(&std::time::Duration::from_millis(age_ms).as_secs_f64())
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Gauge
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The one documented counter whose name does not end in `_total`, which the library puts behind every counter's.
pub(super) const BATCH_SIZE: &str = "ankusa_wal_commit_batch_size";

/// A counter registered without a type, so that its name stays as it is.
#[derive(Clone, Debug, Default)]
pub(super) struct SumCounter(Counter);

impl SumCounter {
    pub(super) fn inc_by(&self, by: u64) {
        self.0.inc_by(by);
    }

    /// Says in the finished text what the registry could not be told.
    pub(super) fn name_the_type(text: String) -> String {
        text.replacen(
            &format!("# TYPE {BATCH_SIZE} untyped\n"),
            &format!("# TYPE {BATCH_SIZE} counter\n"),
            1,
        )
    }
}

impl EncodeMetric for SumCounter {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter(&self.0.get(), None::<&Exemplar<Vec<Label>, u64>>)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Unknown
    }
}
