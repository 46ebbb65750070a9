//! How hooks are collected on their way to the Writer.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::time::Duration;

use ankusa_actors::ports::sim::SimOp;
use ankusa_actors::queue::CommitAnswer;
use common::{Bench, UNAVAILABLE, millis};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn at_low_load_nothing_waits() {
    let bench = Bench::default();
    let node = bench.start().await;
    let began = Instant::now();
    bench.acked(&node, "acme", "one").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_not_full_waits_for_more_as_long_as_it_is_told_to() {
    let mut bench = Bench::default();
    bench.settings.batcher.max_delay_ms = 50;
    let node = bench.start().await;
    let began = Instant::now();
    let one = bench.sending(&node, bench.hook("acme", "one"));
    millis(30).await;
    let two = bench.sending(&node, bench.hook("acme", "two"));
    assert!(matches!(one.await.unwrap(), CommitAnswer::Committed(_)));
    assert_eq!(began.elapsed().as_millis(), 50);
    assert!(matches!(two.await.unwrap(), CommitAnswer::Committed(_)));
    assert_eq!(bench.group_sizes(), [2]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_full_waits_no_longer() {
    let mut bench = Bench::default();
    bench.settings.batcher.max_delay_ms = 50;
    bench.settings.batcher.max_batch = 2;
    let node = bench.start().await;
    let began = Instant::now();
    let one = bench.sending(&node, bench.hook("acme", "one"));
    millis(10).await;
    let two = bench.sending(&node, bench.hook("acme", "two"));
    assert!(matches!(one.await.unwrap(), CommitAnswer::Committed(_)));
    assert!(matches!(two.await.unwrap(), CommitAnswer::Committed(_)));
    assert_eq!(began.elapsed().as_millis(), 11, "it is looked at every millisecond");
    assert_eq!(bench.group_sizes(), [2]);
}

#[tokio::test(start_paused = true)]
async fn while_one_batch_is_handed_over_the_next_one_grows() {
    let mut bench = Bench::default();
    bench.settings.batcher.group_commit_max_bytes = 1;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_millis(10));
    let mut sent = Vec::new();
    for ix in 0..6 {
        sent.push(bench.sending(&node, bench.hook("acme", &ix.to_string())));
        tokio::task::yield_now().await;
    }
    for sent in sent {
        assert!(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
    }
    let sizes = bench.group_sizes();
    assert_eq!(sizes.iter().sum::<u64>(), 6);
    assert!(sizes.len() < 6, "{sizes:?}");
}

#[tokio::test(start_paused = true)]
async fn hooks_that_a_crashed_batcher_had_not_handed_over_are_handed_over_by_the_next() {
    let mut bench = Bench::default();
    bench.settings.batcher.max_delay_ms = 100;
    let node = bench.start().await;
    // The crash waits behind the delay, and the hooks behind the crash.
    let first = bench.sending(&node, bench.hook("acme", "first"));
    millis(1).await;
    assert!(node.handles().board.crash("batcher-1"));
    assert!(matches!(first.await.unwrap(), CommitAnswer::Committed(_)));
    let next = bench.sending(&node, bench.hook("acme", "next"));
    assert!(matches!(next.await.unwrap(), CommitAnswer::Committed(_)));
    let restarts = node.handles().board.report().into_iter().map(|child| child.restarts);
    assert_eq!(restarts.sum::<u64>(), 1);
    assert_eq!(node.handles().batchers[0].admission().records(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_while_its_hook_waits_has_it_forgotten() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_millis(100));
    let first = bench.sending(&node, bench.hook("acme", "first"));
    millis(1).await;
    let gone = bench.sending(&node, bench.hook("acme", "gone"));
    millis(1).await;
    gone.abort();
    assert!(matches!(first.await.unwrap(), CommitAnswer::Committed(_)));
    bench.disk.slow(SimOp::Apply, Duration::ZERO);
    millis(200).await;
    assert_eq!(bench.stored().len(), 1);
    assert_eq!(node.handles().batchers[0].admission().records(), 0, "and its room is given back");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_hangs_up_once_its_hook_has_been_started_leaves_it_behind() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(100));
    let gone = bench.sending(&node, bench.hook("acme", "gone"));
    millis(1).await;
    gone.abort();
    millis(200).await;
    assert_eq!(bench.durable(), [(1, "gone".to_owned())]);
    assert_eq!(node.handles().batchers[0].admission().records(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_takes_no_hooks_has_nobody_to_hand_them_to() {
    let mut bench = Bench::default();
    bench.settings.roles.edge = false;
    let node = bench.start().await;
    assert_eq!(node.handles().batchers.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn with_its_only_batcher_down_the_partition_refuses_at_once() {
    let bench = Bench::default();
    let node = bench.start().await;
    for _ in 0..11 {
        assert!(node.handles().board.crash("batcher-1"));
        millis(1).await;
    }
    let began = Instant::now();
    assert_eq!(bench.send(&node, bench.hook("acme", "one")).await, UNAVAILABLE);
    assert_eq!(began.elapsed(), Duration::ZERO);
    millis(1_000).await;
    bench.acked(&node, "acme", "two").await;
}
