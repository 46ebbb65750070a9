//! Removes rows of a tenant, when an operator asks: a chunk at a time, with other work in between.
//!
//! Dispatch does it itself, because it is what moves rows: between a scan and the batch that removes what it found,
//! nobody else can claim a row, settle one or list it as dead. A claimed row is forgotten before it is removed, so that
//! what comes of an attempt under way is of a claim that is not held any more, and is dropped; its sink may have it all
//! the same.
//!
//! A row that waits in an ordering lane is pending too. A head that goes hands its lane on, without waiting for an attempt
//! of it that is under way.
//!
//! A purge keeps no state here. It goes over the chosen states in rounds, and each chunk answers where the next begins;
//! called without that it begins again and does what is left. Only rows of hooks committed before it began go, so it
//! ends however much comes in. A row can move on to a state that the round has been over already. So another round
//! follows one that removed something, of what dispatch wrote since the purge began, unless the whole round was one
//! chunk.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::attempts::Attempts;
use super::flush::Outcomes;
use super::held::Held;
use super::lane_reads::{heads_of, lane_of_head};
use super::lanes::Lanes;
use super::purge_cursor::{PurgeCursor, Purgeable};
use super::reclaim::{Cleared, after, scan};
use super::writing::Writing;
use crate::model::cf::Cf;
use crate::model::delivery::DeliveryRow;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{
    ClaimedKey, ClearedKey, DeadByTenantKey, DeliveryKey, DueKey, DueValue, HookKey, LaneKey,
    LaneMemberKey, SizeValue,
};
use crate::model::ops::{Claimed, Member, Ops};
use crate::ports::KvError;
use crate::store::StoreHandle;

/// Rows removed in one batch.
pub(super) const CHUNK: usize = 500;

/// Pages read for one chunk: rows of younger hooks may be in the way.
const MAX_SCANS: usize = 8;

/// One chunk that is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PurgeStep {
    pub tenant: TenantOrd,
    pub states: BTreeSet<Purgeable>,
    /// What the chunk before answered; `None` begins a purge.
    pub cursor: Option<PurgeCursor>,
}

/// Rows removed, by the state they were in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    pub pending: u64,
    pub inflight: u64,
    pub dead: u64,
}

/// What one chunk did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PurgeChunk {
    pub purged: Purged,
    /// `None` once no row is left that was to go.
    pub next: Option<PurgeCursor>,
}

impl Purged {
    pub const fn of(&self, state: Purgeable) -> u64 {
        match state {
            Purgeable::Pending => self.pending,
            Purgeable::Inflight => self.inflight,
            Purgeable::Dead => self.dead,
        }
    }

    pub const fn total(&self) -> u64 {
        self.pending + self.inflight + self.dead
    }

    pub fn add(&mut self, other: &Self) {
        self.pending += other.pending;
        self.inflight += other.inflight;
        self.dead += other.dead;
    }
}

/// What dispatch holds and a purge works on.
pub(super) struct Purging<'a> {
    pub(super) writing: &'a mut Writing,
    pub(super) held: &'a mut Held,
    /// Everything that has ended must be written.
    pub(super) outcomes: &'a mut Outcomes,
    pub(super) attempts: &'a Attempts,
    pub(super) lanes: &'a mut Lanes,
    /// Rows of hooks behind it are not synced: a fence may still take them back.
    pub(super) mark: Seq,
    pub(super) now_ms: u64,
}

impl Purging<'_> {
    /// Removes one chunk.
    ///
    /// # Errors
    /// It may have landed. Claims that were forgotten for it and are still there are due again once the store is settled.
    pub(super) async fn step(&mut self, step: &PurgeStep) -> Result<PurgeChunk, KvError> {
        let Some(first) = step.states.first().copied() else { return Ok(PurgeChunk::default()) };
        let began = PurgeCursor::begin(step.tenant, first, self.mark, self.now_ms);
        let mut cursor = step.cursor.clone().unwrap_or(began);
        cursor.through = cursor.through.min(self.mark);
        // The clock may have been set back over a restart: what was due again then is not to be passed over.
        cursor.began_ms = cursor.began_ms.min(self.now_ms);
        let is_whole = cursor.is_at_start_of(step.tenant, first);
        let (chosen, left) = choose(self.writing.store(), step, &cursor).await?;
        let purged = self.remove(step.tenant, chosen).await?;
        let removed = cursor.removed || purged.total() > 0;
        let next = match left {
            Some((state, from)) => Some(PurgeCursor { removed, state, from, ..cursor }),
            None if is_whole || !removed => None,
            None => Some(cursor.next_round(step.tenant, first)),
        };
        Ok(PurgeChunk { purged, next })
    }

    async fn remove(&mut self, tenant: TenantOrd, chosen: Chosen) -> Result<Purged, KvError> {
        if chosen.len() == 0 {
            return Ok(Purged::default());
        }
        let seqs: BTreeSet<Seq> = chosen.rows().map(|row| row.seq).collect();
        let store = self.writing.store();
        let rows = Rows::read(store, &chosen).await?;
        let owed = self.outcomes.owed(store, &seqs).await?;
        let mut ops = Ops::with_capacity(CHUNK * 6, CHUNK * 160);
        let markers = chosen.remove(tenant, &rows, &mut ops);
        let mut new = Cleared::new();
        for marker in markers {
            new.entry(marker.seq).or_default().insert(marker);
        }
        let going = chosen.rows().collect();
        let standing = self.outcomes.markers_of(&seqs);
        let stay = owed.clear(&seqs, &going, &standing, new, &mut ops);
        // Before it is written: from here on nothing that comes of these claims is settled.
        let keys: BTreeSet<ClaimedKey> = chosen.claimed.iter().map(Claimed::key).collect();
        self.attempts.forget(&keys);
        chosen.claimed.iter().for_each(|claimed| self.held.remove(claimed));
        self.writing.apply(ops.finish()).await?;
        self.lanes.look_at(rows.lanes);
        self.outcomes.forget_markers(&seqs);
        self.outcomes.look_at(stay.into_values().flatten());
        Ok(chosen.counts())
    }
}

