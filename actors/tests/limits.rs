//! How much is taken of whom: what is charged, what a denial leaves, and the limits that operators set while the node runs.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::{Admin, AdminError};
use ankusa_actors::edge::{Answer, RateLimitsConfig, RequestHead, Routing};
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::gcra::Rate;
use ankusa_actors::model::network::Network;
use ankusa_actors::model::rate_limit::{RateLimit, TenantLimit};
use ankusa_actors::model::source::OnVerifyFailure;
use ankusa_actors::model::verify::VerifySpec;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::sources::Source;
use bytes::Bytes;
use common::{Bench, HTTP, millis, open_source, secs};
use serde_json::{Value, from_value, json};

const SECRET: &str = "it is a secret";

fn limit(limit: Value) -> RateLimit {
    from_value(limit).unwrap()
}

fn tenant_limit(limit: Value) -> TenantLimit {
    from_value(limit).unwrap()
}

/// Sources of every kind: open and shared, of a tenant of its own, with a limit, and two that verify.
fn bench(rate_limits: Value) -> Bench {
    let mut bench = Bench::default();
    bench.settings.rate_limits = from_value::<RateLimitsConfig>(rate_limits).unwrap();
    bench.settings.ingest.max_body_bytes = 100;
    bench.settings.ingest.routing = Routing::TenantPath;
    let signed = |id: &str, on_verify_failure| {
        let spec: VerifySpec = from_value(json!({"type": "github", "secret": SECRET})).unwrap();
        let verifier = spec.build().unwrap();
        Source { verifier, on_verify_failure, ..open_source(id, "default", &[HTTP]) }
    };
    let narrow = limit(json!({"rate": 1, "burst": 2})).limits(100).unwrap();
    bench.sources = Arc::new(
        [
            open_source("open", "default", &[HTTP]),
            Source { rate_limit: narrow, ..open_source("narrow", "default", &[HTTP]) },
            signed("strict", OnVerifyFailure::Reject),
            signed("lenient", OnVerifyFailure::AcceptFlag),
        ]
        .into_iter()
        .collect(),
    );
    bench
}

async fn from(node: &Node, path: &str, peer: &str, forwarded: &str, body: &[u8]) -> Answer {
    let ingest = &node.handles().ingest;
    let forwarded = (Bytes::from("X-Forwarded-For"), Bytes::copy_from_slice(forwarded.as_bytes()));
    let head = RequestHead {
        method: "POST".to_owned(),
        path: format!("/webhooks/{path}"),
        headers: vec![forwarded],
        content_length: None,
        remote: peer.parse::<IpAddr>().ok(),
        peer: None,
        query: None,
    };
    let admitted = ingest.admit(&head).unwrap();
    ingest.accept(admitted, head, Bytes::copy_from_slice(body)).await
}

async fn post(node: &Node, path: &str) -> Answer {
    from(node, path, "192.0.2.1", "-", b"").await
}

fn is_accepted(answer: &Answer) -> bool {
    matches!(answer, Answer::Send { status: 201, .. })
}

/// How many of so many are accepted, and the last answer.
async fn burst(node: &Node, path: &str, hooks: usize) -> (usize, Answer) {
    let (mut accepted, mut last) = (0, Answer::not_found());
    for _ in 0..hooks {
        last = post(node, path).await;
        accepted += usize::from(is_accepted(&last));
    }
    (accepted, last)
}

