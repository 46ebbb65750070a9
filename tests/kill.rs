//! SIGKILL: whatever was answered 201 is delivered with its exact bytes, however often the node is killed, and no seq is
//! ever given out twice.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ankusa_actors::model::delivery::RowState;
use common::load::{Load, Outcome};
use common::worker::{self, Worker};
use common::{Chance, TestNode, until};
use serde_json::json;

/// The same every time; another finds other moments.
const SEED: u64 = 1;

#[tokio::test]
async fn every_acked_hook_is_delivered_with_its_exact_bytes_after_kills_under_load() {
    let worker = Worker::start(worker::Answer::status(200)).await;
    let mut node = TestNode::new(json!({"sources": common::node::demo(&worker)}));
    let mut chance = Chance::of(SEED);
    let mut sent = Vec::new();
    for cycle in 0..4_u64 {
        node.boot().await;
        let load = Load::start(node.http_port, "/webhooks/demo", 8, SEED + cycle);
        // In the middle of it, and each time at another moment.
        load.acked(20 + chance.below(150)).await;
        node.kill();
        sent.extend(load.stop().await);
    }
    node.boot().await;
    node.drained().await;
    let arrived: BTreeMap<String, Vec<u8>> = worker
        .seen()
        .into_iter()
        .map(|seen| (seen.header("x-ankusa-id").unwrap(), seen.body.to_vec()))
        .collect();
    let mut acked = 0;
    for (body, outcome) in &sent {
        match outcome {
            Outcome::Acked(id) => {
                acked += 1;
                assert!(arrived.get(id) == Some(body), "{id} was acked and did not arrive as sent");
            }
            Outcome::Refused(status) => {
                panic!("nothing but kills went wrong, and {status} was said")
            }
            Outcome::Unanswered => {}
        }
    }
    assert!(acked >= 80, "{acked}");
    // What was not answered may have arrived, but nothing that nobody sent.
    let bodies: BTreeSet<_> = sent.iter().map(|(body, _)| body).collect();
    assert!(arrived.values().all(|body| bodies.contains(body)));
    node.assert_sound().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_hook_keeps_its_seq_and_no_seq_is_given_out_again() {
    let worker = Worker::start(worker::Answer::status(503)).await;
    let patient = json!({"retry": {"base_ms": 3_600_000, "max_ms": 3_600_000}});
    let config = json!({"sources": common::node::demo(&worker), "dispatch": patient});
    let mut node = TestNode::new(config);
    let mut known: BTreeMap<u64, String> = BTreeMap::new();
    for cycle in 0..3 {
        node.boot().await;
        let next_seq = node.status().await["next_seq"].as_u64().unwrap();
        assert!(known.keys().all(|seq| *seq < next_seq), "{next_seq} has been given out");
        let load = Load::start(node.http_port, "/webhooks/demo", 8, SEED + 100 + cycle);
        load.acked(40).await;
        node.kill();
        let sent = load.stop().await;
        node.boot().await;
        let stored: BTreeMap<u64, String> = node
            .hooks()
            .await
            .iter()
            .map(|hook| (hook["seq"].as_u64().unwrap(), hook["id"].as_str().unwrap().to_owned()))
            .collect();
        for (seq, id) in &known {
            assert_eq!(stored.get(seq), Some(id), "seq {seq} is another hook's now");
        }
        for (seq, id) in stored.iter().filter(|(seq, _)| !known.contains_key(seq)) {
            assert!(*seq >= next_seq, "{id} has seq {seq}, and {next_seq} was next");
        }
        let ids: BTreeSet<_> = stored.values().collect();
        for (_, outcome) in &sent {
            let Outcome::Acked(id) = outcome else { continue };
            assert!(ids.contains(id), "{id} was acked and is not stored");
        }
        known = stored;
        node.kill();
    }
    assert!(known.len() >= 120, "{}", known.len());
    node.boot().await;
    node.assert_sound().await;
}

#[tokio::test]
async fn rows_that_were_claimed_when_the_node_died_are_delivered_after_it() {
    const HOOKS: usize = 12;
    let (holds, under_way) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (held, counted) = (Arc::clone(&holds), Arc::clone(&under_way));
    let worker = Worker::deciding(move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        if held.load(Ordering::SeqCst) {
            worker::Answer::never()
        } else {
            worker::Answer::status(200)
        }
    })
    .await;
    let mut node = TestNode::demo(&worker).await;
    let mut ids = Vec::new();
    for number in 0..HOOKS {
        ids.push(node.accepted(format!("hook {number}").as_bytes()).await);
    }
    until("every hook is at the worker", async || {
        (under_way.load(Ordering::SeqCst) == HOOKS).then_some(())
    })
    .await;
    assert_eq!(node.counter("inflight").await, 12);
    node.kill();
    holds.store(false, Ordering::SeqCst);
    node.boot().await;
    node.drained().await;
    let mut seen: Vec<_> =
        worker.seen().iter().map(|seen| seen.header("x-ankusa-id").unwrap()).collect();
    let again = seen.split_off(HOOKS);
    for mut seen in [seen, again] {
        seen.sort();
        assert_eq!(seen, ids);
    }
    node.assert_sound().await;
}

/// A kill between "the worker took it" and "the row says so" makes a duplicate, never a loss; and its attempts go on
/// being counted.
#[tokio::test]
async fn a_row_that_was_tried_before_the_kill_goes_on_from_there() {
    let worker = Worker::start(worker::Answer::status(500)).await;
    let config = json!({
        "sources": common::node::demo(&worker),
        "dispatch": {"retry": {"base_ms": 20, "max_ms": 20, "max_attempts": 8, "jitter": false}},
    });
    let mut node = TestNode::start(config).await;
    node.accepted(b"never taken").await;
    until("it was tried a few times", async || (worker.seen().len() >= 3).then_some(())).await;
    node.kill();
    let before = worker.seen().len();
    node.boot().await;
    until("it is given up", async || (node.counter("dead").await == 1).then_some(())).await;
    let tried = worker.seen().len();
    // One attempt may have been under way, and its row have been told nothing of it.
    assert!((8..=9).contains(&tried), "{tried} attempts, {before} before the kill");
    let states: Vec<_> = node.dump().await.deliveries().into_values().collect();
    assert_eq!(states, [RowState::Dead]);
    node.assert_sound().await;
}

/// A process that is killed while it starts leaves a store that starts.
#[tokio::test]
async fn kills_during_the_start_lose_nothing() {
    let worker = Worker::start(worker::Answer::status(200)).await;
    let mut node = TestNode::demo(&worker).await;
    let mut accepted = Vec::new();
    let mut chance = Chance::of(SEED);
    for number in 0..5 {
        accepted.push(node.accepted(format!("hook {number}").as_bytes()).await);
        node.kill();
        for _ in 0..3 {
            node.spawn();
            let lines = usize::try_from(chance.below(6)).unwrap();
            let so_far = node.log().lines().count();
            until("it has begun", async || {
                (node.log().lines().count() >= so_far + lines || node.ended().is_some())
                    .then_some(())
            })
            .await;
            node.kill();
        }
        node.boot().await;
    }
    node.drained().await;
    let mut arrived: Vec<_> =
        worker.seen().iter().map(|seen| seen.header("x-ankusa-id").unwrap()).collect();
    arrived.sort();
    arrived.dedup();
    assert_eq!(arrived, accepted);
    node.assert_sound().await;
}
