//! The store's floor: a writer thread that builds and applies groups, and a syncer thread behind it, as fast as they go.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::check::now_ms;
use super::database::{Database, HEAD_BYTES};
use super::{FloorError, say};
use crate::bench::process::cpu_of;
use crate::bench::requests::body;

/// Hooks of a group: what 256 connections send while the group before is on its way.
const GROUP_HOOKS: u64 = 256;

/// Groups under way: one being synced, one being applied, and what lies between.
const PIPELINED: usize = 4;

/// What one run of the store's floor cost. It is the line the process says.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::bench) struct Spent {
    /// Hooks made durable in the measured time.
    pub(in crate::bench) hooks: u64,
    pub(in crate::bench) lasted_us: u64,
    /// CPU time of the whole process, flushes and compactions included.
    pub(in crate::bench) cpu_us: u64,
}

impl Spent {
    pub(in crate::bench) fn per_second(self) -> f64 {
        self.hooks as f64 * 1e6 / self.lasted_us as f64
    }

    pub(in crate::bench) fn cpu_us_a_hook(self) -> f64 {
        self.cpu_us as f64 / self.hooks as f64
    }
}

/// A moment of the run.
struct Moment {
    at: Instant,
    cpu: Duration,
    hooks: u64,
}

/// Writes until the time is over, says what that cost, and ends.
pub(super) fn measure(
    directory: &Path,
    like: &Path,
    warm_up: Duration,
    measured: Duration,
) -> Result<(), FloorError> {
    let database = Arc::new(Database::open(directory, like)?);
    let values: Vec<Vec<u8>> =
        (0..GROUP_HOOKS).map(|number| [vec![b'h'; HEAD_BYTES], body(number)].concat()).collect();
    let durable = Arc::new(AtomicU64::new(0));
    let (applied, to_sync) = sync_channel::<()>(PIPELINED - 2);
    let syncer = {
        let (database, durable) = (Arc::clone(&database), Arc::clone(&durable));
        std::thread::spawn(move || sync_applied(&database, &to_sync, &durable))
    };
    let moment = || {
        let cpu = cpu_of("self").ok_or("cannot read the CPU time")?;
        Ok::<_, FloorError>(Moment {
            at: Instant::now(),
            cpu,
            hooks: durable.load(Ordering::Acquire),
        })
    };
    let (begun, mut first, mut seq) = (Instant::now(), None, 1);
    while begun.elapsed() < warm_up + measured {
        if first.is_none() && begun.elapsed() >= warm_up {
            first = Some(moment()?);
        }
        database.apply(seq, now_ms(), values.iter().map(Vec::as_slice))?;
        seq += GROUP_HOOKS;
        if applied.send(()).is_err() {
            break;
        }
    }
    let last = moment()?;
    drop(applied);
    syncer.join().map_err(|_| "the syncer panicked")??;
    let first = first.ok_or("nothing was measured")?;
    let micros = |time: Duration| u64::try_from(time.as_micros());
    let spent = Spent {
        hooks: last.hooks - first.hooks,
        lasted_us: micros(last.at - first.at)?,
        cpu_us: micros(last.cpu - first.cpu)?,
    };
    Ok(say(&serde_json::to_string(&spent)?)?)
}

/// One sync for every group applied so far, again and again.
fn sync_applied(
    database: &Database,
    applied: &Receiver<()>,
    durable: &AtomicU64,
) -> Result<(), FloorError> {
    while applied.recv().is_ok() {
        let groups = 1 + u64::try_from(applied.try_iter().count())?;
        database.sync()?;
        durable.fetch_add(groups * GROUP_HOOKS, Ordering::AcqRel);
    }
    Ok(())
}
