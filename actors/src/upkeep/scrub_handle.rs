//! How others see the scrub, and ask for one.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::scrubber::ScrubberMsg;
use crate::model::cf::Cf;
use crate::supervision::Slot;

/// Damage in one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub family: Cf,
    /// As the engine names it; empty where it does not say.
    pub file: String,
    pub detail: String,
}

/// A round that came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastScrub {
    pub took: Duration,
    pub rows: u64,
    pub bytes: u64,
    pub findings: usize,
}

/// Where the scrub stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubSnapshot {
    /// The family that is being read; `None` between rounds.
    pub reading: Option<Cf>,
    /// Rows and bytes, of keys and values, that this round has read.
    pub rows: u64,
    pub bytes: u64,
    /// What the database keeps on the disk, as of the start of the round: values are smaller there than when read.
    pub disk_bytes: u64,
    /// Of this round, or else of the last one; a file once.
    pub findings: Vec<Finding>,
    pub last: Option<LastScrub>,
}

/// Cheap to clone; survives restarts.
#[derive(Clone)]
pub struct ScrubHandle {
    slot: Slot<ScrubberMsg>,
    pub(super) snapshot: Arc<watch::Sender<ScrubSnapshot>>,
}

impl Default for ScrubHandle {
    fn default() -> Self {
        let snapshot = Arc::new(watch::channel(ScrubSnapshot::default()).0);
        Self { slot: Slot::default(), snapshot }
    }
}

impl ScrubHandle {
    pub fn slot(&self) -> &Slot<ScrubberMsg> {
        &self.slot
    }

    /// Never waits for the scrub.
    pub fn snapshot(&self) -> ScrubSnapshot {
        self.snapshot.borrow().clone()
    }

    /// Begins a round, unless one is under way.
    pub fn begin(&self) {
        self.slot.cast(ScrubberMsg::Begin);
    }
}
