//! Any child may crash at any moment while hooks come in: every caller gets an answer or a closed connection, whatever was
//! answered 201 is delivered, whatever was answered 503 is not, and children that crash without end take the process down.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::load::{Load, Outcome};
use common::node::demo;
use common::worker::{self, Worker};
use common::{Chance, TestNode, until};
use serde_json::json;

/// The same every time; others find other moments.
const SEEDS: [u64; 2] = [1, 2];

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// As in production: a crash must not depend on patience.
fn config(worker: &Worker) -> serde_json::Value {
    json!({"sources": demo(worker), "batcher": {"stall_ms": 1_000, "start_deadline_ms": 2_000}})
}

/// Tells a child to crash, once it runs.
async fn crash(node: &TestNode, child: &str) {
    until("it could be told to crash", async || {
        // Whoever crashes the server it asks may not hear of it.
        let answer = node.control("POST", &format!("/v1/crash?child={child}")).await.ok();
        match answer.map(|answer| answer.status) {
            Some(200) => Some(()),
            // Between two incarnations of it, or of the control socket.
            Some(404) => None,
            Some(status) => panic!("{status}"),
            None => (child == "control" || child == "front").then_some(()),
        }
    })
    .await;
}

/// What a ledger and a worker's journal must agree on, once everything is delivered.
fn judge(sent: &[(Vec<u8>, Outcome)], worker: &Worker) -> usize {
    let arrived: BTreeMap<String, Vec<u8>> = worker
        .seen()
        .into_iter()
        .map(|seen| (seen.header("x-ankusa-id").unwrap(), seen.body.to_vec()))
        .collect();
    let bodies: BTreeSet<_> = arrived.values().collect();
    let mut acked = 0;
    for (body, outcome) in sent {
        let name = String::from_utf8_lossy(body.split(|byte| *byte == 0).next().unwrap());
        match outcome {
            Outcome::Acked(id) => {
                acked += 1;
                assert!(arrived.get(id) == Some(body), "{name} was acked and did not arrive");
            }
            Outcome::Refused(503) => {
                assert!(!bodies.contains(body), "{name} was refused and arrived")
            }
            Outcome::Refused(status) => panic!("{name} was answered {status}"),
            Outcome::Unanswered => {}
        }
    }
    let known: BTreeSet<_> = sent.iter().map(|(body, _)| body).collect();
    assert!(bodies.is_subset(&known), "something arrived that nobody sent");
    acked
}

/// Crashes these children, in an order and at moments that follow from the seed, while hooks come in.
async fn crash_under_load(seed: u64, mut children: Vec<&'static str>) {
    let worker = taking().await;
    let mut node = TestNode::start(config(&worker)).await;
    let mut chance = Chance::of(seed);
    chance.shuffle(&mut children);
    let load = Load::start(node.http_port, "/webhooks/demo", 8, seed);
    for child in &children {
        // It takes hooks again after every crash.
        load.acked(load.acked_so_far() + 1 + chance.below(20)).await;
        crash(&node, child).await;
    }
    load.acked(load.acked_so_far() + 20).await;
    let sent = load.stop().await;
    node.drained().await;
    let acked = judge(&sent, &worker);
    assert!(acked > 20 + children.len());
    node.assert_sound().await;
    for child in children.iter().collect::<BTreeSet<_>>() {
        assert!(node.restarts(child).await > 0, "{child} did not restart");
    }
    assert_eq!(node.stop().await, Some(0), "{}", node.log());
}

#[tokio::test]
async fn crashes_at_random_lose_nothing_and_leave_no_caller_waiting() {
    for seed in SEEDS {
        let children = [
            ("store", 2),
            ("writer", 2),
            ("syncer", 2),
            ("dispatch", 4),
            ("batcher-1", 3),
            ("batcher-2", 3),
            ("ingest", 3),
            ("admin", 1),
            ("control", 1),
            ("gauges", 1),
        ];
        let children = children.into_iter().flat_map(|(child, times)| vec![child; times]);
        crash_under_load(seed, children.collect()).await;
    }
}

#[tokio::test]
async fn supervisors_may_crash_too() {
    for seed in SEEDS {
        crash_under_load(seed, vec!["queue", "services", "front", "core", "queue", "services"])
            .await;
    }
}

#[tokio::test]
async fn crashes_without_end_take_the_process_down_and_lose_nothing() {
    let worker = taking().await;
    let mut node = TestNode::start(config(&worker)).await;
    let load = Load::start(node.http_port, "/webhooks/demo", 4, 7);
    load.acked(20).await;
    let mut crashes = 0;
    let ended = until("the process has given up", async || {
        let answer = node.control("POST", "/v1/crash?child=store").await;
        crashes += usize::from(answer.is_ok_and(|answer| answer.status == 200));
        node.ended()
    })
    .await;
    assert_eq!(ended.code(), Some(70), "after {crashes} crashes: {}", node.log());
    assert!(crashes >= 20, "it gave up after {crashes}");
    node.forget();
    let sent = load.stop().await;
    node.boot().await;
    node.drained().await;
    assert!(judge(&sent, &worker) >= 20);
    node.assert_sound().await;
}

/// Whoever waits for an answer from a child that dies, and dies again when it comes back.
#[tokio::test]
async fn a_child_that_keeps_crashing_is_left_alone_for_a_while_and_the_others_go_on() {
    let worker = taking().await;
    let node = TestNode::start(config(&worker)).await;
    let before = node.accepted(b"before").await;
    node.drained().await;
    until("dispatch is down", async || {
        let _ = node.control("POST", "/v1/crash?child=dispatch").await;
        let tree = node.control("GET", "/v1/tree").await.unwrap().value();
        let children = tree["children"].as_array().unwrap();
        let dispatch = children.iter().find(|child| child["id"] == "dispatch").unwrap();
        (dispatch["state"] == "down").then(|| assert_eq!(dispatch["downs"], 1))
    })
    .await;
    // Nobody delivers, and hooks are taken all the same.
    let meanwhile = node.accepted(b"meanwhile").await;
    assert_eq!(node.admin("/ready").await.status, 200);
    until("it is back", async || {
        let ids: BTreeSet<_> =
            worker.seen().iter().map(|seen| seen.header("x-ankusa-id").unwrap()).collect();
        ids.contains(&meanwhile).then(|| assert!(ids.contains(&before)))
    })
    .await;
    node.drained().await;
    node.assert_sound().await;
}
