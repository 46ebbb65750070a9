//! The dead letters, as they are listed.

use ankusa_actors::dispatch::dlq::{DeadEntry, DeadFilter, DeadLetters, dead};
use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::ids::{HookId, Seq};
use ankusa_actors::model::keys::{DeliveryKey, HookKey};
use ankusa_actors::node::Node;
use ankusa_actors::ports::Outcome;
use bytes::Bytes;

use crate::world::{EPOCH_MS, World, secs, stop};

/// Six dead letters, a second apart, of two sources and two tenants in turn.
async fn six() -> (World, Node) {
    let world = World::new(&[1, 1]);
    let node = world.start().await;
    for ix in 0..6 {
        let no = Outcome::Permanent(format!("no {ix}"));
        world.probes[ix % 2].script.answer([no]);
        let tenant = ["acme", "other"][ix / 3];
        world.send_to(&node, ix % 2, tenant, &"x".repeat(ix)).await;
        secs(1).await;
    }
    (world, node)
}

async fn list(node: &Node, filter: DeadFilter, limit: usize) -> DeadLetters {
    dead(&node.handles().store, &filter, limit).await.unwrap()
}

fn reasons(dead: &DeadLetters) -> Vec<&str> {
    dead.entries.iter().map(|entry| entry.reason.as_str()).collect()
}

#[tokio::test(start_paused = true)]
async fn the_newest_come_first_with_everything_but_the_body() {
    let (_world, node) = six().await;
    let dead = list(&node, DeadFilter::default(), 2).await;
    let newest = DeadEntry {
        id: HookId::v7(EPOCH_MS + 5_000, 6).to_string(),
        source_id: "s1".to_owned(),
        tenant_id: "other".to_owned(),
        seq: Seq(6),
        received_at_ms: Some(EPOCH_MS + 5_000),
        dead_lettered_at_ms: EPOCH_MS + 5_000,
        size: 5,
        content_type: Some(Bytes::from_static(b"text/plain")),
        reason: "no 5".to_owned(),
    };
    assert_eq!((dead.total, dead.entries.len()), (6, 2));
    assert_eq!(dead.entries[0], newest);
    assert_eq!(dead.entries[1].reason, "no 4");
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_source_a_time_and_a_limit_narrow_the_list_and_not_the_total() {
    let (_world, node) = six().await;
    let of_source = DeadFilter { source_id: Some("s0".to_owned()), since_ms: None };
    let dead = list(&node, of_source, 100).await;
    assert_eq!((dead.total, reasons(&dead)), (6, vec!["no 4", "no 2", "no 0"]));
    let since = DeadFilter { source_id: None, since_ms: Some(EPOCH_MS + 4_000) };
    assert_eq!(reasons(&list(&node, since, 100).await), ["no 5", "no 4"], "inclusive");
    let none = DeadFilter { source_id: Some("nobody".to_owned()), since_ms: None };
    assert_eq!(reasons(&list(&node, none, 100).await), Vec::<&str>::new());
    assert_eq!(
        list(&node, DeadFilter::default(), 0).await,
        DeadLetters { total: 6, entries: vec![] }
    );
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_read_is_listed_with_what_is_known() {
    let (world, node) = six().await;
    let mut batch = Batch::default();
    batch.put(Cf::Hooks, &HookKey(Seq(6)).encode(), b"rot");
    batch.put(Cf::Deliveries, &DeliveryKey { seq: Seq(6), sink: 0 }.encode(), b"AD\x09\x83");
    batch.delete(Cf::Deliveries, &DeliveryKey { seq: Seq(5), sink: 0 }.encode());
    world.write(&node, batch).await;
    let dead = list(&node, DeadFilter::default(), 2).await;
    let newest = DeadEntry {
        id: HookId::v7(EPOCH_MS + 5_000, 6).to_string(),
        source_id: "s1".to_owned(),
        tenant_id: "other".to_owned(),
        seq: Seq(6),
        received_at_ms: None,
        dead_lettered_at_ms: EPOCH_MS + 5_000,
        size: 3,
        content_type: None,
        reason:
            "unsupported_delivery_row_version: delivery row version 9 is not known to this release"
                .to_owned(),
    };
    assert_eq!(dead.entries[0], newest);
    assert_eq!(dead.entries[1].reason, "its row is missing");
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_long_list_is_read_to_its_end() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.probe().script.answer_otherwise(Outcome::Permanent("no".to_owned()));
    world.send_many(&node, 0, "acme", 1_500).await;
    secs(10).await;
    let dead = list(&node, DeadFilter::default(), 10_000).await;
    let mut seqs: Vec<u64> = dead.entries.iter().map(|entry| entry.seq.0).collect();
    seqs.sort_unstable();
    assert_eq!((dead.total, seqs), (1_500, (1..=1_500).collect()));
    stop(node).await;
}
