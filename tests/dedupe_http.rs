//! A provider that sends its hook again, against a whole node: one answer, one hook, one delivery.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;

use common::node::sink;
use common::worker::{self, Worker};
use common::{Answer, TestNode, request, until};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;
use tokio::task::JoinSet;

const DURABLE: (&str, &str) = ("ankusa-durability", "fsync");

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// The signature of GitHub.
fn signature(body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(b"key").unwrap();
    mac.update(body);
    let bytes = mac.finalize().into_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

fn duplicate_of(id: &str) -> Answer {
    let body = format!(r#"{{"id":"{id}","status":"accepted","duplicate":true}}"#);
    Answer::json(201, &body, &[DURABLE])
}

fn quota() -> Answer {
    Answer::json(503, r#"{"error":"dedupe_quota"}"#, &[("retry-after", "60")])
}

async fn send(node: &TestNode, target: &str, key: &str, body: &[u8]) -> Answer {
    node.ask(&request("POST", target, &[("X-Id", key)], body)).await.unwrap()
}

async fn series(node: &TestNode, line: &str) -> bool {
    node.admin("/metrics").await.text().lines().any(|found| found == line)
}

#[tokio::test]
async fn a_retry_gets_the_id_of_the_first_and_is_neither_stored_nor_delivered() {
    let worker = taking().await;
    let config = json!({
        "admin": {"gauge_interval_ms": 50},
        "sources": {"demo": {"dedupe": {"header": "x-id"}, "sinks": [sink(&worker)]}},
    });
    let node = TestNode::start(config).await;
    let first = send(&node, "/webhooks/demo", "evt-1", b"once").await.id();
    for body in [&b"once"[..], b"and changed"] {
        let again = send(&node, "/webhooks/demo", "evt-1", body).await;
        assert_eq!(again.sorted(), duplicate_of(&first));
    }
    let without = node.post("/webhooks/demo", b"no key").await;
    assert_eq!(without.status, 201);
    node.drained().await;
    let mut bodies: Vec<_> = worker.seen().iter().map(|seen| seen.body.clone()).collect();
    bodies.sort();
    assert_eq!(bodies, [&b"no key"[..], b"once"]);
    let delivered = worker.seen().into_iter().find(|seen| seen.body.as_ref() == b"once").unwrap();
    assert_eq!(delivered.header("x-ankusa-dedupe-key").as_deref(), Some("evt-1"));
    let idempotency = delivered.header("x-ankusa-idempotency-key");
    assert_eq!(idempotency.as_deref(), Some("default:demo:evt-1"));
    assert_eq!(node.counter("dedupe").await, 1);
    let outcome = |word: &str, n: u64| {
        format!(
            "ankusa_ingest_requests_total{{instance=\"default\",source_id=\"demo\",outcome=\"{word}\"}} {n}"
        )
    };
    for line in [outcome("committed", 2), outcome("duplicate", 2)] {
        assert!(series(&node, &line).await, "{line}");
    }
    until("the gauge shows the key", async || {
        series(&node, "ankusa_dedupe_keys{instance=\"default\"} 1").await.then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_forged_or_flagged_hook_keeps_no_real_one_away() {
    let worker = taking().await;
    let source = |policy: &str| {
        json!({
            "verify": {"type": "github", "secret": "key"},
            "on_verify_failure": policy,
            "dedupe": "github",
            "sinks": [sink(&worker)],
        })
    };
    let sources = json!({"reject": source("reject"), "flag": source("accept_flag")});
    let node = TestNode::start(json!({"sources": sources})).await;
    let signed = signature(b"real");
    let real = |name: &str| {
        let headers = [("x-hub-signature-256", signed.as_str()), ("x-github-delivery", "d-1")];
        request("POST", &format!("/webhooks/{name}"), &headers, b"real")
    };
    for (name, status) in [("reject", 401), ("flag", 201)] {
        let forged = [("x-hub-signature-256", "sha256=00"), ("x-github-delivery", "d-1")];
        let forged = request("POST", &format!("/webhooks/{name}"), &forged, b"real");
        assert_eq!(node.ask(&forged).await.unwrap().status, status);
        let first = node.ask(&real(name)).await.unwrap();
        let id = first.id();
        let accepted = format!(r#"{{"id":"{id}","status":"accepted"}}"#);
        assert_eq!(first.sorted(), Answer::json(201, &accepted, &[DURABLE]), "{name}");
        assert_eq!(node.ask(&real(name)).await.unwrap().sorted(), duplicate_of(&id), "{name}");
        // One that repeats the key after it is no duplicate either.
        assert_eq!(node.ask(&forged).await.unwrap().status, status);
    }
    node.drained().await;
    assert_eq!(worker.seen().len(), 4, "two that are real, and two that are flagged");
}

#[tokio::test]
async fn a_key_is_kept_apart_by_tenant_and_source() {
    let worker = taking().await;
    let source = json!({
        "dedupe": {"json": "event.id"},
        "trust_url_tenant": true,
        "sinks": [sink(&worker)],
    });
    let node = TestNode::start(json!({
        "http": {"routing": "tenant_path"},
        "sources": {"one": source, "two": source},
    }))
    .await;
    let mut ids = BTreeSet::new();
    for target in ["/webhooks/acme/one", "/webhooks/acme/two", "/webhooks/blue/one"] {
        let id = node.post(target, br#"{"event":{"id":7}}"#).await.id();
        let again = node.post(target, br#" {"event": {"id": "7"}, "more": []}"#).await;
        assert_eq!(again.sorted(), duplicate_of(&id), "{target}: a number is its digits");
        ids.insert(id);
    }
    assert_eq!((ids.len(), node.counter("dedupe").await), (3, 3));
}

#[tokio::test]
async fn of_many_that_send_one_key_at_once_one_is_stored_and_all_are_told_its_id() {
    let worker = taking().await;
    let config =
        json!({"sources": {"demo": {"dedupe": {"header": "x-id"}, "sinks": [sink(&worker)]}}});
    let node = std::sync::Arc::new(TestNode::start(config).await);
    for round in 0..10 {
        let key = format!("evt-{round}");
        let mut sending = JoinSet::new();
        for n in 0..16 {
            let (node, key) = (std::sync::Arc::clone(&node), key.clone());
            sending.spawn(async move {
                let answer = send(&node, "/webhooks/demo", &key, format!("{n}").as_bytes()).await;
                (answer.id(), answer.text().contains("duplicate"))
            });
        }
        let answers = sending.join_all().await;
        let ids: BTreeSet<_> = answers.iter().map(|(id, _)| id).collect();
        let new = answers.iter().filter(|(_, is_duplicate)| !is_duplicate).count();
        assert_eq!((ids.len(), new), (1, 1));
    }
    node.drained().await;
    assert_eq!((worker.seen().len(), node.counter("dedupe").await), (10, 10));
}

#[tokio::test]
async fn past_the_cap_a_new_key_is_503_and_what_has_expired_makes_room() {
    let worker = taking().await;
    let config = json!({
        "dedupe": {"max_entries_per_tenant": 1, "sweep_interval_ms": 100},
        "sources": {"demo": {"dedupe": {"header": "x-id", "ttl_seconds": 2}, "sinks": [sink(&worker)]}},
    });
    let node = TestNode::start(config).await;
    let first = send(&node, "/webhooks/demo", "a", b"a").await.id();
    assert_eq!(send(&node, "/webhooks/demo", "b", b"b").await.sorted(), quota());
    assert_eq!(send(&node, "/webhooks/demo", "a", b"a").await.sorted(), duplicate_of(&first));
    let second = until("the first key has expired", async || {
        let answer = send(&node, "/webhooks/demo", "b", b"b").await;
        (answer.status == 201).then(|| answer.id())
    })
    .await;
    assert_ne!(second, first);
    let pruned = "ankusa_dedupe_pruned_total{instance=\"default\"} 1";
    until("the sweep has told of it", async || series(&node, pruned).await.then_some(())).await;
    node.drained().await;
    let bodies: BTreeSet<_> = worker.seen().iter().map(|seen| seen.body.to_vec()).collect();
    assert_eq!(bodies, BTreeSet::from([b"a".to_vec(), b"b".to_vec()]));
}

#[tokio::test]
async fn a_key_outlives_a_kill_and_its_delivered_hook() {
    let worker = taking().await;
    let config =
        json!({"sources": {"demo": {"dedupe": {"header": "x-id"}, "sinks": [sink(&worker)]}}});
    let mut node = TestNode::start(config).await;
    let first = send(&node, "/webhooks/demo", "a", b"a").await.id();
    node.drained().await;
    node.kill();
    node.boot().await;
    let hooks: Vec<Value> = node.hooks().await;
    assert_eq!(hooks, Vec::<Value>::new());
    assert_eq!(send(&node, "/webhooks/demo", "a", b"a").await.sorted(), duplicate_of(&first));
}
