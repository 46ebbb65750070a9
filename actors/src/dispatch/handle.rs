//! How others reach dispatch.

use std::sync::Arc;

use ractor::rpc::CallResult;
use tokio::sync::watch;

use super::{DispatchMsg, PullStep, PurgeChunk, PurgeStep};
use crate::model::ids::TenantOrd;
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

/// Tenants and how many rows of each are claimed and not finished, those with the most first.
pub type TenantsInflight = Arc<[(TenantOrd, usize)]>;

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
    pub(super) tenants: Arc<watch::Sender<TenantsInflight>>,
}

impl Default for DispatchHandle {
    fn default() -> Self {
        let slot = Slot::default();
        Self {
            bell: Doorbell::new(&slot, || DispatchMsg::Wake),
            slot,
            snapshot: Arc::new(watch::channel(DispatchSnapshot::default()).0),
            tenants: Arc::new(watch::channel(TenantsInflight::default()).0),
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

    /// As of a second ago, and of the 32 tenants that hold the most: there can be any number.
    pub fn tenants_inflight(&self) -> TenantsInflight {
        Arc::clone(&self.tenants.borrow())
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

    /// Makes a chunk of a source's rows due now; answers where the next begins.
    ///
    /// # Errors
    /// They may be due now all the same.
    pub async fn pull(&self, step: PullStep) -> Result<Option<Vec<u8>>, PurgeError> {
        let dispatch = self.slot.get().ok_or(PurgeError::NotRunning)?;
        match dispatch.call(|reply| DispatchMsg::Pull(step, reply), None).await {
            Ok(CallResult::Success(next)) => Ok(next?),
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
