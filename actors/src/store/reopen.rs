//! When to close and reopen the store. Pure ("Durability, corruption, full disk").

use std::time::Duration;

use super::StoreConfig;

/// Wait before the disk is probed again when it does not take a synced write or has no room: with the reopen behind it,
/// hooks are taken within two seconds of the end of a fault.
pub const PROBE_RETRY: Duration = Duration::from_millis(250);

/// What is remembered between reopens.
#[derive(Debug, Default)]
pub struct ReopenPlan {
    /// Consecutive opens that failed.
    failures: u32,
}

impl ReopenPlan {
    /// How long a reported failure waits for its reopen: at most one reopen per `reopen_min_interval_ms`.
    pub fn after_report(config: &StoreConfig, since_last: Option<Duration>) -> Duration {
        let interval = Duration::from_millis(config.reopen_min_interval_ms);
        since_last.map_or(Duration::ZERO, |since| interval.saturating_sub(since))
    }

    /// How long a store that cannot open waits: doubling to the cap, cut by up to a quarter so that a fleet whose
    /// disks came back together does not replay its logs in step. `unit` is random in `[0, 1)`.
    pub fn after_failed_open(&mut self, config: &StoreConfig, unit: f64) -> Duration {
        let doubled = config.reopen_backoff_ms.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        let wait = Duration::from_millis(doubled.min(config.reopen_max_backoff_ms));
        wait.mul_f64(1.0 - unit.clamp(0.0, 1.0) / 4.0)
    }

    pub fn opened(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_report_waits_out_the_interval() {
        let config = StoreConfig::default();
        let after = |since: Option<u64>| {
            ReopenPlan::after_report(&config, since.map(Duration::from_millis)).as_millis()
        };
        assert_eq!(
            [after(None), after(Some(0)), after(Some(1_500)), after(Some(9_000))],
            [0, 5_000, 3_500, 0]
        );
    }

    #[test]
    fn waits_double_to_a_minute_and_are_cut_by_up_to_a_quarter() {
        let config = StoreConfig::default();
        let mut plan = ReopenPlan::default();
        let full: Vec<_> = (0..6).map(|_| plan.after_failed_open(&config, 0.0).as_secs()).collect();
        assert_eq!(full, [5, 10, 20, 40, 60, 60]);
        plan.opened();
        assert_eq!(plan.after_failed_open(&config, 1.0).as_millis(), 3_750);
    }
}
