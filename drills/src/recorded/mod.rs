//! Drills that cut one recording at every operation: what they share.
//!
//! A node runs under the recorder and takes hooks; every operation it asks of the disk is in one totally ordered log,
//! with every answer and every delivery in its place among them. Then, before each of these operations, the disk is built
//! as a cut at that moment could have left it, and judged: what was acked by then is there or was delivered, what was
//! refused is not, counters are counts, rows fit. A sample of the images is given to a real node, which must come up by
//! itself and deliver the rest.
//!
//! Half way through, one fsync fails, as on a disk that loses a page and says so once. The hooks it was to make durable
//! are refused, and from then on no image may hold them.
//!
//! The recorded node's fsyncs take a while: as long as on a real disk, so that whoever answers before the fsync returns is
//! caught, on a machine whose fsync costs nothing too.

pub mod fault;
pub mod images;
pub mod recorder;
pub mod restarts;
pub mod session;
pub mod timeline;

use std::time::Instant;

use ankusa_drills_check::SeqHistory;
use ankusa_drills_replay::{Disk, Op, Policy, decode};

use self::images::{Finding, NAME_RULE, Outcome, Recording, Shot, What};
use self::recorder::Recorder;
use self::session::{Ends, NotRecorded, Session};
use self::timeline::{Cut, Past, Timeline};
use crate::control;
use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::load::LoadPlan;
use crate::scratch::Scratch;
use crate::stage::runtime;

/// Hooks sent while recording.
const HOOKS: u64 = 2_000;

/// Concurrent clients while recording.
const CLIENTS: usize = 32;

/// Images looked at unless asked otherwise: what takes about a minute.
const IMAGES: u64 = 2_400;

/// One image in this many is also given to a real node.
const RESTART_ONE_IN: usize = 120;

/// Images with stalled lanes and nothing else wrong that a real node may put right, at most. More are no passing moment.
const RESTART_STALLED: usize = 4;

/// Damaged images that are also given to a real node, at most: it must show that nothing acked lies behind the damage.
const RESTART_DAMAGED: usize = 8;

/// A drill of this kind.
#[derive(Clone, Copy, Debug)]
pub struct ImageDrill {
    pub name: &'static str,
    /// In what shapes a cut leaves the disk.
    pub policies: &'static [Policy],
    /// How many images are drawn of each cut and shape.
    pub draws: u64,
}

impl ImageDrill {
    /// Records one session and judges its images.
    ///
    /// # Errors
    /// When the drill could not do what it is about.
    pub fn run(&self, options: &DrillOptions) -> Result<Report, CannotInject> {
        let started = Instant::now();
        control::calibrate(options.seed)?;
        let runtime = runtime()?;
        let scratch = Scratch::in_memory()?;
        let recorder = Recorder::new(&scratch)?;
        let mut report = Report::new(self.name, options.seed);
        let session = Session {
            seed: options.seed,
            numbers: 0..HOOKS,
            clients: CLIENTS,
            fails_sync: true,
            ends: Ends::Stopped,
        };
        let recorded = runtime.block_on(session.record(&scratch, &recorder)).or_void()?;
        let tally = recorded.tally;
        (report.acked, report.refused, report.unknown) =
            (tally.acked, tally.refused, tally.unknown);
        report.count("held", tally.held);
        if !recorded.ended_well {
            report.violated_by("the recorded node did not drain and end well".to_owned());
        }
        let log = recorder.read_log()?;
        let ops = decode(&log).or_cannot("read the operation log")?;
        let plan = LoadPlan::new(options.seed).with_forgeries();
        let timeline = Timeline::new(&ops, plan, session.numbers.clone(), Past::default());
        let base = Disk::new(&recorder.root().display().to_string(), NAME_RULE);
        let history = SeqHistory::default();
        let recording = Recording {
            base: &base,
            ops: &ops,
            timeline: &timeline,
            history: &history,
            seed: options.seed,
            policies: self.policies,
            draws: self.draws,
        };
        let stride = self.stride(options, timeline.cuts().len());
        let cuts: Vec<Cut> = timeline.cuts().iter().copied().step_by(stride).collect();
        let judging = Instant::now();
        let mut outcome = images::judge_all(recording, &cuts, &scratch)?;
        report.count("images_a_minute", a_minute(&outcome, judging));
        let mut shots = to_restart(recording, &cuts, &outcome);
        // Unless they are too many, the node that is started on them decides.
        let is_stalled = |finding: &Finding| matches!(finding.what, What::Stalled(_));
        let stalled: Vec<Shot> =
            outcome.findings.iter().filter(|finding| is_stalled(finding)).map(|f| f.shot).collect();
        report.count("images_with_stalled_lanes", stalled.len());
        if stalled.len() <= RESTART_STALLED {
            outcome.findings.retain(|finding| !is_stalled(finding));
            shots.extend(stalled);
        }
        report.count("nodes_restarted", shots.len());
        let restarts = runtime.block_on(restarts::judge_some(recording, shots, &scratch))?;
        report.count("operations", ops.len());
        report.count("failed_syncs", failed_syncs(&ops));
        report.count("cuts", timeline.cuts().len());
        report.count("stride", stride);
        count_images(&mut report, &outcome);
        tell(&mut report, "", outcome.findings.into_iter().chain(restarts));
        report.elapsed_ms = started.elapsed().as_millis();
        scratch.keep_evidence(options, &mut report);
        Ok(report)
    }

