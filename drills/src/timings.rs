//! How long clients waited, and for what.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::StatusCode;

use crate::http::{Answer, NoAnswer};

/// What a wait ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    Acked,
    Refused,
    /// The connection ended.
    Closed,
    /// Nothing came as long as a client waits: somebody was forgotten.
    LeftWaiting,
}

impl End {
    /// What an answer, or none, ends a wait with.
    #[must_use]
    pub fn of(answer: &Result<Answer, NoAnswer>) -> Self {
        match answer {
            Ok(answer) if answer.status == StatusCode::CREATED => Self::Acked,
            Ok(_) => Self::Refused,
            Err(NoAnswer::TimedOut(_)) => Self::LeftWaiting,
            Err(
                NoAnswer::NotConnected(_)
                | NoAnswer::NotSent(_)
                | NoAnswer::Broken(_)
                | NoAnswer::Unsendable(_),
            ) => Self::Closed,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Wait {
    ended: Instant,
    took: Duration,
    end: End,
}

/// Every wait of every client, in the order in which they ended.
#[derive(Debug, Default)]
pub struct Timings {
    waits: Mutex<Vec<Wait>>,
}

impl Timings {
    /// A wait ends now.
    pub fn add(&self, took: Duration, end: End) {
        // The moment is taken under the lock: it is in order.
        let mut waits = self.waits();
        waits.push(Wait { ended: Instant::now(), took, end });
    }

    /// The waits that ended from `from` on, up to `to`.
    #[must_use]
    pub fn between(&self, from: Instant, to: Instant) -> Span {
        let waits = self.waits();
        let first = waits.partition_point(|wait| wait.ended < from);
        let mut span = Span::default();
        for wait in waits.iter().skip(first).take_while(|wait| wait.ended <= to) {
            span.slowest = span.slowest.max(wait.took);
            match wait.end {
                End::Acked => {
                    span.first_ack.get_or_insert(wait.ended);
                    span.acks.push(wait.took);
                }
                End::Refused => span.refused += 1,
                End::Closed => span.closed += 1,
                End::LeftWaiting => span.left_waiting += 1,
            }
        }
        span.acks.sort_unstable();
        span
    }

    /// The waits that ended from `from` on.
    #[must_use]
    pub fn since(&self, from: Instant) -> Span {
        self.between(from, Instant::now())
    }

    fn waits(&self) -> MutexGuard<'_, Vec<Wait>> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The waits of a stretch of time, summed up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// How long each ack took, shortest first.
    acks: Vec<Duration>,
    pub first_ack: Option<Instant>,
    pub refused: usize,
    pub closed: usize,
    pub left_waiting: usize,
    /// The longest wait, whatever it was for.
    pub slowest: Duration,
}

impl Span {
    #[must_use]
    pub fn acked(&self) -> usize {
        self.acks.len()
    }

    /// The wait that this many acks of a hundred do not exceed, in whole milliseconds. None without any ack.
    #[must_use]
    pub fn percentile_ms(&self, percent: usize) -> Option<u64> {
        let rank = (self.acks.len() * percent).div_ceil(100).max(1);
        self.acks.get(rank - 1).map(|took| millis(*took))
    }
}

/// Whole milliseconds.
#[must_use]
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_sums_up_what_ended_in_it() {
        let timings = Timings::default();
        let began = Instant::now();
        for took in (1..=100).rev() {
            timings.add(Duration::from_millis(took), End::Acked);
        }
        timings.add(Duration::from_secs(9), End::Refused);
        timings.add(Duration::ZERO, End::Closed);
        timings.add(Duration::ZERO, End::LeftWaiting);
        let span = timings.since(began);
        assert_eq!([span.acked(), span.refused, span.closed, span.left_waiting], [100, 1, 1, 1]);
        assert_eq!(
            [1, 50, 99, 100].map(|percent| span.percentile_ms(percent)),
            [Some(1), Some(50), Some(99), Some(100)]
        );
        assert_eq!(span.slowest, Duration::from_secs(9));
        let later = Instant::now();
        assert_eq!(timings.since(later), Span::default());
        assert_eq!(timings.since(later).percentile_ms(50), None);
    }
}
