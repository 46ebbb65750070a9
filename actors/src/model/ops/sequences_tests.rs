//! Any sequence of the builders, over two tenants and sinks with and without lanes, against the invariants.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;
use crate::model::delivery::{DeliveryRow, PendingRow, RowState};
use crate::model::keys::*;
use crate::model::map_store::MapStore;
use crate::model::value_version::ValueVersion;

#[derive(Clone, Debug)]
enum Step {
    /// A group: tenant, sinks, whether archived, bytes.
    Commit(Vec<(u32, u16, bool, usize)>),
    /// So many of what is due.
    Claim(usize),
    Deliver(usize),
    Retry(usize),
    Park(usize),
    Dead(usize),
    /// Dispatch starts again: every claim is due.
    Recover,
    /// Dispatch looks at every lane marker.
    Promote,
    /// A row waiting in a lane goes, or is given up.
    EndMember(usize, bool),
    ClearArchive(usize),
    Reclaim,
    /// The last group, if nothing has touched it since.
    Fence,
    SweepMarkers,
    /// One row that waits, is claimed or is dead.
    Purge(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let hook = (1..=2_u32, 0..3_u16, any::<bool>(), 0..600_usize);
    prop_oneof![
        3 => prop::collection::vec(hook, 1..4).prop_map(Step::Commit),
        3 => (1..4_usize).prop_map(Step::Claim),
        3 => any::<usize>().prop_map(Step::Deliver),
        2 => any::<usize>().prop_map(Step::Retry),
        1 => any::<usize>().prop_map(Step::Park),
        1 => any::<usize>().prop_map(Step::Dead),
        1 => Just(Step::Recover),
        2 => Just(Step::Promote),
        1 => (any::<usize>(), any::<bool>()).prop_map(|(which, dead)| Step::EndMember(which, dead)),
        2 => any::<usize>().prop_map(Step::ClearArchive),
        2 => Just(Step::Reclaim),
        1 => Just(Step::Fence),
        1 => Just(Step::SweepMarkers),
        2 => any::<usize>().prop_map(Step::Purge),
    ]
}

/// A store and what its processes remember.
struct Scene {
    store: MapStore,
    now_ms: u64,
    next_seq: u64,
    next_ord: u32,
    /// The last group, until something else touches it.
    unsynced: Vec<(Seq, u64)>,
}

impl Scene {
    fn new() -> Self {
        let mut ops = Ops::default();
        ops.stamp_format();
        let mut store = MapStore::default();
        store.apply(&ops.finish());
        Self { store, now_ms: 10_000, next_seq: 1, next_ord: 1, unsynced: Vec::new() }
    }

    fn step(&mut self, step: &Step) {
        self.now_ms += 377;
        let mut ops = Ops::default();
        match step {
            Step::Commit(hooks) => self.commit(&mut ops, hooks),
            Step::Claim(many) => self.claim(&mut ops, *many),
            Step::Deliver(which) => {
                if let Some(claimed) = self.pick(*which) {
                    ops.delivered(&claimed);
                    self.hand_over(&mut ops, &claimed, which % 2 == 0);
                }
            }
            Step::Retry(which) => self.again(&mut ops, *which, true),
            Step::Park(which) => self.again(&mut ops, *which, false),
            Step::Dead(which) => {
                if let Some(claimed) = self.pick(*which) {
                    ops.dead(&claimed, &self.dead_row(claimed.row()), self.now_ms, "github", "id");
                    self.hand_over(&mut ops, &claimed, which % 2 == 0);
                }
            }
            Step::Recover => {
                for claimed in self.claims() {
                    let attempts = self.row(claimed.row()).attempts;
                    let is_head = self.lane_of(&claimed).is_some();
                    ops.recover(&claimed, self.now_ms, DueKind::recovered(is_head, attempts));
                }
            }
            Step::Promote => self.promote(&mut ops),
            Step::EndMember(which, dead) => self.end_member(&mut ops, *which, *dead),
            Step::ClearArchive(which) => {
                let owed = self.store.keys(Cf::Index, ArchiveKey::decode);
                if !owed.is_empty() {
                    let (ArchiveKey(seq), value) = owed[which % owed.len()];
                    ops.clear_archive(seq, ArchiveValue::decode(value).unwrap().tenant);
                }
            }
            Step::Reclaim => self.reclaim(&mut ops),
            Step::Purge(which) => self.purge(&mut ops, *which),
            Step::Fence => self.fence(&mut ops),
            Step::SweepMarkers => {
                let due = self.store.keys(Cf::Index, DueKey::decode);
                for (active, _) in self.store.keys(Cf::Index, ActiveKey::decode) {
                    let over = active.second < self.now_ms / 1000;
                    if over && due.iter().all(|(due, _)| due.active() != active) {
                        ops.unmark_active(active);
                    }
                }
            }
        }
        if !matches!(step, Step::Commit(_)) {
            self.unsynced.clear();
        }
        self.store.apply(&ops.finish());
    }

