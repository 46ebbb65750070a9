//! One trial: a node, a small load, one fault.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ankusa_drills_check::{Evidence, Moment, SeqHistory, judge};
use ankusa_drills_replay::control::Word;
use ankusa_drills_replay::{Disk, Op, Policy, decode};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::store::Held;
use crate::drill::{Broken, CannotInject, OrCannot, Report, Verdict};
use crate::journal::{Journal, Tally};
use crate::load::{Load, LoadPlan};
use crate::node::{Node, NodeSetup, NotReady};
use crate::recorded::fault::{Calls, Fault};
use crate::recorded::images::{self, NAME_RULE, Outcome, Recording};
use crate::recorded::recorder::Recorder;
use crate::recorded::tell;
use crate::recorded::timeline::{Cut, Past, Timeline};
use crate::scratch::Scratch;
use crate::worker::Worker;

/// Hooks sent, and by how many clients.
const HOOKS: u64 = 300;
const CLIENTS: usize = 16;

/// How long a fault stays that does not go by itself.
const HOLD: Duration = Duration::from_millis(300);

/// Longest wait for all of the load to be answered, for a hook to be taken again, and for everything to be delivered.
const ANSWERED_WITHIN: Duration = Duration::from_secs(60);
const AGAIN_WITHIN: Duration = Duration::from_secs(20);
const DRAINED_WITHIN: Duration = Duration::from_secs(60);

/// Wait between two looks at something that will come about.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Cuts judged after a fault, in each of these shapes: so many right after it, so many before hooks are acked again (what was
/// refused in between must be gone durably), and so many spread over all that follows.
const CUTS: usize = 8;
const POLICIES: [Policy; 3] = [Policy::DropUnsynced, Policy::KeepAll, Policy::Torn512];

/// A trial to be run.
#[derive(Clone, Copy)]
pub(super) struct Trial<'a> {
    pub(super) seed: u64,
    pub(super) fault: Fault,
    pub(super) held: Option<&'a Held>,
    pub(super) cuts_power: bool,
    pub(super) scratch: &'a Scratch,
}

/// How a trial ended.
#[derive(Clone, Debug, Default)]
pub(super) struct Ended {
    pub(super) fired: bool,
    pub(super) violated: bool,
    /// The node did not boot at first. What it should never do where nothing fired.
    pub(super) boot_refused: bool,
    pub(super) tally: Tally,
    pub(super) again_after: Duration,
    pub(super) took: Duration,
    pub(super) place: String,
    pub(super) images: Outcome,
    /// What is left of the countdown.
    pub(super) left: u64,
}

/// A trial at work.
struct Stage<'a> {
    trial: Trial<'a>,
    recorder: Arc<Recorder>,
    journal: Arc<Journal>,
    setup: NodeSetup,
    /// The same node on a disk that works.
    healthy: NodeSetup,
    plan: LoadPlan,
    first: u64,
    next: Arc<AtomicU64>,
    healer: Option<JoinHandle<Result<Instant, CannotInject>>>,
    /// It stops when it is dropped.
    _worker: Worker,
}

/// What must not happen, by the invariant's number and in words.
type Wrong = (&'static str, String);

impl Trial<'_> {
    /// Runs it. What is violated goes to the report.
    pub(super) async fn run(self, report: &mut Report) -> Result<Ended, CannotInject> {
        let began = Instant::now();
        let room = self.scratch.room()?;
        let mut stage = Stage::new(self, &room).await?;
        let place = self.fault.place();
        let mut ended = Ended::default();
        let mut found = Report::new(report.drill, report.seed);
        if let Err((invariant, what)) = stage.play(&place, &mut ended, &mut found).await? {
            found.violated_as(invariant, format!("{place}: {what}"));
        }
        ended.tally = stage.journal.tally();
        if self.cuts_power && ended.fired && !ended.boot_refused {
            ended.images = stage.judge_images(&place, &room, &mut found)?;
        }
        ended.violated = found.verdict == Verdict::Violated;
        report.take(found);
        (ended.took, ended.place) = (began.elapsed(), place);
        Ok(ended)
    }
}

