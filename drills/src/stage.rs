//! What live drills share: one store with its clients and its sink, the ledgers of both, and the judge.

use std::future::Future;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ankusa_drills_check::store::{PlaceKind, Store};
use ankusa_drills_check::{Dump, Evidence, Moment, Outcome, SeqHistory, judge};
use ankusa_drills_replay::Rng;
use tokio::runtime::Runtime;
use tokio::time::sleep;

use crate::drill::{Broken, CannotInject, DrillOptions, OrCannot, Report};
use crate::journal::Journal;
use crate::load::{Load, LoadPlan};
use crate::node::{Node, NodeSetup, NotReady};
use crate::reader::Reader;
use crate::scratch::Scratch;
use crate::timings::{Span, millis};
use crate::worker::Worker;

/// Longest wait for the queue to drain.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);

/// Longest wait for a node to take hooks again once nothing is broken any more. A bound on hanging, not a figure.
pub const AGAIN_WITHIN: Duration = Duration::from_secs(90);

/// Wait between two looks at something that will come about.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Runs a drill on a runtime of its own.
///
/// # Errors
/// What the drill says, or that there is no runtime.
pub fn on_a_runtime<T>(
    drill: impl Future<Output = Result<T, CannotInject>>,
) -> Result<T, CannotInject> {
    runtime()?.block_on(drill)
}

/// What the futures of a drill run on.
///
/// # Errors
/// When there are no threads for it.
pub fn runtime() -> Result<Runtime, CannotInject> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().or_cannot("start a runtime")
}

/// Starts a node. One that does not come up on its own store is a violation, and the end of the drill.
///
/// # Errors
/// When no process can be made, or it never came up at all.
pub async fn start(
    setup: &NodeSetup,
    journal: &Journal,
    report: &mut Report,
    place: &str,
) -> Result<Option<Node>, CannotInject> {
    match setup.start().await {
        Ok(node) => Ok(Some(node)),
        Err(NotReady::CannotStart(error)) => {
            Err(CannotInject(format!("cannot start the node: {error}")))
        }
        Err(down) if journal.tally().acked == 0 => Err(CannotInject(down.to_string())),
        Err(down) => {
            report.violated_by(format!("{place}: {down}"));
            Ok(None)
        }
    }
}

/// One store, and everything around it.
pub struct Stage {
    pub options: DrillOptions,
    pub setup: NodeSetup,
    pub journal: Arc<Journal>,
    pub report: Report,
    pub rng: Rng,
    /// Rows that dispatch had claimed when the store was looked at.
    pub claimed: usize,
    plan: LoadPlan,
    next: Arc<AtomicU64>,
    reader: Reader,
    history: SeqHistory,
    scratch: Scratch,
    /// It stops when it is dropped.
    _worker: Worker,
    began: Instant,
    slowest_ready: Duration,
    /// When hooks were last taken again.
    recovered: Option<Instant>,
}

/// The node's `store.reopen_min_interval_ms`, and a little.
const BETWEEN_REOPENS: Duration = Duration::from_millis(5_500);

impl Stage {
    /// A stage with the store in `data_dir`, and a sink that takes as many milliseconds for each answer as are drawn from
    /// `sink_delay_ms`.
    ///
    /// # Errors
    /// When something of it cannot be made.
    pub async fn new(
        drill: &'static str,
        options: &DrillOptions,
        scratch: Scratch,
        data_dir: &Path,
        sink_delay_ms: Range<u64>,
    ) -> Result<Self, CannotInject> {
        let journal = Arc::new(Journal::new());
        let worker = Worker::slow(options.seed, Arc::clone(&journal), sink_delay_ms).await?;
        let setup = NodeSetup::new(scratch.path(), data_dir, &worker.url())?;
        let reader = Reader::new(&scratch.subdirectory("logs")?);
        Ok(Self {
            options: options.clone(),
            setup,
            journal,
            report: Report::new(drill, options.seed),
            rng: Rng::new(options.seed),
            claimed: 0,
            plan: LoadPlan::new(options.seed),
            next: Arc::default(),
            reader,
            history: SeqHistory::default(),
            scratch,
            _worker: worker,
            began: Instant::now(),
            slowest_ready: Duration::ZERO,
            recovered: None,
        })
    }

    /// A stage whose store lies in its own scratch directory, with a sink that answers at once.
    ///
    /// # Errors
    /// When something of it cannot be made.
    pub async fn plain(
        drill: &'static str,
        options: &DrillOptions,
        scratch: Scratch,
    ) -> Result<Self, CannotInject> {
        let data_dir = scratch.subdirectory("data")?;
        Self::new(drill, options, scratch, &data_dir, 0..1).await
    }

