//! `bench blob`: objects of the archive, against what there is without us: `cp` and an fsync on a disk, and the
//! `object_store` crate on a real S3 server, in the same run and in turns.
//!
//! SeaweedFS is started by the bench, below the directory that is measured; `scripts/s3-servers.sh` installs it. Server
//! and clients share the cores, on both sides of each ratio.

mod local;
mod peak;
mod s3;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ankusa_actors::ports::{Event, Events};
use ankusa_node::blob::transport::World;
use ankusa_node::host::{HostClock, HostEntropy};

use super::{Bar, BenchOptions, BenchReport, Side, machine};
use crate::drill::{CannotInject, OrCannot};
use crate::seaweedfs::SeaweedFs;
use crate::stage::on_a_runtime;

/// The size of a segment.
const OBJECT_BYTES: usize = 16 << 20;

/// Keys of the listing, unless asked otherwise.
const KEYS: u64 = 100_000;

/// How often both sides take turns.
const ROUNDS: usize = 20;

/// Against `cp` and an fsync.
const LOCAL_VS_CP: f64 = 0.8;

/// Against the `object_store` crate.
const S3_VS_CRATE: f64 = 0.9;

/// What an upload of 1 GiB may add to the memory of the process, in MiB.
const UPLOAD_MIB: f64 = 64.0;

/// Runs it.
///
/// # Errors
/// When there is no server, or it does not take what it is given.
pub(super) fn run(options: &BenchOptions) -> Result<BenchReport, CannotInject> {
    let base = options.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let scratch = tempfile::Builder::new().prefix("bench-blob-").tempdir_in(&base);
    let scratch = scratch.or_cannot(format_args!("make a directory in {}", base.display()))?;
    let directory = scratch.path().canonicalize().or_cannot("resolve the scratch directory")?;
    let mut bench = Bench {
        directory,
        keys: options.keys.unwrap_or(KEYS),
        rounds: options.rounds.unwrap_or(ROUNDS).max(1),
        lines: Vec::new(),
    };
    for line in machine::describe(&bench.directory)? {
        bench.tell(line);
    }
    on_a_runtime(bench.measure())
}

struct Bench {
    directory: PathBuf,
    keys: u64,
    rounds: usize,
    lines: Vec<String>,
}

impl Bench {
    /// Whoever waits may watch.
    fn tell(&mut self, line: String) {
        let _ = writeln!(io::stderr(), "{line}");
        self.lines.push(line);
    }

    async fn measure(mut self) -> Result<BenchReport, CannotInject> {
        let mut bars = Vec::new();
        let local = local::measure(&self.directory, self.rounds).await?;
        self.tell(format!("16 MiB onto the disk, ours against cp and fsync: {local}"));
        bars.push(local.bar("blob_local_put_16mib_vs_cp", LOCAL_VS_CP));

        let server = SeaweedFs::start(&self.directory.join("seaweedfs")).await?;
        let stores = s3::Stores::open(&server).await?;
        let parts = stores.puts_in_parts(self.rounds).await?;
        self.tell(format!("16 MiB in two parts to S3, ours against the crate: {parts}"));
        for (name, what, times) in [
            (
                "blob_s3_put_16mib_vs_crate",
                "16 MiB in one piece to S3",
                stores.puts(self.rounds).await?,
            ),
            ("blob_s3_range_get_1kib_vs_crate", "1 KiB of S3", stores.ranges(self.rounds).await?),
        ] {
            self.tell(format!("{what}, ours against the crate: {times}"));
            bars.push(times.bar(name, S3_VS_CRATE));
        }
        let began = Instant::now();
        stores.fill(self.keys).await?;
        let took = began.elapsed();
        self.tell(format!("{} keys written in {:.0} s", self.keys, took.as_secs_f64()));
        let listings = stores.listings(self.keys, self.rounds.min(5)).await?;
        self.tell(format!("a list of {} keys, ours against the crate: {listings}", self.keys));
        bars.push(listings.bar("blob_s3_list_vs_crate", S3_VS_CRATE));

        let (added_mib, took) = stores.upload(1 << 30).await?;
        self.tell(format!(
            "1 GiB in parts to S3: {:.1} s, {added_mib:.0} MiB more memory at most",
            took.as_secs_f64()
        ));
        bars.push(Bar::new("blob_s3_upload_1gib_mib", added_mib, Side::AtMost, UPLOAD_MIB));
        Ok(BenchReport { bench: "blob", bars, lines: self.lines })
    }
}

/// How long both sides took, turn by turn.
#[derive(Default)]
struct Turns {
    ours: Vec<Duration>,
    theirs: Vec<Duration>,
}

impl Turns {
    /// How many times as fast ours is.
    fn ratio(&self) -> f64 {
        median(&self.theirs).as_secs_f64() / median(&self.ours).as_secs_f64()
    }

    fn bar(&self, name: &str, at_least: f64) -> Bar {
        Bar::new(name, self.ratio(), Side::AtLeast, at_least)
    }
}

impl std::fmt::Display for Turns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ms = |times: &[Duration]| median(times).as_secs_f64() * 1_000.0;
        write!(
            f,
            "median {:.2} ms against {:.2}, {:.2} times as fast, {} turns",
            ms(&self.ours),
            ms(&self.theirs),
            self.ratio(),
            self.ours.len()
        )
    }
}

fn median(times: &[Duration]) -> Duration {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

async fn timed<T, E: std::fmt::Display>(
    what: &str,
    call: impl Future<Output = Result<T, E>>,
) -> Result<(T, Duration), CannotInject> {
    let began = Instant::now();
    let done = call.await.or_cannot(what)?;
    Ok((done, began.elapsed()))
}

/// Bytes that do not compress.
fn random_bytes(length: usize) -> bytes::Bytes {
    use rand::Rng as _;
    let mut bytes = vec![0; length];
    rand::rng().fill_bytes(&mut bytes);
    bytes.into()
}

struct Unheard;

impl Events for Unheard {
    fn emit(&self, _: &Event<'_>) {}
}

fn world() -> World {
    World {
        clock: Arc::new(HostClock),
        entropy: Arc::new(HostEntropy),
        events: Arc::new(Unheard),
        pools: Arc::default(),
        breakers: Arc::default(),
    }
}
