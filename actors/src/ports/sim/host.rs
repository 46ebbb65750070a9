//! The date and chance, both under the test's control.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use tokio::time::Instant;

use crate::ports::{Clock, Entropy};

/// A date that moves with tokio's clock, so `tokio::time::pause` pauses it too.
#[derive(Debug)]
pub struct SimClock {
    epoch_ms: u64,
    since: Instant,
    offset_ms: AtomicI64,
}

impl SimClock {
    /// It is `epoch_ms` now.
    pub fn at(epoch_ms: u64) -> Self {
        Self { epoch_ms, since: Instant::now(), offset_ms: AtomicI64::new(0) }
    }

    /// Somebody sets the wall clock: the date jumps by `by_ms`, and no timer notices.
    pub fn step_ms(&self, by_ms: i64) {
        self.offset_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

impl Clock for SimClock {
    fn now_ms(&self) -> u64 {
        let passed_ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let steady_ms = self.epoch_ms.saturating_add(passed_ms);
        steady_ms.saturating_add_signed(self.offset_ms.load(Ordering::Relaxed))
    }
}

/// The same bits for the same seed, in the order they are asked for (SplitMix64).
#[derive(Debug)]
pub struct SimEntropy {
    state: AtomicU64,
}

impl SimEntropy {
    const GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

    pub fn seeded(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed) }
    }

    fn next(&self) -> u64 {
        let state = self.state.fetch_add(Self::GAMMA, Ordering::Relaxed);
        let mut z = state.wrapping_add(Self::GAMMA);
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }
}

impl Entropy for SimEntropy {
    fn bits(&self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_date_moves_with_the_paused_clock_and_jumps_when_it_is_set() {
        let clock = SimClock::at(1_000);
        tokio::time::sleep(Duration::from_millis(250)).await;
        assert_eq!(clock.now_ms(), 1_250);
        clock.step_ms(-1_200);
        assert_eq!(clock.now_ms(), 50);
        clock.step_ms(-60_000);
        assert_eq!(clock.now_ms(), 0, "there is no date before the epoch");
    }

    #[test]
    fn one_seed_tells_one_story() {
        let draw = |seed| {
            let entropy = SimEntropy::seeded(seed);
            (entropy.bits(), entropy.bits(), entropy.unit())
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        // The published first outputs of SplitMix64 for seed 1234567.
        let entropy = SimEntropy::seeded(1_234_567);
        let first = u128::from(6_457_827_717_110_365_317_u64) << 64;
        assert_eq!(entropy.bits(), first | u128::from(3_203_168_211_198_807_973_u64));
    }
}
