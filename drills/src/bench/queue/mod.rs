//! `bench queue`: what a hook costs as the queue grows, against what it costs on an empty store.
//!
//! Stores with a past of millions of rows are written with the node's own builders, and hooks then handed to the node's
//! own tree over them, in turns with the same over an empty store. Every measurement is a process of its own. CPU time a
//! hook includes what makes the hook and waits for its ack, the same on both sides, and no HTTP.
//!
//! The one part of the drills that uses pieces of the node directly: it judges what they cost, and nothing they promise.

mod delivery;
mod fill;
mod node;
pub mod part;
mod report;
mod timed;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{BenchOptions, BenchReport, machine, median};
use crate::drill::{CannotInject, OrCannot};
use fill::Past;
use part::{Acks, Figures, Part};
use report::{Cost, Measured, Times};

/// What a queue is called large from on.
const ROWS: u64 = 10_000_000;

/// Turns of an empty store and one with a past.
const ROUNDS: usize = 3;

/// Hooks of one load that is delivered.
const HOOKS: u64 = 200_000;

/// Hooks of one load that stays: so many that compaction has begun in an empty store too, which costs a third of an ack.
const HOOKS_THAT_STAY: u64 = 600_000;

/// Hooks sent one after the other, to time the scans of each.
const SINGLE_HOOKS: u64 = 300;

/// Pages of dead letters read.
const PAGES: u64 = 21;

/// Tenants that take turns in one load.
const INTERLEAVED: u64 = 1_000;

/// A tenant that is idle for so many rows of the other stores.
const ROWS_AN_IDLE_TENANT: u64 = 1_000;

/// Runs it.
///
/// # Errors
/// When a part cannot be run.
pub(super) fn run(options: &BenchOptions) -> Result<BenchReport, CannotInject> {
    let base = options.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let scratch = tempfile::Builder::new().prefix("bench-queue-").tempdir_in(&base);
    let scratch = scratch.or_cannot(format_args!("make a directory in {}", base.display()))?;
    let directory = scratch.path().canonicalize().or_cannot("resolve the scratch directory")?;
    let mut bench = Bench {
        rows: options.rows.unwrap_or(ROWS).max(ROWS_AN_IDLE_TENANT),
        rounds: options.rounds.unwrap_or(ROUNDS).max(1),
        directory,
        lines: Vec::new(),
        measured: Measured::default(),
    };
    let machine = machine::describe(&bench.directory)?;
    machine.into_iter().for_each(|line| bench.tell(line));
    bench.tell(format!(
        "{} rows; loads of {HOOKS_THAT_STAY} hooks that stay and {HOOKS} that are delivered; medians of {} rounds",
        bench.rows, bench.rounds
    ));
    bench.interleaved()?;
    for past in [Past::Tenants, Past::Pending, Past::Dead, Past::Passed] {
        bench.with_past(past)?;
    }
    bench.measured.kept_up = Some(delivery::measure(&bench.directory, options)?);
    let kept_up =
        bench.measured.kept_up.iter().flat_map(delivery::KeptUp::lines).collect::<Vec<_>>();
    kept_up.into_iter().for_each(|line| bench.tell(line));
    Ok(BenchReport { bench: "queue", bars: bench.measured.bars(), lines: bench.lines })
}

struct Bench {
    rows: u64,
    rounds: usize,
    directory: PathBuf,
    lines: Vec<String>,
    measured: Measured,
}

impl Bench {
    /// A run takes half an hour: whoever waits may watch.
    fn tell(&mut self, line: String) {
        let _ = writeln!(io::stderr(), "{line}");
        self.lines.push(line);
    }

    fn run(&self, store: &Path, part: &Part) -> Result<Figures, CannotInject> {
        part.run(store, &self.directory.join("part.log"))
    }

    /// Over an empty store, gone afterwards.
    fn empty(&self, part: &Part) -> Result<Figures, CannotInject> {
        let store = self.directory.join("fresh");
        let figures = self.run(&store, part);
        let _ = std::fs::remove_dir_all(&store);
        figures
    }

    fn cost(figures: Figures) -> Result<Cost, CannotInject> {
        match figures {
            Figures::Acks { cpu_us_a_hook, per_second, rss_bytes } => {
                Ok(Cost { cpu_us: cpu_us_a_hook, per_second, rss_bytes })
            }
            Figures::Filled { .. } | Figures::Scans { .. } | Figures::DeadLetters { .. } => {
                Err(not_asked())
            }
        }
    }

