//! Every answer that a provider can be given, one row each: what leads to it, the whole of it, and how many hooks are
//! stored because of it. Whatever adds an answer adds its row.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::http::{chunked, head};
use common::node::{merge, sink};
use common::worker::{self, Worker};
use common::{Answer, TestNode, request, until};
use serde_json::{Value, json};

/// The largest body of the nodes here.
const LIMIT: usize = 1_000;

/// What stands for the id in an expected body.
const ID: &str = "<id>";

/// One answer.
struct Row {
    what: &'static str,
    /// Over what every row starts from.
    config: Value,
    before: Before,
    /// Sent on a connection of its own.
    asked: Vec<u8>,
    status: u16,
    body: &'static str,
    /// Besides the type and the length of the body.
    headers: &'static [(&'static str, &'static str)],
    stored: usize,
}

/// What happens before.
enum Before {
    Nothing,
    /// A hook that is accepted.
    Hook(Vec<u8>),
    /// A connection on which this was sent, and this line of the metrics, which says that it has been read.
    Held(Vec<u8>, &'static str),
    /// The disk takes no more.
    FullDisk,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            what: "",
            config: json!({}),
            before: Before::Nothing,
            asked: Vec::new(),
            status: 0,
            body: "",
            headers: &[],
            stored: 0,
        }
    }
}

const CLOSE: &[(&str, &str)] = &[("connection", "close")];

/// One request as most clients write it.
fn post(target: &str, body: &[u8]) -> Vec<u8> {
    request("POST", target, &[], body)
}

/// A head with these lines, and what follows it.
fn raw(lines: &[&str], rest: &[u8]) -> Vec<u8> {
    let mut bytes = head("POST", "/webhooks/demo", &[]);
    lines.iter().for_each(|line| bytes.extend_from_slice(format!("{line}\r\n").as_bytes()));
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(rest);
    bytes
}

fn accepted() -> Vec<Row> {
    vec![
        Row {
            what: "committed and synced",
            asked: post("/webhooks/demo", b"{}"),
            status: 201,
            body: r#"{"id":"<id>","status":"accepted"}"#,
            headers: &[("ankusa-durability", "fsync")],
            stored: 1,
            ..Row::default()
        },
        Row {
            what: "not verified, and taken all the same",
            asked: post("/webhooks/flagged", b"{}"),
            status: 201,
            body: r#"{"id":"<id>","status":"accepted"}"#,
            headers: &[("ankusa-durability", "fsync")],
            stored: 1,
            ..Row::default()
        },
    ]
}

/// What is taken once, is held instead, or is too much.
fn limited() -> Vec<Row> {
    const EVENT: &[(&str, &str)] = &[("x-event", "one")];
    let keyed = |body: &[u8]| request("POST", "/webhooks/demo", EVENT, body);
    let once = json!({"dedupe": {"header": "x-event"}});
    let slow = json!({"rate": 0.001, "burst": 1});
    let held = json!({"sources": {"github": {"on_verify_failure": "quarantine"}}});
    vec![
        Row {
            what: "an event that was told before",
            config: json!({"sources": {"demo": once}}),
            before: Before::Hook(keyed(b"{}")),
            asked: keyed(b"{ }"),
            status: 201,
            body: r#"{"id":"<id>","status":"accepted","duplicate":true}"#,
            headers: &[("ankusa-durability", "fsync")],
            stored: 1,
        },
        Row {
            what: "one dedupe key too many",
            config: json!({"sources": {"demo": once}, "dedupe": {"max_entries": 1}}),
            before: Before::Hook(keyed(b"{}")),
            asked: request("POST", "/webhooks/demo", &[("x-event", "two")], b"{}"),
            status: 503,
            body: r#"{"error":"dedupe_quota"}"#,
            headers: &[("retry-after", "60")],
            stored: 1,
        },
        Row {
            what: "not verified, and held",
            config: held.clone(),
            asked: post("/webhooks/github", b"{}"),
            status: 202,
            body: r#"{"status":"quarantined","reason":":missing_signature"}"#,
            headers: &[("ankusa-durability", "fsync")],
            ..Row::default()
        },
        Row {
            what: "no room among what is held",
            config: {
                let mut small = held;
                merge(&mut small, json!({"quarantine": {"max_bytes": 1}}));
                small
            },
            asked: post("/webhooks/github", b"{}"),
            status: 503,
            body: r#"{"error":"quarantine_full"}"#,
            headers: &[("retry-after", "60")],
            ..Row::default()
        },
        Row {
            what: "over a limit",
            config: json!({"rate_limits": {"default": slow}}),
            before: Before::Hook(post("/webhooks/demo", b"{}")),
            asked: post("/webhooks/demo", b"{}"),
            status: 429,
            body: r#"{"error":"rate_limited"}"#,
            headers: &[("retry-after", "1000")],
            stored: 1,
        },
        Row {
            what: "more that do not verify than their source may send",
            config: json!({"quarantine": {"burst": 1, "rate": 0.001}}),
            before: Before::Hook(post("/webhooks/flagged", b"{}")),
            asked: post("/webhooks/flagged", b"{}"),
            status: 429,
            body: r#"{"error":"quarantine_rate_limited"}"#,
            headers: &[("retry-after", "1000")],
            stored: 1,
        },
    ]
}

