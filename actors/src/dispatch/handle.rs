//! How others reach dispatch.

use std::sync::Arc;

use ractor::rpc::CallResult;
use tokio::sync::watch;

use super::{DispatchMsg, PurgeChunk, PurgeStep};
use crate::ports::KvError;
use crate::supervision::{Doorbell, Slot};

/// Where dispatch stands, as of a moment ago: for the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DispatchSnapshot {
    /// Attempts under way.
    pub running: usize,
    /// Rows claimed and not finished.
    pub claimed: usize,
    /// Bytes of their hooks.
    pub claimed_bytes: u64,
    /// Claimed rows that wait for an attempt.
    pub runnable: usize,
    /// Sinks that are left alone because they keep failing.
    pub breakers_open: usize,
    /// Since when the oldest row waits that is due and not claimed, in Unix milliseconds; `None` while dispatch keeps up.
    pub oldest_due_at_ms: Option<u64>,
}

/// Why no chunk was removed, or it is not known.
#[derive(Clone, Debug, thiserror::Error)]
pub enum PurgeError {
    /// It does not run, is between incarnations, or ended over it.
    #[error("dispatch is not running")]
    NotRunning,
    #[error(transparent)]
    Store(#[from] KvError),
}

/// Cheap to clone; survives restarts.
#[derive(Clone)]
pub struct DispatchHandle {
    slot: Slot<DispatchMsg>,
    pub(super) bell: Doorbell<DispatchMsg>,
    pub(super) snapshot: Arc<watch::Sender<DispatchSnapshot>>,
}

impl Default for DispatchHandle {
    fn default() -> Self {
        let slot = Slot::default();
        Self {
            bell: Doorbell::new(&slot, || DispatchMsg::Wake),
            slot,
            snapshot: Arc::new(watch::channel(DispatchSnapshot::default()).0),
        }
    }
}

impl DispatchHandle {
    pub fn slot(&self) -> &Slot<DispatchMsg> {
        &self.slot
    }

    /// There may be rows to claim. Costs nothing while dispatch has not looked yet, or does not run.
    pub fn wake(&self) {
        self.bell.ring();
    }

    /// Removes a chunk of a tenant's rows: [`PurgeChunk`] says where to go on.
    ///
    /// # Errors
    /// The chunk may have been removed all the same; asked for again, it removes what is left of it.
    pub async fn purge(&self, step: PurgeStep) -> Result<PurgeChunk, PurgeError> {
        let dispatch = self.slot.get().ok_or(PurgeError::NotRunning)?;
        match dispatch.call(|reply| DispatchMsg::Purge(step, reply), None).await {
            Ok(CallResult::Success(purged)) => Ok(purged?),
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => {
                Err(PurgeError::NotRunning)
            }
        }
    }

    /// Never waits for dispatch. Without one running, as it was last.
    pub fn snapshot(&self) -> DispatchSnapshot {
        *self.snapshot.borrow()
    }
}
