//! The control socket: whose it is, what can be asked and told through it, and that it stands what clients do to it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};

use ankusa_actors::model::delivery::RowState;
use common::load::{Load, Outcome};
use common::node::{demo, merge};
use common::store::Rows;
use common::worker::{self, Worker};
use common::{Answer, Client, TestNode, Told, until};
use serde_json::{Value, json};

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// A node that keeps its hooks: its worker takes none, and is not tried again.
async fn keeping(worker: &Worker, config: Value) -> TestNode {
    let mut all = json!({
        "dispatch": {"retry": {"base_ms": 3_600_000, "max_ms": 3_600_000}},
        "sources": demo(worker),
    });
    merge(&mut all, config);
    TestNode::start(all).await
}

async fn refusing() -> Worker {
    Worker::start(worker::Answer::status(503)).await
}

/// A start that must be refused. Answers what it said last.
async fn refused(node: &mut TestNode) -> String {
    let so_far = node.log().lines().count();
    node.spawn();
    assert_eq!(node.exit().await.code(), Some(1), "{}", node.log());
    // What it said comes through a pipe.
    until("it has said why", async || {
        let log = node.log();
        let last = log.lines().skip(so_far).last()?;
        last.contains("cannot start: ").then(|| last.to_owned())
    })
    .await
}

#[tokio::test]
async fn the_socket_is_its_owners_alone() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let metadata = fs::metadata(node.socket()).unwrap();
    assert!(metadata.file_type().is_socket());
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn the_socket_of_a_killed_node_is_replaced() {
    let worker = taking().await;
    let mut node = TestNode::demo(&worker).await;
    node.kill();
    assert!(node.socket().exists());
    let told = node.ctl(&["status"]).await;
    assert_eq!((told.code, told.out.as_str()), (Some(1), ""));
    node.boot().await;
    assert_eq!(node.ctl(&["ready"]).await.code, Some(0));
}

#[tokio::test]
async fn a_second_node_on_the_same_directory_is_refused_and_the_first_goes_on() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let id = node.accepted(b"first").await;
    let data_dir = node.path("data");

    let mut second =
        TestNode::new(json!({"node": {"data_dir": data_dir}, "sources": demo(&worker)}));
    let said = refused(&mut second).await;
    let socket = node.socket();
    let reason = format!(
        "cannot start: control.socket: cannot listen on {0}: {0} is in use by a running node",
        socket.display()
    );
    assert!(said.ends_with(&reason), "{said}");

    // With a socket of its own it gets as far as the database, and no further.
    let mut third =
        TestNode::new(json!({"node": {"data_dir": data_dir}, "sources": demo(&worker)}));
    third.configure(json!({"control": {"socket": third.path("control.sock")}}));
    let said = refused(&mut third).await;
    assert!(said.contains("cannot start: ") && said.contains("LOCK"), "{said}");
    assert!(!third.path("control.sock").exists(), "a socket nobody listens on is left behind");

    assert_eq!(node.hooks().await[0]["id"], id.as_str());
    node.accepted(b"second").await;
    node.assert_sound().await;
}

#[tokio::test]
async fn a_port_that_is_taken_refuses_the_start_and_leaves_nothing_behind() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    for (section, port) in [("http", node.http_port), ("admin", node.admin_port)] {
        let mut other = TestNode::new(json!({"sources": demo(&worker)}));
        other.configure(json!({section: {"port": port}}));
        let said = refused(&mut other).await;
        let reason = format!("cannot start: {section}.port: cannot listen on 127.0.0.1:{port}: ");
        assert!(said.contains(&reason), "{said}");
        assert!(!other.socket().exists());
    }
}

