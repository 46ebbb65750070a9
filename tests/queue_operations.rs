//! What an operator asks of the queue of a running node, and of its store without one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::path::PathBuf;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::ids::TenantOrd;
use ankusa_actors::model::keys::CounterKey;
use ankusa_actors::ports::{Engine, Lane};
use ankusa_node::rocks::{RocksEngine, RocksOptions};
use common::node::{run, sink};
use common::worker::{self, Worker};
use common::{Answer, TestNode, Told, until};
use serde_json::{Value, json};

/// Takes what is `ok`, refuses what is `dead` for good, and has everything else come again.
async fn picky() -> Worker {
    Worker::deciding(|seen| match seen.body.as_ref() {
        b"ok" => worker::Answer::status(200),
        b"dead" => worker::Answer::status(410),
        _ => worker::Answer::status(503),
    })
    .await
}

/// Two sources of two tenants, and retries an hour away.
async fn two_tenants(worker: &Worker) -> TestNode {
    let config = json!({
        "sources": {
            "acme": {"tenant": "acme", "sinks": [sink(worker)]},
            "other": {"tenant": "other", "sinks": [sink(worker)]},
        },
        "dispatch": {"retry": {"base_ms": 3_600_000, "max_ms": 3_600_000}},
    });
    TestNode::start(config).await
}

/// Two dead letters and three retries of each.
async fn fill(node: &TestNode) {
    for source in ["acme", "other"] {
        for body in [&b"dead"[..], b"later", b"dead", b"later", b"later", b"ok"] {
            node.post(&format!("/webhooks/{source}"), body).await.id();
        }
    }
    until("all were tried", async || {
        let queue = node.status().await["queue"].clone();
        (queue["dead"] == 4 && queue["scheduled"] == 6 && queue["pending"] == 0).then_some(())
    })
    .await;
}

fn refused(status: u16, body: &Value) -> Answer {
    Answer::json(status, &body.to_string(), &[]).sorted()
}

