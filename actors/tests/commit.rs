//! The promise of the commit path, on a disk that loses power, lies, stalls and fails.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::time::Duration;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::Seq;
use ankusa_actors::model::keys::{TenantKey, TenantNameKey};
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::{CommitAnswer, Refusal};
use common::{Bench, OVERLOAD, UNAVAILABLE, millis, secs};

fn text(seq_bodies: &[(u64, &str)]) -> Vec<(u64, String)> {
    seq_bodies.iter().map(|(seq, body)| (*seq, (*body).to_owned())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_answered_only_once_an_fsync_covers_it() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let sent = bench.sending(&node, bench.hook("acme", "one"));
    millis(400).await;
    assert!(!sent.is_finished());
    assert_eq!((bench.stored(), bench.durable()), (text(&[(1, "one")]), vec![]));
    assert_eq!(sent.await.unwrap(), CommitAnswer::Committed(Seq(1)));
    assert_eq!(bench.durable(), text(&[(1, "one")]));
}

#[tokio::test(start_paused = true)]
async fn every_acked_hook_survives_a_power_cut_and_seqs_go_on_after_it() {
    let bench = Bench::default();
    let node = bench.start().await;
    for body in ["one", "two", "three"] {
        bench.acked(&node, "acme", body).await;
    }
    bench.disk.cut_power();
    let node = bench.start().await;
    assert_eq!(bench.acked(&node, "acme", "four").await, Seq(4));
    let all = text(&[(1, "one"), (2, "two"), (3, "three"), (4, "four")]);
    assert_eq!(bench.durable(), all);
}

#[tokio::test(start_paused = true)]
async fn groups_are_applied_while_an_fsync_runs_and_one_fsync_answers_them_all() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let first = bench.sending(&node, bench.hook("acme", "first"));
    millis(10).await;
    let mut later = Vec::new();
    for body in ["a", "b", "c"] {
        later.push(bench.sending(&node, bench.hook("acme", body)));
        millis(10).await;
    }
    assert_eq!(bench.stored().len(), 4, "applied behind the running fsync");
    let syncs = bench.disk.counts().syncs;
    assert_eq!(first.await.unwrap(), CommitAnswer::Committed(Seq(1)));
    for sent in later {
        assert!(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
    }
    assert_eq!(bench.disk.counts().syncs, syncs + 1, "one more fsync for the three");
}

/// What is left of a failure: nothing stored, nothing counted, nothing delivered, and the retry stored once.
async fn is_refused_and_gone(bench: &Bench, fault: Fault) {
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    bench.disk.fail(fault);
    let sent = bench.sending(&node, bench.hook("other", "failed"));
    assert_eq!(sent.await.unwrap(), UNAVAILABLE);
    assert_eq!(bench.durable(), text(&[(1, "before")]), "refused only once the fence is durable");
    assert_eq!((bench.rows(Cf::Deliveries), bench.stored().len()), (1, 1));
    let retried = bench.acked(&node, "other", "failed").await;
    assert!(retried > Seq(1));
    bench.disk.cut_power();
    let bodies: Vec<_> = bench.durable().into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["before", "failed"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_fsync_refuses_its_hooks_and_takes_them_back() {
    is_refused_and_gone(&Bench::default(), Fault::refuse(SimOp::Sync, FailureClass::IoError)).await;
}

#[tokio::test(start_paused = true)]
async fn an_fsync_that_worked_and_said_it_did_not_is_taken_back_all_the_same() {
    is_refused_and_gone(&Bench::default(), Fault::sync_landed(FailureClass::IoError)).await;
}

#[tokio::test(start_paused = true)]
async fn pages_marked_clean_by_a_failed_fsync_are_not_taken_for_durable() {
    is_refused_and_gone(&Bench::default(), Fault::sync_drops_pages(FailureClass::IoError)).await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_apply_refuses_its_hooks() {
    let fault = Fault::refuse(SimOp::Apply, FailureClass::NoSpace).on(Lane::Commit);
    is_refused_and_gone(&Bench::default(), fault).await;
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_reached_the_log_is_taken_back_after_the_reopen_shows_it() {
    let fault = Fault::apply_logged_unseen(FailureClass::IoError).on(Lane::Commit);
    is_refused_and_gone(&Bench::default(), fault).await;
}

#[tokio::test(start_paused = true)]
async fn an_apply_that_landed_and_said_it_did_not_is_taken_back() {
    let fault = Fault::apply_landed(FailureClass::IoError).on(Lane::Commit);
    is_refused_and_gone(&Bench::default(), fault).await;
}

#[tokio::test(start_paused = true)]
async fn with_the_archive_role_an_obligation_is_taken_back_too() {
    let mut bench = Bench::default();
    bench.settings.roles.storage = true;
    let node = bench.start().await;
    bench.acked(&node, "acme", "kept").await;
    let index = bench.rows(Cf::Index);
    bench.disk.fail(Fault::sync_landed(FailureClass::IoError));
    assert_eq!(bench.send(&node, bench.hook("acme", "failed")).await, UNAVAILABLE);
    // The active marker of a fenced second may stay: dispatch removes it in its time.
    let obligations = bench.disk.rows(Cf::Index).into_iter().filter(|(key, _)| key[0] == b'a');
    assert_eq!((obligations.count(), bench.rows(Cf::Index) - index <= 1), (1, true));
}

#[tokio::test(start_paused = true)]
async fn a_fence_that_cannot_be_made_durable_closes_unanswered_and_refuses_the_next_at_once() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    bench.disk.fail(Fault::sync_landed(FailureClass::IoError));
    bench.disk.fail_writes(FailureClass::IoError);
    let sent = bench.sending(&node, bench.hook("acme", "unknown"));
    millis(100).await;
    assert_eq!(bench.send(&node, bench.hook("acme", "next")).await, UNAVAILABLE);
    assert!(!sent.is_finished(), "neither acked nor refused yet");
    assert_eq!(sent.await.unwrap(), CommitAnswer::Unknown);
    bench.disk.heal();
    secs(120).await;
    assert_eq!(bench.durable(), text(&[(1, "before")]), "fenced as soon as the disk allows it");
    bench.acked(&node, "acme", "after").await;
}

#[tokio::test(start_paused = true)]
async fn groups_left_by_a_crashed_writer_are_fenced_before_the_next_one_commits() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    // The group is applied, its fsync hangs for longer than the queue's drain.
    bench.disk.slow(SimOp::Sync, Duration::from_secs(30));
    let sent = bench.sending(&node, bench.hook("acme", "unanswered"));
    millis(100).await;
    assert!(node.handles().board.crash("writer"));
    millis(100).await;
    bench.disk.slow(SimOp::Sync, Duration::ZERO);
    assert_eq!(sent.await.unwrap(), UNAVAILABLE);
    assert_eq!(bench.durable(), text(&[(1, "before")]));
    bench.acked(&node, "acme", "after").await;
}

#[tokio::test(start_paused = true)]
async fn after_a_kill_nothing_that_was_applied_is_deleted() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(30));
    let sent = bench.sending(&node, bench.hook("acme", "unknown"));
    millis(100).await;
    bench.disk.kill();
    drop(sent);
    bench.disk.slow(SimOp::Sync, Duration::ZERO);
    let second = Bench::on(&bench.disk);
    let node = second.start().await;
    assert_eq!(second.acked(&node, "acme", "after").await, Seq(2));
    assert_eq!(second.durable(), text(&[(1, "unknown"), (2, "after")]));
}

#[tokio::test(start_paused = true)]
async fn while_the_oldest_unanswered_group_is_too_old_new_hooks_are_shed_at_once() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(5));
    let stalled = bench.sending(&node, bench.hook("acme", "stalled"));
    millis(900).await;
    let joined = bench.sending(&node, bench.hook("acme", "joined"));
    millis(200).await;
    assert_eq!(bench.send(&node, bench.hook("acme", "shed")).await, OVERLOAD);
    assert_eq!(stalled.await.unwrap(), CommitAnswer::Committed(Seq(1)));
    assert_eq!(joined.await.unwrap(), CommitAnswer::Committed(Seq(2)));
    assert_eq!(bench.stored().len(), 2, "what was shed is not stored");
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_cannot_start_in_time_is_refused_and_never_stored() {
    let mut bench = Bench::default();
    bench.settings.batcher.stall_ms = 60_000;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_secs(10));
    let started = bench.sending(&node, bench.hook("acme", "started"));
    millis(100).await;
    let waiting = tokio::time::Instant::now();
    assert_eq!(bench.send(&node, bench.hook("acme", "late")).await, UNAVAILABLE);
    assert_eq!(waiting.elapsed().as_millis(), 2_000);
    assert_eq!(started.await.unwrap(), CommitAnswer::Committed(Seq(1)), "a start is waited out");
    secs(60).await;
    assert_eq!(bench.stored(), text(&[(1, "started")]));
}