/// Rows to remove, as the index has them.
#[derive(Debug, Default)]
struct Chosen {
    due: Vec<(DueKey, DueValue)>,
    members: Vec<Member>,
    claimed: Vec<Claimed>,
    dead: Vec<DeadByTenantKey>,
}

impl Chosen {
    fn len(&self) -> usize {
        self.due.len() + self.members.len() + self.claimed.len() + self.dead.len()
    }

    fn rows(&self) -> impl Iterator<Item = DeliveryKey> {
        let due = self.due.iter().map(|(key, _)| key.row());
        let claimed = self.claimed.iter().map(Claimed::row);
        let members = self.members.iter().map(|member| member.key.row());
        due.chain(members).chain(claimed).chain(self.dead.iter().map(|key| key.dead().row()))
    }

    fn counts(&self) -> Purged {
        let count = |rows: usize| u64::try_from(rows).unwrap_or(u64::MAX);
        Purged {
            pending: count(self.due.len() + self.members.len()),
            inflight: count(self.claimed.len()),
            dead: count(self.dead.len()),
        }
    }

    /// Takes the row on if its hook is not younger than the purge. What cannot be read stays where it is: reading the
    /// whole store finds it.
    fn take(&mut self, state: Purgeable, key: &[u8], value: &[u8], through: Seq) {
        match state {
            Purgeable::Pending => {
                let row = DueKey::decode(key).zip(DueValue::decode(value));
                self.due.extend(row.filter(|(key, _)| key.seq <= through));
                let member = Member::decode(key, value);
                self.members.extend(member.filter(|member| member.key.seq <= through));
            }
            Purgeable::Inflight => {
                let row = ClaimedKey::decode(key).zip(SizeValue::decode(value));
                let row = row.filter(|(key, _)| key.seq <= through);
                self.claimed.extend(row.map(|(key, size)| Claimed::new(key, size)));
            }
            Purgeable::Dead => {
                let row = DeadByTenantKey::decode(key).filter(|key| key.seq <= through);
                self.dead.extend(row);
            }
        }
    }

    /// Writes it. An index key whose row is missing goes alone.
    fn remove(&self, tenant: TenantOrd, rows: &Rows, ops: &mut Ops) -> Vec<ClearedKey> {
        let mut markers = Vec::with_capacity(self.len());
        for (key, value) in &self.due {
            if rows.sizes.contains_key(&key.row()) {
                markers.push(ops.purge_due(key, *value));
            } else {
                ops.drop_due(key, *value);
            }
        }
        for member in &self.members {
            if rows.sizes.contains_key(&member.key.row()) {
                markers.push(ops.drop_member(*member));
            } else {
                ops.drop_member_key(*member);
            }
        }
        for claimed in &self.claimed {
            if rows.sizes.contains_key(&claimed.row()) {
                markers.push(ops.purge_claimed(claimed));
            } else {
                ops.drop_claim(claimed);
            }
        }
        for key in &self.dead {
            match rows.sizes.get(&key.dead().row()) {
                Some(size) => markers.push(ops.purge_dead(&key.dead(), tenant, *size)),
                None => ops.drop_dead(&key.dead(), tenant),
            }
        }
        for lane in &rows.lanes {
            ops.end_lane(*lane);
            ops.mark_lane(*lane);
        }
        markers
    }
}

/// The rows there are.
struct Rows {
    /// The bytes of their hooks.
    sizes: BTreeMap<DeliveryKey, u32>,
    /// Lanes whose heads are among them.
    lanes: Vec<LaneKey>,
}

