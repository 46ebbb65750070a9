//! Whatever is sent to the ingest port, in any order and by however many: a documented answer or a close, nothing stored,
//! nobody else harmed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::Duration;

use common::http::{chunked, head};
use common::worker::{self, Worker};
use common::{Answer, Chance, Client, TestNode, in_time, request, until};
use serde_json::{Value, json};
use tokio::time::timeout;

/// The largest body of the nodes here.
const LIMIT: usize = 1_000;

const CLOSE: (&str, &str) = ("connection", "close");

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

async fn node(worker: &Worker, http: Value) -> TestNode {
    let mut config = json!({
        "http": {"max_body_bytes": LIMIT},
        "sources": common::node::demo(worker),
    });
    common::node::merge(&mut config, json!({"http": http}));
    TestNode::start(config).await
}

fn hook(body: &[u8]) -> Vec<u8> {
    request("POST", "/webhooks/demo", &[], body)
}

/// A head with this line, and what follows it.
fn begun(line: &str, rest: &[u8]) -> Vec<u8> {
    let mut bytes = head("POST", "/webhooks/demo", &[]);
    bytes.extend_from_slice(format!("{line}\r\n\r\n").as_bytes());
    bytes.extend_from_slice(rest);
    bytes
}

async fn metric(node: &TestNode, series: &str) -> u64 {
    let text = node.admin("/metrics").await.text();
    let value = text.lines().find_map(|line| line.strip_prefix(series));
    value.unwrap_or_else(|| panic!("no {series}")).trim().parse().unwrap()
}

