//! What an operator is answered: dumps, hooks, status, readiness.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ankusa_actors::admin::{Admin, AdminError, Dump, DumpCursor};
use ankusa_actors::dispatch::dlq::DeadFilter;
use ankusa_actors::dispatch::{PurgeCursor, Purgeable};
use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::Field;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::Seq;
use ankusa_actors::model::keys::HookKey;
use ankusa_actors::node::Node;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::CommitAnswer;
use common::{Bench, EPOCH_MS, millis, secs};
use serde_json::{Value, json};

fn admin(bench: &Bench, node: &Node) -> Admin {
    Admin::new(node.handles().clone(), bench.settings.clone(), "1.2.3")
}

/// Closes the store and keeps it closed for five seconds.
async fn close_store(bench: &Bench, node: &Node) {
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::NoSpace));
    node.handles().store.reopen().await.unwrap_err();
}

/// Every line of a dump, and how many pages it came in.
async fn dump(admin: &Admin) -> (Vec<Value>, usize) {
    let (mut lines, mut pages) = (Vec::new(), 0);
    let mut cursor = Some(DumpCursor::default());
    while let Some(from) = cursor {
        let Dump { lines: page, next } = admin.dump(from).await.unwrap();
        lines.extend(page.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        (cursor, pages) = (next, pages + 1);
    }
    (lines, pages)
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap();
    let byte = |at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

#[tokio::test(start_paused = true)]
async fn a_dump_is_every_row_of_every_family_once_and_says_how_many_there_were() {
    let mut bench = Bench::default();
    bench.settings.roles.storage = true;
    let node = bench.start().await;
    let mut sent = Vec::new();
    for ix in 0..1_050 {
        sent.push(bench.sending(&node, bench.hook("acme", &ix.to_string())));
    }
    for sent in sent {
        assert!(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
    }
    let (mut lines, pages) = dump(&admin(&bench, &node)).await;
    let end = lines.pop().unwrap();
    let of_family = |cf: Cf| {
        let rows = bench.disk.rows(cf).into_iter();
        rows.map(move |(key, value)| (cf.name().to_owned(), key, value))
    };
    let expected: Vec<_> = Cf::ALL.into_iter().flat_map(of_family).collect();
    let row = |line: &Value| {
        (line["cf"].as_str().unwrap().to_owned(), bytes(&line["key"]), bytes(&line["value"]))
    };
    assert!(lines.iter().map(row).eq(expected.clone()), "the rows of the disk, in their order");
    let rows = expected.len();
    let last = json!({"end": true, "rows": rows, "synced_through": 1_050, "next_seq": 1_051});
    assert_eq!(end, last);
    // A page for each thousand rows of a family, at least one for each family, and one for the end.
    let of_family = |cf: Cf| bench.disk.rows(cf).len().div_ceil(1_000).max(1);
    assert_eq!(pages, Cf::ALL.into_iter().map(of_family).sum::<usize>() + 1);
}

#[tokio::test(start_paused = true)]
async fn a_page_of_a_dump_is_bounded_in_bytes_too() {
    let bench = Bench::default();
    let node = bench.start().await;
    let body = "x".repeat(1 << 20);
    for _ in 0..6 {
        bench.acked(&node, "acme", &body).await;
    }
    let (lines, pages) = dump(&admin(&bench, &node)).await;
    assert_eq!(lines.iter().filter(|line| line["cf"] == "hooks").count(), 6);
    assert_eq!(pages, Cf::ALL.len() + 1 + 1, "two for the hooks");
}

#[tokio::test(start_paused = true)]
async fn a_dump_of_a_closed_store_is_an_error_and_not_an_empty_one() {
    let bench = Bench::default();
    let node = bench.start().await;
    close_store(&bench, &node).await;
    let refused = admin(&bench, &node).dump(DumpCursor::default()).await.unwrap_err();
    assert!(matches!(refused, AdminError::StoreUnavailable(_)));
    assert_eq!(refused.to_string(), "store_unavailable");
}

fn seqs(answer: &Value) -> Vec<u64> {
    answer["hooks"].as_array().unwrap().iter().map(|hook| hook["seq"].as_u64().unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn hooks_are_listed_behind_the_last_one_seen_and_never_past_the_synced_mark() {
    let bench = Bench::default();
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    for body in ["one", "two", "three"] {
        bench.acked(&node, "acme", body).await;
    }
    bench.disk.slow(SimOp::Sync, Duration::from_secs(1));
    let sent = bench.sending(&node, bench.hook("acme", "not synced"));
    millis(1).await;
    assert_eq!(bench.stored().len(), 4);
    let list = async |after, limit| {
        let answer = admin.hooks(Seq(after), limit).await.unwrap();
        (seqs(&answer), answer["more"].as_bool().unwrap())
    };
    assert_eq!(list(0, 10).await, (vec![1, 2, 3], false));
    assert_eq!(list(0, 2).await, (vec![1, 2], true));
    assert_eq!(list(2, 2).await, (vec![3], false));
    assert_eq!(list(3, 2).await, (vec![], false));
    assert_eq!(list(u64::MAX, 2).await, (vec![], false));
    assert_eq!(list(0, 0).await, (vec![1], true), "at least one");
    sent.await.unwrap();
    assert_eq!(list(3, 2).await, (vec![4], false));
}

#[tokio::test(start_paused = true)]
async fn a_list_of_hooks_is_bounded_whatever_is_asked_for() {
    let bench = Bench::default();
    let node = bench.start().await;
    let sent: Vec<_> = (0..1_001).map(|_| bench.sending(&node, bench.hook("acme", ""))).collect();
    for sent in sent {
        sent.await.unwrap();
    }
    let answer = admin(&bench, &node).hooks(Seq(0), usize::MAX).await.unwrap();
    assert_eq!((seqs(&answer).len(), &answer["more"]), (1_000, &json!(true)));
}

#[tokio::test(start_paused = true)]
async fn a_listed_hook_is_everything_but_its_body() {
    let bench = Bench::default();
    let node = bench.start().await;
    let mut hook = bench.hook("acme", "12345");
    hook.envelope.content_type = Some("text/plain".into());
    let id = hook.envelope.id;
    bench.send(&node, hook).await;
    let mut nobodys = bench.hook("acme", "");
    nobodys.envelope.tenant_id = None;
    bench.send(&node, nobodys).await;
    let answer = admin(&bench, &node).hooks(Seq(0), 10).await.unwrap();
    let expected = json!({
        "seq": 1,
        "id": id.as_str(),
        "source_id": "src",
        "tenant_id": "acme",
        "received_at": EPOCH_MS,
        "method": "POST",
        "path": "/webhooks/src",
        "content_type": "text/plain",
        "size": 5,
    });
    assert_eq!(answer["hooks"][0], expected);
    let second = &answer["hooks"][1];
    assert_eq!((&second["tenant_id"], &second["content_type"]), (&json!("default"), &json!(null)));
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_cannot_be_read_is_named_and_never_left_out() {
    let mut bench = Bench::default();
    bench.stays_sound = false;
    let node = bench.start().await;
    for body in ["one", "two"] {
        bench.acked(&node, "acme", body).await;
    }
    let mut damage = Batch::default();
    damage.put(Cf::Hooks, &HookKey(Seq(2)).encode(), b"rotten");
    node.handles().store.apply(damage, Lane::Background).await.unwrap();
    let refused = admin(&bench, &node).hooks(Seq(0), 10).await.unwrap_err();
    let AdminError::CorruptValue { family, key, reason } = refused else { panic!("{refused:?}") };
    assert_eq!((family, key.as_str()), ("hooks", "0000000000000002"));
    assert!(!reason.is_empty());
    let first = admin(&bench, &node).hooks(Seq(0), 1).await.unwrap();
    assert_eq!(seqs(&first), [1]);
}

#[tokio::test(start_paused = true)]
async fn the_status_is_what_a_person_reads_first() {
    let mut bench = Bench::default();
    bench.settings.roles.storage = true;
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    for body in ["one", "two"] {
        bench.acked(&node, "acme", body).await;
    }
    secs(3).await;
    let value_bytes: usize = bench.disk.rows(Cf::Hooks).iter().map(|(_, value)| value.len()).sum();
    let expected = json!({
        "instance": "test",
        "version": "1.2.3",
        "roles": ["edge", "storage"],
        "uptime_ms": 3_000,
        "draining": false,
        "store": {
            "open": true,
            "generation": 1,
            "accepting": true,
            "failing": null,
            "writer_blocked": null,
            "closed_for_ms": null,
            "next_attempt_in_ms": null,
            "last_failure": null,
            "free_bytes": bench.disk.room().free_bytes,
            "wal_bytes": bench.disk.room().wal_bytes,
            "reserve_bytes": 64 << 20,
            "reserve_wanted_bytes": 64 << 20,
            "min_free_bytes": 64 << 20,
            "resume_free_bytes": 128 << 20,
        },
        "opened": {"closed_cleanly": false, "recount": "right, 0 rows", "cut": null},
        "scrub": {
            "reading": null, "rows": 0, "bytes": 0, "disk_bytes": 0, "findings": [], "last": null,
        },
        "next_seq": 3,
        "synced_through": 2,
        "unsynced_groups": 0,
        "fencing": false,
        "buffered_hooks": 0,
        "queue": {
            "pending": 2,
            "scheduled": 0,
            "inflight": 0,
            "dead": 0,
            "bytes": value_bytes,
            "archive_pending": 2,
            "dedupe": 0,
            "dead_bytes": 0,
            "lanes": 0,
            "lanes_blocked": 0,
            "lane_members": 0,
        },
    });
    assert_eq!(admin.status(), expected);
    assert_eq!(admin.counter(Field::Pending).unwrap(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_status_shows_what_is_under_way_and_what_is_being_fenced() {
    let bench = Bench::default();
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    bench.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::IoError));
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::ReadOnly).until_healed());
    let sent = bench.sending(&node, bench.hook("acme", "one"));
    millis(1).await;
    let of = |status: &Value| {
        ["unsynced_groups", "buffered_hooks", "fencing"].map(|key| status[key].clone())
    };
    assert_eq!(of(&admin.status()), [json!(1), json!(1), json!(false)]);
    millis(600).await;
    let status = admin.status();
    assert_eq!(of(&status), [json!(0), json!(1), json!(true)]);
    let room = bench.disk.room();
    let expected = json!({
        "open": true,
        "generation": 1,
        "accepting": true,
        "failing": "io_error",
        "writer_blocked": "io_error",
        "closed_for_ms": null,
        // A quarter of a second after the fault, and again after as long.
        "next_attempt_in_ms": 149,
        "last_failure": {"class": "read_only", "op": "probe", "ago_ms": 101},
        "free_bytes": room.free_bytes,
        "wal_bytes": room.wal_bytes,
        "reserve_bytes": 64 << 20,
        "reserve_wanted_bytes": 64 << 20,
        "min_free_bytes": 64 << 20,
        "resume_free_bytes": 128 << 20,
    });
    assert_eq!(status["store"], expected);
    assert_eq!(admin.tree()["store"], expected);
    bench.disk.heal();
    sent.await.unwrap();
    millis(500).await;
    assert_eq!(of(&admin.status()), [json!(0), json!(0), json!(false)]);
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_closed_what_it_would_say_is_null_and_the_rest_is_there() {
    let bench = Bench::default();
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    bench.acked(&node, "acme", "one").await;
    close_store(&bench, &node).await;
    millis(1_000).await;
    let status = admin.status();
    let store = |key: &str| status["store"][key].clone();
    assert_eq!(store("open"), json!(false));
    assert_eq!(store("accepting"), json!(false));
    assert_eq!((store("generation"), store("failing")), (json!(1), json!("no_space")));
    assert_eq!(store("closed_for_ms"), json!(1_000));
    let next_ms = store("next_attempt_in_ms").as_u64().unwrap();
    assert!((2_750..=4_000).contains(&next_ms), "five seconds less up to a quarter: {next_ms}");
    let last = json!({"class": "no_space", "op": "open", "ago_ms": 1_000});
    assert_eq!(store("last_failure"), last);
    assert_eq!((&status["next_seq"], &status["synced_through"]), (&json!(null), &json!(1)));
    let queue = status["queue"].as_object().unwrap();
    assert!(queue.len() == 11 && queue.values().all(Value::is_null), "{queue:?}");
    assert_eq!(admin.wal().await, json!({"instance": "test", "wal": {}}));
    assert!(matches!(admin.counter(Field::Dead), Err(AdminError::StoreUnavailable(_))));
    let listed = admin.hooks(Seq(0), 1).await;
    assert!(matches!(listed, Err(AdminError::StoreUnavailable(_))), "no shorter list");
}

#[tokio::test(start_paused = true)]
async fn the_wal_is_sizes_and_the_next_seq() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "one").await;
    let disk_bytes: usize = Cf::ALL
        .into_iter()
        .flat_map(|cf| bench.disk.rows(cf))
        .map(|(key, value)| key.len() + value.len())
        .sum();
    let wal = json!({"next_seq": 2, "hooks": 1, "deliveries": 1, "disk_bytes": disk_bytes});
    assert_eq!(admin(&bench, &node).wal().await, json!({"instance": "test", "wal": wal}));
}

/// What `/ready` says of a store that fails with `class`. A full disk is one more thing that is wrong.
fn failing(status: &str, class: FailureClass) -> Value {
    let reason = class.as_str();
    let (disk, reasons) = if class == FailureClass::NoSpace {
        ("failing", json!({"store": reason, "disk": "no_space"}))
    } else {
        ("ok", json!({"store": reason}))
    };
    json!({"status": status, "instance": "test", "store": "failing", "disk": disk, "reasons": reasons})
}

#[tokio::test(start_paused = true)]
async fn ready_names_the_class_of_whatever_is_wrong() {
    for class in FailureClass::ALL {
        let bench = Bench::default();
        let node = bench.start().await;
        let admin = admin(&bench, &node);
        let fine = json!({"status": "ready", "instance": "test", "store": "ok", "disk": "ok"});
        assert_eq!(admin.ready().await, (true, fine.clone()));
        secs(1).await;
        bench.disk.fail(Fault::refuse(SimOp::Sync, class));
        assert_eq!(admin.ready().await, (false, failing("unavailable", class)));
        millis(1).await;
        assert_eq!(admin.ready().await, (true, fine), "the store has been reopened");
        bench.disk.fail(Fault::refuse(SimOp::Open, class));
        node.handles().store.reopen().await.unwrap_err();
        assert_eq!(admin.ready().await, (false, failing("unavailable", class)));
        node.announce_stop();
        assert_eq!(admin.ready().await, (false, failing("draining", class)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_drains_and_has_nothing_wrong_says_so() {
    let bench = Bench::default();
    let node = bench.start().await;
    node.announce_stop();
    let draining = json!({"status": "draining", "instance": "test", "store": "ok", "disk": "ok"});
    assert_eq!(admin(&bench, &node).ready().await, (false, draining));
}

#[tokio::test(start_paused = true)]
async fn ready_is_no_while_the_writer_cannot_read_its_state_though_the_store_takes_writes() {
    let bench = Bench::default();
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    let unreadable = Fault::refuse(SimOp::Read, FailureClass::Corruption);
    bench.disk.fail(unreadable.until_healed());
    admin.crash("writer").unwrap();
    secs(1).await;
    let expected = failing("unavailable", FailureClass::Corruption);
    assert_eq!(admin.ready().await, (false, expected));
    assert_eq!(admin.status()["store"]["writer_blocked"], json!("corruption"));
    bench.disk.heal();
    millis(100).await;
    assert!(admin.ready().await.0);
}

#[tokio::test(start_paused = true)]
async fn health_is_green_whatever_the_store_does() {
    let bench = Bench::default();
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    close_store(&bench, &node).await;
    let health = json!({"status": "ok", "instance": "test", "version": "1.2.3", "roles": ["edge"]});
    assert_eq!(admin.health(), health);
    assert_eq!(admin.ingest_health(), json!({"status": "ok", "instance": "test"}));
}

#[tokio::test(start_paused = true)]
async fn the_tree_is_shown_as_the_board_has_it() {
    let bench = Bench::default();
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    secs(10).await;
    admin.crash("writer").unwrap();
    secs(5).await;
    let tree = admin.tree();
    let children: BTreeMap<_, _> = tree["children"]
        .as_array()
        .unwrap()
        .iter()
        .map(|child| (child["id"].as_str().unwrap(), child.clone()))
        .collect();
    let child = |id, parent, strategy: Value, for_ms, restarts, last_failure: Value| {
        json!({"id": id, "parent": parent, "strategy": strategy, "state": "running", "for_ms": for_ms,
            "restarts": restarts, "downs": 0, "last_failure": last_failure})
    };
    let crashed = json!("told to crash");
    assert_eq!(children["writer"], child("writer", "queue", json!(null), 5_000, 1, crashed));
    assert_eq!(children["syncer"], child("syncer", "queue", json!(null), 5_000, 1, json!(null)));
    let queue = child("queue", "core", json!("one_for_all"), 15_000, 0, json!(null));
    assert_eq!(children["queue"], queue);
    assert_eq!(tree["instance"], "test");
}

#[tokio::test(start_paused = true)]
async fn a_child_that_is_not_there_cannot_be_crashed() {
    let bench = Bench::default();
    let node = bench.start().await;
    let refused = admin(&bench, &node).crash("nobody").unwrap_err();
    assert_eq!(refused, AdminError::NoSuchChild("nobody".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn dead_letters_of_a_node_that_does_not_dispatch_are_no_empty_list() {
    let bench = Bench::default();
    let node = bench.start().await;
    let refused = admin(&bench, &node).dlq(&DeadFilter::default(), None, 10).await.unwrap_err();
    assert_eq!(refused, AdminError::RoleNotEnabled("dispatch"));
}

fn all_states() -> BTreeSet<Purgeable> {
    Purgeable::ALL.into_iter().collect()
}

#[tokio::test(start_paused = true)]
async fn a_purge_of_many_rows_answers_now_and_then_and_goes_on_with_its_cursor() {
    let mut bench = Bench::default();
    let node = bench.start().await;
    for _ in 0..2 {
        let hook = |n: u32| bench.sending(&node, bench.hook("acme", &n.to_string()));
        let sending: Vec<_> = (0..5_300).map(hook).collect();
        for sent in sending {
            assert!(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
        }
    }
    assert!(node.stop(Duration::from_secs(60)).await);
    // Their source is not configured: whatever dispatch claims in between is dead, and goes all the same.
    bench.settings.roles.dispatch = true;
    let node = bench.start().await;
    let admin = admin(&bench, &node);
    let first = admin.purge("acme", &all_states(), None).await.unwrap();
    let count = |told: &Value| -> u64 {
        let purged = told["purged"].as_object().unwrap();
        purged.values().map(|rows| rows.as_u64().unwrap()).sum()
    };
    assert!(count(&first) >= 10_000 && count(&first) < 10_500, "{first}");
    let cursor: PurgeCursor = first["next_cursor"].as_str().unwrap().parse().unwrap();
    let second = admin.purge("acme", &all_states(), Some(cursor)).await.unwrap();
    assert_eq!((count(&first) + count(&second), &second["next_cursor"]), (10_600, &Value::Null));
    assert_eq!(bench.rows(Cf::Hooks), 0);
    bench.disk.cut_power();
    assert_eq!(bench.rows(Cf::Hooks), 0, "what was said to be gone does not come back");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_purged_is_refused_by_name() {
    let mut bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "one").await;
    let purge = async |tenant: &str, states: BTreeSet<Purgeable>, cursor: Option<&str>| {
        let cursor = cursor.map(|cursor| cursor.parse().unwrap());
        admin(&bench, &node).purge(tenant, &states, cursor).await.unwrap_err()
    };
    assert_eq!(purge("acme", all_states(), None).await, AdminError::RoleNotEnabled("dispatch"));
    assert!(node.stop(Duration::from_secs(60)).await);
    bench.settings.roles.dispatch = true;
    let node = bench.start().await;
    let purge = async |tenant: &str, states: BTreeSet<Purgeable>, cursor: Option<&str>| {
        let cursor = cursor.map(|cursor| cursor.parse().unwrap());
        admin(&bench, &node).purge(tenant, &states, cursor).await.unwrap_err()
    };
    let nobody = AdminError::TenantNotFound("nobody".to_owned());
    assert_eq!(purge("nobody", all_states(), None).await, nobody);
    let none = BTreeSet::new();
    assert_eq!(purge("acme", none, None).await, AdminError::InvalidFilter("state"));
    let dead = BTreeSet::from([Purgeable::Dead]);
    let other = Some("9.9.0.0.pending.44");
    assert_eq!(purge("acme", dead.clone(), other).await, AdminError::InvalidFilter("cursor"));
    node.handles().dispatch.slot().get().unwrap().kill();
    millis(0).await;
    let killed = purge("acme", dead, None).await;
    assert_eq!(killed, AdminError::DispatchUnavailable);
}
