use std::time::Duration;

use super::super::DispatchConfig;
use super::super::page::LATELY;
use super::*;

type Q = Queues<&'static str, u32>;

const ONE: TenantOrd = TenantOrd(1);
const TWO: TenantOrd = TenantOrd(2);

fn queues(total: usize, per_key: usize, share_percent: u32) -> Q {
    let config = DispatchConfig { breaker_failures: 2, ..DispatchConfig::default() };
    let percents = Percents { share: share_percent, start: share_percent };
    let limits = Limits { total, stalled: 8 * total, per_key, percents };
    Queues::new(limits, BreakerPolicy::new(&config))
}

/// What one has that gets on, and anybody else.
const PERCENTS: Percents = Percents { share: 87, start: 12 };

fn queues_with(total: usize, stalled: usize) -> Q {
    let limits = Limits { total, stalled, per_key: total, percents: PERCENTS };
    Queues::new(limits, BreakerPolicy::new(&DispatchConfig::default()))
}

fn new(tenant: TenantOrd, item: u32) -> New<u32> {
    New { item, tenant, weight: 1 }
}

/// Starts whatever may start.
fn start(queues: &mut Q, now: Instant) -> Vec<Started<u32>> {
    std::iter::from_fn(|| queues.start(now)).collect()
}

fn items(started: &[Started<u32>]) -> Vec<u32> {
    started.iter().map(|started| started.item).collect()
}

fn started(queues: &mut Q, now: Instant) -> Vec<u32> {
    items(&start(queues, now))
}

fn place(tenant: TenantOrd) -> Place {
    Place { tenant, probe: false, stalled: false, slow: false }
}

#[tokio::test(start_paused = true)]
async fn sinks_take_turns_however_much_waits_for_one_of_them() {
    let (mut queues, now) = (queues(100, 100, 100), Instant::now());
    for (key, item) in [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 11), ("c", 21), ("b", 12)] {
        assert_eq!(queues.push(&key, new(ONE, item), now), None);
    }
    assert_eq!(started(&mut queues, now), [1, 11, 21, 2, 12, 3, 4]);
    assert_eq!((queues.waiting(), queues.running()), (0, 7));
}

