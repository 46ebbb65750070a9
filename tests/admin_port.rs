//! The admin port: what it shows, to whom, and the documented names of everything on it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeMap;

use common::node::{demo, merge, sink};
use common::worker::{self, Worker};
use common::{Answer, Client, TestNode, request, until};
use serde_json::{Value, json};

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// The samples of a scrape, by name and labels.
async fn samples(node: &TestNode) -> BTreeMap<String, f64> {
    let answer = node.admin("/metrics").await;
    assert_eq!(
        (answer.status, answer.header("content-type")),
        (200, Some("text/plain; version=0.0.4"))
    );
    let text = answer.text();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty());
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap();
        (name.to_owned(), value.parse().unwrap_or_else(|_| panic!("no number: {line}")))
    });
    let found: Vec<_> = samples.collect();
    let count = found.len();
    let found: BTreeMap<_, _> = found.into_iter().collect();
    assert_eq!(found.len(), count, "a sample is told twice");
    found
}

#[tokio::test]
async fn health_says_what_runs_and_ready_what_is_taken() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let version = env!("CARGO_PKG_VERSION");
    let health = format!(
        r#"{{"status":"ok","instance":"default","version":"{version}","roles":["dispatch","edge"]}}"#
    );
    assert_eq!(node.admin("/health").await.sorted(), Answer::json(200, &health, &[]));
    let ready = Answer::json(
        200,
        r#"{"status":"ready","instance":"default","store":"ok","disk":"ok"}"#,
        &[],
    );
    assert_eq!(node.admin("/ready").await.sorted(), ready);
}

#[tokio::test]
async fn wal_counts_what_is_stored() {
    let worker = taking().await;
    // Nobody dispatches, so that no row is written twice: the numbers are estimates.
    let config = json!({
        "node": {"instance": "one", "roles": ["edge"]},
        "sources": {"demo": {"sinks": [sink(&worker), sink(&worker)]}},
    });
    let mut node = TestNode::new(config);
    node.configure(json!({"control": {"socket": node.socket()}}));
    node.boot().await;
    for _ in 0..3 {
        node.accepted(b"kept").await;
    }
    let mut told = node.admin("/v1/wal").await.value();
    assert!(told["wal"]["disk_bytes"].take().as_u64().unwrap() > 0);
    let expected = json!({"instance": "one",
        "wal": {"next_seq": 4, "hooks": 3, "deliveries": 6, "disk_bytes": null}});
    assert_eq!(told, expected);
}

