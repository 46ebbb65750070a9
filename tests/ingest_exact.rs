//! What a provider sent arrives as it was sent: body byte for byte and headers in their order, in the store and at the
//! worker, over connections that are used as HTTP/1.1 allows.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;

use ankusa_actors::model::envelope::{VerificationStatus, VerificationTerm};
use bytes::Bytes;
use common::http::{chunked, head};
use common::node::{merge, sink};
use common::worker::{self, Worker};
use common::{Answer, Chance, Client, TestNode, request};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// A node whose worker takes nothing and is not tried again: hooks stay where they can be looked at.
async fn keeping(worker: &Worker, config: Value) -> TestNode {
    let mut all = json!({
        "dispatch": {"retry": {"base_ms": 3_600_000, "max_ms": 3_600_000}},
        "sources": {"demo": {"sinks": [sink(worker)]}},
    });
    merge(&mut all, config);
    TestNode::start(all).await
}

async fn refusing() -> Worker {
    Worker::start(worker::Answer::status(503)).await
}

/// Bodies that something between a socket and a worker might want to touch.
fn bodies() -> Vec<Vec<u8>> {
    let mut chance = Chance::of(7);
    vec![
        b"".to_vec(),
        b"\0".to_vec(),
        (0..=255).collect(),
        b"\xff\xfe\xc3\x28 not UTF-8 \xed\xa0\x80".to_vec(),
        b"\xef\xbb\xbf{\"bom\": true}".to_vec(),
        b"{\"a\" : 1,\r\n \"a\":1e999, \"b\": NaN}\n\n".to_vec(),
        b"\x1f\x8b\x08\0 looks like gzip".to_vec(),
        b"POST /webhooks/demo HTTP/1.1\r\ncontent-length: 1\r\n\r\nx".to_vec(),
        b"0\r\n\r\n".to_vec(),
        chance.bytes(4_096),
        chance.bytes(70_000),
        chance.bytes(3_000_000),
    ]
}

fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test]
async fn every_byte_of_a_body_reaches_the_worker_however_it_was_framed() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let mut sent = BTreeMap::new();
    for body in bodies() {
        let declared = node.ask(&request("POST", "/webhooks/demo", &[], &body)).await.unwrap();
        let mut pieces: Vec<&[u8]> = body.chunks(1_000).collect();
        if body.len() > 100_000 {
            pieces = body.chunks(100_000).collect();
        }
        let framed = node.ask(&chunked("/webhooks/demo", &[], &pieces)).await.unwrap();
        for id in [declared.id(), framed.id()] {
            sent.insert(id, body.clone());
        }
    }
    node.drained().await;
    let seen = worker.seen();
    for seen in &seen {
        let said = seen.header("x-ankusa-body-sha256").unwrap();
        assert_eq!(said, sha256_hex(&seen.body));
        assert_eq!(seen.header("content-length"), Some(seen.body.len().to_string()));
    }
    let arrived: BTreeMap<_, _> = seen
        .into_iter()
        .map(|seen| (seen.header("x-ankusa-id").unwrap(), seen.body.to_vec()))
        .collect();
    assert!(arrived == sent, "other bodies arrived than were sent");
}

#[tokio::test]
async fn the_stored_hook_is_the_request_as_it_was_received() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    // The largest would be dumped again and again.
    let bodies = bodies().into_iter().filter(|body| body.len() < 100_000);
    for (seq, body) in (1..).zip(bodies) {
        let lines: &[&[u8]] = &[
            b"POST /webhooks/demo?secret=1 HTTP/1.1",
            b"Host: node.test",
            b"X-B: 1",
            b"X-A:first ",
            b"x-b:\t 2",
            b"X-Empty:",
            b"Content-Type: application/x-thing; charset=\"latin-1\"",
            b"x-a: second",
            b"X-Empty: ",
            b"Cookie: kept=here",
            b"x-ankusa-id: forged",
            b"X-B: 3",
        ];
        let mut bytes = lines.join(&b"\r\n"[..]);
        let length = body.len().to_string();
        bytes.extend_from_slice(format!("\r\nContent-Length: {length}\r\n\r\n").as_bytes());
        bytes.extend_from_slice(&body);
        let id = node.ask(&bytes).await.unwrap().id();

        let envelope = node.dump().await.envelopes().remove(&seq).unwrap();
        // Names in lowercase, as everywhere in HTTP/2; order and repeats as they came.
        let headers = [
            ("host", "node.test"),
            ("x-b", "1"),
            ("x-a", "first"),
            ("x-b", "2"),
            ("x-empty", ""),
            ("content-type", "application/x-thing; charset=\"latin-1\""),
            ("x-a", "second"),
            ("x-empty", ""),
            ("cookie", "kept=here"),
            ("x-ankusa-id", "forged"),
            ("x-b", "3"),
            ("content-length", &length),
        ];
        let bytes = |text: &str| Bytes::copy_from_slice(text.as_bytes());
        let headers: Vec<_> =
            headers.iter().map(|(name, value)| (bytes(name), bytes(value))).collect();
        assert_eq!(envelope.headers, headers);
        assert!(envelope.body == body, "another body of {length} bytes");
        let facts = (envelope.id.as_str(), envelope.method.as_str(), envelope.path.as_str());
        assert_eq!(facts, (id.as_str(), "POST", "/webhooks/demo"));
        let source = (envelope.source_id.as_str(), envelope.tenant_id.as_deref());
        assert_eq!(source, ("demo", None));
        let content_type = "application/x-thing; charset=\"latin-1\"";
        assert_eq!(envelope.content_type, Some(bytes(content_type)));
        assert_eq!(envelope.dedupe_key, None);
        let verification = VerificationTerm::decode(&envelope.verification.unwrap()).unwrap();
        assert_eq!(verification.status, VerificationStatus::Skipped);
        let listed = node.hooks().await.pop().unwrap();
        assert_eq!(
            listed,
            json!({"seq": seq, "id": id, "source_id": "demo", "tenant_id": "default",
                "received_at": envelope.received_at_ms, "method": "POST", "path": "/webhooks/demo",
                "content_type": content_type, "size": body.len()})
        );
    }
    node.assert_sound().await;
}

