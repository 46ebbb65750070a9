//! One sink, one source, one tenant never blocks another.

use std::time::Duration;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::ids::TenantOrd;
use ankusa_actors::model::keys::ClaimedKey;
use ankusa_actors::ports::Clock;

use crate::world::{EPOCH_MS, World, millis, rest, secs, stop};

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

/// Rows of a tenant that are claimed.
fn claimed_of(world: &World, tenant: u32) -> usize {
    let rows = world.disk.rows(Cf::Index);
    let keys = rows.iter().filter_map(|(key, _)| ClaimedKey::decode(key));
    keys.filter(|key| key.tenant == TenantOrd(tenant)).count()
}

/// How long each hook of one tenant takes to its sink, in milliseconds, one every 100 ms, while so many of another wait
/// for a sink that hangs: from before its attempts time out until they do, its breaker opens, and all of them are put off.
async fn latencies_beside(noise: usize) -> Vec<u64> {
    let world = World::new(&[1, 1]);
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(3_600));
    world.probes[1].script.slow(Duration::from_millis(20));
    for _ in 0..noise / 5_000 {
        world.send_many(&node, 0, "loud", 5_000).await;
    }
    let mut sent = Vec::new();
    for ix in 0..700 {
        let begun = tokio::time::Instant::now();
        sent.push(world.clock.now_ms() - EPOCH_MS);
        world.send_to(&node, 1, "other", &format!("{ix}")).await;
        tokio::time::sleep_until(begun + Duration::from_millis(100)).await;
    }
    let taken = world.probes[1].asked();
    assert_eq!(taken.len(), 700);
    world.is_sound();
    world.kill();
    let latency = |(line, sent): (&String, &u64)| {
        line.split_once(' ').unwrap().0.parse::<u64>().unwrap() - sent
    };
    taken.iter().zip(&sent).map(latency).collect()
}

#[tokio::test(start_paused = true)]
async fn a_long_backlog_for_a_sink_that_hangs_delays_two_hooks_of_another_tenant_in_700_by_3_ms() {
    let (alone, beside) = (latencies_beside(0).await, latencies_beside(20_000).await);
    let differences: Vec<_> = (0..)
        .zip(beside.iter().zip(&alone))
        .filter(|(_, (beside, alone))| beside != alone)
        .map(|(ix, (beside, alone))| (ix, *alone, *beside))
        .collect();
    // While others are under way, what comes is claimed with what comes within 3 ms: before their attempts are seen to
    // hang, and when those end.
    assert_eq!(differences, [(0, 0, 3), (301, 0, 3)]);
}

/// Reads of the store for 20 hooks, one after the other and so far apart, beside a tenant that has all it may.
async fn reads_beside(noise: usize, apart_ms: u64) -> u64 {
    let mut world = World::new(&[1, 1]);
    world.dispatch.max_inflight = 2_048;
    world.dispatch.batch = 256;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(3_600));
    world.send_many(&node, 0, "loud", noise).await;
    secs(5).await;
    let before = world.disk.counts().reads;
    for ix in 0..20 {
        world.send_to(&node, 1, "other", &format!("{ix}")).await;
        millis(apart_ms).await;
    }
    millis(200).await;
    assert_eq!(world.probes[1].attempts().len(), 20);
    world.kill();
    world.disk.counts().reads - before
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_has_all_it_may_is_not_asked_again_and_again() {
    let (alone, beside) = (reads_beside(0, 0).await, reads_beside(2_000, 0).await);
    assert_eq!((alone, beside), (14, 14));
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_has_all_it_may_is_not_asked_when_rows_of_another_end() {
    let (alone, beside) = (reads_beside(0, 20).await, reads_beside(2_000, 20).await);
    assert_eq!((alone, beside), (143, 143));
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_hangs_holds_no_slot_for_longer_than_a_second() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.breaker_failures = 0;
    world.dispatch.sink_concurrency = Some(32);
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(3_600));
    world.probes[1].script.slow(Duration::from_millis(500));
    world.send_many(&node, 0, "loud", 1_000).await;
    millis(900).await;
    world.send_many(&node, 1, "other", 60).await;
    millis(600).await;
    // 28 are beside the slots by now. Of those the rest that the sink is allowed has 4, and of what they leave the other
    // has its share.
    assert_eq!(world.snapshot(&node).running, 28 + 4 + 25);
    assert_eq!(world.probes[0].script.in_flight_max(), 32);
    assert_eq!(world.probes[1].script.in_flight_max(), 25);
    world.is_sound();
    world.kill();
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_is_slow_for_good_leaves_slots_for_another() {
    let world = World::new(&[1, 1]);
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_millis(900));
    world.send_many(&node, 0, "loud", 1_000).await;
    secs(5).await;
    for ix in 0..4 {
        world.send_to(&node, 1, "other", &format!("q{ix}")).await;
    }
    millis(20).await;
    assert_eq!(world.probes[1].attempts(), ["q0 #1", "q1 #1", "q2 #1", "q3 #1"]);
    assert_eq!(world.probes[0].script.in_flight_max(), 28);
    world.is_sound();
    world.kill();
}

