//! Ordered sinks: per lane one hook after the other, and no lane waits for another.

use std::time::Duration;

use ankusa_actors::model::counters::Field;
use ankusa_actors::model::ordering::OrderBy;
use ankusa_actors::ports::Outcome;
use ankusa_actors::ports::sim::SimOp;

use crate::world::{Probe, World, millis, rest, retry, secs, stop};

/// One source whose one sink takes everything in order.
pub(crate) fn by_source() -> World {
    let mut world = World::new(&[1]);
    world.order(0, &[Some(OrderBy::Source)]);
    world.dispatch.retry.jitter = false;
    world
}

/// One source whose one sink goes by the first element of the body: `["a", 1]`.
pub(crate) fn by_json() -> World {
    let mut world = World::new(&[1]);
    world.order(0, &[Some(OrderBy::Json("/0".to_owned()))]);
    world.dispatch.retry.jitter = false;
    world
}

/// So many bodies for each of these lanes, taking turns.
pub(crate) fn bodies(lanes: &[&str], each: usize) -> Vec<String> {
    let round = |n: usize| lanes.iter().map(move |lane| format!(r#"["{lane}",{n}]"#));
    (0..each).flat_map(round).collect()
}

/// What was asked of one lane.
fn of_lane(probe: &Probe, lane: &str) -> Vec<String> {
    let prefix = format!(r#"["{lane}","#);
    let mut asked = probe.asked();
    asked.retain(|line| line.split_once(' ').unwrap().1.starts_with(&prefix));
    asked
}

/// Lanes, heads that wait, members.
fn counts(world: &World) -> (i64, i64, i64) {
    (world.count(Field::Lanes), world.count(Field::LanesBlocked), world.count(Field::LaneMembers))
}

fn is_empty(world: &World) {
    world.is_sound();
    assert_eq!((world.hooks(), world.index().as_str()), (0, ""));
    assert_eq!((counts(world), world.count(Field::Pending)), ((0, 0, 0), 0));
}

#[tokio::test(start_paused = true)]
async fn hooks_are_delivered_one_after_the_other_and_none_waits_after_a_success() {
    let world = by_source();
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(1));
    world.send_many(&node, 0, "acme", 5).await;
    millis(500).await;
    assert_eq!(world.index().matches('O').count(), 4);
    assert_eq!((counts(&world), world.count(Field::Inflight)), ((1, 0, 4), 1));
    world.is_sound();
    secs(10).await;
    let asked = ["0 acme0 #1", "1000 acme1 #1", "2000 acme2 #1", "3000 acme3 #1", "4000 acme4 #1"];
    assert_eq!(world.probe().asked(), asked);
    assert_eq!(world.probe().script.in_flight_max(), 1);
    rest().await;
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_hooks_with_one_retry_take_as_long_as_that_retry() {
    let world = by_source();
    let node = world.start().await;
    world.probe().script.answer(vec![Outcome::Ok; 49]);
    world.probe().script.answer([retry("busy")]);
    world.send_many(&node, 0, "acme", 100).await;
    rest().await;
    let line = |ix: usize| match ix {
        0..50 => format!("0 acme{ix} #1"),
        50 => "100 acme49 #2".to_owned(),
        ix => format!("100 acme{} #1", ix - 1),
    };
    assert_eq!(world.probe().asked(), (0..=100).map(line).collect::<Vec<_>>());
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_comes_while_its_lane_is_idle_goes_at_once() {
    let world = by_source();
    let node = world.start().await;
    for ix in 0..4 {
        world.send(&node, &format!("{ix}")).await;
        millis(700).await;
    }
    assert_eq!(world.probe().asked(), ["0 0 #1", "700 1 #1", "1400 2 #1", "2100 3 #1"]);
    rest().await;
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_fails_holds_its_own_lane_up_and_no_other() {
    let mut world = by_json();
    world.dispatch.breaker_failures = 0;
    let node = world.start().await;
    world.probe().script.answer([retry("a"), Outcome::Ok, Outcome::Ok, Outcome::Ok]);
    world.send_all(&node, &bodies(&["a", "b"], 3)).await;
    millis(50).await;
    assert_eq!(of_lane(world.probe(), "a"), [r#"0 ["a",0] #1"#]);
    let b = [r#"0 ["b",0] #1"#, r#"0 ["b",1] #1"#, r#"0 ["b",2] #1"#];
    assert_eq!(of_lane(world.probe(), "b"), b);
    assert_eq!((counts(&world), world.count(Field::Scheduled)), ((1, 1, 2), 1));
    world.is_sound();
    rest().await;
    let a = [r#"0 ["a",0] #1"#, r#"100 ["a",0] #2"#, r#"100 ["a",1] #1"#, r#"100 ["a",2] #1"#];
    assert_eq!(of_lane(world.probe(), "a"), a);
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_given_up_lets_the_next_go_at_once() {
    let world = by_source();
    let node = world.start().await;
    world.probe().script.answer([Outcome::Permanent("no".to_owned())]);
    world.send_many(&node, 0, "acme", 3).await;
    secs(1).await;
    assert_eq!(world.probe().asked(), ["0 acme0 #1", "0 acme1 #1", "0 acme2 #1"]);
    assert_eq!((counts(&world), world.count(Field::Dead)), ((0, 0, 0), 1));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn sinks_of_one_source_do_not_wait_for_each_other_and_tenants_do_not_either() {
    let mut world = World::new(&[3]);
    world.order(0, &[Some(OrderBy::Source), None, Some(OrderBy::Source)]);
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(1));
    for tenant in ["acme", "blue"] {
        for ix in 0..2 {
            world.send_to(&node, 0, tenant, &format!("{tenant}{ix}")).await;
        }
    }
    rest().await;
    assert_eq!(
        world.probes[0].asked(),
        ["0 acme0 #1", "3 blue0 #1", "1000 acme1 #1", "1003 blue1 #1"]
    );
    assert_eq!(world.probes[1].script.in_flight_max(), 2);
    for probe in &world.probes[1..] {
        assert!(probe.times().iter().all(|ms| *ms <= 3), "{:?}", probe.asked());
    }
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_left_alone_has_one_hook_of_a_lane_parked_and_the_order_stays() {
    let mut world = by_json();
    world.dispatch.breaker_failures = 2;
    world.dispatch.concurrency = 1;
    world.dispatch.retry.base_ms = 1_000;
    let node = world.start().await;
    world.probe().script.answer([retry("a"), retry("b")]);
    world.send_all(&node, &bodies(&["a", "b", "c"], 3)).await;
    secs(2).await;
    assert_eq!(world.probe().asked(), [r#"0 ["a",0] #1"#, r#"0 ["b",0] #1"#]);
    assert_eq!((counts(&world), world.snapshot(&node).breakers_open), ((3, 3, 6), 1));
    world.is_sound();
    rest().await;
    for lane in ["a", "b", "c"] {
        let asked = of_lane(world.probe(), lane);
        let asked = asked.iter().map(|line| line.split_once(' ').unwrap().1);
        let each = (0..3).map(|n| format!(r#"["{lane}",{n}] #"#));
        let firsts = asked.filter(|line| !line.ends_with("] #2") || lane == "c");
        for (line, expected) in firsts.zip(each) {
            assert!(line.starts_with(&expected), "{line}");
        }
    }
    rest().await;
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_lane_goes_before_its_fsync_has_returned() {
    let world = by_source();
    let node = world.start().await;
    world.send(&node, "first").await;
    secs(1).await;
    world.probe().script.slow(Duration::from_millis(100));
    world.send(&node, "head").await;
    millis(50).await;
    // Applied while the head is under way, and not synced when that ends.
    world.disk.slow(SimOp::Sync, Duration::from_millis(300));
    world.send(&node, "next").await;
    rest().await;
    assert_eq!(world.probe().asked(), ["0 first #1", "1000 head #1", "1350 next #1"]);
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn more_lanes_than_a_page_holds_are_all_served() {
    let world = by_json();
    let node = world.start().await;
    let lanes: Vec<String> = (0..700).map(|lane| format!("{lane}")).collect();
    let lanes: Vec<&str> = lanes.iter().map(String::as_str).collect();
    world.send_all(&node, &bodies(&lanes, 2)).await;
    rest().await;
    assert_eq!(world.probe().asked().len(), 1_400);
    for lane in lanes {
        let asked = of_lane(world.probe(), lane);
        let [one, two] = asked.as_slice() else { panic!("{asked:?}") };
        assert!(one.contains(",0] #1") && two.contains(",1] #1"), "{asked:?}");
    }
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_that_have_no_value_to_go_by_are_in_one_lane() {
    let world = by_json();
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(1));
    world.send_all(&node, &["{}", "no json", r#"["a"]"#]).await;
    rest().await;
    assert_eq!(world.probe().asked(), ["0 {} #1", r#"0 ["a"] #1"#, "1000 no json #1"]);
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_next_hook_that_does_not_fit_the_memory_bound_waits_for_room() {
    let mut world = by_json();
    world.dispatch.max_inflight_bytes = 2_400;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(1));
    let large = |lane: &str| format!(r#"["{lane}","{}"]"#, "x".repeat(2_000));
    let small = bodies(&["a", "b"], 1);
    world.send_all(&node, &small).await;
    millis(500).await;
    world.send_all(&node, &[large("a"), large("b")]).await;
    rest().await;
    assert_eq!(world.probe().times(), [0, 0, 1_000, 2_000]);
    is_empty(&world);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn rows_keep_their_lane_when_the_sink_is_no_longer_ordered() {
    let mut world = by_source();
    world.roles.dispatch = false;
    let node = world.start().await;
    world.send_many(&node, 0, "acme", 3).await;
    assert_eq!(counts(&world), (0, 0, 3));
    world.is_sound();
    stop(node).await;
    let mut next = world.next_life(&[vec![crate::world::HTTP]]);
    next.roles.dispatch = true;
    let node = next.start().await;
    next.probe().script.slow(Duration::from_secs(1));
    rest().await;
    let times = next.probe().times();
    assert_eq!(times.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>(), [1_000; 2]);
    is_empty(&next);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_gone_ends_every_hook_of_its_lanes() {
    let mut world = by_source();
    world.roles.dispatch = false;
    let node = world.start().await;
    world.send_many(&node, 0, "acme", 300).await;
    stop(node).await;
    let mut next = world.next_life(&[]);
    next.roles.dispatch = true;
    let node = next.start().await;
    secs(5).await;
    assert_eq!((counts(&next), next.count(Field::Dead)), ((0, 0, 0), 300));
    next.is_sound();
    stop(node).await;
}
