//! SIGSTOP at a random moment under load, SIGCONT later: to the node no time has passed, to everybody else it has.
//!
//! While it stands still its store is read from the files and judged as a crash would have left it. Afterwards it must go
//! on by itself: hooks are taken again, the store is fine, nothing was taken for damage.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::load::PATIENCE;
use crate::node::Node;
use crate::scratch::Scratch;
use crate::stage::{Stage, on_a_runtime};

/// Pauses, unless asked otherwise.
const PAUSES: u64 = 8;

const CLIENTS: usize = 32;

/// The pause comes this long after hooks are taken, in milliseconds.
const AFTER_MS: std::ops::Range<u64> = 100..600;

const SHORT: Duration = Duration::from_secs(1);

/// With a time to fill, pauses of these lengths too.
const LONG: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(60)];

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::on_disk()?;
        let data_dir = scratch.subdirectory("data")?;
        let mut stage = Stage::new("pause", options, scratch, &data_dir, 0..20).await?;
        let Some(node) = stage.start("the start").await? else { return Ok(stage.conclude(0)) };
        let load = stage.load(CLIENTS);
        let (mut pauses, mut paused) = (0, Duration::ZERO);
        let mut slowest = Duration::ZERO;
        while stage.goes_on(pauses, PAUSES) {
            pauses += 1;
            let long = LONG.get(usize::try_from(pauses).unwrap_or(0) % 4);
            let pause = long.filter(|_| options.lasting.is_some()).copied().unwrap_or(SHORT);
            let Some(again) = pause_once(&mut stage, &node, pauses, pause).await? else { break };
            paused += pause;
            slowest = slowest.max(again);
        }
        load.stop().await;
        stage.drain_and_judge(&node, "at the end").await?;
        stage.stop(node, "at the end").await?;
        let claimed = stage.claimed;
        stage.report.count("paused_s", paused.as_secs());
        stage.report.count("claimed_when_paused", claimed);
        stage.report.count("slowest_ack_after_pause_ms", crate::timings::millis(slowest));
        Ok(stage.conclude(pauses))
    })
}

/// One pause. Answers how long after it the first hook was taken; nothing when none was.
async fn pause_once(
    stage: &mut Stage,
    node: &Node,
    number: u64,
    length: Duration,
) -> Result<Option<Duration>, CannotInject> {
    let place = format!("pause {number} of {length:?}");
    sleep(stage.draw_ms(&AFTER_MS)).await;
    let began = Instant::now();
    node.signal(Signal::STOP)?;
    stage.judge_files(&place);
    sleep(length.saturating_sub(began.elapsed())).await;
    let went_on = Instant::now();
    node.signal(Signal::CONT)?;
    let Some(again) = stage.takes_hooks_again(&place, went_on).await else { return Ok(None) };
    let span = stage.since(began);
    if length < PATIENCE && span.left_waiting > 0 {
        let left = span.left_waiting;
        stage.report.violated_by(format!("{place}: {left} clients were left waiting"));
    }
    let corruption = node
        .series()
        .await?
        .sum("ankusa_store_write_failures_total", &[("class", "corruption")])
        .unwrap_or(0.0);
    let failing = node.status().await?.pointer("/store/failing").cloned().unwrap_or(json!(null));
    if corruption > 0.0 || failing != Value::Null {
        stage.report.violated_by(format!(
            "{place}: the store is said to fail ({failing}), {corruption} times for corruption"
        ));
    }
    Ok(Some(again))
}
