//! What fails, and is tried again or given up.

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::dispatch::RetryConfig;
use ankusa_actors::model::counters::Field;
use ankusa_actors::model::delivery::RowState;
use ankusa_actors::ports::Outcome;

use crate::world::{EPOCH_MS, Loaded, World, millis, rest, retry, secs, stop};

/// A world in which every breaker stays closed.
fn world() -> World {
    let mut world = World::new(&[1]);
    world.dispatch.breaker_failures = 0;
    world
}

#[tokio::test(start_paused = true)]
async fn waits_double_exactly_as_the_policy_says() {
    let mut world = world();
    world.dispatch.retry.jitter = false;
    let node = world.start().await;
    world.probe().script.answer(vec![retry("busy"); 14]);
    world.send(&node, "one").await;
    secs(3_600).await;
    let mut due = vec![0];
    for attempt in 0..14_u32 {
        due.push(due[due.len() - 1] + (100 << attempt).min(300_000));
    }
    assert_eq!(world.probe().times(), due);
    assert_eq!(world.probe().attempts().last().unwrap(), "one #15");
    assert_eq!(world.hooks(), 0);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn jitter_takes_its_part_of_every_wait() {
    let mut world = world();
    world.entropy = Arc::new(Loaded(0.5));
    let node = world.start().await;
    world.probe().script.answer(vec![retry("busy"); 4]);
    world.send(&node, "one").await;
    secs(60).await;
    assert_eq!(world.probe().times(), [0, 75, 225, 525, 1_125]);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_waits_says_why_and_when() {
    let world = world();
    let node = world.start().await;
    world.probe().script.answer([Outcome::RetryAfter { ms: 9_000, reason: "429".to_owned() }]);
    world.send(&node, "one").await;
    secs(1).await;
    let rows = world.rows();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.attempts, row.error.as_deref()), (1, Some("429")));
    assert_eq!((row.state, row.at_ms), (RowState::Pending, EPOCH_MS + 9_000));
    assert_eq!((world.count(Field::Pending), world.count(Field::Scheduled)), (0, 1));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_names_a_later_time_is_left_alone_until_then() {
    let mut world = world();
    world.dispatch.retry.jitter = false;
    let node = world.start().await;
    let after = |ms| Outcome::RetryAfter { ms, reason: "later".to_owned() };
    world.probe().script.answer([after(7_000), after(50), after(10_000_000)]);
    world.send(&node, "one").await;
    secs(5_000).await;
    assert_eq!(world.probe().times(), [0, 7_000, 7_200, 3_607_200]);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_permanent_refusal_is_dead_at_once() {
    let world = world();
    let node = world.start().await;
    world.probe().script.answer([Outcome::Permanent("the worker said 410".to_owned())]);
    world.send(&node, "one").await;
    rest().await;
    assert_eq!(world.probe().attempts(), ["one #1"]);
    let rows = world.rows();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.state, row.attempts, row.at_ms), (RowState::Dead, 1, EPOCH_MS));
    assert_eq!(row.error.as_deref(), Some("the worker said 410"));
    assert_eq!((world.index().as_str(), world.hooks()), ("Xx", 1));
    assert_eq!((world.count(Field::Dead), world.count(Field::Inflight)), (1, 0));
    let events = [
        "Delivered { sink: \"http\", result: Error",
        "DeadLettered { source_id: \"s0\", sink: \"http\" }",
    ];
    assert_eq!(world.delivered(), events);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_with_a_dead_row_stays_when_its_other_sinks_have_it() {
    let world = World::new(&[2]);
    let node = world.start().await;
    world.probes[1].script.answer([Outcome::Permanent("no".to_owned())]);
    world.send(&node, "one").await;
    rest().await;
    assert_eq!((world.hooks(), world.rows().len(), world.index().as_str()), (1, 1, "Xx"));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn attempts_are_used_up_one_by_one() {
    let mut world = world();
    world.dispatch.retry = RetryConfig { base_ms: 10, max_ms: 20, max_attempts: 3, jitter: false };
    let node = world.start().await;
    world.probe().script.answer([retry("one"), retry("two"), retry("three"), retry("four")]);
    world.send(&node, "hook").await;
    secs(10).await;
    assert_eq!(world.probe().attempts(), ["hook #1", "hook #2", "hook #3"]);
    let rows = world.rows();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.state, row.attempts), (RowState::Dead, 3));
    assert_eq!(row.error.as_deref(), Some("three"));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_takes_too_long_is_cut_off_and_tried_again() {
    let mut world = world();
    world.dispatch.retry.jitter = false;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(3_600));
    world.send(&node, "one").await;
    secs(31).await;
    world.probe().script.slow(Duration::ZERO);
    let rows = world.rows();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(row.error.as_deref(), Some("attempt timed out after 30000 ms"));
    secs(60).await;
    assert_eq!(world.probe().asked(), ["0 one #1", "30100 one #2", "60300 one #3"]);
    assert_eq!(world.delivered()[0], "Delivered { sink: \"http\", result: Timeout");
    assert_eq!(world.hooks(), 0);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_panics_has_failed_once_and_hurts_nobody_else() {
    let world = world();
    let node = world.start().await;
    world.probe().panic_at("bad");
    world.send(&node, "bad").await;
    world.send(&node, "good").await;
    millis(60).await;
    let rows = world.rows();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((row.attempts, row.error.as_deref()), (1, Some("the sink panicked")));
    world.is_sound();
    secs(5).await;
    assert_eq!(world.probe().attempts(), ["bad #1", "good #1", "bad #2"]);
    let board = node.handles().board.report();
    let dispatch = board.iter().find(|child| &*child.id == "dispatch").unwrap();
    assert_eq!(dispatch.restarts, 0);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn what_a_sink_says_at_length_is_cut() {
    let world = world();
    let node = world.start().await;
    world.probe().script.answer([Outcome::Permanent("ä".repeat(5_000))]);
    world.send(&node, "one").await;
    secs(1).await;
    assert_eq!(world.rows()[0].error, Some("ä".repeat(1_000)));
    stop(node).await;
}
