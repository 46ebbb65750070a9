//! Fsyncs that take 50 ms, then 500 ms, then one that does not return for a long while.
//!
//! Slow is no fault: hooks are taken at the disk's pace. During the stall nothing can be promised, so what comes in is
//! refused at once or waits no longer than its deadline, nothing piles up, `/ready` says so and `/health` stays green.
//! Afterwards everything goes on by itself. The store lies in memory, so that the delays are the drill's own. How fast it
//! was is reported, and held against the bar beside the verdict: a shared machine is no stop-watch.

use std::time::{Duration, Instant};

use ankusa_drills_replay::control::Word;
use serde_json::Value;
use tokio::time::sleep;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::faults::Faults;
use crate::load::PATIENCE;
use crate::node::Node;
use crate::scratch::Scratch;
use crate::stage::{AGAIN_WITHIN, Stage, on_a_runtime};
use crate::timings::{Span, millis};
use crate::watch::{Said, Watch};

const CLIENTS: usize = 64;

/// Clients that come when the fsync has stalled already.
const LATE_CLIENTS: usize = 4;

/// How long the stalled fsync takes, unless asked otherwise.
const STALL: Duration = Duration::from_secs(15);

/// A request sent this long after the stall began meets a node that knows of it.
const NOTICED_AFTER: Duration = Duration::from_secs(4);

/// Longest wait for the answer to one of those. The node's own deadlines are 2 s; this is a bound on hanging.
const ANSWERED_WITHIN: Duration = Duration::from_secs(10);

/// Groups the node may leave without their fsync: its `batcher.max_unsynced_groups`.
const MAX_UNSYNCED_GROUPS: u64 = 128;

/// The bar: acks of 64 clients with fsyncs of 50 ms.
const BAR_P99_MS: u64 = 150;

/// Time of each load that is measured, after the change has settled.
const MEASURED: Duration = Duration::from_secs(5);
const SETTLING: Duration = Duration::from_millis(1_500);

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::in_memory()?;
        let data_dir = scratch.subdirectory("data")?;
        let faults = Faults::new(&data_dir, scratch.path().join("page"))?;
        let mut stage = Stage::plain("slow_disk", options, scratch).await?;
        stage.setup = stage.setup.clone().with_environment(faults.environment());
        let Some(node) = stage.start("the start").await? else { return Ok(stage.conclude(0)) };
        let load = stage.load(CLIENTS);
        let at_rest = slowed(&stage, &faults, 0).await?;
        let at_50 = slowed(&stage, &faults, 50).await?;
        let at_500 = slowed(&stage, &faults, 500).await?;
        for (delay, span) in [("none", &at_rest), ("50 ms", &at_50), ("500 ms", &at_500)] {
            if span.left_waiting > 0 {
                let left = span.left_waiting;
                stage
                    .report
                    .violated_by(format!("delay {delay}: {left} clients were left waiting"));
            }
            if span.acked() == 0 {
                stage.report.violated_by(format!("delay {delay}: no hook was taken"));
            }
        }
        tell(&mut stage.report, [&at_rest, &at_50, &at_500]);
        faults.set(Word::SyncDelayUs, 0)?;
        stall(&mut stage, &node, &faults, options.lasting.unwrap_or(STALL)).await?;
        load.stop().await;
        stage.drain_and_judge(&node, "at the end").await?;
        stage.stop(node, "at the end").await?;
        Ok(stage.conclude(1))
    })
}

/// Sets the delay and measures, once it has settled.
async fn slowed(stage: &Stage, faults: &Faults, delay_ms: u64) -> Result<Span, CannotInject> {
    faults.set(Word::SyncDelayUs, delay_ms * 1_000)?;
    sleep(SETTLING).await;
    let from = Instant::now();
    sleep(MEASURED).await;
    Ok(stage.since(from))
}

