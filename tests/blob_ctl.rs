//! Objects over `ankusa ctl blob`: every verb and every error, on a node with a store of its own and on nodes whose store is
//! somewhere else, or nowhere. And the probe of a boot, and `ankusa blob-check`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;
#[path = "support/s3_servers.rs"]
mod s3_servers;

use std::fs::{self, File};
use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use common::node::{demo, merge, run};
use common::worker::{Answer, Worker};
use common::{Chance, TestNode, Told, until};
use serde_json::{Value, json};

async fn taking() -> Worker {
    Worker::start(Answer::status(200)).await
}

/// A node with its own folder for a store.
async fn local(worker: &Worker) -> TestNode {
    TestNode::start(json!({"sources": demo(worker)})).await
}

/// A store of S3 at `endpoint` that is asked once and no more.
fn s3(endpoint: &str, more: Value) -> Value {
    let mut s3 = json!({"bucket": "bucket", "endpoint": endpoint, "access_key_id": "id",
        "secret_access_key": "secret", "retries": 0});
    merge(&mut s3, more);
    json!({"type": "s3", "s3": s3})
}

/// An address that nobody listens at.
fn nobody() -> String {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    format!("http://{}", free.local_addr().unwrap())
}

/// `ctl blob` with these arguments.
async fn blob(node: &TestNode, args: &[&str]) -> Told {
    node.ctl(&[&["blob"], args].concat()).await
}

/// The same with a standard input.
async fn blob_with(node: &TestNode, args: &[&str], input: &[u8]) -> Told {
    let path = node.path("input");
    fs::write(&path, input).unwrap();
    let mut command = node.command();
    command.args(["ctl", "--socket"]).arg(node.socket()).arg("blob").args(args);
    // A pipe: how much comes is not known before it ends.
    let (reader, mut writer) = std::io::pipe().unwrap();
    let bytes = input.to_vec();
    std::thread::spawn(move || writer.write_all(&bytes));
    command.stdin(Stdio::from(reader));
    run(command).await
}

fn told(code: i32, out: &str, err: &str) -> Told {
    Told { code: Some(code), out: out.to_owned(), err: err.to_owned() }
}