#[tokio::test]
async fn what_is_no_socket_is_not_replaced() {
    let worker = taking().await;
    let mut node = TestNode::new(json!({"sources": demo(&worker)}));
    let path = node.path("precious");
    node.configure(json!({"control": {"socket": path}}));
    fs::write(&path, "not a socket").unwrap();
    let said = refused(&mut node).await;
    let reason = format!(
        "cannot start: control.socket: cannot listen on {0}: {0} exists and is no socket",
        path.display()
    );
    assert!(said.ends_with(&reason), "{said}");
    assert_eq!(fs::read_to_string(&path).unwrap(), "not a socket");
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let said = refused(&mut node).await;
    assert!(said.ends_with(&reason), "{said}");
    // A directory on the way is made.
    node.configure(json!({"control": {"socket": node.path("run/ankusa/control.sock")}}));
    node.spawn();
    until("the node is ready", async || {
        let told = node.ctl_at(&node.path("run/ankusa/control.sock"), &["ready"]).await;
        (told.code == Some(0)).then_some(())
    })
    .await;
}

#[tokio::test]
async fn status_and_tree_say_how_the_node_is() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    for body in [&b"1"[..], b"22"] {
        node.accepted(body).await;
    }
    until("both were tried", async || (node.counter("scheduled").await == 2).then_some(())).await;
    let mut status = node.ctl(&["status", "--json"]).await.value();
    assert!(status["uptime_ms"].take().as_u64().unwrap() > 0);
    let bytes = status["queue"]["bytes"].take().as_u64().unwrap();
    let stored = node.dump().await.rows;
    let hooks: usize = stored
        .iter()
        .filter(|(cf, key, _)| cf.name() == "hooks" && key.len() == 8)
        .map(|(_, _, value)| value.len())
        .sum();
    assert_eq!(usize::try_from(bytes).unwrap(), hooks);
    for key in ["free_bytes", "wal_bytes"] {
        assert!(status["store"][key].take().as_u64().unwrap() > 0, "{key}");
    }
    let store = json!({"open": true, "generation": 1, "accepting": true, "failing": null,
        "writer_blocked": null, "closed_for_ms": null, "next_attempt_in_ms": null,
        "last_failure": null, "free_bytes": null, "wal_bytes": null,
        "reserve_bytes": 67_108_864, "reserve_wanted_bytes": 67_108_864,
        "min_free_bytes": 67_108_864, "resume_free_bytes": 134_217_728});
    assert_eq!(
        status,
        json!({"instance": "default", "version": env!("CARGO_PKG_VERSION"),
            "roles": ["dispatch", "edge"], "uptime_ms": null, "draining": false,
            "store": store, "opened": {"closed_cleanly": false, "recount": "right, 0 rows", "cut": null},
            "scrub": {"reading": null, "rows": 0, "bytes": 0, "disk_bytes": 0, "findings": [],
                "last": null}, "next_seq": 3,
            "synced_through": 2, "unsynced_groups": 0, "fencing": false, "buffered_hooks": 0,
            "queue": {"pending": 0, "scheduled": 2, "inflight": 0, "dead": 0, "bytes": null,
                "archive_pending": 0, "dedupe": 0, "dead_bytes": 0, "lanes": 0, "lanes_blocked": 0, "lane_members": 0}})
    );
    let table = node.ctl(&["status"]).await;
    assert!(table.out.contains("\nqueue.scheduled             2\n"), "{}", table.out);

    let tree = node.ctl(&["tree", "--json"]).await.value();
    let children = tree["children"].as_array().unwrap();
    let told: Vec<_> = children
        .iter()
        .map(|child| {
            let text = |key: &str| child[key].as_str().unwrap_or("-").to_owned();
            assert_eq!((&child["restarts"], &child["downs"]), (&json!(0), &json!(0)), "{child}");
            (text("id"), text("parent"), text("strategy"), text("state"))
        })
        .collect();
    let row = |id: &str, parent: &str, strategy: &str| {
        (id.to_owned(), parent.to_owned(), strategy.to_owned(), "running".to_owned())
    };
    let expected = [
        row("core", "node", "rest_for_one"),
        row("store", "core", "-"),
        row("queue", "core", "one_for_all"),
        row("syncer", "queue", "-"),
        row("writer", "queue", "-"),
        row("services", "core", "one_for_one"),
        row("rate_limiter", "services", "-"),
        row("quarantine", "services", "-"),
        row("quarantine_reaper", "services", "-"),
        row("dispatch", "services", "-"),
        row("dedupe_sweeper", "services", "-"),
        row("scrubber", "services", "-"),
        row("recounter", "services", "-"),
        row("front", "node", "one_for_one"),
        row("control", "front", "-"),
        row("gauges", "front", "-"),
        row("admin", "front", "-"),
        row("batcher-1", "front", "-"),
        row("batcher-2", "front", "-"),
        row("ingest", "front", "-"),
    ];
    assert_eq!(told, expected);
    let table = node.ctl(&["tree"]).await.out;
    assert!(table.starts_with("CHILD "), "{table}");
    assert!(table.contains("\n    writer             -             running "), "{table}");
    assert!(table.contains("\nstore.reserve_bytes         67108864\n"), "{table}");
}

