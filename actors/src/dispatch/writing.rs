//! Dispatch's writes, and what a failed one leaves open.
//!
//! A batch whose write failed may have landed, or may show up once the store is opened again. Written a second time it
//! would count twice. So after a failure nothing more is written until the store has been reopened and shown what it
//! holds.

use crate::model::batch::Batch;
use crate::model::failure::FailureClass;
use crate::ports::{KvError, Lane};
use crate::store::StoreHandle;

/// What is known of the writes so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// What is in memory is what the store holds.
    Settled,
    /// A predecessor may have left claims.
    Start,
    /// A write failed in this generation of the store.
    FailedIn(u64),
}

pub(super) struct Writing {
    store: StoreHandle,
    known: Known,
}

impl Writing {
    pub(super) fn new(store: StoreHandle) -> Self {
        Self { store, known: Known::Start }
    }

    pub(super) fn store(&self) -> &StoreHandle {
        &self.store
    }

    /// Applies a batch, without an fsync: what a power cut undoes is done again.
    ///
    /// # Errors
    /// After `not_running` from a closed store nothing was written. After any other error it is open, and stays so until
    /// [`Writing::settled`].
    pub(super) async fn apply(&mut self, batch: Batch) -> Result<(), KvError> {
        if batch.is_empty() {
            return Ok(());
        }
        // Held over the write, so that no reopen falls between it and the number of its generation.
        let lease = self.store.lease()?;
        let applied = self.store.apply(batch, Lane::Background).await;
        if applied.is_err() {
            self.known = Known::FailedIn(lease.generation());
        }
        applied
    }

    /// Whether memory and store are known to agree.
    pub(super) fn is_settled(&self) -> bool {
        self.known == Known::Settled
    }

    /// Whether the store shows what became of a failed write.
    pub(super) fn can_settle(&self) -> bool {
        let state = self.store.state();
        let reopened = match self.known {
            Known::Settled | Known::Start => true,
            Known::FailedIn(generation) => state.generation > generation,
        };
        reopened && state.open && state.failing.is_none()
    }

    /// Memory and store have been compared, and no write has failed since.
    pub(super) fn settled(&mut self) {
        self.known = Known::Settled;
    }
}

/// A write has failed, and the store has not been opened again since.
pub(super) fn not_settled() -> KvError {
    KvError {
        class: FailureClass::NotRunning,
        op: "apply",
        detail: "a write failed, and the store has yet to show what became of it".to_owned(),
    }
}
