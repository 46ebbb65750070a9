//! HTTP/2 on the ingest port: the same answers as over HTTP/1.1, and limits on whatever a client can ask for many times.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2Client, PING, PREFACE,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame, frames, hook_block,
};
use common::node::{merge, sink};
use common::worker::{self, Worker};
use common::{Answer, Client, TestNode, request, until};
use serde_json::{Value, json};

/// A limit that is reached.
const SHORT_MS: u64 = 300;

/// One that is not.
const NEVER_MS: u64 = 3_600_000;

/// The largest body of the nodes here.
const LIMIT: usize = 1_000;

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

async fn node(worker: &Worker, http: Value) -> TestNode {
    let github = json!({"verify": {"type": "github", "secret": "key"}, "sinks": [sink(worker)]});
    let mut config = json!({
        "http": {
            "max_body_bytes": LIMIT,
            "header_timeout_ms": NEVER_MS,
            "body_timeout_ms": NEVER_MS,
            "idle_timeout_ms": NEVER_MS,
        },
        "sources": {"demo": {"sinks": [sink(worker)]}, "github": github},
    });
    merge(&mut config, json!({"http": http}));
    TestNode::start(config).await
}

/// The preface and empty settings.
fn hello() -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, b"")].concat()
}

/// The head of a hook of so many bytes, on this stream.
fn hook_head(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &hook_block(&[]))
}

/// Waits until so many frames like this have come, or the connection has ended.
async fn hear(client: &mut Client, count: usize, like: impl Fn(&(u8, u8, u32, Vec<u8>)) -> bool) {
    while frames(client.unread()).iter().filter(|frame| like(frame)).count() < count
        && client.more().await.is_ok()
    {}
}

async fn said(client: Client) -> Vec<(u8, u8, u32, Vec<u8>)> {
    frames(&client.rest().await)
}

