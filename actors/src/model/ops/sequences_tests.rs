//! Any sequence of the builders, over two tenants, against the invariants.

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
                }
            }
            Step::Retry(which) => self.again(&mut ops, *which, true),
            Step::Park(which) => self.again(&mut ops, *which, false),
            Step::Dead(which) => {
                if let Some(claimed) = self.pick(*which) {
                    let mut row = self.row(claimed.row());
                    (row.state, row.at_ms) = (RowState::Dead, self.now_ms);
                    ops.dead(&claimed, &row.encode(ValueVersion::V0), self.now_ms, "github", "id");
                }
            }
            Step::Recover => {
                for claimed in self.claims() {
                    let attempts = self.row(claimed.row()).attempts;
                    ops.recover(&claimed, self.now_ms, DueKind::after_attempts(attempts));
                }
            }
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
            let row = PendingRow::new(
                "Elixir.Ankusa.Sink.Http",
                "github",
                stored_size(&value),
                ValueVersion::V0,
            );
            let rows: Vec<_> = (0..*sinks).map(|sink| (sink, row.clone())).collect();
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
            ops.purge_due(key, DueValue::decode(value).unwrap());
        } else if let Some(claimed) = claims.get(at.saturating_sub(due.len())) {
            ops.purge_claimed(claimed);
        } else if let Some((key, _)) = dead.get(at.saturating_sub(due.len() + claims.len())) {
            let size = self.row(key.dead().row()).size;
            ops.purge_dead(&key.dead(), key.tenant, size);
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
        if failed {
            ops.retry(&claimed, &bytes, row.at_ms);
        } else {
            ops.park(&claimed, &bytes, row.at_ms, DueKind::after_attempts(row.attempts));
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
            let of_hook: Vec<_> = due.iter().filter(|(due, _)| due.seq == *seq).collect();
            let rows: Vec<_> = of_hook.iter().map(|(due, _)| (due.sink, *at_ms)).collect();
            let owed = self.store.get(Cf::Index, &ArchiveKey(*seq).encode());
            let owed = owed.map(|value| ArchiveValue::decode(value).unwrap().tenant);
            let tenant = of_hook.first().map(|(due, _)| due.tenant).or(owed).unwrap();
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
        scene.step(&Step::Claim(usize::MAX));
        while scene.pick(0).is_some() {
            scene.step(&Step::Deliver(0));
        }
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
            let differs = |cf: Cf, key: &[u8]| cf == Cf::Default || ActiveKey::decode(key).is_some();
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
