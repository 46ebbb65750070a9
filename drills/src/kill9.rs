//! SIGKILL at a random moment under load, restart on the same store and ports, again and again.
//!
//! After every kill the store is read from its files and judged as it was left: whatever was acked is delivered or there,
//! counters are counts, rows fit. At the end the node is given the time to deliver what it owes, and is judged again:
//! every 201 was delivered with its exact bytes, no refused hook ever was. One source is delivered in order, by the lane
//! its clients name: that order is judged each time, too. The two others know the keys of their provider, and one of them
//! has fifty tenants: many events are told of four times at once, and some once more a while later, over kills and restarts.
//! Each is one hook, and whoever repeats it is told which. One request in sixteen is forged and held in the pen, and one
//! tenant sends more than its limit lets through: what was held stays held, and what was refused is nowhere.
//!
//! Every [`DRAIN_EVERY`] kills the node is given that time as well. What was acked, delivered and reclaimed by then is
//! settled: it leaves the evidence, so the two hundredth kill costs no more to judge than the tenth. Nothing is forgiven:
//! a settled hook that came up again would be one no client sent, and a settled id or seq given again is remembered.
//!
//! A SIGKILL cannot see a missing fsync: what the process wrote stays in the page cache. `cut_every_op` is for that.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ankusa_drills_check::store::{PlaceKind, Store};
use ankusa_drills_check::{Dump, Evidence, Moment, SeqHistory, judge, judge_lanes};
use ankusa_drills_replay::Rng;
use serde_json::json;
use tokio::time::sleep;

use crate::drill::{Broken, CannotInject, DrillOptions, Report};
use crate::journal::Journal;
use crate::load::{Load, LoadPlan};
use crate::node::{Node, NodeSetup, limits};
use crate::reader::Reader;
use crate::repeats::Repeats;
use crate::scratch::Scratch;
use crate::stage::{on_a_runtime, start};
use crate::worker::Worker;

/// Cycles, unless asked otherwise.
const CYCLES: u64 = 20;

/// Concurrent clients.
const CLIENTS: usize = 32;

/// The kill comes this long after the load began, in milliseconds.
const KILL_AFTER_MS: std::ops::Range<u64> = 50..800;

/// Kills between two drains: a backlog builds up over them, and what is drained is settled.
const DRAIN_EVERY: u64 = 8;

/// Longest wait for the queue to drain.
const DRAINED_WITHIN: Duration = Duration::from_secs(120);

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(Drill::run(options))
}

struct Drill {
    plan: LoadPlan,
    repeats: Repeats,
    repeated: usize,
    journal: Arc<Journal>,
    next: Arc<AtomicU64>,
    setup: NodeSetup,
    reader: Reader,
    history: SeqHistory,
    report: Report,
    /// Rows that dispatch had claimed when it was killed.
    claimed: usize,
    slowest_ready: Duration,
    slowest_judgement: Duration,
    /// Ids of hooks that are settled: none of them is given again.
    given: BTreeSet<String>,
}