impl<'a> Stage<'a> {
    async fn new(trial: Trial<'a>, room: &Scratch) -> Result<Self, CannotInject> {
        let recorder = Arc::new(Recorder::new(room)?);
        if let Some(held) = trial.held {
            held.copy_to(recorder.root())?;
        }
        let journal = if trial.cuts_power {
            Journal::marking(recorder.log()).or_cannot("open the operation log")?
        } else {
            Journal::new()
        };
        let journal = Arc::new(journal);
        let worker = Worker::start(trial.seed, Arc::clone(&journal)).await?;
        let healthy = NodeSetup::new(room.path(), recorder.root(), &worker.url())?;
        let environment = if trial.cuts_power {
            recorder.environment()
        } else {
            recorder.environment_of_faults()
        };
        let first = trial.held.map_or(0, Held::end);
        Ok(Self {
            trial,
            setup: healthy.clone().with_environment(environment),
            healthy,
            recorder,
            journal,
            plan: LoadPlan::new(trial.seed),
            first,
            next: Arc::new(AtomicU64::new(first)),
            healer: None,
            _worker: worker,
        })
    }

    /// From the first start to the clean stop.
    async fn play(
        &mut self,
        place: &str,
        ended: &mut Ended,
        found: &mut Report,
    ) -> Result<Result<(), Wrong>, CannotInject> {
        let fault = self.trial.fault;
        self.recorder.arm(&fault)?;
        let (recorder, hold) =
            (Arc::clone(&self.recorder), if fault.sticky { HOLD } else { Duration::ZERO });
        self.healer = Some(tokio::spawn(async move { recorder.heal_after(hold).await }));
        let mut node = match self.boot(ended).await? {
            Ok(node) => node,
            Err(wrong) => return Ok(Err(wrong)),
        };
        let played = self.load_and_drain(&mut node, ended).await;
        ended.left = self.recorder.get(countdown(fault.calls))?;
        ended.fired = self.recorder.has_fired()?;
        self.recorder.heal()?;
        if let Some(healer) = self.healer.take() {
            healer.abort();
        }
        match played {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => return Ok(Err(wrong)),
            // It does not answer: because it is gone?
            Err(error) => {
                return match node.ended(Duration::ZERO).await? {
                    Some(status) => Ok(Err(died(status, &node))),
                    None => Err(error),
                };
            }
        }
        let dump = node.settled_dump().await?;
        let mut requests = self.trial.held.map(|held| held.requests.clone()).unwrap_or_default();
        requests.extend(self.journal.requests(&self.plan));
        let evidence = Evidence {
            requests: &requests,
            deliveries: &self.journal.deliveries(),
            dump: &dump,
            history: &SeqHistory::default(),
            moment: Moment::Drained,
        };
        if let Some(broken) = Broken::by(judge(&evidence)) {
            found.violated(place, &broken);
        }
        let status = node.stop().await?;
        if status != "exit status: 0" {
            return Ok(Err((
                "I11",
                format!("the node that was asked to stop ended with {status}"),
            )));
        }
        Ok(Ok(()))
    }

    /// Starts the node. On a disk that fails it may refuse to boot; then it is started again once the disk works.
    async fn boot(&mut self, ended: &mut Ended) -> Result<Result<Node, Wrong>, CannotInject> {
        let down = match self.setup.start().await {
            Ok(node) => return Ok(Ok(node)),
            Err(down @ NotReady::CannotStart(_)) => return Err(CannotInject(down.to_string())),
            Err(down @ NotReady::TooLate { .. }) => return Ok(Err(("I11", down.brief()))),
            Err(down @ NotReady::Ended { .. }) => down,
        };
        if !self.recorder.has_fired()? {
            return Err(CannotInject(format!("start the node: {down}")));
        }
        (ended.fired, ended.boot_refused) = (true, true);
        self.healed().await?;
        match self.healthy.start().await {
            Ok(node) => Ok(Ok(node)),
            Err(still) => {
                let first = down.brief();
                Ok(Err(("I11", format!("refused to boot ({first}), and again: {}", still.brief()))))
            }
        }
    }

    /// When the fault was healed.
    async fn healed(&mut self) -> Result<Instant, CannotInject> {
        match self.healer.take() {
            Some(healer) => healer.await.or_cannot("heal the fault")?,
            None => Ok(Instant::now()),
        }
    }

