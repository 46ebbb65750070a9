//! A purge, between the other turns of dispatch.

use super::DispatchState;
use crate::dispatch::purge::Purging;
use crate::dispatch::writing::not_settled;
use crate::dispatch::{PurgeChunk, PurgeStep, Purgeable};
use crate::ports::{Event, KvError};

impl DispatchState {
    /// Removes a chunk of a tenant's rows.
    pub(in crate::dispatch) async fn purge(
        &mut self,
        step: &PurgeStep,
    ) -> Result<PurgeChunk, KvError> {
        if !self.settle().await? {
            return Err(not_settled());
        }
        // Whatever has ended is written first, so that what is left of a claimed row is in the queues or an attempt.
        self.flush().await?;
        let mut purging = Purging {
            writing: &mut self.writing,
            held: &mut self.held,
            outcomes: &mut self.outcomes,
            attempts: &self.attempts,
            lanes: &mut self.lanes,
            mark: self.args.mark.get(),
            now_ms: self.clock.now_ms(),
        };
        let chunk = purging.step(step).await?;
        // There may be room now for what was left, or a lane to hand on.
        self.look |= self.left.is_something() || self.lanes.has_more();
        for state in Purgeable::ALL {
            let rows = chunk.purged.of(state);
            if rows > 0 {
                self.args.events.emit(&Event::Purged { state: state.as_str(), rows });
            }
        }
        Ok(chunk)
    }
}
