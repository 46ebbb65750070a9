//! Every state of a row has a way out, and every outcome leads to one: the table, whole. And whatever happens to a
//! source or a sink while rows of it wait, each ends, delivered or dead with a reason.

use std::time::Duration;

use ankusa_actors::model::counters::Field;
use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::reason::ReasonClass;
use ankusa_actors::node::Node;
use ankusa_actors::ports::Outcome;

use crate::world::{HTTP, LOG, World, millis, retry, secs, stop};

/// Pending, scheduled, inflight, dead.
fn counts(world: &World) -> [i64; 4] {
    [Field::Pending, Field::Scheduled, Field::Inflight, Field::Dead].map(|of| world.count(of))
}

#[derive(Clone, Copy, Debug)]
enum End {
    Says(fn() -> Outcome),
    TimesOut,
    Panics,
}

const GONE: [i64; 4] = [0, 0, 0, 0];
const RETRIES: [i64; 4] = [0, 1, 0, 0];
const DEAD: [i64; 4] = [0, 0, 0, 1];

#[tokio::test(start_paused = true)]
async fn every_outcome_leads_to_a_state() {
    let later = || Outcome::RetryAfter { ms: 60_000, reason: "later".to_owned() };
    let no = || Outcome::Permanent("no".to_owned());
    // The end of an attempt; what it leads to while attempts are left, and when it was the last.
    let table: [(End, [i64; 4], [i64; 4], &str); 6] = [
        (End::Says(|| Outcome::Ok), GONE, GONE, ""),
        (End::Says(no), DEAD, DEAD, "no"),
        (End::Says(later), RETRIES, DEAD, "later"),
        (End::Says(|| retry("busy")), RETRIES, DEAD, "busy"),
        (End::TimesOut, RETRIES, DEAD, "attempt timed out after 100 ms"),
        (End::Panics, RETRIES, DEAD, "the sink panicked"),
    ];
    for (end, first, last, reason) in table {
        for (max_attempts, expected) in [(2, first), (1, last)] {
            let mut world = World::new(&[1]);
            world.dispatch.retry.max_attempts = max_attempts;
            (world.dispatch.retry.base_ms, world.dispatch.attempt_timeout_ms) = (50_000, 100);
            world.dispatch.breaker_failures = 0;
            let node = world.start().await;
            match end {
                End::Says(outcome) => world.probe().script.answer([outcome()]),
                End::TimesOut => world.probe().script.slow(Duration::from_secs(900)),
                End::Panics => world.probe().panic_at("one"),
            }
            world.send(&node, "one").await;
            secs(1).await;
            assert_eq!(counts(&world), expected, "{end:?}, {max_attempts} attempts");
            let reasons: Vec<_> = world.rows().into_iter().filter_map(|row| row.error).collect();
            let said = if expected == GONE { vec![] } else { vec![reason.to_owned()] };
            assert_eq!(reasons, said, "{end:?}");
            world.is_sound();
            stop(node).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_row_of_a_sink_that_is_left_alone_waits_as_what_it_was() {
    let mut world = World::new(&[1]);
    (world.dispatch.breaker_failures, world.dispatch.concurrency) = (1, 1);
    let node = world.start().await;
    world.probe().script.answer([retry("busy"), retry("busy")]);
    world.send_many(&node, 0, "acme", 3).await;
    millis(100).await;
    assert_eq!(counts(&world), [2, 1, 0, 0], "the first failed, the others were not tried");
    secs(300).await;
    assert_eq!(counts(&world), GONE);
    world.is_sound();
    stop(node).await;
}

/// What a row of the second source is when the process ends.
#[derive(Clone, Copy, Debug)]
enum Was {
    /// Due for the first time.
    Due,
    /// Due again in a while.
    Retrying,
    /// Claimed, its attempt under way.
    Claimed,
    /// Put off because its sink kept failing.
    Parked,
    /// Given up.
    Dead,
}

const BEFORE: fn() -> Vec<Vec<&'static str>> = || vec![vec![HTTP], vec![HTTP, LOG]];

/// A life that ends with a hook of the second source whose two rows are in that state.
async fn left(was: Was) -> (World, Node) {
    let mut world = World::new(&[1]).next_life(&BEFORE());
    world.roles.dispatch = !matches!(was, Was::Due);
    world.dispatch.breaker_failures = u32::from(matches!(was, Was::Parked));
    let node = world.start().await;
    for probe in &world.probes[1..] {
        match was {
            Was::Due => {}
            Was::Retrying => {
                let later = Outcome::RetryAfter { ms: 20_000, reason: "later".to_owned() };
                probe.script.answer([later]);
            }
            Was::Claimed => probe.script.slow(Duration::from_secs(20)),
            Was::Parked => probe.script.answer([retry("busy")]),
            Was::Dead => probe.script.answer([Outcome::Permanent("no".to_owned())]),
        }
    }
    if matches!(was, Was::Parked) {
        world.send_to(&node, 1, "acme", "opens the breakers").await;
        millis(50).await;
    }
    world.send_to(&node, 1, "acme", "waits").await;
    millis(50).await;
    let rows = |rows: [i64; 4]| assert_eq!(counts(&world), rows, "{was:?}");
    match was {
        Was::Due => rows([2, 0, 0, 0]),
        Was::Retrying => rows([0, 2, 0, 0]),
        Was::Claimed => rows([0, 0, 2, 0]),
        Was::Parked => rows([2, 2, 0, 0]),
        Was::Dead => rows([0, 0, 0, 2]),
    }
    node.handles().store.sync().await.unwrap();
    world.kill();
    (world, node)
}

#[test]
fn rows_of_a_source_or_a_sink_that_is_removed_renamed_or_moved_end_and_none_loops() {
    use ReasonClass::{SinkGone, SourceGone};
    // The sinks of the second source after the restart, `None` if it has gone or has another name now; and the classes
    // of what is dead then of its two rows.
    let table: [(Option<Vec<&'static str>>, &[ReasonClass]); 6] = [
        (Some(vec![HTTP, LOG]), &[]),
        (None, &[SourceGone, SourceGone]),
        (Some(vec![LOG]), &[SinkGone]),
        (Some(vec![LOG, HTTP]), &[]),
        (Some(vec![LOG, LOG]), &[SinkGone]),
        (Some(vec![]), &[SinkGone, SinkGone]),
    ];
    for was in [Was::Due, Was::Retrying, Was::Claimed, Was::Parked, Was::Dead] {
        for (after, dead) in &table {
            // What a killed life leaves running ends with its runtime.
            let mut runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = runtime.enable_time().start_paused(true).build().unwrap();
            runtime.block_on(ends(was, after.clone(), dead));
        }
    }
}

async fn ends(was: Was, after: Option<Vec<&'static str>>, dead: &[ReasonClass]) {
    let (world, _killed) = left(was).await;
    let modules: Vec<_> = [Some(vec![HTTP]), after.clone()].into_iter().flatten().collect();
    let mut next = world.next_life(&modules);
    next.roles.dispatch = true;
    let node = next.start().await;
    secs(100).await;
    assert_eq!(counts(&next)[..3], [0, 0, 0], "{was:?} {after:?}");
    let rows = next.rows();
    assert!(rows.iter().all(|row| row.state == RowState::Dead));
    let class = |row: &DeliveryRow| ReasonClass::of(row.error.as_deref().unwrap());
    let mut classes: Vec<_> = rows.iter().map(class).collect();
    classes.sort_unstable();
    let hooks = if matches!(was, Was::Parked) { 2 } else { 1 };
    let expected: Vec<_> = match was {
        // What was given up is not taken up again.
        Was::Dead => vec![ReasonClass::Sink; 2],
        Was::Due | Was::Retrying | Was::Claimed | Was::Parked => {
            dead.iter().flat_map(|class| vec![*class; hooks]).collect()
        }
    };
    assert_eq!(classes, expected, "{was:?} {after:?}");
    let attempts: usize = next.probes.iter().map(|probe| probe.attempts().len()).sum();
    assert_eq!(attempts, 2 * hooks - expected.len(), "once each: {was:?} {after:?}");
    next.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn rows_of_one_of_two_sinks_of_a_kind_go_to_the_one_that_is_left() {
    let mut world = World::new(&[2]);
    world.roles.dispatch = false;
    let node = world.start().await;
    world.send(&node, "one").await;
    stop(node).await;
    let mut next = world.next_life(&[vec![HTTP]]);
    next.roles.dispatch = true;
    let node = next.start().await;
    secs(40).await;
    assert_eq!(next.probe().attempts(), ["one #1", "one #1"], "one for each row");
    assert_eq!((next.hooks(), counts(&next)), (0, GONE));
    next.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn rows_that_nobody_dispatches_wait_and_go_on_once_somebody_does() {
    let mut world = World::new(&[1]);
    world.roles.dispatch = false;
    let node = world.start().await;
    world.send(&node, "one").await;
    secs(1_000).await;
    assert_eq!(counts(&world), [1, 0, 0, 0]);
    stop(node).await;
    let mut next = world.next_life(&[vec![HTTP]]);
    next.roles.dispatch = true;
    let node = next.start().await;
    secs(40).await;
    assert_eq!((next.probe().attempts(), counts(&next)), (vec!["one #1".to_owned()], GONE));
    next.is_sound();
    stop(node).await;
}