fn file(node: &TestNode, name: &str, bytes: &[u8]) -> String {
    let path = node.path(name);
    fs::write(&path, bytes).unwrap();
    text(&path)
}

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The names of everything in a folder that is there.
fn names(folder: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[tokio::test]
async fn an_object_is_put_listed_told_read_and_removed() {
    let worker = taking().await;
    let node = local(&worker).await;
    let of = ["--store", "segments"];
    let source = file(&node, "source", b"what is kept");

    let put = blob(&node, &["put", "a/one", &source, of[0], of[1]]).await;
    assert_eq!(put, told(0, "store  segments\nkey    a/one\nbytes  12\n", ""));
    let put = blob_with(&node, &["put", "a/two & three", "-", of[0], of[1], "--json"], b"").await;
    let expected = "{\"store\":\"segments\",\"key\":\"a/two & three\",\"bytes\":0}\n";
    assert_eq!(put, told(0, expected, ""));

    let listed = blob(&node, &["ls", of[0], of[1]]).await;
    let table = "       BYTES  KEY\n          12  a/one\n           0  a/two & three\nobjects: 2, bytes: 12\n";
    assert_eq!(listed, told(0, table, ""));
    let listed = blob(&node, &["ls", "a/o", of[0], of[1], "--json"]).await;
    let lines = "{\"key\":\"a/one\",\"bytes\":12}\n{\"end\":true,\"objects\":1,\"bytes\":12}\n";
    assert_eq!(listed, told(0, lines, ""));
    let listed = blob(&node, &["ls", "b", of[0], of[1]]).await;
    assert_eq!(listed, told(0, "       BYTES  KEY\nobjects: 0, bytes: 0\n", ""));

    let stat = blob(&node, &["stat", "a/one", of[0], of[1]]).await;
    assert_eq!(stat, told(0, "store  segments\nkey    a/one\nbytes  12\n", ""));
    assert_eq!(
        blob(&node, &["get", "a/one", "-", of[0], of[1]]).await,
        told(0, "what is kept", "")
    );
    let copy = text(&node.path("copy"));
    let got = blob(&node, &["get", "a/one", &copy, of[0], of[1], "--json"]).await;
    let expected = "{\"store\":\"segments\",\"key\":\"a/one\",\"bytes\":12}\n";
    assert_eq!(got, told(0, expected, ""));
    assert_eq!(fs::read(&copy).unwrap(), b"what is kept");

    // Written over, as a put does.
    let other = file(&node, "source", b"another");
    assert_eq!(blob(&node, &["put", "a/one", &other, of[0], of[1]]).await.code, Some(0));
    assert_eq!(blob(&node, &["get", "a/one", "-", of[0], of[1]]).await.out, "another");

    for _again in 0..2 {
        let removed = blob(&node, &["rm", "a/one", of[0], of[1]]).await;
        assert_eq!(removed, told(0, "store    segments\nremoved  a/one\n", ""));
    }
    let listed = blob(&node, &["ls", of[0], of[1]]).await.out;
    assert!(listed.ends_with("\nobjects: 1, bytes: 0\n"), "{listed}");
    let log = node.log();
    for line in ["an object was put", "an object was removed"] {
        assert!(log.contains(line), "{line}: {log}");
    }
}

#[tokio::test]
async fn what_has_no_store_of_its_own_is_in_that_of_segments() {
    let worker = taking().await;
    let claims = tempfile::tempdir().unwrap();
    let roots = ["one", "two"].map(|name| claims.path().join(name));
    let stores = roots.each_ref().map(|root| json!({"type": "local", "local": {"root": root}}));
    let node =
        TestNode::start(json!({"sources": demo(&worker), "claim_check": {"stores": stores}})).await;
    for (store, content) in [("backup", "1"), ("claims", "2"), ("claims[1]", "3")] {
        let source = file(&node, "source", content.as_bytes());
        assert_eq!(blob(&node, &["put", "key", &source, "--store", store]).await.code, Some(0));
    }
    for (store, content) in [
        ("segments", "1"),
        ("backup", "1"),
        ("claims[0]", "2"),
        ("claims", "2"),
        ("claims[1]", "3"),
    ] {
        let got = blob(&node, &["get", "key", "-", "--store", store]).await;
        assert_eq!(got, told(0, content, ""), "{store}");
    }
    assert_eq!(fs::read(node.path("data/default/segments/key")).unwrap(), b"1");
    assert_eq!(roots.map(|root| fs::read(root.join("key")).unwrap()), [b"2", b"3"]);
}

#[tokio::test]
async fn a_create_leaves_what_is_there_and_its_own_bytes_are_no_other() {
    let worker = taking().await;
    let node = local(&worker).await;
    let (first, other) = (file(&node, "first", b"first"), file(&node, "other", b"other"));
    let create = async |source: &str| {
        blob(&node, &["put", "key", source, "--if-absent", "--store", "segments"]).await
    };
    assert_eq!(create(&first).await.code, Some(0));
    assert_eq!(create(&first).await.code, Some(0));
    let advice = "another object has this key and was left as it is; take another key, or replace it by putting it \
                  without if_absent";
    assert_eq!(create(&other).await, told(11, "", &format!("already_exists\n{advice}\n")));
    assert_eq!(blob(&node, &["get", "key", "-", "--store", "segments"]).await.out, "first");
}

#[tokio::test]
async fn what_is_not_there_and_what_makes_no_sense_is_said_so() {
    let worker = taking().await;
    let node = local(&worker).await;
    let advice = "there is no such object; `ankusa ctl blob ls` shows those there are";
    let copy = text(&node.path("copy"));
    for args in [&["get", "key", &copy][..], &["get", "key", "-"], &["stat", "key"]] {
        let said = blob(&node, &[args, &["--store", "claims"]].concat()).await;
        assert_eq!(said, told(10, "", &format!("not_found\n{advice}\n")), "{args:?}");
    }
    assert!(!node.path("copy").exists() && !node.path("copy.part").exists());
    let said = blob(&node, &["stat", "key", "--store", "claims", "--json"]).await;
    let expected = json!({"error": "not_found", "message": null, "advice": advice});
    assert_eq!((said.code, said.value(), said.err.as_str()), (Some(10), expected, ""));

    // A key that another one begins with is no object.
    let source = file(&node, "source", b"x");
    assert_eq!(blob(&node, &["put", "key/more", &source, "--store", "claims"]).await.code, Some(0));
    assert_eq!(blob(&node, &["stat", "key", "--store", "claims"]).await.code, Some(10));

    let said = blob(&node, &["put", "a/../b", &source, "--store", "segments"]).await;
    let why = "invalid_filter (field=key, message=no part of a key is empty, '.' or '..', and a key begins and ends with \
               no '/')\n";
    assert_eq!(said, told(2, "", why));
    for store in ["tapes", "claims[1]", "claims[x]", "Segments", ""] {
        let said = blob(&node, &["ls", "--store", store]).await;
        let why = "invalid_filter (field=store, message=this node has segments, backup, claims[0] to claims[0])\n";
        assert_eq!(said, told(2, "", why), "{store:?}");
    }
    assert_eq!(blob(&node, &["ls"]).await.code, Some(2));
    let said = blob(&node, &["put", "key", "/does/not/exist", "--store", "segments"]).await;
    let why = "/does/not/exist: No such file or directory (os error 2)\n";
    assert_eq!(said, told(1, "", why));
    let folder = text(&node.path("data"));
    let said = blob(&node, &["put", "key", &folder, "--store", "segments"]).await;
    assert_eq!(said, told(1, "", &format!("{folder}: is a directory\n")));
    let said = blob(&node, &["get", "key/more", "/does/not/exist", "--store", "claims"]).await;
    let why = "/does/not/exist.part: No such file or directory (os error 2)\n";
    assert_eq!(said, told(1, "", why));

    // Over HTTP, what the command never asks.
    let object = "/v1/blob/object?store=claims&key=key/more";
    for (query, field) in
        [("&length=8388609", "length"), ("&offset=-1", "offset"), ("&size=1", "size")]
    {
        let answer = node.control("GET", &format!("{object}{query}")).await.unwrap();
        assert_eq!(
            (answer.status, answer.value()["field"].clone()),
            (400, json!(field)),
            "{query}"
        );
    }
    assert_eq!(node.control("POST", object).await.unwrap().status, 404);
    assert_eq!(node.admin("/v1/blob/list?store=segments").await.status, 404);
}

#[tokio::test]
async fn an_object_of_any_size_comes_back_as_it_was() {
    let worker = taking().await;
    let node = local(&worker).await;
    let range = 8 << 20;
    for (at, size) in
        [range - 1, range, range + 1, 3 * range, 3 * range + 5].into_iter().enumerate()
    {
        let bytes = Chance::of(at as u64).bytes(size);
        let source = file(&node, "source", &bytes);
        let copy = text(&node.path("copy"));
        let put = if at % 2 == 0 {
            blob(&node, &["put", "large", &source, "--store", "segments"]).await
        } else {
            blob_with(&node, &["put", "large", "-", "--store", "segments"], &bytes).await
        };
        let told_size = format!("store  segments\nkey    large\nbytes  {size}\n");
        assert_eq!(put, told(0, &told_size, ""));
        let got = blob(&node, &["get", "large", &copy, "--store", "segments"]).await;
        assert_eq!(got, told(0, &told_size, ""));
        assert!(fs::read(&copy).unwrap() == bytes, "{size}");
        assert!(!node.path("copy.part").exists());
    }
    let spools = names(node.path("data/default")).into_iter().filter(|name| name.contains("spool"));
    assert_eq!(spools.count(), 0);
}

#[tokio::test]
async fn an_object_that_would_take_the_room_of_hooks_is_refused() {
    let worker = taking().await;
    let node = TestNode::start(json!({"sources": demo(&worker),
        "store": {"resume_free_bytes": 1_u64 << 40}}))
    .await;
    let source = file(&node, "source", &vec![7; 9 << 20]);
    let said = blob(&node, &["put", "large", &source, "--store", "segments"]).await;
    let why = "no_space (message=it would lie in a file until it is stored, and the disk needs its room for hooks)\n";
    assert_eq!(said, told(1, "", why));
    let source = file(&node, "source", &vec![7; 8 << 20]);
    assert_eq!(blob(&node, &["put", "large", &source, "--store", "segments"]).await.code, Some(0));
    let listed = blob(&node, &["ls", "--store", "segments"]).await.out;
    assert!(listed.ends_with("\nobjects: 1, bytes: 8388608\n"), "{listed}");
}

#[tokio::test]
async fn what_a_bucket_refuses_has_an_exit_code_and_says_what_to_do() {
    let xml = |code: &str| format!("<Error><Code>{code}</Code><Message>no</Message></Error>");
    for (answer, code, begins, advice) in [
        (Answer::status(403).body(xml("AccessDenied")), 16, "forbidden: ", "check the credentials"),
        (Answer::status(404).body(xml("NoSuchBucket")), 19, "misconfigured: ", "check the name of"),
        (
            Answer::status(301)
                .header("x-amz-bucket-region", "eu-west-1")
                .body(xml("PermanentRedirect")),
            18,
            "wrong_region: the bucket is in eu-west-1",
            "set region to the one",
        ),
        (
            Answer::status(403)
                .header("date", "Mon, 30 Nov 2020 00:00:00 GMT")
                .body(xml("RequestTimeTooSkewed")),
            17,
            "clock_skew: ",
            "set this host's clock",
        ),
        (
            Answer::status(503).header("retry-after", "7").body(xml("SlowDown")),
            13,
            "throttled: not before 7 s",
            "the store wants to be left alone",
        ),
        (
            Answer::status(500).body(xml("InternalError")),
            20,
            "transport: ",
            "the store could not be reached",
        ),
    ] {
        let bucket = Worker::start(answer).await;
        let mut storage = s3(&bucket.url(""), json!({}));
        storage["probe"] = json!(false);
        let worker = taking().await;
        let node = TestNode::start(json!({"sources": demo(&worker), "storage": storage})).await;
        let said = blob(&node, &["ls", "--store", "segments"]).await;
        assert_eq!((said.code, said.out.as_str()), (Some(code), ""), "{said:?}");
        let (what, to_do) = said.err.split_once('\n').unwrap();
        assert!(what.starts_with(begins) && to_do.starts_with(advice), "{said:?}");
    }
}

#[tokio::test]
async fn a_node_whose_bucket_cannot_be_reached_starts_and_takes_hooks() {
    let worker = taking().await;
    let storage = s3(&nobody(), json!({"breaker_failures": 8, "breaker_open_ms": 600_000}));
    let mut node = TestNode::start(json!({"sources": demo(&worker), "storage": storage})).await;
    node.accepted(b"a hook").await;
    node.drained().await;
    // The boot has tried it, and says so.
    let said = node.log();
    let warning = "the store of segments, backup, claims (s3 bucket at http://127.0.0.1:";
    assert!(
        said.contains(warning) && said.contains("could not be tried: create: transport: "),
        "{said}"
    );
    // Now and then in the background, too: until its breaker opens, each call is a failure of its own.
    let opened = until("its breaker opens", async || {
        let said = blob(&node, &["ls", "--store", "segments"]).await;
        assert!(said.err.starts_with("transport: ") || said.code == Some(15), "{said:?}");
        (said.code != Some(20)).then_some(said)
    })
    .await;
    let advice = "nothing was sent, because the store failed too often a moment ago; the log says how, and after \
                  breaker_open_ms it is tried again";
    assert_eq!(opened, told(15, "", &format!("breaker_open\n{advice}\n")));
    let metrics = node.admin("/metrics").await.text();
    let refused = metrics.lines().find(|line| {
        line.starts_with("ankusa_blob_store_operations_total{") && line.contains("\"breaker_open\"")
    });
    for label in ["store=\"segments\"", "verb=\"list\""] {
        assert!(refused.is_some_and(|line| line.contains(label)), "{refused:?}");
    }
    node.accepted(b"another").await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_bucket_that_never_answers_holds_a_boot_up_for_seconds_alone() {
    let worker = taking().await;
    let bucket = Worker::start(Answer::never()).await;
    let node = TestNode::start(
        json!({"sources": demo(&worker), "storage": s3(&bucket.url(""), json!({}))}),
    )
    .await;
    node.accepted(b"a hook").await;
    assert!(node.log().contains("could not be tried: create: deadline; "), "{}", node.log());
}

const IGNORES: &str = "must not be used: create again: the store ignores If-None-Match: a second create replaced the \
                       first, so two nodes could own one key";

#[tokio::test]
async fn a_node_does_not_start_on_a_bucket_that_ignores_conditions() {
    let worker = taking().await;
    // It says yes to everything.
    let bucket = Worker::start(Answer::status(200)).await;
    let config = json!({"sources": demo(&worker), "storage": s3(&bucket.url(""), json!({}))});
    let mut node = TestNode::new(config);
    node.spawn();
    assert_eq!(node.exit().await.code(), Some(1), "{}", node.log());
    until("it has said why", async || {
        let log = node.log();
        let last = log.lines().last()?;
        (last.contains("cannot start: the store of segments, backup, claims (s3 bucket at ")
            && last.ends_with(IGNORES))
        .then_some(())
    })
    .await;
    assert!(!node.socket().exists() && !node.path("data/default/store").exists());
    // Told not to try it, it starts.
    node.configure(json!({"storage": {"probe": false}}));
    node.boot().await;
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn a_bucket_that_is_found_to_ignore_conditions_later_ends_the_node() {
    let worker = taking().await;
    let endpoint = nobody();
    let config = json!({"sources": demo(&worker), "storage": s3(&endpoint, json!({}))});
    let mut node = TestNode::start(config).await;
    let id = node.accepted(b"a hook").await;
    let address = endpoint.strip_prefix("http://").unwrap();
    let listener = tokio::net::TcpListener::bind(address).await.unwrap();
    let _bucket = Worker::listen(listener, Answer::status(200));
    assert_eq!(node.exit().await.code(), Some(1), "{}", node.log());
    let said = until("it has said why", async || {
        let log = node.log();
        log.lines().find(|line| line.contains("stopping: ")).map(str::to_owned)
    })
    .await;
    assert!(said.ends_with(IGNORES), "{said}");
    // It stopped as it does when it is told to.
    node.assert_left_sound().await;
    node.configure(json!({"storage": {"probe": false}}));
    node.boot().await;
    assert_eq!(node.hooks().await.first().map_or(json!(id), |hook| hook["id"].clone()), json!(id));
}

#[tokio::test]
async fn a_folder_that_cannot_be_made_keeps_no_node_from_starting() {
    let worker = taking().await;
    let mut node = TestNode::new(json!({"sources": demo(&worker)}));
    let root = file(&node, "root", b"no folder");
    node.configure(json!({"storage": {"local": {"root": &root}}}));
    node.boot().await;
    node.accepted(b"a hook").await;
    let source = file(&node, "source", b"x");
    let said = blob(&node, &["put", "key", &source, "--store", "segments"]).await;
    let why = format!("misconfigured: cannot make {root}: Not a directory (os error 20)\n");
    let advice = "check the name of the bucket or folder, the endpoint and the region\n";
    assert_eq!(said, told(19, "", &format!("{why}{advice}")));
}

/// `blob-check` of a configuration.
async fn blob_check(node: &TestNode) -> Told {
    let mut command = node.command();
    command.args(["blob-check", "--config"]).arg(node.config_file());
    run(command).await
}

#[tokio::test]
async fn blob_check_tries_every_store_once_without_a_node() {
    let mut node = TestNode::new(json!({}));
    let roots = ["one", "two"].map(|name| text(&node.path(name)));
    let store = |root: &str| json!({"type": "local", "local": {"root": root}});
    node.configure(json!({"storage": {"key_prefix": "node-a/", "local": {"root": roots[0]}},
        "claim_check": {"stores": [store(&roots[1]), store(&roots[0])]}}));
    let checks = "  create        ok\n  create again  ok\n  get           ok\n  range         ok\n  list          ok\n  \
                  delete        ok\n                safe\n";
    let expected = format!(
        "segments, backup, claims[1]: local {}\n{checks}claims: local {}\n{checks}",
        roots[0], roots[1]
    );
    assert_eq!(blob_check(&node).await, told(0, &expected, ""));
    assert!(!node.path("data").exists());

    node.configure(json!({"storage": s3(&nobody(), json!({"retries": 0}))}));
    let said = blob_check(&node).await;
    assert_eq!((said.code, said.err.as_str()), (Some(1), ""), "{said:?}");
    assert!(said.out.starts_with("segments, backup: s3 bucket at http://127.0.0.1:"), "{said:?}");
    assert!(said.out.contains("\n  create        failed: transport: "), "{said:?}");
    assert!(
        said.out.contains("\n                unknown: it could not be tried to the end\nclaims: "),
        "{said:?}"
    );

    let bucket = Worker::start(Answer::status(200)).await;
    node.configure(json!({"storage": s3(&bucket.url(""), json!({}))}));
    let said = blob_check(&node).await;
    assert_eq!(said.code, Some(1), "{said:?}");
    let broken = "\n  create again  BROKEN: the store ignores If-None-Match: ";
    assert!(said.out.contains(broken), "{said:?}");
    assert!(said.out.contains("\n                UNSAFE: a node must not use it\n"), "{said:?}");

    node.configure(json!({"storage": {"s3": {"sse": {"type": "kms"}}}}));
    let said = blob_check(&node).await;
    assert_eq!(said, told(78, "", "storage.s3.sse.key_id: is required with type kms\n"));
}

#[tokio::test]
async fn a_real_bucket_is_tried_at_a_start_and_serves_every_verb() {
    let worker = taking().await;
    let spec = s3_servers::seaweedfs().spec("blob-ctl").await;
    let endpoint = spec.endpoint.clone().unwrap();
    let storage = json!({"type": "s3", "key_prefix": "node-a/", "s3": spec});
    let mut node = TestNode::new(json!({"sources": demo(&worker), "storage": storage}));
    let checks = "  create        ok\n  create again  ok\n  get           ok\n  range         ok\n  list          ok\n  \
                  delete        ok\n                safe\n";
    let named = format!("segments, backup, claims: s3 blob-ctl at {endpoint}\n{checks}");
    assert_eq!(blob_check(&node).await, told(0, &named, ""));
    node.boot().await;
    let of = ["--store", "backup"];

    // More than one part each.
    let (first, other) = (Chance::of(1).bytes((17 << 20) + 3), Chance::of(2).bytes(17 << 20));
    let (source, second) = (file(&node, "first", &first), file(&node, "other", &other));
    let key = "node-a/a b/ä+%2F";
    let put = blob(&node, &["put", key, &source, "--if-absent", of[0], of[1]]).await;
    let size = format!("store  backup\nkey    {key}\nbytes  17825795\n");
    assert_eq!(put, told(0, &size, ""));
    let put = blob(&node, &["put", key, &second, "--if-absent", of[0], of[1]]).await;
    assert_eq!(put.code, Some(11), "{put:?}");
    let copy = text(&node.path("copy"));
    assert_eq!(blob(&node, &["get", key, &copy, of[0], of[1]]).await, told(0, &size, ""));
    assert!(fs::read(&copy).unwrap() == first);
    assert_eq!(blob(&node, &["put", key, &second, of[0], of[1]]).await.code, Some(0));
    assert_eq!(blob(&node, &["get", key, &copy, of[0], of[1]]).await.code, Some(0));
    assert!(fs::read(&copy).unwrap() == other);
    let listed = blob(&node, &["ls", of[0], of[1]]).await;
    let table = format!("       BYTES  KEY\n    17825792  {key}\nobjects: 1, bytes: 17825792\n");
    assert_eq!(listed, told(0, &table, ""), "what was tried with is gone");
    assert_eq!(blob(&node, &["rm", key, of[0], of[1]]).await.code, Some(0));
    assert_eq!(blob(&node, &["stat", key, of[0], of[1]]).await.code, Some(10));

    for (wrong, why) in [
        (json!({"secret_access_key": "another"}), "\n  create        failed: forbidden: "),
        (json!({"bucket": "no-such-bucket"}), "\n  create        failed: misconfigured: "),
    ] {
        let mut other = TestNode::new(json!({"storage": storage}));
        other.configure(json!({"storage": {"s3": wrong}}));
        let said = blob_check(&other).await;
        assert!(said.code == Some(1) && said.out.contains(why), "{said:?}");
    }
}

#[tokio::test]
async fn a_reader_that_goes_away_ends_a_listing_quietly() {
    let worker = taking().await;
    let node = local(&worker).await;
    fs::create_dir_all(node.path("data/default/segments/many")).unwrap();
    for n in 0..5_000 {
        File::create(node.path(&format!("data/default/segments/many/{n:05}"))).unwrap();
    }
    let listed = blob(&node, &["ls", "--store", "segments"]).await;
    assert_eq!((listed.code, listed.out.lines().count()), (Some(0), 5_002));
    let mut command = node.command();
    command
        .args(["ctl", "--socket"])
        .arg(node.socket())
        .args(["blob", "ls", "--store", "segments"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    command.stdout(Stdio::from(writer));
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let ended = until("it has ended", async || child.try_wait().unwrap()).await;
    let mut said = String::new();
    std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut said).unwrap();
    assert_eq!((ended.code(), said.as_str()), (Some(1), ""));
}
