//! `POST /v1/tenants/{tenant}/purge`: rows of a tenant that are to be gone.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::{Admin, AdminError};
use crate::dispatch::{PurgeCursor, PurgeError, PurgeStep, Purgeable, Purged};

/// Rows after which a call answers, so that none takes long: whoever asks goes on with the cursor.
const CALL_ROWS: u64 = 10_000;

/// Chunks after which it answers, if there is little to remove among much that stays.
const CALL_CHUNKS: usize = 64;

impl From<PurgeError> for AdminError {
    fn from(error: PurgeError) -> Self {
        match error {
            PurgeError::NotRunning => Self::DispatchUnavailable,
            PurgeError::Store(error) => error.into(),
        }
    }
}

impl Admin {
    /// Removes rows of a tenant that are in one of `states`, some chunks at a time: `next_cursor` says where the next
    /// call goes on, and is null once none of those is left that were there when the purge began. Without a cursor it
    /// begins again, which is always right. What an answer says was removed is gone for good: it waits for an fsync.
    ///
    /// # Errors
    /// `tenant_not_found`, `role_not_enabled`; `invalid_filter` for a cursor of a purge of other states; and where
    /// `dispatch_unavailable` or the store comes in between, what was removed until then is gone, or will be.
    pub async fn purge(
        &self,
        tenant_id: &str,
        states: &BTreeSet<Purgeable>,
        cursor: Option<PurgeCursor>,
    ) -> Result<Value, AdminError> {
        self.must_dispatch()?;
        let tenant = self.tenant(tenant_id)?;
        if states.is_empty() {
            return Err(AdminError::InvalidFilter("state"));
        }
        if cursor.as_ref().is_some_and(|cursor| !states.contains(&cursor.state())) {
            return Err(AdminError::InvalidFilter("cursor"));
        }
        let mut step = PurgeStep { tenant, states: states.clone(), cursor };
        let mut purged = Purged::default();
        for _ in 0..CALL_CHUNKS {
            let chunk = self.handles.dispatch.purge(step.clone()).await?;
            purged.add(&chunk.purged);
            step.cursor = chunk.next;
            if step.cursor.is_none() || purged.total() >= CALL_ROWS {
                break;
            }
        }
        if purged.total() > 0 {
            self.handles.store.sync().await?;
        }
        let of_each: Map<String, Value> = states
            .iter()
            .map(|state| (state.as_str().to_owned(), json!(purged.of(*state))))
            .collect();
        Ok(json!({
            "tenant_id": tenant_id,
            "purged": of_each,
            "left": self.counters(tenant).await?,
            "next_cursor": step.cursor.map(|cursor| cursor.to_string()),
        }))
    }
}
