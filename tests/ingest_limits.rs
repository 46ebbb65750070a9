//! Clients that hold connections without a hook to show for it lose them in the end, and good traffic goes on meanwhile.
//!
//! Every limit is tested with the others out of reach, so that it is the one that did it. That a connection is closed is
//! checked, and never how soon.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::http::head;
use common::worker::{self, Worker};
use common::{Answer, Client, Gone, TestNode, in_time, request, until};
use serde_json::{Value, json};
use tokio::time::timeout;

/// A limit that is reached.
const SHORT_MS: u64 = 300;

/// One that is not.
const NEVER_MS: u64 = 3_600_000;

/// Between two bytes of a client that dribbles.
const DRIBBLE: Duration = Duration::from_millis(20);

async fn node(worker: &Worker, http: Value) -> TestNode {
    let mut config = json!({
        "http": {"header_timeout_ms": NEVER_MS, "body_timeout_ms": NEVER_MS, "idle_timeout_ms": NEVER_MS},
        "sources": common::node::demo(worker),
    });
    common::node::merge(&mut config, json!({"http": http}));
    TestNode::start(config).await
}

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// Sends `bytes` slowly, again and again, until something comes back. Answers what did, to the end of the connection.
async fn dribble(mut client: Client, bytes: &[u8]) -> Vec<u8> {
    in_time("dribbling", async {
        for byte in bytes.iter().cycle() {
            let unheard = client.send(&[*byte]).await.is_ok()
                && timeout(DRIBBLE, client.more()).await.is_err();
            if !unheard {
                return;
            }
        }
    })
    .await;
    client.rest().await
}

/// Hooks, one after the other on one connection and all of them accepted, until `end` has come about.
async fn with_good_traffic<T>(node: &TestNode, end: impl Future<Output = T>) -> T {
    let traffic = async {
        let mut client = node.client().await;
        let hook = request("POST", "/webhooks/demo", &[], b"good");
        loop {
            assert_eq!(client.ask(&hook).await.map(|answer| answer.status), Ok(201));
        }
    };
    in_time("what good traffic goes on beside", async {
        tokio::select! {
            biased;
            end = end => end,
            () = traffic => unreachable!(),
        }
    })
    .await
}

