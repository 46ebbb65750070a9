//! Rows and hooks that are not as they should be: each has its documented end, and none stops the others.

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::Field;
use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::ids::Seq;
use ankusa_actors::model::keys::{DeliveryKey, HookKey};
use ankusa_actors::node::Node;

use crate::world::{HTTP, LOG, World, rest, secs, stop};

/// A hook that waits in the store, written by a life without dispatch.
async fn waiting(modules: &[Vec<&'static str>]) -> (World, Node, Seq) {
    let mut world = World::new(&[1]).next_life(modules);
    world.roles.dispatch = false;
    let node = world.start().await;
    let seq = world.send(&node, "one").await;
    (world, node, seq)
}

/// The next life, once it has come to rest. A healthy hook is delivered all along.
async fn delivering(world: World, node: Node, modules: &[Vec<&'static str>]) -> World {
    stop(node).await;
    let mut next = world.next_life(modules);
    next.roles.dispatch = true;
    let node = next.start().await;
    next.send_to(&node, modules.len() - 1, "acme", "healthy").await;
    rest().await;
    let healthy = next.probes.last().unwrap().attempts();
    assert!(healthy.contains(&"healthy #1".to_owned()), "{healthy:?}");
    stop(node).await;
    next
}

fn the_row(world: &World) -> DeliveryRow {
    let rows = world.rows();
    let [row] = rows.as_slice() else { panic!("{rows:?}") };
    row.clone()
}

fn one() -> Vec<Vec<&'static str>> {
    vec![vec![HTTP]]
}

#[tokio::test(start_paused = true)]
async fn a_due_key_without_its_row_is_dropped() {
    let (world, node, seq) = waiting(&one()).await;
    let mut batch = Batch::default();
    batch.delete(Cf::Deliveries, &DeliveryKey { seq, sink: 0 }.encode());
    batch.delete(Cf::Hooks, &HookKey(seq).encode());
    world.write(&node, batch).await;
    let world = delivering(world, node, &one()).await;
    assert_eq!(world.probe().attempts(), ["healthy #1"]);
    assert_eq!((world.index().as_str(), world.count(Field::Pending)), ("", 0));
}

#[tokio::test(start_paused = true)]
async fn a_row_without_its_hook_is_dropped() {
    let (world, node, seq) = waiting(&one()).await;
    // Beside a hook that is there: a store that has rows and no hook at all does not boot.
    world.send(&node, "two").await;
    let mut batch = Batch::default();
    batch.delete(Cf::Hooks, &HookKey(seq).encode());
    world.write(&node, batch).await;
    let world = delivering(world, node, &one()).await;
    assert_eq!(world.probe().attempts(), ["two #1", "healthy #1"]);
    assert_eq!((world.rows(), world.index().as_str()), (vec![], ""));
    world.is_sound();
}

#[tokio::test(start_paused = true)]
async fn a_claim_without_its_row_is_dropped() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.probe().script.slow(std::time::Duration::from_secs(1_000));
    let seq = world.send(&node, "one").await;
    secs(1).await;
    let mut batch = Batch::default();
    batch.delete(Cf::Deliveries, &DeliveryKey { seq, sink: 0 }.encode());
    batch.delete(Cf::Hooks, &HookKey(seq).encode());
    world.write(&node, batch).await;
    world.kill();
    let next = world.next_life(&one());
    let other = next.start().await;
    rest().await;
    assert_eq!((next.index().as_str(), next.count(Field::Inflight)), ("", 0));
    stop(other).await;
    drop(node);
}

/// How a hook ends whose stored value is this.
async fn ends_dead_with_hook(value: &[u8], reason: &str) {
    let (world, node, seq) = waiting(&one()).await;
    let mut batch = Batch::default();
    batch.put(Cf::Hooks, &HookKey(seq).encode(), value);
    world.write(&node, batch).await;
    let world = delivering(world, node, &one()).await;
    let row = the_row(&world);
    assert_eq!((row.state, row.attempts), (RowState::Dead, 0));
    assert!(row.error.as_ref().unwrap().starts_with(reason), "{row:?}");
    assert_eq!(
        (world.hooks(), world.index().as_str()),
        (1, "Xx"),
        "the hook stays for somebody to look at"
    );
    let dead = "DeadLettered { source_id: \"s0\", sink: \"none\" }";
    assert!(world.delivered().contains(&dead.to_owned()));
    assert_eq!((world.count(Field::Dead), world.count(Field::Pending)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_a_newer_version_is_dead_with_that_reason() {
    ends_dead_with_hook(b"AE\x09\x83\x74\0\0\0\0", "unsupported_envelope_version").await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_cannot_be_read_is_dead_with_that_reason() {
    ends_dead_with_hook(b"rot", "undecodable").await;
}

/// A row that this release cannot read stays as it is.
async fn stays_dead_as_row(value: &[u8]) {
    let (world, node, seq) = waiting(&one()).await;
    let mut batch = Batch::default();
    batch.put(Cf::Deliveries, &DeliveryKey { seq, sink: 0 }.encode(), value);
    world.write(&node, batch).await;
    let world = delivering(world, node, &one()).await;
    let rows = world.disk.rows(Cf::Deliveries);
    let [(_, row)] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(row, value);
    assert_eq!((world.hooks(), world.index().as_str()), (1, "Xx"));
    assert_eq!((world.count(Field::Dead), world.count(Field::Pending)), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_row_of_a_newer_version_is_dead_and_kept_for_a_release_that_can_read_it() {
    stays_dead_as_row(b"AD\x09\x83\x74\0\0\0\0").await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_cannot_be_read_is_dead_and_kept() {
    stays_dead_as_row(b"rot").await;
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_source_is_gone_is_dead() {
    let (world, node, _) = waiting(&[vec![HTTP], vec![HTTP]]).await;
    world.send_to(&node, 1, "acme", "gone").await;
    let world = delivering(world, node, &one()).await;
    let row = the_row(&world);
    assert_eq!(row.error.as_deref(), Some("source gone: no source \"s1\" is configured"));
    assert_eq!(world.probe().attempts(), ["one #1", "healthy #1"]);
    world.is_sound();
}

#[tokio::test(start_paused = true)]
async fn a_row_whose_sink_is_gone_is_dead_and_one_that_moved_is_delivered() {
    let (world, node, _) = waiting(&[vec![HTTP, LOG]]).await;
    let world = delivering(world, node, &[vec![LOG]]).await;
    let row = the_row(&world);
    let reason = format!("sink gone: source \"s0\" has no {HTTP}");
    assert_eq!((row.state, row.error), (RowState::Dead, Some(reason)));
    assert_eq!(world.probe().attempts(), ["one #1", "healthy #1"]);
    world.is_sound();
}
