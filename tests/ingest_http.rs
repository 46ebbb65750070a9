//! Everything a provider can be told, and that what it sent arrives as it was sent: byte for byte, in the store and at
//! the worker.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::http::{chunked, head};
use common::node::{merge, sink};
use common::worker::{self, Worker};
use common::{Answer, Chance, TestNode, request, until};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// The largest body of the nodes here.
const LIMIT: usize = 1_000;

const CLOSE: (&str, &str) = ("connection", "close");

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// A node whose worker takes nothing and is not tried again: hooks stay where they can be looked at.
async fn keeping(worker: &Worker, config: Value) -> TestNode {
    let mut all = json!({
        "http": {"max_body_bytes": LIMIT},
        "dispatch": {"retry": {"base_ms": 3_600_000, "max_ms": 3_600_000}},
        "sources": {"demo": {"sinks": [sink(worker)]}},
    });
    merge(&mut all, config);
    TestNode::start(all).await
}

async fn refusing() -> Worker {
    Worker::start(worker::Answer::status(503)).await
}

/// The signature of GitHub.
fn signature(secret: &str, body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(body);
    let bytes = mac.finalize().into_bytes();
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256={hex}")
}

/// A request with exactly these lines and this body.
fn raw(lines: &[&[u8]], body: &[u8]) -> Vec<u8> {
    let mut bytes = lines.join(&b"\r\n"[..]);
    bytes.extend_from_slice(b"\r\n\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// Nothing was given a seq, and nothing is stored.
async fn nothing_was_stored(node: &TestNode) {
    assert_eq!(node.status().await["next_seq"], 1);
    assert_eq!(node.hooks().await, Vec::<Value>::new());
}

#[tokio::test]
async fn an_accepted_hook_is_told_its_id_and_what_the_answer_is_worth() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let answer = node.post("/webhooks/demo", b"{}").await;
    let id = answer.id();
    let body = format!(r#"{{"id":"{id}","status":"accepted"}}"#);
    assert_eq!(answer.sorted(), Answer::json(201, &body, &[("ankusa-durability", "fsync")]));
    node.drained().await;
    assert_eq!(worker.last().header("x-ankusa-id"), Some(id));
}

#[tokio::test]
async fn what_is_no_catch_url_is_404_and_nothing_can_be_probed() {
    let worker = refusing().await;
    let config = json!({"sources": {"acme": {"tenant": "acme", "sinks": [sink(&worker)]}}});
    let node = keeping(&worker, config).await;
    let unknown = Answer::json(404, r#"{"error":"unknown_source"}"#, &[]);
    for target in [
        "/webhooks/nobody",
        "/webhooks/ankusa:lifecycle",
        "/webhooks/demo/",
        "/webhooks/demo/more",
        "/webhooks/acme/demo",
        "/webhooks/DEMO",
        "/webhooks/%64emo",
        "/webhooks/demo%00",
        "/webhooks/%2e%2e/webhooks/demo",
        "/webhooks/../webhooks/demo",
        "/webhooks/",
        "/webhooks",
        "/webhooksdemo",
        "/hooks/demo",
        "//webhooks/demo",
        "/",
        "/ready",
        "/webhooks/d\u{e9}mo",
        "/webhooks/\u{1f600}",
    ] {
        assert_eq!(node.post(target, b"x").await.sorted(), unknown, "{target}");
    }
    let not_found = Answer::json(404, r#"{"error":"not_found"}"#, &[]);
    for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW", "post"] {
        let asked = request(method, "/webhooks/demo", &[], b"");
        assert_eq!(node.ask(&asked).await.unwrap().sorted(), not_found, "{method}");
    }
    for target in ["/", "/metrics", "/v1/config", "/v1/stop"] {
        assert_eq!(node.get(target).await.sorted(), not_found, "{target}");
    }
    let mut client = node.client().await;
    client.send(&request("HEAD", "/webhooks/demo", &[], b"")).await.unwrap();
    assert_eq!(client.answer_to("HEAD").await.unwrap().status, 404);
    nothing_was_stored(&node).await;
}

#[tokio::test]
async fn an_unverified_hook_is_401_with_the_reason() {
    let worker = refusing().await;
    let github = json!({"verify": {"type": "github", "secret": "key"}, "sinks": [sink(&worker)]});
    let slack = json!({"verify": {"type": "slack", "secret": "key"}, "sinks": [sink(&worker)]});
    let node = keeping(&worker, json!({"sources": {"github": github, "slack": slack}})).await;
    let (right, wrong) = (signature("key", b"x"), signature("key", b"y"));
    let github =
        |value: &str| request("POST", "/webhooks/github", &[("X-Hub-Signature-256", value)], b"x");
    let old = [("x-slack-signature", "v0=00"), ("x-slack-request-timestamp", "1000000000")];
    for (asked, reason) in [
        (request("POST", "/webhooks/github", &[], b"x"), "missing_signature"),
        (github("sha1=00"), "malformed_signature"),
        (github(&wrong), "no_match"),
        (request("POST", "/webhooks/slack", &old, b"x"), "timestamp_out_of_tolerance"),
    ] {
        let body = format!(r#"{{"error":"verification_failed","reason":":{reason}"}}"#);
        let answer = node.ask(&asked).await.unwrap().sorted();
        assert_eq!(answer, Answer::json(401, &body, &[]), "{reason}");
    }
    nothing_was_stored(&node).await;
    assert_eq!(node.ask(&github(&right)).await.unwrap().status, 201);
}

#[tokio::test]
async fn a_flagged_hook_is_accepted_and_says_at_the_worker_that_it_failed() {
    let worker = taking().await;
    let flagging = json!({
        "verify": {"type": "github", "secret": "key"},
        "on_verify_failure": "accept_flag",
        "sinks": [sink(&worker)],
    });
    let node = TestNode::start(json!({"sources": {"github": flagging}})).await;
    let id = node.post("/webhooks/github", b"forged").await.id();
    let signed = [("x-hub-signature-256", signature("key", b"real"))];
    let signed = signed.each_ref().map(|(name, value)| (*name, value.as_str()));
    let real = node.ask(&request("POST", "/webhooks/github", &signed, b"real")).await.unwrap();
    node.drained().await;
    let mut seen: Vec<_> = worker.seen();
    seen.sort_by_key(|seen| seen.header("x-ankusa-id"));
    let told = seen.iter().map(|seen| {
        let header = |name| seen.header(name);
        (
            header("x-ankusa-id").unwrap(),
            header("x-ankusa-verification").unwrap(),
            header("x-ankusa-verification-flagged"),
        )
    });
    let expected =
        [(id, "failed".to_owned(), Some("true".to_owned())), (real.id(), "ok".to_owned(), None)];
    assert_eq!(told.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_header_byte_that_is_not_visible_ascii_is_refused_by_name() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let with = |header: &[u8]| {
        raw(&[b"POST /webhooks/demo HTTP/1.1", b"host: a", header, b"content-length: 1"], b"x")
    };
    for header in [&b"X-Name: caf\xe9"[..], b"x-name: \xc3\xa9", b"X-NAME: \x80", b"x-name:\xff"] {
        let answer = node.ask(&with(header)).await.unwrap().sorted();
        let expected = r#"{"error":"invalid_header","header":"x-name"}"#;
        assert_eq!(answer, Answer::json(400, expected, &[]));
    }
    // A name with such a byte is no HTTP to the parser, which answers for itself and closes.
    for header in
        [&b"x-n\xe4me: 1"[..], b"x name: 1", b"x-\x00: 1", b": 1", b"x-name: \x00", b"x: \x7f"]
    {
        let mut client = node.client().await;
        assert_eq!(client.ask(&with(header)).await.unwrap().status, 400, "{header:?}");
        assert_eq!(client.rest().await, b"");
    }
    nothing_was_stored(&node).await;
    assert_eq!(node.ask(&with(b"x-name:\t a\tb ~!\t ")).await.unwrap().status, 201);
}

#[tokio::test]
async fn a_declared_body_past_the_limit_is_413_before_it_is_sent() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let too_large = Answer::json(413, r#"{"error":"payload_too_large","limit":1000}"#, &[CLOSE]);
    for declared in ["1001", "8000000", "9223372036854775807"] {
        let mut client = node.client().await;
        let mut head = head("POST", "/webhooks/demo", &[]);
        head.extend_from_slice(format!("content-length: {declared}\r\n\r\n").as_bytes());
        assert_eq!(client.ask(&head).await.unwrap().sorted(), too_large, "{declared}");
        assert_eq!(client.rest().await, b"");
    }
    // A client that sends it all before it looks still sees why: the connection is not closed on it.
    let large = request("POST", "/webhooks/demo", &[], &vec![b'x'; 20_000_000]);
    assert_eq!(node.ask(&large).await.unwrap().sorted(), too_large);
    nothing_was_stored(&node).await;
    assert_eq!(node.post("/webhooks/demo", &[b'x'; LIMIT]).await.status, 201);
}

#[tokio::test]
async fn a_chunked_body_is_cut_off_at_the_limit() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let too_large = Answer::json(413, r#"{"error":"payload_too_large","limit":1000}"#, &[CLOSE]);
    let full = [b'x'; LIMIT];
    for chunks in [vec![&full[..], b"x"], vec![&[b'x'; LIMIT + 1]], vec![&b"x"[..], &full, &full]] {
        let mut client = node.client().await;
        let answer = client.ask(&chunked("/webhooks/demo", &[], &chunks)).await.unwrap();
        assert_eq!(answer.sorted(), too_large);
        assert_eq!(client.rest().await, b"");
    }
    // One without an end.
    let mut client = node.client().await;
    let mut endless = head("POST", "/webhooks/demo", &[]);
    endless.extend_from_slice(b"transfer-encoding: chunked\r\n\r\n");
    for _ in 0..=LIMIT {
        endless.extend_from_slice(b"1\r\nx\r\n");
    }
    assert_eq!(client.ask(&endless).await.unwrap().sorted(), too_large);
    nothing_was_stored(&node).await;
    for chunks in [vec![&full[..]], vec![&full[..400], &full[400..]], vec![]] {
        let answer = node.ask(&chunked("/webhooks/demo", &[], &chunks)).await.unwrap();
        assert_eq!(answer.status, 201);
    }
    let bodies: Vec<_> =
        node.dump().await.envelopes().into_values().map(|envelope| envelope.body.len()).collect();
    assert_eq!(bodies, [LIMIT, LIMIT, 0]);
}

#[tokio::test]
async fn a_body_that_does_not_come_whole_is_never_stored() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let failed = |reason: &str| {
        Answer::json(
            400,
            &format!(r#"{{"error":"body_read_failed","reason":"{reason}"}}"#),
            &[CLOSE],
        )
    };
    let started = |framing: &str, body: &str| {
        let mut bytes = head("POST", "/webhooks/demo", &[]);
        bytes.extend_from_slice(format!("{framing}\r\n\r\n{body}").as_bytes());
        bytes
    };
    let chunks = "transfer-encoding: chunked";
    let broken_off = [
        started("content-length: 9", "lying"),
        started("content-length: 1", ""),
        started(chunks, ""),
        started(chunks, "5\r\nlyi"),
        started(chunks, "5\r\nlying\r\n"),
        started(chunks, "5\r\nlying\r\n0\r\n"),
    ];
    for bytes in &broken_off {
        // It says that no more will come, and is told.
        let mut client = node.client().await;
        client.send(bytes).await.unwrap();
        client.finish().await;
        assert_eq!(client.answer().await.unwrap().sorted(), failed("closed"));
        assert_eq!(client.rest().await, b"");
        // It is gone.
        node.client().await.send(bytes).await.unwrap();
    }
    for body in [
        "5\r\nlying\r\nx\r\n\r\n",
        "-5\r\nlying\r\n0\r\n\r\n",
        "0x5\r\nlying\r\n0\r\n\r\n",
        "fffffffffffffffff\r\nlying\r\n0\r\n\r\n",
        "5\nlying\n0\n\n",
        "5;a\nb\r\nlying\r\n0\r\n\r\n",
        "5\r\nlying0\r\n\r\n",
    ] {
        let mut client = node.client().await;
        let answer = client.ask(&started(chunks, body)).await.unwrap();
        assert_eq!(answer.sorted(), failed("closed"), "{body:?}");
        assert_eq!(client.rest().await, b"");
    }
    nothing_was_stored(&node).await;
    for body in ["5;a=\"b\"\r\nhello\r\n0\r\nx-trailer: 1\r\n\r\n", "05 \r\nhello\r\n0;x\r\n\r\n"] {
        assert_eq!(node.ask(&started(chunks, body)).await.unwrap().status, 201, "{body:?}");
    }
    let envelopes = node.dump().await.envelopes();
    assert!(
        envelopes
            .values()
            .all(|envelope| envelope.body == "hello" && envelope.header("x-trailer").is_none())
    );
    assert_eq!(envelopes.len(), 2);
}

#[tokio::test]
async fn a_head_that_can_be_read_in_two_ways_is_400_and_ends_its_connection() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let framing = Answer::json(400, r#"{"error":"body_read_failed","reason":"framing"}"#, &[CLOSE]);
    let good = request("POST", "/webhooks/demo", &[], b"good");
    let line = &b"POST /webhooks/demo HTTP/1.1"[..];
    let (length, encoding) = (&b"Content-Length: 5"[..], &b"Transfer-Encoding: chunked"[..]);
    let ambiguous = [
        raw(&[line, b"host: a", length, encoding], b"0\r\n\r\n"),
        raw(&[line, b"host: a", encoding, length], b"0\r\n\r\n"),
        raw(&[line, encoding, b"x-between: 1", b"content-length: 0"], b"0\r\n\r\n"),
        raw(&[line, b"host: a", b"transfer-encoding: gzip, chunked"], b"0\r\n\r\n"),
        raw(&[line, encoding, encoding], b"0\r\n\r\n"),
        raw(&[line, b"host: a\nx: y", length], b"hello"),
        b"POST /webhooks/demo HTTP/1.1\nhost: a\ncontent-length: 5\n\nhello".to_vec(),
        b"POST /webhooks/demo HTTP/1.1\r\ncontent-length: 5\r\n\nhello".to_vec(),
    ];
    for bytes in &ambiguous {
        let shown = String::from_utf8_lossy(bytes);
        // What follows on the connection is not read as a request, whoever sent it.
        let mut client = node.client().await;
        client.send(&[bytes, &good[..]].concat()).await.unwrap();
        assert_eq!(client.answer().await.unwrap().sorted(), framing, "{shown}");
        assert_eq!(client.rest().await, b"", "{shown}");
    }
    nothing_was_stored(&node).await;
    for bytes in &ambiguous {
        // Nor does it help to hide behind a request that is in order.
        let mut client = node.client().await;
        client.send(&[&good[..], bytes, &good].concat()).await.unwrap();
        assert_eq!(client.answer().await.unwrap().status, 201);
        assert_eq!(client.answer().await.unwrap().sorted(), framing);
        assert_eq!(client.rest().await, b"");
    }
    assert_eq!(node.hooks().await.len(), ambiguous.len());
}

#[tokio::test]
async fn malformed_requests_are_4xx_or_closed_and_never_stored() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let line = &b"POST /webhooks/demo HTTP/1.1"[..];
    let length = &b"content-length: 1"[..];
    let long = |bytes: &[u8], count: usize| bytes.repeat(count);
    let many: Vec<&[u8]> =
        [line].into_iter().chain([&b"x: a"[..]; 10_000]).chain([length]).collect();
    let hundred: Vec<&[u8]> =
        [line].into_iter().chain([&b"x: a"[..]; 100]).chain([length]).collect();
    let huge = [&b"x: "[..], &long(b"a", 100 << 10)].concat();
    let path = [&b"POST /webhooks/"[..], &long(b"a", 64 << 10), b" HTTP/1.1"].concat();
    let eight_bit = [&b"POST /webhooks/demo"[..], b"\xff", b" HTTP/1.1"].concat();
    let table: Vec<(&str, Vec<u8>, &[u16])> = vec![
        ("NUL in a header", raw(&[line, b"x: a\0b", length], b"x"), &[400]),
        ("CR in a header", raw(&[line, b"x: a\rb", length], b"x"), &[400]),
        ("folded header", raw(&[line, b"x: a", b" b", length], b"x"), &[400]),
        ("space before the colon", raw(&[line, b"content-length : 1"], b"x"), &[400]),
        ("no colon", raw(&[line, b"nonsense", length], b"x"), &[400]),
        ("100 KiB header", raw(&[line, &huge, length], b"x"), &[431]),
        ("10k headers", raw(&many, b"x"), &[431]),
        ("101 headers", raw(&hundred, b"x"), &[431]),
        ("64 KiB path", raw(&[&path, length], b"x"), &[414]),
        ("8-bit path", raw(&[&eight_bit, length], b"x"), &[400]),
        ("NUL in the path", raw(&[b"POST /web\0hooks/demo HTTP/1.1", length], b"x"), &[400]),
        ("no version", raw(&[b"POST /webhooks/demo"], b""), &[400]),
        ("version 3", raw(&[b"POST /webhooks/demo HTTP/3.0", length], b"x"), &[400]),
        ("not quite a version 2 preface", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r!".to_vec(), &[400]),
        ("two spaces", raw(&[b"POST  /webhooks/demo HTTP/1.1", length], b"x"), &[400]),
        ("method with a slash", raw(&[b"PO/ST /webhooks/demo HTTP/1.1", length], b"x"), &[400]),
        ("lengths that differ", raw(&[line, length, b"content-length: 2"], b"xx"), &[400]),
        ("a list of lengths", raw(&[line, b"content-length: 1, 1"], b"x"), &[400]),
        ("negative length", raw(&[line, b"content-length: -1"], b"x"), &[400]),
        ("length with a plus", raw(&[line, b"content-length: +1"], b"x"), &[400]),
        ("length with letters", raw(&[line, b"content-length: 1a"], b"x"), &[400]),
        ("no length at all", raw(&[line, b"content-length:"], b"x"), &[400]),
        ("length 2^64", raw(&[line, b"content-length: 18446744073709551616"], b"x"), &[400]),
        ("length 2^64-1", raw(&[line, b"content-length: 18446744073709551615"], b"x"), &[413, 431]),
        (
            "not chunked",
            raw(&[line, b"transfer-encoding: xchunked"], b"1\r\nx\r\n0\r\n\r\n"),
            &[400],
        ),
        (
            "chunked in 1.0",
            raw(
                &[b"POST /webhooks/demo HTTP/1.0", b"transfer-encoding: chunked"],
                b"1\r\nx\r\n0\r\n\r\n",
            ),
            &[400],
        ),
        (
            "TLS",
            [&b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[..], &[0xaa; 500]].concat(),
            &[400],
        ),
        ("noise", Chance::of(1).bytes(5_000), &[400]),
        ("a tunnel", raw(&[b"CONNECT db:5432 HTTP/1.1", b"host: db:5432"], b""), &[404]),
    ];
    for (what, bytes, statuses) in table {
        let mut client = node.client().await;
        let sent = client.send(&bytes).await;
        client.finish().await;
        match client.answer().await {
            Ok(answer) => {
                assert!(statuses.contains(&answer.status), "{what}: {answer:?}");
                assert_eq!(answer.header("content-type"), Some("application/json"), "{what}");
                assert!(answer.value()["error"].is_string(), "{what}: {answer:?}");
            }
            Err(_) => assert!(statuses.is_empty(), "{what}: closed unanswered, {sent:?}"),
        }
        assert_eq!(client.rest().await, b"", "{what}");
    }
    nothing_was_stored(&node).await;
    assert_eq!(node.post("/webhooks/demo", b"good").await.status, 201);
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

#[tokio::test]
async fn unusual_requests_that_are_in_order_are_taken() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let length = &b"content-length: 1"[..];
    let table: Vec<(&str, Vec<u8>, &str)> = vec![
        (
            "absolute",
            raw(&[b"POST http://elsewhere:1/webhooks/demo HTTP/1.1", b"host: a", length], b"x"),
            "/webhooks/demo",
        ),
        (
            "with a query",
            raw(&[b"POST /webhooks/demo?a=1&a=2;%zz HTTP/1.1", b"host: a", length], b"x"),
            "/webhooks/demo",
        ),
        ("1.0", raw(&[b"POST /webhooks/demo HTTP/1.0", length], b"x"), "/webhooks/demo"),
        (
            "empty lines first",
            [&b"\r\n\r\n"[..], &request("POST", "/webhooks/demo", &[], b"x")].concat(),
            "/webhooks/demo",
        ),
        (
            "the length twice",
            raw(&[b"POST /webhooks/demo HTTP/1.1", b"host: a", length, length], b"x"),
            "/webhooks/demo",
        ),
        (
            "an upgrade",
            raw(
                &[
                    b"POST /webhooks/demo HTTP/1.1",
                    b"host: a",
                    b"connection: upgrade",
                    b"upgrade: h2c",
                    length,
                ],
                b"x",
            ),
            "/webhooks/demo",
        ),
    ];
    for (what, bytes, path) in table {
        let mut client = node.client().await;
        client.send(&bytes).await.unwrap();
        // It has said all it has to say; the answer comes all the same.
        client.finish().await;
        if what == "1.0" {
            let answer = String::from_utf8(client.rest().await).unwrap();
            assert!(answer.starts_with("HTTP/1.0 201 "), "{answer}");
        } else {
            assert_eq!(client.answer().await.unwrap().status, 201, "{what}");
        }
        let stored = node.hooks().await.pop().unwrap();
        assert_eq!((stored["path"].as_str(), &stored["size"]), (Some(path), &json!(1)), "{what}");
    }
}

#[tokio::test]
async fn with_tenants_in_the_path_a_source_answers_its_own_tenant_and_a_shared_one_everybody() {
    let worker = refusing().await;
    let sources = json!({
        "own": {"tenant": "acme", "sinks": [sink(&worker)]},
        "demo": {"trust_url_tenant": true, "sinks": [sink(&worker)]},
    });
    let config = json!({"http": {"routing": "tenant_path"}, "sources": sources});
    let node = keeping(&worker, config).await;
    let (longest, too_long) = ("t".repeat(64), "t".repeat(65));
    let unknown = Answer::json(404, r#"{"error":"unknown_source"}"#, &[]);
    for target in [
        "/webhooks/other/own".to_owned(),
        "/webhooks/default/own".to_owned(),
        "/webhooks/acme/nobody".to_owned(),
        "/webhooks/demo".to_owned(),
        "/webhooks/own".to_owned(),
        "/webhooks//demo".to_owned(),
        "/webhooks/acme/".to_owned(),
        "/webhooks/acme/own/more".to_owned(),
        "/webhooks/a.b/demo".to_owned(),
        "/webhooks/a%20b/demo".to_owned(),
        "/webhooks/acme/ankusa:lifecycle".to_owned(),
        format!("/webhooks/{too_long}/demo"),
    ] {
        assert_eq!(node.post(&target, b"x").await.sorted(), unknown, "{target}");
    }
    nothing_was_stored(&node).await;
    let table = [
        ("/webhooks/acme/own".to_owned(), "acme"),
        ("/webhooks/acme/demo".to_owned(), "acme"),
        ("/webhooks/default/demo".to_owned(), "default"),
        (format!("/webhooks/{longest}/demo"), &longest),
    ];
    for (target, tenant) in table {
        let id = node.post(&target, b"x").await.id();
        let stored = node.hooks().await.pop().unwrap();
        let told = (stored["id"].as_str().unwrap(), stored["tenant_id"].as_str().unwrap());
        assert_eq!(told, (id.as_str(), tenant), "{target}");
    }
    node.assert_sound().await;
}

#[tokio::test]
async fn the_prefix_is_what_catch_urls_begin_with() {
    let worker = refusing().await;
    for (prefix, caught, others) in [
        ("/", "/demo", ["/webhooks/demo", "//demo", "/"]),
        ("/in/hooks/", "/in/hooks/demo", ["/in/demo", "/demo", "/in/hooks//demo"]),
    ] {
        let node = keeping(&worker, json!({"http": {"prefix": prefix}})).await;
        for other in others {
            assert_eq!(node.post(other, b"x").await.status, 404, "{other} below {prefix}");
        }
        assert_eq!(node.post(caught, b"x").await.status, 201, "{caught} below {prefix}");
    }
}

#[tokio::test]
async fn health_is_the_process_and_ready_is_the_store() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let health = Answer::json(200, r#"{"status":"ok","instance":"default"}"#, &[]);
    assert_eq!(node.get("/health").await.sorted(), health);
    let ready = Answer::json(
        200,
        r#"{"status":"ready","instance":"default","store":"ok","disk":"ok"}"#,
        &[],
    );
    assert_eq!(node.get("/ready").await.sorted(), ready);
    assert_eq!(node.get("/ready?verbose=1").await.sorted(), ready);
}

#[tokio::test]
async fn one_tenant_too_many_is_503_and_the_others_go_on() {
    let worker = refusing().await;
    let config = json!({
        "http": {"routing": "tenant_path"},
        "tenants": {"max": 1},
        "sources": {"demo": {"trust_url_tenant": true}},
    });
    let node = keeping(&worker, config).await;
    assert_eq!(node.post("/webhooks/first/demo", b"1").await.status, 201);
    let full = Answer::json(503, r#"{"error":"tenant_limit"}"#, &[("retry-after", "60")]);
    assert_eq!(node.post("/webhooks/second/demo", b"2").await.sorted(), full);
    assert_eq!(node.post("/webhooks/first/demo", b"3").await.status, 201);
    let bodies: Vec<_> =
        node.dump().await.envelopes().into_values().map(|envelope| envelope.body).collect();
    assert_eq!(bodies, ["1", "3"]);
}

#[tokio::test]
async fn a_full_queue_is_503_at_once_and_what_it_refused_is_not_stored() {
    let worker = refusing().await;
    let config = json!({"batcher": {"partitions": 1, "max_queue": 1}});
    let node = keeping(&worker, config).await;
    let full = Answer::json(503, r#"{"error":"overload"}"#, &[("retry-after", "1")]);
    let (mut taken, mut refused) = (Vec::new(), 0);
    while refused == 0 {
        let mut clients = Vec::new();
        for _ in 0..32 {
            clients.push(node.client().await);
        }
        let hook = request("POST", "/webhooks/demo", &[], b"x");
        for client in &mut clients {
            client.send(&hook).await.unwrap();
        }
        for client in &mut clients {
            match client.answer().await.unwrap().sorted() {
                answer if answer.status == 201 => taken.push(answer.id()),
                answer => {
                    assert_eq!(answer, full);
                    refused += 1;
                }
            }
        }
    }
    taken.sort();
    let stored = node.hooks().await;
    let mut stored: Vec<_> = stored.iter().map(|hook| hook["id"].as_str().unwrap()).collect();
    stored.sort_unstable();
    assert_eq!(stored, taken);
}

/// The disk takes no more bytes, in the middle of everything: what had no answer by then stays unanswered, what comes
/// after is refused at once, and nothing of both is ever stored or delivered.
#[tokio::test]
async fn a_store_that_cannot_write_is_503_and_takes_hooks_again_once_it_can() {
    let worker = taking().await;
    let config = json!({
        "sources": {"demo": {"sinks": [sink(&worker)]}},
        "store": {"fence_deadline_ms": 200, "reopen_min_interval_ms": 100, "reopen_backoff_ms": 100},
    });
    let node = TestNode::start(config).await;
    let mut accepted = vec![node.accepted(b"before").await];
    node.drained().await;

    node.limit_file_size(Some(1));
    let unavailable =
        Answer::json(503, r#"{"error":"store_unavailable"}"#, &[("retry-after", "1")]);
    let failed = node.ask(&request("POST", "/webhooks/demo", &[], b"failed")).await;
    if let Ok(answer) = failed {
        assert_eq!(answer.sorted(), unavailable);
    }
    for _ in 0..3 {
        assert_eq!(node.post("/webhooks/demo", b"refused").await.sorted(), unavailable);
    }
    let ready = node.get("/ready").await;
    assert_eq!((ready.status, ready.header("retry-after")), (503, Some("1")));
    let told = ready.value();
    assert_eq!((&told["status"], &told["store"]), (&json!("unavailable"), &json!("failing")));
    assert_eq!(told["reasons"]["store"], "io_error");
    assert_eq!(node.get("/health").await.status, 200);

    node.limit_file_size(None);
    let again = until("it takes hooks again", async || {
        let answer = node.post("/webhooks/demo", b"after").await;
        (answer.status == 201).then(|| answer.id())
    });
    accepted.push(again.await);
    node.drained().await;
    let delivered: Vec<_> =
        worker.seen().iter().map(|seen| seen.header("x-ankusa-id").unwrap()).collect();
    assert_eq!(delivered, accepted);
    node.assert_sound().await;
}
