//! A disk of 192 MiB that fills up under load and is freed again; every third time the node is killed and started while
//! it is full.
//!
//! While it is full hooks are refused and everybody is answered, `/ready` says `no_space`, the series rise. Once there is
//! room again hooks are taken without anybody doing anything. A start on the full disk comes up, or refuses and says why;
//! one that comes up takes hooks after the freeing without another start. Nothing acked is lost.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::time::sleep;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::node::{Node, NotReady};
use crate::scratch::Scratch;
use crate::stage::{AGAIN_WITHIN, Stage, on_a_runtime};
use crate::timings::millis;
use crate::tiny_disk::TinyDisk;
use crate::watch::{Said, Watch};

/// Fillings, unless asked otherwise.
const ROUNDS: u64 = 3;

/// Every so many rounds the node is killed and started while the disk is full.
const RESTART_EVERY: u64 = 3;

const CLIENTS: usize = 16;

const DISK_MIB: u64 = 192;

/// Small, so that the log has not already taken the room that hooks need for the length of a drill.
const WRITE_BUFFER_BYTES: u64 = 1 << 20;

/// How long the disk stays full once that has been noticed, in milliseconds.
const FULL_MS: std::ops::Range<u64> = 1_000..3_000;

/// Longest wait for somebody to be refused, and for `/ready` to say why. Bounds on hanging.
const NOTICED_WITHIN: Duration = Duration::from_secs(60);
const TOLD_WITHIN: Duration = Duration::from_secs(20);

/// How long a node that was started on the full disk is given to show what it makes of it.
const MAKES_OF_IT: Duration = Duration::from_secs(4);

/// The bar: hooks are taken this long after the freeing.
const BAR_RESUME: Duration = Duration::from_secs(2);

#[derive(Default)]
struct Figures {
    slowest_told: Duration,
    slowest_resume: Duration,
    slowest_answer: Duration,
    refused_while_full: usize,
    acked_while_full: usize,
    resumed_within_bar: u64,
    booted_full: u64,
    refused_to_boot_full: u64,
}

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::on_disk()?;
        let disk = TinyDisk::mount(&scratch.subdirectory("disk")?, DISK_MIB)?;
        let mut stage =
            Stage::new("full_disk", options, scratch, &disk.path().join("data"), 0..1).await?;
        stage.setup = stage.setup.clone().with_config(&json!({
            "log": {"level": "warning"},
            "queue": {"rocksdb": {"write_buffer_bytes": WRITE_BUFFER_BYTES}},
        }))?;
        let mut figures = Figures::default();
        let mut rounds = 0;
        let mut node = stage.start("the start").await?;
        while let Some(alive) = node.take() {
            if !stage.goes_on(rounds, ROUNDS) {
                stage.drain_and_judge(&alive, "at the end").await?;
                stage.stop(alive, "at the end").await?;
                break;
            }
            rounds += 1;
            node = fill_once(&mut stage, alive, &disk, rounds, &mut figures).await?;
        }
        let report = &mut stage.report;
        report.count("slowest_ready_503_ms", millis(figures.slowest_told));
        report.count("slowest_resume_ms", millis(figures.slowest_resume));
        report.count("slowest_answer_while_full_ms", millis(figures.slowest_answer));
        report.count("refused_while_full", figures.refused_while_full);
        report.count("acked_while_full", figures.acked_while_full);
        report.count("resumed_within_2_s", figures.resumed_within_bar);
        report.count("booted_full", figures.booted_full);
        report.count("refused_to_boot_full", figures.refused_to_boot_full);
        Ok(stage.conclude(rounds))
    })
}

