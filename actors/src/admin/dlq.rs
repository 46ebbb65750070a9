//! `GET /v1/dlq`: the dead letters, newest first, never with a body.

use serde_json::{Value, json};

use super::{Admin, AdminError};
use crate::dispatch::dlq::{DeadEntry, DeadFilter, dead};

impl Admin {
    /// At most `limit` of those the filter takes, and how many there are in all: O(1), from the counters.
    ///
    /// # Errors
    /// `role_not_enabled` on a node that does not dispatch: an empty list would look like good news.
    pub async fn dlq(&self, filter: &DeadFilter, limit: usize) -> Result<Value, AdminError> {
        if !self.settings.roles.dispatch {
            return Err(AdminError::RoleNotEnabled("dispatch"));
        }
        let dead = dead(&self.handles.store, filter, limit).await?;
        let entries: Vec<_> = dead.entries.iter().map(entry).collect();
        Ok(json!({"total": dead.total, "entries": entries}))
    }
}

fn entry(dead: &DeadEntry) -> Value {
    let content_type = dead.content_type.as_ref().map(|value| String::from_utf8_lossy(value));
    json!({
        "id": dead.id,
        "source_id": dead.source_id,
        "tenant_id": dead.tenant_id,
        "seq": dead.seq.0,
        "received_at": dead.received_at_ms,
        "dead_lettered_at": dead.dead_lettered_at_ms,
        "size": dead.size,
        "content_type": content_type,
        "reason": dead.reason,
    })
}
