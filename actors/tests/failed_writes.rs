//! Whoever meets a write that fails, the Store is told; and what a failed fsync leaves is never taken for durable.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::node::Node;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::CommitAnswer;
use ankusa_actors::store::PROBE_RETRY;
use common::{Bench, HTTP, UNAVAILABLE, millis, open_source, secs};
use tokio::time::Instant;

fn bodies(bench: &Bench) -> Vec<String> {
    bench.durable().into_iter().map(|(_, body)| body).collect()
}

/// The classes of failed writes that were reported, in order.
fn reported(bench: &Bench) -> Vec<String> {
    let of = |line: &String| {
        let class = line.strip_prefix("StoreWriteFailed { class: ")?;
        Some(class.trim_end_matches(" }").to_owned())
    };
    bench.events.lines().iter().filter_map(of).collect()
}

/// A node with a hook on its way to a sink that does not exist, so that dispatch writes.
async fn dispatching() -> (Bench, Node) {
    let mut bench = Bench::default();
    bench.settings.roles.dispatch = true;
    bench.sources = Arc::new([open_source("src", "default", &[HTTP])].into_iter().collect());
    let node = bench.start().await;
    (bench, node)
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_of_any_process_is_told_to_the_store_which_is_reopened() {
    for class in FailureClass::ALL {
        // The Writer's group.
        let (bench, node) = dispatching().await;
        bench.disk.fail(Fault::refuse(SimOp::Apply, class).on(Lane::Commit));
        assert_eq!(bench.send(&node, bench.hook("acme", "a")).await, UNAVAILABLE);
        assert_eq!(reported(&bench), [format!("{class:?}")], "the Writer");
        assert_eq!(node.handles().store.state().generation, 2);

        // The Syncer's fsync.
        let (bench, node) = dispatching().await;
        bench.disk.fail(Fault::refuse(SimOp::Sync, class));
        assert_eq!(bench.send(&node, bench.hook("acme", "a")).await, UNAVAILABLE);
        assert_eq!(reported(&bench), [format!("{class:?}")], "the Syncer");
        assert_eq!(node.handles().store.state().generation, 2);

        // Dispatch's claim.
        let (bench, node) = dispatching().await;
        bench.disk.fail(Fault::refuse(SimOp::Apply, class).on(Lane::Background));
        bench.acked(&node, "acme", "a").await;
        secs(1).await;
        assert_eq!(reported(&bench), [format!("{class:?}")], "dispatch");
        assert_eq!(node.handles().store.state().generation, 2);

        // The readiness probe.
        let (bench, node) = dispatching().await;
        bench.disk.fail(Fault::refuse(SimOp::Sync, class));
        assert_eq!(node.handles().readiness.store_failure().await, Some(class));
        secs(1).await;
        assert_eq!(reported(&bench), [format!("{class:?}")], "the readiness probe");
        assert_eq!(node.handles().store.state().generation, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_failed_fence_is_told_to_the_store_and_made_again_after_another_reopen() {
    let refuse = |op| Fault::refuse(op, FailureClass::NoSpace);
    // The first fsync after the one that failed is the fence's, and so is the second batch of the commit lane.
    for fault in [refuse(SimOp::Sync), refuse(SimOp::Apply).after(1).on(Lane::Commit)] {
        let bench = Bench::default();
        let node = bench.start().await;
        bench.acked(&node, "acme", "before").await;
        bench.disk.fail(Fault::sync_landed(FailureClass::IoError));
        bench.disk.fail(fault);
        let began = Instant::now();
        assert_eq!(bench.send(&node, bench.hook("acme", "fenced")).await, UNAVAILABLE);
        assert!(began.elapsed() >= Duration::from_secs(5), "one reopen in five seconds");
        assert_eq!(reported(&bench), ["IoError", "NoSpace"]);
        assert_eq!(node.handles().store.state().generation, 3);
        assert_eq!(bodies(&bench), ["before"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_readiness_probe_that_hangs_counts_as_a_failed_write_and_reopens_nothing() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(60));
    let failure = node.handles().readiness.store_failure().await;
    assert_eq!(failure, Some(FailureClass::Timeout));
    millis(1).await;
    assert_eq!(reported(&bench), ["Timeout"]);
    let last = node.handles().store.state().last_failure.unwrap();
    assert_eq!((last.class, last.op), (FailureClass::Timeout, "probe"));
    secs(120).await;
    assert_eq!(node.handles().store.state().generation, 1);
}

/// RocksDB answers what is written to a file after a failure with an error that does not say why it failed.
#[tokio::test(start_paused = true)]
async fn a_failing_store_goes_by_what_failed_first() {
    let bench = Bench::default();
    let node = bench.start().await;
    let store = node.handles().store.clone();
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::NoSpace).until_healed());
    for class in [FailureClass::NoSpace, FailureClass::IoError] {
        bench.disk.fail(Fault::refuse(SimOp::Apply, class));
        store.apply(Batch::default(), Lane::Background).await.unwrap_err();
        millis(1).await;
        assert_eq!(store.state().failing, Some(FailureClass::NoSpace));
    }
    assert_eq!(reported(&bench), ["NoSpace", "IoError"]);
    bench.disk.heal();
    secs(10).await;
    assert_eq!(store.state().failing, None);
}

/// The fsync has written the hook and lost a page behind it: what is appended to that log later does not come back after
/// a power cut, whatever the next fsync says. A fence in the same open of the store would be no fence.
#[tokio::test(start_paused = true)]
async fn a_fence_is_not_written_behind_a_page_that_a_failed_fsync_has_lost() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    bench.disk.fail(Fault::sync_lands_and_drops_what_follows(FailureClass::IoError));
    assert_eq!(bench.send(&node, bench.hook("acme", "refused")).await, UNAVAILABLE);
    bench.disk.cut_power();
    assert_eq!(bodies(&bench), ["before"], "told 503, and never delivered");
    let node = bench.start().await;
    bench.acked(&node, "acme", "after").await;
    assert_eq!(bodies(&bench), ["before", "after"]);
}

/// From the moment an fsync has failed nobody is let in, though the Writer is busy and has not begun to fence.
#[tokio::test(start_paused = true)]
async fn a_failed_fsync_refuses_new_hooks_at_once_whatever_the_writer_is_doing() {
    let mut bench = Bench::default();
    bench.settings.batcher.stall_ms = 60_000;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    bench.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::IoError));
    // The store stays open: that nobody is let in is not its doing.
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::IoError).until_healed());
    let first = bench.sending(&node, bench.hook("acme", "first"));
    millis(100).await;
    bench.disk.slow(SimOp::Apply, Duration::from_secs(5));
    let second = bench.sending(&node, bench.hook("acme", "second"));
    millis(500).await;
    assert!(node.handles().store.state().takes_hooks());
    let began = Instant::now();
    assert_eq!(bench.send(&node, bench.hook("acme", "third")).await, UNAVAILABLE);
    assert_eq!(began.elapsed(), Duration::ZERO);
    bench.disk.heal();
    assert_eq!(first.await.unwrap(), UNAVAILABLE);
    assert_eq!(second.await.unwrap(), UNAVAILABLE);
    assert_eq!(bodies(&bench), Vec::<String>::new());
    bench.acked(&node, "acme", "fourth").await;
}