fn permanent() -> Vec<Row> {
    vec![
        Row {
            what: "a header that cannot be stored as it is",
            asked: raw(&["x-name: \u{e9}", "content-length: 0"], b""),
            status: 400,
            body: r#"{"error":"invalid_header","header":"x-name"}"#,
            ..Row::default()
        },
        Row {
            what: "not verified",
            asked: post("/webhooks/github", b"{}"),
            status: 401,
            body: r#"{"error":"verification_failed","reason":":missing_signature"}"#,
            ..Row::default()
        },
        Row {
            what: "a source nobody knows",
            asked: post("/webhooks/nobody", b"{}"),
            status: 404,
            body: r#"{"error":"unknown_source"}"#,
            ..Row::default()
        },
        Row {
            what: "a source of another tenant",
            config: json!({"http": {"routing": "tenant_path"}, "sources": {"demo": {"tenant": "acme"}}}),
            asked: post("/webhooks/other/demo", b"{}"),
            status: 404,
            body: r#"{"error":"unknown_source"}"#,
            ..Row::default()
        },
        Row {
            what: "another method",
            asked: request("PUT", "/webhooks/demo", &[], b"{}"),
            status: 404,
            body: r#"{"error":"not_found"}"#,
            ..Row::default()
        },
        Row {
            what: "a body that says it is too large",
            asked: raw(&["content-length: 1001"], b""),
            status: 413,
            body: r#"{"error":"payload_too_large","limit":1000}"#,
            headers: CLOSE,
            ..Row::default()
        },
        Row {
            what: "a body that turns out too large",
            asked: chunked("/webhooks/demo", &[], &[&[b'x'; LIMIT], b"x"]),
            status: 413,
            body: r#"{"error":"payload_too_large","limit":1000}"#,
            headers: CLOSE,
            ..Row::default()
        },
        Row {
            what: "no HTTP",
            asked: b"\x16\x03\x01\x02\x00\r\n\r\n".to_vec(),
            status: 400,
            body: r#"{"error":"invalid_request"}"#,
            headers: CLOSE,
            ..Row::default()
        },
        Row {
            what: "a target that is too long",
            asked: post(&format!("/webhooks/{}", "a".repeat(70_000)), b"{}"),
            status: 414,
            body: r#"{"error":"uri_too_long"}"#,
            headers: CLOSE,
            ..Row::default()
        },
        Row {
            what: "headers that are too long",
            asked: raw(&[&format!("x-long: {}", "a".repeat(70_000))], b""),
            status: 431,
            body: r#"{"error":"headers_too_large"}"#,
            headers: CLOSE,
            ..Row::default()
        },
    ]
}

fn unread() -> Vec<Row> {
    let failed = |what, body, asked| Row {
        what,
        asked,
        status: 400,
        body,
        headers: CLOSE,
        ..Row::default()
    };
    vec![
        failed(
            "chunks that are none",
            r#"{"error":"body_read_failed","reason":"closed"}"#,
            raw(&["transfer-encoding: chunked"], b"x\r\n"),
        ),
        failed(
            "a head that can be read in two ways",
            r#"{"error":"body_read_failed","reason":"framing"}"#,
            raw(&["transfer-encoding: chunked", "content-length: 5"], b"0\r\n\r\n"),
        ),
        failed(
            "two hosts",
            r#"{"error":"body_read_failed","reason":"framing"}"#,
            raw(&["host: other.test", "content-length: 0"], b""),
        ),
        Row {
            config: json!({"http": {"body_timeout_ms": 300}}),
            ..failed(
                "a body that does not come in time",
                r#"{"error":"body_read_failed","reason":"timeout"}"#,
                raw(&["content-length: 5"], b"late"),
            )
        },
    ]
}

