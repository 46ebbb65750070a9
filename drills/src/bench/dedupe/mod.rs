//! `bench dedupe`: what it costs to find that keys are new, and to take them, where a hundred million others are.
//!
//! For filters of 10 bits and none, a store is filled; over each, with a block cache of 64 MiB and of 1 GiB, batches of
//! fresh keys are looked up and then committed durably, by the store's own adapter and the node's own builders. The same
//! is done over an empty store. The figures of a commit are those of the look-up and the durable write together.
//!
//! Both stores with keys lie on the disk one after the other, never together. What is read of them comes from the page
//! cache of the machine as far as that reaches, on both sides of each ratio.

mod fill;
mod keys;
mod measure;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ankusa_node::rocks::RocksOptions;

use super::{Bar, BenchOptions, BenchReport, Side, floor, machine};
use crate::drill::{CannotInject, OrCannot};
use crate::stage::on_a_runtime;
use measure::{BATCH_KEYS, BATCHES, Times};

/// Keys there are before anything is measured.
const KEYS: u64 = 100_000_000;

/// Bits a key of the filters, in the order they are measured.
const BLOOMS: [u32; 2] = [10, 0];

const SMALL_CACHE: usize = 64 << 20;
const LARGE_CACHE: usize = 1 << 30;

/// The documented commit over as many keys with a cache of 1 GiB, in milliseconds, on another machine.
const COMMIT_P50_MS: f64 = 6.0;

/// How many times the same commit over an empty store it may take.
const COMMIT_VS_EMPTY: f64 = 4.0;

/// How long the disk's own fsync is measured for.
const FSYNC_FOR: Duration = Duration::from_secs(5);

/// Tables of a filled store are many, and a disk that has just written them is busy.
const OPEN_DEADLINE_MS: u64 = 600_000;

/// Runs it.
///
/// # Errors
/// When a store cannot be filled or used.
pub(super) fn run(options: &BenchOptions) -> Result<BenchReport, CannotInject> {
    let base = options.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let scratch = tempfile::Builder::new().prefix("bench-dedupe-").tempdir_in(&base);
    let scratch = scratch.or_cannot(format_args!("make a directory in {}", base.display()))?;
    let directory = scratch.path().canonicalize().or_cannot("resolve the scratch directory")?;
    let keys = options.keys.unwrap_or(KEYS).max(fill::LEAST);
    let mut bench = Bench { directory, keys, lines: Vec::new() };
    for line in machine::describe(&bench.directory)? {
        bench.tell(line);
    }
    on_a_runtime(bench.measure())
}

struct Bench {
    directory: PathBuf,
    keys: u64,
    lines: Vec<String>,
}

fn options(bloom_bits_per_key: u32, block_cache_bytes: usize) -> RocksOptions {
    RocksOptions {
        bloom_bits_per_key,
        block_cache_bytes,
        open_deadline_ms: OPEN_DEADLINE_MS,
        ..RocksOptions::default()
    }
}

impl Bench {
    /// A run takes half an hour: whoever waits may watch.
    fn tell(&mut self, line: String) {
        let _ = writeln!(io::stderr(), "{line}");
        self.lines.push(line);
    }

    async fn measure(mut self) -> Result<BenchReport, CannotInject> {
        let fsync =
            floor::fsync::measure(&self.directory, FSYNC_FOR).or_cannot("measure the disk")?;
        self.tell(format!(
            "{} keys; {BATCHES} batches of {BATCH_KEYS} fresh ones; p50/p99 in ms; a fsync of 4 KiB takes {:.2}/{:.2}",
            self.keys,
            fsync.percentile_ms(50),
            fsync.percentile_ms(99)
        ));
        let store = self.directory.join("empty");
        let empty = self.over(&store, "an empty store", 10, LARGE_CACHE).await?;
        let _ = std::fs::remove_dir_all(&store);
        let mut times = Vec::new();
        for bloom in BLOOMS {
            times.push(self.with_filters(bloom).await?);
        }
        let bars = self.compare(&empty, &times);
        Ok(BenchReport { bench: "dedupe", bars, lines: self.lines })
    }

    /// Over a store filled for it, with a small and a large cache.
    async fn with_filters(&mut self, bloom: u32) -> Result<[Times; 2], CannotInject> {
        let store = self.directory.join(format!("bloom-{bloom}"));
        let began = Instant::now();
        let filled = fill::fill(&store, options(bloom, LARGE_CACHE), self.keys).await?;
        self.tell(format!(
            "bloom {bloom}: filled in {:.0} s, {} in sorted tables and the last {} in batches as the Writer's: {} tables, \
             {} MiB",
            began.elapsed().as_secs_f64(),
            filled.in_tables,
            filled.in_batches,
            filled.tables,
            filled.bytes >> 20
        ));
        let small = self.over(&store, &format!("bloom {bloom}"), bloom, SMALL_CACHE).await?;
        let large = self.over(&store, &format!("bloom {bloom}"), bloom, LARGE_CACHE).await?;
        let _ = std::fs::remove_dir_all(&store);
        Ok([small, large])
    }

    async fn over(
        &mut self,
        store: &Path,
        name: &str,
        bloom: u32,
        cache: usize,
    ) -> Result<Times, CannotInject> {
        let times = measure::measure(store, options(bloom, cache)).await?;
        self.tell(format!("{name}, cache {} MiB: {times}", cache >> 20));
        Ok(times)
    }

    fn compare(&mut self, empty: &Times, times: &[[Times; 2]]) -> Vec<Bar> {
        let commit = |times: &Times| times.commit.percentile_ms(50);
        let [with, without] = times else { return Vec::new() };
        for (cache, with, without) in
            [("64 MiB", &with[0], &without[0]), ("1 GiB", &with[1], &without[1])]
        {
            let gain = |percent| {
                let (with, without) =
                    (with.miss.percentile_ms(percent), without.miss.percentile_ms(percent));
                without / with
            };
            let (p50, p99) = (gain(50), gain(99));
            self.tell(format!(
                "the filter's gain, cache {cache}: a look-up takes {p50:.1} times as long without (p99 {p99:.1})"
            ));
        }
        let large = commit(&with[1]);
        let at_most = |name: &str, value, bar| Bar::new(name, value, Side::AtMost, bar);
        vec![
            at_most("dedupe_commit_p50_ms_1gib", large, COMMIT_P50_MS),
            at_most("dedupe_commit_p50_1gib_vs_empty", large / commit(empty), COMMIT_VS_EMPTY),
        ]
    }
}
