//! Deletes held hooks that are older than `quarantine.retention_days`.
//!
//! Every hour it looks from the oldest on and goes on, chunk after chunk, while there is something to delete.
//!
//! * **Owns:** nothing. Killing it at any point loses nothing; the next sweep finds what is left.
//! * **Talks to:** the quarantine, which deletes.
//! * **Supervised by:** `services`, one_for_one.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tracing::{info, warn};

use crate::edge::{PenSize, QuarantineHandle};
use crate::model::quarantine::HeldFilter;
use crate::ports::{Clock, Event, Events, KvError, QuarantineDeletion};
use crate::supervision::{Crash, told_to_crash};

/// The first sweep comes this long after the start: a node that is restarted every hour would never get to one otherwise.
const FIRST_AFTER: Duration = Duration::from_secs(60);

/// From the end of a sweep to the next.
const EVERY: Duration = Duration::from_secs(3_600);

/// Wait after a sweep that did not come to its end.
const RETRY: Duration = Duration::from_secs(60);

/// Hooks asked to be deleted at a time.
const CHUNK_HOOKS: usize = 1_000;

const DAY_MS: u64 = 86_400_000;

pub enum QuarantineReaperMsg {
    /// Sweep one chunk, then look again: at once if it was full, else after the interval.
    Sweep,
    /// Panic, for a drill.
    Crash,
}

impl Crash for QuarantineReaperMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct QuarantineReaperArgs {
    /// `None` keeps everything.
    pub retention_days: Option<u64>,
    pub clock: Arc<dyn Clock>,
    pub events: Arc<dyn Events>,
    pub quarantine: QuarantineHandle,
}

/// Nothing is remembered between chunks.
pub struct QuarantineReaperState {
    args: QuarantineReaperArgs,
}

pub struct QuarantineReaper;

impl Actor for QuarantineReaper {
    type Msg = QuarantineReaperMsg;
    type State = QuarantineReaperState;
    type Arguments = QuarantineReaperArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<QuarantineReaperMsg>,
        args: QuarantineReaperArgs,
    ) -> Result<QuarantineReaperState, ActorProcessingErr> {
        myself.send_after(FIRST_AFTER, || QuarantineReaperMsg::Sweep);
        Ok(QuarantineReaperState { args })
    }

    async fn handle(
        &self,
        myself: ActorRef<QuarantineReaperMsg>,
        message: QuarantineReaperMsg,
        state: &mut QuarantineReaperState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            QuarantineReaperMsg::Sweep => {
                let look_again = state.sweep().await;
                myself.send_after(look_again, || QuarantineReaperMsg::Sweep);
            }
            QuarantineReaperMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl QuarantineReaperState {
    /// Sweeps one chunk. Answers how long to wait before the next.
    async fn sweep(&self) -> Duration {
        let Some(days) = self.args.retention_days else { return EVERY };
        let oldest_ms = days.saturating_mul(DAY_MS);
        // Nothing is older than the clock: one at the epoch knows no age.
        let Some(until_ms) = self.args.clock.now_ms().checked_sub(oldest_ms) else { return EVERY };
        let filter = HeldFilter { until_ms: Some(until_ms), ..HeldFilter::default() };
        let deleted: Result<PenSize, KvError> =
            self.args.quarantine.purge(&filter, CHUNK_HOOKS).await;
        match deleted {
            Ok(PenSize { entries, bytes }) => {
                if entries > 0 {
                    info!(entries, bytes, days, "held hooks were deleted for their age");
                    let reason = QuarantineDeletion::Retention;
                    self.args.events.emit(&Event::QuarantineDeleted { reason, entries });
                }
                let is_full = usize::try_from(entries).is_ok_and(|entries| entries >= CHUNK_HOOKS);
                if is_full { Duration::ZERO } else { EVERY }
            }
            Err(error) => {
                warn!(%error, "held hooks could not be deleted for their age; trying again");
                RETRY
            }
        }
    }
}
