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

    /// There may be rows to claim. Costs nothing while dispatch has not looked yet, or does not run.
    pub fn wake(&self) {
        self.bell.ring();
    }
}