#[tokio::test]
async fn bodies_in_flight_share_one_bound_and_what_is_only_declared_takes_none_of_it() {
    let worker = taking().await;
    let node = node(&worker, json!({"max_body_memory_bytes": 2_000})).await;
    let used = r#"ankusa_ingest_body_memory_bytes{instance="default"}"#;
    let overload = Answer::json(503, r#"{"error":"overload"}"#, &[("retry-after", "1"), CLOSE]);
    // Whoever declares and does not send holds nothing.
    let mut lying = Vec::new();
    for _ in 0..20 {
        let mut client = node.client().await;
        client.send(&begun("content-length: 1000", b"")).await.unwrap();
        lying.push(client);
    }
    assert_eq!(node.post("/webhooks/demo", &[b'x'; LIMIT]).await.status, 201);
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut client = node.client().await;
        client.send(&begun("content-length: 1000", &[b'h'; 990])).await.unwrap();
        held.push(client);
    }
    until("both are there", async || (metric(&node, used).await == 1_980).then_some(())).await;
    // One that fits, one that does not, and one whose chunks stop fitting.
    assert_eq!(node.post("/webhooks/demo", &[b'x'; 20]).await.status, 201);
    assert_eq!(node.post("/webhooks/demo", &[b'x'; 21]).await.sorted(), overload);
    let chunks = chunked("/webhooks/demo", &[], &[b"0123456789", b"01234567890"]);
    assert_eq!(node.ask(&chunks).await.unwrap().sorted(), overload);
    // Full to the last byte, nothing is read at all, not even for those who ask first.
    for client in &mut held {
        client.send(&[b'h'; 9]).await.unwrap();
    }
    let mut last = node.client().await;
    until("all but two bytes are taken", async || {
        (metric(&node, used).await == 1_998).then_some(())
    })
    .await;
    last.send(&begun("content-length: 3", b"ab")).await.unwrap();
    until("every byte is taken", async || (metric(&node, used).await == 2_000).then_some(())).await;
    let expecting = begun("expect: 100-continue\r\ncontent-length: 1", b"");
    assert_eq!(node.ask(&expecting).await.unwrap().sorted(), overload);
    // What is given back can be taken again: by an end, a close, a body that came whole.
    last.send(b"c").await.unwrap();
    let refused = last.answer().await.unwrap();
    assert_eq!(refused.status, 503);
    drop(held.pop());
    let mut whole = held.pop().unwrap();
    until("it is given back", async || (metric(&node, used).await == 999).then_some(())).await;
    whole.send(b"h").await.unwrap();
    assert_eq!(whole.answer().await.unwrap().status, 201);
    drop(lying);
    until("nothing is held", async || (metric(&node, used).await == 0).then_some(())).await;
    let shed = metric(&node, r#"ankusa_load_shed_total{instance="default"}"#).await;
    assert_eq!(shed, 4);
    node.drained().await;
    assert_eq!(worker.seen().len(), 3);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_up_to_the_first_that_cannot_be_read() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    let mut all = Vec::new();
    for number in 0..50 {
        all.extend(hook(format!("{number}").as_bytes()));
    }
    let mut client = node.client().await;
    client.send(&[&all[..], b"G\0T / HTTP/1.1\r\n\r\n", &all].concat()).await.unwrap();
    for _ in 0..50 {
        assert_eq!(client.answer().await.unwrap().status, 201);
    }
    let invalid = Answer::json(400, r#"{"error":"invalid_request"}"#, &[CLOSE]);
    assert_eq!(client.answer().await.unwrap().sorted(), invalid);
    assert_eq!(client.rest().await, b"");
    node.drained().await;
    assert_eq!(worker.seen().len(), 50);
    let parsed = r#"ankusa_http_parse_failures_total{instance="default",listener="ingest",kind="#;
    assert_eq!(metric(&node, &format!(r#"{parsed}"invalid"}}"#)).await, 1);
}

#[tokio::test]
async fn whoever_expects_to_be_asked_is_asked_or_refused_at_once() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    let expect = |line: &str| begun(&format!("expect: 100-continue\r\n{line}"), b"");
    let mut client = node.client().await;
    client.send(&expect("content-length: 4")).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 100);
    client.send(b"body").await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 201);
    for (line, status) in [
        ("content-length: 1001", 413),
        ("content-length: 4\r\nx-bad: \u{e9}", 400),
        ("content-length: 4\r\nhost: other", 400),
    ] {
        let mut client = node.client().await;
        client.send(&expect(line)).await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, status, "{line}");
        assert_eq!(client.rest().await, b"", "{line}");
    }
    // With nothing to come nobody has to be asked.
    let mut client = node.client().await;
    assert_eq!(client.ask(&expect("content-length: 0")).await.unwrap().status, 201);
}

#[tokio::test]
async fn a_compressed_body_is_kept_as_it_came_however_far_it_would_go() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    // What a thousandfold of itself looks like: nobody here looks.
    let bomb = [&b"\x1f\x8b\x08\0\0\0\0\0\0\x03"[..], &[0xec; 900]].concat();
    for coding in ["gzip", "br", "zstd", "deflate, gzip, gzip", "nonsense"] {
        let asked = request("POST", "/webhooks/demo", &[("content-encoding", coding)], &bomb);
        assert_eq!(node.ask(&asked).await.unwrap().status, 201, "{coding}");
    }
    node.drained().await;
    assert!(worker.seen().iter().all(|seen| seen.body == bomb));
}

/// What a hostile client sends before it goes away or falls silent.
fn beginnings(chance: &mut Chance) -> Vec<u8> {
    let whole = hook(b"hostile");
    let cut = usize::try_from(chance.below(whole.len() as u64 - 1)).unwrap();
    match chance.below(8) {
        0 => Vec::new(),
        1 => whole[..cut].to_vec(),
        2 => begun("content-length: 999", &[b'h'; 500]),
        3 => begun("transfer-encoding: chunked", b"5\r\nhosti"),
        4 => chance.bytes(200),
        5 => b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0".to_vec(),
        6 => [&b"GET /"[..], &vec![b'a'; 20_000]].concat(),
        _ => begun("content-length: 1001", b"garbage"),
    }
}

