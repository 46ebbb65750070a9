//! One sink, one source, one tenant never blocks another.

use std::time::Duration;

use crate::world::{World, millis, rest, secs, stop};

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_does_not_block_another() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.sink_concurrency = Some(8);
    world.dispatch.breaker_failures = 0;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(3_600));
    world.send_many(&node, 0, "acme", 1_000).await;
    secs(1).await;
    world.send_to(&node, 1, "acme", "quick").await;
    millis(20).await;
    assert_eq!(world.probes[1].attempts(), ["quick #1"]);
    assert_eq!(world.probes[0].script.in_flight_max(), 8);
    world.is_sound();
    node.stop(Duration::from_secs(100)).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_limit_a_sink_keeps_others_waiting_for_one_attempt_timeout_at_most() {
    let world = World::new(&[1, 1]);
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(3_600));
    world.send_many(&node, 0, "acme", 1_000).await;
    secs(1).await;
    world.send_to(&node, 1, "acme", "quick").await;
    millis(29_010).await;
    assert_eq!(world.probes[1].asked(), ["30000 quick #1"]);
    world.is_sound();
    node.stop(Duration::from_secs(100)).await;
}

#[tokio::test(start_paused = true)]
async fn sinks_take_turns() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.concurrency = 1;
    let node = world.start().await;
    for probe in &world.probes {
        probe.script.slow(Duration::from_millis(10));
    }
    world.send_many(&node, 0, "acme", 50).await;
    world.send_many(&node, 1, "other", 5).await;
    rest().await;
    let last = *world.probes[1].times().last().unwrap();
    assert!(last <= 120, "its fifth hook waited for {last} ms behind fifty of another");
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_sink_hangs_leaves_room_for_another() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.max_inflight = 64;
    world.dispatch.sink_concurrency = Some(4);
    world.dispatch.breaker_failures = 0;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(3_600));
    world.send_many(&node, 0, "acme", 500).await;
    secs(1).await;
    assert_eq!(world.snapshot(&node).claimed, 56, "seven eighths");
    for ix in 0..100 {
        world.send_to(&node, 1, "other", &format!("q{ix}")).await;
        millis(20).await;
        assert_eq!(world.probes[1].attempts().len(), ix + 1);
    }
    world.is_sound();
    node.stop(Duration::from_secs(100)).await;
}

#[tokio::test(start_paused = true)]
async fn tenants_with_work_share_every_claim() {
    let mut world = World::new(&[1]);
    world.dispatch.batch = 8;
    world.dispatch.max_inflight = 32;
    world.dispatch.concurrency = 1;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_millis(10));
    world.send_many(&node, 0, "large", 2_000).await;
    secs(1).await;
    world.send_many(&node, 0, "small", 20).await;
    secs(1).await;
    let small = |line: &String| line.starts_with("small");
    let attempts = world.probe().attempts();
    assert_eq!(attempts.iter().filter(|line| small(line)).count(), 20, "{attempts:?}");
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_is_not_behind_the_markers_of_a_long_backlog() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.max_inflight = 16;
    world.dispatch.sink_concurrency = Some(2);
    world.dispatch.breaker_failures = 0;
    world.dispatch.attempt_timeout_ms = 100_000_000;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(100_000));
    for second in 0..1_000 {
        world.send(&node, &format!("{second}")).await;
        secs(1).await;
    }
    world.send_to(&node, 1, "other", "quick").await;
    millis(20).await;
    assert_eq!(world.probes[1].attempts(), ["quick #1"]);
    world.is_sound();
    world.kill();
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_markers_are_in_the_middle_is_found() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.max_inflight = 16;
    world.dispatch.sink_concurrency = Some(2);
    world.dispatch.breaker_failures = 0;
    world.dispatch.attempt_timeout_ms = 100_000_000;
    world.roles.dispatch = false;
    let node = world.start().await;
    for second in 0..1_000 {
        world.send(&node, &format!("{second}")).await;
        if second == 500 {
            world.send_to(&node, 1, "other", "hidden").await;
        }
        secs(1).await;
    }
    stop(node).await;
    world.roles.dispatch = true;
    world.probes[0].script.slow(Duration::from_secs(100_000));
    let _node = world.start().await;
    secs(2).await;
    assert_eq!(world.probes[1].attempts(), ["hidden #1"]);
    world.is_sound();
    world.kill();
}

#[tokio::test(start_paused = true)]
async fn a_thousand_tenants_are_all_served() {
    let world = World::new(&[1]);
    let node = world.start().await;
    for tenant in 0..1_000 {
        world.send_to(&node, 0, &format!("t{tenant}"), &format!("{tenant}")).await;
    }
    rest().await;
    let mut attempts = world.probe().attempts();
    attempts.sort();
    attempts.dedup();
    assert_eq!((attempts.len(), world.hooks(), world.index().as_str()), (1_000, 0, ""));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn tenants_that_find_the_page_full_come_next() {
    let mut world = World::new(&[1]);
    world.dispatch.batch = 4;
    world.roles.dispatch = false;
    let node = world.start().await;
    for tenant in 0..52 {
        world.send_many(&node, 0, &format!("t{tenant:02}"), 3).await;
    }
    stop(node).await;
    world.roles.dispatch = true;
    world.dispatch.concurrency = 1;
    world.probe().script.slow(Duration::from_millis(1));
    let node = world.start().await;
    secs(1).await;
    let attempts = world.probe().attempts();
    let mut first: Vec<_> = attempts.iter().take(52).map(|line| line[..3].to_owned()).collect();
    first.sort();
    first.dedup();
    assert_eq!((attempts.len(), first.len()), (156, 52), "each tenant's first before any's second");
    world.is_sound();
    stop(node).await;
}