impl Drill {
    async fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
        let started = Instant::now();
        let scratch = Scratch::on_disk()?;
        let journal = Arc::new(Journal::new());
        let worker = Worker::start(options.seed, Arc::clone(&journal)).await?;
        let setup =
            NodeSetup::with_lanes(scratch.path(), &scratch.subdirectory("data")?, &worker.url())?
                .with_config(&json!({"http": {"routing": "tenant_path"}}))?
                .with_config(&limits())?;
        let mut drill = Self {
            plan: LoadPlan::with_repeats(options.seed).with_forgeries(),
            repeats: Repeats::default(),
            repeated: 0,
            journal,
            next: Arc::default(),
            setup,
            reader: Reader::new(&scratch.subdirectory("logs")?),
            history: SeqHistory::default(),
            report: Report::new("kill9", options.seed),
            claimed: 0,
            slowest_ready: Duration::ZERO,
            slowest_judgement: Duration::ZERO,
            given: BTreeSet::new(),
        };
        let mut rng = Rng::new(options.seed);
        let mut cycles = 0;
        while goes_on(options, cycles, started) {
            cycles += 1;
            let Some(node) = drill.start(&format!("start {cycles}")).await? else { break };
            if cycles % DRAIN_EVERY == 0 {
                drill
                    .drain_and_settle(&node, &format!("drained after kill {}", cycles - 1))
                    .await?;
            }
            let after = Duration::from_millis(
                KILL_AFTER_MS.start + rng.below(KILL_AFTER_MS.end - KILL_AFTER_MS.start),
            );
            drill.load_and_kill(node, after).await?;
            drill.judge_what_is_left(&format!("after kill {cycles}"));
        }
        drill.drain_and_stop().await?;
        let mut report = drill.finish(cycles, started);
        scratch.keep_evidence(options, &mut report);
        Ok(report)
    }

    /// Starts the node. A node that does not come up on its own store is a violation, and the end of the drill.
    async fn start(&mut self, place: &str) -> Result<Option<Node>, CannotInject> {
        let node = start(&self.setup, &self.journal, &mut self.report, place).await?;
        let ready_after = node.as_ref().map_or(Duration::ZERO, Node::ready_after);
        self.slowest_ready = self.slowest_ready.max(ready_after);
        Ok(node)
    }

    async fn load_and_kill(&self, node: Node, after: Duration) -> Result<(), CannotInject> {
        let load = Load::start(
            CLIENTS,
            self.setup.http_port(),
            self.plan,
            &self.next,
            u64::MAX,
            &self.journal,
        );
        sleep(after).await;
        node.kill()?;
        load.stop().await;
        Ok(())
    }

    /// Judges the store as the kill left it, from its files.
    fn judge_what_is_left(&mut self, place: &str) {
        match self.reader.dump(&self.setup.store()) {
            Ok(dump) => {
                let store = Store::decode(&dump);
                self.claimed += store
                    .places
                    .values()
                    .flatten()
                    .filter(|at| at.kind == PlaceKind::Claimed)
                    .count();
                self.judge(place, &dump, Moment::Crash);
                self.history.learn(&dump);
            }
            Err(error) => self.report.violated_by(format!("{place}: {error}")),
        }
    }

    /// Lets the node deliver what it owes, judges that it did, and settles it.
    async fn drain_and_settle(&mut self, node: &Node, place: &str) -> Result<(), CannotInject> {
        if !node.drain(DRAINED_WITHIN).await? {
            self.report.violated_by(format!(
                "{place}: the queue had not drained within {DRAINED_WITHIN:?}"
            ));
            return Ok(());
        }
        let dump = node.settled_dump().await?;
        self.judge(place, &dump, Moment::Drained);
        self.history.learn(&dump);
        let (answers, repeated) = (self.journal.answers(), self.journal.repeated());
        self.repeated += repeated.len();
        self.journal.settle(&self.plan);
        for id in self.repeats.settle(&self.plan, &answers, &repeated) {
            if !self.given.insert(id.clone()) {
                self.report.violated_by(format!("{place}: two requests were acked as hook {id}"));
            }
        }
        Ok(())
    }

    async fn drain_and_stop(&mut self) -> Result<(), CannotInject> {
        let Some(node) = self.start("the last start").await? else { return Ok(()) };
        self.drain_and_settle(&node, "after the drain").await?;
        let status = node.stop().await?;
        if status != "exit status: 0" {
            self.report.violated_by(format!("the node that was asked to stop ended with {status}"));
        }
        Ok(())
    }

    fn judge(&mut self, place: &str, dump: &Dump, moment: Moment) {
        let began = Instant::now();
        let (answers, repeated) = (self.journal.answers(), self.journal.repeated());
        let (requests, answered_wrong) = self.repeats.requests(&self.plan, &answers, &repeated);
        let deliveries = self.journal.deliveries();
        let evidence = Evidence {
            requests: &requests,
            deliveries: &deliveries,
            dump,
            history: &self.history,
            moment,
        };
        let mut violations = judge(&evidence);
        violations.extend(answered_wrong);
        violations.extend(judge_lanes(&self.journal.lane_requests(&self.plan), &deliveries));
        if let Some(broken) = Broken::by(violations) {
            self.report.violated(place, &broken);
        }
        self.slowest_judgement = self.slowest_judgement.max(began.elapsed());
    }

    fn finish(self, cycles: u64, started: Instant) -> Report {
        let Self { journal, mut report, claimed, repeats, repeated, slowest_ready, .. } = self;
        let (slowest_judgement, next) = (self.slowest_judgement, self.next);
        let milliseconds = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let tally = journal.tally();
        (report.acked, report.refused, report.unknown) =
            (tally.acked, tally.refused, tally.unknown);
        report.count("cycles", cycles);
        report.count("requests", next.load(Ordering::SeqCst));
        report.count("sink_requests", journal.sink_requests());
        report.count("held", tally.held);
        report.count("events_settled", repeats.count());
        report.count("told_as_duplicates", repeated);
        report.count("claimed_when_killed", claimed);
        report.count("slowest_ready_ms", milliseconds(slowest_ready));
        report.count("slowest_judgement_ms", milliseconds(slowest_judgement));
        report.elapsed_ms = started.elapsed().as_millis();
        report
    }
}

fn goes_on(options: &DrillOptions, cycles: u64, started: Instant) -> bool {
    match (options.cycles, options.lasting) {
        (Some(wanted), _) => cycles < wanted,
        (None, Some(lasting)) => started.elapsed() < lasting,
        (None, None) => cycles < CYCLES,
    }
}
