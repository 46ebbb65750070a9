//! The wall clock jumps under load: back an hour, ahead two hours, ahead thirty days, and back to where it was; then the
//! node is started while the clock is wrong, and once more when it is right.
//!
//! Monotonic time goes on: that is what a clock that is set looks like. After each jump everything that is owed, from
//! before the jump and from after it, is delivered at the pace it would have been, nothing is stranded until the clock
//! has caught up, nothing is deleted before it was delivered, and no id or seq is given twice.

use std::time::{Duration, Instant};

use ankusa_drills_replay::control::Word;
use serde_json::json;
use tokio::time::sleep;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::faults::Faults;
use crate::node::Node;
use crate::scratch::Scratch;
use crate::stage::{AGAIN_WITHIN, Stage, on_a_runtime};
use crate::timings::millis;

const CLIENTS: usize = 16;

const HOUR_MS: i64 = 3_600_000;

/// Where the clock is put, in milliseconds from the right time.
const JUMPS_MS: [i64; 4] = [-HOUR_MS, 2 * HOUR_MS, 30 * 24 * HOUR_MS, 0];

/// The clock while the node is started.
const STARTED_AT_MS: i64 = -HOUR_MS;

/// Load before and after a jump.
const LOADED: Duration = Duration::from_millis(800);

/// Longest wait for what is owed to be delivered after a jump. Without one it takes a second or two.
const DELIVERED_WITHIN: Duration = Duration::from_secs(20);

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::on_disk()?;
        let data_dir = scratch.subdirectory("data")?;
        let faults = Faults::new(&data_dir, scratch.path().join("page"))?;
        let mut stage = Stage::new("clock", options, scratch, &data_dir, 0..20).await?;
        stage.setup = stage
            .setup
            .clone()
            .with_environment(faults.environment())
            .with_config(&json!({"log": {"level": "warning"}}))?;
        let Some(node) = stage.start("the start").await? else { return Ok(stage.conclude(0)) };
        let mut rounds = 0;
        let mut slowest = Duration::ZERO;
        while stage.goes_on(rounds, 1) {
            rounds += 1;
            for to_ms in JUMPS_MS {
                let place = format!("round {rounds}, the clock jumps to {}", told(to_ms));
                match jump(&mut stage, &node, &faults, to_ms, &place).await? {
                    Some(took) => slowest = slowest.max(took),
                    None => return Ok(stage.conclude(rounds)),
                }
            }
        }
        stage.report.count("slowest_drain_after_jump_ms", millis(slowest));
        restart_in_the_past(&mut stage, node, &faults).await?;
        Ok(stage.conclude(rounds))
    })
}

fn told(shift_ms: i64) -> String {
    match shift_ms / HOUR_MS {
        0 => "the right time".to_owned(),
        hours => format!("{hours:+} h"),
    }
}

/// One jump in the middle of a load. Answers how long what is owed took to be delivered; nothing when it was not.
async fn jump(
    stage: &mut Stage,
    node: &Node,
    faults: &Faults,
    to_ms: i64,
    place: &str,
) -> Result<Option<Duration>, CannotInject> {
    let load = stage.load(CLIENTS);
    sleep(LOADED).await;
    let jumped = Instant::now();
    faults.set(Word::WallShiftMs, to_ms.cast_unsigned())?;
    stage.takes_hooks_again(place, jumped).await;
    sleep(LOADED).await;
    load.stop().await;
    let began = Instant::now();
    if !node.drain(DELIVERED_WITHIN).await? {
        let status = node.status().await?;
        stage.report.violated_by(format!(
            "{place}: hooks are stranded: {DELIVERED_WITHIN:?} later the node still owes {}",
            status.get("queue").cloned().unwrap_or_default()
        ));
        // Whatever waits for the right time gets it: the next jump starts from a drained queue, if that helps.
        faults.set(Word::WallShiftMs, 0)?;
        return Ok(node.drain(DELIVERED_WITHIN / 2).await?.then(|| began.elapsed()));
    }
    let took = began.elapsed();
    stage.drain_and_judge(node, place).await?;
    Ok(Some(took))
}

/// Stops the node with work left, starts it with the clock in the past, and again at the right time.
async fn restart_in_the_past(
    stage: &mut Stage,
    node: Node,
    faults: &Faults,
) -> Result<(), CannotInject> {
    let load = stage.load(CLIENTS);
    stage.acks(Instant::now(), 50, AGAIN_WITHIN).await;
    node.kill()?;
    load.stop().await;
    stage.judge_files("killed before the clock is set back");
    for (shift_ms, place) in
        [(STARTED_AT_MS, "started with the clock an hour back"), (0, "started at the right time")]
    {
        faults.set(Word::WallShiftMs, shift_ms.cast_unsigned())?;
        let Some(node) = stage.start(place).await? else { return Ok(()) };
        if !node.drain(DELIVERED_WITHIN).await? {
            stage.report.violated_by(format!(
                "{place}: hooks are stranded: {DELIVERED_WITHIN:?} later the node still owes some"
            ));
        } else {
            stage.drain_and_judge(&node, place).await?;
        }
        stage.stop(node, place).await?;
    }
    Ok(())
}
