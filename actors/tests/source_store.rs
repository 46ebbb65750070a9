//! Sources of the API: durable before they are seen, seen by everybody at once, and never taken for unknown.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use ankusa_actors::admin::{Admin, AdminError, Deliveries, SourceError};
use ankusa_actors::edge::{Answer, RequestHead, SourceChange, SourceStoreError};
use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::Seq;
use ankusa_actors::model::keys::{SourceKey, SourceRevisionKey, u64_value};
use ankusa_actors::model::source::SourceSpec;
use ankusa_actors::model::stored_source::{self, SourceName};
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimOp, SimSink};
use ankusa_actors::ports::{Lane, Outcome};
use ankusa_actors::queue::CommitAnswer;
use ankusa_actors::sources::{BuildSource, Found, LaneRules, Source, StoreSetup, Switches};
use common::{Bench, HTTP, open_source, secs};
use serde_json::{Value, from_value, json};

/// The sinks of the node, by the URL of their specs.
type Sinks = Arc<Mutex<BTreeMap<String, Arc<SimSink>>>>;

/// Builds sources whose sinks are simulated.
struct Builder {
    sinks: Sinks,
}

impl BuildSource for Builder {
    fn build(&self, id: &str, spec: &SourceSpec) -> Result<Source, String> {
        let json = serde_json::to_value(spec).unwrap();
        let urls = json["sinks"].as_array().unwrap().iter();
        let urls: Vec<String> =
            urls.map(|sink| sink["url"].as_str().unwrap_or("log").to_owned()).collect();
        if urls.iter().any(|url| url.contains("nowhere")) {
            return Err("sinks[0].url: leads nowhere".to_owned());
        }
        let mut all = self.sinks.lock().unwrap();
        let sink = |url: String| {
            let sink = all.entry(url).or_insert_with(|| Arc::new(SimSink::new(HTTP, "sim")));
            Arc::clone(sink) as _
        };
        let sinks: Vec<_> = urls.into_iter().map(sink).collect();
        let lanes = LaneRules::new(spec.sinks.iter().map(|sink| sink.ordered().cloned()));
        let modules = Source::modules_of(&sinks);
        let switches = Switches::of(spec);
        Ok(Source { sinks, modules, lanes, switches, ..open_source(id, &spec.tenant, &[]) })
    }
}

struct World {
    bench: Bench,
    sinks: Sinks,
}

impl World {
    fn new() -> Self {
        let (mut bench, sinks) = (Bench::default(), Sinks::default());
        bench.settings.roles.dispatch = true;
        bench.settings.dispatch.retry.jitter = false;
        bench.sources = Arc::new([open_source("conf", "acme", &[HTTP])].into_iter().collect());
        let builder = Arc::new(Builder { sinks: Arc::clone(&sinks) });
        bench.stored_sources = Some(StoreSetup { builder, max_sources: 3 });
        Self { bench, sinks }
    }

    fn sink(&self, url: &str) -> Arc<SimSink> {
        Arc::clone(self.sinks.lock().unwrap().get(url).unwrap())
    }

    /// A hook of `acme` for a source of the API.
    async fn accept(&self, node: &Node, id: &str) -> Seq {
        let head = head(id);
        let admitted = node.handles().ingest.admit(&head).unwrap();
        let mut hook = self.bench.hook("acme", "body");
        hook.envelope.source_id = id.to_owned();
        let table = node.handles().sources.table().now();
        let Found::Source(source) = table.find(id) else { panic!("no source {id}") };
        hook.sinks = Arc::clone(&source.modules);
        hook.lanes = source.lanes.lanes(id, &[], b"body");
        drop(admitted);
        match self.bench.send(node, hook).await {
            CommitAnswer::Committed(seq) => seq,
            other @ (CommitAnswer::Duplicate(_)
            | CommitAnswer::Refused(_)
            | CommitAnswer::Unknown) => panic!("{other:?}"),
        }
    }
}

fn head(id: &str) -> RequestHead {
    let path = format!("/webhooks/{id}");
    RequestHead {
        method: "POST".to_owned(),
        path,
        query: None,
        headers: Vec::new(),
        content_length: Some(4),
        remote: None,
        peer: None,
    }
}

/// What a hook for it would be told, or nothing if it would be read.
fn refusal(node: &Node, id: &str) -> Option<Answer> {
    node.handles().ingest.admit(&head(id)).err()
}

fn name(name: &str) -> SourceName {
    SourceName::new("acme", name).unwrap()
}

fn spec(url: &str) -> Box<SourceSpec> {
    Box::new(from_value(json!({"sinks": [{"type": "http", "url": url}]})).unwrap())
}