fn refused_body(reason: &str) -> Answer {
    let body = format!(r#"{{"error":"body_read_failed","reason":"{reason}"}}"#);
    Answer::json(400, &body, &[("connection", "close")])
}

#[tokio::test]
async fn a_connection_without_a_request_is_closed_wherever_it_is() {
    let worker = taking().await;
    let node = node(&worker, json!({"idle_timeout_ms": SHORT_MS})).await;
    let silent = node.client().await;
    let mut kept_alive = node.client().await;
    let hook = request("POST", "/webhooks/demo", &[], b"once");
    assert_eq!(kept_alive.ask(&hook).await.unwrap().status, 201);
    let at_admin = Client::tcp(node.admin_port).await;
    let at_control = Client::try_unix(&node.socket()).await.unwrap();
    let closed = async {
        for client in [silent, kept_alive, at_admin, at_control] {
            assert_eq!(client.rest().await, b"");
        }
    };
    with_good_traffic(&node, closed).await;
}

#[tokio::test]
async fn a_head_that_does_not_come_to_its_end_is_cut_off() {
    let worker = taking().await;
    let node = node(&worker, json!({"header_timeout_ms": SHORT_MS})).await;
    let mut begun = node.client().await;
    begun.send(b"POST /webhooks/demo HTTP/1.1\r\nhost: a\r\n").await.unwrap();
    let mut behind_another = node.client().await;
    let hook = request("POST", "/webhooks/demo", &[], b"whole");
    behind_another.send(&[&hook[..], b"POST /webhooks/de"].concat()).await.unwrap();
    assert_eq!(behind_another.answer().await.unwrap().status, 201);
    let endless_headers = node.client().await;
    let mut endless_name = node.client().await;
    endless_name.send(b"POST /webhooks/demo HTTP/1.1\r\n").await.unwrap();
    let mut at_control = Client::try_unix(&node.socket()).await.unwrap();
    at_control.send(b"GET /v1/stat").await.unwrap();
    let mut at_admin = Client::tcp(node.admin_port).await;
    at_admin.send(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
    let cut_off = async {
        let (one, other) = tokio::join!(
            dribble(endless_headers, b"POST /webhooks/demo HTTP/1.1\r\nx: a\r\n"),
            dribble(endless_name, b"a"),
        );
        assert_eq!((one, other), (vec![], vec![]));
        for client in [begun, behind_another, at_control, at_admin] {
            assert_eq!(client.rest().await, b"");
        }
    };
    with_good_traffic(&node, cut_off).await;
    assert_eq!(node.status().await["draining"], false);
}

#[tokio::test]
async fn a_body_that_does_not_come_in_time_is_400_and_never_stored() {
    let worker = taking().await;
    let node = node(&worker, json!({"body_timeout_ms": SHORT_MS})).await;
    let mut silent = node.client().await;
    let declared = [head("POST", "/webhooks/demo", &[]), b"content-length: 4\r\n\r\n".to_vec()];
    silent.send(&declared.concat()).await.unwrap();
    let mut dribbling = node.client().await;
    let long = [head("POST", "/webhooks/demo", &[]), b"content-length: 999999\r\n\r\n".to_vec()];
    dribbling.send(&long.concat()).await.unwrap();
    let mut chunk_by_chunk = node.client().await;
    let chunked =
        [head("POST", "/webhooks/demo", &[]), b"transfer-encoding: chunked\r\n\r\n".to_vec()];
    chunk_by_chunk.send(&chunked.concat()).await.unwrap();
    let answered = async {
        let told = |bytes: Vec<u8>| {
            let text = String::from_utf8(bytes).unwrap();
            assert!(text.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{text}");
            assert!(text.ends_with(r#"{"error":"body_read_failed","reason":"timeout"}"#), "{text}");
        };
        assert_eq!(silent.answer().await.unwrap().sorted(), refused_body("timeout"));
        assert_eq!(silent.rest().await, b"");
        let (one, other) =
            tokio::join!(dribble(dribbling, b"bad"), dribble(chunk_by_chunk, b"3\r\nbad\r\n"));
        told(one);
        told(other);
    };
    with_good_traffic(&node, answered).await;
    node.drained().await;
    assert!(worker.seen().iter().all(|seen| seen.body == "good"));
    let metrics = node.admin("/metrics").await.text();
    let refused = r#"ankusa_ingest_refused_total{instance="default",reason="body_read_failed"} 3"#;
    assert!(metrics.contains(refused), "{metrics}");
}

#[tokio::test]
async fn connections_past_the_limit_wait_until_one_is_given_back() {
    let worker = taking().await;
    let node = node(&worker, json!({"max_connections": 3})).await;
    let hook = request("POST", "/webhooks/demo", &[], b"good");
    let mut held = Vec::new();
    for _ in 0..3 {
        let mut client = node.client().await;
        assert_eq!(client.ask(&hook).await.unwrap().status, 201);
        held.push(client);
    }
    let mut waiting = node.client().await;
    waiting.send(&hook).await.unwrap();
    for client in &mut held {
        assert_eq!(client.ask(&hook).await.unwrap().status, 201);
    }
    // The other listeners have room of their own.
    assert_eq!(node.admin("/health").await.status, 200);
    assert_eq!(node.status().await["next_seq"], 7, "the fourth is not read");
    assert!(timeout(DRIBBLE, waiting.answer()).await.is_err());
    held.pop();
    assert_eq!(waiting.answer().await.unwrap().status, 201);
}

/// A crowd of clients that connect and go away, in every way there is.
#[tokio::test]
async fn connections_that_are_given_up_are_given_back() {
    let worker = taking().await;
    let node = node(&worker, json!({"max_connections": 8, "body_timeout_ms": SHORT_MS})).await;
    let hook = request("POST", "/webhooks/demo", &[], b"good");
    for turn in 0..100 {
        let Ok(mut client) = Client::try_tcp(node.http_port).await else { continue };
        let gone = match turn % 4 {
            0 => Ok(()),
            1 => client.send(&hook[..20]).await,
            2 => client.send(&hook[..hook.len() - 1]).await,
            _ => client.send(&hook).await,
        };
        assert_eq!(gone, Ok::<(), Gone>(()));
    }
    let mut clients = Vec::new();
    for _ in 0..8 {
        clients.push(node.client().await);
    }
    for client in &mut clients {
        assert_eq!(client.ask(&hook).await.unwrap().status, 201);
    }
    until("what was sent whole is delivered, and nothing else", async || {
        // Of the 25 whose clients did not wait, each is either taken or given up.
        let seen = worker.seen();
        (8..=33).contains(&seen.len()).then(|| assert!(seen.iter().all(|seen| seen.body == "good")))
    })
    .await;
    node.drained().await;
    node.assert_sound().await;
}