/// One filling. Answers the node that lives on.
async fn fill_once(
    stage: &mut Stage,
    node: Node,
    disk: &TinyDisk,
    round: u64,
    figures: &mut Figures,
) -> Result<Option<Node>, CannotInject> {
    let place = format!("filling {round}");
    let watch = Watch::start(stage.setup.http_port());
    let load = stage.load(CLIENTS);
    if !stage.acks(Instant::now(), 100, AGAIN_WITHIN).await {
        stage.report.violated_by(format!("{place}: no hooks are taken before it"));
        return Ok(None);
    }
    stage.rest().await;
    let before = counted(&node).await?;
    let filler = disk.fill()?;
    let full = fullness(stage, &filler, &place).await?;
    match watch.wait_for(full, TOLD_WITHIN, says_no_space).await {
        Some(told) => figures.slowest_told = figures.slowest_told.max(told.duration_since(full)),
        None => stage
            .report
            .violated_by(format!("{place}: /ready did not say no_space: {:?}", watch.told(full))),
    }
    let noticed = Instant::now();
    sleep(stage.draw_ms(&FULL_MS)).await;
    let while_full = stage.since(noticed);
    figures.slowest_answer = figures.slowest_answer.max(while_full.slowest);
    figures.refused_while_full += while_full.refused;
    figures.acked_while_full += while_full.acked();
    let restarts = round.is_multiple_of(RESTART_EVERY);
    let survivor =
        if restarts { restart_full(stage, node, &place, figures).await? } else { Some(node) };
    let freed = Instant::now();
    filler.free()?;
    let node = match survivor {
        Some(node) => node,
        // It refused to start: whoever manages the process starts it again, once there is room.
        None => match stage.start(&place).await? {
            Some(node) => node,
            None => return Ok(None),
        },
    };
    let resumed = stage.takes_hooks_again(&place, freed).await.unwrap_or(AGAIN_WITHIN);
    figures.slowest_resume = figures.slowest_resume.max(resumed);
    figures.resumed_within_bar += u64::from(resumed <= BAR_RESUME);
    if watch.wait_for(freed, AGAIN_WITHIN, |said| *said == Said::Ready).await.is_none() {
        stage.report.violated_by(format!("{place}: /ready stays {:?}", watch.told(full)));
    }
    load.stop().await;
    let left_waiting = stage.since(full).left_waiting;
    if left_waiting > 0 {
        stage.report.violated_by(format!("{place}: {left_waiting} clients were left waiting"));
    }
    if !restarts {
        judge_series(stage, &node, before, &place).await?;
    }
    Ok(Some(node))
}

/// Waits until the disk is full and somebody was refused. Answers when it was full.
async fn fullness(
    stage: &mut Stage,
    filler: &crate::tiny_disk::Filler,
    place: &str,
) -> Result<Instant, CannotInject> {
    let began = Instant::now();
    while !filler.is_full() {
        if began.elapsed() > NOTICED_WITHIN {
            return Err(CannotInject("fill the disk in time".to_owned()));
        }
        sleep(Duration::from_millis(2)).await;
    }
    let full = Instant::now();
    while stage.since(full).refused == 0 {
        if full.elapsed() > NOTICED_WITHIN {
            stage.report.violated_by(format!("{place}: nobody was refused in {NOTICED_WITHIN:?}"));
            break;
        }
        sleep(Duration::from_millis(5)).await;
    }
    Ok(full)
}

/// Kills the node and starts it while the disk is full. Answers it if it came up.
async fn restart_full(
    stage: &mut Stage,
    node: Node,
    place: &str,
    figures: &mut Figures,
) -> Result<Option<Node>, CannotInject> {
    node.kill()?;
    stage.judge_files(place);
    let mut node = match stage.setup.spawn() {
        Ok(node) => node,
        Err(NotReady::CannotStart(error)) => {
            return Err(CannotInject(format!("cannot start the node: {error}")));
        }
        Err(down) => {
            stage.report.violated_by(format!("{place}: {down}"));
            return Ok(None);
        }
    };
    let Some(status) = node.ended(MAKES_OF_IT).await? else {
        figures.booted_full += 1;
        return Ok(Some(node));
    };
    figures.refused_to_boot_full += 1;
    let said = node.log_tail();
    if status.code() != Some(1) || !says_why(&said) {
        stage.report.violated_by(format!(
            "{place}: on the full disk it ended with {status} and without the reason; it said last:\n{said}"
        ));
    }
    Ok(None)
}

/// Whether the last words name what there is none of.
fn says_why(log: &str) -> bool {
    ["no_space", "No space left", "no space", "disk is full"]
        .iter()
        .any(|words| log.contains(words))
}

fn says_no_space(said: &Said) -> bool {
    matches!(said, Said::NotReady(Some(reason)) if reason == "no_space")
}

/// Failed writes of the class. A disk that fills up slowly has hooks refused before a write fails, so nothing may need a
/// reopen.
async fn counted(node: &Node) -> Result<f64, CannotInject> {
    let series = node.series().await?;
    let labels = [("class", "no_space")];
    Ok(series.sum("ankusa_store_write_failures_total", &labels).unwrap_or(0.0))
}

async fn judge_series(
    stage: &mut Stage,
    node: &Node,
    before: f64,
    place: &str,
) -> Result<(), CannotInject> {
    if counted(node).await? <= before {
        stage
            .report
            .violated_by(format!("{place}: the metrics count no failed writes of no_space"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_there_is_none_of() {
        assert!(says_why("cannot start: no_space: IO error: No space left on device"));
        assert!(!says_why("cannot start: corruption"));
    }
}
