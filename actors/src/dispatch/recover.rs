//! Puts right what a predecessor, or a write that failed, may have left behind.

use super::held::Held;
use super::lane_reads::{heads_of, lane_of_head};
use super::reclaim::{after, scan};
use super::writing::Writing;
use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::counters::Field;
use crate::model::delivery::{DeliveryRow, DeliveryRowError};
use crate::model::ids::TenantOrd;
use crate::model::keys::{
    ActiveKey, ClaimedKey, CounterKey, DueKey, DueKind, DueValue, LaneKey, SizeValue, TenantKey,
    is_sentinel,
};
use crate::model::ops::{Claimed, Ops};
use crate::ports::KvError;
use crate::store::StoreHandle;

/// Rows or tenants looked at in one batch.
const CHUNK: usize = 512;

/// Every claim that is not `held` here is nobody's: its row is due now. A claim without its row is dropped; a row
/// without its hook is found when it is claimed. Durable when this returns. Answers how many rows are due again.
pub(super) async fn recover_claims(
    writing: &mut Writing,
    held: &Held,
    now_ms: u64,
) -> Result<usize, KvError> {
    let mut range = ClaimedKey::all();
    let mut recovered = 0;
    loop {
        let page = writing.store().scan(scan(Cf::Index, range.clone(), CHUNK)).await?;
        let orphans: Vec<Claimed> = page
            .pairs
            .iter()
            .filter_map(|(key, value)| {
                Some(Claimed::new(ClaimedKey::decode(key)?, SizeValue::decode(value)?))
            })
            .filter(|claimed| !held.contains(&claimed.key()))
            .collect();
        recovered += recover_chunk(writing, &orphans, now_ms).await?;
        match page.pairs.last() {
            Some((last, _)) if page.more => range.start = after(last),
            Some(_) | None => break,
        }
    }
    if recovered > 0 {
        writing.store().sync().await?;
    }
    Ok(recovered)
}

async fn recover_chunk(
    writing: &mut Writing,
    orphans: &[Claimed],
    now_ms: u64,
) -> Result<usize, KvError> {
    if orphans.is_empty() {
        return Ok(0);
    }
    let keys = orphans.iter().map(|claimed| claimed.row().encode().to_vec()).collect();
    let rows = writing.store().multi_get(Cf::Deliveries, keys).await?;
    let rows: Vec<_> = rows.into_iter().map(|row| Some(DeliveryRow::decode(&row?))).collect();
    let heads = heads_among(writing.store(), orphans, &rows).await?;
    let mut ops = Ops::default();
    for ((claimed, row), lane) in orphans.iter().zip(rows).zip(heads) {
        match (row, lane) {
            (Some(row), lane) => {
                // The next claim of a row that cannot be read gives it up with the reason.
                let attempts = row.map_or(0, |row| row.attempts);
                ops.recover(claimed, now_ms, DueKind::recovered(lane.is_some(), attempts));
            }
            (None, lane) => {
                ops.drop_claim(claimed);
                if let Some(lane) = lane {
                    ops.end_lane(lane);
                    ops.mark_lane(lane);
                }
            }
        }
    }
    writing.apply(ops.finish()).await?;
    Ok(orphans.len())
}

/// The lane of each row that is the head of one.
async fn heads_among(
    store: &StoreHandle,
    claims: &[Claimed],
    rows: &[Option<Result<DeliveryRow, DeliveryRowError>>],
) -> Result<Vec<Option<LaneKey>>, KvError> {
    let mut lanes = Vec::with_capacity(claims.len());
    for (claimed, row) in claims.iter().zip(rows) {
        lanes.push(match row {
            Some(Ok(row)) => row.lane.map(|lane| LaneKey { tenant: claimed.tenant, lane }),
            Some(Err(_)) | None => lane_of_head(store, claimed.key()).await?,
        });
    }
    let named: Vec<LaneKey> = lanes.iter().flatten().copied().collect();
    let mut heads = heads_of(store, &named).await?.into_iter();
    for (lane, claimed) in lanes.iter_mut().zip(claims) {
        *lane = lane.filter(|_| heads.next().flatten() == Some(claimed.row()));
    }
    Ok(lanes)
}