#[tokio::test]
async fn the_worker_is_told_the_providers_headers_in_order_but_none_that_are_not_its_business() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let headers = [
        ("X-GitHub-Event", "push"),
        ("Authorization", "Bearer secret"),
        ("X-B", "1"),
        ("Cookie", "a=b"),
        ("User-Agent", "Hookshot/1"),
        ("X-B", "2"),
        ("X-Api-Key", "secret"),
        ("X-Ankusa-Tenant", "forged"),
        ("Content-Type", "text/plain"),
        ("X-Z", "z z"),
    ];
    let id = node.ask(&request("POST", "/webhooks/demo", &headers, b"x")).await.unwrap().id();
    node.drained().await;
    let seen = worker.last();
    let theirs = ["accept", "content-length", "x-ankusa-received-at", "x-ankusa-body-sha256"];
    let told: Vec<_> = seen
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap()))
        .filter(|(name, _)| !theirs.contains(name))
        .collect();
    let host = worker.address.to_string();
    let expected = [
        ("x-github-event", "push"),
        ("x-b", "1, 2"),
        ("user-agent", "Hookshot/1"),
        ("x-z", "z z"),
        ("x-ankusa-id", &id),
        ("x-ankusa-idempotency-key", &id),
        ("x-ankusa-source", "demo"),
        ("content-type", "text/plain"),
        ("x-ankusa-verification", "skipped"),
        ("host", &host),
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_body_in_the_smallest_pieces_is_put_together_again() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let mut client = node.client().await;
    for bytes in [
        request("POST", "/webhooks/demo", &[("x-a", "1")], b"in\r\npieces"),
        chunked("/webhooks/demo", &[("x-a", "1")], &[b"i", b"n\r\n", b"pieces"]),
    ] {
        for byte in &bytes {
            client.send(&[*byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        client.answer().await.unwrap().id();
    }
    let envelopes = node.dump().await.envelopes();
    assert_eq!(envelopes.len(), 2);
    assert!(envelopes.values().all(|envelope| envelope.body == "in\r\npieces"));
}

#[tokio::test]
async fn one_connection_carries_many_hooks_one_after_the_other() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let mut client = node.client().await;
    let mut ids = Vec::new();
    for number in 0..50 {
        let body = format!("hook {number}");
        // What is refused in between, with a body that was not wanted, does not end it.
        let refused = client.ask(&request("POST", "/webhooks/nobody", &[], b"body")).await.unwrap();
        assert_eq!((refused.status, refused.header("connection")), (404, None));
        ids.push((
            client
                .ask(&request("POST", "/webhooks/demo", &[], body.as_bytes()))
                .await
                .unwrap()
                .id(),
            body,
        ));
    }
    let last = request("POST", "/webhooks/demo", &[("connection", "close")], b"last");
    let answer = client.ask(&last).await.unwrap();
    assert_eq!(answer.header("connection"), Some("close"));
    ids.push((answer.id(), "last".to_owned()));
    assert_eq!(client.rest().await, b"");
    node.drained().await;
    let mut arrived: Vec<_> = worker
        .seen()
        .iter()
        .map(|seen| {
            (seen.header("x-ankusa-id").unwrap(), String::from_utf8(seen.body.to_vec()).unwrap())
        })
        .collect();
    arrived.sort();
    ids.sort();
    assert_eq!(arrived, ids);
}

#[tokio::test]
async fn fifty_requests_in_one_piece_are_answered_in_their_order() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({"http": {"max_body_bytes": 100}})).await;
    let mut pipeline = Vec::new();
    let mut expected = Vec::new();
    for number in 0..50 {
        let body = format!("hook {number}");
        let (bytes, status) = match number % 5 {
            0 => (request("POST", "/webhooks/demo", &[], body.as_bytes()), 201),
            1 => (chunked("/webhooks/demo", &[], &[b"hook ", &body.as_bytes()[5..]]), 201),
            2 => (request("POST", "/webhooks/nobody", &[], body.as_bytes()), 404),
            3 => (request("GET", "/ready", &[], b""), 200),
            _ => (request("PUT", "/webhooks/demo", &[], b""), 404),
        };
        pipeline.extend(bytes);
        expected.push((status, body));
    }
    let mut client = node.client().await;
    client.send(&pipeline).await.unwrap();
    let mut accepted = Vec::new();
    for (status, body) in expected {
        let answer = client.answer().await.unwrap();
        assert_eq!(answer.status, status, "{body}: {answer:?}");
        if status == 201 {
            accepted.push((answer.id(), body));
        }
    }
    let stored: Vec<_> = node
        .dump()
        .await
        .envelopes()
        .into_values()
        .map(|envelope| {
            (envelope.id.as_str().to_owned(), String::from_utf8(envelope.body.to_vec()).unwrap())
        })
        .collect();
    assert_eq!(stored, accepted, "stored in the order they were sent");
}

