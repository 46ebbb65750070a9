//! Sources that change while rows are on their way to them.

use super::DispatchState;
use crate::dispatch::PullStep;
use crate::dispatch::load::Claiming;
use crate::dispatch::pull::pull;
use crate::dispatch::writing::not_settled;
use crate::ports::KvError;

impl DispatchState {
    /// Takes on the sources as they are now. Rows that wait for a sink that was changed go to what it is now; what is
    /// under way ends as it began.
    pub(super) fn follow_sources(&mut self) {
        if !self.targets.follow(self.args.sources.now()) {
            return;
        }
        let waiting = self.attempts.take_all_but(&self.targets.keys());
        let claiming = Claiming {
            targets: &self.targets,
            rules: &self.rules,
            attempts: &self.attempts,
            now_ms: self.clock.now_ms(),
        };
        let mut settled = Vec::new();
        for job in waiting {
            match claiming.rebind(job) {
                Ok(job) => {
                    let weight = self.claims.weight(job.claimed.tenant);
                    self.attempts.push(job, weight);
                }
                Err(change) => settled.push(*change),
            }
        }
        self.outcomes.extend(settled);
        self.look = true;
    }

    /// Makes a chunk of a source's rows due now.
    pub(in crate::dispatch) async fn pull(
        &mut self,
        step: &PullStep,
    ) -> Result<Option<Vec<u8>>, KvError> {
        if !self.settle().await? {
            return Err(not_settled());
        }
        let now_ms = self.clock.now_ms();
        let (next, moved) = pull(&mut self.writing, step, now_ms).await?;
        if moved {
            self.claims.put(step.tenant, now_ms);
            self.look = true;
        }
        Ok(next)
    }
}
