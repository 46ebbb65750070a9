//! `ctl recount`: every counter against the rows it counts.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Admin, AdminError};
use crate::edge::PenSize;
use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::ids::TenantOrd;
use crate::model::invariants::Miscount;
use crate::model::keys::TenantKey;
use crate::store::Recounted;

/// Miscounts that are told one by one.
const TOLD: usize = 1_000;

impl Admin {
    /// Counts all rows as they are at one moment, and with `repair` makes right what was wrong.
    ///
    /// # Errors
    /// `store_unavailable`. Of a repair it is then not known whether it was made; another count tells.
    pub async fn recount(&self, repair: bool) -> Result<Value, AdminError> {
        let report = self.handles.recount.recount(repair).await?;
        let mut names = BTreeMap::new();
        for tenant in told(&report.counted).map(|wrong| wrong.key.tenant) {
            if let Some(name) = self.handles.store.get(Cf::Tenants, &TenantKey(tenant).encode())? {
                names.insert(tenant, String::from_utf8_lossy(&name).into_owned());
            }
        }
        let mut told = recounted(&report.counted, report.repaired, &names);
        let took_ms = u64::try_from(report.took.as_millis()).unwrap_or(u64::MAX);
        if let Some(told) = told.as_object_mut() {
            told.insert("took_ms".to_owned(), json!(took_ms));
            told.insert("quarantine".to_owned(), self.recounted_pen().await?);
        }
        Ok(told)
    }
}

impl Admin {
    /// What the pen was taken to hold, and what its rows say; null on a node that holds nothing. It is right afterwards.
    async fn recounted_pen(&self) -> Result<Value, AdminError> {
        if !self.settings.roles.edge {
            return Ok(Value::Null);
        }
        let (before, counted) = self.handles.quarantine.recount().await?;
        let told = |size: PenSize| json!({"entries": size.entries, "bytes": size.bytes});
        Ok(json!({"stored": told(before), "recounted": told(counted)}))
    }
}

fn told(counted: &Recounted) -> impl Iterator<Item = &Miscount> {
    counted.wrong.iter().take(TOLD)
}

/// A count as JSON: at most so many of the counters that were wrong, and how many there were in all.
pub fn recounted(
    counted: &Recounted,
    repaired: bool,
    names: &BTreeMap<TenantOrd, String>,
) -> Value {
    let wrong = told(counted).map(|Miscount { key, stored, recounted }| {
        // The node's own total is of no tenant.
        json!({
            "tenant_id": names.get(&key.tenant),
            "ordinal": key.tenant.0,
            "field": key.field.as_str(),
            "stored": stored.map(counters::clamped),
            "recounted": recounted,
        })
    });
    json!({
        "rows": counted.rows,
        "miscounts": wrong.collect::<Vec<_>>(),
        "wrong_counters": counted.wrong.len(),
        "repaired": repaired,
    })
}
