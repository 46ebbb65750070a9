//! One measurement in a process of its own, so that its CPU time and its memory are nobody else's.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ankusa_actors::dispatch::dlq::{DeadFilter, dead};
use ankusa_actors::model::reason::ReasonClass;
use ankusa_actors::node::Roles;
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::fill::{Past, fill};
use super::node::{HANGING, QUICK, Tree};
use super::timed::ScanTime;
use crate::bench::process::{Process, cpu_of};
use crate::drill::{CannotInject, OrCannot};

/// The hidden command under which the binary is one of these.
pub const COMMAND: &str = "bench-queue";

/// Hooks that wait for their ack at a time.
const IN_FLIGHT: usize = 256;

/// Wait between two looks at something that is to happen.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// Longest wait for compaction, or for the last delivery.
const PATIENCE: Duration = Duration::from_secs(600);

/// Dead letters on a page.
const PAGE: usize = 100;

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Part {
    Fill { past: String, rows: u64 },
    Acks(Acks),
    Scans { hooks: u64 },
    DeadLetters { times: u64 },
}

/// A closed load of hooks.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Acks {
    pub(super) hooks: u64,
    /// They are of so many tenants, in turn.
    pub(super) tenants: u64,
    /// Whether they are delivered too, by a sink that takes them at once.
    pub(super) delivered: bool,
}

/// What it came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Figures {
    Filled {
        took_s: f64,
        disk_bytes: u64,
    },
    Acks {
        cpu_us_a_hook: f64,
        per_second: f64,
        rss_bytes: u64,
    },
    /// Of claims, and of what is looked at once after a start.
    Scans {
        first_us: Vec<f64>,
        warm_us: f64,
        once_us: Vec<f64>,
    },
    DeadLetters {
        total: u64,
        page_ms: Vec<f64>,
        filtered_ms: Vec<f64>,
    },
}

impl Part {
    /// Does it in a process of its own, over the store in `directory`.
    pub(super) fn run(&self, directory: &Path, log: &Path) -> Result<Figures, CannotInject> {
        let part = serde_json::to_string(self).or_cannot("write down what to measure")?;
        let arguments = [COMMAND.to_owned(), directory.display().to_string(), part];
        let mut process = Process::start("a part of the bench", arguments, log)?;
        let line = process.line().map_err(|CannotInject(why)| {
            let said = std::fs::read_to_string(log).unwrap_or_default();
            CannotInject(format!("{why}; it said:\n{said}"))
        })?;
        serde_json::from_str(&line).or_cannot("read what a part of the bench said")
    }
}

/// The whole process: a directory and a [`Part`] behind the command.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    let figures = match arguments {
        [directory, part] => measure(PathBuf::from(directory), part),
        _ => Err(CannotInject("a part is given a directory and what to do".to_owned())),
    };
    let said = figures.and_then(|figures| {
        let line = serde_json::to_string(&figures).or_cannot("write down what was measured")?;
        writeln!(io::stdout(), "{line}").or_cannot("say what was measured")
    });
    match said {
        Ok(()) => ExitCode::SUCCESS,
        Err(CannotInject(why)) => {
            let _ = writeln!(io::stderr(), "{COMMAND}: {why}");
            ExitCode::FAILURE
        }
    }
}

fn measure(directory: PathBuf, part: &str) -> Result<Figures, CannotInject> {
    let part: Part = serde_json::from_str(part).or_cannot("read what to measure")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.or_cannot("start a runtime")?.block_on(async move {
        match part {
            Part::Fill { past, rows } => filled(&directory, past.parse()?, rows).await,
            Part::Acks(load) => acks(&directory, load).await,
            Part::Scans { hooks } => scans(&directory, hooks).await,
            Part::DeadLetters { times } => dead_letters(&directory, times).await,
        }
    })
}

async fn filled(directory: &Path, past: Past, rows: u64) -> Result<Figures, CannotInject> {
    let begun = Instant::now();
    fill(directory, past, rows).await?;
    let took_s = begun.elapsed().as_secs_f64();
    // What the writing left to do is not what is measured afterwards; but for what the passed hooks left behind.
    let tree =
        Tree::start(directory, Roles { edge: false, dispatch: false, storage: false }).await?;
    if past != Past::Passed {
        quiet(&tree).await?;
    }
    let stats = tree.store().stats().await.or_cannot("look at the store")?;
    tree.stop().await?;
    Ok(Figures::Filled { took_s, disk_bytes: stats.disk_bytes })
}

/// Waits until nothing is flushed or compacted.
async fn quiet(tree: &Tree) -> Result<(), CannotInject> {
    let mut quiet = 0;
    until("compaction", async || {
        sleep(Duration::from_millis(50)).await;
        let stats = tree.store().stats().await.or_cannot("look at the store")?;
        let is_quiet = stats.running_compactions == 0 && stats.running_flushes == 0;
        quiet = if is_quiet { quiet + 1 } else { 0 };
        Ok(quiet >= 10)
    })
    .await
}

async fn until(
    what: &str,
    mut is_so: impl AsyncFnMut() -> Result<bool, CannotInject>,
) -> Result<(), CannotInject> {
    let begun = Instant::now();
    while !is_so().await? {
        if begun.elapsed() > PATIENCE {
            return Err(CannotInject(format!("cannot see the end of {what} in {PATIENCE:?}")));
        }
    }
    Ok(())
}

