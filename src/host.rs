//! The machine's own clock and chance, and nobody who listens.

use std::time::{SystemTime, UNIX_EPOCH};

use ankusa_actors::ports::{Clock, Entropy, Event, Events};

/// The wall clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostClock;

impl Clock for HostClock {
    fn now_ms(&self) -> u64 {
        // A clock before 1970 is a machine that has not been told the date: the epoch is as good as anything.
        let since_the_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since_the_epoch.as_millis()).unwrap_or(u64::MAX)
    }
}

/// The thread's generator, seeded and reseeded by the kernel's.
#[derive(Clone, Copy, Debug, Default)]
pub struct HostEntropy;

impl Entropy for HostEntropy {
    fn bits(&self) -> u128 {
        rand::random()
    }
}

/// Nobody who listens: for what runs without a node.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoEvents;

impl Events for NoEvents {
    fn emit(&self, _: &Event<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_tells_this_century_and_does_not_run_back() {
        let first = HostClock.now_ms();
        assert!((1_700_000_000_000..4_000_000_000_000).contains(&first), "{first}");
        assert!(HostClock.now_ms() >= first);
    }

    #[test]
    fn no_two_draws_are_alike_and_a_unit_is_below_one() {
        assert_ne!(HostEntropy.bits(), HostEntropy.bits());
        assert!((0.0..1.0).contains(&HostEntropy.unit()));
    }
}