#[tokio::test(start_paused = true)]
async fn tenants_of_one_sink_take_turns_however_much_one_of_them_has_claimed() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.probe().script.slow(Duration::from_millis(100));
    world.send_many(&node, 0, "loud", 3_000).await;
    secs(1).await;
    world.send_to(&node, 0, "other", "quick").await;
    millis(200).await;
    let asked = world.probe().asked();
    assert!(asked.contains(&"1100 quick #1".to_owned()), "with the next that start: {asked:?}");
    world.is_sound();
    world.kill();
}

#[tokio::test(start_paused = true)]
async fn weights_are_rows_of_every_claim_and_turns_at_every_sink() {
    let mut world = World::new(&[1]);
    world.roles.dispatch = false;
    let node = world.start().await;
    world.send_many(&node, 0, "light", 400).await;
    world.send_many(&node, 0, "heavy", 400).await;
    stop(node).await;
    world.roles.dispatch = true;
    world.dispatch.concurrency = 1;
    world.dispatch.batch = 100;
    world.dispatch.max_inflight = 100;
    world.dispatch.tenants.share_percent = 100;
    world.dispatch.tenants.start_percent = 100;
    world.dispatch.tenants.weights.insert("heavy".to_owned(), 3);
    world.dispatch.tenants.weights.insert("nobody".to_owned(), 9);
    world.probe().script.slow(Duration::from_millis(1));
    let node = world.start().await;
    millis(8).await;
    let claimed = |tenant| claimed_of(&world, tenant);
    let ended = world.probe().attempts();
    let of = |name: &str| ended.iter().filter(|line| line.starts_with(name)).count();
    assert_eq!((claimed(1), claimed(2)), (25, 75), "of one page");
    assert_eq!(of("heavy"), 3 * of("light"), "{ended:?}");
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_no_more_claimed_than_its_window() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.tenants.max_inflight = Some(10);
    let node = world.start().await;
    for probe in &world.probes {
        probe.script.slow(Duration::from_secs(3_600));
    }
    world.send_many(&node, 0, "acme", 100).await;
    secs(1).await;
    assert_eq!(world.snapshot(&node).claimed, 10);
    world.send_many(&node, 1, "other", 100).await;
    secs(1).await;
    assert_eq!(world.snapshot(&node).claimed, 20);
    secs(1).await;
    let told = node.handles().dispatch.tenants_inflight();
    assert_eq!(*told, [(TenantOrd(1), 10), (TenantOrd(2), 10)]);
    world.is_sound();
    world.kill();
}

