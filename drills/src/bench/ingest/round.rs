//! One round: every floor and the node, one after the other, on empty stores of the same disk.

use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use crate::bench::clients::{self, Answers, Pace, Plan};
use crate::bench::floor::{Floor, Spent, fsync};
use crate::bench::histogram::Histogram;
use crate::bench::node::{Counted, Node, Serves};
use crate::bench::process::Process;
use crate::bench::requests::Requests;
use crate::drill::{CannotInject, OrCannot};

/// Of a load, before it is measured: connections are made, memory is touched, the first fsyncs grow the log.
const WARM_UP_MAX: Duration = Duration::from_secs(1);

/// How everything is run.
pub(super) struct Setup {
    /// Where stores are made and removed.
    pub(super) directory: PathBuf,
    /// A store of the node, for its options.
    pub(super) like: PathBuf,
    pub(super) connections: usize,
    /// Of every load.
    pub(super) measured: Duration,
    pub(super) requests: Rc<Requests>,
}

/// What a closed load of many connections made of a server.
#[derive(Clone, Debug)]
pub(super) struct Peak {
    pub(super) per_second: f64,
    /// CPU of the server for an acked hook, in microseconds.
    pub(super) cpu_us: f64,
    pub(super) p50_ms: f64,
    pub(super) p99_ms: f64,
    pub(super) refused: u64,
}

/// What one server was found to do.
#[derive(Clone, Debug)]
pub(super) struct Served {
    pub(super) peak: Peak,
    /// Answers to one connection.
    pub(super) low: Histogram,
    /// Answers at half the peak rate.
    pub(super) half: Histogram,
}

/// Everything measured in one round.
#[derive(Clone, Debug)]
pub(super) struct Round {
    pub(super) fsync: Histogram,
    pub(super) http: Served,
    pub(super) store: Spent,
    pub(super) end_to_end: Served,
    pub(super) node: Served,
    pub(super) fsyncs_a_hook: f64,
    pub(super) bytes_a_hook: f64,
}

impl Setup {
    fn warm_up(&self) -> Duration {
        WARM_UP_MAX.min(self.measured / 2)
    }

    fn plan(&self, port: u16, connections: usize, pace: Pace) -> Plan {
        Plan { port, connections, pace, warm_up: self.warm_up(), measured: self.measured }
    }

    /// Does all of it once.
    pub(super) fn round(&self) -> Result<Round, CannotInject> {
        let http = self.floor(Floor::Http, "http")?;
        let store = self.store()?;
        let end_to_end = self.floor(Floor::EndToEnd, "end-to-end")?;
        let directory = Fresh::below(&self.directory, "node")?;
        let node = Node::start(&directory.0, Serves::AcksAndObligations)?;
        // What a disk does changes by the second: the low load is held against what it did just before and just after.
        let mut fsync = self.fsync()?;
        let low = self.load(node.http_port, 1, Pace::Closed, || node.cpu())?.latency;
        fsync.add(&self.fsync()?);
        let (peak, (fsyncs_a_hook, bytes_a_hook)) = self.node_peak(&node)?;
        let half = Pace::PerSecond(peak.per_second / 2.0);
        let half = self.load(node.http_port, self.connections, half, || node.cpu())?.latency;
        let node = Served { peak, low, half };
        Ok(Round { fsync, http, store, end_to_end, node, fsyncs_a_hook, bytes_a_hook })
    }

    fn fsync(&self) -> Result<Histogram, CannotInject> {
        fsync::measure(&self.directory, self.measured / 2).or_cannot("sync a file")
    }

    fn store(&self) -> Result<Spent, CannotInject> {
        let directory = Fresh::below(&self.directory, "store")?;
        let line = self.start(Floor::Store, &directory.0)?.line()?;
        serde_json::from_str(&line).or_cannot("read what the store's floor said")
    }

    /// One connection, the peak, and half of it, of a floor that serves.
    fn floor(&self, floor: Floor, name: &str) -> Result<Served, CannotInject> {
        let directory = Fresh::below(&self.directory, name)?;
        let (floor, port) = self.serving(floor, &directory.0)?;
        let low = self.load(port, 1, Pace::Closed, || floor.cpu())?.latency;
        let peak = Peak::of(&self.load(port, self.connections, Pace::Closed, || floor.cpu())?);
        let half = Pace::PerSecond(peak.per_second / 2.0);
        let half = self.load(port, self.connections, half, || floor.cpu())?.latency;
        Ok(Served { peak, low, half })
    }

    /// The peak, and how many fsyncs and bytes a hook cost in it.
    fn node_peak(&self, node: &Node) -> Result<(Peak, (f64, f64)), CannotInject> {
        let plan = self.plan(node.http_port, self.connections, Pace::Closed);
        let look = async || node.counted().await;
        let answers = clients::run(plan, &self.requests, || node.cpu(), look)?;
        let (first, last) = answers.seen;
        let hooks = last.hooks - first.hooks;
        let a_hook = |of: fn(Counted) -> f64| (of(last) - of(first)) / hooks;
        let counted = (a_hook(|counted| counted.fsyncs), a_hook(|counted| counted.bytes));
        Ok((Peak::of(&answers), counted))
    }

    fn load(
        &self,
        port: u16,
        connections: usize,
        pace: Pace,
        cpu: impl Fn() -> Result<Duration, CannotInject>,
    ) -> Result<Answers<()>, CannotInject> {
        clients::run(self.plan(port, connections, pace), &self.requests, cpu, async || Ok(()))
    }

    fn start(&self, floor: Floor, directory: &Path) -> Result<Process, CannotInject> {
        let store = directory.join("store");
        let arguments = floor.arguments(&store, &self.like, self.warm_up(), self.measured);
        Process::start("a floor", arguments, &directory.join("floor.log"))
    }

    /// A floor that has said its port.
    fn serving(&self, floor: Floor, directory: &Path) -> Result<(Process, u16), CannotInject> {
        let mut process = self.start(floor, directory)?;
        let port = process.line()?.parse().or_cannot("read the port of a floor")?;
        Ok((process, port))
    }
}

impl Peak {
    fn of<T>(answers: &Answers<T>) -> Self {
        Self {
            per_second: answers.per_second(),
            cpu_us: answers.cpu_us(),
            p50_ms: answers.latency.percentile_ms(50),
            p99_ms: answers.latency.percentile_ms(99),
            refused: answers.refused,
        }
    }
}

/// A new directory, gone with everything in it when this is dropped: what one store left is not the next one's burden.
struct Fresh(PathBuf);

impl Fresh {
    fn below(directory: &Path, name: &str) -> Result<Self, CannotInject> {
        let path = directory.join(name);
        std::fs::create_dir(&path).or_cannot(format_args!("make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        // The whole bench's directory is removed at the end anyway.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
