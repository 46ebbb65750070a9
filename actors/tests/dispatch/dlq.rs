//! The dead letters, as they are listed.

use std::collections::{BTreeMap, BTreeSet};

use ankusa_actors::dispatch::dlq::{DeadCursor, DeadEntry, DeadFilter, DeadLetters, dead};
use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::ids::{HookId, Seq, TenantOrd};
use ankusa_actors::model::keys::{
    DeadKey, DeadValue, DeliveryKey, DueKey, DueKind, DueValue, HookKey, TenantNameKey,
};
use ankusa_actors::model::ops::Ops;
use ankusa_actors::model::reason::ReasonClass;
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
    dead(&node.handles().store, &filter, None, limit).await.unwrap()
}

/// Every page of so many, as long as there is another.
async fn pages(node: &Node, filter: &DeadFilter, limit: usize) -> Vec<DeadLetters> {
    let (mut after, mut pages) = (None, Vec::new());
    loop {
        let page = dead(&node.handles().store, filter, after, limit).await.unwrap();
        // As a client hands it back.
        after = page.next.map(|next| next.to_string().parse().unwrap());
        pages.push(page);
        if after.is_none() {
            return pages;
        }
    }
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
    let filter = |change: fn(&mut DeadFilter)| {
        let mut filter = DeadFilter::default();
        change(&mut filter);
        filter
    };
    let of_source = filter(|filter| filter.source_id = Some("s0".to_owned()));
    let dead = list(&node, of_source, 100).await;
    assert_eq!((dead.total, reasons(&dead)), (6, vec!["no 4", "no 2", "no 0"]));
    let since = filter(|filter| filter.since_ms = Some(EPOCH_MS + 4_000));
    assert_eq!(reasons(&list(&node, since, 100).await), ["no 5", "no 4"], "inclusive");
    let until = filter(|filter| filter.until_ms = Some(EPOCH_MS + 1_000));
    assert_eq!(reasons(&list(&node, until, 100).await), ["no 1", "no 0"], "inclusive");
    let between = filter(|filter| {
        (filter.since_ms, filter.until_ms) = (Some(EPOCH_MS + 2_000), Some(EPOCH_MS + 3_000));
    });
    assert_eq!(reasons(&list(&node, between, 100).await), ["no 3", "no 2"]);
    let none = filter(|filter| filter.source_id = Some("nobody".to_owned()));
    assert_eq!(reasons(&list(&node, none, 100).await), Vec::<&str>::new());
    assert_eq!(
        list(&node, DeadFilter::default(), 0).await,
        DeadLetters { total: 6, entries: vec![], next: None }
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

#[tokio::test(start_paused = true)]
async fn a_tenant_has_a_list_and_a_total_of_its_own() {
    let (_world, node) = six().await;
    let of =
        |tenant: &str| DeadFilter { tenant_id: Some(tenant.to_owned()), ..DeadFilter::default() };
    let dead = list(&node, of("other"), 100).await;
    assert_eq!((dead.total, reasons(&dead), dead.next), (3, vec!["no 5", "no 4", "no 3"], None));
    let both = DeadFilter {
        source_id: Some("s1".to_owned()),
        until_ms: Some(EPOCH_MS + 4_999),
        ..of("other")
    };
    let dead = list(&node, both, 100).await;
    assert_eq!((dead.total, reasons(&dead)), (3, vec!["no 3"]));
    let entry = &dead.entries[0];
    assert_eq!((entry.source_id.as_str(), entry.tenant_id.as_str()), ("s1", "other"));
    assert_eq!(list(&node, of("nobody"), 100).await, DeadLetters::default());
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_class_of_reasons_narrows_the_list() {
    let world = World::new(&[1]);
    let node = world.start().await;
    for reason in
        ["worker answered 410", "sink gone: x", "worker answered 400", "the sink panicked"]
    {
        world.probe().script.answer([Outcome::Permanent(reason.to_owned())]);
        world.send(&node, reason).await;
        secs(1).await;
    }
    for (class, expected) in [
        (ReasonClass::Sink, vec!["worker answered 400", "worker answered 410"]),
        (ReasonClass::SinkGone, vec!["sink gone: x"]),
        (ReasonClass::Panicked, vec!["the sink panicked"]),
        (ReasonClass::Timeout, vec![]),
    ] {
        for tenant_id in [None, Some("acme".to_owned())] {
            let class = Some(class);
            let filter = DeadFilter { class, tenant_id, ..DeadFilter::default() };
            assert_eq!(reasons(&list(&node, filter, 100).await), expected, "{class:?}");
        }
    }
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn pages_go_on_where_the_last_one_ended_and_say_when_there_is_no_other() {
    let (_world, node) = six().await;
    let told = |pages: &[DeadLetters]| -> Vec<Vec<String>> {
        let page = |page: &DeadLetters| reasons(page).into_iter().map(str::to_owned).collect();
        pages.iter().map(page).collect()
    };
    let all = DeadFilter::default();
    assert_eq!(
        told(&pages(&node, &all, 4).await),
        [vec!["no 5", "no 4", "no 3", "no 2"], vec!["no 1", "no 0"]]
    );
    assert_eq!(told(&pages(&node, &all, 3).await).len(), 2, "no page for nothing");
    assert_eq!(told(&pages(&node, &all, 1).await).len(), 6);
    let filter = DeadFilter { source_id: Some("s0".to_owned()), ..all };
    assert_eq!(told(&pages(&node, &filter, 2).await)[0], ["no 4", "no 2"]);
    let first = list(&node, DeadFilter::default(), 2).await.next.unwrap();
    assert_eq!(first.to_string(), format!("{}.5.0", EPOCH_MS + 4_000));
    stop(node).await;
}

#[test]
fn a_cursor_that_no_page_answered_is_none() {
    for text in
        ["", "1", "1.2", "1.2.3.4", "1.2.65536", "01.2.3", "+1.2.3", "1.-2.3", "a.b.c", " 1.2.3"]
    {
        assert!(text.parse::<DeadCursor>().is_err(), "{text:?}");
    }
}

/// Dead rows of one tenant, newest last, without a hook or a row: what a page looks at is the index.
async fn index_of_dead(world: &World, node: &Node, count: u64) {
    for chunk in 0..count.div_ceil(1_000) {
        let mut batch = Batch::default();
        for n in chunk * 1_000..count.min((chunk + 1) * 1_000) {
            let source_id = if n % 5_000 == 7 { "rare" } else { "s0" };
            let key = DeadKey { at_ms: EPOCH_MS + n, seq: Seq(1_000 + n), sink: 0 };
            let value = DeadValue { source_id, hook_id: "id", tenant: Some(TenantOrd(1)) };
            batch.put(Cf::Index, &key.encode(), &value.encode());
            batch.put(Cf::Index, &key.by_tenant(TenantOrd(1)).encode(), &[]);
        }
        world.write(node, batch).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_with_a_filter_looks_at_so_many_rows_and_no_more_and_says_where_to_go_on() {
    let world = World::new(&[1]);
    let node = world.start().await;
    world.send(&node, "one").await;
    secs(1).await;
    index_of_dead(&world, &node, 20_000).await;
    for tenant_id in [None, Some("acme".to_owned())] {
        let filter =
            DeadFilter { source_id: Some("rare".to_owned()), tenant_id, ..DeadFilter::default() };
        let before = world.disk.counts().reads;
        let first = list(&node, filter.clone(), 10).await;
        // At most a scan and a look-up for each of 16 chunks, and a few for what was found.
        assert!(world.disk.counts().reads - before < 60);
        assert_eq!(first.entries.len(), 1, "15,007 is within the newest 8,192, and 10,007 is not");
        let all = pages(&node, &filter, 10).await;
        let found: Vec<u64> =
            all.iter().flat_map(|page| &page.entries).map(|entry| entry.seq.0).collect();
        assert_eq!(found, [16_007, 11_007, 6_007, 1_007]);
        assert_eq!(all.len(), 3);
        let nobody = DeadFilter { source_id: Some("nobody".to_owned()), ..filter };
        let empty = list(&node, nobody, 10).await;
        assert!(empty.entries.is_empty() && empty.next.is_some());
    }
    stop(node).await;
}

/// Chance by seed, without a crate.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }
}

/// Whoever follows the cursors, while rows die and others go, meets every row that is there all along exactly once, no
/// row twice, and the newest first.
async fn follow(seed: u64, filter: &DeadFilter) {
    let world = World::new(&[1]);
    let node = world.start().await;
    let mut draw = Draw(seed);
    let (mut next_seq, mut at_ms) = (1_u64, EPOCH_MS);
    let mut there: BTreeMap<DeadKey, TenantOrd> = BTreeMap::new();
    world.send(&node, "acme is the first tenant").await;
    world.send_to(&node, 0, "other", "and other the second").await;
    secs(1).await;
    let acme = world
        .disk
        .rows(Cf::Tenants)
        .into_iter()
        .find(|row| row.0 == TenantNameKey("acme").encode());
    let acme = TenantNameKey::read_value(&acme.unwrap().1).unwrap();
    let mut die = |draw: &mut Draw, ops: &mut Ops, there: &mut BTreeMap<DeadKey, TenantOrd>| {
        // Several in one millisecond, and the clock never goes back.
        at_ms += draw.below(2);
        next_seq += 1;
        let tenant = TenantOrd(1 + u32::try_from(draw.below(2)).unwrap());
        let due = DueKey { tenant, at_ms, seq: Seq(1_000 + next_seq), sink: 0 };
        let claimed = ops.claim(&due, DueValue { size: 5, kind: DueKind::First });
        ops.dead(&claimed, b"row", at_ms, "s0", "id");
        there.insert(DeadKey { at_ms, seq: due.seq, sink: 0 }, tenant);
    };
    let mut ops = Ops::default();
    (0..60).for_each(|_| die(&mut draw, &mut ops, &mut there));
    world.write(&node, ops.finish()).await;
    let mut stayed: BTreeSet<DeadKey> = there.keys().copied().collect();
    let (mut after, mut met) = (None, Vec::new());
    loop {
        let limit = usize::try_from(1 + draw.below(7)).unwrap();
        let page = dead(&node.handles().store, filter, after, limit).await.unwrap();
        met.extend(page.entries.iter().map(|entry| DeadKey {
            at_ms: entry.dead_lettered_at_ms,
            seq: entry.seq,
            sink: 0,
        }));
        after = page.next.map(|next| next.to_string().parse().unwrap());
        if after.is_none() {
            break;
        }
        let mut ops = Ops::default();
        for _ in 0..draw.below(4) {
            die(&mut draw, &mut ops, &mut there);
        }
        for _ in 0..draw.below(4) {
            let at = usize::try_from(draw.below(u64::try_from(there.len()).unwrap())).unwrap();
            let (key, tenant) = there.iter().nth(at).map(|(key, tenant)| (*key, *tenant)).unwrap();
            ops.purge_dead(&key, tenant, 5);
            there.remove(&key);
            stayed.remove(&key);
        }
        world.write(&node, ops.finish()).await;
    }
    let mut newest_first = met.clone();
    newest_first.sort_unstable_by(|a, b| b.cmp(a));
    newest_first.dedup();
    assert_eq!(met, newest_first, "seed {seed}");
    let asked = |key: &&DeadKey| filter.tenant_id.is_none() || there.get(*key) == Some(&acme);
    let missed: Vec<_> = stayed.iter().filter(asked).filter(|key| !met.contains(key)).collect();
    assert!(missed.is_empty(), "seed {seed}: {missed:?}");
    node.handles().dispatch.slot().get().unwrap().kill();
}

#[tokio::test(start_paused = true)]
async fn the_cursor_reaches_every_row_once_while_rows_come_and_go() {
    for seed in 0..40 {
        follow(seed, &DeadFilter::default()).await;
        follow(seed, &DeadFilter { tenant_id: Some("acme".to_owned()), ..DeadFilter::default() })
            .await;
        let class = Some(ReasonClass::Unreadable);
        follow(seed, &DeadFilter { class, ..DeadFilter::default() }).await;
    }
}