    /// Every how many cuts to look: as asked, or for about as many images as asked for.
    fn stride(&self, options: &DrillOptions, cuts: usize) -> usize {
        let number = |asked: u64| usize::try_from(asked).unwrap_or(usize::MAX);
        let images = number(options.cycles.unwrap_or(IMAGES)).max(1);
        let fitting = (cuts * self.policies.len() * number(self.draws)).div_ceil(images);
        options.stride.map_or(fitting, number).max(1)
    }
}

trait OrVoid<T> {
    /// A node that does not come up on an empty disk says nothing about crashes.
    fn or_void(self) -> Result<T, CannotInject>;
}

impl<T> OrVoid<T> for Result<T, NotRecorded> {
    fn or_void(self) -> Result<T, CannotInject> {
        self.map_err(|error| match error {
            NotRecorded::Down(down) => {
                CannotInject(format!("cannot start the node under the recorder: {down}"))
            }
            NotRecorded::CannotInject(error) => error,
        })
    }
}

/// Some images drawn from the seed, and some of those whose log is damaged.
fn to_restart(recording: Recording<'_>, cuts: &[Cut], outcome: &Outcome) -> Vec<Shot> {
    let images = outcome.images.values().sum::<u64>();
    let count = usize::try_from(images).unwrap_or(0).div_ceil(RESTART_ONE_IN);
    let mut shots = restarts::draw(recording, cuts, count);
    let every = outcome.damaged.len().div_ceil(RESTART_DAMAGED).max(1);
    shots.extend(outcome.damaged.iter().step_by(every));
    shots
}

fn a_minute(outcome: &Outcome, since: Instant) -> u64 {
    let images: u64 = outcome.images.values().sum();
    let elapsed_ms = u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX);
    images.saturating_mul(60_000) / elapsed_ms.max(1)
}

/// Adds how many images were looked at.
pub fn count_images(report: &mut Report, outcome: &Outcome) {
    let unreadable = |finding: &&Finding| matches!(finding.what, What::Unreadable(_));
    report.count("images", outcome.images.values().sum::<u64>());
    report.count("images_by_policy", serde_json::json!(outcome.images));
    report.count("images_opened", outcome.opened);
    report.count("images_damaged", outcome.damaged.len());
    report.count("images_unreadable", outcome.findings.iter().filter(unreadable).count());
}

/// Adds findings to a report, with where they were found.
pub fn tell(report: &mut Report, place: &str, findings: impl IntoIterator<Item = Finding>) {
    for finding in findings {
        let place = format!("{place}{}", finding.place());
        match finding.what {
            What::Broken(broken) | What::Stalled(broken) => report.violated(&place, &broken),
            What::Unreadable(error) => report.violated_by(format!("{place}: {error}")),
        }
    }
}

fn failed_syncs(ops: &[Op<'_>]) -> usize {
    ops.iter().filter(|op| matches!(op, Op::SyncFailed { .. })).count()
}
