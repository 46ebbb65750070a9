//! `GET` and `DELETE /v1/quarantine`: what is held, and what is to be gone.

use serde_json::{Value, json};

use super::{Admin, AdminError};
use crate::model::cf::Cf;
use crate::model::ids::DEFAULT_TENANT;
use crate::model::keys::{QuarantineKey, QuarantinePart, is_sentinel};
use crate::model::quarantine::{HeldFilter, StoredSummary};
use crate::ports::{Direction, Event, QuarantineDeletion, Scan};

impl Admin {
    /// The newest held hooks first, without their bodies.
    ///
    /// # Errors
    /// `role_not_enabled`; or the store cannot be read.
    pub async fn quarantine(&self, limit: usize) -> Result<Value, AdminError> {
        self.must_be_edge()?;
        let scan = Scan {
            cf: Cf::Quarantine,
            range: QuarantineKey::between(QuarantinePart::Summary, 0, u64::MAX),
            direction: Direction::Reverse,
            // And the two rows that a store of another node may have at the ends.
            max_rows: limit.saturating_add(2),
            max_bytes: usize::MAX,
        };
        let page = self.handles.store.scan(scan).await?;
        let real =
            page.pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Quarantine, key, value));
        let entries: Vec<Value> = real.take(limit).map(|(key, value)| entry(key, value)).collect();
        Ok(json!({"entries": entries}))
    }

    /// Deletes held hooks, the oldest first, and answers how many. What it says is gone is gone for good.
    ///
    /// # Errors
    /// `role_not_enabled`; or the store's: what was deleted until then is gone, or will be.
    pub async fn purge_quarantine(
        &self,
        filter: &HeldFilter,
        limit: usize,
    ) -> Result<Value, AdminError> {
        self.must_be_edge()?;
        let gone = self.handles.quarantine.purge(filter, limit).await?;
        if gone.entries > 0 {
            let reason = QuarantineDeletion::Purge;
            self.handles
                .ingest
                .events
                .emit(&Event::QuarantineDeleted { reason, entries: gone.entries });
        }
        Ok(json!({"deleted": gone.entries, "bytes": gone.bytes}))
    }

    /// # Errors
    /// The node takes no hooks in.
    pub(super) fn must_be_edge(&self) -> Result<(), AdminError> {
        if self.settings.roles.edge { Ok(()) } else { Err(AdminError::RoleNotEnabled("edge")) }
    }
}

/// What cannot be read is listed by its key: it takes room too.
fn entry(key: &[u8], value: &[u8]) -> Value {
    match StoredSummary::decode(value) {
        Ok(StoredSummary { id, source_id, tenant_id, received_at_ms, reason, size }) => json!({
            "id": id,
            "source_id": source_id,
            "tenant_id": tenant_id.as_deref().unwrap_or(DEFAULT_TENANT),
            "received_at": received_at_ms,
            "reason": reason,
            "size": size,
        }),
        Err(error) => {
            let key = QuarantineKey::decode(key);
            let id = key.map(|key| String::from_utf8_lossy(key.id).into_owned());
            json!({
                "id": id,
                "source_id": null,
                "tenant_id": null,
                "received_at": key.map(|key| key.received_at_ms),
                "reason": format!("unreadable: {error}"),
                "size": value.len(),
            })
        }
    }
}