#[tokio::test(start_paused = true)]
async fn a_hook_whose_caller_has_hung_up_before_its_start_is_not_stored() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_millis(500));
    let started = bench.sending(&node, bench.hook("acme", "started"));
    millis(100).await;
    let gone = bench.sending(&node, bench.hook("acme", "gone"));
    let stays = bench.sending(&node, bench.hook("acme", "stays"));
    millis(100).await;
    gone.abort();
    assert_eq!(started.await.unwrap(), CommitAnswer::Committed(Seq(1)));
    assert_eq!(stays.await.unwrap(), CommitAnswer::Committed(Seq(2)));
    assert_eq!(bench.stored(), text(&[(1, "started"), (2, "stays")]));
}

#[tokio::test(start_paused = true)]
async fn a_full_partition_refuses_at_once() {
    let mut bench = Bench::default();
    bench.settings.batcher.max_queue = 2;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let (one, two) = (bench.hook("acme", "one"), bench.hook("acme", "two"));
    let (one, two) = (bench.sending(&node, one), bench.sending(&node, two));
    millis(1).await;
    assert_eq!(bench.send(&node, bench.hook("acme", "three")).await, OVERLOAD);
    assert!(matches!(one.await.unwrap(), CommitAnswer::Committed(_)));
    assert!(matches!(two.await.unwrap(), CommitAnswer::Committed(_)));
    bench.acked(&node, "acme", "four").await;
}