async fn create(node: &Node, of: &str, url: &str) -> Result<u64, SourceStoreError> {
    let change = SourceChange::Create { name: name(of), spec: spec(url) };
    Ok(node.handles().sources.change(change).await?.unwrap().revision)
}

async fn replace(
    node: &Node,
    of: &str,
    url: &str,
    expected: Option<u64>,
) -> Result<u64, SourceStoreError> {
    let change = SourceChange::Replace { name: name(of), spec: spec(url), expected };
    Ok(node.handles().sources.change(change).await?.unwrap().revision)
}

async fn delete(node: &Node, of: &str, expected: Option<u64>) -> Result<(), SourceStoreError> {
    let change = SourceChange::Delete { name: name(of), expected };
    node.handles().sources.change(change).await.map(drop)
}

fn admin(node: &Node, bench: &Bench) -> Admin {
    Admin::new(node.handles().clone(), bench.settings.clone(), "0")
}

async fn dead(node: &Node, bench: &Bench) -> Vec<(u64, String)> {
    let filter = Default::default();
    let page = admin(node, bench).dlq(&filter, None, 100).await.unwrap();
    let entry = |entry: &Value| {
        (entry["seq"].as_u64().unwrap(), entry["reason_class"].as_str().unwrap().to_owned())
    };
    let mut dead: Vec<_> = page["entries"].as_array().unwrap().iter().map(entry).collect();
    dead.sort();
    dead
}

/// The rows of sources that a power cut would leave.
fn durable(bench: &Bench) -> Vec<(Vec<u8>, Vec<u8>)> {
    let rows = bench.disk.durable_rows(Cf::Default).into_iter();
    rows.filter(|(key, _)| key.starts_with(b"s:") || key.starts_with(b"v:")).collect()
}

fn rows(of: &str, url: Option<&str>, revision: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let spec = |url: &str| SourceSpec { tenant: "acme".to_owned(), ..*spec(url) };
    let key = SourceKey { tenant: "acme", name: of }.encode();
    let row = url.map(|url| (key, stored_source::encode(&spec(url))));
    let revision_key = SourceRevisionKey { tenant: "acme", name: of }.encode();
    row.into_iter().chain([(revision_key, u64_value(revision).to_vec())]).collect()
}

