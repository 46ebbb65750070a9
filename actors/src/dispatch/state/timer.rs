//! When dispatch is called again, if nothing calls it before.

use std::time::Duration;

use tokio::time::Instant;

use super::DispatchState;
use crate::dispatch::DispatchMsg;

impl DispatchState {
    pub(super) fn set_timer(&mut self) {
        let now = Instant::now();
        let mut at = self.next_housekeeping;
        if let Some(deadline) = self.outcomes.deadline() {
            at = at.min(deadline);
        }
        if self.has_room() {
            let wait_ms = self.next_look_ms.saturating_sub(self.clock.now_ms());
            at = at.min(now + Duration::from_millis(wait_ms.min(1_000)));
            at = if self.look { at.min(self.look_after) } else { at };
        }
        self.set_timer_at(at);
    }

    pub(super) fn set_timer_at(&mut self, at: Instant) {
        if let Some((set, timer)) = &self.timer {
            if *set <= at {
                return;
            }
            timer.abort();
        }
        let wait = at.saturating_duration_since(Instant::now());
        let timer = self.myself.send_after(wait, || DispatchMsg::Timer);
        self.timer = Some((at, timer.abort_handle()));
    }
}