#[tokio::test(start_paused = true)]
async fn a_group_stays_within_its_cap_of_hooks() {
    let mut bench = Bench::default();
    bench.settings.batcher.group_commit_max_records = 3;
    bench.settings.batcher.max_batch = 1;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Apply, Duration::from_millis(100));
    let sent: Vec<_> =
        (0..8).map(|ix| bench.sending(&node, bench.hook("acme", &ix.to_string()))).collect();
    for sent in sent {
        assert!(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
    }
    assert_eq!(bench.group_sizes().into_iter().sum::<u64>(), 8);
    assert!(bench.group_sizes().into_iter().all(|hooks| hooks <= 3), "{:?}", bench.group_sizes());
    assert!(bench.group_sizes().len() < 8, "batches that wait share a group");
}

#[tokio::test(start_paused = true)]
async fn tenants_get_dense_ordinals_that_survive_and_the_limit_refuses_one_more() {
    let mut bench = Bench::default();
    bench.settings.tenants.max = 2;
    let node = bench.start().await;
    bench.acked(&node, "acme", "1").await;
    bench.acked(&node, "blue", "2").await;
    bench.acked(&node, "acme", "3").await;
    let refused = CommitAnswer::Refused(Refusal::TenantLimit);
    assert_eq!(bench.send(&node, bench.hook("one-too-many", "4")).await, refused);
    bench.disk.cut_power();
    let node = bench.start().await;
    assert_eq!(bench.send(&node, bench.hook("one-too-many", "5")).await, refused);
    bench.acked(&node, "blue", "6").await;
    let rows = bench.disk.durable_rows(Cf::Tenants);
    let ords: Vec<_> = rows
        .iter()
        .filter_map(|(key, id)| {
            Some((TenantKey::decode(key)?.0.0, String::from_utf8_lossy(id).into_owned()))
        })
        .collect();
    assert_eq!(ords, [(1, "acme".to_owned()), (2, "blue".to_owned())]);
    let back = |id| {
        let key = TenantNameKey(id).encode();
        let row = rows.iter().find(|(found, _)| *found == key);
        row.and_then(|(_, ord)| TenantNameKey::read_value(ord)).map(|ord| ord.0)
    };
    assert_eq!((back("acme"), back("blue"), back("one-too-many")), (Some(1), Some(2), None));
}

#[tokio::test(start_paused = true)]
async fn an_ordinal_given_out_in_a_lost_group_is_given_out_again() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.fail(Fault::refuse(SimOp::Apply, FailureClass::IoError).on(Lane::Commit));
    assert_eq!(bench.send(&node, bench.hook("lost", "1")).await, UNAVAILABLE);
    bench.acked(&node, "kept", "2").await;
    let tenants = bench.disk.durable_rows(Cf::Tenants);
    assert!(
        tenants
            .iter()
            .any(|(key, id)| TenantKey::decode(key).is_some_and(|t| t.0.0 == 1) && id == b"kept")
    );
}