async fn stop(node: Node) {
    assert!(node.stop(Duration::from_secs(60)).await);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_gets_its_burst_and_then_its_rate_and_others_are_not_touched() {
    let bench = bench(json!({"tenants": {"acme": {"rate": 0.5, "burst": 3}}}));
    let node = bench.start().await;
    assert_eq!(burst(&node, "acme/open", 5).await, (3, Answer::rate_limited(2)));
    assert_eq!(bench.stored().len(), 3, "a denial stores nothing");
    assert_eq!(burst(&node, "blue/open", 10).await.0, 10);
    secs(2).await;
    assert_eq!(burst(&node, "acme/open", 5).await, (1, Answer::rate_limited(2)));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_is_an_event_of_its_tenant_and_an_outcome_of_its_source() {
    let bench = bench(json!({"default": {"rate": 1, "burst": 1}}));
    let node = bench.start().await;
    post(&node, "acme/open").await;
    bench.events.take();
    assert_eq!(post(&node, "acme/open").await, Answer::rate_limited(1));
    let told = [
        "RateLimited { tenant_id: \"acme\" }",
        "IngestAnswered { source_id: \"open\", outcome: RateLimited, took: 0ns }",
    ];
    assert_eq!(bench.events.take(), told);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_s_own_limit_beats_the_default_and_an_operator_s_beats_both() {
    let bench = bench(json!({
        "default": {"rate": 1, "burst": 2}, "tenants": {"acme": {"rate": 1, "burst": 3}}
    }));
    let node = bench.start().await;
    assert_eq!(burst(&node, "blue/open", 9).await.0, 2);
    assert_eq!(burst(&node, "acme/open", 9).await.0, 3);
    let limits = &node.handles().limits;
    for tenant in ["acme", "blue"] {
        let set = limits.set(tenant, Some(tenant_limit(json!({"rate": 1, "burst": 5})))).await;
        assert!(!set.unwrap());
        assert_eq!(burst(&node, &format!("{tenant}/open"), 9).await.0, 5, "at once, from full");
    }
    assert!(limits.set("acme", None).await.unwrap());
    assert_eq!(
        burst(&node, "acme/open", 9).await.0,
        3,
        "the configuration counts again, from full"
    );
    assert!(!limits.set("acme", None).await.unwrap());
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_a_client_and_the_node_have_limits_of_their_own() {
    let bench =
        bench(json!({"client_ip": {"rate": 1, "burst": 4}, "node": {"rate": 1, "burst": 7}}));
    let node = bench.start().await;
    assert_eq!(burst(&node, "acme/narrow", 9).await, (2, Answer::rate_limited(1)));
    assert_eq!(burst(&node, "acme/open", 9).await, (2, Answer::rate_limited(1)), "of this client");
    let mut accepted = 0;
    for ix in 0..9 {
        let answer = from(&node, "acme/open", &format!("192.0.2.{}", 10 + ix), "-", b"").await;
        accepted += usize::from(is_accepted(&answer));
    }
    assert_eq!(accepted, 3, "of this node");
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_denial_by_one_limit_takes_nothing_from_the_others() {
    let bench = bench(json!({
        "tenants": {"acme": {"rate": 1, "burst": 5}}, "node": {"rate": 1, "burst": 6}
    }));
    let node = bench.start().await;
    assert_eq!(burst(&node, "acme/narrow", 50).await.0, 2);
    assert_eq!(burst(&node, "acme/open", 50).await.0, 3, "what its tenant still had");
    assert_eq!(burst(&node, "blue/open", 50).await.0, 1, "and what the node still had");
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_are_counted_by_the_body() {
    let bench = bench(json!({"default": {"bytes_rate": 10, "bytes_burst": 100}}));
    let node = bench.start().await;
    let send = async |bytes| from(&node, "acme/open", "192.0.2.1", "-", &vec![b'x'; bytes]).await;
    assert!(is_accepted(&send(60).await));
    assert_eq!(send(61).await, Answer::rate_limited(3));
    assert!(is_accepted(&send(40).await));
    assert_eq!(send(100).await, Answer::rate_limited(10), "the largest body passes one day");
    assert!(is_accepted(&send(0).await));
    secs(10).await;
    assert!(is_accepted(&send(100).await));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_forges_hooks_uses_up_nobody_s_limit_and_makes_no_bucket() {
    let mut bench = bench(json!({
        "default": {"rate": 1, "burst": 1}, "client_ip": {"rate": 1, "burst": 1},
        "node": {"rate": 1, "burst": 1}
    }));
    bench.settings.quarantine.rate = Rate::from_f64(0.001).unwrap();
    let node = bench.start().await;
    for ix in 0..300 {
        let tenant = format!("tenant-{ix}");
        let peer = format!("192.0.2.{}", ix % 250);
        let rejected = from(&node, &format!("{tenant}/strict"), &peer, "-", b"").await;
        assert_eq!(rejected, Answer::verification_failed(":missing_signature"));
        let flagged = from(&node, &format!("{tenant}/lenient"), &peer, "-", b"").await;
        let is_limited = |answer: &Answer| matches!(answer, Answer::Send { status: 429, .. });
        assert!(
            if ix < 100 { is_accepted(&flagged) } else { is_limited(&flagged) },
            "{ix}: {flagged:?}"
        );
    }
    assert_eq!(node.handles().limits.cells(), [0, 0, 0]);
    assert!(is_accepted(&post(&node, "tenant-1/open").await));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_client_is_who_trusted_proxies_say_and_where_that_is_unclear_whoever_passed_it_on() {
    let mut bench = bench(json!({"client_ip": {"rate": 1, "burst": 1}}));
    bench.settings.ingest.trusted_proxies = Arc::from([Network::parse("10.0.0.0/8").unwrap()]);
    let node = bench.start().await;
    let send = async |peer: &str, forwarded: &str| {
        is_accepted(&from(&node, "acme/open", peer, forwarded, b"").await)
    };
    let table = [
        ("10.0.0.1", "203.0.113.1", true),
        ("10.0.0.2", "198.51.100.1, 203.0.113.1", false),
        ("10.0.0.1", "203.0.113.2", true),
        // Not trusted: what it says is passed over.
        ("192.0.2.9", "203.0.113.3", true),
        ("192.0.2.9", "203.0.113.4", false),
        ("10.0.0.1", "unknown", true),
        ("10.0.0.1", "_hidden", false),
        // A /64 is one client.
        ("2001:db8::1", "-", true),
        ("2001:db8::2:2", "-", false),
        ("2001:db8:0:1::2", "-", true),
    ];
    for (peer, forwarded, accepted) in table {
        assert_eq!(send(peer, forwarded).await, accepted, "{peer} for {forwarded}");
    }
    assert!(send("", "203.0.113.1").await, "nobody knows whose it is: no address, no limit");
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn buckets_of_tenants_that_urls_name_have_an_end() {
    let bench = bench(json!({"default": {"rate": 1000, "burst": 1000}}));
    let node = bench.start().await;
    let limits = &node.handles().limits;
    fn sender(tenant: &str) -> ankusa_actors::edge::Sender<'_> {
        ankusa_actors::edge::Sender {
            tenant,
            source_id: "open",
            source: ankusa_actors::model::rate_limit::Limits::default(),
            client: None,
        }
    }
    for ix in 0..150_000 {
        let tenant = format!("tenant-{ix}");
        limits.charge(sender(&tenant), 0).unwrap_or_default();
    }
    let [tenants, ..] = limits.cells();
    assert!(tenants <= 100_000, "{tenants}");
    stop(node).await;
}

fn rows(bench: &Bench) -> BTreeMap<String, String> {
    let rows = bench.disk.rows(Cf::Default).into_iter();
    let limits = rows.filter(|(key, _)| key.starts_with(b"r:"));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    limits.map(|(key, value)| (text(key), text(value))).collect()
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_has_set_outlives_the_node() {
    let bench = bench(json!({}));
    let node = bench.start().await;
    let limits = &node.handles().limits;
    limits.set("acme", Some(tenant_limit(json!({"rate": 50, "burst": 2})))).await.unwrap();
    limits.set("blue", Some(tenant_limit(json!({"overload_share_percent": 5})))).await.unwrap();
    bench.disk.cut_power();
    let expected =
        [("r:acme", r#"{"rate":50,"burst":2}"#), ("r:blue", r#"{"overload_share_percent":5}"#)];
    let expected = expected.map(|(key, value)| (key.to_owned(), value.to_owned()));
    assert_eq!(rows(&bench), expected.into());
    let node = bench.start().await;
    assert_eq!(burst(&node, "acme/open", 9).await.0, 2);
    assert_eq!(node.handles().limits.share_percent("blue"), Some(5));
    assert_eq!(node.handles().limits.share_percent("acme"), None);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_limit_that_was_not_written_is_not_in_force_unless_the_store_turns_out_to_hold_it() {
    let none = (TenantLimit::default(), "none");
    let set = tenant_limit(json!({"rate": 1, "burst": 2}));
    let table = [
        (Fault::refuse(SimOp::Apply, FailureClass::NoSpace), none),
        (Fault::apply_logged_unseen(FailureClass::IoError), (set, "override")),
        (Fault::sync_landed(FailureClass::IoError), (set, "override")),
    ];
    for (fault, later) in table {
        let bench = bench(json!({}));
        let node = bench.start().await;
        let limits = node.handles().limits.clone();
        bench.disk.fail(fault);
        let failed = limits.set("acme", Some(set)).await;
        assert!(failed.is_err());
        let of = |(limit, source): (TenantLimit, ankusa_actors::edge::LimitSource)| {
            (limit, source.as_str())
        };
        assert_eq!(of(limits.of_tenant("acme")), none);
        secs(10).await;
        assert_eq!(of(limits.of_tenant("acme")), later);
        assert_eq!(rows(&bench).len(), usize::from(later != none));
        limits.set("acme", Some(set)).await.unwrap();
        assert_eq!(of(limits.of_tenant("acme")), (set, "override"));
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn limits_stay_in_force_while_the_process_that_keeps_them_is_down() {
    let bench = bench(json!({}));
    let node = bench.start().await;
    let limits = node.handles().limits.clone();
    limits.set("acme", Some(tenant_limit(json!({"rate": 1, "burst": 2})))).await.unwrap();
    bench.disk.fail(Fault::refuse(SimOp::Read, FailureClass::IoError));
    assert!(node.handles().board.crash("rate_limiter"));
    millis(1).await;
    assert_eq!(burst(&node, "acme/open", 9).await.0, 2);
    secs(10).await;
    assert!(limits.set("acme", None).await.unwrap());
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn limits_that_cannot_be_read_refuse_the_boot() {
    let mut bench = bench(json!({}));
    let node = bench.start().await;
    let mut batch = ankusa_actors::model::batch::Batch::default();
    batch.put(Cf::Default, b"r:acme", b"no limit");
    let store = &node.handles().store;
    store.apply_synced(batch, ankusa_actors::ports::Lane::Commit).await.unwrap();
    stop(node).await;
    let refused = bench.try_start().await.err().unwrap();
    assert!(refused.contains("cannot read the rate limit of acme"), "{refused}");
    bench.settings.roles.edge = false;
    stop(bench.start().await).await;
}

fn admin(bench: &Bench, node: &Node) -> Admin {
    Admin::new(node.handles().clone(), bench.settings.clone(), "0.0.0")
}

#[tokio::test(start_paused = true)]
async fn an_operator_sees_every_limit_and_where_it_is_from() {
    let bench = bench(json!({
        "default": {"rate": 1, "burst": 2},
        "tenants": {"acme": {"rate": 0.5, "burst": 3}, "blue": {"bytes_rate": 5, "bytes_burst": 100}}
    }));
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    let set = tenant_limit(json!({"rate": 7, "burst": 8, "overload_share_percent": 9}));
    let told = admin.set_rate_limit("acme", set).await.unwrap();
    let acme = json!({"tenant": "acme", "rate": 7, "burst": 8, "overload_share_percent": 9, "source": "override"});
    let blue = json!({"tenant": "blue", "rate": null, "burst": null, "bytes_rate": 5, "bytes_burst": 100, "source": "config"});
    assert_eq!(told, acme);
    assert_eq!(
        admin.rate_limits().unwrap(),
        json!({"default": {"rate": 1, "burst": 2}, "tenants": [acme, blue]})
    );
    assert_eq!(
        admin.rate_limit("cyan").unwrap(),
        json!({"tenant": "cyan", "rate": 1, "burst": 2, "source": "default"})
    );
    admin.delete_rate_limit("acme").await.unwrap();
    assert_eq!(
        admin.rate_limit("acme").unwrap(),
        json!({"tenant": "acme", "rate": 0.5, "burst": 3, "source": "config"})
    );
    assert_eq!(admin.delete_rate_limit("acme").await, Err(AdminError::RateLimitNotFound));
    let invalid = |message: &str| Err(AdminError::InvalidRateLimit(message.to_owned()));
    let table = [
        (
            json!({}),
            "must have rate and burst, bytes_rate and bytes_burst, or overload_share_percent",
        ),
        (json!({"rate": 1}), "burst is required with rate"),
        (
            json!({"bytes_rate": 1, "bytes_burst": 99}),
            "bytes_burst must be >= http.max_body_bytes (100), got 99",
        ),
    ];
    for (limit, message) in table {
        assert_eq!(admin.set_rate_limit("acme", tenant_limit(limit)).await, invalid(message));
    }
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn without_limits_and_without_the_role_there_is_nothing_to_see() {
    let mut bench = bench(json!({}));
    let node = bench.start().await;
    let shown = admin(&bench, &node);
    assert_eq!(shown.rate_limits().unwrap(), json!({"default": null, "tenants": []}));
    assert_eq!(
        shown.rate_limit("acme").unwrap(),
        json!({"tenant": "acme", "rate": null, "burst": null, "source": "none"})
    );
    stop(node).await;
    bench.settings.roles.edge = false;
    let node = bench.start().await;
    let shown = admin(&bench, &node);
    assert_eq!(shown.rate_limits(), Err(AdminError::RoleNotEnabled("edge")));
    assert_eq!(shown.quarantine(1).await, Err(AdminError::RoleNotEnabled("edge")));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn one_tenant_cannot_fill_the_batchers_once_another_has_come() {
    let mut bench = bench(json!({"tenants": {"wide": {"overload_share_percent": 100}}}));
    bench.settings.batcher.partitions = 1;
    bench.settings.batcher.max_queue = 10;
    bench.settings.batcher.tenant_share_percent = 50;
    let node = bench.start().await;
    assert!(is_accepted(&post(&node, "blue/open").await));
    assert!(is_accepted(&post(&node, "acme/open").await));
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let flood = |tenant: &'static str, hooks: usize| {
        let ingest = Arc::clone(&node.handles().ingest);
        let sent: Vec<_> = (0..hooks)
            .map(|_| {
                let ingest = Arc::clone(&ingest);
                tokio::spawn(async move {
                    let head = RequestHead {
                        method: "POST".to_owned(),
                        path: format!("/webhooks/{tenant}/open"),
                        headers: Vec::new(),
                        content_length: None,
                        remote: None,
                        peer: None,
                        query: None,
                    };
                    let admitted = ingest.admit(&head).unwrap();
                    ingest.accept(admitted, head, Bytes::new()).await
                })
            })
            .collect();
        sent
    };
    let acme = flood("acme", 8);
    millis(1).await;
    let blue = flood("blue", 2);
    millis(1).await;
    let wide = flood("wide", 4);
    let mut answers = Vec::new();
    for sent in acme.into_iter().chain(blue).chain(wide) {
        answers.push(sent.await.unwrap());
    }
    let count = |answers: &[Answer], wanted: &dyn Fn(&Answer) -> bool| {
        answers.iter().filter(|answer| wanted(answer)).count()
    };
    let overloaded = |answer: &Answer| *answer == Answer::tenant_overload();
    let [acme, blue, wide] = [&answers[..8], &answers[8..10], &answers[10..]];
    assert_eq!((count(acme, &is_accepted), count(acme, &overloaded)), (5, 3));
    assert_eq!(count(blue, &is_accepted), 2);
    assert_eq!(count(wide, &is_accepted), 3, "its own share is everything that is left");
    assert_eq!(wide[3], Answer::unavailable("overload"));
    let batcher = &node.handles().batchers[0];
    assert_eq!((batcher.admission().records(), batcher.admission().tenants()), (0, 0));
    stop(node).await;
}
