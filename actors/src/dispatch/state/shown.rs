//! What dispatch lets others see of itself.

use super::DispatchState;
use crate::dispatch::DispatchSnapshot;

impl DispatchState {
    pub(super) fn show(&self) {
        let (counts, held) = (self.attempts.counts(), self.held.total());
        let snapshot = DispatchSnapshot {
            running: counts.running,
            claimed: held.rows,
            claimed_bytes: u64::try_from(held.bytes).unwrap_or(u64::MAX),
            runnable: counts.runnable,
            breakers_open: counts.breakers_open,
            oldest_due_at_ms: self.oldest_due_at_ms,
        };
        self.args.handle.snapshot.send_if_modified(|shown| {
            let is_new = *shown != snapshot;
            *shown = snapshot;
            is_new
        });
    }
}
