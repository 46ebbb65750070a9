//! Hooks that are sent again: told apart by their provider's key, answered with the id of the first, stored once.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::{HookId, TenantOrd};
use ankusa_actors::model::invariants::{Dump, Miscount, Violation, check};
use ankusa_actors::model::keys::{CounterKey, DedupeKey, DedupeValue, ExpiryKey};
use ankusa_actors::node::Node;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::{CommitAnswer, NewHook, Refusal};
use bytes::Bytes;
use common::{Bench, EPOCH_MS, UNAVAILABLE, millis, secs};
use tokio::task::JoinHandle;

const TTL_MS: u64 = 60_000;

/// Two partitions, each of which hands over hook by hook.
fn bench() -> Bench {
    let mut bench = Bench::default();
    bench.settings.batcher.max_batch = 1;
    bench
}

fn keyed(bench: &Bench, key: &'static str, body: &str) -> NewHook {
    let mut hook = bench.hook("acme", body);
    hook.envelope.dedupe_key = Some(Bytes::from(key));
    hook.key_ttl_ms = Some(TTL_MS);
    hook
}

fn sending(node: &Node, partition: usize, hook: NewHook) -> JoinHandle<CommitAnswer> {
    let batcher = node.handles().batchers[partition].clone();
    tokio::spawn(async move {
        match batcher.submit(hook) {
            Ok((waiting, deadline)) => waiting.answer(deadline).await,
            Err(refusal) => CommitAnswer::Refused(refusal),
        }
    })
}

/// Sends a hook with this key, and answers its id and what its caller was told.
async fn send(bench: &Bench, node: &Node, key: &'static str, body: &str) -> (HookId, CommitAnswer) {
    let hook = keyed(bench, key, body);
    let id = hook.envelope.id;
    (id, sending(node, 0, hook).await.unwrap())
}

async fn acked(bench: &Bench, node: &Node, key: &'static str, body: &str) -> HookId {
    let (id, answer) = send(bench, node, key, body).await;
    assert!(matches!(answer, CommitAnswer::Committed(_)), "{body}: {answer:?}");
    id
}

fn keys(bench: &Bench) -> Vec<(String, u64)> {
    let rows = bench.disk.rows(Cf::Index);
    let key = |(key, value): &(Vec<u8>, Vec<u8>)| {
        let key = String::from_utf8(DedupeKey::decode(key)?.key().to_vec()).unwrap();
        Some((key, DedupeValue::decode(value)?.expires_at_ms - EPOCH_MS))
    };
    rows.iter().filter_map(key).collect()
}

fn entries(bench: &Bench) -> usize {
    bench.disk.rows(Cf::Index).iter().filter(|(key, _)| ExpiryKey::decode(key).is_some()).count()
}

