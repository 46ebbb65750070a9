//! What happens to a node in one run, decided before it begins: so it can be printed, kept, replayed and cut down.
//!
//! A plan is a text: the seed, the settings that are not the defaults, then a step a line.

use std::fmt;
use std::str::FromStr;

use ankusa_actors::dispatch::{DispatchConfig, RetryConfig};
use ankusa_actors::edge::QuarantineConfig;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::node::{NodeSettings, Roles};
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::{BatcherConfig, DedupeConfig, TenantsConfig};
use ankusa_actors::store::StoreConfig;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Requests that arrive together.
    Send {
        hooks: u64,
        tenant: String,
        sinks: usize,
        /// All of them carry this key of their provider.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        key: Option<u64>,
    },
    /// Requests that do not verify and are for the quarantine pen.
    Hold {
        hooks: u64,
    },
    /// An operator gives a tenant a rate limit, or with 0 takes it away.
    Limit {
        tenant: String,
        burst: u64,
    },
    /// The client of the oldest request under way goes away.
    HangUp,
    Advance {
        ms: u64,
    },
    /// From now on the receivers of this sink behave so.
    Sink {
        sink: usize,
        mood: Mood,
    },
    /// Something switches a fault of the disk on.
    Fail(Trouble),
    /// Nothing can be written until the disk heals.
    FailWrites {
        #[serde(with = "Class")]
        class: FailureClass,
    },
    /// Somebody else's files leave so much room.
    Room {
        free_bytes: u64,
    },
    Slow {
        #[serde(with = "Op")]
        op: SimOp,
        ms: u64,
    },
    /// Batches of the commit lane land this late.
    Late {
        ms: u64,
    },
    Heal,
    /// A child of the tree dies of a bug.
    Crash {
        child: String,
    },
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

impl Step {
    /// Whether an attempt may be made twice because of it.
    pub fn disturbs(&self) -> bool {
        match self {
            Self::Send { .. }
            | Self::Hold { .. }
            | Self::Limit { .. }
            | Self::HangUp
            | Self::Advance { .. }
            | Self::Heal
            | Self::Probe
            | Self::SetClock { .. } => false,
            Self::Sink { mood, .. } => matches!(mood, Mood::Panics | Mood::Hangs),
            Self::Fail(_)
            | Self::FailWrites { .. }
            | Self::Room { .. }
            | Self::Slow { .. }
            | Self::Late { .. }
            | Self::Crash { .. }
            | Self::Reopen
            | Self::CutPower { .. }
            | Self::Kill
            | Self::StopAndStart => true,
        }
    }
}

/// What the receivers behind a sink do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mood {
    /// A quarter of the attempts fails.
    #[default]
    Fickle,
    Takes,
    Fails,
    FailsUntil {
        ms: u64,
    },
    /// No attempt will ever be taken.
    Refuses,
    Hangs,
    Panics,
}

/// A fault of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trouble {
    #[serde(with = "Op")]
    pub op: SimOp,
    pub how: How,
    #[serde(with = "Class")]
    pub class: FailureClass,
    pub on: On,
    /// Calls that pass first.
    pub after: u32,
    pub lasts: Lasts,
}

/// How far a failing call gets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    Refused,
    LoggedUnseen,
    Landed,
    DropsPages,
    LandsAndDropsWhatFollows,
}

/// Whose applies.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum On {
    Any,
    Commit,
    Background,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lasts {
    Times(u32),
    UntilReopened,
    UntilHealed,
}

impl From<Trouble> for Fault {
    fn from(trouble: Trouble) -> Self {
        let Trouble { op, how, class, on, after, lasts } = trouble;
        let fault = match how {
            How::Refused => Self::refuse(op, class),
            How::LoggedUnseen => Self::apply_logged_unseen(class),
            How::Landed if op == SimOp::Sync => Self::sync_landed(class),
            How::Landed => Self::apply_landed(class),
            How::DropsPages => Self::sync_drops_pages(class),
            How::LandsAndDropsWhatFollows => Self::sync_lands_and_drops_what_follows(class),
        };
        let fault = match on {
            On::Any => fault,
            On::Commit => fault.on(Lane::Commit),
            On::Background => fault.on(Lane::Background),
        };
        match lasts {
            Lasts::Times(times) => fault.after(after).times(times),
            Lasts::UntilReopened => fault.after(after).until_reopened(),
            Lasts::UntilHealed => fault.after(after).until_healed(),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "FailureClass", rename_all = "snake_case")]
enum Class {
    NoSpace,
    IoError,
    ReadOnly,
    Corruption,
    Busy,
    Timeout,
    NotRunning,
    Other,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "SimOp", rename_all = "snake_case")]
enum Op {
    Open,
    Probe,
    Apply,
    Sync,
    Read,
}