#[tokio::test]
async fn ready_metrics_and_hooks_can_be_asked() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let mut ids = Vec::new();
    for number in 0..5 {
        ids.push(node.accepted(format!("hook {number}").as_bytes()).await);
    }
    let ready = node.ctl(&["ready", "--json"]).await;
    let expected =
        "{\"status\":\"ready\",\"instance\":\"default\",\"store\":\"ok\",\"disk\":\"ok\"}\n";
    assert_eq!((ready.code, ready.out.as_str(), ready.err.as_str()), (Some(0), expected, ""));
    let metrics = node.ctl(&["metrics"]).await;
    let committed = "ankusa_ingest_requests_total{instance=\"default\",source_id=\"demo\",outcome=\"committed\"} 5\n";
    assert!(metrics.out.contains(committed), "{}", metrics.out);

    let hooks = async |args: &[&str]| {
        let told = node.ctl(&[&["hooks", "--json"], args].concat()).await.value();
        let hooks = told["hooks"].as_array().unwrap();
        let hooks: Vec<_> = hooks
            .iter()
            .map(|hook| (hook["seq"].as_u64().unwrap(), hook["id"].as_str().unwrap().to_owned()))
            .collect();
        (hooks, told["more"].as_bool().unwrap())
    };
    let all: Vec<_> = (1..).zip(ids).collect();
    assert_eq!(hooks(&[]).await, (all.clone(), false));
    assert_eq!(hooks(&["--limit", "2"]).await, (all[..2].to_vec(), true));
    assert_eq!(hooks(&["--after", "2", "--limit", "3"]).await, (all[2..].to_vec(), false));
    assert_eq!(hooks(&["--after", "5"]).await, (vec![], false));
    assert_eq!(hooks(&["--after", "18446744073709551615"]).await, (vec![], false));
    for (query, field) in [("after=x", "after"), ("after=-1", "after"), ("limit=many", "limit")] {
        let answer = node.control("GET", &format!("/v1/hooks?{query}")).await.unwrap();
        let expected = format!(r#"{{"error":"invalid_filter","field":"{field}"}}"#);
        assert_eq!(answer.sorted(), Answer::json(400, &expected, &[]), "{query}");
    }
}

#[tokio::test]
async fn a_dump_has_every_row_and_says_that_it_is_whole() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let mut ids = BTreeSet::new();
    for number in 0..7 {
        ids.insert(node.accepted(format!("hook {number}").as_bytes()).await);
    }
    until("all were tried", async || (node.counter("scheduled").await == 7).then_some(())).await;
    let told = node.ctl(&["dump"]).await;
    assert_eq!((told.code, told.err.as_str()), (Some(0), ""));
    let rows = Rows::read(&told.out);
    assert_eq!(
        rows.end,
        json!({"end": true, "rows": rows.rows.len(), "synced_through": 7, "next_seq": 8})
    );
    let envelopes = rows.envelopes();
    assert_eq!(envelopes.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    let stored: BTreeSet<_> =
        envelopes.values().map(|envelope| envelope.id.as_str().to_owned()).collect();
    assert_eq!(stored, ids);
    let states: Vec<_> = rows.deliveries().into_iter().collect();
    let expected: Vec<_> = (1..=7).map(|seq| ((seq, 0), RowState::Pending)).collect();
    assert_eq!(states, expected);
    node.assert_sound().await;
}

