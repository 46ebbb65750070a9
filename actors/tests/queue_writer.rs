//! How groups are formed: their caps, how far they run ahead of the fsync, what they are stamped with.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::delivery::DeliveryRow;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::Seq;
use ankusa_actors::model::keys::{META_NEXT_SEQ, META_SYNCED_THROUGH, read_u64};
use ankusa_actors::node::Node;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::CommitAnswer;
use common::{Bench, EPOCH_MS, UNAVAILABLE, millis, secs};
use tokio::task::JoinHandle;

/// Every batcher hands over each hook by itself: what shares a group was joined by the Writer.
fn one_by_one() -> Bench {
    let mut bench = Bench::default();
    bench.settings.batcher.max_batch = 1;
    bench
}

fn sending(bench: &Bench, node: &Node, count: usize) -> Vec<JoinHandle<CommitAnswer>> {
    (0..count).map(|ix| bench.sending(node, bench.hook("acme", &ix.to_string()))).collect()
}

async fn all_committed(sent: Vec<JoinHandle<CommitAnswer>>) {
    for sent in sent {
        assert!(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_shares_a_group_up_to_its_caps() {
    let hook_bytes = {
        let bench = Bench::default();
        let node = bench.start().await;
        bench.acked(&node, "acme", "0").await;
        bench.disk.rows(Cf::Hooks)[0].1.len()
    };
    let table: [(usize, usize, &[u64]); 3] = [
        (4_096, 4 << 20, &[9]),
        (4, 4 << 20, &[4, 4, 1]),
        (4_096, 2 * hook_bytes, &[2, 2, 2, 2, 1]),
    ];
    for (records, bytes, groups) in table {
        let mut bench = one_by_one();
        bench.settings.batcher.group_commit_max_records = records;
        bench.settings.batcher.group_commit_max_bytes = bytes;
        let node = bench.start().await;
        bench.disk.slow(SimOp::Apply, Duration::from_millis(10));
        let sent = sending(&bench, &node, 9);
        all_committed(sent).await;
        assert_eq!(bench.group_sizes(), groups, "{records} records, {bytes} bytes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_a_group_may_be_is_one_all_the_same() {
    let mut bench = Bench::default();
    bench.settings.batcher.group_commit_max_records = 2;
    bench.settings.batcher.group_commit_max_bytes = 10;
    let node = bench.start().await;
    all_committed(sending(&bench, &node, 5)).await;
    assert_eq!(bench.group_sizes(), [5]);
}

#[tokio::test(start_paused = true)]
async fn groups_run_ahead_of_the_fsync_by_so_many_and_no_more() {
    for limit in [1, 3] {
        let mut bench = one_by_one();
        bench.settings.batcher.group_commit_max_records = 1;
        bench.settings.batcher.max_unsynced_groups = limit;
        bench.settings.batcher.start_deadline_ms = 60_000;
        let node = bench.start().await;
        bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
        let sent = sending(&bench, &node, 7);
        for _ in 0..5 {
            millis(100).await;
            assert_eq!(node.handles().ledger.open_groups(), limit);
        }
        all_committed(sent).await;
        assert_eq!(bench.stored().len(), 7);
    }
}

/// Sizes of the groups in which 100 clients have their hooks committed, who each send again once they are answered, some
/// a moment later than others.
async fn closed_loop(delay_ms: u64) -> Vec<u64> {
    let mut bench = one_by_one();
    bench.settings.batcher.group_commit_delay_ms = delay_ms;
    bench.settings.batcher.partitions = 1;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(1));
    let bench = Arc::new(bench);
    let client = |ix: usize| {
        let (bench, batcher) = (Arc::clone(&bench), node.handles().batchers[0].clone());
        tokio::spawn(async move {
            for round in 0..10 {
                // All at once to begin with.
                for _ in 0..(ix % 5).min(round * 5) {
                    tokio::task::yield_now().await;
                }
                let hook = bench.hook("acme", &ix.to_string());
                let (waiting, deadline) = batcher.submit(hook).unwrap();
                assert!(matches!(waiting.answer(deadline).await, CommitAnswer::Committed(_)));
            }
        })
    };
    let clients: Vec<_> = (0..100).map(client).collect();
    for client in clients {
        client.await.unwrap();
    }
    bench.group_sizes()
}

#[tokio::test(start_paused = true)]
async fn after_a_large_group_the_next_waits_for_the_callers_that_were_just_answered() {
    let (at_once, lingering) = (closed_loop(0).await, closed_loop(1).await);
    assert_eq!(at_once.iter().sum::<u64>(), 1_000);
    assert_eq!(lingering.iter().sum::<u64>(), 1_000);
    assert_eq!((lingering[0], at_once[0]), (100, 100));
    assert!(at_once[1] < 50, "the first that are back go alone: {at_once:?}");
    assert!(lingering[1] >= 50, "it waits for half of them: {lingering:?}");
}

#[tokio::test(start_paused = true)]
async fn every_group_carries_how_far_the_log_was_synced_and_what_comes_next() {
    let bench = Bench::default();
    let node = bench.start().await;
    let facts = || {
        let rows = bench.disk.durable_rows(Cf::Default);
        [META_NEXT_SEQ, META_SYNCED_THROUGH].map(|key| {
            let row = rows.iter().find(|(found, _)| found == key);
            row.and_then(|(_, value)| read_u64(value))
        })
    };
    let mut seen = Vec::new();
    for body in ["one", "two", "three"] {
        bench.acked(&node, "acme", body).await;
        seen.push(facts());
    }
    // A group knows of the one before it that it is on the disk, and cannot know it of itself.
    let pair = |next_seq, synced| [Some(next_seq), Some(synced)];
    assert_eq!(seen, [pair(2, 0), pair(3, 1), pair(4, 2)]);
    assert_eq!(node.handles().mark.get(), Seq(3));
}

#[tokio::test(start_paused = true)]
async fn behind_the_last_group_the_log_says_once_that_it_was_synced() {
    let bench = Bench::default();
    let node = bench.start().await;
    let noted = || {
        let rows = bench.disk.rows(Cf::Default);
        let row = rows.into_iter().find(|(key, _)| key == META_SYNCED_THROUGH);
        row.and_then(|(_, value)| read_u64(&value))
    };
    bench.acked(&node, "acme", "one").await;
    bench.acked(&node, "acme", "two").await;
    assert_eq!(noted(), Some(1));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(noted(), Some(2));
    // A node at rest writes nothing.
    let applies = bench.disk.counts().applies;
    tokio::time::sleep(Duration::from_secs(3_600)).await;
    assert_eq!(bench.disk.counts().applies, applies);
    bench.acked(&node, "acme", "three").await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(noted(), Some(3));
}

/// When each stored row is due, in seq order, in milliseconds since the start.
fn due_ms(bench: &Bench) -> Vec<i64> {
    let rows = bench.disk.rows(Cf::Deliveries);
    let due_ms = |value: &[u8]| DeliveryRow::decode(value).unwrap().at_ms;
    rows.iter().map(|(_, value)| due_ms(value).cast_signed() - EPOCH_MS.cast_signed()).collect()
}

#[tokio::test(start_paused = true)]
async fn rows_are_due_when_their_group_was_built_and_never_before_an_earlier_one() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "at the start").await;
    millis(250).await;
    bench.acked(&node, "acme", "a moment later").await;
    bench.clock.step_ms(-3_600_000);
    bench.acked(&node, "acme", "an hour earlier").await;
    bench.clock.step_ms(3_600_000);
    millis(250).await;
    bench.acked(&node, "acme", "the clock has caught up").await;
    assert_eq!(due_ms(&bench), [0, 250, 250, 500]);
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_set_back_shows_neither_after_a_fence_nor_in_the_next_writer() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    bench.clock.step_ms(-3_600_000);
    bench.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::IoError));
    assert_eq!(bench.send(&node, bench.hook("acme", "fenced")).await, UNAVAILABLE);
    bench.acked(&node, "acme", "after a fence").await;
    assert!(node.handles().board.crash("writer"));
    secs(1).await;
    bench.acked(&node, "acme", "from the next writer").await;
    // The pace of the monotonic clock: the fence took 50 ms, then a second passed.
    assert_eq!(due_ms(&bench), [0, 50, 1_050]);
}