#[test]
fn rows_are_the_golden_bytes() {
    let file: Value =
        serde_json::from_str(include_str!("../../tests/golden/source_rows.json")).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for vector in file["vectors"].as_array().unwrap() {
        let text = |key: &str| vector[key].as_str().unwrap();
        let (tenant, of) = (text("tenant"), text("source"));
        let key = SourceKey { tenant, name: of }.encode();
        assert_eq!(hex(&key), text("source_key"));
        let spec: SourceSpec = from_value(vector["spec"].clone()).unwrap();
        let spec = SourceSpec { tenant: tenant.to_owned(), ..spec };
        let value = stored_source::encode(&spec);
        assert_eq!(String::from_utf8(value.clone()).unwrap(), text("source_value"));
        let read = stored_source::decode(&key, &value).unwrap();
        assert_eq!(read, (SourceName::new(tenant, of).unwrap(), spec));
        let revision_key = SourceRevisionKey { tenant, name: of }.encode();
        assert_eq!(hex(&revision_key), text("revision_key"));
        let revision = vector["revision"].as_u64().unwrap();
        assert_eq!(hex(&u64_value(revision)), text("revision_value"));
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_is_durable_and_seen_by_everybody_when_it_is_answered() {
    let world = World::new();
    let node = world.bench.start().await;
    assert_eq!(refusal(&node, "acme.a"), Some(Answer::unknown_source()));
    assert_eq!(create(&node, "a", "one").await, Ok(1));
    assert_eq!(durable(&world.bench), rows("a", Some("one"), 1));
    assert_eq!(refusal(&node, "acme.a"), None);
    assert_eq!(refusal(&node, "conf"), None);
    assert_eq!(replace(&node, "a", "two", Some(1)).await, Ok(2));
    assert_eq!(durable(&world.bench), rows("a", Some("two"), 2));
    world.bench.disk.cut_power();

    let node = world.bench.start().await;
    assert_eq!(refusal(&node, "acme.a"), None);
    assert_eq!(delete(&node, "a", Some(2)).await, Ok(()));
    assert_eq!(durable(&world.bench), rows("a", None, 2));
    assert_eq!(refusal(&node, "acme.a"), Some(Answer::unknown_source()));
    world.bench.disk.cut_power();

    let node = world.bench.start().await;
    assert_eq!(refusal(&node, "acme.a"), Some(Answer::unknown_source()));
    assert_eq!(create(&node, "a", "three").await, Ok(3), "it counts on");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_changes_nothing_and_says_why() {
    let world = World::new();
    let node = world.bench.start().await;
    assert_eq!(replace(&node, "a", "x", None).await, Err(SourceStoreError::NotFound));
    assert_eq!(delete(&node, "a", None).await, Err(SourceStoreError::NotFound));
    let nowhere = Err(SourceStoreError::Invalid("sinks[0].url: leads nowhere".to_owned()));
    assert_eq!(create(&node, "a", "nowhere").await, nowhere);
    assert_eq!(durable(&world.bench), []);
    assert_eq!(create(&node, "a", "x").await, Ok(1));
    assert_eq!(create(&node, "a", "y").await, Err(SourceStoreError::Exists));
    assert_eq!(replace(&node, "a", "nowhere", None).await, nowhere);
    let stale = SourceStoreError::RevisionMismatch { revision: 1 };
    assert_eq!(replace(&node, "a", "y", Some(2)).await, Err(stale.clone()));
    assert_eq!(delete(&node, "a", Some(0)).await, Err(stale));
    assert_eq!(durable(&world.bench), rows("a", Some("x"), 1));
    assert_eq!((create(&node, "b", "x").await, create(&node, "c", "x").await), (Ok(1), Ok(1)));
    let full = Err(SourceStoreError::TooMany { max_sources: 3 });
    assert_eq!(create(&node, "d", "x").await, full);
}

#[tokio::test(start_paused = true)]
async fn without_a_store_of_sources_every_change_is_refused() {
    let mut world = World::new();
    world.bench.stored_sources = None;
    let node = world.bench.start().await;
    assert_eq!(create(&node, "a", "x").await, Err(SourceStoreError::ReadOnly));
    assert_eq!(refusal(&node, "conf"), None);
}

#[tokio::test(start_paused = true)]
async fn a_source_whose_row_cannot_be_read_is_unavailable_never_unknown_and_its_hooks_wait() {
    let world = World::new();
    let node = world.bench.start().await;
    for of in ["a", "b", "c"] {
        create(&node, of, "x").await.unwrap();
    }
    world.sink("x").answer([Outcome::Retry("later".to_owned())]);
    let seq = world.accept(&node, "acme.a").await;
    let mut batch = Batch::default();
    let key = |name| SourceKey { tenant: "acme", name }.encode();
    batch.put(Cf::Default, &key("a"), b"{\"sinks\":");
    batch.put(Cf::Default, &key("b"), b"{\"sinks\":[{\"type\":\"http\",\"url\":\"nowhere\"}]}");
    batch.put(Cf::Default, b"s:broken", b"{}");
    node.handles().store.apply_synced(batch, Lane::Background).await.unwrap();
    world.bench.disk.cut_power();

    let node = world.bench.start().await;
    let unavailable = Some(Answer::unavailable("store_unavailable"));
    assert_eq!(refusal(&node, "acme.a"), unavailable);
    assert_eq!(refusal(&node, "acme.b"), unavailable);
    assert_eq!(refusal(&node, "acme.c"), None);
    assert_eq!(refusal(&node, "acme.d"), Some(Answer::unknown_source()));
    let published = r#"Sources { ids: ["acme.c"], unreadable: 2 }"#.to_owned();
    assert_eq!(world.bench.events.lines().iter().filter(|line| **line == published).count(), 1);
    let table = node.handles().sources.table().now();
    let reasons: Vec<_> =
        table.unreadable.iter().map(|(name, why)| (&*name.name, &**why)).collect();
    let expected = [("a", "its value is no JSON object"), ("b", "sinks[0].url: leads nowhere")];
    assert_eq!(reasons, expected);
    secs(3_600).await;
    assert_eq!(dead(&node, &world.bench).await, [], "it waits");
    let attempts = world.sink("x").deliveries().len();

    // Its name is taken, its revision known, and a change makes it right.
    assert_eq!(create(&node, "a", "y").await, Err(SourceStoreError::Exists));
    assert_eq!(replace(&node, "a", "y", Some(1)).await, Ok(2));
    assert_eq!(refusal(&node, "acme.a"), None);
    secs(60).await;
    assert_eq!(world.sink("y").deliveries().len(), 1, "hook {seq:?}");
    assert_eq!(world.sink("x").deliveries().len(), attempts);
    assert_eq!(delete(&node, "b", Some(1)).await, Ok(()));
    assert_eq!(refusal(&node, "acme.b"), Some(Answer::unknown_source()));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_answered_unavailable_and_the_truth_is_read_again() {
    let faults = [
        Fault::refuse(SimOp::Apply, FailureClass::NoSpace).on(Lane::Background),
        Fault::refuse(SimOp::Sync, FailureClass::IoError),
        Fault::sync_landed(FailureClass::IoError),
        Fault::apply_landed(FailureClass::IoError).on(Lane::Background),
    ];
    for fault in faults {
        let world = World::new();
        let node = world.bench.start().await;
        create(&node, "a", "x").await.unwrap();
        world.bench.disk.fail(fault);
        let failed = replace(&node, "a", "y", None).await;
        assert!(matches!(failed, Err(SourceStoreError::Unavailable(_))), "{failed:?}");
        assert_eq!(refusal(&node, "acme.a"), None, "it goes on as it was");
        secs(120).await;
        // Whichever it was, what everybody sees is what a power cut would leave.
        let table = node.handles().sources.table().now();
        let seen = table.stored.get(&name("a")).unwrap();
        let expected = if seen.revision == 2 { "y" } else { "x" };
        assert_eq!(durable(&world.bench), rows("a", Some(expected), seen.revision));
        assert_eq!(*seen.spec.sinks, spec(expected).sinks);
        assert_eq!(replace(&node, "a", "z", None).await, Ok(seen.revision + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_of_the_source_store_changes_nothing() {
    let world = World::new();
    let node = world.bench.start().await;
    create(&node, "a", "x").await.unwrap();
    assert!(node.handles().board.crash("source_store"));
    assert_eq!(refusal(&node, "acme.a"), None);
    secs(1).await;
    assert_eq!(refusal(&node, "acme.a"), None);
    assert_eq!(replace(&node, "a", "y", Some(1)).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_mended_mends_what_waits_for_it() {
    let world = World::new();
    let node = world.bench.start().await;
    create(&node, "a", "broken").await.unwrap();
    world.sink("broken").answer_otherwise(Outcome::Retry("no".to_owned()));
    for _ in 0..3 {
        world.accept(&node, "acme.a").await;
    }
    secs(1).await;
    let in_vain = world.sink("broken").deliveries().len();
    assert_eq!(replace(&node, "a", "whole", None).await, Ok(2));
    secs(600).await;
    assert_eq!(world.sink("whole").deliveries().len(), 3);
    assert_eq!(world.sink("broken").deliveries().len(), in_vain);
    assert_eq!(dead(&node, &world.bench).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_is_switched_off_takes_nothing_and_delivers_what_it_took() {
    let world = World::new();
    let node = world.bench.start().await;
    create(&node, "a", "x").await.unwrap();
    world.sink("x").answer([Outcome::Retry("later".to_owned())]);
    world.accept(&node, "acme.a").await;
    let off = Box::new(SourceSpec { enabled: false, ..*spec("x") });
    let change = SourceChange::Replace { name: name("a"), spec: off, expected: None };
    node.handles().sources.change(change).await.unwrap();
    assert_eq!(refusal(&node, "acme.a"), Some(Answer::unknown_source()));
    secs(600).await;
    assert_eq!(world.sink("x").deliveries().len(), 2);
    assert_eq!(world.bench.rows(Cf::Hooks), 0);
}

#[tokio::test(start_paused = true)]
async fn what_is_for_a_sink_that_is_switched_off_waits_until_it_is_on_again() {
    for ordered in [false, true] {
        let world = World::new();
        let node = world.bench.start().await;
        let sinks = |enabled: bool| {
            let off = json!({"type": "http", "url": "x", "enabled": enabled, "ordered": ordered});
            let on = json!({"type": "http", "url": "y"});
            Box::new(from_value::<SourceSpec>(json!({"sinks": [off, on]})).unwrap())
        };
        let change = SourceChange::Create { name: name("a"), spec: sinks(false) };
        node.handles().sources.change(change).await.unwrap();
        for _ in 0..2 {
            world.accept(&node, "acme.a").await;
        }
        secs(3_600).await;
        let seen = (world.sink("x").deliveries().len(), world.sink("y").deliveries().len());
        assert_eq!(seen, (0, 2));
        assert_eq!((dead(&node, &world.bench).await, world.bench.rows(Cf::Hooks)), (vec![], 2));
        let change = SourceChange::Replace { name: name("a"), spec: sinks(true), expected: None };
        node.handles().sources.change(change).await.unwrap();
        secs(60).await;
        let attempts: Vec<u32> =
            world.sink("x").deliveries().iter().map(|delivery| delivery.attempt).collect();
        assert_eq!(attempts, [1, 1], "waiting uses no attempt up");
        assert_eq!(world.bench.rows(Cf::Hooks), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn rows_on_their_way_to_a_sink_that_is_changed_go_to_what_it_is_now() {
    let mut world = World::new();
    world.bench.settings.dispatch.concurrency = 1;
    let node = world.bench.start().await;
    create(&node, "a", "slow").await.unwrap();
    world.sink("slow").slow(std::time::Duration::from_secs(20));
    for _ in 0..4 {
        world.accept(&node, "acme.a").await;
    }
    secs(1).await;
    assert_eq!(world.sink("slow").deliveries().len(), 1, "the others are claimed and wait");
    replace(&node, "a", "quick", None).await.unwrap();
    secs(5).await;
    assert_eq!(world.sink("quick").deliveries().len(), 3);
    // What was under way ends as it began.
    secs(20).await;
    assert_eq!(world.sink("slow").deliveries().len(), 1);
    let counters = admin(&node, &world.bench).queue().await.unwrap();
    assert_eq!((&counters["queue"]["inflight"], &counters["hooks"]), (&json!(0), &json!(0)));
}

#[tokio::test(start_paused = true)]
async fn a_source_with_deliveries_is_kept_unless_they_are_to_die() {
    for ordered in [false, true] {
        let world = World::new();
        let node = world.bench.start().await;
        let sink = json!({"type": "http", "url": "x", "ordered": ordered});
        let spec = Box::new(from_value(json!({"sinks": [sink]})).unwrap());
        let change = SourceChange::Create { name: name("a"), spec };
        node.handles().sources.change(change).await.unwrap();
        create(&node, "other", "y").await.unwrap();
        for url in ["x", "y"] {
            world.sink(url).answer_otherwise(Outcome::Retry("no".to_owned()));
        }
        let mut seqs = Vec::new();
        for _ in 0..4 {
            seqs.push(world.accept(&node, "acme.a").await.0);
            world.accept(&node, "acme.other").await;
        }
        // All wait for a retry that is not soon, or in the lane behind one.
        secs(600).await;
        let admin = admin(&node, &world.bench);
        let kept = admin.delete_source(name("a"), None, Deliveries::Keep).await;
        let HasDeliveries { pending, inflight } = counts(&kept);
        assert_eq!((pending, inflight), (4, 0), "ordered: {ordered}");
        assert_eq!(refusal(&node, "acme.a"), None);
        let stale = admin.delete_source(name("a"), Some(7), Deliveries::DeadLetter).await;
        let mismatch = SourceStoreError::RevisionMismatch { revision: 1 };
        assert_eq!(stale, Err(SourceError::Store(mismatch)));

        admin.delete_source(name("a"), Some(1), Deliveries::DeadLetter).await.unwrap();
        secs(2).await;
        let gone = |seq: &u64| (*seq, "source_gone".to_owned());
        let expected: Vec<_> = seqs.iter().map(gone).collect();
        assert_eq!(dead(&node, &world.bench).await, expected, "ordered: {ordered}");
        assert_eq!(refusal(&node, "acme.a"), Some(Answer::unknown_source()));
        let queue = admin.queue().await.unwrap()["queue"].clone();
        assert_eq!((&queue["scheduled"], &queue["lane_members"]), (&json!(4), &json!(0)));
        let missing = admin.delete_source(name("a"), None, Deliveries::Keep).await;
        assert_eq!(missing, Err(SourceError::Store(SourceStoreError::NotFound)));
    }
}

struct HasDeliveries {
    pending: u64,
    inflight: u64,
}

fn counts(refused: &Result<(), SourceError>) -> HasDeliveries {
    match refused {
        Err(SourceError::HasDeliveries { pending, inflight }) => {
            HasDeliveries { pending: *pending, inflight: *inflight }
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_dispatch_lets_no_deliveries_die() {
    let mut world = World::new();
    world.bench.settings.roles.dispatch = false;
    let node = world.bench.start().await;
    create(&node, "a", "x").await.unwrap();
    let admin = admin(&node, &world.bench);
    let refused = admin.delete_source(name("a"), None, Deliveries::DeadLetter).await;
    assert_eq!(refused, Err(SourceError::Admin(AdminError::RoleNotEnabled("dispatch"))));
    world.accept(&node, "acme.a").await;
    let kept = admin.delete_source(name("a"), None, Deliveries::Keep).await;
    assert_eq!(counts(&kept).pending, 1);
}
