//! Every child of the supervision tree panics under load: first in turn, then in an order that follows from the seed.
//!
//! Each round is a process of its own on the same store: restart budgets are counted by the minute, and a tree that gives
//! up because it was told to crash without end is right to. After every panic the tree becomes whole again, the child's
//! restart is counted on the board and in the metrics, hooks are taken again, and no client was left waiting for ever.

use std::time::{Duration, Instant};

use hyper::StatusCode;
use serde_json::json;
use tokio::time::sleep;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::node::Node;
use crate::node::asking::TreeChild;
use crate::scratch::Scratch;
use crate::stage::{AGAIN_WITHIN, Stage, on_a_runtime};

/// Rounds, unless asked otherwise: the first in turn, the others at random.
const ROUNDS: u64 = 3;

const CLIENTS: usize = 16;

/// Longest wait for a child that was told to crash to run again, and everybody with it.
const WHOLE_WITHIN: Duration = Duration::from_secs(30);

const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The metric of restarts.
const RESTARTS: &str = "ankusa_instance_child_restarts_total";

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let mut stage = Stage::plain("crash_tree", options, Scratch::on_disk()?).await?;
        stage.setup = stage.setup.clone().with_config(
            &json!({"admin": {"gauge_interval_ms": 50}, "log": {"level": "warning"}}),
        )?;
        let (mut rounds, mut panics, mut children) = (0, 0, 0);
        while stage.goes_on(rounds, ROUNDS) {
            rounds += 1;
            let Some(node) = stage.start(&format!("start {rounds}")).await? else { break };
            let ids: Vec<String> = tree(&node).await?.into_iter().map(|child| child.id).collect();
            children = ids.len();
            let order = if rounds == 1 { ids } else { shuffled(&mut stage, ids) };
            panics += crash_all(&mut stage, &node, rounds, &order).await?;
            stage.drain_and_judge(&node, &format!("after round {rounds}")).await?;
            stage.stop(node, &format!("after round {rounds}")).await?;
        }
        stage.report.count("children", children);
        stage.report.count("panics", panics);
        Ok(stage.conclude(rounds))
    })
}

fn shuffled(stage: &mut Stage, mut ids: Vec<String>) -> Vec<String> {
    for at in (1..ids.len()).rev() {
        let other = stage.rng.up_to(at);
        ids.swap(at, other);
    }
    ids
}

/// Crashes the children in this order under load. Answers how many panicked.
async fn crash_all(
    stage: &mut Stage,
    node: &Node,
    round: u64,
    order: &[String],
) -> Result<u64, CannotInject> {
    let began = Instant::now();
    let load = stage.load(CLIENTS);
    let mut panics = 0;
    for child in order {
        let place = format!("round {round}, {child}");
        let enough = 1 + stage.rng.up_to(20);
        if !stage.acks(Instant::now(), enough, AGAIN_WITHIN).await {
            stage.report.violated_by(format!(
                "{place}: no hooks are taken {AGAIN_WITHIN:?} after the crash before"
            ));
            break;
        }
        let before = restarts_of(&tree(node).await?, child);
        if !crash(node, child).await {
            stage.report.violated_by(format!("{place}: it cannot be told to crash"));
            break;
        }
        panics += 1;
        if !is_whole_again(node, child, before).await {
            let why = format!("{place}: the tree is not whole {WHOLE_WITHIN:?} after the crash");
            stage.report.violated_by(format!("{why}; the node said last:\n{}", node.log_tail()));
            break;
        }
    }
    stage.takes_hooks_again(&format!("round {round}, at the end"), Instant::now()).await;
    load.stop().await;
    let left_waiting = stage.since(began).left_waiting;
    if left_waiting > 0 {
        stage
            .report
            .violated_by(format!("round {round}: {left_waiting} clients were left waiting"));
    }
    compare_metrics(stage, node, round).await?;
    Ok(panics)
}

/// The tree, from whichever incarnation of the control socket answers.
async fn tree(node: &Node) -> Result<Vec<TreeChild>, CannotInject> {
    let began = Instant::now();
    loop {
        match node.tree().await {
            Ok(children) if !children.is_empty() => return Ok(children),
            Ok(_) | Err(_) if began.elapsed() < WHOLE_WITHIN => sleep(LOOK_AGAIN).await,
            Ok(_) => return Err(CannotInject("read the tree: it is empty".to_owned())),
            Err(error) => return Err(CannotInject(format!("read the tree: {error}"))),
        }
    }
}

fn restarts_of(tree: &[TreeChild], id: &str) -> u64 {
    tree.iter().find(|child| child.id == id).map_or(0, |child| child.restarts)
}

/// Tells the child to crash, once it runs. False when it cannot be told.
async fn crash(node: &Node, child: &str) -> bool {
    let began = Instant::now();
    while began.elapsed() < WHOLE_WITHIN {
        match node.crash(child).await {
            Ok(StatusCode::OK) => return true,
            // Whoever crashes the server it asks may not hear of it.
            Err(_) if child == "control" || child == "front" => return true,
            // Between two incarnations of it, or of the control socket.
            Ok(_) | Err(_) => sleep(LOOK_AGAIN).await,
        }
    }
    false
}

/// Waits until everybody runs and the child was started once more.
async fn is_whole_again(node: &Node, child: &str, before: u64) -> bool {
    let began = Instant::now();
    while began.elapsed() < WHOLE_WITHIN {
        if let Ok(tree) = node.tree().await
            && !tree.is_empty()
            && tree.iter().all(|child| child.is_running)
            && restarts_of(&tree, child) > before
        {
            return true;
        }
        sleep(LOOK_AGAIN).await;
    }
    false
}

/// The metrics count the restarts the board counts.
async fn compare_metrics(stage: &mut Stage, node: &Node, round: u64) -> Result<(), CannotInject> {
    let began = Instant::now();
    loop {
        let (tree, series) = (tree(node).await?, node.series().await?);
        let differing: Vec<String> = tree
            .iter()
            .map(|child| (child, series.sum(RESTARTS, &[("child", &child.id)]).unwrap_or(0.0)))
            .filter(|(child, counted)| child.restarts.to_string() != counted.to_string())
            .map(|(child, counted)| format!("{}: {} and {counted}", child.id, child.restarts))
            .collect();
        if differing.is_empty() {
            return Ok(());
        }
        if began.elapsed() >= Duration::from_secs(5) {
            stage.report.violated_by(format!(
                "round {round}: restarts on the board and in {RESTARTS} differ: {}",
                differing.join(", ")
            ));
            return Ok(());
        }
        sleep(LOOK_AGAIN * 10).await;
    }
}
