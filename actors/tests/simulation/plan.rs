//! What happens to a node in one run, drawn from a seed before it begins: so it can be printed, replayed and cut down.

use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::node::{NodeSettings, Roles};
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::{BatcherConfig, TenantsConfig};
use ankusa_actors::store::StoreConfig;

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

/// One thing that happens.
#[derive(Clone, Debug)]
pub enum Step {
    /// Requests that arrive together.
    Send {
        hooks: u64,
        tenant: &'static str,
        sinks: usize,
    },
    /// The client of the oldest request under way goes away.
    HangUp,
    Advance {
        ms: u64,
    },
    /// Something switches a fault of the disk on.
    Fail(Fault),
    /// Nothing can be written until the disk heals.
    FillDisk(FailureClass),
    Slow {
        op: SimOp,
        ms: u64,
    },
    /// Batches of the commit lane land this late.
    Late {
        ms: u64,
    },
    Heal,
    /// A child of the tree dies of a bug.
    Crash(&'static str),
    /// Somebody asks `/ready`.
    Probe,
    /// An operator has the store reopened.
    Reopen,
    /// Somebody sets the wall clock.
    SetClock {
        by_ms: i64,
    },
    /// The machine loses power; the kernel had written the oldest of the unsynced batches.
    CutPower {
        keeping: u64,
    },
    /// The process is killed, the machine goes on.
    Kill,
    StopAndStart,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub settings: Settings,
    pub steps: Vec<Step>,
}

/// The settings that differ between runs.
#[derive(Clone, Debug)]
pub struct Settings {
    pub roles: Roles,
    pub version: ValueVersion,
    pub batcher: BatcherConfig,
    pub tenants: TenantsConfig,
    pub store: StoreConfig,
}

impl Settings {
    fn draw(chance: &mut Chance) -> Self {
        let roles = Roles { edge: true, dispatch: chance.one_in(2), storage: chance.one_in(3) };
        let batcher = BatcherConfig {
            partitions: chance.pick(&[1, 2, 3]),
            max_batch: chance.pick(&[1, 4, 256]),
            max_delay_ms: chance.pick(&[0, 0, 5]),
            max_queue: chance.pick(&[5, 10_000]),
            max_queue_bytes: chance.pick(&[60, 1 << 20]),
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
        let version = chance.pick(&[ValueVersion::V0, ValueVersion::V1]);
        Self {
            roles,
            version,
            batcher,
            tenants: TenantsConfig { max: chance.pick(&[2, 100]) },
            store,
        }
    }

    pub fn apply_to(&self, settings: &mut NodeSettings) {
        settings.roles = self.roles;
        settings.value_version = self.version;
        settings.batcher = self.batcher.clone();
        settings.tenants = self.tenants.clone();
        settings.store = self.store.clone();
    }
}

/// How often each kind of step comes, out of the sum.
#[derive(Clone, Copy)]
struct Weights {
    send: u64,
    advance: u64,
    disk: u64,
    heal: u64,
    crash: u64,
    ask: u64,
    end: u64,
}

const EVERYTHING: Weights =
    Weights { send: 30, advance: 30, disk: 14, heal: 6, crash: 6, ask: 6, end: 8 };

/// Runs differ in what goes wrong in them, so that rare meetings of two kinds are not drowned by a third.
const PROFILES: [Weights; 5] = [
    EVERYTHING,
    Weights { disk: 0, heal: 2, crash: 0, ..EVERYTHING },
    Weights { disk: 30, crash: 0, end: 2, ..EVERYTHING },
    Weights { disk: 4, crash: 20, end: 2, ..EVERYTHING },
    Weights { disk: 20, crash: 0, end: 12, ..EVERYTHING },
];

const CLASSES: [FailureClass; 5] = [
    FailureClass::NoSpace,
    FailureClass::IoError,
    FailureClass::ReadOnly,
    FailureClass::Timeout,
    FailureClass::Corruption,
];

const CHILDREN: [&str; 10] = [
    "writer",
    "writer",
    "syncer",
    "syncer",
    "store",
    "queue",
    "core",
    "batcher-1",
    "dispatch",
    "front",
];

impl Plan {
    pub fn draw(seed: u64) -> Self {
        let mut chance = Chance(seed);
        let settings = Settings::draw(&mut chance);
        let weights = chance.pick(&PROFILES);
        let count = 30 + chance.below(90);
        let steps = (0..count).map(|_| draw_step(&mut chance, weights)).collect();
        Self { seed, settings, steps }
    }
}

fn draw_step(chance: &mut Chance, weights: Weights) -> Step {
    let Weights { send, advance, disk, heal, crash, ask, end } = weights;
    let mut at = chance.below(send + advance + disk + heal + crash + ask + end);
    let mut falls_on = |weight: u64| {
        let falls = at < weight;
        at = at.wrapping_sub(weight);
        falls
    };
    if falls_on(send) {
        let hooks = chance.pick(&[1, 1, 2, 3, 12]);
        let tenant = chance.pick(&["acme", "blue", "cyan"]);
        Step::Send { hooks, tenant, sinks: chance.pick(&[0, 1, 1, 2]) }
    } else if falls_on(advance) {
        Step::Advance { ms: chance.pick(&[0, 1, 1, 5, 20, 100, 1_000, 6_000]) }
    } else if falls_on(disk) {
        draw_trouble(chance)
    } else if falls_on(heal) {
        Step::Heal
    } else if falls_on(crash) {
        Step::Crash(chance.pick(&CHILDREN))
    } else if falls_on(ask) {
        let by_ms = chance.pick(&[-10_000, -50, 50, 3_600_000]);
        chance.pick(&[
            Step::Probe,
            Step::Probe,
            Step::Reopen,
            Step::HangUp,
            Step::SetClock { by_ms },
        ])
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
        return Step::FillDisk(chance.pick(&CLASSES));
    }
    Step::Fail(draw_fault(chance, op))
}

fn draw_fault(chance: &mut Chance, op: SimOp) -> Fault {
    let class = chance.pick(&CLASSES);
    let fault = match (op, chance.below(3)) {
        (SimOp::Apply, 0) => Fault::apply_logged_unseen(class),
        (SimOp::Apply, 1) => Fault::apply_landed(class),
        (SimOp::Sync, 0) => Fault::sync_landed(class),
        (SimOp::Sync, 1) => Fault::sync_drops_pages(class),
        (SimOp::Open | SimOp::Probe | SimOp::Apply | SimOp::Sync | SimOp::Read, _) => {
            Fault::refuse(op, class)
        }
    };
    let fault = match (op, chance.below(3)) {
        (SimOp::Apply, 0) => fault.on(Lane::Commit),
        (SimOp::Apply, 1) => fault.on(Lane::Background),
        (SimOp::Open | SimOp::Probe | SimOp::Apply | SimOp::Sync | SimOp::Read, _) => fault,
    };
    let fault = fault.after(chance.pick(&[0, 0, 1, 3]));
    match chance.below(6) {
        0 => fault.times(3),
        1 => fault.until_reopened(),
        _once => fault,
    }
}
