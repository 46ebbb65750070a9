//! Times, counted in buckets that are never wider than a sixty-fourth of what they hold: many threads' worth of answers
//! cost one small array, and a percentile is off by 1.6 % at most.

use std::time::Duration;

/// Buckets of every power of two.
const PER_OCTAVE: u64 = 64;

/// Bits of [`PER_OCTAVE`].
const OCTAVE_BITS: u32 = PER_OCTAVE.trailing_zeros();

/// Buckets up to the largest number of nanoseconds there is.
const BUCKETS: usize = 64 * 59;

/// How often which time was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    /// Counts one time. More than 584 years count as that.
    pub(super) fn record(&mut self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
            self.total += 1;
        }
    }

    /// Counts everything another has counted.
    pub(super) fn add(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    /// How many times were counted.
    pub(super) fn count(&self) -> u64 {
        self.total
    }

    /// The time that `percent` of all took at most, in milliseconds; no number while nothing has been counted.
    pub(super) fn percentile_ms(&self, percent: u64) -> f64 {
        // At least one, so that the lowest percentile is the smallest time and not zero.
        let wanted = self.total.saturating_mul(percent).div_ceil(100).max(1);
        let mut seen = 0;
        for (at, count) in (0_u64..).zip(&self.counts) {
            seen += count;
            if seen >= wanted {
                return middle_nanos(at) / 1e6;
            }
        }
        f64::NAN
    }
}

/// The first 128 numbers have a bucket each; from there on every octave has [`PER_OCTAVE`].
fn bucket(nanos: u64) -> usize {
    let octave = u64::from((u64::BITS - nanos.leading_zeros()).saturating_sub(OCTAVE_BITS + 1));
    usize::try_from(octave * PER_OCTAVE + (nanos >> octave)).unwrap_or(usize::MAX)
}

fn middle_nanos(bucket: u64) -> f64 {
    let octave = (bucket / PER_OCTAVE).saturating_sub(1);
    let from = (bucket - octave * PER_OCTAVE) << octave;
    let width = 1_u64 << octave;
    from as f64 + (width - 1) as f64 / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_time_is_told_more_than_a_sixty_fourth_off() {
        let mut nanos = 1_u64;
        while nanos < u64::MAX / 3 {
            for nanos in [nanos, nanos + 1, nanos * 3 / 2, nanos * 2 - 1] {
                let mut one = Histogram::default();
                one.record(Duration::from_nanos(nanos));
                let told = one.percentile_ms(50) * 1e6;
                assert!((told - nanos as f64).abs() <= nanos as f64 / 64.0, "{nanos}: {told}");
            }
            nanos *= 2;
        }
        let mut one = Histogram::default();
        one.record(Duration::MAX);
        assert_eq!(one.count(), 1);
    }

    #[test]
    fn a_percentile_is_the_time_that_so_many_took_at_most() {
        let mut counted = Histogram::default();
        assert!(counted.percentile_ms(50).is_nan());
        (1..=100).for_each(|nanos| counted.record(Duration::from_nanos(nanos)));
        let told = [0, 1, 50, 99, 100].map(|percent| counted.percentile_ms(percent) * 1e6);
        assert_eq!(told.map(f64::round), [1.0, 1.0, 50.0, 99.0, 100.0]);
    }

    #[test]
    fn two_added_count_as_one() {
        let (mut one, mut other, mut both) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for (histogram, micros) in [(&mut one, 5), (&mut other, 900)] {
            histogram.record(Duration::from_micros(micros));
            both.record(Duration::from_micros(micros));
        }
        one.add(&other);
        assert_eq!(one, both);
    }
}
