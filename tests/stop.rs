//! A stop: nothing more is taken, what was read is answered, nothing acked is lost, and the process ends with 0 in its
//! bound, every time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;

use common::http::head;
use common::load::{Load, Outcome};
use common::node::demo;
use common::worker::{self, Worker};
use common::{Answer, Client, TestNode, until};
use rustix::process::Signal;
use serde_json::json;

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

fn ids(worker: &Worker) -> BTreeSet<String> {
    worker.seen().iter().map(|seen| seen.header("x-ankusa-id").unwrap()).collect()
}

/// Waits until the admin port says that the node is stopping.
async fn draining(node: &TestNode) {
    let expected = Answer::json(
        503,
        r#"{"status":"draining","instance":"default","store":"ok","disk":"ok"}"#,
        &[("retry-after", "1")],
    );
    until("the node is draining", async || {
        let answer = node.admin("/ready").await.sorted();
        if answer.status == 200 {
            return None;
        }
        assert_eq!(answer, expected);
        Some(())
    })
    .await;
}

#[tokio::test]
async fn what_was_read_is_answered_and_nothing_more_is_taken() {
    let worker = taking().await;
    let mut node = TestNode::demo(&worker).await;
    let mut idle = node.client().await;
    idle.ask(&common::request("POST", "/webhooks/demo", &[], b"before")).await.unwrap().id();
    let mut sending = node.client().await;
    let mut begun = head("POST", "/webhooks/demo", &[]);
    begun.extend_from_slice(b"content-length: 8\r\n\r\nhalf");
    sending.send(&begun).await.unwrap();
    // So that the head has been read.
    node.accepted(b"meanwhile").await;

    node.signal(Signal::TERM);
    draining(&node).await;
    assert_eq!(node.status().await["draining"], true);
    assert_eq!(node.admin("/health").await.status, 200);
    assert_eq!(idle.rest().await, b"");
    until("the listener is closed", async || {
        Client::try_tcp(node.http_port).await.is_err().then_some(())
    })
    .await;
    let answer = sending.ask(b"half").await.unwrap();
    assert_eq!((answer.status, answer.header("connection")), (201, Some("close")));
    assert_eq!(answer.header("ankusa-durability"), Some("fsync"));
    assert_eq!(sending.rest().await, b"");
    assert_eq!(node.exit().await.code(), Some(0));
    assert!(!node.socket().exists(), "the control socket is left behind");

    node.boot().await;
    node.drained().await;
    let bodies: BTreeSet<_> = worker.seen().into_iter().map(|seen| seen.body).collect();
    assert_eq!(bodies, ["before", "meanwhile", "halfhalf"].map(Into::into).into());
    node.assert_sound().await;
}