impl Rows {
    async fn read(store: &StoreHandle, chosen: &Chosen) -> Result<Self, KvError> {
        let keys: Vec<DeliveryKey> = chosen.rows().collect();
        let encoded = keys.iter().map(|key| key.encode().to_vec()).collect();
        let (mut sizes, mut lanes) = (BTreeMap::new(), BTreeMap::new());
        for (key, row) in keys.into_iter().zip(store.multi_get(Cf::Deliveries, encoded).await?) {
            let Some(row) = row else { continue };
            let size = match DeliveryRow::decode(&row) {
                Ok(row) => {
                    lanes.insert(key, row.lane);
                    row.size
                }
                // A row that cannot be read counts with the bytes of its hook.
                Err(_unreadable) => {
                    let hook = store.get(Cf::Hooks, &HookKey(key.seq).encode())?;
                    hook.map_or(0, |hook| u32::try_from(hook.len()).unwrap_or(u32::MAX))
                }
            };
            sizes.insert(key, size);
        }
        Ok(Self { sizes, lanes: lanes_of(store, chosen, &lanes).await? })
    }
}

/// The lanes whose heads are chosen. `said` is what rows that can be read say.
async fn lanes_of(
    store: &StoreHandle,
    chosen: &Chosen,
    said: &BTreeMap<DeliveryKey, Option<u128>>,
) -> Result<Vec<LaneKey>, KvError> {
    let due = chosen.due.iter().filter(|(_, value)| value.kind.is_lane_head());
    let due = due.map(|(key, _)| ClaimedKey { tenant: key.tenant, seq: key.seq, sink: key.sink });
    let mut heads = Vec::new();
    for row in due.chain(chosen.claimed.iter().map(Claimed::key)) {
        let lane = match said.get(&row.row()) {
            Some(lane) => lane.map(|lane| LaneKey { tenant: row.tenant, lane }),
            None => lane_of_head(store, row).await?,
        };
        heads.extend(lane.map(|lane| (lane, row.row())));
    }
    let lanes: Vec<LaneKey> = heads.iter().map(|(lane, _)| *lane).collect();
    let named = heads_of(store, &lanes).await?;
    let both = heads.into_iter().zip(named);
    Ok(both.filter(|((_, row), named)| *named == Some(*row)).map(|((lane, _), _)| lane).collect())
}

/// Every key of a tenant's rows in a state, in the order a purge goes through them. Who waits in a lane goes before its
/// head, which would hand the lane on to it.
pub(super) fn ranges(tenant: TenantOrd, state: Purgeable) -> Vec<Range<Vec<u8>>> {
    match state {
        Purgeable::Pending => vec![LaneMemberKey::of_tenant(tenant), DueKey::of_tenant(tenant)],
        Purgeable::Inflight => vec![ClaimedKey::of_tenant(tenant)],
        Purgeable::Dead => vec![DeadByTenantKey::of_tenant(tenant)],
    }
}

/// The first of them.
pub(super) fn start(tenant: TenantOrd, state: Purgeable) -> Vec<u8> {
    ranges(tenant, state).into_iter().next().map(|range| range.start).unwrap_or_default()
}

/// What is left of the range that `from` is in, and where the next one begins.
fn range_from(
    tenant: TenantOrd,
    state: Purgeable,
    from: &[u8],
) -> (Range<Vec<u8>>, Option<Vec<u8>>) {
    let mut ranges = ranges(tenant, state);
    // The tag of the keys tells ranges apart.
    let at = ranges.iter().position(|range| range.start.first() == from.first()).unwrap_or(0);
    let mut left = ranges.drain(at..);
    let range = left.next().unwrap_or_default();
    let start = range.start.max(from.to_vec());
    (start..range.end, left.next().map(|next| next.start))
}

/// Up to a chunk of rows, and where to go on; `None` at the end of the last state.
async fn choose(
    store: &StoreHandle,
    step: &PurgeStep,
    cursor: &PurgeCursor,
) -> Result<(Chosen, Option<(Purgeable, Vec<u8>)>), KvError> {
    let mut chosen = Chosen::default();
    let (mut state, mut from) = (cursor.state, cursor.from.clone());
    for _ in 0..MAX_SCANS {
        let (range, next_range) = range_from(step.tenant, state, &from);
        from.clone_from(&range.start);
        let page = store.scan(scan(Cf::Index, range, CHUNK)).await?;
        for (key, value) in &page.pairs {
            if chosen.len() >= CHUNK {
                return Ok((chosen, Some((state, from))));
            }
            chosen.take(state, key, value, cursor.through);
            from = after(key);
        }
        if let Some(next) = next_range.filter(|_| !page.more) {
            from = next;
        } else if !page.more {
            let next = step.states.iter().find(|next| **next > state).copied();
            let Some(next) = next else { return Ok((chosen, None)) };
            (state, from) = (next, cursor.start_of(step.tenant, next));
        }
    }
    Ok((chosen, Some((state, from))))
}