    async fn load_and_drain(
        &mut self,
        node: &mut Node,
        ended: &mut Ended,
    ) -> Result<Result<(), Wrong>, CannotInject> {
        let end = self.first + HOOKS;
        let load = self.load(CLIENTS, end);
        let answered = tokio::select! {
            () = load.finish() => true,
            gone = node.ended(ANSWERED_WITHIN) => match gone? {
                Some(status) => return Ok(Err(died(status, node))),
                None => false,
            },
        };
        if !answered {
            return Ok(Err(("I11", format!("not all were answered within {ANSWERED_WITHIN:?}"))));
        }
        if self.recorder.has_fired()?
            && let Err(wrong) = self.takes_hooks_again(ended).await?
        {
            return Ok(Err(wrong));
        }
        let fired_before = self.recorder.has_fired()?;
        if !node.drain(DRAINED_WITHIN).await? {
            let what = format!("the queue had not drained after {DRAINED_WITHIN:?}");
            return Ok(Err(("I12", what)));
        }
        if self.recorder.has_fired()? && !fired_before {
            if let Err(wrong) = self.takes_hooks_again(ended).await? {
                return Ok(Err(wrong));
            }
            node.drain(DRAINED_WITHIN).await?;
        }
        Ok(Ok(()))
    }

    fn load(&self, clients: usize, end: u64) -> Load {
        let port = self.setup.http_port();
        Load::start(clients, port, self.plan, &self.next, end, &self.journal)
    }

    /// Sends hooks until one is acked.
    async fn takes_hooks_again(
        &mut self,
        ended: &mut Ended,
    ) -> Result<Result<(), Wrong>, CannotInject> {
        let healed = self.healed().await?;
        let before = self.journal.tally().acked;
        let probe = self.load(1, u64::MAX);
        let began = Instant::now();
        while self.journal.tally().acked == before && began.elapsed() < AGAIN_WITHIN {
            sleep(LOOK_AGAIN).await;
        }
        let again = self.journal.tally().acked > before;
        if self.trial.fault.sticky {
            ended.again_after = ended.again_after.max(healed.elapsed());
        }
        if again {
            probe.stop().await;
            return Ok(Ok(()));
        }
        Ok(Err(("I12", format!("no hook was taken within {AGAIN_WITHIN:?} of the heal"))))
    }

    /// The disk as a power cut after the fault could have left it.
    fn judge_images(
        &self,
        place: &str,
        room: &Scratch,
        found: &mut Report,
    ) -> Result<Outcome, CannotInject> {
        let log = self.recorder.read_log()?;
        let ops = decode(&log).or_cannot("read the operation log")?;
        let numbers = self.first..self.next.load(Ordering::SeqCst);
        let timeline = Timeline::new(&ops, self.plan, numbers, Past::default());
        let failed = ops.iter().position(|op| matches!(op, Op::SyncFailed { .. })).unwrap_or(0);
        let cuts = cuts_after(&timeline, failed);
        let base = Disk::new(&self.recorder.root().display().to_string(), NAME_RULE);
        let recording = Recording {
            base: &base,
            ops: &ops,
            timeline: &timeline,
            history: &SeqHistory::default(),
            seed: self.trial.seed,
            policies: &POLICIES,
            draws: 1,
        };
        let outcome = images::judge_all(recording, &cuts, room)?;
        tell(found, &format!("{place}; "), outcome.findings.clone());
        Ok(outcome)
    }
}

/// The cuts to judge, in order.
fn cuts_after(timeline: &Timeline, failed: usize) -> Vec<Cut> {
    let first = timeline.cuts().partition_point(|cut| cut.end <= failed);
    let all = timeline.cuts().get(first..).unwrap_or_default();
    let spread = all.iter().step_by(all.len().div_ceil(CUTS).max(1));
    let again = timeline.acks_again();
    let before = all.iter().rev().skip_while(|cut| cut.end > again).take(CUTS);
    let near = all.iter().take(CUTS).chain(before);
    let cuts: BTreeMap<usize, Cut> = near.chain(spread).map(|cut| (cut.end, *cut)).collect();
    cuts.into_values().collect()
}

fn countdown(calls: Calls) -> Word {
    calls.words().0
}

fn died(status: std::process::ExitStatus, node: &Node) -> Wrong {
    let log = node.log_tail();
    let last = log.lines().last().unwrap_or_default();
    ("I11", format!("the node ended by itself ({status}); it said last: {last}"))
}
