//! When a failed delivery is tried again.

/// The longest a receiver can put a delivery off with Retry-After, in milliseconds.
pub const RETRY_AFTER_MAX_MS: u64 = 3_600_000;

/// Exponential backoff: the wait after attempt n is `base_ms` doubled n - 1 times, at most `max_ms`, and with `jitter`
/// a random part of it between a half and the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    pub base_ms: u64,
    pub max_ms: u64,
    /// The attempt after which the delivery is dead.
    pub max_attempts: u32,
    pub jitter: bool,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self { base_ms: 100, max_ms: 300_000, max_attempts: 84, jitter: true }
    }
}

/// What follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again after so many milliseconds.
    RetryIn(u64),
    /// Dead: the attempts are used up.
    GiveUp,
}

impl RetryPolicy {
    /// What follows failed attempt number `attempt`, the first being 1. `unit` is chance, uniform in `[0, 1)`.
    pub fn after(&self, attempt: u32, unit: f64) -> Next {
        if attempt >= self.max_attempts {
            return Next::GiveUp;
        }
        let doublings = attempt.saturating_sub(1);
        let doubled = 1_u64.checked_shl(doublings).and_then(|by| self.base_ms.checked_mul(by));
        let wait_ms = doubled.unwrap_or(u64::MAX).min(self.max_ms);
        Next::RetryIn(if self.jitter { jittered(wait_ms, unit) } else { wait_ms })
    }

    /// The same when the receiver asked for a wait of `asked_ms`: the longer of the two, where asking counts for an hour
    /// at most.
    pub fn after_asked(&self, attempt: u32, unit: f64, asked_ms: u64) -> Next {
        match self.after(attempt, unit) {
            Next::RetryIn(wait_ms) => Next::RetryIn(wait_ms.max(asked_ms.min(RETRY_AFTER_MAX_MS))),
            Next::GiveUp => Next::GiveUp,
        }
    }
}

/// Between a half and the whole of `wait_ms`, rounded.
fn jittered(wait_ms: u64, unit: f64) -> u64 {
    let factor = 0.5 + unit.clamp(0.0, 1.0) / 2.0;
    let wait = (wait_ms as f64 * factor).round();
    // A float beyond the range saturates, and there is none: the factor is at most 1.
    #[expect(clippy::cast_possible_truncation, reason = "rounded just above, and saturating")]
    let wait_ms = wait as u64;
    wait_ms
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: RetryPolicy =
        RetryPolicy { base_ms: 100, max_ms: 300_000, max_attempts: 84, jitter: false };

    #[test]
    fn the_waits_double_from_100_ms_to_5_minutes_and_sum_to_21709_and_a_half_seconds() {
        let waits: Vec<_> = (1..=84).map(|attempt| PLAIN.after(attempt, 0.9)).collect();
        let doubling = (0..12).map(|n| Next::RetryIn(100 << n));
        let capped = std::iter::repeat_n(Next::RetryIn(300_000), 71);
        let documented: Vec<_> = doubling.chain(capped).chain([Next::GiveUp]).collect();
        assert_eq!(waits, documented);
        let sum_ms = waits.iter().fold(0, |sum, wait| match wait {
            Next::RetryIn(ms) => sum + ms,
            Next::GiveUp => sum,
        });
        assert_eq!(sum_ms, 21_709_500);
    }

    #[test]
    fn the_default_is_the_documented_policy_with_jitter() {
        assert_eq!(RetryPolicy::default(), RetryPolicy { jitter: true, ..PLAIN });
    }

    #[test]
    fn jitter_takes_away_up_to_half_of_the_wait_and_rounds() {
        let policy = RetryPolicy { jitter: true, ..PLAIN };
        let waits = [0.0, 0.25, 0.5, 0.999_999_999].map(|unit| policy.after(1, unit));
        assert_eq!(waits, [50, 63, 75, 100].map(Next::RetryIn));
        assert_eq!(policy.after(40, 0.0), Next::RetryIn(150_000));
        assert_eq!(policy.after(84, 0.0), Next::GiveUp);
    }

    #[test]
    fn what_the_receiver_asks_for_only_lengthens_the_wait_and_by_an_hour_at_most() {
        assert_eq!(PLAIN.after_asked(1, 0.0, 7_000), Next::RetryIn(7_000));
        assert_eq!(PLAIN.after_asked(13, 0.0, 7_000), Next::RetryIn(300_000));
        assert_eq!(PLAIN.after_asked(1, 0.0, 3_600_001), Next::RetryIn(3_600_000));
        assert_eq!(PLAIN.after_asked(1, 0.0, u64::MAX), Next::RetryIn(3_600_000));
        assert_eq!(PLAIN.after_asked(84, 0.0, 7_000), Next::GiveUp);
    }

    #[test]
    fn extreme_settings_saturate_instead_of_overflowing() {
        let policy = RetryPolicy {
            base_ms: u64::MAX,
            max_ms: u64::MAX,
            max_attempts: u32::MAX,
            jitter: false,
        };
        assert_eq!(policy.after(0, 0.0), Next::RetryIn(u64::MAX));
        assert_eq!(policy.after(1, 0.0), Next::RetryIn(u64::MAX));
        assert_eq!(policy.after(u32::MAX - 1, 0.0), Next::RetryIn(u64::MAX));
        assert_eq!(policy.after(u32::MAX, 0.0), Next::GiveUp);
        let none = RetryPolicy { max_attempts: 0, ..PLAIN };
        assert_eq!(none.after(1, 0.0), Next::GiveUp);
    }
}