fn tell(report: &mut Report, [at_rest, at_50, at_500]: [&Span; 3]) {
    let figure = |span: &Span| {
        let ms = |percent| span.percentile_ms(percent).map_or("-".to_owned(), |ms| ms.to_string());
        let (p50, p99) = (ms(50), ms(99));
        format!("p50 {p50} ms, p99 {p99} ms, {} acked, {} refused", span.acked(), span.refused)
    };
    report.count("acks_undelayed", figure(at_rest));
    report.count("acks_at_50_ms", figure(at_50));
    report.count("acks_at_500_ms", figure(at_500));
    let passes = at_50.percentile_ms(99).is_some_and(|p99| p99 <= BAR_P99_MS);
    let word = if passes { "passed" } else { "missed" };
    report.count("bar_ack_p99_150_ms_at_50_ms", word);
}

/// One fsync that does not return for `length`.
async fn stall(
    stage: &mut Stage,
    node: &Node,
    faults: &Faults,
    length: Duration,
) -> Result<(), CannotInject> {
    let watch = Watch::start(stage.setup.http_port());
    let seen = faults.get(Word::SeenSyncs)?;
    faults.set(Word::SyncDelayUs, u64::try_from(length.as_micros()).unwrap_or(u64::MAX))?;
    let began = Instant::now();
    while faults.get(Word::SeenSyncs)? == seen {
        if began.elapsed() > AGAIN_WITHIN {
            return Err(CannotInject("see an fsync to stall".to_owned()));
        }
        sleep(Duration::from_millis(1)).await;
    }
    // It has read the delay, or is about to.
    sleep(Duration::from_millis(20)).await;
    faults.set(Word::SyncDelayUs, 0)?;
    let stalled = Instant::now();
    sleep(NOTICED_AFTER.min(length / 2)).await;
    let noticed = Instant::now();
    // Those that were there may all be waiting for the stalled fsync, and ask for nothing new.
    let late = stage.load(LATE_CLIENTS);
    let mut most_unsynced = 0;
    while stalled.elapsed() < length.saturating_sub(Duration::from_millis(500)) {
        let status = node.status().await?;
        let unsynced = status.get("unsynced_groups").and_then(Value::as_u64).unwrap_or(0);
        most_unsynced = most_unsynced.max(unsynced);
        if !node.is_alive().await {
            stage.report.violated_by("the stall: /health is not green".to_owned());
        }
        sleep(Duration::from_millis(200)).await;
    }
    late.stop().await;
    let during = stage.since(noticed);
    stage.report.count("stall_s", length.as_secs());
    stage.report.count("refused_in_stall", during.refused);
    stage.report.count("most_unsynced_groups", most_unsynced);
    judge_stall(stage, &during, most_unsynced, length);
    if watch.first(stalled, |said| matches!(said, Said::NotReady(Some(_)))).is_none() {
        stage.report.violated_by("the stall: /ready never said why".to_owned());
    }
    let over = stalled + length;
    sleep(over.saturating_duration_since(Instant::now())).await;
    let resumed = stage.takes_hooks_again("after the stall", over).await;
    stage.report.count("resumed_after_stall_ms", resumed.map_or(0, millis));
    if watch.wait_for(Instant::now(), AGAIN_WITHIN, |said| *said == Said::Ready).await.is_none() {
        stage
            .report
            .violated_by(format!("after the stall: /ready stays {:?}", watch.told(stalled)));
    }
    Ok(())
}

/// What ended in the stall ended in time, and no more than the bound waits.
fn judge_stall(stage: &mut Stage, during: &Span, most_unsynced: u64, length: Duration) {
    if during.acked() > 0 {
        let acked = during.acked();
        stage.report.violated_by(format!("the stall: {acked} hooks were acked without an fsync"));
    }
    if during.refused == 0 {
        stage.report.violated_by("the stall: nobody was refused".to_owned());
    }
    if length < PATIENCE && during.slowest > ANSWERED_WITHIN {
        let slowest = during.slowest;
        stage.report.violated_by(format!("the stall: an answer took {slowest:?}"));
    }
    if most_unsynced > MAX_UNSYNCED_GROUPS {
        stage.report.violated_by(format!(
            "the stall: {most_unsynced} groups wait for their fsync, over {MAX_UNSYNCED_GROUPS}"
        ));
    }
}
