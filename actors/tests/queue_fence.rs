//! What a fence stands on: nothing that was handed over may land behind it, and no fsync is believed after one failed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::CommitAnswer;
use common::late::LateEngine;
use common::{Bench, UNAVAILABLE, millis, secs};
use tokio::time::Instant;

fn bodies(bench: &Bench) -> Vec<String> {
    bench.durable().into_iter().map(|(_, body)| body).collect()
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_a_killed_writer_that_lands_late_is_taken_back_all_the_same() {
    let mut bench = Bench::default();
    let engine = LateEngine::on(&bench.disk);
    bench.engine = Some(Arc::new(engine.clone()));
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    engine.delay(Duration::from_secs(15));
    let sent = bench.sending(&node, bench.hook("acme", "late"));
    millis(100).await;
    engine.delay(Duration::ZERO);
    // The Writer waits for its batch and does not leave within the drain.
    assert!(node.handles().board.crash("syncer"));
    secs(12).await;
    assert!(!sent.is_finished(), "nobody can say yet that it is not stored");
    assert_eq!(sent.await.unwrap(), UNAVAILABLE);
    bench.acked(&node, "acme", "after").await;
    secs(60).await;
    assert_eq!(bodies(&bench), ["before", "after"]);
}

#[tokio::test(start_paused = true)]
async fn an_fsync_that_returns_after_another_one_failed_acks_nobody() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let one = bench.sending(&node, bench.hook("acme", "one"));
    millis(100).await;
    let two = bench.sending(&node, bench.hook("acme", "two"));
    millis(100).await;
    // The readiness probe meets an fsync that fails and takes the unwritten pages of everybody with it.
    bench.disk.fail(Fault::sync_drops_pages(FailureClass::IoError));
    let readiness = node.handles().readiness.clone();
    let probe = tokio::spawn(async move { readiness.store_failure().await });
    assert!(matches!(one.await.unwrap(), CommitAnswer::Committed(_)));
    assert_eq!(probe.await.unwrap(), Some(FailureClass::IoError));
    assert_eq!(two.await.unwrap(), UNAVAILABLE);
    assert_eq!(bodies(&bench), ["one"]);
    bench.acked(&node, "acme", "three").await;
    bench.disk.cut_power();
    assert_eq!(bodies(&bench), ["one", "three"]);
}

#[tokio::test(start_paused = true)]
async fn a_fence_whose_delete_shows_up_after_the_reopen_counts_once() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(30));
    let sent = bench.sending(&node, bench.hook("acme", "unanswered"));
    millis(100).await;
    // The store is busy, with its database open, while the next Writer fences.
    bench.disk.slow(SimOp::Probe, Duration::from_secs(15));
    let store = node.handles().store.clone();
    let reopening = tokio::spawn(async move { store.reopen().await });
    assert!(node.handles().board.crash("writer"));
    millis(100).await;
    bench.disk.slow(SimOp::Sync, Duration::ZERO);
    bench.disk.fail(Fault::apply_logged_unseen(FailureClass::IoError).on(Lane::Commit));
    assert_eq!(sent.await.unwrap(), UNAVAILABLE);
    reopening.await.unwrap().unwrap();
    secs(60).await;
    assert_eq!(bodies(&bench), ["before"]);
    bench.acked(&node, "acme", "after").await;
}

#[tokio::test(start_paused = true)]
async fn while_the_store_is_closed_hooks_are_refused_at_once_and_nothing_has_to_be_fenced() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::NoSpace));
    node.handles().store.reopen().await.unwrap_err();
    let began = Instant::now();
    for body in ["one", "two"] {
        assert_eq!(bench.send(&node, bench.hook("new tenant", body)).await, UNAVAILABLE);
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert!(node.handles().ledger.is_clean());
    secs(5).await;
    bench.acked(&node, "new tenant", "three").await;
    assert_eq!(bodies(&bench), ["three"]);
}

/// More than one chunk of hooks, rows of several sinks, and an ordinal that only this group gives out.
#[tokio::test(start_paused = true)]
async fn a_large_group_is_taken_back_whole_chunk_by_chunk() {
    let mut bench = Bench::default();
    bench.settings.roles.storage = true;
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let first = bench.sending(&node, bench.hook("acme", "first"));
    millis(100).await;
    bench.disk.slow(SimOp::Apply, Duration::from_millis(100));
    let mut sent = Vec::new();
    for ix in 0..1_300 {
        let mut hook = bench.hook(if ix % 3 == 0 { "acme" } else { "other" }, &format!("{ix}"));
        hook.sinks = Arc::from(["Elixir.Ankusa.Sink.Http", "Elixir.Ankusa.Sink.Log"]);
        sent.push(bench.sending(&node, hook));
    }
    millis(1).await;
    bench.disk.fail(Fault::sync_landed(FailureClass::IoError));
    assert!(matches!(first.await.unwrap(), CommitAnswer::Committed(_)));
    for sent in sent {
        assert_eq!(sent.await.unwrap(), UNAVAILABLE);
    }
    let sizes = bench.group_sizes();
    assert!(sizes.iter().any(|hooks| *hooks > 1_024), "three chunks of one group: {sizes:?}");
    assert_eq!(bodies(&bench), ["before", "first"]);
    assert_eq!(bench.rows(Cf::Deliveries), 2);
    bench.acked(&node, "other", "after").await;
}
