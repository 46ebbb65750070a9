//! How others reach dispatch.

use super::DispatchMsg;
use crate::supervision::{Doorbell, Slot};

/// Cheap to clone; survives restarts.
#[derive(Clone)]
pub struct DispatchHandle {
    slot: Slot<DispatchMsg>,
    pub(super) bell: Doorbell<DispatchMsg>,
}

impl Default for DispatchHandle {
    fn default() -> Self {
        let slot = Slot::default();
        Self { bell: Doorbell::new(&slot, || DispatchMsg::Wake), slot }
    }
}

impl DispatchHandle {
    pub fn slot(&self) -> &Slot<DispatchMsg> {
        &self.slot
    }

    pub fn snapshot(&self) -> Snapshot { Snapshot::default() }
    /// There may be rows to claim. Costs nothing while dispatch has not looked yet, or does not run.
    pub fn wake(&self) {
        self.bell.ring();
    }
}

#[derive(Clone, Debug, Default)]
pub struct Snapshot { pub running: usize, pub claimed: usize, pub claimed_bytes: u64, pub runnable: usize, pub breakers_open: usize, pub oldest_due_at_ms: Option<u64> }
