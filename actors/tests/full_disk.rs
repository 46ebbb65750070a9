//! A disk that fills up and has room again: who is told what meanwhile, and how soon it is over. On virtual time.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::keys::{META_READY_PROBE, u64_value};
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::ports::{DiskRoom, Lane};
use ankusa_actors::queue::CommitAnswer;
use common::{Bench, UNAVAILABLE, millis, secs};
use tokio::time::Instant;

const MIB: u64 = 1 << 20;
const TOTAL_BYTES: u64 = 4 << 30;

/// A node on a disk with half a gibibyte free; the limits on it are 64, 64 and 128 MiB.
fn bench() -> Bench {
    let bench = Bench::default();
    bench.resize(512);
    bench
}

/// The same without a reserve.
fn without_reserve() -> Bench {
    let mut bench = bench();
    bench.settings.store.reserve_bytes = 0;
    bench
}

trait Room {
    /// So much is free, the reserve not counted.
    fn resize(&self, free_mib: u64);
    fn reserve_mib(&self) -> u64;
    fn events_of(&self, kind: &str) -> Vec<String>;
}

impl Room for Bench {
    fn resize(&self, free_mib: u64) {
        self.disk.resize(free_mib * MIB, TOTAL_BYTES);
    }

    fn reserve_mib(&self) -> u64 {
        self.disk.room().reserve_bytes / MIB
    }

    fn events_of(&self, kind: &str) -> Vec<String> {
        self.events.lines().into_iter().filter(|line| line.starts_with(kind)).collect()
    }
}

fn reopens(bench: &Bench, result: &str) -> usize {
    bench.events_of(&format!("StoreReopened {{ result: {result},")).len()
}

/// How long it takes until `is_so`, looked at every 10 ms.
async fn until(is_so: impl AsyncFn() -> bool) -> Duration {
    let began = Instant::now();
    while !is_so().await {
        assert!(began.elapsed() < Duration::from_secs(120), "it never was");
        millis(10).await;
    }
    began.elapsed()
}

async fn takes_a_hook(bench: &Bench, node: &Node) -> bool {
    matches!(bench.send(node, bench.hook("acme", "after")).await, CommitAnswer::Committed(_))
}