/// Makes every row due now that is due after `horizon_ms`, later than any wait could have made it: it was stamped by a
/// clock that has been set back since, and would wait until the date has come round again. Answers how many.
pub(super) async fn pull_back(
    writing: &mut Writing,
    now_ms: u64,
    horizon_ms: u64,
) -> Result<usize, KvError> {
    let mut range = ActiveKey::after(horizon_ms / 1_000);
    let mut pulled = 0;
    loop {
        let page = writing.store().scan(scan(Cf::Index, range.clone(), CHUNK)).await?;
        for marker in page.pairs.iter().filter_map(|(key, _)| ActiveKey::decode(key)) {
            pulled += pull_second(writing, marker, now_ms).await?;
        }
        match page.pairs.last() {
            Some((last, _)) if page.more => range.start = after(last),
            Some(_) | None => return Ok(pulled),
        }
    }
}

/// The rows of one marker, and then the marker: only dispatch makes rows due later than now, so none can slip in.
async fn pull_second(
    writing: &mut Writing,
    marker: ActiveKey,
    now_ms: u64,
) -> Result<usize, KvError> {
    let from_ms = marker.second.saturating_mul(1_000);
    let mut range = DueKey::due_between(marker.tenant, from_ms, from_ms.saturating_add(999));
    let mut pulled = 0;
    loop {
        let page = writing.store().scan(scan(Cf::Index, range.clone(), CHUNK)).await?;
        let mut ops = Ops::default();
        for (key, value) in &page.pairs {
            if let (Some(key), Some(value)) = (DueKey::decode(key), DueValue::decode(value)) {
                ops.move_due(&key, value, now_ms);
                pulled += 1;
            }
        }
        let next = page.pairs.last().filter(|_| page.more).map(|(last, _)| after(last));
        if next.is_none() {
            ops.unmark_active(marker);
        }
        writing.apply(ops.finish()).await?;
        match next {
            Some(next) => range.start = next,
            None => return Ok(pulled),
        }
    }
}

/// Gives every tenant with something due the marker of its first due row back.
///
/// A marker is removed, and then it is looked whether a commit has slipped a row in. A process that dies in between
/// would leave that row to be found by nobody.
pub(super) async fn restore_markers(writing: &mut Writing) -> Result<(), KvError> {
    let mut range = TenantKey::all();
    loop {
        let page = writing.store().scan(scan(Cf::Tenants, range.clone(), CHUNK)).await?;
        let tenants: Vec<TenantOrd> = page
            .pairs
            .iter()
            .filter(|(key, value)| !is_sentinel(Cf::Tenants, key, value))
            .filter_map(|(key, _)| TenantKey::decode(key))
            .map(|TenantKey(tenant)| tenant)
            .collect();
        let mut ops = Ops::default();
        for tenant in with_rows(writing.store(), &tenants).await? {
            restore_marker(writing.store(), tenant, &mut ops).await?;
        }
        writing.apply(ops.finish()).await?;
        match page.pairs.last() {
            Some((last, _)) if page.more => range.start = after(last),
            Some(_) | None => return Ok(()),
        }
    }
}

async fn restore_marker(
    store: &StoreHandle,
    tenant: TenantOrd,
    ops: &mut Ops,
) -> Result<(), KvError> {
    let first = store.scan(scan(Cf::Index, DueKey::of_tenant(tenant), 2)).await?;
    let mut keys = first.pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Index, key, value));
    let Some(due) = keys.next().and_then(|(key, _)| DueKey::decode(key)) else { return Ok(()) };
    if store.get(Cf::Index, &due.active().encode())?.is_none() {
        ops.mark_active(due.active());
    }
    Ok(())
}

/// Tenants whose counters say that a row waits, or cannot be read.
async fn with_rows(store: &StoreHandle, tenants: &[TenantOrd]) -> Result<Vec<TenantOrd>, KvError> {
    let mut waiting = vec![false; tenants.len()];
    for field in [Field::Pending, Field::Scheduled] {
        let key = |tenant: &TenantOrd| CounterKey { tenant: *tenant, field }.encode().to_vec();
        let counts = store.multi_get(Cf::Counters, tenants.iter().map(key).collect()).await?;
        for (waits, count) in waiting.iter_mut().zip(counts) {
            *waits |= count.is_some_and(|count| counters::read(&count) != Some(0));
        }
    }
    Ok(tenants.iter().zip(waiting).filter(|(_, waits)| *waits).map(|(tenant, _)| *tenant).collect())
}
