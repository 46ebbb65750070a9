//! Ordering lanes: which row of a lane is tried next ("Ordering lanes").
//!
//! A lane is busy while it has a head: the one row of it that is due or claimed. When a head ends, the batch that ends it
//! makes the next member the head, and that is attempted at once; a head that has to wait holds its lane up and no other.
//! What joins an idle lane is found by the lane's marker, or told by the Writer. Nothing is promoted that is not synced,
//! and only this process promotes, so a lane has one head at most whatever crashes.

use std::collections::{BTreeMap, BTreeSet};

use super::attempts::Job;
use super::canary;
use super::due::Due;
use super::held::Held;
use super::lane_reads::{first_member, heads_of, real};
use super::load::{Claiming, load};
use super::outcomes::Settled;
use super::reclaim::{after, scan};
use super::writing::Writing;
use crate::model::cf::Cf;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{DueKey, DueKind, DueValue, LaneKey, LaneMarkerKey, LaneMemberKey};
use crate::model::ops::{LaneWas, Member, Ops};
use crate::ports::KvError;
use crate::queue::Joined;
use crate::store::StoreHandle;

/// Markers looked at in one batch.
const PAGE: usize = 256;

/// Members read at a time when every lane is looked at.
const CHUNK: usize = 512;

/// Lanes whose deleted members are remembered.
const MAX_FLOORS: usize = 16_384;

/// What is next in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Member(Member),
    /// Its hook is not synced yet: its fsync wakes dispatch.
    Unsynced,
    Nothing,
}

/// What became of the markers.
#[derive(Debug, Default)]
pub(super) struct Promoted {
    /// Who has a row due now.
    pub(super) tenants: BTreeSet<TenantOrd>,
    /// There are more markers.
    pub(super) more: bool,
}

/// Who follows the heads that end in a batch.
#[derive(Default)]
pub(super) struct HandedOver {
    /// Claimed in that batch.
    pub(super) jobs: Vec<Job>,
    /// Who has a row due now.
    pub(super) tenants: BTreeSet<TenantOrd>,
}

/// What lanes are handed over with.
pub(super) struct Handover<'a> {
    pub(super) claiming: Claiming<'a>,
    pub(super) mark: Seq,
    /// `dispatch.max_inflight_bytes`.
    pub(super) max_bytes: usize,
    /// Whether the next row may be attempted at once.
    pub(super) claims: bool,
}

/// What is remembered of lanes. All of it can be lost.
pub(super) struct Lanes {
    /// By lane, up to where it has no members: the range below is full of deleted keys. Members join at the end.
    floors: BTreeMap<LaneKey, Seq>,
    /// Lanes to look at.
    waiting: BTreeSet<LaneKey>,
    /// Lanes whose first member was not synced when they were looked at.
    unsynced: BTreeSet<LaneKey>,
    /// Where the walk over the markers goes on; `None` once it is through.
    walk: Option<Vec<u8>>,
    /// Markers that were removed and not looked at again.
    removed: Vec<LaneKey>,
    /// Where the look at every lane goes on; `None` once it is through.
    sweep: Option<Vec<u8>>,
}

impl Lanes {
    pub(super) fn new() -> Self {
        Self {
            floors: BTreeMap::new(),
            waiting: BTreeSet::new(),
            unsynced: BTreeSet::new(),
            walk: None,
            removed: Vec::new(),
            sweep: None,
        }
    }

    /// Forgets everything, and begins to look at every lane.
    pub(super) fn begin(&mut self) {
        *self = Self { sweep: Some(LaneMemberKey::all().start), ..Self::new() };
        self.begin_walk();
    }

    /// Reads every marker.
    fn begin_walk(&mut self) {
        self.walk = Some(LaneMarkerKey::all().start);
    }

    /// These lanes may have members and no head.
    pub(super) fn look_at(&mut self, lanes: impl IntoIterator<Item = LaneKey>) {
        self.waiting.extend(lanes);
    }

    /// Whether there are lanes to look at.
    pub(super) fn has_more(&self) -> bool {
        self.walk.is_some() || !self.waiting.is_empty()
    }

    /// Hooks have joined these lanes. What was not synced may be by now.
    pub(super) fn joined(&mut self, joined: Joined) {
        self.waiting.extend(joined.lanes);
        self.waiting.append(&mut self.unsynced);
        if joined.lost {
            self.begin_walk();
        }
    }

    pub(super) const fn is_sweeping(&self) -> bool {
        self.sweep.is_some()
    }

