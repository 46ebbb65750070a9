//! Plans from seeds.

use ankusa_actors::dispatch::{DispatchConfig, RetryConfig};
use ankusa_actors::edge::QuarantineConfig;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::sim::SimOp;
use ankusa_actors::queue::{BatcherConfig, DedupeConfig, TenantsConfig};
use ankusa_actors::store::StoreConfig;

use super::plan::{How, Lasts, Mood, On, Plan, Settings, Step, Trouble};

/// SplitMix64: enough chance for a plan, and the same for the same seed for ever.
pub struct Chance(pub u64);

impl Chance {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(of.len() as u64)).unwrap()].clone()
    }
}

/// How often each kind of step comes, out of the sum.
#[derive(Clone, Copy)]
struct Weights {
    send: u64,
    hold: u64,
    advance: u64,
    sink: u64,
    disk: u64,
    heal: u64,
    crash: u64,
    ask: u64,
    clock: u64,
    end: u64,
}

const EVERYTHING: Weights = Weights {
    send: 30,
    hold: 8,
    advance: 30,
    sink: 4,
    disk: 14,
    heal: 6,
    crash: 6,
    ask: 5,
    clock: 1,
    end: 8,
};

/// Runs differ in what goes wrong in them, so that rare meetings of two kinds are not drowned by a third.
const PROFILES: [Weights; 7] = [
    EVERYTHING,
    Weights { disk: 0, heal: 2, crash: 0, ..EVERYTHING },
    Weights { disk: 30, crash: 0, end: 2, ..EVERYTHING },
    Weights { disk: 4, crash: 20, end: 2, ..EVERYTHING },
    Weights { disk: 20, crash: 0, end: 12, ..EVERYTHING },
    // Nothing that excuses an attempt too many.
    Weights { sink: 12, disk: 0, heal: 0, crash: 0, ask: 2, clock: 4, end: 0, ..EVERYTHING },
    Weights { sink: 10, disk: 2, crash: 4, clock: 8, end: 6, ..EVERYTHING },
];

const CLASSES: [FailureClass; 5] = [
    FailureClass::NoSpace,
    FailureClass::IoError,
    FailureClass::ReadOnly,
    FailureClass::Timeout,
    FailureClass::Corruption,
];

const CHILDREN: [&str; 19] = [
    "writer",
    "writer",
    "syncer",
    "syncer",
    "store",
    "queue",
    "core",
    "batcher-1",
    "batcher-2",
    "dispatch",
    "dispatch",
    "dedupe_sweeper",
    "scrubber",
    "rate_limiter",
    "quarantine",
    "quarantine",
    "services",
    "front",
    "node",
];

const HOUR_MS: i64 = 3_600_000;

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let settings = draw_settings(&mut chance);
        let weights = chance.pick(&PROFILES);
        let count = 30 + chance.below(90);
        let steps = (0..count).map(|_| draw_step(&mut chance, weights)).collect();
        Self { seed, settings, steps }
    }
}

fn draw_settings(chance: &mut Chance) -> Settings {
    let default = Settings::default();
    let (dispatch_runs, storage_runs) = (!chance.one_in(4), chance.one_in(3));
    let batcher = BatcherConfig {
        partitions: chance.pick(&[1, 2, 3]),
        max_batch: chance.pick(&[1, 4, 256]),
        max_delay_ms: chance.pick(&[0, 0, 5]),
        max_queue: chance.pick(&[5, 10_000]),
        max_queue_bytes: chance.pick(&[60, 1 << 20]),
        tenant_share_percent: chance.pick(&[50, 87]),
        group_commit_max_bytes: chance.pick(&[600, 4 << 20]),
        group_commit_max_records: chance.pick(&[2, 16, 4_096]),
        group_commit_delay_ms: chance.pick(&[0, 1]),
        start_deadline_ms: chance.pick(&[500, 2_000]),
        stall_ms: chance.pick(&[200, 1_000]),
        max_unsynced_groups: chance.pick(&[1, 2, 128]),
    };
    let store = StoreConfig {
        reopen_min_interval_ms: chance.pick(&[1_000, 5_000]),
        fence_deadline_ms: chance.pick(&[1_000, 10_000]),
        ..StoreConfig::default()
    };
    let concurrency = chance.pick(&[2, 32, 32]);
    let dispatch = DispatchConfig {
        batch: chance.pick(&[1, 3, 128, 128]),
        concurrency,
        max_inflight: chance.pick(&[2, 8, 4_096]),
        sink_concurrency: chance.pick(&[None, Some(1), Some(concurrency)]),
        breaker_failures: chance.pick(&[0, 2, 5]),
        retry: RetryConfig { max_attempts: chance.pick(&[2, 5, 84]), ..default.dispatch.retry },
        ..default.dispatch
    };
    Settings {
        dispatch_runs,
        storage_runs,
        v1: chance.one_in(2),
        batcher,
        tenants: TenantsConfig { max: chance.pick(&[2, 100]) },
        dedupe: DedupeConfig {
            max_entries: chance.pick(&[2, 100_000_000, 100_000_000]),
            max_entries_per_tenant: chance.pick(&[1, 30_000_000, 30_000_000]),
            sweep_interval_ms: chance.pick(&[500, 10_000]),
            sweep_chunk: chance.pick(&[1, 3, 1_000]),
        },
        store,
        dispatch,
        quarantine: QuarantineConfig {
            burst: chance.pick(&[4, 100]),
            max_bytes: chance.pick(&[5_000, 1 << 30]),
            ..default.quarantine
        },
    }
}