#[tokio::test(start_paused = true)]
async fn a_hook_owed_to_nobody_is_acked_with_a_seq_and_not_stored() {
    let bench = Bench::default();
    let node = bench.start().await;
    let mut hook = bench.hook("acme", "nobody");
    hook.sinks = [].into();
    assert_eq!(bench.send(&node, hook).await, CommitAnswer::Committed(Seq(1)));
    assert_eq!(bench.stored(), vec![]);
    bench.disk.cut_power();
    let node = bench.start().await;
    assert_eq!(bench.acked(&node, "acme", "somebody").await, Seq(2), "its seq is not used again");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_crashes_comes_back_and_keeps_what_was_acked() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "before").await;
    assert!(node.handles().board.crash("store"));
    secs(5).await;
    bench.acked(&node, "acme", "after").await;
    assert_eq!(bench.durable(), text(&[(1, "before"), (2, "after")]));
    let restarts: Vec<_> =
        node.handles().board.report().into_iter().filter(|c| c.restarts > 0).collect();
    let ids: Vec<_> = restarts.iter().map(|child| child.id.to_string()).collect();
    let expected = [
        "store",
        "queue",
        "syncer",
        "writer",
        "services",
        "rate_limiter",
        "quarantine",
        "quarantine_reaper",
        "dedupe_sweeper",
        "scrubber",
        "recounter",
    ];
    assert_eq!(ids, expected);
}

#[tokio::test(start_paused = true)]
async fn a_stop_answers_what_is_under_way_and_closes_the_store() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let sent = bench.sending(&node, bench.hook("acme", "in flight"));
    millis(50).await;
    assert!(node.stop(Duration::from_secs(60)).await);
    assert_eq!(sent.await.unwrap(), CommitAnswer::Committed(Seq(1)));
    assert!(!bench.disk.is_open());
}

#[tokio::test(start_paused = true)]
async fn a_store_of_another_format_refuses_the_boot_and_is_left_alone() {
    for (stamp, says) in [(9_u64, "newer"), (6, "older")] {
        let bench = Bench::default();
        let node = bench.start().await;
        node.stop(Duration::from_secs(60)).await;
        restamp(&bench, stamp).await;
        let refused = bench.try_start().await.err().unwrap();
        assert!(refused.contains(&format!("store format {stamp} is {says}")), "{refused}");
        assert!(!bench.disk.is_open());
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_of_the_format_before_lanes_takes_no_more_than_the_stamp() {
    let bench = Bench::default();
    let node = bench.start().await;
    bench.acked(&node, "acme", "one").await;
    node.stop(Duration::from_secs(60)).await;
    let rows = || Cf::ALL.map(|cf| bench.disk.rows(cf));
    let before = rows();
    restamp(&bench, 7).await;
    assert_ne!(rows(), before);
    let node = bench.start().await;
    node.stop(Duration::from_secs(60)).await;
    assert_eq!(rows(), before);
}

async fn restamp(bench: &Bench, stamp: u64) {
    use ankusa_actors::model::batch::Batch;
    use ankusa_actors::model::keys::{META_FORMAT_VERSION, u64_value};
    use ankusa_actors::ports::Engine;
    use ankusa_actors::ports::sim::SimEngine;
    let engine = SimEngine::on(&bench.disk);
    let kv = engine.open().await.unwrap();
    let mut batch = Batch::default();
    batch.put(Cf::Default, META_FORMAT_VERSION, &u64_value(stamp));
    kv.apply(batch, Lane::Commit).await.unwrap();
    kv.sync().await.unwrap();
    engine.close(kv).await;
}

#[tokio::test(start_paused = true)]
async fn rows_without_a_stamp_are_never_taken_for_an_empty_store() {
    use ankusa_actors::model::batch::Batch;
    use ankusa_actors::ports::Engine;
    use ankusa_actors::ports::sim::SimEngine;
    let mut bench = Bench::default();
    bench.stays_sound = false;
    let engine = SimEngine::on(&bench.disk);
    let kv = engine.open().await.unwrap();
    let mut batch = Batch::default();
    batch.put(Cf::Hooks, &[0, 0, 0, 0, 0, 0, 0, 1], b"row");
    kv.apply(batch, Lane::Commit).await.unwrap();
    kv.sync().await.unwrap();
    engine.close(kv).await;
    let refused = bench.try_start().await.err().unwrap();
    assert!(refused.contains("no readable format stamp"), "{refused}");
}
