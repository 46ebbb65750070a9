//! `GET /v1/dlq`: the dead letters, newest first, never with a body.

use serde_json::{Value, json};

use super::{Admin, AdminError};
use crate::dispatch::dlq::{DeadCursor, DeadEntry, DeadFilter, dead};
use crate::model::reason::ReasonClass;

impl Admin {
    /// At most `limit` of those the filter takes, behind `after`, and how many there are in all, or of the tenant that is
    /// asked for: O(1), from the counters. A page that says where the next one begins can hold fewer, or none.
    ///
    /// # Errors
    /// `role_not_enabled` on a node that does not dispatch: an empty list would look like good news.
    pub async fn dlq(
        &self,
        filter: &DeadFilter,
        after: Option<DeadCursor>,
        limit: usize,
    ) -> Result<Value, AdminError> {
        self.must_dispatch()?;
        let dead = dead(&self.handles.store, filter, after, limit).await?;
        let entries: Vec<_> = dead.entries.iter().map(entry).collect();
        let next = dead.next.map(|next| next.to_string());
        Ok(json!({"total": dead.total, "entries": entries, "next_cursor": next}))
    }

    pub(super) fn must_dispatch(&self) -> Result<(), AdminError> {
        let dispatches = self.settings.roles.dispatch;
        dispatches.then_some(()).ok_or(AdminError::RoleNotEnabled("dispatch"))
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
        "reason_class": ReasonClass::of(&dead.reason).as_str(),
        "reason": dead.reason,
    })
}
