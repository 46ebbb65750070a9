//! What the process needs of the host before it opens anything.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing::{info, warn};

use crate::config::Config;

/// Rust ignores SIGPIPE by itself; this one would kill the process at a full quota.
pub(super) const SIGXFSZ: i32 = rustix::process::Signal::XFSZ.as_raw();

/// Descriptors beside RocksDB's files and the connections: logs, sockets, sinks.
const SPARE: u64 = 256;

/// Raises the descriptor limit as far as it goes, and refuses to run with fewer than the store needs.
pub(super) fn raise(config: &Config) -> Result<(), String> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: maximum, maximum };
    // Raising within the hard limit needs no privilege; where it fails all the same, the check below decides.
    let _ = setrlimit(Resource::Nofile, raised);
    let have = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let files = u64::from(config.queue.rocksdb.max_open_files);
    let need = files.saturating_add(SPARE);
    if have < need {
        return Err(format!(
            "{have} open files are allowed, queue.rocksdb.max_open_files = {files} needs {need}: raise the limit \
             (ulimit -n, LimitNOFILE=) or lower the key"
        ));
    }
    info!(before = current, now = have, "open files allowed");
    let connections = u64::try_from(config.http.max_connections).unwrap_or(u64::MAX);
    if have < need.saturating_add(connections) {
        warn!(
            have,
            "fewer open files are allowed than queue.rocksdb.max_open_files and http.max_connections together: past \
             them connections wait"
        );
    }
    Ok(())
}
