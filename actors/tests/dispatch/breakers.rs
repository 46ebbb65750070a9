//! Sinks that keep failing are left alone for a while.

use std::time::Duration;

use ankusa_actors::model::counters::Field;
use ankusa_actors::ports::Outcome;

use crate::world::{World, millis, rest, retry, secs, stop};

#[tokio::test(start_paused = true)]
async fn a_sink_that_keeps_failing_is_left_alone_and_its_rows_spend_no_attempt() {
    let mut world = World::new(&[1]);
    world.dispatch.concurrency = 1;
    world.dispatch.retry.jitter = false;
    let node = world.start().await;
    world.probe().script.answer_otherwise(retry("down"));
    world.send_many(&node, 0, "acme", 20).await;
    secs(1).await;
    assert_eq!(world.probe().attempts().len(), 5);
    assert_eq!(world.snapshot(&node).breakers_open, 1);
    let waiting: Vec<_> = world.rows().into_iter().map(|row| (row.attempts, row.error)).collect();
    let tried = |tries| (tries, Some("down".to_owned()));
    let parked = (0, Some("breaker open".to_owned()));
    assert_eq!(waiting, [vec![tried(1); 5], vec![parked; 15]].concat());
    assert_eq!((world.count(Field::Pending), world.count(Field::Scheduled)), (15, 5));
    assert_eq!(world.count(Field::Inflight), 0);
    world.is_sound();

    // The probes, at 30 s, 60 s later, 120 s later, and so on to 300 s.
    secs(1_200).await;
    let probes: Vec<u64> = world.probe().times().into_iter().skip(5).collect();
    assert_eq!(probes, [30_000, 90_000, 210_000, 450_000, 750_000, 1_050_000]);
    world.is_sound();

    world.probe().script.answer_otherwise(Outcome::Ok);
    secs(400).await;
    assert_eq!((world.hooks(), world.snapshot(&node).breakers_open), (0, 0));
    let last: Vec<u64> = world.probe().times().into_iter().skip(11).collect();
    assert_eq!((last.len(), last[0], last[19]), (20, 1_350_000, 1_350_000));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_permanent_answer_does_not_count_and_closes() {
    let mut world = World::new(&[1]);
    world.dispatch.concurrency = 1;
    world.dispatch.breaker_failures = 2;
    let node = world.start().await;
    let no = || Outcome::Permanent("no".to_owned());
    world.probe().script.answer([no(), no(), no(), retry("a"), no(), retry("b"), no()]);
    world.send_many(&node, 0, "acme", 9).await;
    secs(1).await;
    assert_eq!((world.probe().attempts().len(), world.snapshot(&node).breakers_open), (6, 1));
    secs(40).await;
    assert_eq!((world.count(Field::Dead), world.snapshot(&node).breakers_open), (5, 0));
    assert_eq!((world.probe().attempts().len(), world.hooks()), (11, 5));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn only_the_sink_that_fails_is_left_alone() {
    let world = World::new(&[2]);
    let node = world.start().await;
    world.probes[0].script.answer_otherwise(retry("down"));
    world.send_many(&node, 0, "acme", 500).await;
    secs(1).await;
    let asked = |ix: usize| world.probes[ix].attempts().len();
    assert_eq!((asked(0) < 50, asked(1)), (true, 500));
    assert_eq!(world.hooks(), 500);
    world.is_sound();
    world.probes[0].script.answer_otherwise(Outcome::Ok);
    secs(700).await;
    assert_eq!(world.hooks(), 0);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_come_while_a_sink_is_left_alone_are_parked_with_the_others() {
    let mut world = World::new(&[1]);
    world.dispatch.breaker_failures = 1;
    let node = world.start().await;
    world.probe().script.answer([retry("down")]);
    world.send(&node, "first").await;
    secs(10).await;
    world.send(&node, "late").await;
    secs(19).await;
    assert_eq!(world.probe().asked(), ["0 first #1"]);
    world.is_sound();
    rest().await;
    assert_eq!(world.probe().asked(), ["0 first #1", "30000 first #2", "30000 late #1"]);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_probe_runs_the_others_wait_for_it() {
    let mut world = World::new(&[1]);
    world.dispatch.breaker_failures = 1;
    let node = world.start().await;
    world.probe().script.answer([retry("down")]);
    world.send(&node, "a").await;
    secs(1).await;
    world.send(&node, "b").await;
    world.send(&node, "c").await;
    world.probe().script.slow(Duration::from_secs(10));
    secs(35).await;
    assert_eq!(world.probe().attempts().len(), 2, "the probe");
    assert_eq!(world.snapshot(&node).runnable, 2);
    secs(6).await;
    assert_eq!(world.probe().times(), [0, 30_000, 40_000, 40_000]);
    rest().await;
    assert_eq!(world.hooks(), 0);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_closes_every_breaker() {
    let mut world = World::new(&[1]);
    world.dispatch.breaker_failures = 1;
    world.dispatch.concurrency = 1;
    let node = world.start().await;
    world.probe().script.answer([retry("down")]);
    world.send_many(&node, 0, "acme", 3).await;
    secs(1).await;
    assert!(node.handles().board.crash("dispatch"));
    millis(100).await;
    world.send(&node, "new").await;
    millis(100).await;
    assert_eq!(world.probe().attempts(), ["acme0 #1", "new #1"]);
    stop(node).await;
}
