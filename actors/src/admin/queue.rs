//! Counters and sizes of the queue: `/v1/wal`, the gauges, and the node's totals in `status`.

use serde_json::{Value, json};

use super::{Admin, AdminError};
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{CounterKey, META_NEXT_SEQ, read_u64};
use crate::ports::{KvError, StoreStats};

impl From<KvError> for AdminError {
    fn from(error: KvError) -> Self {
        Self::StoreUnavailable(error.to_string())
    }
}

impl Admin {
    /// One of the node's counters: O(1), never a scan.
    pub fn counter(&self, field: Field) -> Result<i64, AdminError> {
        let key = CounterKey { tenant: TenantOrd::NODE, field }.encode();
        let stored = self.handles.store.get(Cf::Counters, &key)?;
        Ok(stored.as_deref().and_then(counters::read).unwrap_or(0))
    }

    pub fn next_seq(&self) -> Result<Seq, AdminError> {
        let stored = self.handles.store.get(Cf::Default, META_NEXT_SEQ)?;
        Ok(Seq(stored.as_deref().and_then(read_u64).unwrap_or(Seq::FIRST.0)))
    }

    pub async fn store_stats(&self) -> Result<StoreStats, AdminError> {
        Ok(self.handles.store.stats().await?)
    }

    /// `GET /v1/wal`; the object is empty when the store cannot be read.
    pub async fn wal(&self) -> Value {
        let wal = match (self.next_seq(), self.store_stats().await) {
            (Ok(next_seq), Ok(stats)) => json!({
                "next_seq": next_seq.0,
                "hooks": stats.hooks,
                "deliveries": stats.deliveries,
                "disk_bytes": stats.disk_bytes,
            }),
            (Err(_), _) | (_, Err(_)) => json!({}),
        };
        json!({"instance": self.settings.instance, "wal": wal})
    }
}
