//! Everything at once, by seed: sinks that fail, hang and panic, processes that die, a store that fails. Behind it every
//! acked hook was delivered or is dead, and the store is sound.

use std::collections::BTreeSet;
use std::time::Duration;

use ankusa_actors::model::counters::Field;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimEntropy, SimOp};
use ankusa_actors::ports::{Entropy, Lane, Outcome};
use ankusa_actors::queue::CommitAnswer;

use crate::world::{HTTP, World, for_each_seed, millis, retry, secs, stop};

/// Draws below `n`.
fn draw(chance: &SimEntropy, n: usize) -> usize {
    usize::try_from(chance.bits() % u128::try_from(n).unwrap()).unwrap()
}

fn draw_ms(chance: &SimEntropy, n: usize) -> u64 {
    u64::try_from(draw(chance, n)).unwrap()
}

fn outcome(chance: &SimEntropy) -> Outcome {
    match draw(chance, 10) {
        0..=5 => Outcome::Ok,
        6 => Outcome::Permanent("no".to_owned()),
        7 => Outcome::RetryAfter { ms: draw_ms(chance, 5_000), reason: "later".to_owned() },
        _ => retry("busy"),
    }
}

fn fault(chance: &SimEntropy) -> Fault {
    let class = FailureClass::IoError;
    let fault = match draw(chance, 5) {
        0 => Fault::refuse(SimOp::Apply, class),
        1 => Fault::refuse(SimOp::Apply, class).until_reopened(),
        2 => Fault::apply_logged_unseen(class),
        3 => Fault::apply_landed(class),
        _ => return Fault::refuse(SimOp::Read, class),
    };
    let after = u32::try_from(draw(chance, 6)).unwrap();
    fault.on(Lane::Background).after(after)
}

async fn step(world: &World, node: &Node, chance: &SimEntropy, acked: &mut Vec<String>) {
    match draw(chance, 20) {
        0..=9 => {
            let (source, tenant) = (draw(chance, 2), ["a", "b", "c"][draw(chance, 3)]);
            let body = format!("h{}", chance.bits());
            let sent = world.try_send_to(node, source, tenant, &body);
            if let CommitAnswer::Committed(_) = sent.await {
                acked.push(body);
            }
        }
        10..=12 => millis(draw_ms(chance, 3_000)).await,
        13 => world.disk.fail(fault(chance)),
        14 => {
            node.handles().board.crash("dispatch");
        }
        15 => {
            let probe = &world.probes[draw(chance, 3)];
            probe.script.slow(Duration::from_millis(draw_ms(chance, 3) * 2_000));
        }
        16 => {
            if let Some(body) = acked.last() {
                world.probes[draw(chance, 3)].panic_at(body);
            }
        }
        17 => world.disk.slow(SimOp::Apply, Duration::from_millis(draw_ms(chance, 30))),
        18 => world.disk.slow(SimOp::Read, Duration::from_millis(draw_ms(chance, 5))),
        _ => world.clock.step_ms(i64::try_from(draw(chance, 4_000)).unwrap() - 2_000),
    }
}

/// Lives through `seed`, with a process that is killed in the middle.
async fn live(seed: u64) {
    let chance = SimEntropy::seeded(seed);
    let sources = [vec![HTTP], vec![HTTP, HTTP]];
    let mut world = World::new(&[1, 2]);
    world.dispatch.max_inflight = 1 + draw(&chance, 40);
    world.dispatch.concurrency = 1 + draw(&chance, 8);
    world.dispatch.batch = 1 + draw(&chance, 20);
    world.dispatch.attempt_timeout_ms = 3_000;
    world.dispatch.breaker_open_ms = 2_000;
    world.dispatch.breaker_max_open_ms = 4_000;
    world.dispatch.retry.max_ms = 2_000;
    world.roles.storage = draw(&chance, 2) == 0;
    let (mut acked, mut delivered, mut lives) = (Vec::new(), BTreeSet::new(), Vec::new());
    for _life in 0..3 {
        world = world.next_life(&sources);
        for probe in &world.probes {
            probe.script.answer(std::iter::repeat_with(|| outcome(&chance)).take(60));
        }
        let node = world.start().await;
        for _ in 0..80 {
            step(&world, &node, &chance, &mut acked).await;
        }
        world.disk.heal();
        if draw(&chance, 2) == 0 {
            world.kill();
        } else {
            world.cut_power();
        }
        let attempts = world.probes.iter().flat_map(|probe| probe.attempts());
        delivered.extend(attempts.map(|line| line.split(' ').next().unwrap().to_owned()));
        lives.push(node);
    }
    world = world.next_life(&sources);
    let node = world.start().await;
    secs(300).await;
    world.is_sound();
    assert_eq!(world.count(Field::Inflight), 0);
    assert_eq!((world.count(Field::Pending), world.count(Field::Scheduled)), (0, 0));
    let attempts = world.probes.iter().flat_map(|probe| probe.attempts());
    delivered.extend(attempts.map(|line| line.split(' ').next().unwrap().to_owned()));
    let missing: Vec<_> = acked.iter().filter(|body| !delivered.contains(*body)).collect();
    assert!(missing.is_empty(), "never attempted: {missing:?}");
    let unknown: Vec<_> = delivered.iter().filter(|body| !acked.contains(body)).collect();
    assert!(unknown.is_empty(), "never acked: {unknown:?}");
    let index: BTreeSet<char> = world.index().chars().collect();
    assert!(index.is_subset(&BTreeSet::from(['a', 'x', 'X'])), "{index:?}");
    stop(node).await;
}

#[test]
fn whatever_happens_every_acked_hook_is_attempted_and_the_store_is_sound() {
    for_each_seed(live);
}