#[tokio::test(start_paused = true)]
async fn seqs_of_a_failed_group_are_not_used_again_by_the_same_writer() {
    let bench = Bench::default();
    let node = bench.start().await;
    assert_eq!(bench.acked(&node, "acme", "1").await, Seq(1));
    bench.disk.fail(Fault::refuse(SimOp::Apply, FailureClass::IoError).on(Lane::Commit));
    assert_eq!(bench.send(&node, bench.hook("acme", "2")).await, UNAVAILABLE);
    assert_eq!(bench.acked(&node, "acme", "3").await, Seq(3), "there may be gaps");
}

#[tokio::test(start_paused = true)]
async fn the_next_seq_is_above_every_stored_hook_although_the_marker_is_lost() {
    let bench = Bench::default();
    let node = bench.start().await;
    for body in ["1", "2", "3"] {
        bench.acked(&node, "acme", body).await;
    }
    assert!(node.stop(Duration::from_secs(60)).await);
    let mut bench = bench;
    bench.stays_sound = false;
    forget_next_seq(&bench).await;
    let node = bench.start().await;
    assert_eq!(bench.acked(&node, "acme", "4").await, Seq(4));
}

async fn forget_next_seq(bench: &Bench) {
    use ankusa_actors::model::batch::Batch;
    use ankusa_actors::ports::Engine;
    use ankusa_actors::ports::sim::SimEngine;
    let engine = SimEngine::on(&bench.disk);
    let kv = engine.open().await.unwrap();
    let mut batch = Batch::default();
    batch.delete(Cf::Default, META_NEXT_SEQ);
    // The documented system leaves such rows; they are no hooks.
    batch.put(Cf::Hooks, &[0; 8], b"");
    batch.put(Cf::Hooks, &[0xff; 8], b"");
    kv.apply(batch, Lane::Commit).await.unwrap();
    engine.close(kv).await;
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_the_writer_while_a_fence_is_under_way_is_refused_at_once() {
    let mut bench = one_by_one();
    bench.settings.batcher.group_commit_max_records = 1;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_millis(100));
    bench.disk.fail(Fault::refuse(SimOp::Apply, FailureClass::IoError).on(Lane::Commit));
    bench.disk.fail(Fault::refuse(SimOp::Probe, FailureClass::IoError).times(3));
    let failed = bench.sending(&node, bench.hook("acme", "failed"));
    let behind = bench.sending(&node, bench.hook("acme", "behind it"));
    millis(150).await;
    assert!(!failed.is_finished(), "it waits for its fence");
    assert!(behind.is_finished(), "it was never started");
    assert_eq!(behind.await.unwrap(), UNAVAILABLE);
    assert_eq!(failed.await.unwrap(), UNAVAILABLE);
    assert_eq!(bench.stored(), vec![]);
}
