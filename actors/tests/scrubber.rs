//! The background scrub on virtual time: how fast, how often, and what it makes of damage.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::time::Duration;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::upkeep::{Finding, ScrubSnapshot};
use common::{Bench, secs};

/// A node with these hooks, whose scrub reads a thousand bytes a second.
async fn scrubbed(hooks: usize) -> (Bench, Node) {
    let mut bench = Bench::default();
    bench.settings.store.scrub_bytes_per_s = 1_000;
    bench.settings.store.scrub_interval_ms = 3_600_000;
    let node = bench.start().await;
    for n in 0..hooks {
        bench.acked(&node, "acme", &n.to_string()).await;
    }
    secs(2).await;
    (bench, node)
}

fn shown(node: &Node) -> ScrubSnapshot {
    node.handles().scrub.snapshot()
}

/// Rows and bytes of the whole store.
fn size(bench: &Bench) -> (u64, u64) {
    let rows = Cf::ALL.into_iter().flat_map(|cf| bench.disk.rows(cf));
    let sizes: Vec<u64> = rows.map(|(key, value)| (key.len() + value.len()) as u64).collect();
    (sizes.len() as u64, sizes.iter().sum())
}

fn events(bench: &Bench, name: &str) -> usize {
    bench.events.lines().iter().filter(|line| line.starts_with(name)).count()
}

#[tokio::test(start_paused = true)]
async fn a_round_reads_every_row_at_the_configured_rate() {
    let (bench, node) = scrubbed(40).await;
    let (rows, bytes) = size(&bench);
    assert!(bytes > 10_000, "{bytes}");
    node.handles().scrub.begin();
    secs(4).await;
    let half = shown(&node);
    assert_eq!(half.reading, Some(Cf::Hooks));
    assert!((2_000..6_500).contains(&half.bytes), "{half:?}");
    // Another wish begins no second round.
    node.handles().scrub.begin();
    secs(60).await;
    let done = shown(&node);
    assert_eq!((done.reading, done.rows, done.bytes), (None, rows, bytes));
    let last = done.last.unwrap();
    assert_eq!((last.rows, last.bytes, last.findings), (rows, bytes, 0));
    let slack = Duration::from_secs(2);
    let expected = Duration::from_millis(bytes);
    assert!(last.took <= expected && last.took + slack >= expected, "{last:?}");
    assert_eq!((events(&bench, "ScrubFinished"), events(&bench, "ScrubFound")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_round_begins_soon_after_a_start_and_then_after_every_interval() {
    let (bench, _node) = scrubbed(1).await;
    secs(590).await;
    assert_eq!(events(&bench, "ScrubFinished"), 0);
    secs(60).await;
    assert_eq!(events(&bench, "ScrubFinished"), 1);
    secs(3_500).await;
    assert_eq!(events(&bench, "ScrubFinished"), 1);
    secs(200).await;
    assert_eq!(events(&bench, "ScrubFinished"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rate_of_nothing_turns_it_off() {
    let mut bench = Bench::default();
    bench.settings.store.scrub_bytes_per_s = 0;
    bench.settings.store.scrub_interval_ms = 60_000;
    let node = bench.start().await;
    node.handles().scrub.begin();
    secs(1_000).await;
    assert_eq!((shown(&node), events(&bench, "Scrub")), (ScrubSnapshot::default(), 0));
}

#[tokio::test(start_paused = true)]
async fn damage_is_shown_by_its_file_once_and_the_round_goes_on() {
    let (bench, node) = scrubbed(1).await;
    bench.disk.fail(Fault::refuse(SimOp::Read, FailureClass::Corruption).after(1));
    node.handles().scrub.begin();
    secs(60).await;
    let done = shown(&node);
    let (family, file) = (Cf::Default, "default.sst".to_owned());
    assert_eq!(done.findings, [Finding { family, file, detail: "injected".to_owned() }]);
    assert_eq!(done.last.unwrap().findings, 1);
    assert_eq!(events(&bench, "ScrubFound"), 1);
    assert!(node.handles().store.state().failing.is_none());
    bench.acked(&node, "acme", "after").await;
    // The next round is one of its own.
    node.handles().scrub.begin();
    secs(60).await;
    assert_eq!(shown(&node).findings, []);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_be_read_right_now_is_read_on_later() {
    let (bench, node) = scrubbed(1).await;
    let refuse = Fault::refuse(SimOp::Read, FailureClass::IoError);
    bench.disk.fail(refuse.until_healed());
    node.handles().scrub.begin();
    secs(60).await;
    assert_eq!(shown(&node).reading, Some(Cf::Default));
    bench.disk.heal();
    secs(60).await;
    let done = shown(&node);
    assert_eq!((done.reading, done.findings.len()), (None, 0));
    assert_eq!((done.rows, done.bytes), size(&bench));
}

#[tokio::test(start_paused = true)]
async fn a_crash_ends_the_round_and_another_can_begin() {
    let (bench, node) = scrubbed(40).await;
    node.handles().scrub.begin();
    secs(3).await;
    assert!(node.handles().board.crash("scrubber"));
    secs(30).await;
    assert_eq!(shown(&node).reading, None);
    assert_eq!(events(&bench, "ScrubFinished"), 0);
    node.handles().scrub.begin();
    secs(60).await;
    assert_eq!(events(&bench, "ScrubFinished"), 1);
}