    fn interleaved(&mut self) -> Result<(), CannotInject> {
        let load = |tenants| Part::Acks(Acks { hooks: HOOKS_THAT_STAY, tenants, delivered: false });
        let mut times = Times::default();
        for _ in 0..self.rounds {
            times.without.push(Self::cost(self.empty(&load(1))?)?);
            times.with.push(Self::cost(self.empty(&load(INTERLEAVED))?)?);
        }
        self.tell(format!("acks, {INTERLEAVED} tenants against one: {times}"));
        self.measured.interleaved = times;
        Ok(())
    }

    fn with_past(&mut self, past: Past) -> Result<(), CannotInject> {
        let store = self.directory.join(past.word());
        let rows = match past {
            Past::Tenants => self.rows / ROWS_AN_IDLE_TENANT,
            Past::Empty | Past::Pending | Past::Dead | Past::Passed => self.rows,
        };
        let filled = self.run(&store, &Part::Fill { past: past.word().to_owned(), rows })?;
        if let Figures::Filled { took_s, disk_bytes } = filled {
            let mib = disk_bytes >> 20;
            self.tell(format!("{}: {rows} rows written in {took_s:.0} s, {mib} MiB", past.word()));
        }
        match past {
            Past::Passed => self.scans(&store)?,
            Past::Dead => {
                self.dead_letters(&store)?;
                self.costs(past, &store)?;
            }
            Past::Empty | Past::Pending | Past::Tenants => self.costs(past, &store)?,
        }
        let _ = std::fs::remove_dir_all(&store);
        Ok(())
    }

    fn costs(&mut self, past: Past, store: &Path) -> Result<(), CannotInject> {
        for delivered in [false, true] {
            let hooks = if delivered { HOOKS } else { HOOKS_THAT_STAY };
            let load = Part::Acks(Acks { hooks, tenants: 1, delivered });
            let mut times = Times::default();
            for _ in 0..self.rounds {
                times.without.push(Self::cost(self.empty(&load)?)?);
                times.with.push(Self::cost(self.run(store, &load)?)?);
            }
            let what = if delivered { "acks and deliveries" } else { "acks" };
            self.tell(format!("{what}, {} against empty: {times}", past.word()));
            self.measured.costs.push((past.word(), delivered, times));
        }
        Ok(())
    }

    fn scans(&mut self, store: &Path) -> Result<(), CannotInject> {
        let part = Part::Scans { hooks: SINGLE_HOOKS };
        for _ in 0..self.rounds {
            for (figures, into) in [(self.empty(&part)?, false), (self.run(store, &part)?, true)] {
                let Figures::Scans { first_us, warm_us, once_us } = figures else {
                    return Err(not_asked());
                };
                let first: f64 = first_us.iter().sum();
                let slowest = first_us.iter().copied().fold(0.0, f64::max);
                let word = if into { "passed" } else { "empty" };
                self.tell(format!(
                    "claim scans, {word}: start to first delivery {first:.0} us in {} scans, the slowest {slowest:.0} us; \
                     warm {warm_us:.1} us a scan; looking once for what the last process left {:.0} us",
                    first_us.len(),
                    once_us.iter().sum::<f64>()
                ));
                let scans = &mut self.measured.scans;
                let side = if into { &mut scans.with } else { &mut scans.without };
                side.push((first, warm_us));
            }
        }
        Ok(())
    }

    fn dead_letters(&mut self, store: &Path) -> Result<(), CannotInject> {
        let figures = self.run(store, &Part::DeadLetters { times: PAGES })?;
        let Figures::DeadLetters { total, page_ms, filtered_ms } = figures else {
            return Err(not_asked());
        };
        let first = page_ms.first().copied().unwrap_or(f64::NAN);
        let (page, filtered) = (median(page_ms), median(filtered_ms));
        self.tell(format!(
            "dead letters: {total} counted, first page {page:.2} ms, the first one after a start {first:.2} ms, with a \
             filter that none passes {filtered:.2} ms"
        ));
        self.measured.dead_page_ms = page;
        self.measured.dead_filtered_ms = filtered;
        Ok(())
    }
}

fn not_asked() -> CannotInject {
    CannotInject("cannot read a part of the bench: it answered something else".to_owned())
}