async fn is_refused_at_once(bench: &Bench, node: &Node) {
    let began = Instant::now();
    assert_eq!(bench.send(node, bench.hook("acme", "refused")).await, UNAVAILABLE);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_costs_the_reserve_and_hooks_are_taken_again_two_seconds_after_its_end() {
    let bench = bench();
    let node = bench.start().await;
    let store = node.handles().store.clone();
    bench.acked(&node, "acme", "before").await;
    millis(1).await;
    assert_eq!(bench.reserve_mib(), 64);

    bench.resize(0);
    assert_eq!(bench.send(&node, bench.hook("acme", "failed")).await, UNAVAILABLE);
    let state = store.state();
    assert_eq!((state.open, state.generation, state.accepting), (true, 2, false));
    assert_eq!((state.failing, bench.reserve_mib()), (None, 0), "the recovery has got through");
    for _ in 0..100 {
        secs(6).await;
        is_refused_at_once(&bench, &node).await;
        let failure = node.handles().readiness.store_failure().await;
        assert_eq!(failure, Some(FailureClass::NoSpace));
    }
    assert_eq!(store.state().generation, 2, "nothing is reopened again for it");
    assert_eq!(bench.events_of("StoreAccepting"), ["StoreAccepting { accepting: false }"]);

    bench.resize(300);
    let ready = async || node.handles().readiness.store_failure().await.is_none();
    assert!(until(ready).await < Duration::from_secs(1));
    assert!(takes_a_hook(&bench, &node).await);
    assert_eq!(bench.reserve_mib(), 64, "and it is made again");
    let bodies = bench.durable().into_iter().map(|(_, body)| body);
    assert_eq!(bodies.collect::<Vec<_>>(), ["before", "after"]);
    assert_eq!((reopens(&bench, "Ok"), reopens(&bench, "Deferred")), (1, 20));
}

#[tokio::test(start_paused = true)]
async fn a_disk_with_room_again_within_the_reopen_interval_does_not_cost_the_reserve() {
    let bench = bench();
    let node = bench.start().await;
    let store = node.handles().store.clone();
    bench.acked(&node, "acme", "before").await;
    bench.resize(0);
    let batcher = node.handles().batchers[0].clone();
    let (waiting, deadline) = batcher.submit(bench.hook("acme", "failed")).unwrap();
    millis(4_800).await;
    let state = store.state();
    assert_eq!((state.failing, state.generation), (Some(FailureClass::NoSpace), 1));
    assert_eq!(bench.reserve_mib(), 64);
    bench.resize(300);
    assert!(until(async || takes_a_hook(&bench, &node).await).await < Duration::from_secs(2));
    assert_eq!(waiting.answer(deadline).await, UNAVAILABLE);
    assert_eq!((store.state().generation, bench.reserve_mib()), (2, 64));
}

#[tokio::test(start_paused = true)]
async fn without_a_reserve_the_reopen_is_deferred_until_there_is_room() {
    let bench = without_reserve();
    let node = bench.start().await;
    let store = node.handles().store.clone();
    bench.acked(&node, "acme", "before").await;
    bench.resize(0);
    let unknown = bench.send(&node, bench.hook("acme", "unknown")).await;
    assert_eq!(unknown, CommitAnswer::Unknown, "its fence could not be made");
    let state = store.state();
    assert_eq!((state.open, state.generation), (true, 1), "it can still be read");
    assert_eq!(state.failing, Some(FailureClass::NoSpace));
    assert!(store.get(Cf::Default, META_READY_PROBE).is_ok());
    assert!(
        reopens(&bench, "Deferred") >= 40,
        "four times a second: {}",
        reopens(&bench, "Deferred")
    );
    is_refused_at_once(&bench, &node).await;
    // Enough for a small file, and not for a recovery.
    bench.resize(1);
    secs(5).await;
    assert_eq!(store.state().generation, 1);

    bench.resize(200);
    assert!(until(async || takes_a_hook(&bench, &node).await).await < Duration::from_secs(2));
    assert_eq!(store.state().generation, 2);
    let bodies = bench.durable().into_iter().map(|(_, body)| body);
    assert_eq!(bodies.collect::<Vec<_>>(), ["before", "after"], "the fence has been made since");
}

#[tokio::test(start_paused = true)]
async fn room_that_comes_and_goes_does_not_make_hooks_be_taken_and_refused_in_turn() {
    let bench = bench();
    let node = bench.start().await;
    millis(1).await;
    for _ in 0..20 {
        for free_mib in [63, 127, 64, 100] {
            bench.resize(free_mib);
            secs(1).await;
            is_refused_at_once(&bench, &node).await;
        }
    }
    assert_eq!(bench.events_of("StoreAccepting"), ["StoreAccepting { accepting: false }"]);
    for _ in 0..20 {
        for free_mib in [128, 65, 127, 64] {
            bench.resize(free_mib);
            secs(1).await;
            assert!(takes_a_hook(&bench, &node).await, "{free_mib}");
            bench.resize(free_mib);
        }
    }
    let both = ["StoreAccepting { accepting: false }", "StoreAccepting { accepting: true }"];
    assert_eq!(bench.events_of("StoreAccepting"), both);
    let counted = ["StoreWriteFailed { class: NoSpace }"];
    assert_eq!(bench.events_of("StoreWriteFailed"), counted, "once, and no write has failed");
    assert_eq!(node.handles().store.state().generation, 1);
}

#[tokio::test(start_paused = true)]
async fn while_new_hooks_are_refused_for_want_of_room_everything_else_may_write() {
    let bench = bench();
    let node = bench.start().await;
    let admin_says = async || node.handles().readiness.store_failure().await;
    assert_eq!(admin_says().await, None);
    bench.resize(10);
    let no_space = Some(FailureClass::NoSpace);
    assert!(until(async || admin_says().await == no_space).await < Duration::from_secs(1));
    is_refused_at_once(&bench, &node).await;
    let mut batch = Batch::default();
    batch.put(Cf::Default, META_READY_PROBE, &u64_value(7));
    node.handles().store.apply_synced(batch, Lane::Background).await.unwrap();
    assert_eq!(bench.reserve_mib(), 64, "it is for a recovery, and for nothing else");
}

#[tokio::test(start_paused = true)]
async fn a_store_that_could_not_open_for_want_of_room_does_not_wait_once_there_is_some() {
    let bench = bench();
    let node = bench.start().await;
    let store = node.handles().store.clone();
    bench.resize(200);
    for more_mib in [0, 100] {
        bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::NoSpace));
        store.reopen().await.unwrap_err();
        assert!(!store.state().open);
        bench.resize(200 + more_mib);
        let took = until(async || store.state().open).await;
        if more_mib == 0 {
            assert!(took >= Duration::from_millis(3_750), "the wait of a failed open: {took:?}");
        } else {
            assert!(took <= Duration::from_millis(500), "{took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_recovery_that_was_thought_not_to_fit_is_tried_in_the_end() {
    let bench = without_reserve();
    let node = bench.start().await;
    let store = node.handles().store.clone();
    bench.acked(&node, "acme", "before").await;
    bench.resize(1);
    bench.disk.fail(Fault::refuse(SimOp::Apply, FailureClass::IoError));
    store.apply(Batch::default(), Lane::Background).await.unwrap_err();
    let took = until(async || store.state().generation == 2).await;
    assert!((59..=61).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_start_on_a_full_disk_gives_the_reserve_up_and_takes_hooks_once_there_is_room() {
    let bench = bench();
    let node = bench.start().await;
    bench.acked(&node, "acme", "kept").await;
    assert!(node.stop(Duration::from_secs(60)).await);
    bench.resize(0);
    let node = bench.start().await;
    let state = node.handles().store.state();
    assert_eq!((state.open, state.accepting, bench.reserve_mib()), (true, false, 0));
    is_refused_at_once(&bench, &node).await;
    assert_eq!(bench.stored().len(), 1, "it can be read");
    bench.resize(500);
    assert!(until(async || takes_a_hook(&bench, &node).await).await < Duration::from_secs(2));
    assert_eq!(bench.reserve_mib(), 64);
}

#[tokio::test(start_paused = true)]
async fn a_start_on_a_full_disk_without_a_reserve_waits_for_room_and_answers_meanwhile() {
    let bench = without_reserve();
    let node = bench.start().await;
    bench.acked(&node, "acme", "kept").await;
    assert!(node.stop(Duration::from_secs(60)).await);
    let kept = bench.durable();
    bench.resize(0);
    let node = bench.start().await;
    for _ in 0..50 {
        secs(20).await;
        let state = node.handles().store.state();
        assert_eq!((state.open, state.failing), (false, Some(FailureClass::NoSpace)));
        is_refused_at_once(&bench, &node).await;
        let failure = node.handles().readiness.store_failure().await;
        assert_eq!(failure, Some(FailureClass::NoSpace));
    }
    assert_eq!(bench.durable(), kept, "nothing is deleted to make room");
    bench.resize(500);
    assert!(until(async || takes_a_hook(&bench, &node).await).await < Duration::from_secs(2));
    let bodies: Vec<_> = bench.durable().into_iter().map(|(_, body)| body).collect();
    assert_eq!(bodies, ["kept", "after"]);
}

#[tokio::test(start_paused = true)]
async fn a_first_start_on_a_full_disk_waits_for_room_too() {
    let bench = bench();
    bench.resize(0);
    let node = bench.start().await;
    secs(100).await;
    is_refused_at_once(&bench, &node).await;
    bench.resize(500);
    assert!(until(async || takes_a_hook(&bench, &node).await).await < Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn the_reserve_is_as_long_as_it_is_configured_now() {
    let mut bench = bench();
    for reserve_bytes in [64 * MIB, 10 * MIB, 0] {
        bench.settings.store.reserve_bytes = reserve_bytes;
        let node = bench.start().await;
        millis(1).await;
        assert_eq!(bench.disk.room().reserve_bytes, reserve_bytes);
        let DiskRoom { free_bytes, .. } = bench.disk.room();
        assert!(512 * MIB - reserve_bytes - free_bytes < MIB, "{free_bytes}");
        assert!(node.stop(Duration::from_secs(60)).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_disk_too_small_for_the_configured_limits_takes_hooks_all_the_same() {
    let bench = Bench::default();
    bench.disk.resize(192 * MIB, 192 * MIB);
    let node = bench.start().await;
    millis(1).await;
    let limits = node.handles().store.state().limits;
    let all = [limits.reserve_bytes, limits.min_free_bytes, limits.resume_free_bytes];
    assert_eq!(all.map(|bytes| bytes / MIB), [24, 12, 24]);
    assert_eq!(bench.reserve_mib(), 24);
    bench.acked(&node, "acme", "taken").await;
}
