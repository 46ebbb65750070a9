//! How others have the counters counted.

use std::time::Duration;

use ractor::rpc::CallResult;

use super::recounter::RecounterMsg;
use crate::model::failure::FailureClass;
use crate::ports::KvError;
use crate::store::Recounted;
use crate::supervision::Slot;

/// What a count of a running node came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecountReport {
    pub counted: Recounted,
    /// What was wrong is right now.
    pub repaired: bool,
    pub took: Duration,
}

/// Cheap to clone; survives restarts.
#[derive(Clone, Default)]
pub struct RecountHandle {
    slot: Slot<RecounterMsg>,
}

impl RecountHandle {
    pub fn slot(&self) -> &Slot<RecounterMsg> {
        &self.slot
    }

    /// Waits its turn, and then as long as it takes to read every row of the index.
    ///
    /// # Errors
    /// The store's, or `not_running` where the process ended first. With `repair` it may have been made all the same:
    /// another count tells.
    pub async fn recount(&self, repair: bool) -> Result<RecountReport, KvError> {
        let ended = || KvError {
            class: FailureClass::NotRunning,
            op: "recount",
            detail: "the recounter is between incarnations".to_owned(),
        };
        let recounter = self.slot.get().ok_or_else(ended)?;
        match recounter.call(|reply| RecounterMsg::Recount { repair, reply }, None).await {
            Ok(CallResult::Success(counted)) => counted,
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => Err(ended()),
        }
    }
}