#[tokio::test]
async fn metrics_count_what_happened_under_their_documented_names() {
    let worker = Worker::deciding(|seen| match seen.body.as_ref() {
        b"gone" => worker::Answer::status(410),
        b"later" if seen.header("x-attempt").is_none() => worker::Answer::status(503),
        _ => worker::Answer::status(200),
    })
    .await;
    let sources = json!({
        "demo": {"sinks": [sink(&worker)]},
        "github": {"verify": {"type": "github", "secret": "key"}, "sinks": [sink(&worker)]},
        "idle": {"sinks": [{"type": "log"}]},
    });
    let config = json!({
        "sources": sources,
        "http": {"max_body_bytes": 100},
        "dispatch": {"retry": {"max_attempts": 3}},
    });
    let node = TestNode::start(config).await;
    for body in [&b"good"[..], b"good", b"good", b"gone", b"later"] {
        node.accepted(body).await;
    }
    assert_eq!(node.post("/webhooks/github", b"unsigned").await.status, 401);
    for target in ["/webhooks/nobody", "/elsewhere"] {
        assert_eq!(node.post(target, b"x").await.status, 404);
    }
    assert_eq!(node.post("/webhooks/demo", &[b'x'; 101]).await.status, 413);
    let eight_bit = request("POST", "/webhooks/demo", &[("x-name", "caf\u{e9}")], b"x");
    assert_eq!(node.ask(&eight_bit).await.unwrap().status, 400);
    until("all are settled", async || {
        let queue = node.status().await["queue"].clone();
        (queue["dead"] == 2
            && queue["pending"] == 0
            && queue["scheduled"] == 0
            && queue["inflight"] == 0)
            .then_some(())
    })
    .await;
    // The gauges are sampled now and then.
    let samples = until("the gauges have seen it", async || {
        let samples = samples(&node).await;
        let settled = samples["ankusa_queue_dead{instance=\"default\"}"] == 2.0
            && samples["ankusa_dispatch_claimed{instance=\"default\"}"] == 0.0;
        settled.then_some(samples)
    })
    .await;

    let exact = [
        ("ankusa_ingest_requests_total", r#"source_id="demo",outcome="committed""#, 5.0),
        ("ankusa_ingest_requests_total", r#"source_id="demo",outcome="overload""#, 0.0),
        ("ankusa_ingest_requests_total", r#"source_id="demo",outcome="store_unavailable""#, 0.0),
        ("ankusa_ingest_requests_total", r#"source_id="github",outcome="rejected""#, 1.0),
        ("ankusa_ingest_requests_total", r#"source_id="idle",outcome="committed""#, 0.0),
        ("ankusa_ingest_duration_seconds_count", r#"source_id="demo""#, 5.0),
        ("ankusa_ingest_refused_total", r#"reason="unknown_source""#, 2.0),
        ("ankusa_ingest_refused_total", r#"reason="payload_too_large""#, 1.0),
        ("ankusa_ingest_refused_total", r#"reason="invalid_header""#, 1.0),
        ("ankusa_ingest_refused_total", r#"reason="body_read_failed""#, 0.0),
        (
            "ankusa_verify_failures_total",
            r#"source_id="github",provider="Elixir.Ankusa.Verifier.Hmac",scheme="github""#,
            1.0,
        ),
        ("ankusa_load_shed_total", "", 0.0),
        ("ankusa_wal_commit_batch_size", "", 5.0),
        ("ankusa_dispatch_deliveries_total", r#"result="ok",sink="http""#, 3.0),
        ("ankusa_dispatch_deliveries_total", r#"result="error",sink="http""#, 4.0),
        ("ankusa_dispatch_attempt_duration_seconds_count", r#"sink="http",result="ok""#, 3.0),
        ("ankusa_dispatch_dead_lettered_total", r#"source_id="demo",sink="http""#, 2.0),
        ("ankusa_store_write_failures_total", r#"class="no_space""#, 0.0),
        ("ankusa_queue_pending", "", 0.0),
        ("ankusa_queue_scheduled", "", 0.0),
        ("ankusa_queue_inflight", "", 0.0),
        ("ankusa_queue_dead", "", 2.0),
        ("ankusa_queue_archive_pending", "", 0.0),
        ("ankusa_queue_lanes", "", 0.0),
        ("ankusa_queue_lane_members", "", 0.0),
        ("ankusa_dispatch_lanes_blocked", "", 0.0),
        ("ankusa_dispatch_running", "", 0.0),
        ("ankusa_dispatch_claimed", "", 0.0),
        ("ankusa_dispatch_claimed_bytes", "", 0.0),
        ("ankusa_dispatch_breakers_open", "", 0.0),
        ("ankusa_store_unavailable_seconds", "", 0.0),
        ("ankusa_limit", r#"name="http.max_body_bytes""#, 100.0),
    ];
    let series = |name: &str, labels: &str| {
        let comma = if labels.is_empty() { "" } else { "," };
        let key = format!(r#"{name}{{instance="default"{comma}{labels}}}"#);
        samples.get(&key).copied().unwrap_or_else(|| panic!("no {key} among {:#?}", samples.keys()))
    };
    for (name, labels, value) in exact {
        assert_eq!(series(name, labels), value, "{name} {labels}");
    }
    for name in [
        "ankusa_wal_commit_duration_seconds_count",
        "ankusa_wal_sync_duration_seconds_count",
        "ankusa_store_hooks",
        "ankusa_store_deliveries",
        "ankusa_store_disk_bytes",
        "ankusa_disk_free_bytes",
        "ankusa_disk_total_bytes",
    ] {
        assert!(series(name, "") > 0.0, "{name}");
    }
    // Whoever refuses to be known has no series of its own.
    assert!(!samples.keys().any(|key| key.contains("nobody") || key.contains("elsewhere")));
}

#[tokio::test]
async fn the_effective_configuration_is_shown_without_its_secrets() {
    let worker = taking().await;
    let secrets = [
        "inbound-secret",
        "older-secret",
        "whsec_c2VjcmV0LXNlY3JldA==",
        "header-secret",
        "url-secret",
        "query-secret",
    ];
    let url =
        worker.url("/hooks").replace("http://", "http://user:url-secret@") + "?key=query-secret";
    let sources = json!({"github": {
        "verify": {"type": "github", "secret": [secrets[0], secrets[1]]},
        "sinks": [{"type": "http", "url": url, "secret": secrets[2], "headers": {"x-key": secrets[3]}}],
    }});
    let node =
        TestNode::start(json!({"sources": sources, "http": {"max_body_bytes": 12_345}})).await;
    let answer = node.admin("/v1/config").await;
    let text = answer.text();
    for secret in secrets {
        assert!(!text.contains(secret), "{secret} is shown: {text}");
    }
    let shown = answer.value();
    assert_eq!(shown["http"]["max_body_bytes"], 12_345);
    assert_eq!(shown["dispatch"]["retry"]["max_attempts"], 84, "defaults are shown too");
    assert_eq!(
        shown["sources"]["github"]["verify"],
        json!({"type": "github", "secret": "[REDACTED]"})
    );
    let sink = &shown["sources"]["github"]["sinks"][0];
    assert_eq!(
        (&sink["secret"], &sink["headers"]),
        (&json!("[REDACTED]"), &json!({"x-key": "[REDACTED]"}))
    );
    let address = worker.address.to_string();
    assert!(sink["url"].as_str().unwrap().contains(&address), "{sink}");
}

#[tokio::test]
async fn a_hook_that_no_worker_will_take_is_listed_with_the_reason() {
    let worker = Worker::start(worker::Answer::status(410)).await;
    let broken = Worker::start(worker::Answer::status(500)).await;
    let config = json!({
        "sources": {
            "gone": {"tenant": "acme", "sinks": [sink(&worker)]},
            "broken": {"sinks": [sink(&broken)]},
        },
        "dispatch": {"retry": {"max_attempts": 2, "base_ms": 1, "max_ms": 1}},
    });
    let node = TestNode::start(config).await;
    let typed = request("POST", "/webhooks/gone", &[("content-type", "text/plain")], b"12345");
    let gone = node.ask(&typed).await.unwrap().id();
    until("it is dead", async || (node.counter("dead").await == 1).then_some(())).await;
    let broken = node.post("/webhooks/broken", b"").await.id();
    until("both are dead", async || (node.counter("dead").await == 2).then_some(())).await;

    let mut told = node.admin("/v1/dlq").await.value();
    let entries = told["entries"].as_array_mut().unwrap();
    let mut times = Vec::new();
    for entry in entries.iter_mut() {
        let (received, dead) = (entry["received_at"].take(), entry["dead_lettered_at"].take());
        assert!(received.as_u64().unwrap() <= dead.as_u64().unwrap());
        times.push(dead.as_u64().unwrap());
    }
    assert!(times[0] >= times[1], "the newest first: {times:?}");
    let reasons: Vec<_> = entries
        .iter_mut()
        .map(|entry| entry["reason"].take().as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        told,
        json!({"total": 2, "next_cursor": null, "entries": [
            {"id": broken, "source_id": "broken", "tenant_id": "default", "seq": 2, "received_at": null,
                "dead_lettered_at": null, "size": 0, "content_type": null, "reason_class": "sink", "reason": null},
            {"id": gone, "source_id": "gone", "tenant_id": "acme", "seq": 1, "received_at": null,
                "dead_lettered_at": null, "size": 5, "content_type": "text/plain", "reason_class": "sink", "reason": null},
        ]})
    );
    assert!(reasons[0].contains("500") && reasons[1].contains("410"), "{reasons:?}");

    let ids = async |query: &str| {
        let told = node.admin(&format!("/v1/dlq?{query}")).await.value();
        assert_eq!(told["total"], 2, "all there are, whatever was asked for");
        let entries = told["entries"].as_array().unwrap();
        entries.iter().map(|entry| entry["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids("source_id=gone").await, std::slice::from_ref(&gone));
    assert_eq!(ids("source_id=nobody").await, Vec::<String>::new());
    assert_eq!(ids("limit=1").await, std::slice::from_ref(&broken));
    assert_eq!(ids("limit=0").await, Vec::<String>::new());
    assert_eq!(ids("limit=-5").await, Vec::<String>::new());
    assert_eq!(ids("limit=999999999").await.len(), 2);
    assert_eq!(ids(&format!("since={}", times[0])).await[0], broken);
    assert_eq!(ids(&format!("since={}", times[0] + 1)).await, Vec::<String>::new());
    assert_eq!(ids("since=0&source_id=gone&limit=1").await, std::slice::from_ref(&gone));
    for (query, field) in [
        ("since=yesterday", "since"),
        ("since=-1", "since"),
        ("since=", "since"),
        ("since=1.5", "since"),
        ("limit=all", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("until=tomorrow", "until"),
        ("since=2&until=1", "until"),
        ("tenant_id=a%20b", "tenant_id"),
        ("reason=bad_luck", "reason"),
        ("cursor=1.2", "cursor"),
        ("cursor=01.2.3", "cursor"),
        ("source=gone", "source"),
        ("limit=1&limit=2", "limit"),
    ] {
        let answer = node.admin(&format!("/v1/dlq?{query}")).await.sorted();
        let expected = format!(r#"{{"error":"invalid_filter","field":"{field}"}}"#);
        assert_eq!(answer, Answer::json(400, &expected, &[]), "{query}");
    }
    let listed = node.ctl(&["dlq", "list", "--source", "gone"]).await;
    assert_eq!(listed.code, Some(0));
    assert!(listed.out.starts_with("ID ") && listed.out.contains(&gone), "{}", listed.out);
    assert!(listed.out.ends_with("total: 2\nnext_cursor: -\n"), "{}", listed.out);
    let filtered = node.ctl(&["dlq", "list", "--json", "--limit", "1"]).await.value();
    assert_eq!(filtered["entries"][0]["id"], broken.as_str());
    node.assert_sound().await;
}

#[tokio::test]
async fn what_is_not_there_is_404_and_node_local_verbs_are_not() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/v1/frobnicate"),
        ("GET", "/v1/dlq/"),
        ("GET", "/webhooks/demo"),
        ("POST", "/webhooks/demo"),
        ("POST", "/metrics"),
        ("DELETE", "/v1/dlq"),
        ("GET", "/v1/tenants/default/purge"),
        ("POST", "/v1/tenants/default/queue"),
        ("PUT", "/v1/config"),
        ("POST", "/health"),
        // The control socket's.
        ("GET", "/v1/status"),
        ("GET", "/v1/tree"),
        ("POST", "/v1/recount"),
        ("GET", "/v1/dump"),
        ("POST", "/v1/store/reopen"),
        ("POST", "/v1/crash?child=writer"),
        ("POST", "/v1/stop"),
    ] {
        let mut answer = node.admin_with(method, target, &[]).await.sorted();
        answer.headers.retain(|(name, _)| name != "allow");
        let expected = Answer::json(404, r#"{"error":"not_found"}"#, &[]);
        assert_eq!(answer, expected, "{method} {target}");
    }
    assert_eq!(node.status().await["draining"], false);
    assert_eq!(node.restarts("writer").await, 0);
}

#[tokio::test]
async fn beyond_loopback_tokens_say_who_may_ask_what() {
    let worker = taking().await;
    let tokens = json!([
        {"name": "metrics", "token": "metrics-token-0123456789", "scopes": ["metrics:read"]},
        {"name": "reader", "token": "reader-token-0123456789", "scopes": ["dlq:*", "wal:read", "config:read", "hooks:read", "queue:read"]},
        {"name": "root", "token": "root-token-0123456789", "scopes": ["*"]},
    ]);
    let mut config = json!({"sources": demo(&worker)});
    merge(&mut config, json!({"admin": {"ip": "0.0.0.0", "tokens": tokens}}));
    let node = TestNode::start(config).await;
    let asked = async |target: &str, authorization: Option<&str>| {
        let headers: Vec<_> =
            authorization.map(|value| ("authorization", value)).into_iter().collect();
        node.admin_with("GET", target, &headers).await.sorted()
    };
    let unauthorized =
        Answer::json(401, r#"{"error":"unauthorized"}"#, &[("www-authenticate", "Bearer")]);
    let guarded = [
        ("/metrics", "metrics:read"),
        ("/v1/config", "config:read"),
        ("/v1/wal", "wal:read"),
        ("/v1/dlq", "dlq:read"),
        ("/v1/hooks", "hooks:read"),
        ("/v1/queue", "queue:read"),
        ("/v1/queue/tenants", "queue:read"),
    ];
    for (target, scope) in guarded {
        for wrong in [
            None,
            Some("Bearer wrong-token-0123456789"),
            Some("Bearer "),
            Some("bearer"),
            Some("root-token-0123456789"),
            Some("Basic cm9vdDpyb290LXRva2VuLTAxMjM0NTY3ODk="),
            Some("Bearer root-token-012345678"),
            Some("Bearer root-token-01234567890"),
        ] {
            assert_eq!(asked(target, wrong).await, unauthorized, "{target} {wrong:?}");
        }
        let forbidden =
            Answer::json(403, &format!(r#"{{"error":"forbidden","scope":"{scope}"}}"#), &[]);
        let table = [
            ("Bearer metrics-token-0123456789", scope == "metrics:read"),
            ("Bearer reader-token-0123456789", scope != "metrics:read"),
            ("Bearer root-token-0123456789", true),
        ];
        for (authorization, may) in table {
            let answer = asked(target, Some(authorization)).await;
            if may {
                assert_eq!(answer.status, 200, "{target} {authorization}");
            } else {
                assert_eq!(answer, forbidden, "{target} {authorization}");
            }
        }
    }
    // Who may read the queue may not purge it.
    let purge = async |token: &str| {
        let headers = [("authorization", token)];
        let target = "/v1/tenants/default/purge?state=dead";
        node.admin_with("POST", target, &headers).await.sorted()
    };
    let forbidden = r#"{"error":"forbidden","scope":"queue:write"}"#;
    assert_eq!(purge("Bearer reader-token-0123456789").await, Answer::json(403, forbidden, &[]));
    assert_eq!(purge("Bearer root-token-0123456789").await.status, 404, "no hook came yet");
    // Probes need none, and what is not there does not depend on one.
    for (target, status) in [("/health", 200), ("/ready", 200), ("/v1/frobnicate", 404)] {
        assert_eq!(asked(target, None).await.status, status, "{target}");
    }
    // Nor does the control socket: its mode is its guard.
    assert_eq!(node.ctl(&["metrics"]).await.code, Some(0));
    let shown = asked("/v1/config", Some("Bearer root-token-0123456789")).await.text();
    assert!(!shown.contains("token-0123456789"), "{shown}");
}

#[tokio::test]
async fn a_node_without_the_role_says_so_instead_of_an_empty_list() {
    let worker = taking().await;
    let config = json!({"node": {"roles": ["edge"]}, "sources": demo(&worker)});
    let node = TestNode::start(config).await;
    let id = node.accepted(b"kept").await;
    let refused = r#"{"error":"role_not_enabled","role":"dispatch"}"#;
    assert_eq!(node.admin("/v1/dlq").await.sorted(), Answer::json(409, refused, &[]));
    assert_eq!(
        node.control("GET", "/v1/dlq").await.unwrap().sorted(),
        Answer::json(409, refused, &[])
    );
    assert_eq!(node.admin("/health").await.value()["roles"], json!(["edge"]));
    // Its hooks wait for a node that dispatches.
    assert_eq!((node.counter("pending").await, worker.seen().len()), (1, 0));
    assert_eq!(node.hooks().await[0]["id"], id.as_str());
    node.assert_sound().await;
}

#[tokio::test]
async fn a_node_without_the_edge_delivers_and_takes_nothing() {
    let worker = taking().await;
    let mut node = TestNode::new(json!({"node": {"roles": ["edge"]}, "sources": demo(&worker)}));
    node.boot().await;
    let id = node.accepted(b"kept").await;
    assert_eq!(node.stop().await, Some(0));
    node.configure(json!({"node": {"roles": ["dispatch"]}}));
    node.boot().await;
    assert!(Client::try_tcp(node.http_port).await.is_err(), "somebody listens for hooks");
    node.drained().await;
    assert_eq!(worker.last().header("x-ankusa-id"), Some(id));
    assert_eq!(node.admin("/ready").await.value()["status"], "ready");
    assert_eq!(
        node.admin("/v1/dlq").await.value(),
        json!({"total": 0, "entries": [], "next_cursor": null})
    );
}

#[tokio::test]
async fn without_the_admin_port_the_control_socket_shows_the_same() {
    let worker = taking().await;
    let config = json!({"admin": {"enabled": false}, "sources": demo(&worker)});
    let node = TestNode::start(config).await;
    assert!(Client::try_tcp(node.admin_port).await.is_err());
    for target in ["/health", "/ready", "/metrics", "/v1/config", "/v1/wal", "/v1/dlq"] {
        assert_eq!(node.control("GET", target).await.unwrap().status, 200, "{target}");
    }
    let tree: Value = node.control("GET", "/v1/tree").await.unwrap().value();
    assert!(!tree.to_string().contains("\"admin\""), "{tree}");
}

#[tokio::test]
async fn a_restart_is_counted_once_even_when_whoever_counts_crashes() {
    let worker = Worker::start(worker::Answer::status(200)).await;
    let often = json!({"sources": demo(&worker), "admin": {"gauge_interval_ms": 20}});
    let node = TestNode::start(often).await;
    let counted = async |child: &str| {
        let series = format!(
            "ankusa_instance_child_restarts_total{{instance=\"default\",child=\"{child}\"}}"
        );
        samples(&node).await.get(&series).copied().unwrap_or(0.0)
    };
    for child in ["dispatch", "gauges", "gauges"] {
        let before = counted(child).await;
        assert_eq!(
            node.control("POST", &format!("/v1/crash?child={child}")).await.unwrap().status,
            200
        );
        until("its restart is counted", async || (counted(child).await > before).then_some(()))
            .await;
    }
    assert_eq!((counted("dispatch").await, counted("gauges").await), (1.0, 2.0));
}
