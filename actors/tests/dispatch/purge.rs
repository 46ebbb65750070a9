//! Rows that an operator has removed: all that were to go and no others, whatever dispatch is doing with them.

use std::collections::BTreeSet;
use std::time::Duration;

use ankusa_actors::dispatch::{PurgeChunk, PurgeCursor, PurgeError, PurgeStep, Purgeable, Purged};
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::TenantOrd;
use ankusa_actors::model::keys::{CounterKey, TenantNameKey};
use ankusa_actors::model::ordering::OrderBy;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimEntropy, SimOp};
use ankusa_actors::ports::{Entropy, Lane, Outcome};
use ankusa_actors::queue::CommitAnswer;

use crate::world::{HTTP, World, for_each_seed, millis, rest, retry, secs, stop};

use Purgeable::{Dead, Inflight, Pending};

fn ord(world: &World, tenant: &str) -> Option<TenantOrd> {
    let key = TenantNameKey(tenant).encode();
    let rows = world.disk.rows(Cf::Tenants);
    let row = rows.iter().find(|(at, _)| *at == key)?;
    TenantNameKey::read_value(&row.1)
}

fn count(world: &World, tenant: &str, field: Field) -> i64 {
    let key = CounterKey { tenant: ord(world, tenant).unwrap(), field }.encode();
    let rows = world.disk.rows(Cf::Counters);
    rows.iter().find(|(at, _)| *at == key).map_or(0, |row| counters::read(&row.1).unwrap())
}

/// Pending, scheduled, inflight, dead, bytes.
fn counts(world: &World, tenant: &str) -> [i64; 5] {
    [Field::Pending, Field::Scheduled, Field::Inflight, Field::Dead, Field::Bytes]
        .map(|field| count(world, tenant, field))
}

async fn chunk(
    world: &World,
    node: &Node,
    tenant: &str,
    states: &[Purgeable],
    cursor: Option<PurgeCursor>,
) -> Result<PurgeChunk, PurgeError> {
    let states: BTreeSet<Purgeable> = states.iter().copied().collect();
    let step = PurgeStep { tenant: ord(world, tenant).unwrap(), states, cursor };
    node.handles().dispatch.purge(step).await
}

/// To its end. Answers the chunks that removed something.
async fn purge(world: &World, node: &Node, tenant: &str, states: &[Purgeable]) -> Vec<Purged> {
    let (mut cursor, mut removed) = (None, Vec::new());
    for _ in 0..10_000 {
        let done = chunk(world, node, tenant, states, cursor).await.unwrap();
        if done.purged.total() > 0 {
            removed.push(done.purged);
        }
        let Some(next) = done.next else { return removed };
        // As an operator's client hands it back.
        cursor = Some(next.to_string().parse().unwrap());
    }
    panic!("the purge does not end");
}

fn sum(chunks: &[Purged]) -> Purged {
    let mut sum = Purged::default();
    chunks.iter().for_each(|chunk| sum.add(chunk));
    sum
}

/// Dead, retrying, running, waiting in memory and waiting in the store: of `acme` and of `other` alike.
async fn one_of_each() -> (World, Node) {
    let mut world = World::new(&[1]);
    (world.dispatch.concurrency, world.dispatch.max_inflight) = (2, 8);
    world.dispatch.breaker_failures = 0;
    let node = world.start().await;
    let script = &world.probe().script;
    for tenant in ["acme", "other"] {
        script.answer([Outcome::Permanent("no".to_owned())]);
        world.send_to(&node, 0, tenant, "dead").await;
        secs(1).await;
        let later = Outcome::RetryAfter { ms: 900_000, reason: "later".to_owned() };
        script.answer([later]);
        world.send_to(&node, 0, tenant, "retries").await;
        secs(1).await;
    }
    script.slow(Duration::from_secs(20));
    for round in 0..10 {
        for tenant in ["acme", "other"] {
            world.send_to(&node, 0, tenant, &format!("{tenant} {round}")).await;
        }
    }
    millis(50).await;
    let [pending, scheduled, inflight, dead, _] = counts(&world, "acme");
    assert_eq!((scheduled, dead), (1, 1));
    assert!(pending > 0 && inflight > 1, "{pending} {inflight}");
    assert_eq!(pending + inflight, 10);
    (world, node)
}