#[tokio::test]
async fn a_reopened_store_goes_on_where_it_was() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    let mut ids = vec![node.accepted(b"0").await];
    for generation in 2..5 {
        let told = node.ctl(&["store", "reopen", "--json"]).await;
        assert_eq!((told.code, told.out.as_str()), (Some(0), "{\"status\":\"reopened\"}\n"));
        assert_eq!(node.status().await["store"]["generation"], generation);
        ids.push(node.accepted(b"after").await);
    }
    let hooks = node.hooks().await;
    let stored: Vec<_> = hooks.iter().map(|hook| hook["id"].as_str().unwrap()).collect();
    assert_eq!(stored, ids);
    node.assert_sound().await;
}

#[tokio::test]
async fn a_reopen_under_load_costs_at_most_answers_of_503() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let load = Load::start(node.http_port, "/webhooks/demo", 8, 1);
    for turn in 1..5 {
        load.acked(turn * 25).await;
        assert_eq!(node.ctl(&["store", "reopen"]).await.code, Some(0));
    }
    load.acked(load.acked_so_far() + 25).await;
    let sent = load.stop().await;
    node.drained().await;
    let delivered: BTreeSet<_> = worker
        .seen()
        .iter()
        .map(|seen| (seen.header("x-ankusa-id").unwrap(), seen.body.to_vec()))
        .collect();
    let bodies: BTreeSet<_> = delivered.iter().map(|(_, body)| body.clone()).collect();
    for (body, outcome) in sent {
        match outcome {
            Outcome::Acked(id) => assert!(delivered.contains(&(id, body))),
            Outcome::Refused(503) => assert!(!bodies.contains(&body), "refused and delivered"),
            Outcome::Refused(status) => panic!("{status}"),
            Outcome::Unanswered => panic!("closed unanswered"),
        }
    }
    node.assert_sound().await;
}

#[tokio::test]
async fn a_child_crashes_only_where_that_is_allowed() {
    let worker = taking().await;
    let node =
        TestNode::start(json!({"sources": demo(&worker), "control": {"allow_crash": false}})).await;
    let said = "crash_not_allowed (message=set control.allow_crash: true to allow this)\n";
    let refusal = Told { code: Some(1), out: String::new(), err: said.to_owned() };
    assert_eq!(node.ctl(&["crash", "writer"]).await, refusal);
    assert_eq!(node.ctl(&["crash", "nobody"]).await, refusal);
    assert_eq!(node.restarts("writer").await, 0);
}

#[tokio::test]
async fn after_any_child_has_crashed_the_node_takes_hooks_again() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let mut accepted = BTreeSet::new();
    for child in [
        "writer",
        "syncer",
        "store",
        "dispatch",
        "dedupe_sweeper",
        "scrubber",
        "recounter",
        "batcher-1",
        "batcher-2",
        "ingest",
        "admin",
        "gauges",
        "control",
    ] {
        let before = node.restarts(child).await;
        let told = node.ctl(&["crash", child, "--json"]).await;
        // Whoever crashes the server it asks may not hear of it.
        if child != "control" || told.code == Some(0) {
            assert_eq!(told.code, Some(0), "{told:?}");
            assert_eq!(told.value(), json!({"status": "crashed", "child": child}));
        }
        until("it was restarted", async || {
            let tree = node.control("GET", "/v1/tree").await.ok()?.value();
            let found = tree["children"]
                .as_array()
                .unwrap()
                .iter()
                .find(|row| row["id"] == child)
                .cloned()
                .unwrap();
            let again = found["restarts"].as_u64() > Some(before) && found["state"] == "running";
            again.then(|| assert_eq!(found["last_failure"], "told to crash"))
        })
        .await;
        accepted.insert(
            until("a hook is accepted", async || {
                let hook = common::request("POST", "/webhooks/demo", &[], child.as_bytes());
                let answer = node.client().await.ask(&hook).await.ok()?;
                (answer.status == 201).then(|| answer.id())
            })
            .await,
        );
        until("the admin port answers", async || {
            let mut client = Client::try_tcp(node.admin_port).await.ok()?;
            let asked = client.ask(&common::request("GET", "/ready", &[], b"")).await.ok()?;
            (asked.status == 200).then_some(())
        })
        .await;
    }
    node.drained().await;
    let delivered: BTreeSet<_> =
        worker.seen().iter().map(|seen| seen.header("x-ankusa-id").unwrap()).collect();
    let lost: Vec<_> = accepted.difference(&delivered).collect();
    assert_eq!(lost, Vec::<&String>::new());
    node.assert_sound().await;
}

