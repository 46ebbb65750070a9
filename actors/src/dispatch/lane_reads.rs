//! What the store says of ordering lanes. Reads only.

use super::reclaim::{after, scan};
use crate::model::cf::Cf;
use crate::model::ids::Seq;
use crate::model::keys::{
    ClaimedKey, DeliveryKey, LaneHeadKey, LaneHeadValue, LaneKey, is_sentinel,
};
use crate::model::ops::Member;
use crate::ports::{KvError, Pair};
use crate::store::StoreHandle;

/// Heads read at a time.
const CHUNK: usize = 512;

/// Members read to find the first: one more than that, should it be no member.
const FIRST: usize = 2;

/// The first member of a lane from `floor` on, synced or not.
pub(super) async fn first_member(
    store: &StoreHandle,
    lane: LaneKey,
    floor: Seq,
) -> Result<Option<Member>, KvError> {
    let page = store.scan(scan(Cf::Index, lane.members_from(floor), FIRST)).await?;
    Ok(page.pairs.iter().find_map(|(key, value)| Member::decode(key, value)))
}

/// Keys of rows that are no sentinels.
pub(super) fn real(pairs: &[Pair]) -> impl Iterator<Item = &[u8]> {
    let real = pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Index, key, value));
    real.map(|(key, _)| key.as_slice())
}

/// The row that is the head of each lane; `None` where it is idle.
pub(super) async fn heads_of(
    store: &StoreHandle,
    lanes: &[LaneKey],
) -> Result<Vec<Option<DeliveryKey>>, KvError> {
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let keys = lanes.iter().map(|lane| lane.head().encode().to_vec()).collect();
    let heads = store.multi_get(Cf::Index, keys).await?;
    let row = |head: Option<Vec<u8>>| LaneHeadValue::decode(&head?).map(LaneHeadValue::row);
    Ok(heads.into_iter().map(row).collect())
}

/// The lane whose head a row is, for a row that does not say it: it is missing, or cannot be read.
pub(super) async fn lane_of_head(
    store: &StoreHandle,
    row: ClaimedKey,
) -> Result<Option<LaneKey>, KvError> {
    let mut range = LaneHeadKey::of_tenant(row.tenant);
    loop {
        let page = store.scan(scan(Cf::Index, range.clone(), CHUNK)).await?;
        let found = page.pairs.iter().find_map(|(key, value)| {
            let head = LaneHeadValue::decode(value)?;
            (head.row() == row.row()).then(|| LaneHeadKey::decode(key).map(LaneHeadKey::of))?
        });
        match page.pairs.last() {
            Some((last, _)) if page.more && found.is_none() => range.start = after(last),
            Some(_) | None => return Ok(found),
        }
    }
}