#[tokio::test(start_paused = true)]
async fn with_the_whole_share_one_tenant_may_have_everything() {
    let mut world = World::new(&[1]);
    world.dispatch.tenants.share_percent = 100;
    world.dispatch.max_inflight = 64;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(3_600));
    world.send_many(&node, 0, "acme", 500).await;
    millis(500).await;
    assert_eq!((world.snapshot(&node).claimed, world.snapshot(&node).running), (64, 32));
    world.is_sound();
    world.kill();
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
    assert_eq!(world.snapshot(&node).claimed, 56, "87 percent");
    for ix in 0..100 {
        world.send_to(&node, 1, "other", &format!("q{ix}")).await;
        millis(20).await;
        assert_eq!(world.probes[1].attempts().len(), ix + 1);
    }
    world.is_sound();
    node.stop(Duration::from_secs(100)).await;
}

#[tokio::test(start_paused = true)]
async fn a_tenant_whose_sink_hangs_gets_what_another_has_left_though_none_of_its_own_ends() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.max_inflight = 64;
    world.dispatch.breaker_failures = 0;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(3_600));
    world.probes[1].script.slow(Duration::from_secs(5));
    world.send_many(&node, 1, "other", 20).await;
    millis(500).await;
    world.send_many(&node, 0, "acme", 500).await;
    secs(1).await;
    assert_eq!(world.snapshot(&node).claimed, 20 + 6, "12 percent of what the other leaves");
    secs(8).await;
    assert_eq!(world.probes[1].attempts().len(), 20);
    assert_eq!(world.snapshot(&node).claimed, 56, "87 percent");
    world.is_sound();
    node.stop(Duration::from_secs(100)).await;
}

/// What a tenant that gets on has beside so many whose sinks hang, at most: attempts under way at once, and rows claimed.
async fn beside_hanging(hanging: usize) -> (usize, usize) {
    let mut world = World::new(&vec![1; hanging + 1]);
    world.dispatch.breaker_failures = 0;
    world.dispatch.attempt_timeout_ms = 3_600_000;
    let node = world.start().await;
    for loud in 1..=hanging {
        world.probes[loud].script.slow(Duration::from_secs(7_200));
        world.send_many(&node, loud, &format!("loud{loud}"), 4_000).await;
        // One after the other, each takes all that it is given.
        secs(5).await;
    }
    world.probes[0].script.slow(Duration::from_millis(50));
    world.send_many(&node, 0, "quick", 2_000).await;
    let mut claimed = 0;
    for _ in 0..10 {
        millis(100).await;
        claimed = claimed.max(claimed_of(&world, u32::try_from(hanging + 1).unwrap()));
    }
    let at_once = world.probes[0].script.in_flight_max();
    world.is_sound();
    world.kill();
    (at_once, claimed)
}

#[tokio::test(start_paused = true)]
async fn many_tenants_whose_sinks_hang_leave_slots_and_rows_to_one_that_gets_on() {
    let mut got = Vec::new();
    for hanging in [0, 1, 2, 4, 8, 16] {
        got.push(beside_hanging(hanging).await);
    }
    assert_eq!(got, [(28, 1_972), (28, 463), (28, 408), (28, 315), (28, 187), (28, 65)]);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_gets_on_keeps_its_share_while_it_holds_nothing() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.attempt_timeout_ms = 3_600_000;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(7_200));
    world.send_many(&node, 0, "loud", 4_000).await;
    secs(1).await;
    let mut claimed = Vec::new();
    for _ in 0..2 {
        world.probes[1].script.slow(Duration::ZERO);
        world.send_to(&node, 1, "quick", "one").await;
        millis(100).await;
        assert_eq!(world.snapshot(&node).claimed, 3_564, "of the loud tenant alone");
        world.probes[1].script.slow(Duration::from_millis(900));
        world.send_many(&node, 1, "quick", 500).await;
        millis(100).await;
        claimed.push(world.snapshot(&node).claimed - 3_564);
        secs(30).await;
    }
    assert_eq!(claimed, [463, 463]);
    world.is_sound();
    world.kill();
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
