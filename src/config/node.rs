//! Who this node is and how it is watched: the config sections `node`, `log`, `control` and `shutdown`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a node does: an element of `node.roles`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Receives hooks and commits them.
    Edge,
    /// Delivers them.
    Dispatch,
    /// Archives them. This release has no archive: hooks keep their archive obligation, and stay on disk until a
    /// release that has one runs on this store.
    Storage,
}

impl Role {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Edge => "edge",
            Self::Dispatch => "dispatch",
            Self::Storage => "storage",
        }
    }
}

/// Section `node`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NodeConfig {
    /// At least one. All run in the one process that holds the store.
    pub roles: BTreeSet<Role>,
    /// Names the folder under `data_dir` and the `instance` label of every metric: `[A-Za-z0-9_-]{1,64}`.
    pub instance: String,
    /// The store is `<data_dir>/<instance>/store`. Relative to the working directory.
    pub data_dir: PathBuf,
    /// Threads that run the node, 1 to 1024; `null` for one per core. The store and its background work have their own.
    pub runtime_workers: Option<usize>,
}

impl Default for NodeConfig {
    fn default() -> Self {
        Self {
            roles: BTreeSet::from([Role::Edge, Role::Dispatch]),
            instance: "default".to_owned(),
            data_dir: PathBuf::from("./data"),
            runtime_workers: None,
        }
    }
}

/// The least serious line that is logged: `log.level`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Debug,
    #[default]
    Info,
    Warning,
    Error,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// Section `log`. Lines go to standard error.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogConfig {
    /// `debug` writes several lines a request.
    pub level: LogLevel,
    pub format: LogFormat,
}

/// Section `control`: the unix socket `ankusa ctl` speaks to. Its file mode, 0600, is its authentication.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ControlConfig {
    /// Where the socket is, `null` for `<data_dir>/<instance>/control.sock`. At most 107 bytes: the kernel's limit.
    pub socket: Option<PathBuf>,
    /// Whether `ctl crash` may panic a child of the supervision tree. For drills.
    pub allow_crash: bool,
}

/// Section `shutdown`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShutdownConfig {
    /// How long requests already being read may take to finish after SIGTERM, in milliseconds, >= 0. Too short cuts
    /// off providers that then send again; too long outlives what a container manager grants before SIGKILL.
    pub drain_ms: u64,
}

impl Default for ShutdownConfig {
    fn default() -> Self {
        Self { drain_ms: 10_000 }
    }
}