/// A request that waits to be told to go on.
fn expecting(target: &str, expectation: &str, length: usize) -> Vec<u8> {
    let mut bytes = head("POST", target, &[("expect", expectation)]);
    bytes.extend_from_slice(format!("content-length: {length}\r\n\r\n").as_bytes());
    bytes
}

#[tokio::test]
async fn only_a_request_that_passed_its_head_is_told_to_send_its_body() {
    let worker = refusing().await;
    let config = json!({
        "http": {"max_body_bytes": 100},
        "sources": {"github": {"verify": {"type": "github", "secret": "key"}, "sinks": [sink(&worker)]}},
    });
    let node = keeping(&worker, config).await;
    let close = [("connection", "close")];
    let unknown = Answer::json(404, r#"{"error":"unknown_source"}"#, &close);
    let too_large = Answer::json(413, r#"{"error":"payload_too_large","limit":100}"#, &close);
    for (asked, refusal) in [
        (expecting("/webhooks/nobody", "100-continue", 5), &unknown),
        (expecting("/webhooks/demo", "100-continue", 101), &too_large),
    ] {
        let mut client = node.client().await;
        assert_eq!(client.ask(&asked).await.unwrap().sorted(), *refusal);
        assert_eq!(client.rest().await, b"");
    }
    let go_on = |answer: Answer| assert_eq!((answer.status, answer.headers), (100, vec![]));
    let mut client = node.client().await;
    for expectation in ["100-continue", "100-Continue"] {
        go_on(client.ask(&expecting("/webhooks/demo", expectation, 5)).await.unwrap());
        assert_eq!(client.ask(b"hello").await.unwrap().status, 201);
    }
    // The signature is over the body, which must be read for it.
    go_on(client.ask(&expecting("/webhooks/github", "100-continue", 5)).await.unwrap());
    assert_eq!(client.ask(b"hello").await.unwrap().status, 401);
    // Nothing to wait for.
    assert_eq!(
        client.ask(&expecting("/webhooks/demo", "100-continue", 0)).await.unwrap().status,
        201
    );
    let mut impatient = expecting("/webhooks/demo", "100-continue", 5);
    impatient.extend_from_slice(b"hello");
    let answer = client.ask(&impatient).await.unwrap();
    let answer = if answer.status == 100 { client.answer().await.unwrap() } else { answer };
    assert_eq!(answer.status, 201);
}

/// Many connections, each with many hooks under way at once: every answer is the answer to its own request.
#[tokio::test]
async fn answers_do_not_get_mixed_up_between_connections() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let mut clients: Vec<Client> = Vec::new();
    for _ in 0..20 {
        clients.push(node.client().await);
    }
    for (number, client) in clients.iter_mut().enumerate() {
        for turn in 0..20 {
            let body = format!("{number} {turn}");
            client.send(&request("POST", "/webhooks/demo", &[], body.as_bytes())).await.unwrap();
        }
    }
    let mut sent = BTreeMap::new();
    for (number, client) in clients.iter_mut().enumerate() {
        for turn in 0..20 {
            let id = client.answer().await.unwrap().id();
            assert_eq!(sent.insert(id, format!("{number} {turn}")), None, "an id told twice");
        }
    }
    node.drained().await;
    let arrived: BTreeMap<_, _> = worker
        .seen()
        .iter()
        .map(|seen| {
            (seen.header("x-ankusa-id").unwrap(), String::from_utf8(seen.body.to_vec()).unwrap())
        })
        .collect();
    assert_eq!(arrived, sent);
    assert_eq!(worker.seen().len(), sent.len(), "none was delivered twice");
    node.assert_sound().await;
}
