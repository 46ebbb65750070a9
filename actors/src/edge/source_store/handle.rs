//! How others read and change the sources.

use std::sync::Arc;

use ractor::rpc::CallResult;

use super::SourceStoreMsg;
use crate::model::source::SourceSpec;
use crate::model::stored_source::SourceName;
use crate::ports::KvError;
use crate::sources::{SourceTable, StoredSource};
use crate::supervision::Slot;

/// One change that is asked for. `expected` is the revision that whoever asks has seen.
#[derive(Debug)]
pub enum SourceChange {
    Create { name: SourceName, spec: Box<SourceSpec> },
    Replace { name: SourceName, spec: Box<SourceSpec>, expected: Option<u64> },
    Delete { name: SourceName, expected: Option<u64> },
}

/// Why nothing was changed, or it is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceStoreError {
    #[error("source_store_read_only")]
    ReadOnly,
    #[error("source_exists")]
    Exists,
    #[error("source_not_found")]
    NotFound,
    /// It was changed since.
    #[error("revision_mismatch")]
    RevisionMismatch { revision: u64 },
    #[error("too_many_sources")]
    TooMany { max_sources: usize },
    /// Its sinks or its verifier cannot be built.
    #[error("invalid_source")]
    Invalid(String),
    /// Asked for again, it is seen whether it was made.
    #[error("store_unavailable")]
    Unavailable(String),
}

impl From<KvError> for SourceStoreError {
    fn from(error: KvError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Cheap to clone; survives restarts.
#[derive(Clone)]
pub struct SourceStoreHandle {
    slot: Slot<SourceStoreMsg>,
    table: SourceTable,
    takes_changes: bool,
}

impl SourceStoreHandle {
    pub fn new(table: SourceTable, takes_changes: bool) -> Self {
        Self { slot: Slot::default(), table, takes_changes }
    }

    pub fn slot(&self) -> &Slot<SourceStoreMsg> {
        &self.slot
    }

    /// What everybody reads.
    pub fn table(&self) -> &SourceTable {
        &self.table
    }

    /// Whether there are sources besides those of the config.
    pub fn takes_changes(&self) -> bool {
        self.takes_changes
    }

    /// Durable once it is answered, and seen by every reader. Answers the source as it is now, or as it was before it
    /// was deleted; `None` where that could not be read.
    ///
    /// # Errors
    /// After [`SourceStoreError::Unavailable`] it may have been made.
    pub async fn change(
        &self,
        change: SourceChange,
    ) -> Result<Option<Arc<StoredSource>>, SourceStoreError> {
        if !self.takes_changes {
            return Err(SourceStoreError::ReadOnly);
        }
        let ended = || SourceStoreError::Unavailable("the source store is not running".to_owned());
        let store = self.slot.get().ok_or_else(ended)?;
        let change = Box::new(change);
        match store.call(|reply| SourceStoreMsg::Change(change, reply), None).await {
            Ok(CallResult::Success(changed)) => changed,
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => Err(ended()),
        }
    }
}