#[tokio::test]
async fn a_flood_past_the_connections_there_are_passes_and_good_traffic_goes_on() {
    let worker = taking().await;
    let limits = json!({
        "max_connections": 32,
        "header_timeout_ms": 200,
        "body_timeout_ms": 200,
        "idle_timeout_ms": 200,
    });
    let node = node(&worker, limits).await;
    let mut chance = Chance::of(7);
    let mut flood = Vec::new();
    for _ in 0..300 {
        let mut client = node.client().await;
        // Refused before it was sent whole: that is fine too.
        let _ = client.send(&beginnings(&mut chance)).await;
        flood.push(client);
    }
    // Waiting like all the others, and served in its turn.
    for number in 0..20 {
        let answer = node.post("/webhooks/demo", format!("good {number}").as_bytes()).await;
        assert_eq!(answer.status, 201);
    }
    for client in flood {
        in_time("every one of them ends", client.rest()).await;
    }
    assert!(
        metric(
            &node,
            r#"ankusa_http_connections_at_limit_total{instance="default",listener="ingest"}"#
        )
        .await
            > 0
    );
    until("all have ended", async || {
        let open = r#"ankusa_http_connections{instance="default",listener="ingest"}"#;
        (metric(&node, open).await == 0).then_some(())
    })
    .await;
    node.drained().await;
    assert_eq!(worker.seen().len(), 20);
    assert!(worker.seen().iter().all(|seen| seen.body.starts_with(b"good")));
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

/// Bytes that are almost requests: each is answered from the documented set or its connection closed, at once or when its
/// client is done, and whatever was accepted is a hook that was whole.
#[tokio::test]
async fn damaged_requests_end_in_a_documented_answer_or_a_close() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    let mut chance = Chance::of(11);
    let shapes = [
        hook(b"whole body"),
        chunked("/webhooks/demo", &[("x-a", "b")], &[b"whole", b" body"]),
        [hook(b"whole body"), hook(b"whole body")].concat(),
    ];
    let mut accepted = 0;
    for turn in 0..600 {
        let mut bytes = shapes[turn % shapes.len()].clone();
        for _ in 0..=chance.below(3) {
            damage(&mut bytes, &mut chance);
        }
        let shown = String::from_utf8_lossy(&bytes).into_owned();
        let mut client = node.client().await;
        let _ = client.send(&bytes).await;
        client.finish().await;
        while let Ok(answer) = next(&mut client).await {
            let status = answer.status;
            assert!([200, 201, 400, 404, 413, 414, 431].contains(&status), "{status}: {shown:?}");
            assert_eq!(answer.header("content-type"), Some("application/json"), "{shown:?}");
            accepted += u64::from(status == 201);
        }
    }
    assert_eq!(node.status().await["next_seq"], accepted + 1);
    assert_eq!(node.post("/webhooks/demo", b"good").await.status, 201);
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

/// The next answer. A damaged request may have asked by HEAD or have been told to go on.
async fn next(client: &mut Client) -> Result<Answer, common::Gone> {
    loop {
        let answer = client.answer().await?;
        if answer.status != 100 {
            return Ok(answer);
        }
    }
}

fn damage(bytes: &mut Vec<u8>, chance: &mut Chance) {
    let at = usize::try_from(chance.below(bytes.len() as u64)).unwrap();
    match chance.below(5) {
        0 => bytes[at] ^= 1 << chance.below(8),
        1 => drop(bytes.remove(at)),
        2 => bytes.insert(at, b"\r\n\0 :\t,;0x"[usize::try_from(chance.below(10)).unwrap()]),
        3 => bytes.truncate(at + 1),
        _ => {
            let piece = bytes[at..(at + 20).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
    }
}

#[tokio::test]
async fn what_follows_a_close_is_not_read_and_an_early_close_stores_nothing() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    // Told to close: what comes behind is nobody's.
    let last = request("POST", "/webhooks/demo", &[("connection", "close")], b"last");
    let mut client = node.client().await;
    client.send(&[&last[..], &hook(b"behind"), b"\0garbage"].concat()).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 201);
    assert_eq!(client.rest().await, b"");
    for bytes in [&b""[..], b"P", &hook(b"never")[..50], &begun("content-length: 9", b"never")] {
        node.client().await.send(bytes).await.unwrap();
    }
    // Trailing bytes that are no request are answered as such.
    let mut client = node.client().await;
    client.send(&[&hook(b"first")[..], b"\0garbage\r\n\r\n"].concat()).await.unwrap();
    assert_eq!(client.answer().await.unwrap().status, 201);
    assert_eq!(client.answer().await.unwrap().status, 400);
    assert_eq!(client.rest().await, b"");
    node.drained().await;
    let bodies: Vec<_> = worker.seen().iter().map(|seen| seen.body.clone()).collect();
    assert_eq!(bodies, ["last", "first"]);
    assert!(timeout(Duration::from_secs(60), node.get("/health")).await.is_ok());
}
