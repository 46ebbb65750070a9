//! Limits and the quarantine pen of a whole node: every answer they give, what is left behind it, and who may change them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use common::{Answer, Client, TestNode, Told, request, until};
use serde_json::{Value, json};

/// Hooks are stored and stay there.
async fn node(config: Value) -> TestNode {
    let mut all = json!({
        "node": {"roles": ["edge"]},
        "http": {"routing": "tenant_path", "max_body_bytes": 1000},
        "sources": {
            "open": {"trust_url_tenant": true, "sinks": [{"type": "log"}]},
            "pen": {
                "verify": {"type": "github", "secret": "key"},
                "on_verify_failure": "quarantine",
                "sinks": [{"type": "log"}],
            },
            "strict": {"verify": {"type": "github", "secret": "key"}, "sinks": [{"type": "log"}]},
        },
    });
    common::node::merge(&mut all, config);
    TestNode::start(all).await
}

async fn statuses(node: &TestNode, target: &str, hooks: usize) -> Vec<u16> {
    let mut statuses = Vec::new();
    for _ in 0..hooks {
        statuses.push(node.post(target, b"x").await.status);
    }
    statuses
}

fn too_many(error: &str, retry_after_s: &str) -> Answer {
    let body = format!(r#"{{"error":"{error}"}}"#);
    Answer::json(429, &body, &[("retry-after", retry_after_s)])
}

/// A hook that is signed with another key.
fn forged(target: &str, body: &[u8]) -> Vec<u8> {
    let signature = format!("sha256={}", "0".repeat(64));
    request("POST", target, &[("x-hub-signature-256", &signature)], body)
}

async fn held(node: &TestNode) -> Vec<Value> {
    let listed = node.admin("/v1/quarantine").await.value();
    listed["entries"].as_array().unwrap().clone()
}

#[tokio::test]
async fn each_limit_answers_429_and_stores_nothing() {
    let slow = json!({"rate": 0.001, "burst": 2});
    for limits in [
        json!({"rate_limits": {"default": slow}}),
        json!({"rate_limits": {"tenants": {"acme": slow}}}),
        json!({"rate_limits": {"client_ip": slow}}),
        json!({"rate_limits": {"node": slow}}),
        json!({"sources": {"open": {"rate_limit": slow}}}),
    ] {
        let node = node(limits.clone()).await;
        assert_eq!(statuses(&node, "/webhooks/acme/open", 2).await, [201; 2], "{limits}");
        let answer = node.post("/webhooks/acme/open", b"x").await.sorted();
        assert_eq!(answer, too_many("rate_limited", "1000"), "{limits}");
        assert_eq!(node.hooks().await.len(), 2, "{limits}");
    }
}

#[tokio::test]
async fn a_limit_of_bytes_counts_bodies() {
    let limit = json!({"bytes_rate": 1, "bytes_burst": 1000});
    let node = node(json!({"rate_limits": {"default": limit}})).await;
    assert_eq!(node.post("/webhooks/acme/open", &[b'x'; 600]).await.status, 201);
    let answer = node.post("/webhooks/acme/open", &[b'x'; 600]).await;
    assert_eq!(answer.status, 429);
    let wait: u64 = answer.header("retry-after").unwrap().parse().unwrap();
    assert!((100..=200).contains(&wait), "{wait}");
    assert_eq!(node.post("/webhooks/blue/open", &[b'x'; 1000]).await.status, 201);
}

#[tokio::test]
async fn clients_behind_a_trusted_proxy_have_limits_of_their_own() {
    let node = node(json!({
        "http": {"trusted_proxies": ["127.0.0.0/8"]},
        "rate_limits": {"client_ip": {"rate": 0.001, "burst": 1}},
    }))
    .await;
    let from = async |address: &str| {
        let headers = [("X-Forwarded-For", address)];
        node.ask(&request("POST", "/webhooks/acme/open", &headers, b"x")).await.unwrap().status
    };
    assert_eq!((from("192.0.2.1").await, from("192.0.2.1").await), (201, 429));
    assert_eq!((from("192.0.2.2").await, from("192.0.2.9, 192.0.2.2").await), (201, 429));
}

#[tokio::test]
async fn a_tenant_that_fills_the_batchers_is_told_so_and_another_finds_room() {
    let node = node(json!({"batcher": {
        "partitions": 1, "max_queue": 8, "max_batch": 1000, "max_delay_ms": 1000,
        "tenant_share_percent": 50,
    }}))
    .await;
    let ask = async |target: &'static str| node.post(target, b"x").await.sorted();
    let (acme, blue) = ("/webhooks/acme/open", "/webhooks/blue/open");
    let (first, other) = tokio::join!(ask(acme), ask(blue));
    assert_eq!((first.status, other.status), (201, 201));
    // They wait for the batch to fill, which it does not.
    let flood = async { tokio::join!(ask(acme), ask(acme), ask(acme), ask(acme), ask(acme)) };
    let (a, b, c, d, e) = flood.await;
    let mut answers = vec![a, b, c, d, e];
    answers.sort_by_key(|answer| answer.status);
    assert_eq!(answers.pop().unwrap(), too_many("tenant_overload", "1"));
    assert!(answers.iter().all(|answer| answer.status == 201), "{answers:?}");
    let series = r#"ankusa_ingest_requests_total{instance="default",source_id="open",outcome="tenant_overload"} 1"#;
    assert!(node.admin("/metrics").await.text().contains(series));
}

#[tokio::test]
async fn a_hook_that_does_not_verify_is_held_for_good_and_not_delivered() {
    let mut node = node(json!({})).await;
    let answer = node.ask(&forged("/webhooks/acme/pen", b"body")).await.unwrap().sorted();
    let body = r#"{"status":"quarantined","reason":":no_match"}"#;
    assert_eq!(answer, Answer::json(202, body, &[("ankusa-durability", "fsync")]));
    let unsigned = node.post("/webhooks/acme/pen", b"body").await;
    assert_eq!(unsigned.value()["reason"], ":missing_signature");
    assert_eq!(node.hooks().await.len(), 0);
    node.kill();
    node.boot().await;
    let entries = held(&node).await;
    let told: Vec<_> = entries
        .iter()
        .map(|held| (held["source_id"].clone(), held["tenant_id"].clone(), held["reason"].clone()))
        .collect();
    let of = |reason: &str| (json!("pen"), json!("acme"), json!(reason));
    assert_eq!(told, [of(":missing_signature"), of(":no_match")]);
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn the_pen_and_its_buckets_have_an_end_that_a_restart_does_not_move() {
    let mut node =
        node(json!({"quarantine": {"burst": 3, "rate": 0.001, "max_bytes": 3200}})).await;
    let send = async |node: &TestNode, body: &[u8]| {
        node.ask(&forged("/webhooks/acme/pen", body)).await.unwrap().sorted()
    };
    assert_eq!(send(&node, &[b'x'; 1000]).await.status, 202);
    let full = Answer::json(503, r#"{"error":"quarantine_full"}"#, &[("retry-after", "60")]);
    assert_eq!(send(&node, &[b'x'; 1000]).await, full, "and it takes no place in the bucket");
    assert_eq!(send(&node, b"").await.status, 202);
    assert_eq!(send(&node, &[b'x'; 1000]).await, full);
    node.kill();
    node.boot().await;
    assert_eq!(send(&node, &[b'x'; 1000]).await, full, "what it holds is counted");
    let purged = node.ctl(&["--json", "quarantine", "purge", "--limit", "1"]).await.value();
    assert_eq!(purged["deleted"], 1);
    assert!(purged["bytes"].as_u64().unwrap() > 1000);
    for _ in 0..3 {
        assert_eq!(send(&node, b"").await.status, 202);
    }
    assert_eq!(send(&node, b"").await, too_many("quarantine_rate_limited", "1000"));
    let metrics = until("the gauges are sampled", async || {
        let text = node.admin("/metrics").await.text();
        text.contains("ankusa_quarantine_entries{instance=\"default\"} 4").then_some(text)
    })
    .await;
    for series in [
        r#"ankusa_quarantine_rate_limited_total{instance="default",source_id="pen"} 1"#,
        r#"ankusa_quarantine_full_total{instance="default",source_id="pen"} 1"#,
        r#"ankusa_quarantine_deleted_total{instance="default",reason="purge"} 1"#,
        r#"outcome="quarantined"} 3"#,
        r#"ankusa_limit{instance="default",name="quarantine.max_bytes"} 3200"#,
    ] {
        assert!(metrics.contains(series), "{series} in {metrics}");
    }
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn held_hooks_are_listed_and_purged_over_the_admin_port_and_by_ctl() {
    let node = node(json!({})).await;
    for tenant in ["acme", "blue", "cyan"] {
        node.ask(&forged(&format!("/webhooks/{tenant}/pen"), b"x")).await.unwrap();
    }
    let told = node.ctl(&["quarantine", "list"]).await;
    assert_eq!(told.code, Some(0));
    let head = ["ID", "SOURCE ID", "TENANT ID", "RECEIVED AT", "REASON", "SIZE"].join(" ");
    let first: Vec<&str> = told.out.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(first.join(" "), head);
    assert_eq!(told.out.lines().count(), 4);
    assert_eq!(
        node.admin("/v1/quarantine?limit=1").await.value()["entries"].as_array().unwrap().len(),
        1
    );
    let id = held(&node).await[1]["id"].as_str().unwrap().to_owned();
    let delete = async |query: &str| {
        let answer = node.admin_with("DELETE", &format!("/v1/quarantine?{query}"), &[]).await;
        (answer.status, answer.value())
    };
    let invalid = |field: &str| (400, json!({"error": "invalid_filter", "field": field}));
    assert_eq!(delete("since=x").await, invalid("since"));
    assert_eq!(delete("since=2&until=1").await, invalid("until"));
    assert_eq!(delete("source=pen").await, invalid("source"));
    assert_eq!(delete("source_id=open").await.1, json!({"deleted": 0, "bytes": 0}));
    assert_eq!(delete(&format!("id={id}")).await.1["deleted"], 1);
    assert_eq!(delete("limit=0").await.1["deleted"], 1, "at least one");
    assert_eq!(delete("").await.1["deleted"], 1);
    assert_eq!(held(&node).await, Vec::<Value>::new());
    assert_eq!(node.ctl(&["quarantine", "list"]).await.out, "no entries\n");
}

/// `method` on the limit of a tenant.
async fn limit_of(node: &TestNode, method: &str, tenant: &str, body: &str) -> Answer {
    let target = format!("/v1/tenants/{tenant}/rate-limit");
    Client::once(node.admin_port, method, &target, &[], body).await
}

#[tokio::test]
async fn limits_are_set_while_the_node_runs_and_outlive_it() {
    let mut node = node(json!({"rate_limits": {"default": {"rate": 1000, "burst": 1000}}})).await;
    assert_eq!(
        limit_of(&node, "GET", "acme", "").await.value(),
        json!({"tenant": "acme", "rate": 1000, "burst": 1000, "source": "default"})
    );
    let set = limit_of(&node, "PUT", "acme", r#"{"rate": 0.001, "burst": 2}"#).await;
    let acme = json!({"tenant": "acme", "rate": 0.001, "burst": 2, "source": "override"});
    assert_eq!((set.status, set.value()), (200, acme.clone()));
    assert_eq!(statuses(&node, "/webhooks/acme/open", 3).await, [201, 201, 429]);
    limit_of(&node, "PUT", "acme", r#"{"rate": 0.001, "burst": 2}"#).await;
    assert_eq!(statuses(&node, "/webhooks/acme/open", 3).await, [201, 201, 429], "full again");
    node.kill();
    node.boot().await;
    let all = node.admin("/v1/rate-limits").await.value();
    let default = json!({"rate": 1000, "burst": 1000});
    assert_eq!(all, json!({"default": default, "tenants": [acme]}));
    assert_eq!(statuses(&node, "/webhooks/acme/open", 3).await, [201, 201, 429]);
    let deleted = limit_of(&node, "DELETE", "acme", "").await;
    assert_eq!((deleted.status, deleted.body.as_slice()), (204, &b""[..]));
    assert_eq!(statuses(&node, "/webhooks/acme/open", 3).await, [201; 3]);
    let again = limit_of(&node, "DELETE", "acme", "").await;
    assert_eq!((again.status, again.value()), (404, json!({"error": "rate_limit_not_found"})));
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn what_is_no_limit_is_refused_with_the_reason() {
    let node = node(json!({})).await;
    let invalid = |message: &str| (400, json!({"error": "invalid_rate_limit", "message": message}));
    for (body, message) in [
        ("[]", "body must be a JSON object"),
        ("{}", "must have rate and burst, bytes_rate and bytes_burst, or overload_share_percent"),
        (r#"{"rate": 1}"#, "burst is required with rate"),
        (r#"{"rate": 1, "burst": 0}"#, "burst must be 1 to 1000000000, got 0"),
        (
            r#"{"bytes_rate": 1, "bytes_burst": 999}"#,
            "bytes_burst must be >= http.max_body_bytes (1000), got 999",
        ),
    ] {
        let answer = limit_of(&node, "PUT", "acme", body).await;
        assert_eq!((answer.status, answer.value()), invalid(message), "{body}");
    }
    let tenant = limit_of(&node, "PUT", "a%2Fb", "{}").await;
    assert_eq!((tenant.status, tenant.value()), (400, json!({"error": "invalid_tenant"})));
    let large = format!(r#"{{"rate": 1, "x": "{}"}}"#, "x".repeat(70_000));
    let large = limit_of(&node, "PUT", "acme", &large).await;
    assert_eq!((large.status, large.value()["error"].clone()), (400, json!("invalid_rate_limit")));
    assert_eq!(
        node.admin("/v1/rate-limits").await.value(),
        json!({"default": null, "tenants": []})
    );
}

#[tokio::test]
async fn ctl_sets_shows_and_unsets_limits() {
    let node = node(json!({})).await;
    let set =
        ["--json", "rate-limits", "set", "acme", "--rate", "0.5", "--burst", "3", "--share", "10"];
    let acme = json!({
        "tenant": "acme", "rate": 0.5, "burst": 3, "overload_share_percent": 10, "source": "override"
    });
    assert_eq!(node.ctl(&set).await.value(), acme);
    assert_eq!(node.ctl(&["--json", "rate-limits", "get", "acme"]).await.value(), acme);
    let listed = node.ctl(&["rate-limits", "list"]).await;
    assert!(listed.out.contains("acme") && listed.out.contains("override"), "{listed:?}");
    let wrong = node.ctl(&["rate-limits", "set", "acme", "--rate", "1"]).await;
    assert_eq!((wrong.code, wrong.out.as_str()), (Some(1), ""));
    assert!(wrong.err.contains("burst is required with rate"), "{wrong:?}");
    let unset = node.ctl(&["rate-limits", "unset", "acme"]).await;
    assert_eq!(unset, Told { code: Some(0), out: String::new(), err: String::new() });
    let none = json!({"tenant": "acme", "rate": null, "burst": null, "source": "none"});
    assert_eq!(node.ctl(&["--json", "rate-limits", "get", "acme"]).await.value(), none);
}

#[tokio::test]
async fn whoever_may_only_look_changes_nothing_and_a_node_without_the_edge_has_none_of_it() {
    let token = |name: &str, scopes: Value| json!({"name": name, "token": format!("{name}-0123456789abcdef"), "scopes": scopes});
    let tokens = json!([
        token("reader", json!(["quarantine:read", "rate_limits:read"])),
        token("writer", json!(["quarantine:*", "rate_limits:write"])),
    ]);
    let node = node(json!({"admin": {"tokens": tokens}})).await;
    let ask = async |name: &str, method: &str, target: &str| {
        let bearer = format!("Bearer {name}-0123456789abcdef");
        let answer = node.admin_with(method, target, &[("authorization", &bearer)]).await;
        let scope =
            if answer.body.is_empty() { Value::Null } else { answer.value()["scope"].clone() };
        (answer.status, scope)
    };
    let of_tenant = "/v1/tenants/acme/rate-limit";
    assert_eq!(ask("reader", "GET", "/v1/quarantine").await.0, 200);
    assert_eq!(ask("reader", "DELETE", "/v1/quarantine").await, (403, json!("quarantine:write")));
    assert_eq!(ask("writer", "DELETE", "/v1/quarantine").await.0, 200);
    assert_eq!(ask("reader", "GET", of_tenant).await.0, 200);
    assert_eq!(ask("reader", "DELETE", of_tenant).await, (403, json!("rate_limits:write")));
    assert_eq!(ask("writer", "DELETE", of_tenant).await.0, 404);
    assert_eq!(ask("writer", "GET", "/v1/rate-limits").await, (403, json!("rate_limits:read")));

    let other = TestNode::start(json!({"node": {"roles": ["dispatch"]}})).await;
    for (method, target) in [
        ("GET", "/v1/quarantine"),
        ("DELETE", "/v1/quarantine"),
        ("GET", "/v1/rate-limits"),
        ("DELETE", of_tenant),
    ] {
        let answer = other.admin_with(method, target, &[]).await;
        let not_here = json!({"error": "role_not_enabled", "role": "edge"});
        assert_eq!((answer.status, answer.value()), (409, not_here), "{method} {target}");
    }
}

/// Names and labels of every series, without their values.
async fn series(node: &TestNode) -> Vec<String> {
    let text = node.admin("/metrics").await.text();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name.to_owned()).collect()
}

#[tokio::test]
async fn no_series_is_made_by_whoever_has_no_say_in_this_node() {
    let node = node(json!({
        "rate_limits": {"default": {"rate": 0.001, "burst": 1}},
        "quarantine": {"burst": 5, "rate": 0.001},
    }))
    .await;
    // One of each first: a scheme that failed is a series, and there are as many as are configured.
    let once = async |tenant: &str| {
        let mut statuses = Vec::new();
        for source in ["open", "open", "pen", "strict", "nobody"] {
            let target = format!("/webhooks/{tenant}/{source}");
            statuses.push(node.ask(&forged(&target, b"x")).await.unwrap().status);
        }
        statuses
    };
    assert_eq!(once("first").await, [201, 429, 202, 401, 404]);
    let before = until("the gauges are sampled", async || {
        let all = series(&node).await;
        all.iter().any(|name| name.starts_with("ankusa_quarantine_entries")).then_some(all)
    })
    .await;
    for ix in 0..50 {
        once(&format!("tenant-{ix}")).await;
        let unknown = forged(&format!("/webhooks/acme/unknown-{ix}"), b"x");
        assert_eq!(node.ask(&unknown).await.unwrap().status, 404);
    }
    assert_eq!(series(&node).await, before);
    let other = r#"ankusa_rate_limit_rejected_total{instance="default",tenant_id="other"} 51"#;
    assert!(node.admin("/metrics").await.text().contains(other));
}