    fn commit(&mut self, ops: &mut Ops, hooks: &[(u32, u16, bool, usize)]) {
        self.unsynced.clear();
        for (tenant, sinks, archive, bytes) in hooks {
            let tenant = self.ordinal(ops, &format!("tenant-{tenant}"));
            let (seq, at_ms) = (Seq(self.next_seq), self.now_ms);
            self.next_seq += 1;
            let value = Bytes::from(vec![b'v'; *bytes]);
            // Sink 0 is not ordered, sink 1 has two lanes and the others one each.
            let row = |sink: u16| {
                let lane = match sink {
                    0 => None,
                    1 => Some(u128::from(100 + seq.0 % 2)),
                    other => Some(u128::from(other)),
                };
                let module = "Elixir.Ankusa.Sink.Http";
                let size = stored_size(&value);
                (sink, PendingRow::in_lane(lane, module, "github", size, ValueVersion::V0))
            };
            let rows: Vec<_> = (0..*sinks).map(row).collect();
            ops.commit_hook(NewHook { seq, tenant, at_ms, value, rows: &rows, archive: *archive });
            if *sinks > 0 || *archive {
                self.unsynced.push((seq, at_ms));
            }
        }
        ops.set_next_seq(Seq(self.next_seq));
    }

    /// As the Writer: the tenant's ordinal, or the next one. A group may hold a new tenant twice.
    fn ordinal(&mut self, ops: &mut Ops, id: &str) -> TenantOrd {
        let key = TenantNameKey(id).encode();
        if let Some(known) = self.store.get(Cf::Tenants, &key) {
            return TenantNameKey::read_value(known).unwrap();
        }
        let tenant = TenantOrd(self.next_ord);
        self.next_ord += 1;
        ops.new_tenant(tenant, id, TenantOrd(self.next_ord));
        // What the Writer remembers of its own group.
        let mut own = Ops::default();
        own.new_tenant(tenant, id, TenantOrd(self.next_ord));
        self.store.apply(&own.finish());
        tenant
    }

    fn claim(&mut self, ops: &mut Ops, many: usize) {
        let due = self.store.keys(Cf::Index, DueKey::decode);
        for (key, value) in due.iter().filter(|(due, _)| due.at_ms <= self.now_ms).take(many) {
            ops.claim(key, DueValue::decode(value).unwrap());
        }
    }

    fn claims(&self) -> Vec<Claimed> {
        let claims = self.store.keys(Cf::Index, ClaimedKey::decode);
        let claim = |(key, size)| Claimed::new(key, SizeValue::decode(size).unwrap());
        claims.into_iter().map(claim).collect()
    }

    fn pick(&self, which: usize) -> Option<Claimed> {
        let claims = self.claims();
        (!claims.is_empty()).then(|| claims[which % claims.len()])
    }

    fn purge(&self, ops: &mut Ops, which: usize) {
        let (due, claims) = (self.store.keys(Cf::Index, DueKey::decode), self.claims());
        let dead = self.store.keys(Cf::Index, DeadByTenantKey::decode);
        let at = which % (due.len() + claims.len() + dead.len()).max(1);
        if let Some((key, value)) = due.get(at) {
            let value = DueValue::decode(value).unwrap();
            ops.purge_due(key, value);
            let DueKey { tenant, at_ms: _, seq, sink } = *key;
            self.free_lane(ops, &Claimed { tenant, seq, sink, size: value.size });
        } else if let Some(claimed) = claims.get(at.saturating_sub(due.len())) {
            ops.purge_claimed(claimed);
            self.free_lane(ops, claimed);
        } else if let Some((key, _)) = dead.get(at.saturating_sub(due.len() + claims.len())) {
            let size = self.row(key.dead().row()).size;
            ops.purge_dead(&key.dead(), key.tenant, size);
        }
    }

