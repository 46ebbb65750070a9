//! Which batches the Writer takes into its next group.

use std::time::Duration;

use tokio::time::Instant;

use super::WriterState;
use crate::queue::writer_handle::CommitBatch;

/// A group at least this large makes the next one wait for its callers.
const LARGE_GROUP_HOOKS: usize = 64;

/// How often a group that lingers looks for more: each look lets the batchers run once.
const LINGER_LOOKS: usize = 8;

impl WriterState {
    /// Every batch that waits, up to the caps.
    pub(super) async fn collect(&self) -> Vec<CommitBatch> {
        let mut batches = Vec::new();
        let (mut hooks, mut bytes) = (0, 0);
        self.take_up_to_caps(&mut batches, &mut hooks, &mut bytes);
        if hooks > 0
            && hooks < self.last_group_hooks / 2
            && self.last_group_hooks >= LARGE_GROUP_HOOKS
        {
            self.linger(&mut batches, &mut hooks, &mut bytes).await;
        }
        batches
    }

    fn take_up_to_caps(
        &self,
        batches: &mut Vec<CommitBatch>,
        hooks: &mut usize,
        bytes: &mut usize,
    ) {
        let config = &self.args.config;
        let fits = |next: &CommitBatch, hooks: usize, bytes: usize| {
            hooks == 0
                || (hooks + next.entries.len() <= config.group_commit_max_records
                    && bytes + next.bytes <= config.group_commit_max_bytes)
        };
        while let Some(next) = self.args.handle.take_if(|next| fits(next, *hooks, *bytes)) {
            *hooks += next.entries.len();
            *bytes += next.bytes;
            batches.push(next);
        }
    }

    /// After a large group its callers are on their way back: lets them join this one instead of forming the next,
    /// for as long as the batchers have something in hand and never longer than `group_commit_delay_ms`.
    async fn linger(&self, batches: &mut Vec<CommitBatch>, hooks: &mut usize, bytes: &mut usize) {
        let until = Instant::now() + Duration::from_millis(self.args.config.group_commit_delay_ms);
        for _ in 0..LINGER_LOOKS {
            if Instant::now() >= until || *hooks >= self.last_group_hooks / 2 {
                return;
            }
            tokio::task::yield_now().await;
            self.take_up_to_caps(batches, hooks, bytes);
        }
    }
}