fn cpu() -> Result<Duration, CannotInject> {
    cpu_of("self").ok_or_else(|| CannotInject("cannot read the CPU time".to_owned()))
}

async fn acks(directory: &Path, load: Acks) -> Result<Figures, CannotInject> {
    let roles = Roles { edge: true, dispatch: load.delivered, storage: false };
    let tree = Arc::new(Tree::start(directory, roles).await?);
    let source = if load.delivered { QUICK } else { HANGING };
    // A tenth of it before the clock starts: files are opened, the log grows, what is due to a sink that hangs is claimed.
    send(&tree, source, load, load.hooks / 10).await?;
    quiet(&tree).await?;
    let (cpu_before, begun) = (cpu()?, Instant::now());
    send(&tree, source, load, load.hooks).await?;
    let lasted = begun.elapsed();
    // What they leave to compaction they cost too, and it is not the next one's burden.
    quiet(&tree).await?;
    let spent = cpu()?.saturating_sub(cpu_before);
    let rss_bytes = peak_rss_bytes()?;
    let tree = Arc::into_inner(tree).ok_or_else(|| CannotInject("a client is left".to_owned()))?;
    tree.stop().await?;
    let hooks = load.hooks as f64;
    Ok(Figures::Acks {
        cpu_us_a_hook: spent.as_secs_f64() * 1e6 / hooks,
        per_second: hooks / lasted.as_secs_f64(),
        rss_bytes,
    })
}

/// Has `hooks` of them acked, and delivered if they are to be.
async fn send(
    tree: &Arc<Tree>,
    source: &'static str,
    load: Acks,
    hooks: u64,
) -> Result<(), CannotInject> {
    let taken = tree.quick.taken();
    // What waits for a sink that hangs is not in the way of what is delivered.
    let names: Arc<[String]> = (0..load.tenants).map(|ix| format!("{source}-{ix}")).collect();
    let next = Arc::new(AtomicU64::new(0));
    let clients: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (tree, names, next) = (Arc::clone(tree), Arc::clone(&names), Arc::clone(&next));
            tokio::spawn(async move {
                let mut refused = 0_u64;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    let at = usize::try_from(number % load.tenants.max(1)).unwrap_or(0);
                    let Some(name) = names.get(at).filter(|_| number < hooks) else {
                        return refused;
                    };
                    refused += u64::from(!tree.ack(source, name).await);
                }
            })
        })
        .collect();
    let mut refused = 0;
    for client in clients {
        refused += client.await.or_cannot("run a client")?;
    }
    if refused > 0 {
        return Err(CannotInject(format!("cannot have {refused} of {hooks} hooks acked")));
    }
    if load.delivered {
        until("the deliveries", async || {
            sleep(LOOK_AGAIN).await;
            Ok(tree.quick.taken() >= taken + hooks)
        })
        .await?;
    }
    Ok(())
}

/// The most memory this process ever had.
fn peak_rss_bytes() -> Result<u64, CannotInject> {
    let status = std::fs::read_to_string("/proc/self/status").or_cannot("read the memory")?;
    let kib =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.split_whitespace().next());
    let kib = kib.and_then(|kib| kib.parse::<u64>().ok());
    kib.map(|kib| kib << 10).ok_or_else(|| CannotInject("cannot read the memory".to_owned()))
}

/// One hook after the other: the scans of the index that dispatch makes until it is delivered.
async fn scans(directory: &Path, hooks: u64) -> Result<Figures, CannotInject> {
    let roles = Roles { edge: true, dispatch: true, storage: false };
    let tree = Tree::start(directory, roles).await?;
    let mut times = Vec::new();
    for number in 0..=hooks {
        if !tree.ack(QUICK, "active-0").await {
            return Err(CannotInject("cannot have a hook acked".to_owned()));
        }
        until("a delivery", async || {
            sleep(LOOK_AGAIN).await;
            Ok(tree.quick.taken() > number)
        })
        .await?;
        times.push(tree.scans.take());
    }
    tree.stop().await?;
    let us = |of_claim: bool, times: &[Vec<ScanTime>]| -> Vec<f64> {
        let times = times.iter().flatten().filter(|time| time.is_of_claim == of_claim);
        times.map(|time| time.took.as_secs_f64() * 1e6).collect()
    };
    // Everything from the start to the first delivery.
    let (first, later) = times.split_at(times.len().min(1));
    let warm_us = super::median(us(true, later));
    Ok(Figures::Scans { first_us: us(true, first), warm_us, once_us: us(false, first) })
}

async fn dead_letters(directory: &Path, times: u64) -> Result<Figures, CannotInject> {
    let roles = Roles { edge: false, dispatch: false, storage: false };
    let tree = Tree::start(directory, roles).await?;
    let (mut page_ms, mut filtered_ms, mut total) = (Vec::new(), Vec::new(), 0);
    // None of them is one of these, so a page of them looks at as many rows as a page may.
    let filtered = DeadFilter { class: Some(ReasonClass::Panicked), ..DeadFilter::default() };
    for _ in 0..times {
        for (filter, into) in
            [(DeadFilter::default(), &mut page_ms), (filtered.clone(), &mut filtered_ms)]
        {
            let begun = Instant::now();
            let page = dead(tree.store(), &filter, None, PAGE).await;
            total = page.or_cannot("list the dead letters")?.total;
            into.push(begun.elapsed().as_secs_f64() * 1e3);
        }
    }
    tree.stop().await?;
    Ok(Figures::DeadLetters { total, page_ms, filtered_ms })
}
