//! How much is claimed, and in which order.

use std::time::Duration;

use ankusa_actors::model::counters::Field;
use ankusa_actors::ports::Outcome;

use crate::world::{EPOCH_MS, World, millis, rest, secs, stop};

#[tokio::test(start_paused = true)]
async fn no_more_is_claimed_than_may_be_held() {
    let mut world = World::new(&[1]);
    world.dispatch.max_inflight = 7;
    world.dispatch.concurrency = 4;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(5));
    world.send_many(&node, 0, "acme", 100).await;
    for _ in 0..40 {
        assert!(world.snapshot(&node).claimed <= 7);
        assert!(world.count(Field::Inflight) <= 7);
        secs(1).await;
    }
    assert_eq!(world.count(Field::Inflight), 7, "and not much less");
    world.is_sound();
    secs(200).await;
    assert_eq!(world.probe().attempts().len(), 100);
    assert_eq!(world.hooks(), 0);
    assert_eq!(world.probe().script.in_flight_max(), 4);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn bytes_bound_what_is_held_too_and_a_hook_beyond_the_bound_goes_alone() {
    let mut world = World::new(&[1]);
    world.dispatch.max_inflight_bytes = 1;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(1));
    world.send_many(&node, 0, "acme", 20).await;
    rest().await;
    assert_eq!(world.probe().attempts().len(), 20);
    assert_eq!(world.probe().script.in_flight_max(), 1);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn the_snapshot_shows_what_is_held_runs_and_waits() {
    let mut world = World::new(&[1]);
    world.dispatch.max_inflight = 8;
    world.dispatch.concurrency = 3;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(5));
    world.send_many(&node, 0, "acme", 10).await;
    secs(1).await;
    let bytes: usize = world.rows().iter().map(|row| usize::try_from(row.size).unwrap()).sum();
    let snapshot = world.snapshot(&node);
    assert_eq!((snapshot.claimed, snapshot.running, snapshot.runnable), (7, 3, 4));
    assert_eq!(snapshot.claimed_bytes, u64::try_from(bytes).unwrap() / 10 * 7);
    assert_eq!(snapshot.oldest_due_at_ms, Some(EPOCH_MS));
    assert_eq!(snapshot.breakers_open, 0);
    secs(60).await;
    assert_eq!(world.snapshot(&node), Default::default());
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_are_delivered_in_the_order_they_came_when_one_runs_at_a_time() {
    let mut world = World::new(&[1]);
    world.dispatch.concurrency = 1;
    world.dispatch.batch = 10;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_millis(1));
    world.send_many(&node, 0, "acme", 100).await;
    millis(500).await;
    let each: Vec<_> = (0..100).map(|ix| format!("acme{ix} #1")).collect();
    assert_eq!(world.probe().attempts(), each);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_is_due_is_claimed_although_nothing_wakes_dispatch() {
    let world = World::new(&[1]);
    let node = world.start().await;
    let later = Outcome::RetryAfter { ms: 1_234_567, reason: "later".to_owned() };
    world.probe().script.answer([later]);
    world.send(&node, "one").await;
    secs(2_000).await;
    assert_eq!(world.probe().asked(), ["0 one #1", "1234567 one #2"]);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn an_idle_node_hardly_reads() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    rest().await;
    let reads = world.disk.counts().reads;
    secs(3_000).await;
    // A look each 30 s, a sweep of markers each minute, one of dedupe keys each 10 s.
    let reads = world.disk.counts().reads - reads;
    assert!(reads <= 2 * 100 + 50 + 300 + 5, "{reads} reads");
    stop(node).await;
}
