//! Sources that are managed while the node runs: over the admin port, over the control socket, and what hooks see of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::node::sink;
use common::worker::{self, Worker};
use common::{Answer, Client, TestNode, until};
use serde_json::{Value, json};

const SOURCES: &str = "/v1/tenants/acme/sources";
const ONE: &str = "/v1/tenants/acme/sources/orders";

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

async fn persistent(config: Value) -> TestNode {
    let mut node = TestNode::new(json!({"source_store": {"type": "persistent"}}));
    node.configure(config);
    node.boot().await;
    node
}

/// Asks the admin port.
async fn ask(
    node: &TestNode,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    Client::once(node.admin_port, method, target, headers, body).await
}

async fn tell(node: &TestNode, method: &str, target: &str, body: &Value) -> Answer {
    ask(node, method, target, &[], &body.to_string()).await
}

/// Waits until the worker was sent this, and only this.
async fn delivered(worker: &Worker, body: &[u8]) {
    let seen = until("the worker got it", async || {
        let seen = worker.seen();
        (!seen.is_empty()).then_some(seen)
    })
    .await;
    let bodies: Vec<&[u8]> = seen.iter().map(|seen| seen.body.as_ref()).collect();
    assert_eq!(bodies, [body]);
}

fn said(answer: &Answer) -> (u16, Value) {
    let body = if answer.body.is_empty() { Value::Null } else { answer.value() };
    (answer.status, body)
}

fn error(status: u16, name: &str) -> (u16, Value) {
    (status, json!({"error": name}))
}

fn invalid(message: &str) -> (u16, Value) {
    (400, json!({"error": "invalid_source", "message": message}))
}