fn draw_step(chance: &mut Chance, weights: Weights) -> Step {
    let Weights { send, hold, advance, sink, disk, heal, crash, ask, clock, end } = weights;
    let sum = send + hold + advance + sink + disk + heal + crash + ask + clock + end;
    let mut at = chance.below(sum);
    let mut falls_on = |weight: u64| {
        let falls = at < weight;
        at = at.wrapping_sub(weight);
        falls
    };
    if falls_on(send) {
        let hooks = chance.pick(&[1, 1, 2, 3, 12]);
        let tenant = chance.pick(&["acme", "blue", "cyan"]).to_owned();
        let sinks = chance.pick(&[0, 1, 1, 2]);
        let key = chance.one_in(2).then(|| chance.below(3));
        Step::Send { hooks, tenant, sinks, key }
    } else if falls_on(hold) {
        let tenant = chance.pick(&["acme", "blue"]).to_owned();
        let hold = Step::Hold { hooks: chance.pick(&[1, 1, 3, 12]) };
        let limit = Step::Limit { tenant, burst: chance.pick(&[0, 1, 5]) };
        chance.pick(&[hold.clone(), hold.clone(), hold, limit])
    } else if falls_on(advance) {
        Step::Advance { ms: chance.pick(&[0, 1, 1, 5, 20, 100, 1_000, 6_000]) }
    } else if falls_on(sink) {
        let ms = chance.pick(&[1, 1_000, 20_000]);
        let moods = [
            Mood::Fickle,
            Mood::Takes,
            Mood::Takes,
            Mood::Fails,
            Mood::FailsUntil { ms },
            Mood::Refuses,
            Mood::Hangs,
            Mood::Panics,
        ];
        let sink = chance.pick(&[0, 1]);
        // Only moods that disturb nothing where nothing else disturbs.
        let many = if end == 0 { 6 } else { moods.len() };
        Step::Sink { sink, mood: chance.pick(&moods[..many]) }
    } else if falls_on(disk) {
        draw_trouble(chance)
    } else if falls_on(heal) {
        Step::Heal
    } else if falls_on(crash) {
        Step::Crash { child: chance.pick(&CHILDREN).to_owned() }
    } else if falls_on(ask) {
        let others = [Step::Probe, Step::Probe, Step::HangUp, Step::Reopen];
        chance.pick(&others[..if end == 0 { 3 } else { 4 }])
    } else if falls_on(clock) {
        Step::SetClock { by_ms: chance.pick(&[-HOUR_MS, -10_000, -50, 50, 10_000, HOUR_MS]) }
    } else {
        let keeping = chance.pick(&[0, 0, 1, 2, 100]);
        chance.pick(&[
            Step::CutPower { keeping },
            Step::CutPower { keeping },
            Step::Kill,
            Step::StopAndStart,
        ])
    }
}

fn draw_trouble(chance: &mut Chance) -> Step {
    let op = chance.pick(&[
        SimOp::Apply,
        SimOp::Apply,
        SimOp::Sync,
        SimOp::Sync,
        SimOp::Open,
        SimOp::Probe,
        SimOp::Read,
    ]);
    if chance.one_in(4) {
        return Step::Slow { op, ms: chance.pick(&[1, 10, 50, 300, 1_500, 12_000]) };
    }
    if chance.one_in(8) {
        return Step::Late { ms: chance.pick(&[0, 1, 20, 500, 12_000]) };
    }
    if chance.one_in(10) {
        return Step::FailWrites { class: chance.pick(&CLASSES) };
    }
    if chance.one_in(10) {
        return Step::Room { free_bytes: chance.pick(&[0, 1_000, 5_000, 70 << 20, 200 << 20]) };
    }
    Step::Fail(draw_fault(chance, op))
}

fn draw_fault(chance: &mut Chance, op: SimOp) -> Trouble {
    let class = chance.pick(&CLASSES);
    let how = match (op, chance.below(4)) {
        (SimOp::Apply, 0) => How::LoggedUnseen,
        (SimOp::Apply | SimOp::Sync, 1) => How::Landed,
        (SimOp::Sync, 0) => How::DropsPages,
        (SimOp::Sync, 2) => How::LandsAndDropsWhatFollows,
        (SimOp::Open | SimOp::Probe | SimOp::Apply | SimOp::Sync | SimOp::Read, _) => How::Refused,
    };
    let on = match (op, chance.below(3)) {
        (SimOp::Apply, 0) => On::Commit,
        (SimOp::Apply, 1) => On::Background,
        (SimOp::Open | SimOp::Probe | SimOp::Apply | SimOp::Sync | SimOp::Read, _) => On::Any,
    };
    let after = chance.pick(&[0, 0, 1, 3]);
    let lasts = match chance.below(6) {
        0 => Lasts::Times(3),
        1 => Lasts::UntilReopened,
        _once => Lasts::Times(1),
    };
    Trouble { op, how, class, on, after, lasts }
}