#[tokio::test(start_paused = true)]
async fn tenants_of_one_sink_take_turns_each_in_its_own_order() {
    let (mut queues, now) = (queues(100, 100, 100), Instant::now());
    for (tenant, item) in [(ONE, 1), (ONE, 2), (ONE, 3), (TWO, 11), (TWO, 12), (ONE, 4)] {
        queues.push(&"a", new(tenant, item), now);
    }
    assert_eq!(started(&mut queues, now), [1, 11, 2, 12, 3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_tenant_has_as_many_in_its_turn_as_its_weight() {
    let (mut queues, now) = (queues(100, 100, 100), Instant::now());
    for item in 1..=7 {
        queues.push(&"a", New { item, tenant: ONE, weight: 3 }, now);
        queues.push(&"a", New { item: 10 + item, tenant: TWO, weight: 1 }, now);
    }
    assert_eq!(started(&mut queues, now), [1, 2, 3, 11, 4, 5, 6, 12, 7, 13, 14, 15, 16, 17]);
}

#[tokio::test(start_paused = true)]
async fn no_more_run_than_allowed_in_all_and_to_one_sink() {
    let (mut queues, now) = (queues(3, 2, 100), Instant::now());
    for item in 1..=4 {
        queues.push(&"a", new(ONE, item), now);
    }
    queues.push(&"b", new(ONE, 11), now);
    queues.push(&"b", new(ONE, 12), now);
    assert_eq!(started(&mut queues, now), [1, 11, 2]);
    queues.end(&"b", &place(ONE), Answer::Ok, now);
    assert_eq!(started(&mut queues, now), [12], "a is at its limit");
    queues.end(&"a", &place(ONE), Answer::Ok, now);
    assert_eq!(started(&mut queues, now), [3]);
}

#[tokio::test(start_paused = true)]
async fn neither_a_sink_nor_a_tenant_takes_the_last_slots() {
    let now = Instant::now();
    let mut of_one_sink = queues(32, 32, 87);
    let mut of_many_sinks = queues(32, 32, 87);
    for item in 0..100 {
        of_one_sink.push(&"a", new(TenantOrd(item), item), now);
        of_many_sinks.push(&if item % 2 == 0 { "a" } else { "b" }, new(ONE, item), now);
    }
    for mut queues in [of_one_sink, of_many_sinks] {
        assert_eq!(start(&mut queues, now).len(), 28);
        queues.push(&"c", new(TWO, 1_001), now);
        assert_eq!(started(&mut queues, now), [1_001]);
        queues.end(&"c", &place(TWO), Answer::Ok, now);
        assert!(started(&mut queues, now).is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_tenant_that_has_its_share_does_not_hold_up_another_of_the_same_sink() {
    let (mut queues, now) = (queues(8, 8, 50), Instant::now());
    for item in 1..=4 {
        queues.push(&"a", new(ONE, item), now);
    }
    assert_eq!(start(&mut queues, now).len(), 4);
    queues.push(&"b", new(ONE, 5), now);
    queues.push(&"b", new(TWO, 11), now);
    assert_eq!(started(&mut queues, now), [11]);
    assert_eq!(queues.waiting(), 1);
    queues.end(&"a", &place(ONE), Answer::Ok, now);
    assert_eq!(started(&mut queues, now), [5]);
}

#[tokio::test(start_paused = true)]
async fn what_takes_long_leaves_its_slot_and_still_counts_against_its_sink() {
    let (mut queues, now) = (queues(4, 3, 100), Instant::now());
    for item in 1..=5 {
        queues.push(&"a", new(ONE, item), now);
    }
    let mut hanging = start(&mut queues, now);
    assert_eq!(items(&hanging), [1, 2, 3]);
    for started in &mut hanging {
        assert!(queues.stall(&"a", &mut started.place, now));
        assert!(queues.stall(&"a", &mut started.place, now), "it has no slot to leave any more");
    }
    assert_eq!((queues.running(), queues.stalled(), queues.waiting()), (0, 3, 2));
    assert!(started(&mut queues, now).is_empty());
    for item in 11..=15 {
        queues.push(&"b", new(ONE, item), now);
    }
    assert_eq!(started(&mut queues, now), [11, 12, 13], "every slot is free again");
    queues.end(&"a", &hanging[0].place, Answer::Ok, now);
    assert_eq!((queues.running(), queues.stalled()), (3, 2));
    assert_eq!(started(&mut queues, now), [4]);
}

#[tokio::test(start_paused = true)]
async fn no_sink_takes_the_last_places_beside_the_slots() {
    let (mut queues, now) = (queues(8, 8, 50), Instant::now());
    queues.limits.stalled = 8;
    for item in 0..20 {
        queues.push(&"a", new(ONE, item), now);
        queues.push(&"b", new(TWO, 100 + item), now);
    }
    let mut left_their_slots = Vec::new();
    for _ in 0..4 {
        for Started { item, mut place } in start(&mut queues, now) {
            let key = if item < 100 { "a" } else { "b" };
            if queues.stall(&key, &mut place, now) {
                left_their_slots.push(item);
            }
        }
    }
    assert_eq!((queues.running(), queues.stalled()), (0, 6));
    assert_eq!(left_their_slots, [0, 100, 1, 101, 2, 102]);
}

#[tokio::test(start_paused = true)]
async fn beside_others_a_sink_starts_with_few_and_has_its_share_once_it_gets_on() {
    let (mut queues, now) = (queues_with(32, 256), Instant::now());
    for item in 0..8 {
        queues.push(&"a", new(ONE, item), now);
    }
    assert_eq!(start(&mut queues, now).len(), 8, "it is alone");
    for item in 100..200 {
        queues.push(&"b", new(TWO, item), now);
    }
    assert_eq!(start(&mut queues, now).len(), 3, "12 percent of the 24 that are left");
    queues.end(&"b", &place(TWO), Answer::Failed, now);
    assert_eq!(start(&mut queues, now).len(), 19, "87 percent of them");
    let later = now + LATELY;
    for _ in 0..20 {
        queues.end(&"b", &Place { slow: true, ..place(TWO) }, Answer::Ok, later);
    }
    assert_eq!(start(&mut queues, later).len(), 2, "it gets on no longer");
}

#[tokio::test(start_paused = true)]
async fn attempts_that_take_long_do_not_show_that_a_sink_gets_on() {
    let (mut queues, now) = (queues_with(32, 256), Instant::now());
    queues.push(&"b", new(TWO, 1_001), now);
    for item in 0..100 {
        queues.push(&"a", new(ONE, item), now);
    }
    let mut begun = start(&mut queues, now);
    assert_eq!(items(&begun), [1_001, 0, 1, 2, 3]);
    assert!(queues.stall(&"a", &mut begun[1].place, now));
    queues.end(&"a", &begun[1].place, Answer::Ok, now);
    assert_eq!(started(&mut queues, now), [4]);
    queues.end(&"a", &begun[2].place, Answer::Ok, now);
    assert_eq!(start(&mut queues, now).len(), 24, "this one was quick");
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_may_hang_has_no_more_at_once_than_may_leave_their_slots() {
    let (mut queues, now) = (queues_with(32, 64), Instant::now());
    for key in ["a", "b", "c", "d"] {
        for item in 0..100 {
            queues.push(&key, new(TenantOrd(u32::from(key.as_bytes()[0])), item), now);
        }
        for _ in 0..4 {
            for Started { mut place, .. } in start(&mut queues, now) {
                queues.stall(&key, &mut place, now);
            }
        }
    }
    // Of 64: all that one sink may have, 12 percent of what that leaves, and so on.
    assert_eq!((queues.running(), queues.stalled()), (0, 32 + 4 + 4 + 3));
    // It gets on: what others hold is nothing to it.
    queues.push(&"e", new(ONE, 1), now);
    assert_eq!(started(&mut queues, now), [1]);
    queues.end(&"e", &place(ONE), Answer::Ok, now);
    for item in 2..40 {
        queues.push(&"e", new(ONE, item), now);
    }
    assert_eq!(start(&mut queues, now).len(), 28);
}

#[tokio::test(start_paused = true)]
async fn with_no_place_left_beside_the_slots_a_sink_still_shows_that_it_gets_on() {
    let (mut queues, now) = (queues_with(8, 2), Instant::now());
    for item in 0..9 {
        queues.push(&"a", new(ONE, item), now);
        queues.push(&"b", new(TWO, 10 + item), now);
    }
    for Started { item, mut place } in start(&mut queues, now) {
        queues.stall(if item < 10 { &"a" } else { &"b" }, &mut place, now);
    }
    assert!(start(&mut queues, now).is_empty());
    let (running, stalled) = (queues.running(), queues.stalled());
    assert_eq!((running, stalled), (0, 2));
    queues.push(&"c", new(TenantOrd(3), 77), now);
    assert_eq!(started(&mut queues, now), [77]);
    assert_eq!(queues.running(), running + 1);
}

#[tokio::test(start_paused = true)]
async fn a_sink_that_fails_is_handed_everything_back_and_tried_with_one_probe_later() {
    let (mut queues, now) = (queues(10, 10, 100), Instant::now());
    let until = now + Duration::from_secs(30);
    for item in 1..=4 {
        queues.push(&"a", new(ONE, item), now);
    }
    queues.start(now);
    queues.start(now);
    assert_eq!(queues.end(&"a", &place(ONE), Answer::Failed, now), None);
    let parked = queues.end(&"a", &place(ONE), Answer::Failed, now);
    assert_eq!(parked, Some(Parked { items: vec![3, 4], until }));
    assert_eq!(queues.push(&"a", new(ONE, 5), now), Some(Parked { items: vec![5], until }));
    assert_eq!((queues.waiting(), queues.running(), queues.breakers_open()), (0, 0, 1));
    queues.push(&"a", new(ONE, 6), until);
    queues.push(&"a", new(ONE, 7), until);
    queues.push(&"a", new(ONE, 8), until);
    let probe = Place { tenant: ONE, probe: true, stalled: false, slow: false };
    assert_eq!(queues.start(until), Some(Started { item: 6, place: probe }));
    assert_eq!(queues.start(until), None);
    let probe = Place { tenant: ONE, probe: true, stalled: false, slow: false };
    assert_eq!(queues.end(&"a", &probe, Answer::Ok, until), None);
    assert_eq!(started(&mut queues, until), [7, 8]);
    assert_eq!(queues.breakers_open(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_forgotten_never_runs_and_holds_nobody_up() {
    let (mut queues, now) = (queues(10, 10, 100), Instant::now());
    for (key, tenant, item) in
        [("a", ONE, 1), ("a", ONE, 2), ("a", TWO, 5), ("b", ONE, 11), ("c", ONE, 21)]
    {
        queues.push(&key, new(tenant, item), now);
    }
    queues.forget(|item| [1, 2, 21].contains(item));
    assert_eq!((queues.waiting(), queues.running()), (2, 0));
    queues.push(&"c", new(ONE, 22), now);
    assert_eq!(started(&mut queues, now), [5, 11, 22]);
    queues.push(&"a", new(ONE, 3), now);
    queues.push(&"a", new(ONE, 4), now);
    assert_eq!(started(&mut queues, now), [3, 4]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_probe_hands_back_what_waited_for_it() {
    let (mut queues, now) = (queues(10, 10, 100), Instant::now());
    queues.push(&"a", new(ONE, 1), now);
    queues.push(&"a", new(TWO, 2), now);
    queues.start(now);
    queues.start(now);
    queues.end(&"a", &place(ONE), Answer::Failed, now);
    queues.end(&"a", &place(TWO), Answer::Failed, now);
    let later = now + Duration::from_secs(30);
    queues.push(&"a", new(ONE, 3), later);
    queues.push(&"a", new(TWO, 4), later);
    let probe = queues.start(later).unwrap();
    assert_eq!(probe.item, 3);
    let until = later + Duration::from_secs(60);
    let parked = queues.end(&"a", &probe.place, Answer::Failed, later);
    assert_eq!(parked, Some(Parked { items: vec![4], until }));
    assert_eq!(queues.start(later), None);
}
