//! `bench ingest`: what accepting a hook costs, against what it must cost.
//!
//! Four floors and the node take turns: a bare fsync, a bare HTTP server, a bare writer and syncer over RocksDB, and the
//! three put together; then the node. Every figure that is held against a bar is a ratio of two measured in one run. CPU
//! time a hook is the figure to trust on a machine that others use too.

mod report;
mod round;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use super::machine;
use super::node::{Node, Serves};
use super::requests::Requests;
use super::{BenchOptions, BenchReport};
use crate::drill::{CannotInject, OrCannot};
use report::Rounds;
use round::Setup;

/// Fewer say little: a neighbour's burst can spoil one or two.
const ROUNDS: usize = 5;

/// Of each load, a second to warm up not counted.
const SECONDS: u64 = 5;

const CONNECTIONS: usize = 256;

/// Runs it.
///
/// # Errors
/// When the node or a floor cannot be run.
pub(super) fn run(options: &BenchOptions) -> Result<BenchReport, CannotInject> {
    let base = options.directory.clone().unwrap_or_else(|| PathBuf::from("."));
    let scratch = tempfile::Builder::new().prefix("bench-").tempdir_in(&base);
    let scratch = scratch.or_cannot(format_args!("make a directory in {}", base.display()))?;
    let directory = scratch.path().canonicalize().or_cannot("resolve the scratch directory")?;
    let mut lines = machine::describe(&directory)?;
    let like = store_of_the_node(&directory.join("like"))?;
    let setup = Setup {
        directory,
        like,
        connections: options.connections.unwrap_or(CONNECTIONS).max(1),
        measured: Duration::from_secs(options.seconds.unwrap_or(SECONDS).max(1)),
        requests: Rc::new(Requests::new()),
    };
    lines.extend(what_is_measured(&setup));
    let mut rounds = Vec::new();
    for number in 1..=options.rounds.unwrap_or(ROUNDS).max(1) {
        let round = setup.round()?;
        // A run takes minutes: whoever waits may watch.
        let told = round.lines(number);
        let _ = writeln!(io::stderr(), "{}", told.join("\n"));
        lines.extend(told);
        rounds.push(round);
    }
    let rounds = Rounds(&rounds);
    lines.extend(rounds.lines());
    Ok(BenchReport { bench: "ingest", bars: rounds.bars(), lines })
}

/// The store of a node that was started once: the floors take its options.
fn store_of_the_node(directory: &Path) -> Result<PathBuf, CannotInject> {
    std::fs::create_dir(directory).or_cannot(format_args!("make {}", directory.display()))?;
    Ok(Node::start(directory, Serves::AcksAndObligations)?.store().to_owned())
}

fn what_is_measured(setup: &Setup) -> Vec<String> {
    let version = machine::rocksdb_version(&setup.like).unwrap_or_else(|| "unknown".to_owned());
    vec![
        format!(
            "RocksDB {version}, the node's own options for all; {} connections, {:?} a load",
            setup.connections, setup.measured
        ),
        "1 KiB signed GitHub pushes; node: edge and storage, verified, deduped by the id of \
         the delivery, limits of tenant, source, client and node, one sink row, archive obligation, dispatch off"
            .to_owned(),
        "floors: HTTP is hyper, HMAC-SHA256 and UUIDv7; store is a writer and a syncer over RocksDB, 256 hooks a group, \
         pipelined 4, 1.1 KB value, 180 B row; end to end is both"
            .to_owned(),
        "CPU is of the server process alone, user and system; fsyncs of the node are those its metrics count for answers"
            .to_owned(),
    ]
}