fn retryable() -> Vec<Row> {
    vec![
        Row {
            what: "no memory for another body",
            config: json!({"http": {"max_body_memory_bytes": LIMIT}}),
            before: Before::Held(
                raw(&["content-length: 1000"], &[b'x'; LIMIT - 1]),
                r#"ankusa_ingest_body_memory_bytes{instance="default"} 999"#,
            ),
            asked: post("/webhooks/demo", b"{}"),
            status: 503,
            body: r#"{"error":"overload"}"#,
            headers: &[("connection", "close"), ("retry-after", "1")],
            ..Row::default()
        },
        Row {
            what: "a store that cannot write",
            before: Before::FullDisk,
            asked: post("/webhooks/demo", b"{}"),
            status: 503,
            body: r#"{"error":"store_unavailable"}"#,
            headers: &[("retry-after", "1")],
            ..Row::default()
        },
        Row {
            what: "one tenant too many",
            config: json!({
                "http": {"routing": "tenant_path"},
                "tenants": {"max": 1},
                "sources": {
                    "demo": {"trust_url_tenant": true},
                    "flagged": {"tenant": "acme"},
                    "github": {"tenant": "acme"},
                },
            }),
            before: Before::Hook(post("/webhooks/first/demo", b"{}")),
            asked: post("/webhooks/second/demo", b"{}"),
            status: 503,
            body: r#"{"error":"tenant_limit"}"#,
            headers: &[("retry-after", "60")],
            stored: 1,
        },
    ]
}

/// A node whose hooks stay where they can be counted.
async fn node(worker: &Worker, config: &Value) -> TestNode {
    let github = json!({"type": "github", "secret": "key"});
    let mut all = json!({
        "http": {"max_body_bytes": LIMIT},
        "dispatch": {"retry": {"base_ms": 3_600_000, "max_ms": 3_600_000}},
        "sources": {
            "demo": {"sinks": [sink(worker)]},
            "flagged": {"verify": github, "on_verify_failure": "accept_flag", "sinks": [sink(worker)]},
            "github": {"verify": github, "sinks": [sink(worker)]},
        },
    });
    merge(&mut all, config.clone());
    TestNode::start(all).await
}

async fn check(worker: &Worker, row: Row) {
    let node = node(worker, &row.config).await;
    let mut held = Vec::new();
    match row.before {
        Before::Nothing => {}
        Before::Hook(bytes) => assert_eq!(node.ask(&bytes).await.unwrap().status, 201),
        Before::Held(bytes, line) => {
            let mut client = node.client().await;
            client.send(&bytes).await.unwrap();
            held.push(client);
            until("what is held has been read", async || {
                let metrics = node.admin("/metrics").await.text();
                metrics.lines().any(|told| told == line).then_some(())
            })
            .await;
        }
        Before::FullDisk => {
            node.limit_file_size(Some(1));
            // Of the first to fail nobody knows the end; those after it are refused.
            let _ = node.ask(&post("/webhooks/demo", b"{}")).await;
        }
    }
    let answer = node.ask(&row.asked).await.unwrap_or_else(|_| panic!("{}: closed", row.what));
    let id = answer.status == 201;
    let body = if id { row.body.replace(ID, &answer.id()) } else { row.body.to_owned() };
    assert_eq!(answer.sorted(), Answer::json(row.status, &body, row.headers), "{}", row.what);
    node.limit_file_size(None);
    until("hooks can be counted", async || {
        let answer = node.control("GET", "/v1/hooks?limit=1000").await.ok()?;
        (answer.status == 200).then_some(())
    })
    .await;
    assert_eq!(node.hooks().await.len(), row.stored, "{}", row.what);
}

async fn check_all(rows: Vec<Row>) {
    let worker = Worker::start(worker::Answer::status(503)).await;
    for row in rows {
        check(&worker, row).await;
    }
}

#[tokio::test]
async fn what_is_accepted_is_told_its_id() {
    check_all(accepted()).await;
}

#[tokio::test]
async fn what_will_never_be_accepted_is_4xx() {
    check_all(permanent()).await;
}

#[tokio::test]
async fn what_did_not_arrive_whole_is_400() {
    check_all(unread()).await;
}

#[tokio::test]
async fn what_may_be_accepted_later_is_503_with_the_time_to_wait() {
    check_all(retryable()).await;
}

#[tokio::test]
async fn what_is_told_twice_does_not_verify_or_is_too_much_is_told_so() {
    check_all(limited()).await;
}