#[tokio::test]
async fn what_cannot_be_asked_is_404_and_says_so() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    let not_found = Answer::json(404, r#"{"error":"not_found"}"#, &[]);
    for (method, target) in [
        ("GET", "/"),
        ("GET", "/v1"),
        ("GET", "/v1/frobnicate"),
        ("GET", "/v1/status/"),
        ("GET", "//v1/status"),
        ("GET", "/v1/st%61tus"),
        ("GET", "/v1/stop"),
        ("GET", "/v1/crash?child=writer"),
        ("GET", "/v1/store/reopen"),
        ("POST", "/v1/status"),
        ("POST", "/v1/dump"),
        ("POST", "/v1/dlq"),
        ("DELETE", "/v1/hooks"),
        ("PUT", "/metrics"),
        ("POST", "/webhooks/demo"),
    ] {
        let mut answer = node.control(method, target).await.unwrap().sorted();
        answer.headers.retain(|(name, _)| name != "allow");
        assert_eq!(answer, not_found, "{method} {target}");
    }
    let nobody = node.control("POST", "/v1/crash?child=nobody%20%22at%22%20all").await.unwrap();
    let expected = r#"{"error":"no_such_child","child":"nobody \"at\" all"}"#;
    assert_eq!(nobody.sorted(), Answer::json(404, expected, &[]));
    assert_eq!(node.control("POST", "/v1/crash").await.unwrap().status, 404);
    assert_eq!(
        node.ctl(&["crash", "nobody"]).await,
        Told {
            code: Some(1),
            out: String::new(),
            err: "no_such_child (child=nobody)\n".to_owned()
        }
    );
    assert_eq!(node.ctl(&["frobnicate"]).await.code, Some(2));
    assert_eq!(node.restarts("writer").await, 0);
    assert_eq!(node.status().await["draining"], false);
}

#[tokio::test]
async fn clients_that_misbehave_are_in_nobody_elses_way() {
    let worker = refusing().await;
    let node = keeping(&worker, json!({})).await;
    for number in 0..20 {
        node.accepted(format!("hook {number}").as_bytes()).await;
    }
    let mut idle = Vec::new();
    for begun in
        ["", "GET /v1/sta", "GET /v1/status HTTP/1.1\r\nhost: a\r\n"].iter().cycle().take(200)
    {
        let mut client = Client::try_unix(&node.socket()).await.unwrap();
        client.send(begun.as_bytes()).await.unwrap();
        idle.push(client);
    }
    for garbage in [
        &b"\0\0\0\x05hello"[..],
        b"\xff\xff\xff\xff",
        b"status\n",
        b"GET /v1/status\r\n\r\n",
        b"GET /v1/\xff HTTP/1.1\r\n\r\n",
        b"{\"verb\": \"status\"}\n",
    ] {
        let mut client = Client::try_unix(&node.socket()).await.unwrap();
        client.send(garbage).await.unwrap();
        client.finish().await;
        let said = String::from_utf8(client.rest().await).unwrap();
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 400 "), "{said}");
    }
    // Gone before the answer, or in the middle of it.
    for _ in 0..20 {
        let mut client = Client::try_unix(&node.socket()).await.unwrap();
        client.send(&common::request("GET", "/v1/dump", &[], b"")).await.unwrap();
    }
    // Several questions in one piece.
    let mut client = Client::try_unix(&node.socket()).await.unwrap();
    let question = common::request("GET", "/v1/status", &[], b"");
    client.send(&question.repeat(5)).await.unwrap();
    for _ in 0..5 {
        assert_eq!(client.answer().await.unwrap().value()["next_seq"], 21);
    }
    assert_eq!(node.ctl(&["status"]).await.code, Some(0));
    assert_eq!(node.dump().await.envelopes().len(), 20);
    assert_eq!(node.restarts("control").await, 0);
    drop(idle);
}
