//! The end of dispatch: what runs may end, and what came of it is written.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::warn;

use super::DispatchState;
use crate::ports::KvError;

/// What is kept of the time to stop for the last write: this much, or a tenth if that is less.
const LAST_WRITE: Duration = Duration::from_secs(1);

/// How often a stop writes what has ended meanwhile.
const DRAIN_STEP: Duration = Duration::from_millis(10);

impl DispatchState {
    /// Lets what runs end, for about as long as an attempt may take, and writes what came of it. What is still claimed
    /// then is due again at the next start.
    pub(in super::super) async fn drain(&mut self) {
        self.attempts.stop();
        self.stopping = true;
        let limit = Duration::from_millis(self.args.config.attempt_timeout_ms);
        let deadline = Instant::now() + (limit - LAST_WRITE.min(limit / 10));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let ended = self.attempts.ended(DRAIN_STEP.min(left)).await;
            let flushed = self.flush_at_last().await;
            let rows = self.attempts.done() + self.outcomes.settled();
            if (ended && rows == 0) || left.is_zero() {
                if rows > 0 {
                    warn!(rows, error = ?flushed.err(), "outcomes were not written: these rows are attempted again");
                }
                return;
            }
            if ended {
                sleep(DRAIN_STEP).await;
            }
        }
    }

    async fn flush_at_last(&mut self) -> Result<(), KvError> {
        if self.attempts.done() + self.outcomes.settled() == 0 || !self.settle().await? {
            return Ok(());
        }
        self.flush().await
    }
}
