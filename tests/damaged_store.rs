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

/// It was started, and ends by itself. Answers its exit code and the line that says why.
async fn refusal(node: &mut TestNode) -> (Option<i32>, String) {
    node.spawn();
    let code = node.exit().await.code();
    let log = node.log();
    let why = log.lines().find(|line| line.contains("cannot start")).unwrap_or(&log).to_owned();
    (code, why)
}

#[tokio::test]
async fn a_store_whose_open_never_ends_refuses_the_boot_with_path_and_reason() {
    let mut node = node().await;
    unpack(Path::new(HANGING), &store(&node));
    let (code, why) = refusal(&mut node).await;
    assert_eq!(code, Some(1));
    assert!(why.contains(store(&node).to_str().unwrap()), "{why}");
    // A millisecond more than was configured: for the log that is there.
    assert!(why.contains("no result within 1001 ms"), "{why}");
}
