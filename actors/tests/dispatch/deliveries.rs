//! What works.

use std::time::Duration;

use ankusa_actors::model::counters::Field;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::Outcome;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::queue::{CommitAnswer, Refusal};

use crate::world::{HTTP, World, millis, rest, retry, secs, stop};

#[tokio::test(start_paused = true)]
async fn a_hook_is_delivered_once_and_leaves_nothing_behind() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    rest().await;
    assert_eq!(world.probe().asked(), ["0 one #1"]);
    assert_eq!(world.delivered(), ["Delivered { sink: \"http\", result: Ok"]);
    assert_eq!((world.hooks(), world.rows(), world.index().as_str()), (0, vec![], ""));
    assert_eq!((world.count(Field::Pending), world.count(Field::Bytes)), (0, 0));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_delivery_says_what_the_hook_was() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    secs(1).await;
    let deliveries = world.probe().script.deliveries();
    let [delivery] = deliveries.as_slice() else { panic!("{deliveries:?}") };
    assert_eq!(delivery.envelope.body.as_ref(), b"one");
    assert_eq!((delivery.tenant_id.as_str(), delivery.attempt), ("acme", 1));
    assert_eq!((delivery.replay_id.as_deref(), &delivery.forwarded), (None, &vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_hook_stays_until_its_last_sink_has_it() {
    let world = World::new(&[3]);
    let node = world.start().await;
    world.probes[1].script.answer([retry("busy")]);
    world.probes[2].script.slow(Duration::from_millis(10));
    world.send(&node, "one").await;
    millis(60).await;
    assert_eq!((world.hooks(), world.rows().len()), (1, 1));
    assert_eq!(world.index(), "AD", "no marker of a cleared obligation is left");
    world.is_sound();
    rest().await;
    assert_eq!((world.hooks(), world.rows().len(), world.index().as_str()), (0, 0, ""));
    let attempts: Vec<_> = world.probes.iter().map(|probe| probe.attempts()).collect();
    assert_eq!(attempts, [vec!["one #1"], vec!["one #1", "one #2"], vec!["one #1"]]);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn sinks_that_have_a_hook_in_the_same_moment_take_it_along() {
    let world = World::new(&[2]);
    let node = world.start().await;
    world.send(&node, "one").await;
    millis(50).await;
    assert_eq!((world.hooks(), world.rows().len()), (0, 0));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_is_owed_to_the_archive_stays() {
    let mut world = World::new(&[1]);
    world.roles.storage = true;
    let node = world.start().await;
    world.send(&node, "one").await;
    rest().await;
    assert_eq!(world.probe().attempts(), ["one #1"]);
    assert_eq!((world.hooks(), world.rows().len(), world.index().as_str()), (1, 0, "a"));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn many_hooks_are_each_delivered_once_and_no_more_than_allowed_at_once() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.probe().script.slow(Duration::from_millis(20));
    world.send_many(&node, 0, "acme", 3_000).await;
    rest().await;
    let mut attempts = world.probe().attempts();
    attempts.sort();
    let mut each: Vec<_> = (0..3_000).map(|ix| format!("acme{ix} #1")).collect();
    each.sort();
    assert_eq!(attempts, each);
    assert_eq!(world.probe().script.in_flight_max(), 28, "of 32: the rest is for another");
    assert_eq!((world.hooks(), world.index().as_str()), (0, ""));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn outcomes_are_written_together() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send_many(&node, 0, "acme", 512).await;
    secs(1).await;
    let applies = world.disk.counts().applies;
    world.send_many(&node, 0, "acme", 512).await;
    secs(1).await;
    // Two groups of hooks, four claims of 128, two batches of 256 outcomes; the rest are single.
    let applies = world.disk.counts().applies - applies;
    assert!(applies <= 12, "{applies} batches for 512 hooks");
    assert_eq!(world.hooks(), 0);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_delivered_before_the_fsync_that_makes_it_durable() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    millis(100).await;
    world.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let (sent, ()) = tokio::join!(world.send(&node, "two"), async {
        millis(100).await;
        node.handles().dispatch.wake();
        millis(300).await;
        assert_eq!(world.hooks(), 1, "it is applied");
        assert_eq!(world.probe().attempts(), ["one #1"]);
        assert_eq!(world.count(Field::Inflight), 0, "nor is it claimed");
    });
    assert_eq!(sent.0, 2);
    secs(1).await;
    assert_eq!(world.probe().attempts(), ["one #1", "two #1"]);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_was_refused_is_never_delivered() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.disk.fail(Fault::sync_landed(FailureClass::IoError));
    let answer = world.try_send_to(&node, 0, "acme", "refused").await;
    assert_eq!(answer, CommitAnswer::Refused(Refusal::StoreUnavailable));
    world.send(&node, "acked").await;
    secs(60).await;
    assert_eq!(world.probe().attempts(), ["acked #1"]);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_back_holds_nothing_up() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    millis(100).await;
    world.clock.step_ms(-500);
    world.send(&node, "two").await;
    millis(100).await;
    assert_eq!(world.probe().attempts(), ["one #1", "two #1"]);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_that_was_scheduled_before_the_clock_was_set_back_comes_in_its_time() {
    let world = World::new(&[1]);
    let node = world.start().await;
    let later = Outcome::RetryAfter { ms: 60_000, reason: "later".to_owned() };
    world.probe().script.answer([later]);
    world.send(&node, "one").await;
    secs(1).await;
    world.clock.step_ms(-3_600_000);
    secs(58).await;
    assert_eq!(world.probe().attempts(), ["one #1"]);
    secs(2).await;
    assert_eq!(world.probe().attempts(), ["one #1", "one #2"]);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_clock_that_was_a_month_ahead_are_due_at_the_next_start() {
    const MONTH_MS: i64 = 30 * 86_400_000;
    let world = World::new(&[1]);
    world.clock.step_ms(MONTH_MS);
    let node = world.start().await;
    let later = |ms| Outcome::RetryAfter { ms, reason: "later".to_owned() };
    world.probe().script.answer([later(3_600_000), later(3_600_000)]);
    world.send(&node, "one").await;
    secs(2).await;
    world.send(&node, "two").await;
    secs(2).await;
    stop(node).await;
    world.clock.step_ms(-MONTH_MS);
    let world = world.next_life(&[vec![HTTP]]);
    let node = world.start().await;
    // What is due within an hour may be meant so.
    world.probe().script.answer([later(3_500_000)]);
    secs(5).await;
    assert_eq!(world.probe().attempts().len(), 2, "{:?}", world.probe().attempts());
    world.is_sound();
    stop(node).await;
    let world = world.next_life(&[vec![HTTP]]);
    let node = world.start().await;
    secs(3_400).await;
    assert_eq!(world.probe().attempts(), [""; 0]);
    secs(200).await;
    assert_eq!(world.probe().attempts().len(), 1);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_set_forward_brings_retries_forward() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world
        .probe()
        .script
        .answer([Outcome::RetryAfter { ms: 3_600_000, reason: "later".to_owned() }]);
    world.send(&node, "one").await;
    secs(1).await;
    world.clock.step_ms(3_600_000);
    secs(2).await;
    assert_eq!(world.probe().attempts(), ["one #1", "one #2"]);
    stop(node).await;
}