#[tokio::test(start_paused = true)]
async fn every_row_of_one_tenant_goes_with_its_hook_and_those_of_others_stay() {
    let (world, node) = one_of_each().await;
    let before = counts(&world, "other");
    let [pending, scheduled, inflight, dead, _] = counts(&world, "acme");
    let removed = sum(&purge(&world, &node, "acme", &Purgeable::ALL).await);
    assert_eq!(
        [removed.pending, removed.inflight, removed.dead].map(u64::cast_signed),
        [pending + scheduled, inflight, dead]
    );
    assert_eq!(counts(&world, "acme"), [0; 5]);
    let after = counts(&world, "other");
    assert_eq!(after.iter().take(4).sum::<i64>(), before.iter().take(4).sum::<i64>());
    assert_eq!(after[4], before[4]);
    world.is_sound();
    let asked = world.probe().attempts();
    // Of `acme` what ran is let run out; nothing else of it is attempted, now or after a restart.
    rest().await;
    rest().await;
    let since: Vec<_> = world.probe().attempts().split_off(asked.len());
    assert!(since.iter().all(|line| line.starts_with("other")), "{since:?}");
    assert_eq!(counts(&world, "acme"), [0; 5]);
    world.is_sound();
    stop(node).await;
    let next = world.next_life(&[vec![HTTP]]);
    let node = next.start().await;
    secs(1_000).await;
    assert!(next.probe().attempts().iter().all(|line| !line.starts_with("acme")));
    assert_eq!(counts(&next, "acme"), [0; 5]);
    next.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_subset_of_the_states_leaves_the_others_alone() {
    for (states, left) in [
        (&[Pending][..], [false, false, true, true]),
        (&[Dead], [true, true, true, false]),
        (&[Pending, Dead], [false, false, true, false]),
    ] {
        let (world, node) = one_of_each().await;
        let before = counts(&world, "acme");
        purge(&world, &node, "acme", states).await;
        let expected: Vec<i64> =
            before.iter().zip(left).map(|(count, stays)| if stays { *count } else { 0 }).collect();
        assert_eq!(counts(&world, "acme")[..4], expected, "{states:?}");
        world.is_sound();
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn claimed_rows_go_and_what_comes_of_their_attempts_resurrects_none() {
    for answer in [
        Outcome::Ok,
        Outcome::Permanent("no".to_owned()),
        retry("busy"),
        Outcome::RetryAfter { ms: 5, reason: "later".to_owned() },
    ] {
        let mut world = World::new(&[1]);
        (world.dispatch.concurrency, world.dispatch.breaker_failures) = (2, 0);
        let node = world.start().await;
        world.probe().script.slow(Duration::from_secs(5));
        world.probe().script.answer(vec![answer.clone(); 20]);
        world.send_many(&node, 0, "acme", 6).await;
        millis(100).await;
        assert_eq!(counts(&world, "acme")[..3], [0, 0, 6]);
        let removed = purge(&world, &node, "acme", &[Inflight]).await;
        assert_eq!(removed, [Purged { pending: 0, inflight: 6, dead: 0 }]);
        assert_eq!(world.snapshot(&node).claimed, 0);
        rest().await;
        assert_eq!(world.probe().attempts().len(), 2, "those that ran: {answer:?}");
        assert_eq!((world.rows(), world.hooks(), world.index().as_str()), (vec![], 0, ""));
        assert_eq!(counts(&world, "acme"), [0; 5]);
        world.is_sound();
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_owes_something_else_stays_and_one_that_does_not_goes_with_its_claimed_row() {
    let mut world = World::new(&[2]);
    world.dispatch.breaker_failures = 0;
    world.roles.storage = true;
    let node = world.start().await;
    world.probes[0].script.answer([Outcome::Permanent("no".to_owned())]);
    world.send(&node, "archived").await;
    secs(2).await;
    purge(&world, &node, "acme", &Purgeable::ALL).await;
    rest().await;
    assert_eq!((world.rows().len(), world.hooks(), world.index().as_str()), (0, 1, "a"));
    world.is_sound();
    stop(node).await;

    let mut world = World::new(&[2]);
    world.dispatch.breaker_failures = 0;
    let node = world.start().await;
    world.probes[0].script.answer([Outcome::Permanent("no".to_owned())]);
    world.probes[1].script.slow(Duration::from_secs(5));
    world.send(&node, "two sinks").await;
    secs(1).await;
    purge(&world, &node, "acme", &[Dead]).await;
    assert_eq!((world.rows().len(), world.hooks()), (1, 1), "its other sink has still to answer");
    rest().await;
    assert_eq!((world.rows().len(), world.hooks(), world.index().as_str()), (0, 0, ""));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn chunks_are_of_500_with_deliveries_in_between_and_younger_hooks_stay() {
    let mut world = World::new(&[1, 1]);
    world.dispatch.max_inflight = 32;
    let node = world.start().await;
    world.probes[0].script.slow(Duration::from_secs(10_000));
    world.send_many(&node, 0, "acme", 1_700).await;
    let mut cursor = None;
    let mut sizes = Vec::new();
    let mut claimed = 0;
    loop {
        let done = chunk(&world, &node, "acme", &[Pending], cursor).await.unwrap();
        sizes.push(done.purged.pending);
        // Something comes in and is delivered while the purge is under way.
        let body = format!("young {}", sizes.len());
        world.send_to(&node, 1, "other", &body).await;
        world.send_to(&node, 0, "acme", &body).await;
        millis(10).await;
        claimed = claimed.max(world.probes[1].attempts().len());
        cursor = done.next;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(sizes.iter().sum::<u64>() + 28, 1_700, "the claimed ones stay: {sizes:?}");
    assert_eq!(sizes[..3], [500, 500, 500]);
    assert_eq!(claimed, sizes.len());
    let young = i64::try_from(sizes.len()).unwrap();
    assert_eq!(counts(&world, "acme")[..3], [young, 0, 28]);
    world.is_sound();
    node.handles().dispatch.slot().get().unwrap().kill();
}

#[tokio::test(start_paused = true)]
async fn a_row_that_moves_on_during_the_purge_is_caught_in_the_next_round() {
    let mut world = World::new(&[1]);
    (world.dispatch.concurrency, world.dispatch.breaker_failures) = (1, 0);
    world.dispatch.max_inflight = 1;
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(3));
    world.probe().script.answer([Outcome::RetryAfter { ms: 60_000, reason: "later".to_owned() }]);
    world.send(&node, "moves").await;
    millis(10).await;
    assert_eq!(counts(&world, "acme")[..3], [0, 0, 1]);
    world.send_many(&node, 0, "acme", 600).await;
    // The first chunk leaves the pending rows half done; meanwhile the claimed one is due again, behind a place the
    // purge has yet to come by, and another is claimed.
    let first = chunk(&world, &node, "acme", &Purgeable::ALL, None).await.unwrap();
    assert_eq!(first.purged, Purged { pending: 500, inflight: 0, dead: 0 });
    secs(4).await;
    assert_eq!(counts(&world, "acme")[1..3], [1, 1]);
    let mut cursor = first.next;
    while let Some(at) = cursor {
        cursor = chunk(&world, &node, "acme", &Purgeable::ALL, Some(at)).await.unwrap().next;
    }
    assert_eq!(counts(&world, "acme"), [0; 5]);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_purge_without_dispatch_or_without_a_store_says_so() {
    let mut world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    secs(1).await;
    world.disk.fail(Fault::refuse(SimOp::Read, FailureClass::IoError).until_healed());
    let failed = chunk(&world, &node, "acme", &[Pending], None).await.unwrap_err();
    assert_eq!(failed.to_string(), "store scan failed (io_error): injected");
    world.disk.heal();
    stop(node).await;
    world = world.next_life(&[vec![HTTP]]);
    world.roles.dispatch = false;
    let node = world.start().await;
    let failed = chunk(&world, &node, "acme", &[Pending], None).await.unwrap_err();
    assert!(matches!(failed, PurgeError::NotRunning), "{failed}");
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_write_that_failed_is_not_made_twice() {
    for fault in [
        Fault::refuse(SimOp::Apply, FailureClass::IoError),
        Fault::apply_landed(FailureClass::IoError),
        Fault::apply_logged_unseen(FailureClass::IoError),
    ] {
        let (world, node) = one_of_each().await;
        world.disk.fail(fault.on(Lane::Background));
        chunk(&world, &node, "acme", &Purgeable::ALL, None).await.unwrap_err();
        let refused = chunk(&world, &node, "acme", &Purgeable::ALL, None).await.unwrap_err();
        assert!(refused.to_string().contains("not_running"), "not before a reopen: {refused}");
        secs(20).await;
        purge(&world, &node, "acme", &Purgeable::ALL).await;
        assert_eq!(counts(&world, "acme"), [0; 5]);
        world.is_sound();
        rest().await;
        world.is_sound();
        stop(node).await;
    }
}

/// Draws below `n`.
fn draw(chance: &SimEntropy, n: usize) -> usize {
    usize::try_from(chance.bits() % u128::try_from(n).unwrap()).unwrap()
}

fn fault(chance: &SimEntropy) -> Fault {
    let class = FailureClass::IoError;
    let fault = match draw(chance, 4) {
        0 => Fault::refuse(SimOp::Apply, class),
        1 => Fault::apply_logged_unseen(class),
        2 => Fault::apply_landed(class),
        _ => return Fault::refuse(SimOp::Read, class),
    };
    fault.on(Lane::Background).after(u32::try_from(draw(chance, 6)).unwrap())
}

/// A purge under way: its states and where it goes on.
type UnderWay = (Vec<Purgeable>, Option<PurgeCursor>);

async fn step(world: &World, node: &Node, chance: &SimEntropy, purging: &mut UnderWay) {
    match draw(chance, 16) {
        0..=5 => {
            let (source, tenant) = (draw(chance, 2), ["a", "b"][draw(chance, 2)]);
            let body = format!("{tenant}{}", chance.bits());
            let sent = world.try_send_to(node, source, tenant, &body);
            let _whatever: CommitAnswer = sent.await;
        }
        6..=7 => millis(u64::try_from(draw(chance, 2_000)).unwrap()).await,
        8 => world.disk.fail(fault(chance)),
        9 => {
            node.handles().board.crash("dispatch");
        }
        10 => {
            let ms = u64::try_from(draw(chance, 3)).unwrap() * 2_000;
            world.probes[draw(chance, 3)].script.slow(Duration::from_millis(ms));
        }
        11 => world
            .disk
            .slow(SimOp::Apply, Duration::from_millis(u64::try_from(draw(chance, 20)).unwrap())),
        12 => world.clock.step_ms(i64::try_from(draw(chance, 4_000)).unwrap() - 2_000),
        _ => {
            if ord(world, "a").is_none() {
                return;
            }
            let (states, cursor) = std::mem::take(purging);
            let states = if cursor.is_some() {
                states
            } else {
                let some = Purgeable::ALL.into_iter().filter(|_| draw(chance, 3) > 0);
                some.collect()
            };
            let done = chunk(world, node, "a", &states, cursor).await;
            *purging = (states, done.ok().and_then(|done| done.next));
        }
    }
}

/// Lives through `seed`: whatever is interrupted, the rows are sound, `a` can be purged to nothing and `b` is delivered.
async fn live(seed: u64) {
    let chance = SimEntropy::seeded(seed);
    let sources = [vec![HTTP], vec![HTTP, HTTP]];
    let mut world = World::new(&[1, 2]);
    world.dispatch.max_inflight = 1 + draw(&chance, 40);
    world.dispatch.concurrency = 1 + draw(&chance, 8);
    world.dispatch.attempt_timeout_ms = 3_000;
    world.dispatch.breaker_open_ms = 2_000;
    world.dispatch.breaker_max_open_ms = 4_000;
    world.dispatch.retry.max_ms = 2_000;
    world.roles.storage = draw(&chance, 3) == 0;
    let (mut purging, mut lives) = (UnderWay::default(), Vec::new());
    for _life in 0..3 {
        world = world.next_life(&sources);
        let answer = || match draw(&chance, 6) {
            0..=2 => Outcome::Ok,
            3 => Outcome::Permanent("no".to_owned()),
            _ => retry("busy"),
        };
        for probe in &world.probes {
            probe.script.answer(std::iter::repeat_with(answer).take(60));
        }
        let node = world.start().await;
        for _ in 0..60 {
            step(&world, &node, &chance, &mut purging).await;
        }
        world.disk.heal();
        if draw(&chance, 2) == 0 {
            world.kill();
        } else {
            world.cut_power();
        }
        // An open that was under way comes to its end.
        millis(10).await;
        lives.push(node);
    }
    world = world.next_life(&sources);
    let node = world.start().await;
    secs(20).await;
    if ord(&world, "a").is_some() {
        world.probes.iter().for_each(|probe| probe.script.slow(Duration::from_secs(2)));
        purge(&world, &node, "a", &Purgeable::ALL).await;
        assert_eq!(counts(&world, "a"), [0; 5]);
    }
    secs(300).await;
    world.is_sound();
    assert_eq!([Field::Inflight, Field::Pending, Field::Scheduled].map(|f| world.count(f)), [0; 3]);
    let index: BTreeSet<char> = world.index().chars().collect();
    assert!(index.is_subset(&BTreeSet::from(['a', 'x', 'X'])), "{index:?}");
    stop(node).await;
}

#[test]
fn a_purge_among_claims_outcomes_faults_and_crashes_leaves_the_store_sound() {
    for_each_seed(live);
}

/// One source whose sink takes everything in order, and fails it.
async fn blocked_lane(hooks: usize) -> (World, Node) {
    let mut world = World::new(&[1]);
    world.order(0, &[Some(OrderBy::Source)]);
    world.dispatch.retry.base_ms = 60_000;
    let node = world.start().await;
    world.probe().script.answer([retry("busy")]);
    world.send_many(&node, 0, "acme", hooks).await;
    secs(1).await;
    (world, node)
}

#[tokio::test(start_paused = true)]
async fn rows_that_wait_in_lanes_go_as_pending_ones_and_the_head_with_them() {
    let (world, node) = blocked_lane(1_200).await;
    assert_eq!(world.count(Field::LaneMembers), 1_199);
    let removed = purge(&world, &node, "acme", &[Pending]).await;
    assert_eq!(sum(&removed), Purged { pending: 1_200, ..Purged::default() });
    world.is_sound();
    // The marker of the second in which the head was to be tried again goes with that.
    secs(100).await;
    assert_eq!(world.probe().attempts(), ["acme0 #1"]);
    assert_eq!((world.hooks(), world.index().as_str()), (0, ""));
    world.send(&node, "after").await;
    secs(1).await;
    assert_eq!(world.probe().attempts(), ["acme0 #1", "after #1"]);
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_head_that_goes_hands_its_lane_on() {
    let mut world = World::new(&[1]);
    world.order(0, &[Some(OrderBy::Source)]);
    let node = world.start().await;
    world.probe().script.slow(Duration::from_secs(20));
    world.send_many(&node, 0, "acme", 3).await;
    secs(1).await;
    let removed = purge(&world, &node, "acme", &[Inflight]).await;
    assert_eq!(sum(&removed), Purged { inflight: 1, ..Purged::default() });
    world.is_sound();
    secs(100).await;
    assert_eq!(world.probe().attempts(), ["acme0 #1", "acme1 #1", "acme2 #1"]);
    assert_eq!(world.hooks(), 0);
    world.is_sound();
    stop(node).await;
}