#[tokio::test]
async fn a_tenant_is_purged_through_ctl_and_nobody_else() {
    let worker = picky().await;
    let node = two_tenants(&worker).await;
    fill(&node).await;
    let told = node.ctl(&["purge", "acme", "--state", "pending,inflight,dead"]).await;
    assert_eq!((told.code, told.err.as_str()), (Some(0), ""));
    for line in ["purged.dead           2", "purged.pending        3", "purged.inflight       0"] {
        assert!(told.out.contains(line), "{}", told.out);
    }
    assert_eq!(node.ctl(&["stats", "acme", "--json"]).await.value()["bytes"], 0);
    let other = node.ctl(&["stats", "other", "--json"]).await.value();
    assert_eq!((&other["dead"], &other["scheduled"]), (&json!(2), &json!(3)));
    assert_eq!(node.hooks().await.len(), 5);
    let metrics = node.admin("/metrics").await.text();
    assert!(metrics.contains(r#"ankusa_dispatch_purged_total{instance="default",state="dead"} 2"#));
    // Told again, there is nothing left to do; and what comes later is delivered as ever.
    let again = node.ctl(&["purge", "acme", "--state", "dead", "--json"]).await.value();
    assert_eq!(again["purged"], json!({"dead": 0}));
    node.post("/webhooks/acme", b"ok").await.id();
    until("it is delivered", async || {
        let acme = node.ctl(&["stats", "acme", "--json"]).await.value();
        (acme["bytes"] == 0).then_some(())
    })
    .await;
    node.assert_sound().await;
}

#[tokio::test]
async fn a_purge_over_the_admin_port_says_what_it_did_and_refuses_what_makes_no_sense() {
    let worker = picky().await;
    let node = two_tenants(&worker).await;
    fill(&node).await;
    let purge = async |target: &str| node.admin_with("POST", target, &[]).await.sorted();
    for (target, status, body) in [
        (
            "nobody/purge?state=dead",
            404,
            json!({"error": "tenant_not_found", "tenant_id": "nobody"}),
        ),
        ("a%20b/purge?state=dead", 400, json!({"error": "invalid_tenant"})),
        ("/purge?state=dead", 400, json!({"error": "invalid_tenant"})),
        ("acme/purge", 400, json!({"error": "invalid_filter", "field": "state"})),
        ("acme/purge?state=", 400, json!({"error": "invalid_filter", "field": "state"})),
        ("acme/purge?state=dead,all", 400, json!({"error": "invalid_filter", "field": "state"})),
        (
            "acme/purge?state=dead&source=x",
            400,
            json!({"error": "invalid_filter", "field": "source"}),
        ),
        (
            "acme/purge?state=dead&cursor=7",
            400,
            json!({"error": "invalid_filter", "field": "cursor"}),
        ),
        (
            "acme/purge?state=dead&cursor=9.9.0.0.pending.44",
            400,
            json!({"error": "invalid_filter", "field": "cursor"}),
        ),
    ] {
        assert_eq!(
            purge(&format!("/v1/tenants/{target}")).await,
            refused(status, &body),
            "{target}"
        );
    }
    assert_eq!(node.counter("dead").await, 4);
    let told = node.admin_with("POST", "/v1/tenants/acme/purge?state=dead", &[]).await.value();
    assert_eq!(
        (&told["tenant_id"], &told["purged"], &told["next_cursor"]),
        (&json!("acme"), &json!({"dead": 2}), &Value::Null)
    );
    assert_eq!((&told["left"]["dead"], &told["left"]["scheduled"]), (&json!(0), &json!(3)));
    let told = node.ctl(&["purge", "nobody", "--state", "dead"]).await;
    assert_eq!((told.code, told.err.as_str()), (Some(1), "tenant_not_found (tenant_id=nobody)\n"));
    assert_eq!(node.ctl(&["purge", "acme"]).await.code, Some(2), "which rows is always said");
    node.assert_sound().await;
}

#[tokio::test]
async fn a_node_that_does_not_dispatch_purges_nothing() {
    let worker = picky().await;
    let config =
        json!({"node": {"roles": ["edge"]}, "sources": {"demo": {"sinks": [sink(&worker)]}}});
    let node = TestNode::start(config).await;
    node.accepted(b"kept").await;
    let answer = node.admin_with("POST", "/v1/tenants/default/purge?state=pending", &[]).await;
    let body = json!({"error": "role_not_enabled", "role": "dispatch"});
    assert_eq!(answer.sorted(), refused(409, &body));
    assert_eq!(node.counter("pending").await, 1);
}

#[tokio::test]
async fn the_queue_is_told_in_all_and_by_tenant() {
    let worker = picky().await;
    let node = two_tenants(&worker).await;
    fill(&node).await;
    let queue = node.admin("/v1/queue").await.value();
    assert_eq!((&queue["next_seq"], &queue["tenants"]), (&json!(13), &json!(2)));
    assert_eq!((&queue["queue"]["dead"], &queue["queue"]["scheduled"]), (&json!(4), &json!(6)));
    let page = node.admin("/v1/queue/tenants?limit=1").await.value();
    let tenant = |page: &Value| {
        let of = &page["tenants"][0];
        (of["tenant_id"].clone(), of["ordinal"].clone(), of["dead"].clone())
    };
    assert_eq!(tenant(&page), (json!("acme"), json!(1), json!(2)));
    assert_eq!(page["next_cursor"], "1");
    let page = node.admin("/v1/queue/tenants?limit=1&cursor=1").await.value();
    assert_eq!(tenant(&page), (json!("other"), json!(2), json!(2)));
    assert_eq!(page["next_cursor"], Value::Null);
    let listed = node.ctl(&["tenants"]).await;
    assert!(listed.out.contains("acme") && listed.out.contains("other"), "{}", listed.out);
    for (target, status, body) in [
        ("/v1/queue/tenants?cursor=x", 400, json!({"error": "invalid_filter", "field": "cursor"})),
        ("/v1/queue?limit=1", 400, json!({"error": "invalid_filter", "field": "limit"})),
        ("/v1/hooks?after=x", 400, json!({"error": "invalid_filter", "field": "after"})),
        ("/v1/hooks?before=1", 400, json!({"error": "invalid_filter", "field": "before"})),
        (
            "/v1/tenants/nobody/queue",
            404,
            json!({"error": "tenant_not_found", "tenant_id": "nobody"}),
        ),
    ] {
        assert_eq!(node.admin(target).await.sorted(), refused(status, &body), "{target}");
    }
    let hooks = node.admin("/v1/hooks?after=2&limit=2").await.value();
    let seqs: Vec<_> = hooks["hooks"].as_array().unwrap().iter().map(|hook| &hook["seq"]).collect();
    assert_eq!((seqs, &hooks["more"]), (vec![&json!(3), &json!(4)], &json!(true)));
}

#[tokio::test]
async fn dead_letters_are_paged_by_tenant_and_reason() {
    let worker = picky().await;
    let node = two_tenants(&worker).await;
    fill(&node).await;
    let list = async |args: &[&str]| {
        let all = [&["dlq", "list", "--json", "--tenant", "acme", "--limit", "1"], args].concat();
        node.ctl(&all).await.value()
    };
    let first = list(&["--reason", "sink"]).await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let second = list(&["--reason", "sink", "--cursor", cursor]).await;
    assert_eq!((&first["total"], &second["next_cursor"]), (&json!(2), &Value::Null));
    let seqs = [&first, &second].map(|page| page["entries"][0]["seq"].as_u64().unwrap());
    assert_eq!(seqs, [3, 1]);
    assert_eq!(list(&["--reason", "source_gone"]).await["entries"], json!([]));
}

#[tokio::test]
async fn hooks_of_a_source_that_is_renamed_or_whose_sink_is_removed_are_dead_after_the_restart() {
    let worker = picky().await;
    let log = json!({"type": "log"});
    let mut node = TestNode::new(json!({
        "node": {"roles": ["edge"]},
        "sources": {
            "before": {"sinks": [sink(&worker)]},
            "shrinks": {"sinks": [sink(&worker), log]},
        },
    }));
    node.boot().await;
    node.post("/webhooks/before", b"ok").await.id();
    node.post("/webhooks/shrinks", b"ok").await.id();
    assert_eq!(node.stop().await, Some(0));
    node.configure(json!({
        "node": {"roles": ["edge", "dispatch"]},
        "sources": {"shrinks": {"sinks": [{"type": "log"}]}},
    }));
    node.forget_source("before");
    node.configure(json!({"sources": {"after": {"sinks": [sink(&worker)]}}}));
    node.boot().await;
    until("all have ended", async || {
        let queue = node.status().await["queue"].clone();
        (queue["dead"] == 2 && queue["pending"] == 0 && queue["inflight"] == 0).then_some(())
    })
    .await;
    for (class, source) in [("source_gone", "before"), ("sink_gone", "shrinks")] {
        let told = node.admin(&format!("/v1/dlq?reason={class}")).await.value();
        let entries = told["entries"].as_array().unwrap();
        assert_eq!((entries.len(), &entries[0]["source_id"]), (1, &json!(source)), "{told}");
    }
    assert_eq!(worker.seen().len(), 0);
    node.assert_sound().await;
}

/// `ankusa recount` on the node's store.
async fn recount(node: &TestNode, args: &[&str]) -> Told {
    let mut command = node.command();
    command.arg("recount").arg("--config").arg(node.config_file()).args(args);
    run(command).await
}

fn store(node: &TestNode) -> PathBuf {
    node.path("data/default/store")
}

/// Makes two counters of the first tenant wrong, in a store that no node has open.
async fn damage(node: &TestNode) {
    let engine = RocksEngine::new(store(node), RocksOptions::default());
    let kv = engine.open().await.unwrap();
    let key = |field| CounterKey { tenant: TenantOrd(1), field }.encode();
    let mut batch = Batch::default();
    batch.put(Cf::Counters, &key(Field::Dead), &counters::value(7));
    batch.put(Cf::Counters, &key(Field::Bytes), b"no number");
    kv.apply(batch, Lane::Commit).await.unwrap();
    kv.sync().await.unwrap();
    engine.close(kv).await;
}

#[tokio::test]
async fn counters_are_proved_and_put_right_without_a_node() {
    let worker = picky().await;
    let mut node = two_tenants(&worker).await;
    let told = recount(&node, &[]).await;
    assert_eq!(told.code, Some(1));
    let why = format!(
        "a node has the store at {} open: stop it first, or ask it with `ankusa ctl recount`\n",
        store(&node).display()
    );
    assert!(told.err.ends_with(&why), "{}", told.err);
    fill(&node).await;
    assert_eq!(node.stop().await, Some(0));
    let told = recount(&node, &["--json"]).await;
    assert_eq!((told.code, &told.value()["wrong_counters"]), (Some(0), &json!(0)));
    damage(&node).await;
    let told = recount(&node, &[]).await;
    assert_eq!(told.code, Some(3));
    assert!(told.out.contains("acme") && told.out.contains("dead"), "{}", told.out);
    let told = recount(&node, &["--json"]).await.value();
    assert_eq!(
        told["miscounts"][0],
        json!({"tenant_id": "acme", "ordinal": 1, "field": "dead", "stored": 7, "recounted": 2})
    );
    assert_eq!(told["miscounts"][1]["stored"], Value::Null);
    let told = recount(&node, &["--repair", "--json"]).await;
    assert_eq!((told.code, &told.value()["repaired"]), (Some(0), &json!(true)));
    assert_eq!(recount(&node, &[]).await.code, Some(0));
    node.boot().await;
    assert_eq!(node.status().await["opened"]["closed_cleanly"], true);
    node.assert_sound().await;
}

#[tokio::test]
async fn counters_are_proved_and_put_right_while_the_node_runs() {
    let worker = picky().await;
    let mut node = two_tenants(&worker).await;
    fill(&node).await;
    assert_eq!(node.ctl(&["recount"]).await.code, Some(0));
    assert_eq!(node.stop().await, Some(0));
    damage(&node).await;
    // Closed cleanly, so the boot counts nothing.
    node.boot().await;
    let told = node.ctl(&["recount"]).await;
    assert_eq!(told.code, Some(3));
    assert!(told.out.contains("wrong_counters: 2\n"), "{}", told.out);
    let counting = node.ctl(&["recount", "--repair", "--json"]);
    let sending = async {
        for _ in 0..20 {
            node.post("/webhooks/acme", b"ok").await.id();
        }
    };
    let (told, ()) = tokio::join!(counting, sending);
    assert_eq!((told.code, &told.value()["repaired"]), (Some(0), &json!(true)));
    assert_eq!(node.ctl(&["recount"]).await.code, Some(0));
    let acme = node.ctl(&["stats", "acme", "--json"]).await.value();
    assert_eq!(acme["dead"], 2);
    node.assert_sound().await;
}

#[tokio::test]
async fn a_store_that_is_not_there_is_not_made_by_counting_it() {
    let worker = picky().await;
    let node = TestNode::new(json!({"sources": {"demo": {"sinks": [sink(&worker)]}}}));
    let told = recount(&node, &["--repair"]).await;
    let why = format!("there is no store at {}\n", store(&node).display());
    assert_eq!((told.code, told.err), (Some(1), why));
    assert!(!store(&node).exists());
}