#[tokio::test]
async fn stops_under_load_end_with_0_and_lose_nothing_that_was_acked() {
    let worker = taking().await;
    let mut node = TestNode::new(json!({"sources": demo(&worker)}));
    let mut acked = BTreeSet::new();
    for cycle in 0..4_u8 {
        node.boot().await;
        let load = Load::start(node.http_port, "/webhooks/demo", 8, u64::from(cycle));
        load.acked(60).await;
        node.signal(if cycle % 2 == 0 { Signal::TERM } else { Signal::INT });
        assert_eq!(node.exit().await.code(), Some(0), "{}", node.log());
        for (_, outcome) in load.stop().await {
            match outcome {
                Outcome::Acked(id) => drop(acked.insert(id)),
                // It was on its way when the connection closed.
                Outcome::Unanswered => {}
                Outcome::Refused(status) => panic!("a stop answered {status}"),
            }
        }
    }
    node.boot().await;
    node.drained().await;
    let delivered = ids(&worker);
    let lost: Vec<_> = acked.difference(&delivered).collect();
    assert_eq!(lost, Vec::<&String>::new());
    assert!(acked.len() >= 240);
    node.assert_sound().await;
    assert_eq!(node.stop().await, Some(0));
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

#[tokio::test]
async fn nodes_with_nothing_to_do_stop_again_and_again() {
    let worker = taking().await;
    let mut node = TestNode::new(json!({"sources": demo(&worker)}));
    for _ in 0..5 {
        node.boot().await;
        assert_eq!(node.stop().await, Some(0), "{}", node.log());
    }
}

#[tokio::test]
async fn ctl_stop_is_a_stop() {
    let worker = taking().await;
    let mut node = TestNode::demo(&worker).await;
    let id = node.accepted(b"acked").await;
    let told = node.ctl(&["stop", "--json"]).await;
    assert_eq!((told.code, told.out.as_str()), (Some(0), "{\"status\":\"stopping\"}\n"));
    assert_eq!(node.exit().await.code(), Some(0));
    assert!(!node.socket().exists());
    node.boot().await;
    node.drained().await;
    assert_eq!(ids(&worker), [id].into());
}

/// Clients and workers that never come to an end.
#[tokio::test]
async fn nobody_holds_a_stop_up_for_longer_than_its_bound() {
    let worker = Worker::start(worker::Answer::never()).await;
    let config = json!({
        "sources": demo(&worker),
        "dispatch": {"attempt_timeout_ms": 700},
        "shutdown": {"drain_ms": 300},
    });
    let mut node = TestNode::start(config).await;
    let id = node.accepted(b"held").await;
    until("it is at the worker", async || (!worker.seen().is_empty()).then_some(())).await;
    let mut clients = Vec::new();
    for begun in ["", "POST /webh", "POST /webhooks/demo HTTP/1.1\r\ncontent-length: 5\r\n\r\nhal"]
    {
        let mut client = node.client().await;
        client.send(begun.as_bytes()).await.unwrap();
        let mut at_control = Client::try_unix(&node.socket()).await.unwrap();
        at_control.send(&begun.as_bytes()[..begun.len().min(4)]).await.unwrap();
        clients.extend([client, at_control]);
    }
    assert_eq!(node.stop().await, Some(0), "{}", node.log());
    for client in clients {
        assert_eq!(client.rest().await, b"");
    }
    let before = worker.seen().len();
    node.boot().await;
    until("it is tried again", async || (worker.seen().len() > before).then_some(())).await;
    assert_eq!(ids(&worker), [id].into());
}

#[tokio::test]
async fn a_second_signal_ends_it_at_once_and_loses_nothing() {
    let worker = taking().await;
    let config = json!({"sources": demo(&worker), "shutdown": {"drain_ms": 3_600_000}});
    let mut node = TestNode::new(config);
    let mut accepted = BTreeSet::new();
    for (first, second) in [
        (Signal::TERM, Signal::TERM),
        (Signal::INT, Signal::TERM),
        (Signal::TERM, Signal::INT),
        (Signal::INT, Signal::INT),
    ] {
        node.boot().await;
        let mut endless = node.client().await;
        endless.send(b"POST /webhooks/demo HTTP/1.1\r\ncontent-length: 5\r\n\r\n").await.unwrap();
        for number in 0..10 {
            accepted.insert(node.accepted(format!("{first:?} {number}").as_bytes()).await);
        }
        node.signal(first);
        draining(&node).await;
        node.signal(second);
        let status = node.exit().await;
        assert_eq!(status.signal(), Some(9), "{status}: {}", node.log());
        assert_eq!(endless.rest().await, b"");
    }
    node.boot().await;
    node.drained().await;
    assert_eq!(ids(&worker), accepted);
    node.assert_sound().await;
}

#[tokio::test]
async fn a_signal_during_the_start_is_heard() {
    let worker = taking().await;
    let mut node = TestNode::demo(&worker).await;
    let id = node.accepted(b"acked").await;
    node.kill();
    for lines in 0..6 {
        let so_far = node.log().lines().count();
        node.spawn();
        until("it has begun", async || {
            (node.log().lines().count() >= so_far + lines).then_some(())
        })
        .await;
        node.signal(Signal::TERM);
        let status = node.exit().await;
        // Before it listens for signals, a signal is the end of any process.
        let ended = status.code() == Some(0) || (lines < 4 && status.signal() == Some(15));
        assert!(ended, "{status} after {lines} lines: {}", node.log());
    }
    node.boot().await;
    node.drained().await;
    assert_eq!(ids(&worker), [id].into());
    node.assert_sound().await;
}