/// An apply that fails may have reached the log and show up after the next open. A fence that looks before that finds
/// nothing to delete.
#[tokio::test(start_paused = true)]
async fn a_fence_waits_for_the_reopen_that_shows_what_a_failed_apply_has_left() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    bench.disk.fail(Fault::apply_logged_unseen(FailureClass::IoError).on(Lane::Commit));
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::IoError).times(3));
    let began = Instant::now();
    assert_eq!(bench.send(&node, bench.hook("acme", "refused")).await, UNAVAILABLE);
    assert!(began.elapsed() >= 3 * PROBE_RETRY, "{:?}", began.elapsed());
    assert_eq!(bodies(&bench), ["before"]);
    bench.acked(&node, "acme", "after").await;
    assert_eq!(bodies(&bench), ["before", "after"]);
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_stalls_sheds_new_hooks_and_health_is_not_asked_for_it() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_secs(8));
    let stalled = bench.sending(&node, bench.hook("acme", "stalled"));
    millis(1_100).await;
    for _ in 0..20 {
        let began = Instant::now();
        assert_eq!(bench.send(&node, bench.hook("acme", "shed")).await, common::OVERLOAD);
        assert_eq!(began.elapsed(), Duration::ZERO);
        millis(300).await;
    }
    bench.disk.slow(SimOp::Apply, Duration::ZERO);
    assert!(matches!(stalled.await.unwrap(), CommitAnswer::Committed(_)));
    bench.acked(&node, "acme", "after").await;
    assert_eq!(bodies(&bench), ["stalled", "after"]);
}
