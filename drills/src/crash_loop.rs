//! Crashes during recovery, several deep: an image of a crash is given to a node under the recorder, which recovers, takes
//! a few hooks more and is killed; every operation of that is cut at and judged; one of those images is the next level's
//! disk, and so on.
//!
//! At every level an fsync may fail under the load, so the fence and the reopen are cut at too. Half of the next levels'
//! disks are taken from before the first answer, where the node was still recovering. What was acked at any level up to
//! its cut must be there at every later one; a node that does not come up by itself is a violation.
//!
//! How a level is recorded and judged: [`crate::recorded`].

use std::ops::Range;
use std::path::Path;
use std::time::Instant;

use ankusa_drills_check::SeqHistory;
use ankusa_drills_replay::{Disk, Image, Mirror, Op, Policy, Rng, decode};
use tokio::runtime::Runtime;

use crate::control;
use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::journal::Tally;
use crate::load::LoadPlan;
use crate::node::store_below;
use crate::reader::Reader;
use crate::recorded::images::{self, NAME_RULE, Outcome, Recording, Shot};
use crate::recorded::recorder::Recorder;
use crate::recorded::session::{Ends, NotRecorded, Session};
use crate::recorded::timeline::{Cut, Past, Timeline};
use crate::recorded::{count_images, tell};
use crate::scratch::Scratch;
use crate::stage::runtime;

const NAME: &str = "crash_loop";

/// Chains of crashes, unless asked otherwise.
const CHAINS: u64 = 6;

/// How deep a chain goes: the first level starts on an empty disk.
const LEVELS: usize = 5;

/// Hooks sent at the first level, and at each after it.
const FIRST_HOOKS: u64 = 300;
const MORE_HOOKS: u64 = 40;

/// Concurrent clients.
const CLIENTS: usize = 16;

/// Images judged at each level, about.
const IMAGES: usize = 100;

/// What a crash leaves: of the process, or of the machine.
const POLICIES: [Policy; 4] =
    [Policy::DropUnsynced, Policy::KeepAll, Policy::Torn512, Policy::ZeroTail];

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    let started = Instant::now();
    control::calibrate(options.seed)?;
    let runtime = runtime()?;
    let scratch = Scratch::in_memory()?;
    let mut drill = Drill {
        runtime,
        stride: options.stride,
        report: Report::new(NAME, options.seed),
        outcome: Outcome::default(),
        levels: 0,
        failed_syncs: 0,
    };
    let mut chains = 0;
    while match (options.cycles, options.lasting) {
        (Some(wanted), _) => chains < wanted,
        (None, Some(lasting)) => started.elapsed() < lasting,
        (None, None) => chains < CHAINS,
    } {
        drill.chain(options.seed ^ (chains << 32), &scratch)?;
        chains += 1;
    }
    let Drill { mut report, outcome, levels, failed_syncs, .. } = drill;
    report.count("chains", chains);
    report.count("levels", levels);
    report.count("failed_syncs", failed_syncs);
    count_images(&mut report, &outcome);
    report.elapsed_ms = started.elapsed().as_millis();
    scratch.keep_evidence(options, &mut report);
    Ok(report)
}

struct Drill {
    runtime: Runtime,
    stride: Option<u64>,
    report: Report,
    outcome: Outcome,
    levels: u64,
    failed_syncs: usize,
}

/// What a level starts with.
struct Start {
    /// The disk, under the root of the level that left it. Nothing: an empty one.
    disk: Option<(Disk, Shot)>,
    past: Past,
    history: SeqHistory,
    numbers: Range<u64>,
}

impl Drill {
    /// One chain. It ends early where a level's node does not come up, which is told.
    fn chain(&mut self, seed: u64, scratch: &Scratch) -> Result<(), CannotInject> {
        let mut rng = Rng::new(seed.rotate_left(29));
        let mut start = Start {
            disk: None,
            past: Past::default(),
            history: SeqHistory::default(),
            numbers: 0..FIRST_HOOKS,
        };
        for level in 0..LEVELS {
            let place = format!("level {level}");
            let room = scratch.room()?;
            let Some(next) = self.level(seed, &place, start, &room, &mut rng)? else { break };
            start = next;
            self.levels += 1;
        }
        Ok(())
    }