    /// A head is gone, and nobody looked who is next.
    fn free_lane(&self, ops: &mut Ops, head: &Claimed) {
        if let Some(lane) = self.lane_of(head) {
            ops.end_lane(lane);
            ops.mark_lane(lane);
        }
    }

    fn row(&self, key: DeliveryKey) -> DeliveryRow {
        DeliveryRow::decode(self.store.get(Cf::Deliveries, &key.encode()).unwrap()).unwrap()
    }

    /// Tries again, or parks: the row comes back due later.
    fn again(&self, ops: &mut Ops, which: usize, failed: bool) {
        let Some(claimed) = self.pick(which) else { return };
        let mut row = self.row(claimed.row());
        row.attempts += u32::from(failed);
        row.at_ms = self.now_ms + 500;
        let bytes = row.encode(ValueVersion::V0);
        if failed && self.lane_of(&claimed).is_none() {
            ops.retry(&claimed, &bytes, row.at_ms);
        } else {
            let is_head = self.lane_of(&claimed).is_some();
            ops.park(&claimed, &bytes, row.at_ms, DueKind::put_back(is_head, row.attempts));
        }
    }

    fn dead_row(&self, row: DeliveryKey) -> Vec<u8> {
        let mut row = self.row(row);
        (row.state, row.at_ms) = (RowState::Dead, self.now_ms);
        row.encode(ValueVersion::V0)
    }

    /// The lane whose head a row is.
    fn lane_of(&self, claimed: &Claimed) -> Option<LaneKey> {
        let heads = self.store.keys(Cf::Index, LaneHeadKey::decode);
        let names = |value: &[u8]| LaneHeadValue::decode(value).unwrap().row() == claimed.row();
        let head = heads.into_iter().find(|(_, value)| names(value));
        head.map(|(head, _)| head.of()).filter(|lane| lane.tenant == claimed.tenant)
    }

    fn members(&self) -> Vec<Member> {
        let members = self.store.keys(Cf::Index, LaneMemberKey::decode);
        let size = |value| SizeValue::decode(value).unwrap().0;
        members.into_iter().map(|(key, value)| Member { key, size: size(value) }).collect()
    }

    fn next(&self, lane: LaneKey) -> Option<Member> {
        self.members().into_iter().find(|member| member.key.of() == lane)
    }

    /// The head of a lane ends in this batch.
    fn hand_over(&self, ops: &mut Ops, claimed: &Claimed, claims: bool) {
        let Some(lane) = self.lane_of(claimed) else { return };
        match self.next(lane) {
            Some(next) if claims => {
                ops.promote_claimed(next, LaneWas::Busy);
            }
            Some(next) => ops.promote(next, LaneWas::Busy, self.now_ms),
            None => ops.end_lane(lane),
        }
    }

    fn promote(&self, ops: &mut Ops) {
        for (marker, _) in self.store.keys(Cf::Index, LaneMarkerKey::decode) {
            let lane = marker.of();
            let is_busy = self.store.get(Cf::Index, &lane.head().encode()).is_some();
            match self.next(lane) {
                Some(next) if !is_busy => ops.promote(next, LaneWas::Idle, self.now_ms),
                Some(_) | None => ops.unmark_lane(lane),
            }
        }
    }

    fn end_member(&self, ops: &mut Ops, which: usize, dead: bool) {
        let members = self.members();
        let Some(member) = members.get(which % members.len().max(1)) else { return };
        if dead {
            let row = self.dead_row(member.key.row());
            ops.dead_member(*member, &row, self.now_ms, "github", "id");
        } else {
            ops.drop_member(*member);
        }
    }

    fn reclaim(&self, ops: &mut Ops) {
        let cleared = self.store.keys(Cf::Index, ClearedKey::decode);
        let rows = self.store.keys(Cf::Deliveries, DeliveryKey::decode);
        for (key, _) in &cleared {
            let seq = key.seq;
            let owed = self.store.get(Cf::Index, &ArchiveKey(seq).encode()).is_some()
                || rows.iter().any(|(row, _)| row.seq == seq);
            if owed {
                ops.unmark_cleared(*key);
            } else {
                let of_hook = cleared.iter().map(|(key, _)| *key).filter(|key| key.seq == seq);
                ops.reclaim(seq, of_hook, false);
            }
        }
    }

