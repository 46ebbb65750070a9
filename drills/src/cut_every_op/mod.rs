//! A power cut at every operation on the disk.
//!
//! One node runs under the recorder and takes 2,000 hooks; every operation it asks of the disk is in one totally ordered
//! log, with every answer and every delivery in its place among them. Then, before each of these operations, the disk is
//! built as a cut at that moment could have left it, in several shapes, and judged: what was acked by then is there or
//! was delivered, what was refused is not, counters are counts, rows fit. A sample of the images is given to a real node,
//! which must come up by itself and deliver the rest.
//!
//! Half way through, one fsync fails, as on a disk that loses a page and says so once. The hooks it was to make durable
//! are refused, and from then on no image may hold them.
//!
//! The recorded node's fsyncs take [`SYNC_DELAY_US`]: as long as on a real disk, so that whoever answers before the fsync
//! returns is caught, on a machine whose fsync costs nothing too.

pub mod images;
pub mod recorder;
pub mod restarts;
pub mod timeline;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ankusa_drills_replay::control::Word;
use ankusa_drills_replay::{Op, decode};
use tokio::time::sleep;

use self::images::{Finding, Recording, What};
use self::recorder::Recorder;
use self::timeline::Timeline;
use crate::control;
use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::journal::Journal;
use crate::load::{Load, LoadPlan};
use crate::node::NodeSetup;
use crate::scratch::Scratch;
use crate::worker::Worker;

/// Hooks sent while recording.
const HOOKS: u64 = 2_000;

/// Concurrent clients while recording.
const CLIENTS: usize = 32;

/// How long an fsync takes at least, in microseconds.
const SYNC_DELAY_US: u64 = 2_000;

/// What the one failing fsync says: input/output error.
const EIO: u64 = 5;

/// Wait between two looks at how far the load is.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Images that fit an automatic run: the stride is chosen so that there are about as many.
const IMAGES: usize = 2_400;

/// Images a real node is started on.
const RESTARTS: usize = 20;

/// Longest wait for the recorded node to deliver everything.
const DRAINED_WITHIN: Duration = Duration::from_secs(30);

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    let started = Instant::now();
    control::calibrate(options.seed)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .or_cannot("start a runtime")?;
    let scratch = Scratch::in_memory()?;
    let recorder = Recorder::new(&scratch)?;
    let mut report = Report::new("cut_every_op", options.seed);
    runtime.block_on(record(options.seed, &scratch, &recorder, &mut report))?;

    let log = recorder.read_log()?;
    let ops = decode(&log).or_cannot("read the operation log")?;
    let timeline = Timeline::new(&ops, LoadPlan { seed: options.seed }, HOOKS);
    let recording =
        Recording { root: recorder.root(), ops: &ops, timeline: &timeline, seed: options.seed };
    let stride = stride(options, &timeline);
    let outcome = images::judge_all(recording, stride, &scratch)?;
    let restarts = runtime.block_on(restarts::judge_some(recording, RESTARTS, &scratch))?;

    report.count("operations", ops.len());
    report.count("failed_syncs", failed_syncs(&ops));
    report.count("cuts", timeline.cuts().len());
    report.count("stride", stride);
    report.count("images", outcome.images.values().sum::<u64>());
    report.count("images_by_policy", serde_json::json!(outcome.images));
    report.count("images_opened", outcome.opened);
    report.count("images_unreadable", count_unreadable(&outcome.findings));
    report.count("nodes_restarted", RESTARTS);
    for finding in outcome.findings.into_iter().chain(restarts) {
        let place = finding.place();
        match finding.what {
            What::Broken(broken) => report.violated(&place, &broken),
            What::Unreadable(error) => report.violated_by(format!("{place}: {error}")),
        }
    }
    report.elapsed_ms = started.elapsed().as_millis();
    scratch.keep_evidence(options, &mut report);
    Ok(report)
}

/// Records one node from its first start to its clean stop, with everything delivered in between.
async fn record(
    seed: u64,
    scratch: &Scratch,
    recorder: &Recorder,
    report: &mut Report,
) -> Result<(), CannotInject> {
    recorder.set(Word::SyncDelayUs, SYNC_DELAY_US)?;
    let journal = Arc::new(Journal::marking(recorder.log()).or_cannot("open the operation log")?);
    let worker = Worker::start(seed, Arc::clone(&journal)).await?;
    let setup = NodeSetup::new(scratch.path(), recorder.root(), &worker.url())?
        .with_environment(recorder.environment());
    let node = setup.start().await.or_cannot("start the node under the recorder")?;
    let next = Arc::new(AtomicU64::new(0));
    let load = Load::start(CLIENTS, setup.http_port(), LoadPlan { seed }, &next, HOOKS, &journal);
    while next.load(Ordering::SeqCst) < HOOKS / 2 {
        sleep(LOOK_AGAIN).await;
    }
    recorder.set(Word::SyncErrno, EIO)?;
    recorder.set(Word::FailSync, 1)?;
    load.finish().await;
    let drained = node.drain(DRAINED_WITHIN).await?;
    let status = node.stop().await?;
    let tally = journal.tally();
    (report.acked, report.refused, report.unknown) = (tally.acked, tally.refused, tally.unknown);
    if !journal.is_whole() {
        return Err(CannotInject("a mark could not be written to the operation log".to_owned()));
    }
    if next.load(Ordering::SeqCst) < HOOKS || tally.acked == 0 {
        return Err(CannotInject(format!(
            "the recorded node acked {} of {HOOKS} hooks",
            tally.acked
        )));
    }
    if !drained || status != "exit status: 0" {
        report.violated_by(format!(
            "the recorded node ended with {status}, its queue drained: {drained}"
        ));
    }
    Ok(())
}

/// Every how many cuts to look: as asked, or for about as many images as asked for.
fn stride(options: &DrillOptions, timeline: &Timeline) -> usize {
    let number = |asked: u64| usize::try_from(asked).unwrap_or(usize::MAX);
    let images = options.cycles.map_or(IMAGES, number);
    let fitting = (timeline.cuts().len() * images::POLICIES.len()).div_ceil(images.max(1)).max(1);
    options.stride.map_or(fitting, number)
}

fn failed_syncs(ops: &[Op<'_>]) -> usize {
    ops.iter().filter(|op| matches!(op, Op::SyncFailed { .. })).count()
}

fn count_unreadable(findings: &[Finding]) -> usize {
    findings.iter().filter(|finding| matches!(finding.what, What::Unreadable(_))).count()
}
