//! A stop loses nothing that was acked, answers everybody, and ends within its bound whatever the disk does.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::Admin;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::Seq;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::CommitAnswer;
use ankusa_actors::supervision::Shutdown;
use ankusa_actors::tree::Front;
use common::probe::{Journal, Probe, ProbeMsg};
use common::{Bench, UNAVAILABLE, millis, secs};
use tokio::time::Instant;

const LIMIT: Duration = Duration::from_secs(300);

async fn stop(node: Node) -> (bool, u64) {
    let began = Instant::now();
    let in_time = node.stop(LIMIT).await;
    (in_time, began.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn what_the_batchers_hold_is_committed_before_they_leave() {
    let mut bench = Bench::default();
    bench.settings.batcher.max_batch = 4;
    bench.settings.batcher.group_commit_max_records = 4;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_millis(10));
    bench.disk.slow(SimOp::Sync, Duration::from_millis(10));
    let sent: Vec<_> =
        (0..50).map(|ix| bench.sending(&node, bench.hook("acme", &ix.to_string()))).collect();
    millis(1).await;
    assert_eq!(stop(node).await, (true, 0));
    for sent in sent {
        assert!(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
    }
    bench.disk.cut_power();
    assert_eq!(bench.durable().len(), 50);
}

#[tokio::test(start_paused = true)]
async fn everything_acked_is_there_after_a_stop_and_the_next_start_goes_on_behind_it() {
    let bench = Bench::default();
    let node = bench.start().await;
    for body in ["one", "two"] {
        bench.acked(&node, "acme", body).await;
    }
    assert_eq!(stop(node).await, (true, 0));
    assert_eq!(bench.disk.unsynced_batches(), 0);
    bench.disk.cut_power();
    let node = bench.start().await;
    assert_eq!(bench.acked(&node, "blue", "three").await, Seq(3));
    assert_eq!(bench.durable().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn while_a_stop_is_announced_hooks_are_still_taken_and_ready_says_draining() {
    let bench = Bench::default();
    let node = bench.start().await;
    let admin = Admin::new(node.handles().clone(), bench.settings.clone(), "0");
    assert!(admin.ready().await.0);
    node.announce_stop();
    let (ready, answer) = admin.ready().await;
    assert_eq!((ready, answer["status"].as_str()), (false, Some("draining")));
    assert_eq!(admin.status()["draining"], true);
    bench.acked(&node, "acme", "late").await;
    assert_eq!(stop(node).await, (true, 0));
}

#[tokio::test(start_paused = true)]
async fn a_stop_behind_an_fsync_that_hangs_ends_in_its_bound_and_tells_nobody_anything_untrue() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(3_600));
    let sent = bench.sending(&node, bench.hook("acme", "in flight"));
    millis(1).await;
    // The Syncer gets its drain and is killed.
    assert_eq!(stop(node).await, (true, 10));
    assert_eq!(sent.await.unwrap(), CommitAnswer::Unknown);
    assert!(!bench.disk.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_stop_behind_an_apply_that_hangs_ends_in_its_bound() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_secs(3_600));
    let sent = bench.sending(&node, bench.hook("acme", "in flight"));
    millis(1).await;
    let behind = bench.sending(&node, bench.hook("acme", "behind it"));
    assert_eq!(stop(node).await, (true, 10));
    assert_eq!(sent.await.unwrap(), CommitAnswer::Unknown);
    assert_eq!(behind.await.unwrap(), UNAVAILABLE, "it was never started");
    assert!(!bench.disk.is_open());
}

#[tokio::test(start_paused = true)]
async fn an_fsync_that_fails_during_a_stop_leaves_its_hooks_unknown() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "acked").await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    bench.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::IoError));
    let sent = bench.sending(&node, bench.hook("acme", "unknown"));
    millis(1).await;
    assert_eq!(stop(node).await, (true, 0));
    assert_eq!(sent.await.unwrap(), CommitAnswer::Unknown);
    bench.disk.cut_power();
    assert_eq!(bench.durable(), [(1, "acked".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_fence_does_not_wait_for_the_disk() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.fail_writes(FailureClass::IoError);
    let sent = bench.sending(&node, bench.hook("acme", "unknown"));
    millis(200).await;
    assert_eq!(stop(node).await, (true, 0));
    assert_eq!(sent.await.unwrap(), CommitAnswer::Unknown);
    bench.disk.heal();
    let node = bench.start().await;
    bench.acked(&node, "acme", "after").await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_is_closed_does_not_wait_for_its_next_try() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::NoSpace).until_healed());
    node.handles().store.reopen().await.unwrap_err();
    secs(60).await;
    assert_eq!(stop(node).await, (true, 0));
    secs(120).await;
    assert!(!bench.disk.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_core_is_down_does_not_wait_for_it() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.fail_writes(FailureClass::IoError);
    assert!(node.handles().board.crash("store"));
    millis(1_500).await;
    assert_eq!(stop(node).await, (true, 0));
}

/// A listener that holds its last connection for as long as it is let.
fn with_listener(bench: &mut Bench, allowed: Duration) -> Probe {
    let listener = Probe::new("ingest", &Journal::default());
    let child = listener.clone();
    bench.front = Arc::new(move |_: &_| Front {
        before: Vec::new(),
        after: vec![child.child(Shutdown::Drain(allowed))],
    });
    listener
}

fn hold_a_connection(listener: &Probe, for_: Duration) {
    let actor = listener.slot.get().unwrap();
    tokio::spawn(async move {
        let _ = actor.call(|reply| ProbeMsg::Ask(reply, for_), None).await;
    });
}

#[tokio::test(start_paused = true)]
async fn while_a_listener_drains_everything_behind_it_still_works() {
    let mut bench = Bench::default();
    let listener = with_listener(&mut bench, Duration::from_secs(20));
    let node = bench.start().await;
    hold_a_connection(&listener, Duration::from_secs(15));
    millis(1).await;
    let batcher = node.handles().batchers[0].clone();
    let stopping = tokio::spawn(stop(node));
    secs(10).await;
    let (waiting, deadline) = batcher.submit(bench.hook("acme", "of its last request")).unwrap();
    assert!(matches!(waiting.answer(deadline).await, CommitAnswer::Committed(_)));
    assert_eq!(stopping.await.unwrap(), (true, 14));
    assert_eq!(listener.journal.text(), "+ingest -ingest");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_does_not_end_within_its_limit_is_cut_short() {
    let mut bench = Bench::default();
    let listener = with_listener(&mut bench, Duration::from_secs(120));
    let node = bench.start().await;
    hold_a_connection(&listener, Duration::from_secs(3_600));
    millis(1).await;
    let began = Instant::now();
    assert!(!node.stop(Duration::from_secs(30)).await);
    assert_eq!(began.elapsed().as_secs(), 30);
    millis(1).await;
    assert_eq!(listener.journal.text(), "+ingest xingest");
    assert!(!listener.is_up());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_given_up_can_still_be_stopped() {
    let bench = Bench::default();
    let mut node = bench.start().await;
    for _ in 0..4 {
        assert!(node.handles().board.crash("core"));
        millis(10).await;
    }
    node.gave_up().await;
    node.gave_up().await;
    assert_eq!(stop(node).await, (true, 0));
}

#[tokio::test(start_paused = true)]
async fn hooks_that_a_node_took_with_it_when_it_gave_up_are_unknown() {
    let mut bench = Bench::default();
    bench.settings.store.fence_deadline_ms = 600_000;
    let mut node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(600));
    let sent = bench.sending(&node, bench.hook("acme", "in flight"));
    millis(1).await;
    let board = node.handles().board.clone();
    let crashing = tokio::spawn(async move {
        loop {
            board.crash("core");
            millis(10).await;
        }
    });
    node.gave_up().await;
    crashing.abort();
    assert!(bench.events.lines().iter().all(|line| !line.starts_with("StoreWriteFailed")));
    assert_eq!(sent.await.unwrap(), CommitAnswer::Unknown);
}