#[tokio::test]
async fn a_source_is_made_shown_changed_and_removed_and_every_step_counts_at_once() {
    let (worker, other) = (taking().await, taking().await);
    let config = json!({"sources": {
        "conf": {"tenant": "acme", "sinks": [{"type": "log"}]},
        "elsewhere": {"sinks": [{"type": "log"}]},
    }});
    let mut node = persistent(config).await;
    let nobody = node.post("/webhooks/acme.orders", b"early").await;
    assert_eq!(said(&nobody), error(404, "unknown_source"));

    let mut spec = json!({"name": "orders", "tenant": "ignored", "sinks": [sink(&worker)],
        "verify": {"type": "github", "secret": "hunter2"}, "on_verify_failure": "accept_flag",
        "dedupe": {"header": "x-delivery", "ttl_seconds": 60}});
    spec["sinks"][0]["headers"] = json!({"x-key": "hunter2"});
    let created = tell(&node, "POST", SOURCES, &spec).await;
    assert_eq!(created.header("etag"), Some("\"1\""));
    let url = worker.url("/hooks");
    let mut shown = json!({
        "tenant": "acme", "name": "orders", "source_id": "acme.orders",
        "ingest_path": "/webhooks/acme.orders", "origin": "api", "revision": 1, "enabled": true,
        "verify": {"type": "github", "secret": "[REDACTED]"}, "on_verify_failure": "accept_flag",
        "sinks": [{"type": "http", "url": url, "method": "post", "headers": {"x-key": "[REDACTED]"},
            "timeout_ms": 5000, "allow_unsigned": true, "max_response_bytes": 65536}],
        "dedupe": {"header": "x-delivery", "ttl_seconds": 60}, "trust_url_tenant": false,
    });
    assert_eq!(said(&created), (201, shown.clone()));
    let got = ask(&node, "GET", ONE, &[], "").await;
    assert_eq!((got.header("etag"), said(&got)), (Some("\"1\""), (200, shown.clone())));
    let conf = json!({
        "tenant": "acme", "name": "conf", "source_id": "conf", "ingest_path": "/webhooks/conf",
        "origin": "config", "revision": null, "enabled": true, "verify": {"type": "none"},
        "on_verify_failure": "reject", "sinks": [{"type": "log"}], "trust_url_tenant": false,
    });
    let listed = ask(&node, "GET", SOURCES, &[], "").await;
    let all = json!({"tenant": "acme", "entries": [conf, shown], "unreadable": []});
    assert_eq!(said(&listed), (200, all));
    let none = ask(&node, "GET", "/v1/tenants/nobody/sources", &[], "").await;
    assert_eq!(said(&none), (200, json!({"tenant": "nobody", "entries": [], "unreadable": []})));

    let id = node.post("/webhooks/acme.orders", b"first").await.id();
    delivered(&worker, b"first").await;
    let replaced = json!({"sinks": [sink(&other)]});
    let answer = ask(&node, "PUT", ONE, &[("if-match", "\"1\"")], &replaced.to_string()).await;
    shown["revision"] = json!(2);
    shown["verify"] = json!({"type": "none"});
    shown["on_verify_failure"] = json!("reject");
    shown["sinks"][0]["url"] = json!(other.url("/hooks"));
    shown["sinks"][0].as_object_mut().unwrap().remove("headers");
    shown.as_object_mut().unwrap().remove("dedupe");
    assert_eq!((answer.header("etag"), said(&answer)), (Some("\"2\""), (200, shown.clone())));
    assert_ne!(node.post("/webhooks/acme.orders", b"second").await.id(), id);
    delivered(&other, b"second").await;
    node.drained().await;

    // It is there after a kill, with its revision.
    node.kill();
    node.boot().await;
    assert_eq!(said(&ask(&node, "GET", ONE, &[], "").await), (200, shown));
    let stale = ask(&node, "DELETE", ONE, &[("if-match", "\"1\"")], "").await;
    assert_eq!(said(&stale), (412, json!({"error": "revision_mismatch", "revision": 2})));
    let gone = ask(&node, "DELETE", ONE, &[("if-match", "\"2\"")], "").await;
    assert_eq!(said(&gone), (204, Value::Null));
    let nobody = node.post("/webhooks/acme.orders", b"late").await;
    assert_eq!(said(&nobody), error(404, "unknown_source"));
    let again = tell(&node, "POST", SOURCES, &spec).await;
    assert_eq!((again.status, &again.value()["revision"]), (201, &json!(3)));
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn everything_that_cannot_be_done_is_refused_as_documented() {
    let config = json!({
        "source_store": {"max_sources": 1},
        "sources": {"conf": {"tenant": "acme", "sinks": [{"type": "log"}]}},
        "egress": {"allow_private": false},
    });
    let mut node = persistent(config).await;
    let log = json!([{"type": "log"}]);
    for target in
        ["/v1/tenants/a.b/sources", "/v1/tenants/%FF/sources", "/v1/tenants/a.b/sources/x"]
    {
        let refused = ask(&node, "GET", target, &[], "").await;
        assert_eq!(said(&refused), error(400, "invalid_tenant"), "{target}");
    }
    let name = invalid("name: must be 1 to 64 of A-Z a-z 0-9 _ -");
    for target in ["a.b", "a%2Fb", "%FF", &"n".repeat(65)] {
        let refused = ask(&node, "GET", &format!("{SOURCES}/{target}"), &[], "").await;
        let expected = if target == "%FF" { error(400, "invalid_tenant") } else { name.clone() };
        assert_eq!(said(&refused), expected, "{target}");
    }
    let missing = error(404, "source_not_found");
    assert_eq!(said(&ask(&node, "GET", ONE, &[], "").await), missing);
    assert_eq!(said(&ask(&node, "DELETE", ONE, &[], "").await), missing);
    assert_eq!(said(&tell(&node, "PUT", ONE, &json!({"sinks": log})).await), missing);

    for (body, expected) in [
        ("", invalid("body must be a JSON object")),
        ("[]", invalid("body must be a JSON object")),
        ("{", invalid("body must be a JSON object")),
        ("{}", invalid("name: is required")),
        (r#"{"name": 7}"#, invalid("name: is required")),
        (r#"{"name": "a.b"}"#, name.clone()),
        (r#"{"name": "conf", "sinks": [{"type": "log"}]}"#, error(409, "source_exists")),
        (r#"{"name": "a"}"#, invalid("sinks: must hold at least one sink")),
    ] {
        let refused = ask(&node, "POST", SOURCES, &[], body).await;
        assert_eq!(said(&refused), expected, "{body}");
    }
    for (spec, message) in [
        (
            json!({"sinks": [{"type": "http", "url": "https://10.0.0.1/x", "allow_unsigned": true}]}),
            None,
        ),
        (
            json!({"sinks": log, "verify": {"type": "github"}, "on_verify_failure": "shrug"}),
            Some("on_verify_failure must be one of "),
        ),
        (json!({"sinks": log, "verify": {"type": "github"}}), Some("verify.secret: ")),
        (
            json!({"sinks": log, "colour": "red", "retry": {}}),
            Some("colour: unknown key; known here: "),
        ),
        (
            json!({"sinks": [{"type": "http", "url": "https://w.example", "secret": "[REDACTED]"}]}),
            Some("sinks[0].secret: is [REDACTED], as it is shown: say the secret itself"),
        ),
        (
            json!({"sinks": [{"type": "http", "url": "https://w.example", "allow_unsigned": true, "timeout_ms": "5"}]}),
            Some("body: invalid type: string \"5\", expected u64"),
        ),
    ] {
        let mut spec = spec;
        spec["name"] = json!("a");
        let refused = tell(&node, "POST", SOURCES, &spec).await;
        assert_eq!(refused.status, 400, "{spec}");
        let body = refused.value();
        assert_eq!(body["error"], "invalid_source");
        let told = body["message"].as_str().unwrap();
        assert!(message.is_none_or(|message| told.starts_with(message)), "{told}");
    }
    let large = json!({"name": "a", "sinks": log, "filler": "x".repeat(65_536)});
    let too_large = json!({"error": "payload_too_large", "limit": 65_536});
    assert_eq!(said(&tell(&node, "POST", SOURCES, &large).await), (413, too_large));

    let orders = json!({"name": "orders", "sinks": log});
    assert_eq!(tell(&node, "POST", SOURCES, &orders).await.status, 201);
    let exists = tell(&node, "POST", SOURCES, &orders).await;
    assert_eq!(said(&exists), error(409, "source_exists"));
    let more = tell(&node, "POST", SOURCES, &json!({"name": "more", "sinks": log})).await;
    assert_eq!(said(&more), (409, json!({"error": "too_many_sources", "max_sources": 1})));
    let conf = format!("{SOURCES}/conf");
    let read_only = error(409, "source_store_read_only");
    assert_eq!(said(&tell(&node, "PUT", &conf, &json!({"sinks": log})).await), read_only);
    assert_eq!(said(&ask(&node, "DELETE", &conf, &[], "").await), read_only);
    let header = json!({"error": "invalid_header", "header": "if-match"});
    for etag in ["1", "\"one\"", "W/\"1\"", "\"1"] {
        let refused = ask(&node, "DELETE", ONE, &[("if-match", etag)], "").await;
        assert_eq!(said(&refused), (400, header.clone()), "{etag}");
    }
    let field = json!({"error": "invalid_filter", "field": "deliveries"});
    let refused = ask(&node, "DELETE", &format!("{ONE}?deliveries=keep"), &[], "").await;
    assert_eq!(said(&refused), (400, field));
    assert_eq!(ask(&node, "DELETE", ONE, &[("if-match", "*")], "").await.status, 204);
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_node_with_static_sources_shows_them_and_takes_no_changes() {
    let config = json!({"sources": {"conf": {"tenant": "acme", "sinks": [{"type": "log"}]}}});
    let node = TestNode::start(config).await;
    let read_only = error(409, "source_store_read_only");
    let spec = json!({"name": "orders", "sinks": [{"type": "log"}]});
    assert_eq!(said(&tell(&node, "POST", SOURCES, &spec).await), read_only);
    assert_eq!(said(&tell(&node, "PUT", ONE, &spec).await), read_only);
    assert_eq!(said(&ask(&node, "DELETE", ONE, &[], "").await), read_only);
    let listed = ask(&node, "GET", SOURCES, &[], "").await.value();
    assert_eq!(listed["entries"][0]["source_id"], "conf");
    assert_eq!(said(&ask(&node, "GET", ONE, &[], "").await), error(404, "source_not_found"));
}

#[tokio::test]
async fn a_shared_source_that_verifies_nothing_must_say_that_it_trusts_urls() {
    let worker = taking().await;
    let config = json!({"http": {"routing": "tenant_path"}});
    let node = persistent(config).await;
    let mut spec = json!({"name": "open", "sinks": [sink(&worker)]});
    let shared = "/v1/tenants/default/sources";
    let refused = tell(&node, "POST", shared, &spec).await;
    let (status, body) = said(&refused);
    assert_eq!((status, &body["error"]), (400, &json!("invalid_source")));
    assert!(body["message"].as_str().unwrap().starts_with("trust_url_tenant: must be true"));
    spec["trust_url_tenant"] = json!(true);
    let created = tell(&node, "POST", shared, &spec).await;
    assert_eq!(
        (created.status, &created.value()["ingest_path"]),
        (201, &json!("/webhooks/default/default.open"))
    );
    assert_eq!(node.post("/webhooks/blue/default.open", b"x").await.status, 201);
    delivered(&worker, b"x").await;
    assert_eq!(worker.last().header("x-ankusa-tenant").as_deref(), Some("blue"));

    let own = json!({"name": "own", "sinks": [{"type": "log"}]});
    assert_eq!(tell(&node, "POST", SOURCES, &own).await.status, 201);
    assert_eq!(node.post("/webhooks/acme/acme.own", b"x").await.status, 201);
    let other = node.post("/webhooks/blue/acme.own", b"x").await;
    assert_eq!(said(&other), error(404, "unknown_source"));
}

#[tokio::test]
async fn a_source_with_deliveries_goes_only_if_they_may_die() {
    let worker = Worker::start(worker::Answer::status(503)).await;
    let config = json!({"dispatch": {"retry": {"base_ms": 600_000, "max_ms": 600_000}}});
    let node = persistent(config).await;
    let spec = json!({"name": "orders", "sinks": [sink(&worker)]});
    assert_eq!(tell(&node, "POST", SOURCES, &spec).await.status, 201);
    for body in [&b"one"[..], b"two"] {
        assert_eq!(node.post("/webhooks/acme.orders", body).await.status, 201);
    }
    until("both wait for a retry", async || (node.counter("scheduled").await == 2).then_some(()))
        .await;
    let kept = ask(&node, "DELETE", ONE, &[], "").await;
    let has = json!({"error": "source_has_deliveries", "pending": 2, "inflight": 0});
    assert_eq!(said(&kept), (409, has));
    let gone = ask(&node, "DELETE", &format!("{ONE}?deliveries=dead_letter"), &[], "").await;
    assert_eq!(said(&gone), (204, Value::Null));
    until("both are dead", async || (node.counter("dead").await == 2).then_some(())).await;
    let dead = node.admin("/v1/dlq?source_id=acme.orders").await.value();
    let reasons: Vec<&Value> =
        dead["entries"].as_array().unwrap().iter().map(|entry| &entry["reason_class"]).collect();
    assert_eq!(reasons, ["source_gone", "source_gone"]);
}

#[tokio::test]
async fn the_command_line_manages_sources_too() {
    let worker = taking().await;
    let node = persistent(json!({})).await;
    let file = node.path("orders.yml");
    let yaml = format!(
        "verify: {{type: github, secret: hunter2}}\nsinks:\n  - {{type: http, url: \"{}\", allow_unsigned: true}}\n",
        worker.url("/hooks")
    );
    std::fs::write(&file, yaml).unwrap();
    let file = file.to_str().unwrap();
    let put = node.ctl(&["sources", "put", "acme", "orders", file]).await;
    assert_eq!((put.code, put.err.as_str()), (Some(0), ""));
    assert!(put.out.contains("source_id") && put.out.contains("acme.orders"), "{}", put.out);
    let put = node.ctl(&["--json", "sources", "put", "acme", "orders", file]).await;
    assert_eq!(put.value()["revision"], 2);
    let got = node.ctl(&["--json", "sources", "get", "acme", "orders"]).await;
    assert_eq!(got.value()["verify"], json!({"type": "github", "secret": "[REDACTED]"}));
    let listed = node.ctl(&["sources", "list", "acme"]).await;
    let header = listed.out.lines().next().unwrap().to_lowercase();
    for column in ["name", "source id", "ingest path", "revision", "verify", "sinks"] {
        assert!(header.contains(column), "{header}");
    }
    let stale = node.ctl(&["sources", "put", "acme", "orders", file, "--revision", "1"]).await;
    assert_eq!(stale.code, Some(1));
    assert!(stale.err.contains("revision_mismatch (revision=2)"), "{}", stale.err);
    let gone = node.ctl(&["sources", "delete", "acme", "orders", "--dead-letter"]).await;
    assert_eq!((gone.code, gone.err.as_str()), (Some(0), ""));
    let missing = node.ctl(&["sources", "get", "acme", "orders"]).await;
    assert_eq!(missing.code, Some(1));
    assert!(missing.err.contains("source_not_found"), "{}", missing.err);
    std::fs::write(file, "sinks: []\n").unwrap();
    let refused = node.ctl(&["sources", "put", "acme", "orders", file]).await;
    assert!(refused.err.contains("sinks: must hold at least one sink"), "{}", refused.err);
}

#[tokio::test]
async fn a_token_reads_and_writes_sources_by_its_scopes() {
    let token = |name: &str, token: &str, scopes: &[&str]| json!({"name": name, "token": token, "scopes": scopes});
    let (reader, writer) = ("reader-token-0123", "writer-token-0123");
    let tokens = [token("r", reader, &["sources:read"]), token("w", writer, &["sources:write"])];
    let node = persistent(json!({"admin": {"tokens": tokens}})).await;
    let reading = format!("Bearer {reader}");
    let writing = format!("Bearer {writer}");
    let (reading, writing) = ([("authorization", &*reading)], [("authorization", &*writing)]);
    let spec = json!({"name": "orders", "sinks": [{"type": "log"}]}).to_string();
    let forbidden = |scope: &str| (403, json!({"error": "forbidden", "scope": scope}));
    assert_eq!(said(&ask(&node, "POST", SOURCES, &[], &spec).await), error(401, "unauthorized"));
    let refused = ask(&node, "POST", SOURCES, &reading, &spec).await;
    assert_eq!(said(&refused), forbidden("sources:write"));
    assert_eq!(ask(&node, "POST", SOURCES, &writing, &spec).await.status, 201);
    assert_eq!(said(&ask(&node, "GET", ONE, &writing, "").await), forbidden("sources:read"));
    assert_eq!(ask(&node, "GET", ONE, &reading, "").await.status, 200);
    let refused = ask(&node, "DELETE", ONE, &reading, "").await;
    assert_eq!(said(&refused), forbidden("sources:write"));
}
