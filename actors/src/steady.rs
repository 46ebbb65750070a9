//! A date that does not go back while the process runs: what rows are stamped and claimed by.
//!
//! Were they to follow a wall clock that is set back by an hour, every retry already scheduled would wait an hour longer,
//! and rows stamped before would not be found. So this one goes on at the pace of the monotonic clock until the wall
//! clock has caught up. Whatever tells a person or a provider the time uses the wall clock itself.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::ports::Clock;

/// Made with the tree, so that a restarted process goes on from the same date.
pub struct SteadyClock {
    wall: Arc<dyn Clock>,
    /// The latest date the wall clock has shown, and when.
    latest: Mutex<(u64, Instant)>,
}

impl SteadyClock {
    pub fn over(wall: Arc<dyn Clock>) -> Self {
        let latest = Mutex::new((wall.now_ms(), Instant::now()));
        Self { wall, latest }
    }
}

impl Clock for SteadyClock {
    fn now_ms(&self) -> u64 {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let (shown_ms, at) = *latest;
        let now = Instant::now();
        let passed_ms = u64::try_from(now.duration_since(at).as_millis()).unwrap_or(u64::MAX);
        let steady_ms = shown_ms.saturating_add(passed_ms);
        let wall_ms = self.wall.now_ms();
        if wall_ms > steady_ms {
            *latest = (wall_ms, now);
        }
        wall_ms.max(steady_ms)
    }
}

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::time::Duration;

    use tokio::time::sleep;

    use super::*;
    use crate::ports::sim::SimClock;

    #[tokio::test(start_paused = true)]
    async fn it_goes_on_where_the_wall_clock_is_set_back_and_follows_it_forward() {
        let wall = Arc::new(SimClock::at(1_000_000));
        let steady = SteadyClock::over(Arc::clone(&wall) as Arc<dyn Clock>);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(steady.now_ms(), 1_000_010);
        wall.step_ms(-500_000);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(steady.now_ms(), 1_000_020);
        wall.step_ms(500_000);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(steady.now_ms(), 1_000_030);
        wall.step_ms(3_600_000);
        assert_eq!(steady.now_ms(), 4_600_030);
        wall.step_ms(-3_600_000);
        sleep(Duration::from_millis(10)).await;
        assert_eq!(steady.now_ms(), 4_600_040);
    }
}