    /// A process that died between the removal of a marker and the look behind it may have left a lane to be found by
    /// nobody. Gives markers back to lanes that have members and no head, and answers whether there were such.
    pub(super) async fn sweep(&mut self, writing: &mut Writing) -> Result<bool, KvError> {
        let Some(start) = self.sweep.clone() else { return Ok(false) };
        let range = start..LaneMemberKey::all().end;
        let page = writing.store().scan(scan(Cf::Index, range, CHUNK)).await?;
        let members = real(&page.pairs).filter_map(LaneMemberKey::decode);
        let mut lanes: Vec<LaneKey> = members.map(LaneMemberKey::of).collect();
        lanes.dedup();
        let heads = heads_of(writing.store(), &lanes).await?;
        let markers = lanes.iter().map(|lane| lane.marker().encode().to_vec()).collect();
        let markers = writing.store().multi_get(Cf::Index, markers).await?;
        let mut ops = Ops::default();
        for ((lane, head), marker) in lanes.iter().zip(heads).zip(markers) {
            if head.is_none() && marker.is_none() {
                ops.mark_lane(*lane);
                self.waiting.insert(*lane);
            }
        }
        let found = !ops.is_empty();
        writing.apply(ops.finish()).await?;
        self.sweep = match (page.pairs.last(), lanes.as_slice()) {
            // A long lane is passed over whole.
            (Some(_), [lane]) if page.more => {
                Some(LaneMemberKey::of_lane(lane.tenant, lane.lane).end)
            }
            (Some((last, _)), _) if page.more => Some(after(last)),
            (_, _) => None,
        };
        Ok(found)
    }

    /// Makes the first members of idle lanes due, a page at a time.
    pub(super) async fn promote(
        &mut self,
        writing: &mut Writing,
        now_ms: u64,
        mark: Seq,
    ) -> Result<Promoted, KvError> {
        self.verify(writing).await?;
        self.step_walk(writing.store()).await?;
        let lanes: Vec<LaneKey> = self.waiting.iter().take(PAGE).copied().collect();
        let mut promoted = Promoted::default();
        if !lanes.is_empty() {
            self.promote_page(writing, &lanes, now_ms, mark, &mut promoted).await?;
            for lane in &lanes {
                self.waiting.remove(lane);
            }
        }
        promoted.more = self.has_more();
        Ok(promoted)
    }

    /// The next page of markers.
    async fn step_walk(&mut self, store: &StoreHandle) -> Result<(), KvError> {
        let Some(start) = self.walk.clone() else { return Ok(()) };
        let range = start..LaneMarkerKey::all().end;
        let page = store.scan(scan(Cf::Index, range, PAGE)).await?;
        let markers = real(&page.pairs).filter_map(LaneMarkerKey::decode);
        self.waiting.extend(markers.map(LaneMarkerKey::of));
        self.walk = page.pairs.last().filter(|_| page.more).map(|(last, _)| after(last));
        Ok(())
    }

    async fn promote_page(
        &mut self,
        writing: &mut Writing,
        lanes: &[LaneKey],
        now_ms: u64,
        mark: Seq,
        promoted: &mut Promoted,
    ) -> Result<(), KvError> {
        let heads = heads_of(writing.store(), lanes).await?;
        let (mut ops, mut empty) = (Ops::default(), Vec::new());
        for (lane, head) in lanes.iter().zip(heads) {
            let was = match head {
                Some(_) if canary::skips_heads() => LaneWas::Busy,
                Some(_) => {
                    // Its end looks at the lane.
                    ops.unmark_lane(*lane);
                    continue;
                }
                None => LaneWas::Idle,
            };
            match self.first(writing.store(), *lane, mark).await? {
                Next::Member(member) => {
                    ops.promote(member, was, now_ms);
                    promoted.tenants.insert(lane.tenant);
                }
                Next::Unsynced => {
                    self.unsynced.insert(*lane);
                }
                Next::Nothing => {
                    ops.unmark_lane(*lane);
                    empty.push(*lane);
                }
            }
        }
        // Remembered first: a removal that fails may have landed.
        self.removed.extend(empty);
        writing.apply(ops.finish()).await?;
        self.verify(writing).await
    }

