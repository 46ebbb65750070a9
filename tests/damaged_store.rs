//! A node on a store that is damaged: it refuses to boot, says where and why, and exits.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::TestNode;
use common::worker::{self, Worker};
use serde_json::json;

/// A store with one flipped bit in its manifest, on which RocksDB alone reads for ever.
const HANGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/drills/fixtures/manifest-hang.tgz");

/// A node that has not been started, on a sink that takes everything.
async fn node() -> TestNode {
    let worker = Worker::start(worker::Answer::status(200)).await;
    TestNode::new(json!({
        "sources": common::node::demo(&worker),
        "store": {"open_deadline_ms": 1_000},
    }))
}

/// Where its database is.
fn store(node: &TestNode) -> PathBuf {
    node.path("data/default/store")
}

fn unpack(archive: &Path, into: &Path) {
    fs::create_dir_all(into).unwrap();
    let mut tar = Command::new("tar");
    tar.arg("xzf").arg(archive).arg("-C").arg(into).arg("--strip-components=1");
    assert!(tar.status().unwrap().success());
}

/// Puts a pipe nobody writes to in the place of the log: whoever opens it waits for ever.
fn make_the_log_unreadable(store: &Path) {
    let entries = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path());
    for path in entries.filter(|path| path.extension().is_some_and(|is| is == "log")) {
        fs::remove_file(&path).unwrap();
        assert!(Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
}

/// It was started, and ends by itself. Answers its exit code and the line that says why.
async fn refusal(node: &mut TestNode) -> (Option<i32>, String) {
    node.spawn();
    let code = node.exit().await.code();
    let log = node.log();
    let why = log.lines().find(|line| line.contains("cannot start")).unwrap_or(&log).to_owned();
    (code, why)
}

#[tokio::test]
async fn a_manifest_that_keeps_rocksdb_reading_for_ever_refuses_the_boot_with_path_and_reason() {
    let mut node = node().await;
    unpack(Path::new(HANGING), &store(&node));
    let (code, why) = refusal(&mut node).await;
    assert_eq!(code, Some(1));
    assert!(why.contains(store(&node).to_str().unwrap()), "{why}");
    let reason = "MANIFEST-000005 is damaged at byte 300 (a checksum that does not match), and records behind it are whole";
    assert!(why.contains(reason), "{why}");
}

#[tokio::test]
async fn an_open_that_never_ends_refuses_the_boot_with_path_and_reason() {
    let mut node = node().await;
    node.boot().await;
    node.accepted(b"{}").await;
    assert_eq!(node.stop().await, Some(0));
    make_the_log_unreadable(&store(&node));
    let (code, why) = refusal(&mut node).await;
    assert_eq!(code, Some(1));
    assert!(why.contains(store(&node).to_str().unwrap()), "{why}");
    assert!(why.contains("no result within 1000 ms"), "{why}");
}

#[tokio::test]
async fn a_reopen_that_never_ends_leaves_the_store_closed_and_says_corruption() {
    let mut node = node().await;
    node.boot().await;
    node.accepted(b"{}").await;
    make_the_log_unreadable(&store(&node));
    let told = node.ctl(&["store", "reopen"]).await;
    assert_eq!(told.code, Some(1));
    assert!(told.err.contains("no result within 1000 ms"), "{told:?}");
    let ready = node.control("GET", "/ready").await.unwrap();
    assert_eq!((ready.status, &ready.value()["reasons"]), (503, &json!({"store": "corruption"})));
    // The thread that never returns may hold the files: there is no second open beside it.
    let again = node.ctl(&["store", "reopen"]).await;
    assert_eq!((again.code, again.err), (told.code, told.err));
    assert_eq!(node.control("GET", "/health").await.unwrap().status, 200);
}
