//! A node that is short of what it needs: descriptors, file size, address space, memory, and connections that others hold
//! without using them.
//!
//! It refuses to start and says what is missing, or sheds, and takes hooks again once it has what it needs. Whatever it
//! does, what it acked is kept. One store goes through all of it.

mod crowds;
mod memory;

use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, prlimit, setrlimit};
use serde_json::{Value, json};
use tokio::time::sleep;

use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::node::{Node, NodeSetup, NotReady};
use crate::scratch::Scratch;
use crate::stage::{AGAIN_WITHIN, Stage, on_a_runtime};
use crate::timings::millis;

const CLIENTS: usize = 16;

/// `queue.rocksdb.max_open_files` of the node.
const MAX_OPEN_FILES: u64 = 128;

/// Descriptors it wants beside those.
const SPARE_FILES: u64 = 256;

/// The node's patience with silent connections, with heads and with bodies, in milliseconds.
const PATIENCE_MS: u64 = 2_000;

/// Longest wait for a node that must refuse to start.
const REFUSES_WITHIN: Duration = Duration::from_secs(30);

/// How long the node is left without what it needs.
const HELD: Duration = Duration::from_millis(1_500);

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    // The crowd is on this side of the connections too. Where it cannot be raised, the crowd is as large as it can be.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum });
    on_a_runtime(async {
        let mut stage = Stage::plain("starve", options, Scratch::on_disk()?).await?;
        stage.setup = stage.setup.clone().with_config(&config())?;
        let mut rounds = 0;
        while stage.goes_on(rounds, 1) {
            rounds += 1;
            too_few_files(&mut stage).await?;
            let Some(node) = start_with_files(&mut stage).await? else { break };
            let load = stage.load(CLIENTS);
            crowds::silent(&mut stage, &node).await?;
            crowds::slow(&mut stage, &node).await?;
            no_file_may_grow(&mut stage, &node).await?;
            load.stop().await;
            stage.drain_and_judge(&node, "after the crowds and the short files").await?;
            stage.stop(node, "after the crowds and the short files").await?;
            memory::no_address_space(&mut stage).await?;
            memory::no_memory(&mut stage).await?;
            if stage.report.violations_total > 0 {
                break;
            }
        }
        if let Some(node) = stage.start("the last start").await? {
            stage.drain_and_judge(&node, "at the end").await?;
            stage.stop(node, "at the end").await?;
        }
        Ok(stage.conclude(rounds))
    })
}

fn config() -> Value {
    json!({
        "log": {"level": "warning"},
        "queue": {"rocksdb": {"max_open_files": MAX_OPEN_FILES}},
        "http": {
            "header_timeout_ms": PATIENCE_MS,
            "idle_timeout_ms": PATIENCE_MS,
            "body_timeout_ms": PATIENCE_MS,
        },
    })
}

/// The node, allowed this many descriptors from its first moment.
fn with_files(setup: &NodeSetup, files: u64) -> NodeSetup {
    let limit = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
    setup.clone().through(["sh", "-c", limit.as_str()])
}

/// One descriptor too few: it must say so and not start.
async fn too_few_files(stage: &mut Stage) -> Result<(), CannotInject> {
    let files = MAX_OPEN_FILES + SPARE_FILES - 1;
    let mut node = spawn(&with_files(&stage.setup, files))?;
    let status = node.ended(REFUSES_WITHIN).await?;
    let said = node.log_tail();
    let says_why = said.contains("max_open_files") && said.contains(&files.to_string());
    if !says_why || status.and_then(|status| status.code()) != Some(1) {
        stage.report.violated_by(format!(
            "{files} descriptors: it ought to refuse and say why, and it ended with {status:?}; it said last:\n{said}"
        ));
    }
    Ok(())
}

async fn start_with_files(stage: &mut Stage) -> Result<Option<Node>, CannotInject> {
    let enough = MAX_OPEN_FILES + SPARE_FILES;
    let as_it_was = stage.setup.clone();
    stage.setup = with_files(&as_it_was, enough);
    let node = stage.start(&format!("{enough} descriptors")).await;
    stage.setup = as_it_was;
    node
}

fn spawn(setup: &NodeSetup) -> Result<Node, CannotInject> {
    setup.spawn().map_err(|error| match error {
        NotReady::CannotStart(error) => CannotInject(format!("cannot start the node: {error}")),
        NotReady::Ended { .. } | NotReady::TooLate { .. } => CannotInject(error.to_string()),
    })
}

/// Every write that makes a file longer fails, with the signal that would kill whoever does not ignore it.
async fn no_file_may_grow(stage: &mut Stage, node: &Node) -> Result<(), CannotInject> {
    let place = "no file may grow";
    let (pid, before) = (node.pid()?, Instant::now());
    if !stage.acks(before, 20, AGAIN_WITHIN).await {
        stage.report.violated_by(format!("{place}: no hooks are taken before it"));
        return Ok(());
    }
    let short = Rlimit { current: Some(1), maximum: getrlimit(Resource::Fsize).maximum };
    let old = prlimit(Some(pid), Resource::Fsize, short).or_cannot("limit the node's files")?;
    let limited = Instant::now();
    sleep(HELD).await;
    prlimit(Some(pid), Resource::Fsize, old).or_cannot("limit the node's files no more")?;
    let freed = Instant::now();
    if let Some(again) = stage.takes_hooks_again(place, freed).await {
        stage.report.count("resumed_after_no_file_grows_ms", millis(again));
    }
    // All may have been in the groups that failed, and those are answered once the store can take them back.
    let refused = stage.since(limited).refused;
    stage.report.count("refused_while_no_file_grew", refused);
    if refused == 0 {
        stage.report.violated_by(format!("{place}: nobody was refused"));
    }
    Ok(())
}
