//! Sources of the API: what they are right now, and changes. The front says them in JSON.

use std::sync::Arc;

use super::{Admin, AdminError};
use crate::dispatch::{PullStep, Waiting, waiting_of};
use crate::edge::{SourceChange, SourceStoreError};
use crate::model::ids::{DEFAULT_TENANT, TenantOrd};
use crate::model::stored_source::SourceName;
use crate::sources::{SourceSet, StoredSource};

/// What a deletion does with rows of the source that are not finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deliveries {
    /// There must be none.
    Keep,
    /// They end in the dead letters.
    DeadLetter,
}

/// Why a source was not changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error(transparent)]
    Store(#[from] SourceStoreError),
    /// Rows of it are not finished.
    #[error("source_has_deliveries")]
    HasDeliveries { pending: u64, inflight: u64 },
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl Admin {
    /// The sources as they are now.
    ///
    /// # Errors
    /// Their rows have not been read yet.
    pub fn sources(&self) -> Result<Arc<SourceSet>, AdminError> {
        let set = self.handles.sources.table().now();
        if set.is_loading {
            let why = "the sources of the API have not been read yet";
            return Err(AdminError::StoreUnavailable(why.to_owned()));
        }
        Ok(set)
    }

    /// Makes a change that is no deletion.
    ///
    /// # Errors
    /// The source store's.
    pub async fn change_source(
        &self,
        change: SourceChange,
    ) -> Result<Option<Arc<StoredSource>>, SourceError> {
        Ok(self.handles.sources.change(change).await?)
    }

    /// Deletes a source. With [`Deliveries::DeadLetter`] its rows that wait are due at once and then find their source
    /// gone; claimed ones settle by themselves. Whatever is interrupted there ends the same way when it is due.
    ///
    /// # Errors
    /// `source_has_deliveries` where there are some and they are to be kept; the source is there then. After
    /// `dispatch_unavailable` from the rows, it is gone.
    pub async fn delete_source(
        &self,
        name: SourceName,
        expected: Option<u64>,
        deliveries: Deliveries,
    ) -> Result<(), SourceError> {
        let set = self.sources()?;
        if !set.stored.contains_key(&name) && !set.unreadable.contains_key(&name) {
            let read_only = !self.handles.sources.takes_changes();
            let error =
                if read_only { SourceStoreError::ReadOnly } else { SourceStoreError::NotFound };
            return Err(error.into());
        }
        let source_id = name.source_id();
        let tenants = self.tenants_of(&name).await?;
        match deliveries {
            Deliveries::Keep => {
                let mut all = Waiting::default();
                for tenant in &tenants {
                    let some = waiting_of(&self.handles.store, *tenant, &source_id).await;
                    let some = some.map_err(AdminError::from)?;
                    all.pending += some.pending;
                    all.inflight += some.inflight;
                }
                let Waiting { pending, inflight } = all;
                if pending + inflight > 0 {
                    return Err(SourceError::HasDeliveries { pending, inflight });
                }
            }
            Deliveries::DeadLetter => {
                self.must_dispatch()?;
                if !self.handles.dispatch.slot().is_running() {
                    return Err(AdminError::DispatchUnavailable.into());
                }
            }
        }
        self.handles.sources.change(SourceChange::Delete { name, expected }).await?;
        if deliveries == Deliveries::DeadLetter {
            for tenant in tenants {
                self.pull(tenant, &source_id).await?;
            }
        }
        Ok(())
    }

    async fn pull(&self, tenant: TenantOrd, source_id: &str) -> Result<(), AdminError> {
        let mut step = PullStep { tenant, source_id: source_id.to_owned(), from: None };
        loop {
            step.from = self.handles.dispatch.pull(step.clone()).await?;
            if step.from.is_none() {
                return Ok(());
            }
        }
    }

    /// Tenants whose queues can hold rows of a source: its own, and for one that is shared every one.
    async fn tenants_of(&self, name: &SourceName) -> Result<Vec<TenantOrd>, AdminError> {
        if name.tenant == DEFAULT_TENANT {
            return self.tenants_with_rows().await;
        }
        match self.tenant(&name.tenant) {
            Ok(tenant) => Ok(vec![tenant]),
            Err(AdminError::TenantNotFound(_)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }
}
