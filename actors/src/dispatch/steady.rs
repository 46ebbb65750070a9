//! A date that does not go back while this process runs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::ports::Clock;

/// The Writer's stamps never go back. Were dispatch to follow a wall clock that is set back, it would not find the rows
/// stamped since until the clock has caught up.
pub(super) struct SteadyClock {
    clock: Arc<dyn Clock>,
    latest_ms: AtomicU64,
}

impl SteadyClock {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, latest_ms: AtomicU64::new(0) }
    }

    /// Milliseconds since the Unix epoch.
    pub(super) fn now_ms(&self) -> u64 {
        let now_ms = self.clock.now_ms();
        self.latest_ms.fetch_max(now_ms, Ordering::AcqRel).max(now_ms)
    }
}
