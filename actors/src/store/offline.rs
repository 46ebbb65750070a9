//! A store that no node has open, opened for a recount and closed again.

use std::collections::BTreeMap;

use super::boot::{self, BootError};
use super::recount::{Recounted, count, put_right, undisturbed};
use crate::model::cf::Cf;
use crate::model::ids::TenantOrd;
use crate::model::keys::TenantKey;
use crate::ports::{Engine, Kv, KvError, OpenError};

/// What a recount without a node came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineRecount {
    pub counted: Recounted,
    /// The tenants whose counters were wrong, as far as they have names.
    pub names: BTreeMap<TenantOrd, String>,
    /// They say now, durably, what their rows say.
    pub repaired: bool,
}

/// Why there is none.
#[derive(Debug, thiserror::Error)]
pub enum OfflineError {
    /// Of class `busy` where a node has the store open.
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Refused(#[from] BootError),
}

impl From<KvError> for OfflineError {
    fn from(error: KvError) -> Self {
        Self::Refused(BootError::Kv(error))
    }
}

/// Opens the store as a boot does, counts, repairs if that is wanted, and closes it. Without `repair` no row of it
/// changes.
///
/// # Errors
/// What a boot would refuse it for; a row that cannot be read; a repair of which it is not known whether it landed.
pub async fn recount_offline(
    engine: &dyn Engine,
    repair: bool,
) -> Result<OfflineRecount, OfflineError> {
    let kv = engine.open().await?;
    let done = recount(kv.as_ref(), repair).await;
    let leaves_it_wrong = done.as_ref().map_or(true, |done| !done.is_right());
    if leaves_it_wrong && !engine.last_open().closed_cleanly {
        // Without a seal that says it was closed cleanly: the next boot recounts, as it would have without this one.
        drop(kv);
    } else {
        engine.close(kv).await;
    }
    done
}

impl OfflineRecount {
    /// Whether the counters are right now.
    pub fn is_right(&self) -> bool {
        self.counted.wrong.is_empty() || self.repaired
    }
}

async fn recount(kv: &dyn Kv, repair: bool) -> Result<OfflineRecount, OfflineError> {
    boot::check(kv).await?;
    let counted = undisturbed(kv, |moment| count(moment, None, || true)).await?;
    let counted = counted.unwrap_or_default();
    let mut names = BTreeMap::new();
    for tenant in counted.wrong.iter().map(|wrong| wrong.key.tenant) {
        if let Some(name) = kv.get(Cf::Tenants, &TenantKey(tenant).encode())? {
            names.insert(tenant, String::from_utf8_lossy(&name).into_owned());
        }
    }
    let repaired = repair && !counted.wrong.is_empty();
    if repaired {
        put_right(kv, &counted.wrong).await?;
    }
    Ok(OfflineRecount { counted, names, repaired })
}