    fn fence(&self, ops: &mut Ops) {
        let due = self.store.keys(Cf::Index, DueKey::decode);
        for (seq, at_ms) in &self.unsynced {
            let size = stored_size(self.store.get(Cf::Hooks, &HookKey(*seq).encode()).unwrap());
            let (at_ms, members) = (*at_ms, self.members());
            let due = due.iter().filter(|(due, _)| due.seq == *seq);
            let members = members.iter().filter(|member| member.key.seq == *seq);
            let due =
                due.map(|(due, _)| (due.tenant, FencedRow { sink: due.sink, at_ms, lane: None }));
            let members = members.map(|Member { key, .. }| {
                (key.tenant, FencedRow { sink: key.sink, at_ms, lane: Some(key.lane) })
            });
            let (tenants, rows): (Vec<_>, Vec<_>) = due.chain(members).unzip();
            let owed = self.store.get(Cf::Index, &ArchiveKey(*seq).encode());
            let owed = owed.map(|value| ArchiveValue::decode(value).unwrap().tenant);
            let tenant = tenants.first().copied().or(owed).unwrap();
            let archive = owed.is_some();
            ops.fence_hook(&FencedHook { seq: *seq, tenant, size, rows: &rows, archive });
        }
    }

    fn rows_of(&self, cf: Cf) -> usize {
        self.store.rows.keys().filter(|(of, _)| *of == cf).count()
    }
}

proptest! {
    #[test]
    fn any_sequence_of_builders_keeps_every_invariant(steps in prop::collection::vec(step(), 1..30)) {
        let mut scene = Scene::new();
        for step in &steps {
            scene.step(step);
            prop_assert_eq!(scene.store.violations(), []);
        }
        // Then everything is delivered, archived and reclaimed, but the dead.
        let dead = scene.store.keys(Cf::Index, DeadKey::decode).len();
        scene.now_ms += 10_000;
        scene.step(&Step::Promote);
        scene.step(&Step::Claim(usize::MAX));
        while scene.pick(0).is_some() {
            // Whether what follows in a lane is claimed at once or due.
            scene.step(&Step::Deliver(scene.rows_of(Cf::Deliveries)));
            scene.step(&Step::Claim(usize::MAX));
        }
        scene.step(&Step::Promote);
        while !scene.store.keys(Cf::Index, ArchiveKey::decode).is_empty() {
            scene.step(&Step::ClearArchive(0));
        }
        scene.step(&Step::Reclaim);
        prop_assert_eq!(scene.store.violations(), []);
        prop_assert_eq!(scene.rows_of(Cf::Deliveries), dead);
        if dead == 0 {
            scene.now_ms += 10_000;
            scene.step(&Step::SweepMarkers);
            prop_assert_eq!((scene.rows_of(Cf::Hooks), scene.rows_of(Cf::Index)), (0, 0));
        }
    }

    #[test]
    fn a_fenced_group_leaves_no_trace_but_its_seqs(
        steps in prop::collection::vec(step(), 0..20),
        group in prop::collection::vec((1..=2_u32, 0..3_u16, any::<bool>(), 0..600_usize), 1..6),
    ) {
        let mut scene = Scene::new();
        // So that both tenants have ordinals.
        scene.step(&Step::Commit(vec![(1, 1, true, 9), (2, 1, true, 9)]));
        steps.iter().for_each(|step| scene.step(step));
        let unchanged = |scene: &Scene| -> Vec<_> {
            let is_marker = |key: &[u8]| {
                ActiveKey::decode(key).is_some() || LaneMarkerKey::decode(key).is_some()
            };
            let differs = |cf: Cf, key: &[u8]| cf == Cf::Default || is_marker(key);
            let rows = scene.store.rows.iter().filter(|((cf, key), _)| !differs(*cf, key));
            // A counter that was never written and one that is back at zero are the same.
            rows.filter(|((cf, _), value)| *cf != Cf::Counters || counters::read(value) != Some(0))
                .map(|(key, value)| (key.clone(), value.clone()))
                .collect()
        };
        let before = unchanged(&scene);
        scene.step(&Step::Commit(group));
        scene.step(&Step::Fence);
        prop_assert_eq!(unchanged(&scene), before);
        prop_assert_eq!(scene.store.violations(), []);
    }
}