    /// Looks again at lanes whose markers were removed although they had no head: a commit may have slipped a member in
    /// meanwhile. If it landed before the removal, the member is seen here; if after, the marker stands.
    async fn verify(&mut self, writing: &mut Writing) -> Result<(), KvError> {
        if self.removed.is_empty() {
            return Ok(());
        }
        let mut ops = Ops::default();
        for lane in &self.removed {
            if first_member(writing.store(), *lane, Seq(0)).await?.is_some() {
                ops.mark_lane(*lane);
                self.unsynced.insert(*lane);
            }
        }
        writing.apply(ops.finish()).await?;
        self.removed.clear();
        Ok(())
    }

    /// Who follows the heads that end in the batch `ops`: written into it.
    pub(super) async fn hand_over(
        &mut self,
        store: &StoreHandle,
        ending: &[&Settled],
        held: &Held,
        handover: &Handover<'_>,
        ops: &mut Ops,
    ) -> Result<HandedOver, KvError> {
        let mut handed = HandedOver::default();
        let ending = still_heads(store, ending).await?;
        let mut next = Vec::new();
        for (lane, size) in ending {
            match self.next(store, lane, handover.mark).await? {
                Next::Member(member) => next.push((member, size)),
                Next::Unsynced => {
                    ops.end_lane(lane);
                    ops.mark_lane(lane);
                    self.unsynced.insert(lane);
                }
                Next::Nothing => ops.end_lane(lane),
            }
        }
        if next.is_empty() {
            return Ok(handed);
        }
        let now_ms = handover.claiming.now_ms;
        let dues = next.iter().map(|(member, _)| due(*member, now_ms)).collect();
        let mut bytes = held.total().bytes;
        for ((member, size), loaded) in next.into_iter().zip(load(store, dues).await?) {
            // It takes the place of the one that ends.
            let with = bytes.saturating_sub(in_bytes(size)).saturating_add(in_bytes(member.size));
            let fits = member.size <= size || with <= handover.max_bytes;
            let job = if handover.claims && fits { handover.claiming.ready(loaded) } else { None };
            // Whatever stands in the way is told when it is claimed.
            if let Some(job) = job {
                ops.promote_claimed(member, LaneWas::Busy);
                handed.jobs.push(job);
                bytes = with;
            } else {
                ops.promote(member, LaneWas::Busy, now_ms);
                handed.tenants.insert(member.key.tenant);
            }
        }
        Ok(handed)
    }

    /// What is next in a lane, from where it has members on.
    async fn next(
        &mut self,
        store: &StoreHandle,
        lane: LaneKey,
        mark: Seq,
    ) -> Result<Next, KvError> {
        let floor = self.floors.get(&lane).copied().unwrap_or(Seq(0));
        let first = first_member(store, lane, floor).await?;
        // What is not there yet has a seq above every synced one.
        let floor = first.map_or(mark.plus(1), |member| member.key.seq);
        if self.floors.len() >= MAX_FLOORS {
            self.floors.clear();
        }
        self.floors.insert(lane, floor);
        Ok(match first {
            Some(member) if member.key.seq <= mark => Next::Member(member),
            Some(_) => Next::Unsynced,
            None => Next::Nothing,
        })
    }

    /// Likewise; and before nothing is said to be there, the whole lane is looked at.
    async fn first(
        &mut self,
        store: &StoreHandle,
        lane: LaneKey,
        mark: Seq,
    ) -> Result<Next, KvError> {
        match self.next(store, lane, mark).await? {
            Next::Nothing => {
                self.floors.remove(&lane);
                self.next(store, lane, mark).await
            }
            next @ (Next::Member(_) | Next::Unsynced) => Ok(next),
        }
    }
}

/// The due row a member becomes.
fn due(member: Member, at_ms: u64) -> Due {
    let LaneMemberKey { tenant, lane: _, seq, sink } = member.key;
    Due {
        key: DueKey { tenant, at_ms, seq, sink },
        value: DueValue { size: member.size, kind: DueKind::LaneHeadFirst },
    }
}

fn in_bytes(size: u32) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

/// The lanes whose heads these rows are, each with the size of its head's hook.
async fn still_heads(
    store: &StoreHandle,
    ending: &[&Settled],
) -> Result<Vec<(LaneKey, u32)>, KvError> {
    let rows: Vec<_> =
        ending.iter().filter_map(|settled| Some((settled.lane?, settled.claimed))).collect();
    let lanes: Vec<LaneKey> = rows.iter().map(|(lane, _)| *lane).collect();
    let heads = heads_of(store, &lanes).await?;
    let both = rows.into_iter().zip(heads);
    let named = both.filter(|((_, claimed), head)| *head == Some(claimed.row()));
    Ok(named.map(|((lane, claimed), _)| (lane, claimed.size)).collect())
}
