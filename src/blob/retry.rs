//! What is tried again, and after what wait.

use std::time::Duration;

use ankusa_actors::model::http_answer::retry_after_ms;
use http::{HeaderMap, StatusCode, header::RETRY_AFTER};

/// The longest wait before the second attempt, the third, and every later one, in milliseconds.
const WAITS_MS: [u64; 3] = [200, 1_000, 5_000];

/// The statuses of a failure that passes.
pub const fn is_transient(status: StatusCode) -> bool {
    matches!(status.as_u16(), 408 | 429 | 500 | 502 | 503 | 504)
}

/// The wait after `attempts` that failed, full jitter: `unit` in `[0, 1)` of the longest.
pub fn wait(attempts: u32, unit: f64) -> Duration {
    let place = usize::try_from(attempts.saturating_sub(1)).unwrap_or(usize::MAX);
    let longest = WAITS_MS.get(place).or(WAITS_MS.last()).copied().unwrap_or_default();
    Duration::from_millis(longest).mul_f64(unit)
}

/// How long the store wants to be left alone: the `Retry-After` of a 429 or a 503.
pub fn retry_after(status: StatusCode, headers: &HeaderMap, now_ms: u64) -> Option<Duration> {
    let asks = matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE);
    let value = headers.get(RETRY_AFTER).filter(|_| asks)?;
    retry_after_ms(value.as_bytes(), now_ms).map(Duration::from_millis)
}
