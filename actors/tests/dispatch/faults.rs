//! A store that fails while dispatch writes: nothing is forgotten, nothing counted twice, nothing delivered again.

use std::time::Duration;

use ankusa_actors::model::counters::Field;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::ports::{Lane, Outcome};

use crate::world::{HTTP, World, millis, rest, retry, secs, stop};

/// Every way a write fails.
fn faults() -> [Fault; 4] {
    let refused = Fault::refuse(SimOp::Apply, FailureClass::NoSpace);
    [
        refused,
        refused.until_reopened(),
        Fault::apply_logged_unseen(FailureClass::IoError),
        Fault::apply_landed(FailureClass::IoError),
    ]
    .map(|fault| fault.on(Lane::Background))
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_failed_is_made_once_the_store_is_reopened() {
    for fault in faults() {
        let world = World::new(&[1]);
        let node = world.start().await;
        rest().await;
        world.disk.fail(fault);
        world.send(&node, "one").await;
        secs(10).await;
        assert_eq!(world.probe().attempts(), ["one #1"], "{fault:?}");
        world.is_sound();
        rest().await;
        assert_eq!((world.hooks(), world.index().as_str()), (0, ""), "{fault:?}");
        assert_eq!(world.disk.counts().opens, 2);
        world.is_sound();
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn outcomes_whose_write_failed_are_written_once_and_nothing_is_delivered_again() {
    for fault in faults() {
        let world = World::new(&[1]);
        let node = world.start().await;
        world.probe().script.slow(Duration::from_secs(1));
        let no = Outcome::Permanent("no".to_owned());
        world.probe().script.answer([Outcome::Ok, no, retry("busy"), Outcome::Ok]);
        world.send_many(&node, 0, "acme", 4).await;
        millis(500).await;
        assert_eq!(world.count(Field::Inflight), 4);
        world.disk.fail(fault);
        secs(30).await;
        let attempts = ["acme0 #1", "acme1 #1", "acme2 #1", "acme3 #1", "acme2 #2"];
        assert_eq!(world.probe().attempts(), attempts, "{fault:?}");
        assert_eq!((world.hooks(), world.count(Field::Dead)), (1, 1));
        assert_eq!(world.disk.counts().opens, 2);
        let dead = world.delivered().iter().filter(|line| line.starts_with("Dead")).count();
        assert_eq!(dead, 1, "{fault:?}");
        world.is_sound();
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_failed_write_had_cleared_is_reclaimed() {
    for fault in faults() {
        let world = World::new(&[2]);
        let node = world.start().await;
        world.probes[0].script.slow(Duration::from_secs(1));
        world.probes[1].script.slow(Duration::from_secs(2));
        world.send(&node, "one").await;
        millis(500).await;
        world.disk.fail(fault);
        rest().await;
        assert_eq!((world.hooks(), world.index().as_str()), (0, ""), "{fault:?}");
        world.is_sound();
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_disk_is_full_outcomes_wait_and_claims_stop() {
    let mut world = World::new(&[1]);
    world.dispatch.max_inflight = 6;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(1));
    world.send_many(&node, 0, "acme", 20).await;
    millis(500).await;
    world.disk.fail_writes(FailureClass::NoSpace);
    secs(600).await;
    assert_eq!(world.probe().attempts().len(), 6);
    assert_eq!(world.count(Field::Inflight), 6);
    let snapshot = world.snapshot(&node);
    assert_eq!((snapshot.claimed, snapshot.running), (6, 0));
    world.disk.heal();
    secs(60).await;
    let each: Vec<_> = (0..20).map(|ix| format!("acme{ix} #1")).collect();
    assert_eq!(world.probe().attempts(), each);
    assert_eq!(world.hooks(), 0);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_recovery_that_failed_is_tried_again() {
    for fault in faults() {
        let world = World::new(&[1]);
        let node = world.start().await;
        world.probe().script.slow(Duration::from_secs(20));
        world.send_many(&node, 0, "acme", 10).await;
        secs(1).await;
        world.kill();
        let next = world.next_life(&[vec![HTTP]]);
        world.disk.fail(fault);
        let other = next.start().await;
        secs(30).await;
        assert_eq!(next.probe().attempts().len(), 10, "{fault:?}");
        assert_eq!(next.hooks(), 0);
        next.is_sound();
        stop(other).await;
        drop(node);
    }
}

#[tokio::test(start_paused = true)]
async fn dispatch_that_starts_beside_a_closed_store_waits_for_it() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    secs(1).await;
    world.disk.fail(Fault::refuse(SimOp::Open, FailureClass::NoSpace).times(3));
    world.disk.fail(Fault::refuse(SimOp::Apply, FailureClass::NoSpace).on(Lane::Commit));
    world.try_send_to(&node, 0, "acme", "refused").await;
    secs(1).await;
    assert!(!node.handles().store.state().open);
    node.handles().board.crash("dispatch");
    secs(60).await;
    assert!(node.handles().store.state().open);
    world.send(&node, "two").await;
    secs(1).await;
    assert_eq!(world.probe().attempts(), ["one #1", "two #1"]);
    let board = node.handles().board.report();
    let dispatch = board.iter().find(|child| &*child.id == "dispatch").unwrap();
    assert_eq!(dispatch.restarts, 1);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn reads_that_fail_are_made_again() {
    let world = World::new(&[2]);
    let node = world.start().await;
    world.disk.fail(Fault::refuse(SimOp::Read, FailureClass::IoError).after(4).times(3));
    for ix in 0..10 {
        world.send(&node, &format!("{ix}")).await;
        secs(1).await;
    }
    rest().await;
    assert_eq!((world.probe().attempts().len(), world.hooks()), (10, 0));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_fails_ends_in_time_and_the_outcomes_are_made_again() {
    let mut world = World::new(&[1]);
    world.dispatch.attempt_timeout_ms = 5_000;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(1));
    world.send(&node, "one").await;
    millis(500).await;
    world.disk.fail_writes(FailureClass::IoError);
    secs(10).await;
    let began = tokio::time::Instant::now();
    node.stop(Duration::from_secs(1_000)).await;
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    world.disk.heal();
    let next = world.next_life(&[vec![HTTP]]);
    let node = next.start().await;
    rest().await;
    assert_eq!((next.probe().attempts(), next.hooks()), (vec!["one #1".to_owned()], 0));
    next.is_sound();
    stop(node).await;
}
