//! What was claimed comes back, whoever died.

use std::time::Duration;

use ankusa_actors::model::counters::Field;

use crate::world::{HTTP, World, millis, rest, retry, secs, stop};

#[tokio::test(start_paused = true)]
async fn rows_that_were_claimed_when_dispatch_crashed_are_delivered_by_its_successor() {
    let mut world = World::new(&[1]);
    world.dispatch.concurrency = 2;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(20));
    world.send_many(&node, 0, "acme", 5).await;
    secs(1).await;
    assert_eq!(world.count(Field::Inflight), 5);
    world.probe().script.slow(Duration::ZERO);
    assert!(node.handles().board.crash("dispatch"));
    millis(100).await;
    let attempts = world.probe().attempts();
    let first = ["acme0 #1", "acme1 #1"];
    assert_eq!(attempts[..2], first, "cut off");
    let all: Vec<_> = (0..5).map(|ix| format!("acme{ix} #1")).collect();
    assert_eq!(attempts[2..], all, "an attempt that was cut off is not counted");
    world.is_sound();
    rest().await;
    assert_eq!((world.hooks(), world.index().as_str()), (0, ""));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_claimed_retry_comes_back_as_a_retry() {
    let mut world = World::new(&[1]);
    world.dispatch.retry.jitter = false;
    let node = world.start().await;
    world.probe().script.answer([retry("busy")]);
    world.send(&node, "one").await;
    millis(50).await;
    world.probe().script.slow(Duration::from_secs(20));
    secs(1).await;
    assert_eq!((world.count(Field::Inflight), world.count(Field::Scheduled)), (1, 0));
    node.handles().board.crash("dispatch");
    millis(100).await;
    assert_eq!(world.probe().attempts(), ["one #1", "one #2", "one #2"]);
    world.is_sound();
    rest().await;
    assert_eq!(world.hooks(), 0);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_that_were_not_written_yet_when_dispatch_crashed_are_made_again() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    millis(1).await;
    assert_eq!((world.probe().attempts().len(), world.count(Field::Inflight)), (1, 1));
    node.handles().board.crash("dispatch");
    rest().await;
    assert_eq!(world.probe().attempts(), ["one #1", "one #1"]);
    assert_eq!(world.hooks(), 0);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_store_brings_dispatch_back_too() {
    let mut world = World::new(&[1]);
    world.dispatch.concurrency = 4;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(1));
    world.send_many(&node, 0, "acme", 40).await;
    secs(3).await;
    assert!(node.handles().board.crash("store"));
    rest().await;
    world.is_sound();
    let mut attempts = world.probe().attempts();
    attempts.sort();
    attempts.dedup();
    assert_eq!((attempts.len(), world.hooks()), (40, 0));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_killed_process_leaves_its_claims_to_the_next() {
    let mut world = World::new(&[1]);
    world.dispatch.concurrency = 3;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(2));
    world.send_many(&node, 0, "acme", 10).await;
    secs(3).await;
    assert_eq!(world.probe().attempts().len(), 6);
    world.kill();
    let next = world.next_life(&[vec![HTTP]]);
    let other = next.start().await;
    millis(200).await;
    let attempts = next.probe().attempts();
    let left: Vec<_> = (3..10).map(|ix| format!("acme{ix} #1")).collect();
    assert_eq!(attempts, left, "at once, and what was delivered is not delivered again");
    rest().await;
    assert_eq!((next.hooks(), next.index().as_str()), (0, ""));
    next.is_sound();
    stop(other).await;
    drop(node);
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_undoes_claims_and_outcomes_and_loses_no_hook() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "before").await;
    secs(1).await;
    world.send_many(&node, 0, "acme", 5).await;
    secs(1).await;
    assert_eq!((world.probe().attempts().len(), world.hooks()), (6, 0));
    world.cut_power();
    world.is_sound();
    assert_eq!((world.hooks(), world.count(Field::Inflight)), (5, 0));
    let next = world.next_life(&[vec![HTTP]]);
    let other = next.start().await;
    rest().await;
    assert_eq!(
        next.probe().attempts().len(),
        5,
        "the fsync of the five made the first's end durable"
    );
    assert_eq!(next.hooks(), 0);
    next.is_sound();
    stop(other).await;
    drop(node);
}

#[tokio::test(start_paused = true)]
async fn thousands_of_claims_come_back() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(10_000));
    world.send_many(&node, 0, "acme", 3_000).await;
    secs(1).await;
    assert_eq!(world.count(Field::Inflight), 3_000);
    world.kill();
    let next = world.next_life(&[vec![HTTP]]);
    let other = next.start().await;
    rest().await;
    assert_eq!((next.probe().attempts().len(), next.hooks()), (3_000, 0));
    next.is_sound();
    stop(other).await;
    drop(node);
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_attempts_end_and_writes_their_outcomes() {
    let mut world = World::new(&[1]);
    world.dispatch.concurrency = 2;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(10));
    world.send_many(&node, 0, "acme", 5).await;
    secs(1).await;
    stop(node).await;
    assert_eq!(world.probe().times(), [0, 0], "nothing new is begun");
    assert_eq!((world.count(Field::Inflight), world.count(Field::Pending)), (3, 0));
    assert_eq!(world.hooks(), 3);
    world.is_sound();
    let next = world.next_life(&[vec![HTTP]]);
    let node = next.start().await;
    rest().await;
    assert_eq!(next.probe().attempts(), ["acme2 #1", "acme3 #1", "acme4 #1"]);
    assert_eq!(next.hooks(), 0);
    next.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_writes_what_ended_and_gives_up_on_what_hangs() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.attempt_timeout_ms = 100_000;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(900));
    world.probes[1].script.slow(Duration::from_secs(60));
    world.send_to(&node, 0, "acme", "hangs").await;
    world.send_to(&node, 1, "acme", "ends").await;
    millis(10).await;
    let began = tokio::time::Instant::now();
    assert!(node.stop(Duration::from_secs(10_000)).await);
    assert_eq!(began.elapsed().as_secs(), 99, "a second is kept for the last write");
    assert_eq!((world.hooks(), world.count(Field::Inflight)), (1, 1));
    world.is_sound();
}

#[tokio::test(start_paused = true)]
async fn a_stop_with_nothing_under_way_is_quick() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    secs(1).await;
    let began = tokio::time::Instant::now();
    stop(node).await;
    assert!(began.elapsed() < Duration::from_millis(100));
}