async fn cut(node: &TestNode, reason: &str) -> u64 {
    let labels = format!(r#"{{instance="default",listener="ingest",reason="{reason}"}} "#);
    let series = format!("ankusa_http_connections_cut_total{labels}");
    let text = node.admin("/metrics").await.text();
    text.lines().find_map(|line| line.strip_prefix(&series)).unwrap().parse().unwrap()
}

#[tokio::test]
async fn answers_are_those_of_http_1() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    let mut client = Http2Client::tcp(node.http_port).await;
    let answer = client.post("/webhooks/demo", b"{}").await.unwrap();
    let body = format!(r#"{{"id":"{}","status":"accepted"}}"#, answer.id());
    assert_eq!(answer.sorted(), Answer::json(201, &body, &[("ankusa-durability", "fsync")]));
    let too_large = format!(r#"{{"error":"payload_too_large","limit":{LIMIT}}}"#);
    let missing = r#"{"error":"verification_failed","reason":":missing_signature"}"#;
    let large = vec![b'x'; LIMIT + 1];
    for (method, target, body, status, expected) in [
        ("POST", "/webhooks/nobody", &b"x"[..], 404, r#"{"error":"unknown_source"}"#),
        ("PUT", "/webhooks/demo", b"x", 404, r#"{"error":"not_found"}"#),
        ("GET", "/health", b"", 200, r#"{"status":"ok","instance":"default"}"#),
        ("POST", "/webhooks/github", b"x", 401, missing),
        ("POST", "/webhooks/demo", &large, 413, &too_large),
    ] {
        let answer = client.ask(method, target, &[], body).await.unwrap();
        assert_eq!(answer.sorted(), Answer::json(status, expected, &[]), "{method} {target}");
    }
    // The connection has not suffered.
    assert_eq!(client.post("/webhooks/demo", b"last").await.unwrap().status, 201);
    node.drained().await;
    let bodies: Vec<_> = worker.seen().iter().map(|seen| seen.body.clone()).collect();
    assert_eq!(bodies, ["{}", "last"]);
}

#[tokio::test]
async fn what_is_stored_is_what_http_1_would_have_had() {
    let worker = Worker::start(worker::Answer::status(503)).await;
    let node = node(&worker, json!({})).await;
    let mut client = Http2Client::tcp(node.http_port).await;
    let headers = [("x-a", "1"), ("x-b", "2"), ("x-a", "3")];
    let answer = client.ask("POST", "/webhooks/demo?q=1", &headers, b"body").await.unwrap();
    assert_eq!(answer.status, 201);
    let envelope = node.dump().await.envelopes().remove(&1).unwrap();
    let headers: Vec<_> = envelope
        .headers
        .iter()
        .map(|(name, value)| [name, value].map(|text| str::from_utf8(text).unwrap()))
        .collect();
    let expected = [["host", "node.test"], ["x-a", "1"], ["x-a", "3"], ["x-b", "2"]];
    assert_eq!(headers, [&expected[..], &[["content-length", "4"]]].concat());
    assert_eq!((&*envelope.path, &*envelope.method), ("/webhooks/demo", "POST"));
    assert_eq!(envelope.body, "body");
}

#[tokio::test]
async fn many_requests_share_a_connection_and_one_more_waits() {
    let worker = taking().await;
    let node = node(&worker, json!({"http2": {"max_streams": 2}})).await;
    let mut client = node.client().await;
    let begun = [1, 3, 5].map(|stream| hook_head(stream, 0)).concat();
    client.send(&[hello(), begun].concat()).await.unwrap();
    let end = [1, 3].map(|stream| frame(DATA, END_STREAM, stream, b"hook")).concat();
    client.send(&end).await.unwrap();
    node.drained().await;
    until("both are taken", async || (worker.seen().len() == 2).then_some(())).await;
    hear(&mut client, 2, |(kind, ..)| *kind == HEADERS).await;
    client.send(&frame(GOAWAY, 0, 0, &[0; 8])).await.unwrap();
    client.finish().await;
    let said = said(client).await;
    let refused: Vec<_> = said.iter().filter(|(kind, ..)| *kind == RST_STREAM).collect();
    // REFUSED_STREAM: it may be sent again.
    assert_eq!(refused, [&(RST_STREAM, 0, 5, vec![0, 0, 0, 7])]);
    let answered: Vec<u32> = said
        .iter()
        .filter(|(kind, ..)| *kind == HEADERS)
        .map(|(_, _, stream, _)| *stream)
        .collect();
    assert_eq!(answered.len(), 2, "{said:?}");
}

#[tokio::test]
async fn heads_past_their_limits_are_431() {
    let worker = taking().await;
    let node = node(&worker, json!({"max_headers": 20, "max_header_bytes": 8_192})).await;
    let mut client = Http2Client::tcp(node.http_port).await;
    let too_large = Answer::json(431, r#"{"error":"headers_too_large"}"#, &[]);
    let long = "a".repeat(8_192);
    let many: Vec<_> = [("x-many", "1"); 21].into();
    for headers in [&[("x-long", long.as_str())][..], &many] {
        let answer = client.ask("POST", "/webhooks/demo", headers, b"x").await.unwrap();
        assert_eq!(answer.sorted(), too_large);
    }
    // What is far too large the protocol itself refuses.
    let far = "a".repeat(8_192 + 17 * 1_024);
    let answer = client.ask("POST", "/webhooks/demo", &[("x-far", &far)], b"x").await;
    assert!(answer.is_ok_and(|answer| answer.status == 431 && answer.body.is_empty()));
    let mut client = Http2Client::tcp(node.http_port).await;
    assert_eq!(client.post("/webhooks/demo", b"x").await.unwrap().status, 201);
}

#[tokio::test]
async fn a_flood_of_requests_taken_back_ends_its_connection_and_no_other() {
    let worker = taking().await;
    let node = node(&worker, json!({"http2": {"max_resets": 10}})).await;
    let mut good = Http2Client::tcp(node.http_port).await;
    let mut client = node.client().await;
    client.send(&hello()).await.unwrap();
    let mut stream = 1;
    loop {
        let taken_back =
            [hook_head(stream, 0), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat();
        stream += 2;
        if client.send(&taken_back).await.is_err() {
            break;
        }
        assert_eq!(good.post("/webhooks/demo", b"good").await.unwrap().status, 201);
        assert!(stream < 10_000, "it goes on for ever");
    }
    // Either the node's own limit or the library's, whichever sees the flood first.
    let goodbye = said(client).await;
    assert!(goodbye.iter().any(|(kind, ..)| *kind == GOAWAY), "{goodbye:?}");
    node.drained().await;
    assert!(worker.seen().iter().all(|seen| seen.body == "good"));
}

#[tokio::test]
async fn silence_dribbling_and_endless_heads_are_cut_off() {
    let worker = taking().await;
    let slow = json!({"header_timeout_ms": SHORT_MS});
    let node_of_heads = node(&worker, slow).await;
    let whole = [hello(), hook_head(1, 0)].concat();
    // Half a preface, half a frame, a head that another frame is to end.
    let unfinished = frame(HEADERS, 0, 1, &hook_block(&[]));
    for bytes in [
        &PREFACE[..10],
        &whole[..whole.len() - 1],
        &[hello(), unfinished.clone()].concat(),
        &[hello(), unfinished, frame(CONTINUATION, 0, 1, &block(&[("x-a", "1")]))].concat(),
    ] {
        let mut client = node_of_heads.client().await;
        client.send(bytes).await.unwrap();
        said(client).await;
    }
    assert_eq!(cut(&node_of_heads, "slow_head").await, 4);
    let node = node(&worker, json!({"idle_timeout_ms": SHORT_MS})).await;
    for bytes in [&hello()[..], b""] {
        let mut client = node.client().await;
        client.send(bytes).await.unwrap();
        said(client).await;
    }
    // Pings are no requests.
    let mut client = node.client().await;
    client.send(&hello()).await.unwrap();
    while client.send(&frame(PING, 0, 0, &[0; 8])).await.is_ok() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(cut(&node, "idle").await, 3);
    assert_eq!(node.status().await["next_seq"], 1);
}

#[tokio::test]
async fn a_body_that_does_not_come_is_400_and_its_connection_goes_on() {
    let worker = taking().await;
    let node = node(&worker, json!({"body_timeout_ms": SHORT_MS})).await;
    let mut client = node.client().await;
    client.send(&[hello(), hook_head(1, 0)].concat()).await.unwrap();
    client.send(&frame(DATA, 0, 1, b"begun")).await.unwrap();
    let refused = r#"ankusa_ingest_refused_total{instance="default",reason="body_read_failed"} 1"#;
    until("it is refused", async || {
        node.admin("/metrics").await.text().contains(refused).then_some(())
    })
    .await;
    let last = [hook_head(3, 0), frame(DATA, END_STREAM, 3, b"whole")].concat();
    client.send(&last).await.unwrap();
    until("the other is taken", async || worker.seen().pop()).await;
    client.send(&frame(GOAWAY, 0, 0, &[0; 8])).await.unwrap();
    client.finish().await;
    let said = said(client).await;
    let bodies: Vec<String> = said
        .iter()
        .filter(|(kind, ..)| *kind == DATA)
        .map(|(.., body)| String::from_utf8(body.clone()).unwrap())
        .collect();
    assert_eq!(bodies[0], r#"{"error":"body_read_failed","reason":"timeout"}"#);
    assert_eq!(worker.last().body, "whole");
    assert_eq!(node.status().await["next_seq"], 2);
}

#[tokio::test]
async fn a_client_that_will_not_take_its_answers_is_given_up() {
    let worker = taking().await;
    let node = node(&worker, json!({"idle_timeout_ms": SHORT_MS})).await;
    let mut client = node.client().await;
    // A window of nothing for every answer.
    let settings = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    let asked = frame(HEADERS, END_HEADERS | END_STREAM, 1, &hook_block(&[]));
    client.send(&[PREFACE, &settings, &asked].concat()).await.unwrap();
    let said = said(client).await;
    assert!(!said.iter().any(|(kind, _, _, body)| *kind == DATA && !body.is_empty()), "{said:?}");
    assert_eq!(cut(&node, "idle").await, 1);
}

#[tokio::test]
async fn frames_out_of_order_end_their_connection_and_store_nothing() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    let large = {
        let mut bytes = frame(DATA, 0, 1, b"");
        bytes[..3].copy_from_slice(&[0xff; 3]);
        bytes
    };
    for (what, bytes) in [
        ("a body before its head", frame(DATA, END_STREAM, 1, b"x")),
        ("an even stream", frame(HEADERS, END_HEADERS | END_STREAM, 2, &hook_block(&[]))),
        ("a stream gone by", [hook_head(5, 0), hook_head(3, 0)].concat()),
        ("a head that no frame follows", frame(CONTINUATION, END_HEADERS, 1, b"")),
        (
            "another frame inside a head",
            [frame(HEADERS, 0, 1, &hook_block(&[])), frame(PING, 0, 0, &[0; 8])].concat(),
        ),
        ("a frame past the limit", large),
        ("a ping of three bytes", frame(PING, 0, 0, &[0; 3])),
        ("a window beyond all", frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0xff, 0xff, 0xff])),
        ("a head that cannot be unpacked", frame(HEADERS, END_HEADERS, 1, &[0xff; 40])),
    ] {
        let mut client = node.client().await;
        client.send(&[hello(), bytes].concat()).await.unwrap();
        let said = said(client).await;
        assert!(said.iter().any(|(kind, ..)| *kind == GOAWAY), "{what}: {said:?}");
    }
    // Some of these are faults of one request alone.
    for (what, headers) in [
        ("upper case", hook_block(&[("X-Upper", "1")])),
        ("a header of connections", hook_block(&[("connection", "close")])),
        ("another coding", hook_block(&[("transfer-encoding", "chunked")])),
        ("no path", block(&[(":method", "POST"), (":scheme", "http")])),
        ("a length that lies", hook_block(&[("content-length", "5")])),
        ("a length that is none", hook_block(&[("content-length", "5, 5")])),
    ] {
        let mut client = node.client().await;
        let head = frame(HEADERS, END_HEADERS, 1, &headers);
        let body = frame(DATA, END_STREAM, 1, b"four");
        client.send(&[hello(), head, body].concat()).await.unwrap();
        let is_refused = |(kind, _, stream, payload): &(u8, u8, u32, Vec<u8>)| match *kind {
            GOAWAY => payload[4..] != [0; 4],
            other => *stream == 1 && [RST_STREAM, HEADERS].contains(&other),
        };
        hear(&mut client, 1, is_refused).await;
        client.finish().await;
        let said = said(client).await;
        assert!(said.iter().any(is_refused), "{what}: {said:?}");
    }
    assert_eq!(node.status().await["next_seq"], 1);
    assert_eq!(node.post("/webhooks/demo", b"good").await.status, 201);
    assert!(!node.log().contains("panicked"), "{}", node.log());
}

#[tokio::test]
async fn two_hosts_are_one_too_many() {
    let worker = taking().await;
    let node = node(&worker, json!({})).await;
    let framing = r#"{"error":"body_read_failed","reason":"framing"}"#;
    let mut client = Http2Client::tcp(node.http_port).await;
    let hosts = [("host", "a"), ("host", "b")];
    let answer = client.ask("POST", "/webhooks/demo", &hosts, b"x").await.unwrap();
    assert_eq!(answer.sorted(), Answer::json(400, framing, &[]));
}

#[tokio::test]
async fn a_stop_says_goodbye_and_answers_what_was_asked() {
    let worker = taking().await;
    let mut node = node(&worker, json!({})).await;
    let idle = Http2Client::tcp(node.http_port).await;
    let mut asking = node.client().await;
    asking.send(&[hello(), hook_head(1, 0)].concat()).await.unwrap();
    // It has been read once it is counted.
    let open = r#"ankusa_http_connections{instance="default",listener="ingest"} 2"#;
    until("both are open", async || {
        node.admin("/metrics").await.text().contains(open).then_some(())
    })
    .await;
    node.signal(rustix::process::Signal::TERM);
    // Told to ask for no more, and whether that has arrived.
    let ping = loop {
        let told = frames(asking.unread());
        let ping = told.iter().find(|(kind, flags, ..)| (*kind, *flags) == (PING, 0));
        match ping {
            Some((.., payload)) if told.iter().any(|(kind, ..)| *kind == GOAWAY) => {
                break payload.clone();
            }
            _not_yet => asking.more().await.unwrap(),
        }
    };
    asking.send(&frame(PING, 1, 0, &ping)).await.unwrap();
    asking.send(&frame(DATA, END_STREAM, 1, b"late")).await.unwrap();
    let said = said(asking).await;
    assert!(said.iter().any(|(kind, ..)| *kind == GOAWAY), "{said:?}");
    let accepted = |(kind, _, _, body): &(u8, u8, u32, Vec<u8>)| {
        *kind == DATA && String::from_utf8_lossy(body).contains("accepted")
    };
    assert!(said.iter().any(accepted), "{said:?}");
    idle.ended().await;
    assert_eq!(node.exit().await.code(), Some(0));
}

#[tokio::test]
async fn the_other_listeners_and_a_node_told_so_speak_http_1_alone() {
    let worker = taking().await;
    let node = node(&worker, json!({"http2": {"enabled": false}})).await;
    for mut client in [
        node.client().await,
        Client::tcp(node.admin_port).await,
        Client::try_unix(&node.socket()).await.unwrap(),
    ] {
        client.send(&hello()).await.unwrap();
        assert!(said(client).await.is_empty());
    }
    let mut client = node.client().await;
    let hook = request("POST", "/webhooks/demo", &[], b"hook");
    assert_eq!(client.ask(&hook).await.unwrap().status, 201);
}
