//! Active markers go once nothing is due in their second, and never leave a row behind that nobody would find.

use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::delivery::DeliveryRow;
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::ids::{HookId, Seq, TenantOrd};
use ankusa_actors::model::keys::ActiveKey;
use ankusa_actors::model::ops::{NewHook, Ops, stored_size};
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::node::Node;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::SimOp;
use bytes::Bytes;

use crate::world::{EPOCH_MS, HTTP, World, millis, rest, secs, stop};

fn markers(world: &World) -> usize {
    world.index().matches('A').count()
}

/// What the Writer writes when a stall lies between its stamp and its batch: a hook of the first tenant, due in the
/// past.
fn late_commit(seq: u64, at_ms: u64) -> Batch {
    let envelope = Envelope {
        id: HookId::v7(at_ms, u128::from(seq) << 40),
        source_id: "s0".to_owned(),
        tenant_id: Some("acme".to_owned()),
        received_at_ms: at_ms,
        method: "POST".to_owned(),
        path: "/s".to_owned(),
        headers: Vec::new(),
        content_type: None,
        body: Bytes::from(format!("late{seq}")),
        dedupe_key: None,
        verification: None,
    };
    let value = Bytes::from(envelope.encode(ValueVersion::V0));
    let row = DeliveryRow::pending(HTTP, "s0", stored_size(&value), at_ms);
    let row = row.encode(ValueVersion::V0);
    let mut ops = Ops::default();
    ops.commit_hook(NewHook {
        seq: Seq(seq),
        tenant: TenantOrd(1),
        at_ms,
        value,
        rows: &[(0, row)],
        archive: false,
    });
    ops.set_next_seq(Seq(seq + 1));
    ops.finish()
}

async fn commit_late(node: &Node, seq: u64, at_ms: u64) {
    node.handles().store.apply(late_commit(seq, at_ms), Lane::Commit).await.unwrap();
    node.handles().mark.raise(Seq(seq));
    node.handles().dispatch.wake();
}

#[tokio::test(start_paused = true)]
async fn a_marker_stays_while_its_second_lasts_and_goes_after() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    millis(900).await;
    node.handles().dispatch.wake();
    millis(50).await;
    assert_eq!((world.hooks(), markers(&world)), (0, 1));
    millis(100).await;
    node.handles().dispatch.wake();
    millis(50).await;
    assert_eq!(markers(&world), 0);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_row_that_is_not_synced_yet_keeps_its_marker() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    let late = late_commit(2, EPOCH_MS + 10);
    node.handles().store.apply(late, Lane::Commit).await.unwrap();
    for _ in 0..5 {
        secs(1).await;
        node.handles().dispatch.wake();
    }
    millis(50).await;
    assert_eq!(markers(&world), 1);
    assert_eq!(world.probe().attempts(), ["one #1"]);
    node.handles().mark.raise(Seq(2));
    node.handles().dispatch.wake();
    millis(50).await;
    assert_eq!(world.probe().attempts(), ["one #1", "late2 #1"]);
    rest().await;
    assert_eq!(world.index(), "");
    world.is_sound();
    stop(node).await;
}

/// A commit of an old second lands at every moment around the removal of its marker, one moment a case.
#[tokio::test(start_paused = true)]
async fn a_commit_that_slips_in_while_its_marker_is_removed_is_delivered() {
    for moment_ms in 0..40 {
        let world = World::new(&[1]);
        let node = world.start().await;
        world.send_to(&node, 0, "acme", "one").await;
        world.send_to(&node, 0, "other", "two").await;
        secs(2).await;
        assert_eq!(markers(&world), 2, "nobody has looked since");
        // Every call takes its time, so that there are moments between them.
        world.disk.slow(SimOp::Read, Duration::from_millis(3));
        world.disk.slow(SimOp::Apply, Duration::from_millis(3));
        node.handles().dispatch.wake();
        millis(moment_ms).await;
        let late = late_commit(3, EPOCH_MS + 500);
        node.handles().store.apply(late, Lane::Commit).await.unwrap();
        millis(200).await;
        world.is_sound();
        node.handles().mark.raise(Seq(3));
        world.disk.heal();
        node.handles().dispatch.wake();
        secs(3).await;
        node.handles().dispatch.wake();
        secs(1).await;
        let attempts = world.probe().attempts();
        assert_eq!(attempts, ["one #1", "two #1", "late3 #1"], "after {moment_ms} ms");
        rest().await;
        assert_eq!(world.index(), "");
        world.is_sound();
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_below_what_was_claimed_before_is_found_when_its_second_is_over() {
    let world = World::new(&[1]);
    let node = world.start().await;
    for ix in 0..40 {
        world.send(&node, &format!("{ix}")).await;
        millis(100).await;
    }
    // Stamped two seconds ago, and its marker is gone since.
    commit_late(&node, 41, EPOCH_MS + 2_000).await;
    secs(1).await;
    let attempts = world.probe().attempts();
    assert_eq!((attempts.len(), attempts[40].as_str()), (41, "late41 #1"));
    rest().await;
    assert_eq!((world.hooks(), world.index().as_str()), (0, ""));
    world.is_sound();
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_stall_of_the_writer_hides_nothing() {
    for stall_ms in [0, 900, 5_000, 60_000, 200_000] {
        let world = World::new(&[1]);
        let node = world.start().await;
        world.send(&node, "one").await;
        let stamp_ms = EPOCH_MS + 100;
        millis(100 + stall_ms).await;
        node.handles().dispatch.wake();
        millis(100).await;
        commit_late(&node, 2, stamp_ms).await;
        secs(1).await;
        assert_eq!(world.probe().attempts(), ["one #1", "late2 #1"], "after {stall_ms} ms");
        world.is_sound();
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_marker_that_was_lost_with_a_process_is_put_back_by_the_next() {
    let mut world = World::new(&[1]);
    world.roles.dispatch = false;
    let node = world.start().await;
    world.send_to(&node, 0, "other", "none").await;
    world.send(&node, "one").await;
    let mut batch = Batch::default();
    let lost = ActiveKey { second: EPOCH_MS / 1_000, tenant: TenantOrd(2) };
    batch.delete(Cf::Index, &lost.encode());
    world.write(&node, batch).await;
    assert_eq!(markers(&world), 1);
    world.kill();
    let mut next = world.next_life(&[vec![HTTP]]);
    next.roles.dispatch = true;
    let other = next.start().await;
    secs(1).await;
    assert_eq!(next.probe().attempts().len(), 2);
    rest().await;
    assert_eq!(next.index(), "");
    next.is_sound();
    stop(other).await;
    drop(node);
}

#[tokio::test(start_paused = true)]
async fn markers_left_by_a_crash_before_the_look_are_swept() {
    let world = World::new(&[1]);
    let node = world.start().await;
    rest().await;
    let mut batch = Batch::default();
    let cleared = ankusa_actors::model::keys::ClearedKey::delivery(Seq(700), 0);
    batch.put(Cf::Index, &cleared.encode(), b"");
    world.write(&node, batch).await;
    secs(61).await;
    assert_eq!(world.index(), "");
    stop(node).await;
}
