//! Rows of one source: how many there are, and making them due now that wait for a retry.
//!
//! Rows are filed by tenant, so both go through everything a tenant has, a page at a time.

use std::collections::BTreeMap;
use std::ops::Range;

use super::reclaim::{after, scan};
use super::writing::Writing;
use crate::model::cf::Cf;
use crate::model::delivery::DeliveryRow;
use crate::model::envelope::Envelope;
use crate::model::ids::TenantOrd;
use crate::model::keys::{ClaimedKey, DeliveryKey, DueKey, DueValue, HookKey, LaneMemberKey};
use crate::model::ops::Ops;
use crate::ports::KvError;
use crate::store::StoreHandle;

/// Rows looked at in one batch.
const CHUNK: usize = 512;

/// One chunk that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PullStep {
    pub tenant: TenantOrd,
    pub source_id: String,
    /// What the chunk before answered.
    pub from: Option<Vec<u8>>,
}

/// Rows of a source that are not finished.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waiting {
    /// Waiting for an attempt, be it the first or another, in a lane or not.
    pub pending: u64,
    /// Claimed by dispatch.
    pub inflight: u64,
}

/// Counts what a tenant's queue holds of a source. Takes as long as reading that queue takes.
///
/// # Errors
/// The store's.
pub async fn waiting_of(
    store: &StoreHandle,
    tenant: TenantOrd,
    source_id: &str,
) -> Result<Waiting, KvError> {
    let due = |key: &[u8]| DueKey::decode(key).map(|key| key.row());
    let member = |key: &[u8]| LaneMemberKey::decode(key).map(|key| key.row());
    let claimed = |key: &[u8]| ClaimedKey::decode(key).map(|key| key.row());
    Ok(Waiting {
        pending: count(store, DueKey::of_tenant(tenant), source_id, due).await?
            + count(store, LaneMemberKey::of_tenant(tenant), source_id, member).await?,
        inflight: count(store, ClaimedKey::of_tenant(tenant), source_id, claimed).await?,
    })
}

async fn count(
    store: &StoreHandle,
    range: Range<Vec<u8>>,
    source_id: &str,
    row: impl Fn(&[u8]) -> Option<DeliveryKey>,
) -> Result<u64, KvError> {
    let (mut range, mut counted) = (range, 0_u64);
    loop {
        let page = store.scan(scan(Cf::Index, range.clone(), CHUNK)).await?;
        let rows: Vec<_> = page.pairs.iter().filter_map(|(key, _)| row(key)).collect();
        let ids = source_ids(store, &rows).await?;
        let own = ids.values().filter(|id| id.as_str() == source_id).count();
        counted = counted.saturating_add(u64::try_from(own).unwrap_or(u64::MAX));
        match page.pairs.last() {
            Some((last, _)) if page.more => range.start = after(last),
            Some(_) | None => return Ok(counted),
        }
    }
}

/// Whose the rows are, as far as that can be read.
async fn source_ids(
    store: &StoreHandle,
    rows: &[DeliveryKey],
) -> Result<BTreeMap<DeliveryKey, String>, KvError> {
    let keys = rows.iter().map(|row| row.encode().to_vec()).collect();
    let mut ids = BTreeMap::new();
    for (row, value) in rows.iter().zip(store.multi_get(Cf::Deliveries, keys).await?) {
        let Some(value) = value else { continue };
        let said = DeliveryRow::decode(&value).ok().and_then(|row| row.source_id);
        let id = match said {
            Some(id) => Some(id),
            // An old row, or one that cannot be read: its hook knows.
            None => {
                let hook = store.get(Cf::Hooks, &HookKey(row.seq).encode())?;
                let envelope = hook.and_then(|hook| Envelope::decode(&hook).ok());
                envelope.map(|envelope| envelope.source_id)
            }
        };
        ids.extend(id.map(|id| (*row, id)));
    }
    Ok(ids)
}

/// One chunk. Answers where the next one begins, and whether a row is due now.
pub(super) async fn pull(
    writing: &mut Writing,
    step: &PullStep,
    now_ms: u64,
) -> Result<(Option<Vec<u8>>, bool), KvError> {
    let mut range = DueKey::of_tenant(step.tenant);
    if let Some(from) = &step.from {
        range.start = range.start.max(from.clone());
    }
    let page = writing.store().scan(scan(Cf::Index, range, CHUNK)).await?;
    let later = page.pairs.iter().filter_map(|(key, value)| {
        let (key, value) = (DueKey::decode(key)?, DueValue::decode(value)?);
        (key.at_ms > now_ms).then_some((key, value))
    });
    let later: Vec<(DueKey, DueValue)> = later.collect();
    let rows: Vec<DeliveryKey> = later.iter().map(|(key, _)| key.row()).collect();
    let ids = source_ids(writing.store(), &rows).await?;
    let mut ops = Ops::default();
    for (key, value) in &later {
        if ids.get(&key.row()) == Some(&step.source_id) {
            ops.move_due(key, *value, now_ms);
        }
    }
    let moves = !ops.is_empty();
    if moves {
        writing.apply(ops.finish()).await?;
    }
    let next = page.pairs.last().filter(|_| page.more).map(|(last, _)| after(last));
    Ok((next, moves))
}