    /// A directory of the drill's own.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn subdirectory(&self, name: &str) -> Result<PathBuf, CannotInject> {
        self.scratch.subdirectory(name)
    }

    /// Whether another round is wanted after `rounds` of them; `default` where nothing was asked for.
    #[must_use]
    pub fn goes_on(&self, rounds: u64, default: u64) -> bool {
        match (self.options.cycles, self.options.lasting) {
            (Some(wanted), _) => rounds < wanted,
            (None, Some(lasting)) => self.began.elapsed() < lasting,
            (None, None) => rounds < default,
        }
    }

    /// Milliseconds drawn from a range.
    pub fn draw_ms(&mut self, range: &Range<u64>) -> Duration {
        let spread = range.end.saturating_sub(range.start).max(1);
        Duration::from_millis(range.start + self.rng.below(spread))
    }

    /// Starts the node. A node that does not come up on its own store is a violation, and the end of the drill.
    ///
    /// # Errors
    /// When no process can be made, or it never came up at all.
    pub async fn start(&mut self, place: &str) -> Result<Option<Node>, CannotInject> {
        let node = start(&self.setup, &self.journal, &mut self.report, place).await?;
        let ready_after = node.as_ref().map_or(Duration::ZERO, Node::ready_after);
        self.slowest_ready = self.slowest_ready.max(ready_after);
        Ok(node)
    }

    /// Clients at work.
    #[must_use]
    pub fn load(&self, clients: usize) -> Load {
        let port = self.setup.http_port();
        Load::start(clients, port, self.plan, &self.next, u64::MAX, &self.journal)
    }

    /// The next request of the plan, for a client of the drill's own. Until it is answered its outcome is unknown.
    #[must_use]
    pub fn draw_request(&self) -> (u64, &'static str, Vec<u8>) {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        self.journal.sending(number);
        (number, self.plan.source(number).id, self.plan.body(number))
    }

    /// The number of the next request.
    #[must_use]
    pub fn next_number(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// What clients waited for since then.
    #[must_use]
    pub fn since(&self, from: Instant) -> Span {
        self.journal.timings().since(from)
    }

    /// Waits until `count` hooks that were acked after `from`. False when that takes longer than `within`.
    pub async fn acks(&self, from: Instant, count: usize, within: Duration) -> bool {
        let began = Instant::now();
        while self.since(from).acked() < count {
            if began.elapsed() >= within {
                return false;
            }
            sleep(LOOK_AGAIN).await;
        }
        true
    }

    /// Waits until the store may be reopened at once again: what a fault costs is then not counted with what the one
    /// before it still costs.
    pub async fn rest(&self) {
        if let Some(recovered) = self.recovered {
            sleep(BETWEEN_REOPENS.saturating_sub(recovered.elapsed())).await;
        }
    }

    /// Waits until hooks are taken again, and answers how long after `from` the first was. Else it is a violation.
    pub async fn takes_hooks_again(&mut self, place: &str, from: Instant) -> Option<Duration> {
        if self.acks(from, 20, AGAIN_WITHIN).await {
            self.recovered = Some(Instant::now());
            return self.since(from).first_ack.map(|first| first.duration_since(from));
        }
        self.report.violated_by(format!("{place}: no hooks are taken after {AGAIN_WITHIN:?}"));
        None
    }

    /// Judges the store of a process that is gone or does not move, from its files.
    pub fn judge_files(&mut self, place: &str) {
        match self.reader.dump(&self.setup.store()) {
            Ok(dump) => {
                let store = Store::decode(&dump);
                let places = store.places.values().flatten();
                self.claimed += places.filter(|at| at.kind == PlaceKind::Claimed).count();
                self.judge(place, &dump, Moment::Crash);
                self.history.learn(&dump);
            }
            Err(error) => self.report.violated_by(format!("{place}: {error}")),
        }
    }

    /// Lets the node deliver what it owes, and judges that everything was.
    ///
    /// # Errors
    /// When the node does not answer.
    pub async fn drain_and_judge(&mut self, node: &Node, place: &str) -> Result<(), CannotInject> {
        if !node.drain(DRAINED_WITHIN).await? {
            self.report.violated_by(format!(
                "{place}: the queue had not drained after {DRAINED_WITHIN:?}"
            ));
        }
        let dump = node.settled_dump().await?;
        self.judge(place, &dump, Moment::Drained);
        self.history.learn(&dump);
        Ok(())
    }

    /// Asks the node to stop, and holds it to ending well.
    ///
    /// # Errors
    /// When it cannot be asked, or does not end.
    pub async fn stop(&mut self, node: Node, place: &str) -> Result<(), CannotInject> {
        let status = node.stop().await?;
        if status != "exit status: 0" {
            self.report.violated_by(format!(
                "{place}: the node that was asked to stop ended with {status}"
            ));
        }
        Ok(())
    }

    fn judge(&mut self, place: &str, dump: &Dump, moment: Moment) {
        let (requests, deliveries) = (self.journal.requests(&self.plan), self.journal.deliveries());
        let evidence = Evidence {
            requests: &requests,
            deliveries: &deliveries,
            dump,
            history: &self.history,
            moment,
        };
        if let Some(broken) = Broken::by(judge(&evidence)) {
            self.report.violated(place, &broken);
        }
    }

    /// Requests of these numbers that were accepted without an answer: nobody was told, and yet they were delivered.
    #[must_use]
    pub fn accepted_unanswered(&self, numbers: Range<u64>) -> usize {
        let delivered: std::collections::BTreeSet<_> =
            self.journal.deliveries().into_iter().map(|seen| seen.body).collect();
        numbers
            .filter(|number| self.journal.outcome(*number) == Some(Outcome::Unknown))
            .filter(|number| delivered.contains(&self.plan.request(*number, Outcome::Unknown).body))
            .count()
    }

    /// The report, with what every live drill counts.
    #[must_use]
    pub fn conclude(self, rounds: u64) -> Report {
        let Self { journal, mut report, next, began, slowest_ready, scratch, options, .. } = self;
        let tally = journal.tally();
        (report.acked, report.refused, report.unknown) =
            (tally.acked, tally.refused, tally.unknown);
        report.count("cycles", rounds);
        report.count("requests", next.load(Ordering::SeqCst));
        report.count("sink_requests", journal.deliveries().len());
        report.count("slowest_ready_ms", millis(slowest_ready));
        report.elapsed_ms = began.elapsed().as_millis();
        scratch.keep_evidence(&options, &mut report);
        report
    }
}