    /// Records and judges one level. Answers what the next starts with.
    fn level(
        &mut self,
        seed: u64,
        place: &str,
        start: Start,
        room: &Scratch,
        rng: &mut Rng,
    ) -> Result<Option<Start>, CannotInject> {
        let recorder = Recorder::new(room)?;
        let root = recorder.root().display().to_string();
        let base = match &start.disk {
            None => Disk::new(&root, NAME_RULE),
            Some((disk, shot)) => {
                let image = disk.image(shot.policy, &mut shot.rng(seed));
                show(recorder.root(), &image)?;
                Disk::holding(&image, &root, NAME_RULE)
            }
        };
        let mut history = start.history;
        let reader = Reader::new(&room.subdirectory("logs")?);
        if let Ok(dump) = reader.dump(&store_below(recorder.root())) {
            history.learn(&dump);
        }
        let session = Session {
            seed,
            numbers: start.numbers.clone(),
            clients: CLIENTS,
            fails_sync: rng.coin(),
            ends: Ends::Killed,
        };
        match self.runtime.block_on(session.record(room, &recorder)) {
            Ok(recorded) => self.count(recorded.tally),
            Err(NotRecorded::Down(down)) if start.disk.is_some() => {
                let from = start.disk.map_or_else(String::new, |(_, shot)| shot.place());
                self.report.violated_by(format!("{place}, on {from}: {}", down.brief()));
                return Ok(None);
            }
            Err(NotRecorded::Down(down)) => return Err(CannotInject(down.to_string())),
            Err(NotRecorded::CannotInject(error)) => return Err(error),
        }
        let log = recorder.read_log()?;
        let ops = decode(&log).or_cannot("read the operation log")?;
        self.failed_syncs += ops.iter().filter(|op| matches!(op, Op::SyncFailed { .. })).count();
        let plan = LoadPlan::new(seed).with_forgeries();
        let timeline = Timeline::new(&ops, plan, start.numbers.clone(), start.past);
        let recording = Recording {
            base: &base,
            ops: &ops,
            timeline: &timeline,
            history: &history,
            seed,
            policies: &POLICIES,
            draws: 1,
        };
        self.judge(place, recording, room)?;
        let shot = next_shot(&timeline, rng);
        let past = Past {
            requests: timeline.requests_at(shot.cut, &timeline.unanswered()),
            deliveries: timeline.deliveries_at(shot.cut),
        };
        let disk = replayed(&base, &ops, shot.cut)?;
        let numbers = start.numbers.end..start.numbers.end + MORE_HOOKS;
        Ok(Some(Start { disk: Some((disk, shot)), past, history, numbers }))
    }

    fn count(&mut self, tally: Tally) {
        self.report.acked += tally.acked;
        self.report.refused += tally.refused;
        self.report.unknown += tally.unknown;
    }

    fn judge(
        &mut self,
        place: &str,
        recording: Recording<'_>,
        room: &Scratch,
    ) -> Result<(), CannotInject> {
        let cuts = recording.timeline.cuts();
        let fitting = (cuts.len() * POLICIES.len()).div_ceil(IMAGES);
        let asked = self.stride.map(|stride| usize::try_from(stride).unwrap_or(usize::MAX));
        let cuts: Vec<Cut> =
            cuts.iter().copied().step_by(asked.unwrap_or(fitting).max(1)).collect();
        let outcome = images::judge_all(recording, &cuts, room)?;
        tell(&mut self.report, &format!("{place}, "), outcome.findings.clone());
        self.outcome.add(outcome);
        Ok(())
    }
}

/// The crash the next level starts from: half of them while the node was still coming up.
fn next_shot(timeline: &Timeline, rng: &mut Rng) -> Shot {
    let early = timeline.cuts().partition_point(|cut| cut.end < timeline.first_answer());
    let most = if rng.coin() { early } else { timeline.cuts().len() };
    let end = Cut { begin: 0, end: 0 };
    let cut = timeline.cuts().get(rng.up_to(most.saturating_sub(1))).copied().unwrap_or(end);
    let policy = POLICIES.get(rng.up_to(POLICIES.len() - 1)).copied();
    Shot { cut, policy: policy.unwrap_or(Policy::KeepAll), draw: 0 }
}

/// The disk as it was at a cut.
fn replayed(base: &Disk, ops: &[Op<'_>], cut: Cut) -> Result<Disk, CannotInject> {
    let mut disk = base.clone();
    for op in ops.get(..cut.end).unwrap_or_default() {
        disk.apply(op).or_cannot("replay the recording")?;
    }
    Ok(disk)
}

/// Puts an image where the node will find it.
fn show(root: &Path, image: &Image<'_>) -> Result<(), CannotInject> {
    let mut mirror = Mirror::new(root).or_cannot("prepare a directory for an image")?;
    mirror.show(image).or_cannot("build an image")?;
    Ok(())
}