fn count(bench: &Bench) -> i64 {
    let key = CounterKey { tenant: TenantOrd::NODE, field: Field::Dedupe }.encode();
    let rows = bench.disk.rows(Cf::Counters);
    let row = rows.iter().find(|(found, _)| found.as_slice() == key);
    row.and_then(|(_, value)| counters::read(value)).unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_retry_is_answered_with_the_id_of_the_first_and_not_stored() {
    let bench = bench();
    let node = bench.start().await;
    let first = acked(&bench, &node, "k", "first").await;
    for partition in [0, 1] {
        let again = sending(&node, partition, keyed(&bench, "k", "again")).await.unwrap();
        assert_eq!(again, CommitAnswer::Duplicate(first));
    }
    acked(&bench, &node, "other", "other").await;
    let bodies: Vec<_> = bench.stored().into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["first", "other"]);
    assert_eq!(keys(&bench), [("k".to_owned(), TTL_MS), ("other".to_owned(), TTL_MS)]);
    assert_eq!((entries(&bench), count(&bench)), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn hooks_without_a_key_and_sources_without_dedupe_are_hooks_of_their_own() {
    let bench = bench();
    let node = bench.start().await;
    for _ in 0..2 {
        bench.acked(&node, "acme", "no key").await;
        let mut no_dedupe = keyed(&bench, "k", "no dedupe");
        no_dedupe.key_ttl_ms = None;
        let answer = sending(&node, 0, no_dedupe).await.unwrap();
        assert!(matches!(answer, CommitAnswer::Committed(_)));
    }
    assert_eq!((bench.stored().len(), keys(&bench)), (4, Vec::new()));
}

#[tokio::test(start_paused = true)]
async fn of_one_key_on_two_partitions_at_once_one_hook_is_stored() {
    // Applied and synced slowly, so that looks and groups overlap in every way.
    for (apply_ms, sync_ms, read_ms) in [(0, 0, 0), (5, 0, 1), (0, 20, 0), (7, 50, 3), (1, 0, 20)] {
        let bench = bench();
        let node = bench.start().await;
        bench.disk.slow(SimOp::Apply, Duration::from_millis(apply_ms));
        bench.disk.slow(SimOp::Sync, Duration::from_millis(sync_ms));
        bench.disk.slow(SimOp::Read, Duration::from_millis(read_ms));
        let mut sent = Vec::new();
        for n in 0..20 {
            sent.push(sending(&node, n % 2, keyed(&bench, "k", &n.to_string())));
            millis(u64::try_from(n % 3).unwrap()).await;
        }
        let mut answers = Vec::new();
        for sent in sent {
            answers.push(sent.await.unwrap());
        }
        let is_new = |answer: &&CommitAnswer| matches!(answer, CommitAnswer::Committed(_));
        let is_duplicate = |answer: &&CommitAnswer| matches!(answer, CommitAnswer::Duplicate(_));
        let counts =
            (answers.iter().filter(is_new).count(), answers.iter().filter(is_duplicate).count());
        assert_eq!(counts, (1, 19), "{apply_ms} {sync_ms} {read_ms}");
        assert_eq!((bench.stored().len(), count(&bench)), (1, 1));
        bench.disk.heal();
    }
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_hook_that_is_not_synced_waits_for_its_fsync() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let first = sending(&node, 0, keyed(&bench, "k", "first"));
    millis(100).await;
    // One whose look finds the key in the store.
    let again = sending(&node, 1, keyed(&bench, "k", "again"));
    millis(300).await;
    assert!(!first.is_finished() && !again.is_finished());
    let CommitAnswer::Committed(_) = first.await.unwrap() else { panic!("the first is new") };
    assert!(matches!(again.await.unwrap(), CommitAnswer::Duplicate(_)));
    assert_eq!(bench.durable().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_of_a_hook_whose_fsync_fails_is_refused_with_it_and_a_retry_is_stored_once() {
    for fault in [
        Fault::refuse(SimOp::Sync, FailureClass::IoError),
        Fault::sync_drops_pages(FailureClass::IoError),
        Fault::sync_landed(FailureClass::IoError),
    ] {
        let bench = bench();
        let node = bench.start().await;
        bench.disk.slow(SimOp::Sync, Duration::from_millis(100));
        bench.disk.fail(fault);
        let first = sending(&node, 0, keyed(&bench, "k", "first"));
        millis(50).await;
        let again = sending(&node, 1, keyed(&bench, "k", "again"));
        assert_eq!((first.await.unwrap(), again.await.unwrap()), (UNAVAILABLE, UNAVAILABLE));
        assert_eq!((keys(&bench), entries(&bench), count(&bench)), (Vec::new(), 0, 0));
        secs(10).await;
        let retry = acked(&bench, &node, "k", "retry").await;
        let (_, answer) = send(&bench, &node, "k", "another").await;
        assert_eq!(answer, CommitAnswer::Duplicate(retry));
        let bodies: Vec<_> = bench.durable().into_iter().map(|(_, body)| body).collect();
        assert_eq!(bodies, ["retry"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_of_a_failed_group_is_given_up_and_one_it_had_replaced_is_over() {
    let bench = bench();
    let node = bench.start().await;
    acked(&bench, &node, "k", "first").await;
    // Expired, and replaced before any sweep.
    bench.clock.step_ms(i64::try_from(TTL_MS).unwrap());
    bench.disk.fail(Fault::apply_landed(FailureClass::IoError).on(Lane::Commit));
    let (_, answer) = send(&bench, &node, "k", "second").await;
    assert_eq!(answer, UNAVAILABLE);
    assert_eq!((keys(&bench), entries(&bench), count(&bench)), (Vec::new(), 0, 0));
    secs(10).await;
    acked(&bench, &node, "k", "third").await;
    assert_eq!(count(&bench), 1);
}

#[tokio::test(start_paused = true)]
async fn a_key_is_forgotten_when_its_time_is_over_and_a_retry_does_not_make_it_longer() {
    let mut bench = bench();
    // No sweep comes in between.
    bench.settings.dedupe.sweep_interval_ms = 3_600_000;
    let node = bench.start().await;
    let first = acked(&bench, &node, "k", "first").await;
    secs(30).await;
    let (_, answer) = send(&bench, &node, "k", "in time").await;
    assert_eq!(answer, CommitAnswer::Duplicate(first));
    millis(29_999).await;
    let (_, answer) = send(&bench, &node, "k", "at the last moment").await;
    assert_eq!(answer, CommitAnswer::Duplicate(first));
    millis(1).await;
    let second = acked(&bench, &node, "k", "too late").await;
    assert_eq!(
        (keys(&bench), entries(&bench), count(&bench)),
        (vec![("k".to_owned(), 120_000)], 1, 1)
    );
    let (_, answer) = send(&bench, &node, "k", "again").await;
    assert_eq!(answer, CommitAnswer::Duplicate(second));
}

#[tokio::test(start_paused = true)]
async fn a_key_survives_a_restart_and_its_hook() {
    let mut bench = bench();
    bench.settings.roles.dispatch = true;
    let first = {
        let node = bench.start().await;
        let first = acked(&bench, &node, "k", "first").await;
        node.stop(Duration::from_secs(60)).await;
        first
    };
    bench.disk.cut_power();
    let node = bench.start().await;
    let (_, answer) = send(&bench, &node, "k", "again").await;
    assert_eq!(answer, CommitAnswer::Duplicate(first));
}

#[tokio::test(start_paused = true)]
async fn past_the_cap_new_keys_are_refused_until_old_ones_are_swept() {
    let mut bench = bench();
    bench.settings.dedupe.max_entries = 2;
    let node = bench.start().await;
    let first = acked(&bench, &node, "a", "a").await;
    secs(20).await;
    acked(&bench, &node, "b", "b").await;
    let (_, answer) = send(&bench, &node, "c", "c").await;
    assert_eq!(answer, CommitAnswer::Refused(Refusal::DedupeQuota));
    let (_, answer) = send(&bench, &node, "a", "a again").await;
    assert_eq!(answer, CommitAnswer::Duplicate(first));
    bench.acked(&node, "acme", "without a key").await;
    let bodies: Vec<_> = bench.stored().into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["a", "b", "without a key"]);
    // The first is over, and the sweep comes by every ten seconds.
    secs(51).await;
    acked(&bench, &node, "c", "c").await;
    let (_, answer) = send(&bench, &node, "d", "d").await;
    assert_eq!(answer, CommitAnswer::Refused(Refusal::DedupeQuota));
    assert_eq!(count(&bench), 2);
}

#[tokio::test(start_paused = true)]
async fn a_key_that_cannot_be_read_refuses_its_hook_and_no_other() {
    let bench = Bench::default();
    let node = bench.start().await;
    secs(1).await;
    bench.disk.fail(Fault::refuse(SimOp::Read, FailureClass::IoError));
    let with = sending(&node, 0, keyed(&bench, "k", "with"));
    let without = bench.sending(&node, bench.hook("acme", "without"));
    assert_eq!(with.await.unwrap(), UNAVAILABLE);
    assert!(matches!(without.await.unwrap(), CommitAnswer::Committed(_)));
    // The counter this time.
    bench.disk.fail(Fault::refuse(SimOp::Read, FailureClass::IoError).after(1));
    let (_, answer) = send(&bench, &node, "k", "with").await;
    assert_eq!(answer, UNAVAILABLE);
    acked(&bench, &node, "k", "with").await;
}

fn pruned(bench: &Bench) -> Vec<String> {
    let lines = bench.events.lines().into_iter();
    lines.filter(|line| line.starts_with("DedupePruned")).collect()
}

#[tokio::test(start_paused = true)]
async fn expired_keys_are_ended_every_ten_seconds_and_full_chunks_follow_each_other_at_once() {
    let mut bench = bench();
    bench.settings.dedupe.sweep_chunk = 2;
    let node = bench.start().await;
    for key in ["a", "b", "c", "d", "e"] {
        acked(&bench, &node, key, key).await;
    }
    millis(TTL_MS - 1).await;
    assert_eq!((keys(&bench).len(), pruned(&bench)), (5, Vec::new()));
    secs(10).await;
    assert_eq!((keys(&bench), entries(&bench), count(&bench)), (Vec::new(), 0, 0));
    let chunks =
        ["DedupePruned { keys: 2 }", "DedupePruned { keys: 2 }", "DedupePruned { keys: 1 }"];
    assert_eq!(pruned(&bench), chunks);
    acked(&bench, &node, "a", "again").await;
    assert_eq!(bench.stored().len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_key_taken_again_while_it_is_swept_is_left_alone() {
    let mut bench = bench();
    bench.settings.dedupe.sweep_interval_ms = 1_000;
    let node = bench.start().await;
    acked(&bench, &node, "k", "first").await;
    millis(TTL_MS - 500).await;
    // The sweep has read the key when the hook takes it, and its chunk waits behind.
    bench.disk.slow(SimOp::Read, Duration::from_millis(400));
    bench.disk.slow(SimOp::Apply, Duration::from_millis(300));
    let mut sent = Vec::new();
    for n in 0..20 {
        sent.push(sending(&node, n % 2, keyed(&bench, "k", &n.to_string())));
        millis(100).await;
    }
    let mut new = 0;
    for sent in sent {
        new += usize::from(matches!(sent.await.unwrap(), CommitAnswer::Committed(_)));
    }
    bench.disk.heal();
    secs(5).await;
    assert_eq!((new, count(&bench), keys(&bench).len(), entries(&bench)), (1, 1, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_cannot_be_applied_is_made_again_and_nothing_is_lost_or_counted_twice() {
    for fault in [
        Fault::refuse(SimOp::Apply, FailureClass::IoError),
        Fault::apply_landed(FailureClass::IoError),
        Fault::apply_logged_unseen(FailureClass::IoError),
        Fault::refuse(SimOp::Sync, FailureClass::IoError),
    ] {
        let bench = bench();
        let node = bench.start().await;
        for key in ["a", "b", "c"] {
            acked(&bench, &node, key, key).await;
        }
        millis(TTL_MS - 1_000).await;
        bench.disk.fail(fault.on(Lane::Commit));
        secs(60).await;
        assert_eq!((keys(&bench), entries(&bench), count(&bench)), (Vec::new(), 0, 0));
        acked(&bench, &node, "a", "again").await;
        assert_eq!(count(&bench), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_or_stands_for_nothing_is_ended_too() {
    let bench = bench();
    let node = bench.start().await;
    for key in ["broken", "whole"] {
        acked(&bench, &node, key, key).await;
    }
    let key = DedupeKey::new("acme", "src", b"broken").unwrap();
    let mut junk = Batch::default();
    junk.put(Cf::Index, &key.encode(), b"no value");
    junk.put(Cf::Index, b"e\0\0\0\0\0\0\0\x01no key", b"");
    let nobody = DedupeKey::new("acme", "src", b"nobody").unwrap();
    let entry = ExpiryKey { expires_at_ms: 1, dedupe: nobody };
    junk.put(Cf::Index, &entry.encode(), b"");
    node.handles().store.apply(junk, Lane::Background).await.unwrap();
    secs(80).await;
    assert_eq!((keys(&bench), entries(&bench), count(&bench)), (Vec::new(), 0, 0));
    let rows = bench.disk.rows(Cf::Index);
    assert!(!rows.iter().any(|(key, _)| key.starts_with(b"e\0\0")));
    let again = acked(&bench, &node, "broken", "again").await;
    let (_, answer) = send(&bench, &node, "broken", "and again").await;
    assert_eq!(answer, CommitAnswer::Duplicate(again));
}

#[tokio::test(start_paused = true)]
async fn a_recount_counts_keys_and_the_cap_goes_by_what_it_put_right() {
    let mut bench = bench();
    bench.settings.dedupe.max_entries = 2;
    let node = bench.start().await;
    acked(&bench, &node, "a", "a").await;
    let mut wrong = Batch::default();
    let key = CounterKey { tenant: TenantOrd::NODE, field: Field::Dedupe };
    wrong.put(Cf::Counters, &key.encode(), &counters::value(7));
    node.handles().store.apply(wrong, Lane::Background).await.unwrap();
    let report = node.handles().recount.recount(true).await.unwrap();
    assert_eq!(report.counted.wrong, [Miscount { key, stored: Some(7), recounted: 1 }]);
    assert_eq!(count(&bench), 1);
    acked(&bench, &node, "b", "b").await;
    let (_, answer) = send(&bench, &node, "c", "c").await;
    assert_eq!(answer, CommitAnswer::Refused(Refusal::DedupeQuota));
}

#[tokio::test(start_paused = true)]
async fn a_sweeper_that_dies_is_started_again_and_goes_on() {
    let bench = bench();
    let node = bench.start().await;
    acked(&bench, &node, "k", "k").await;
    assert!(node.handles().board.crash("dedupe_sweeper"));
    secs(80).await;
    assert_eq!((keys(&bench), count(&bench)), (Vec::new(), 0));
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_writer_between_look_and_group_stores_one_hook() {
    for delay_ms in 0..12 {
        let bench = bench();
        let node = bench.start().await;
        bench.disk.slow(SimOp::Apply, Duration::from_millis(5));
        bench.disk.slow(SimOp::Sync, Duration::from_millis(5));
        let first = sending(&node, 0, keyed(&bench, "k", "first"));
        millis(delay_ms).await;
        let again = sending(&node, 1, keyed(&bench, "k", "again"));
        node.handles().board.crash("writer");
        secs(5).await;
        let answers = [first.await.unwrap(), again.await.unwrap()];
        let new = answers.iter().filter(|answer| matches!(answer, CommitAnswer::Committed(_)));
        assert_eq!(new.count(), bench.stored().len(), "{delay_ms}: {answers:?}");
        assert!(bench.stored().len() <= 1);
        assert_eq!(count(&bench), i64::try_from(bench.stored().len()).unwrap());
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_without_its_expiry_is_no_sound_store() {
    let bench = bench();
    let node = bench.start().await;
    acked(&bench, &node, "k", "k").await;
    let rows = bench.disk.rows(Cf::Index).into_iter();
    let keys = rows.filter(|(key, _)| DedupeKey::decode(key).is_some());
    let dump = Dump::from_rows(keys.map(|(key, value)| (Cf::Index, key, value)));
    let is_told = |violation: &Violation| matches!(violation, Violation::KeyWithoutExpiry { .. });
    assert!(check(&dump).iter().any(is_told));
}
