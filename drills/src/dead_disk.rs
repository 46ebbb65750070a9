//! A disk whose fsyncs and writes, or all calls, answer EIO for a while, and then no more; or a node that is killed and
//! started again meanwhile.
//!
//! While it is dead everything is refused, `/ready` says `io_error`, the series rise. Once it is healed hooks are taken
//! again without anybody doing anything, nothing acked is lost, and nothing refused turns up.

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
use crate::watch::{Said, Watch};

/// Deaths, unless asked otherwise.
const DEATHS: u64 = 4;

const CLIENTS: usize = 32;

/// Small, so that the log a reopen reads again stays as short as what "within a second" is said of.
const WRITE_BUFFER_BYTES: u64 = 4 << 20;

/// How long the disk stays dead once that has been noticed, in milliseconds.
const DEAD_MS: std::ops::Range<u64> = 1_000..3_000;

/// Longest wait for `/ready` to say it. It should within 1 s; this is a bound on hanging.
const TOLD_WITHIN: Duration = Duration::from_secs(20);

/// What dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Death {
    /// Fsyncs and writes.
    Writing,
    /// Everything, reads too.
    Everything,
    /// Everything, and the process is killed meanwhile.
    WithTheProcess,
}

impl Death {
    const ALL: [Self; 3] = [Self::Writing, Self::Everything, Self::WithTheProcess];

    fn strikes(self, faults: &Faults) -> Result<(), CannotInject> {
        match self {
            Self::Writing => {
                faults.set(Word::SyncErrno, EIO)?;
                faults.set(Word::WriteErrno, EIO)?;
                faults.set(Word::Sticky, 1)?;
                faults.set(Word::FailSync, 1)?;
                faults.set(Word::FailWrite, 1)
            }
            Self::Everything | Self::WithTheProcess => faults.set(Word::Dead, 1),
        }
    }
}

const EIO: u64 = libc::EIO.unsigned_abs() as u64;

fn heal(faults: &Faults) -> Result<(), CannotInject> {
    for word in [Word::Sticky, Word::FailSync, Word::FailWrite, Word::Dead] {
        faults.set(word, 0)?;
    }
    Ok(())
}

#[derive(Default)]
struct Figures {
    slowest_told: Duration,
    slowest_ready: Duration,
    slowest_resume: Duration,
    /// The same where the node had to be started again.
    slowest_resume_by_start: Duration,
    refused_while_dead: usize,
    closed_while_dead: usize,
}

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::in_memory()?;
        let data_dir = scratch.subdirectory("data")?;
        let faults = Faults::new(&data_dir, scratch.path().join("page"))?;
        let mut stage = Stage::plain("dead_disk", options, scratch).await?;
        stage.setup =
            stage.setup.clone().with_environment(faults.environment()).with_config(&json!({
                "log": {"level": "warning"},
                "queue": {"rocksdb": {"write_buffer_bytes": WRITE_BUFFER_BYTES}},
            }))?;
        let mut figures = Figures::default();
        let mut deaths = 0;
        let mut node = stage.start("the start").await?;
        while let Some(alive) = node.take() {
            if !stage.goes_on(deaths, DEATHS) {
                stage.drain_and_judge(&alive, "at the end").await?;
                stage.stop(alive, "at the end").await?;
                break;
            }
            let kind = usize::try_from(deaths).unwrap_or(0) % Death::ALL.len();
            let death = Death::ALL.get(kind).copied().unwrap_or(Death::Writing);
            deaths += 1;
            let place = format!("death {deaths} of {death:?}");
            node = die(&mut stage, alive, &faults, death, &place, &mut figures).await?;
        }
        let report = &mut stage.report;
        report.count("slowest_ready_503_ms", millis(figures.slowest_told));
        report.count("slowest_ready_200_ms", millis(figures.slowest_ready));
        report.count("slowest_resume_ms", millis(figures.slowest_resume));
        report.count("slowest_resume_by_start_ms", millis(figures.slowest_resume_by_start));
        report.count("refused_while_dead", figures.refused_while_dead);
        report.count("closed_while_dead", figures.closed_while_dead);
        Ok(stage.conclude(deaths))
    })
}

/// One death, and the life after it. Answers the node that lives on.
async fn die(
    stage: &mut Stage,
    node: Node,
    faults: &Faults,
    death: Death,
    place: &str,
    figures: &mut Figures,
) -> Result<Option<Node>, CannotInject> {
    let watch = Watch::start(stage.setup.http_port());
    let load = stage.load(CLIENTS);
    if !stage.acks(Instant::now(), 100, AGAIN_WITHIN).await {
        stage.report.violated_by(format!("{place}: no hooks are taken before it"));
        return Ok(None);
    }
    stage.rest().await;
    let before = counted(&node).await?;
    let died = Instant::now();
    death.strikes(faults)?;
    match watch.wait_for(died, TOLD_WITHIN, says_io_error).await {
        Some(told) => figures.slowest_told = figures.slowest_told.max(told.duration_since(died)),
        None => stage
            .report
            .violated_by(format!("{place}: /ready did not say io_error: {:?}", watch.told(died))),
    }
    sleep(stage.draw_ms(&DEAD_MS)).await;
    let survivor = if death == Death::WithTheProcess {
        node.kill()?;
        stage.judge_files(place);
        None
    } else {
        Some(node)
    };
    let dead = stage.since(died);
    figures.refused_while_dead += dead.refused;
    figures.closed_while_dead += dead.closed;
    let healed = Instant::now();
    heal(faults)?;
    let node = match survivor {
        Some(node) => node,
        None => {
            let Some(again) = stage.start(place).await? else { return Ok(None) };
            again
        }
    };
    let resumed = stage.takes_hooks_again(place, healed).await.unwrap_or_default();
    match watch.wait_for(healed, AGAIN_WITHIN, |said| *said == Said::Ready).await {
        Some(_) if death == Death::WithTheProcess => {
            figures.slowest_resume_by_start = figures.slowest_resume_by_start.max(resumed);
        }
        Some(ready) => {
            figures.slowest_resume = figures.slowest_resume.max(resumed);
            figures.slowest_ready = figures.slowest_ready.max(ready.duration_since(healed));
        }
        None => stage.report.violated_by(format!("{place}: /ready stays {:?}", watch.told(died))),
    }
    load.stop().await;
    let left_waiting = stage.since(died).left_waiting;
    if left_waiting > 0 {
        stage.report.violated_by(format!("{place}: {left_waiting} clients were left waiting"));
    }
    if death != Death::WithTheProcess {
        judge_series(stage, &node, before, place).await?;
    }
    Ok(Some(node))
}

fn says_io_error(said: &Said) -> bool {
    matches!(said, Said::NotReady(Some(reason)) if reason == "io_error")
}

/// Failed writes of the class, and reopens.
async fn counted(node: &Node) -> Result<[f64; 2], CannotInject> {
    let series = node.series().await?;
    let sum = |name, labels: &[(&str, &str)]| series.sum(name, labels).unwrap_or(0.0);
    Ok([
        sum("ankusa_store_write_failures_total", &[("class", "io_error")]),
        sum("ankusa_store_reopen_total", &[]),
    ])
}

async fn judge_series(
    stage: &mut Stage,
    node: &Node,
    before: [f64; 2],
    place: &str,
) -> Result<(), CannotInject> {
    let after = counted(node).await?;
    for (name, (before, after)) in
        ["failed writes of io_error", "reopens"].into_iter().zip(before.into_iter().zip(after))
    {
        if after <= before {
            stage.report.violated_by(format!("{place}: the metrics count no {name}"));
        }
    }
    Ok(())
}