/// The settings that differ between runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// Which roles run beside the edge.
    pub dispatch_runs: bool,
    pub storage_runs: bool,
    /// Values carry their version.
    pub v1: bool,
    pub batcher: BatcherConfig,
    pub tenants: TenantsConfig,
    pub dedupe: DedupeConfig,
    pub store: StoreConfig,
    pub dispatch: DispatchConfig,
    pub quarantine: QuarantineConfig,
}

impl Default for Settings {
    /// As shipped, but for waits that would make a run long.
    fn default() -> Self {
        Self {
            dispatch_runs: true,
            storage_runs: false,
            v1: false,
            batcher: BatcherConfig::default(),
            tenants: TenantsConfig::default(),
            dedupe: DedupeConfig::default(),
            store: StoreConfig::default(),
            dispatch: DispatchConfig {
                attempt_timeout_ms: 5_000,
                breaker_open_ms: 500,
                breaker_max_open_ms: 2_000,
                retry: RetryConfig { max_ms: 2_000, ..RetryConfig::default() },
                ..DispatchConfig::default()
            },
            quarantine: QuarantineConfig::default(),
        }
    }
}

impl Settings {
    pub fn apply_to(&self, settings: &mut NodeSettings) {
        settings.roles =
            Roles { edge: true, dispatch: self.dispatch_runs, storage: self.storage_runs };
        settings.value_version = if self.v1 { ValueVersion::V1 } else { ValueVersion::V0 };
        settings.batcher = self.batcher.clone();
        settings.tenants = self.tenants.clone();
        settings.dedupe = self.dedupe.clone();
        settings.store = self.store.clone();
        settings.dispatch = self.dispatch.clone();
        settings.quarantine = self.quarantine.clone();
    }

    /// What is not the default.
    fn differences(&self) -> Value {
        let (own, default) = (serde_json::to_value(self), serde_json::to_value(Self::default()));
        differences(&own.unwrap(), &default.unwrap()).unwrap_or_else(|| Map::new().into())
    }

    /// These with one difference less, each of them.
    pub fn simpler(&self) -> Vec<Self> {
        without_one(&self.differences()).iter().map(|less| Self::with(less).unwrap()).collect()
    }

    /// The defaults, but for what is given.
    pub fn with(differences: &Value) -> Result<Self, serde_json::Error> {
        let mut all = serde_json::to_value(Self::default())?;
        overlay(&mut all, differences);
        serde_json::from_value(all)
    }
}

fn differences(own: &Value, default: &Value) -> Option<Value> {
    let (Value::Object(own), Value::Object(default)) = (own, default) else {
        return (own != default).then(|| own.clone());
    };
    let differ = own.iter().filter_map(|(key, own)| {
        Some((key.clone(), differences(own, default.get(key).unwrap_or(&Value::Null))?))
    });
    let differ: Map<_, _> = differ.collect();
    (!differ.is_empty()).then_some(Value::Object(differ))
}

fn overlay(all: &mut Value, over: &Value) {
    match (all, over) {
        (Value::Object(all), Value::Object(over)) => {
            for (key, over) in over {
                overlay(all.entry(key).or_insert(Value::Null), over);
            }
        }
        (all, over) => *all = over.clone(),
    }
}

fn without_one(differences: &Value) -> Vec<Value> {
    let Value::Object(fields) = differences else { return Vec::new() };
    let mut simpler = Vec::new();
    for (key, value) in fields {
        let mut less = fields.clone();
        less.remove(key);
        simpler.push(Value::Object(less));
        for value in without_one(value) {
            let mut less = fields.clone();
            less.insert(key.clone(), value);
            simpler.push(Value::Object(less));
        }
    }
    simpler
}

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    pub settings: Settings,
    pub steps: Vec<Step>,
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "settings {}", self.settings.differences())?;
        for step in &self.steps {
            writeln!(f, "{}", serde_json::to_string(step).map_err(|_| fmt::Error)?)?;
        }
        Ok(())
    }
}

impl FromStr for Plan {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let lines = text.lines().map(str::trim);
        let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut head = |name: &str| {
            let line = lines.next().unwrap_or_default();
            let rest = line.strip_prefix(name).and_then(|rest| rest.strip_prefix(' '));
            rest.ok_or_else(|| format!("{line:?} is not {name}"))
        };
        let seed = head("seed")?.parse().map_err(|error| format!("the seed: {error}"))?;
        let settings = head("settings")?;
        let settings = serde_json::from_str(settings).and_then(|value| Settings::with(&value));
        let settings = settings.map_err(|error| format!("the settings: {error}"))?;
        let step =
            |line: &str| serde_json::from_str(line).map_err(|error| format!("{line}: {error}"));
        let steps = lines.map(step).collect::<Result<_, _>>()?;
        Ok(Self { seed, settings, steps })
    }
}
