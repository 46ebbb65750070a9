//! The tree as a table: who starts and stops when, who restarts with whom, and what callers are told meanwhile.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ankusa_actors::edge::{Answer, RequestHead};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::ids::Seq;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, SimDisk, SimOp};
use ankusa_actors::queue::CommitAnswer;
use ankusa_actors::supervision::{Board, Shutdown};
use ankusa_actors::tree::Front;
use bytes::Bytes;
use common::probe::{Journal, Probe};
use common::{Bench, HTTP, UNAVAILABLE, millis, open_source, secs};
use tokio::time::Instant;

/// A node with every role and a front of probes.
struct Tree {
    bench: Bench,
    journal: Journal,
    control: Probe,
    ingest: Probe,
}

impl Default for Tree {
    fn default() -> Self {
        let (mut bench, journal) = (Bench::default(), Journal::default());
        let probe = |id| Probe::new(id, &journal);
        let (control, admin, ingest) = (probe("control"), probe("admin"), probe("ingest"));
        let (first, last) = (control.clone(), ingest.clone());
        let stop = Shutdown::Stop(Duration::from_secs(1));
        bench.front = Arc::new(move |_: &_| Front {
            before: vec![first.child(stop), admin.child(stop)],
            after: vec![last.child(stop)],
        });
        bench.settings.roles.dispatch = true;
        bench.sources = Arc::new([open_source("src", "default", &[HTTP])].into_iter().collect());
        Self { bench, journal, control, ingest }
    }
}

fn board(node: &Node) -> Board {
    node.handles().board.clone()
}

/// `id` of every child that was started more than once, in the order of the board.
fn restarted(board: &Board) -> Vec<String> {
    let report = board.report().into_iter();
    report.filter(|child| child.restarts > 0).map(|child| child.id.to_string()).collect()
}

fn restarts(board: &Board) -> BTreeMap<String, u64> {
    let report = board.report().into_iter();
    report.map(|child| (child.id.to_string(), child.restarts)).filter(|(_, n)| *n > 0).collect()
}

/// What the children and the disk are seen to go through, in the order it happens.
struct Watch {
    disk: Arc<SimDisk>,
    board: Board,
    last: BTreeMap<String, &'static str>,
    story: Vec<String>,
}

impl Watch {
    fn look(&mut self) {
        let disk = ("disk".to_owned(), if self.disk.is_open() { "open" } else { "closed" });
        let children = self.board.report().into_iter();
        let children = children.map(|child| (child.id.to_string(), child.state.as_str()));
        for (id, state) in std::iter::once(disk).chain(children) {
            if self.last.insert(id.clone(), state) != Some(state) {
                self.story.push(format!("{id} {state}"));
            }
        }
    }
}

/// The story of `work`, seen by a task that looks whenever any other has moved.
async fn watched(
    disk: &Arc<SimDisk>,
    board: &Board,
    work: impl Future<Output = ()>,
) -> Vec<String> {
    let (disk, board) = (Arc::clone(disk), board.clone());
    let mut watch = Watch { disk, board, last: BTreeMap::new(), story: Vec::new() };
    watch.look();
    watch.story.clear();
    let (done, mut is_done) = tokio::sync::oneshot::channel::<()>();
    let watcher = tokio::spawn(async move {
        while is_done.try_recv().is_err() {
            watch.look();
            let mut behind_all_others = false;
            poll_fn(|context| {
                context.waker().wake_by_ref();
                let ready = std::mem::replace(&mut behind_all_others, true);
                if ready { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
        watch.look();
        watch.story
    });
    work.await;
    done.send(()).unwrap();
    watcher.await.unwrap()
}

const STOP_OF_FRONT: [&str; 6] = [
    "ingest stopped",
    "batcher-2 stopped",
    "batcher-1 stopped",
    "admin stopped",
    "control stopped",
    "front stopped",
];

const STOP_OF_CORE: [&str; 14] = [
    "recounter stopped",
    "scrubber stopped",
    "dedupe_sweeper stopped",
    "dispatch stopped",
    "quarantine_reaper stopped",
    "quarantine stopped",
    "rate_limiter stopped",
    "services stopped",
    "writer stopped",
    "syncer stopped",
    "queue stopped",
    "disk closed",
    "store stopped",
    "core stopped",
];

#[tokio::test(start_paused = true)]
async fn the_tree_is_the_table() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    let report = board(&node).report();
    let lines: Vec<_> = report
        .iter()
        .map(|child| format!("{}/{} {}", child.parent, child.id, child.strategy).trim().to_owned())
        .collect();
    assert_eq!(
        lines,
        [
            "node/core rest_for_one",
            "core/store",
            "core/queue one_for_all",
            "queue/syncer",
            "queue/writer",
            "core/services one_for_one",
            "services/rate_limiter",
            "services/quarantine",
            "services/quarantine_reaper",
            "services/dispatch",
            "services/dedupe_sweeper",
            "services/scrubber",
            "services/recounter",
            "node/front one_for_one",
            "front/control",
            "front/admin",
            "front/batcher-1",
            "front/batcher-2",
            "front/ingest",
        ]
    );
    assert!(report.iter().all(|child| child.state.as_str() == "running"));
}

#[tokio::test(start_paused = true)]
async fn a_role_that_is_off_has_no_process() {
    let mut tree = Tree::default();
    tree.bench.settings.roles.dispatch = false;
    tree.bench.settings.roles.edge = false;
    let node = tree.bench.start().await;
    let ids: Vec<_> = board(&node).report().iter().map(|child| child.id.to_string()).collect();
    let expected = [
        "core",
        "store",
        "queue",
        "syncer",
        "writer",
        "services",
        "dedupe_sweeper",
        "scrubber",
        "recounter",
        "front",
        "control",
        "admin",
    ];
    assert_eq!(ids[..expected.len()], expected);
    assert_eq!(ids[expected.len()..], ["ingest"], "what the adapters bring is theirs to decide");
}

#[tokio::test(start_paused = true)]
async fn a_stop_goes_from_the_listeners_to_the_disk() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    let (board, disk) = (board(&node), Arc::clone(&tree.bench.disk));
    let story = watched(&disk, &board, async {
        assert!(node.stop(Duration::from_secs(60)).await);
    })
    .await;
    assert_eq!(story, [&STOP_OF_FRONT[..], &STOP_OF_CORE[..]].concat());
    assert_eq!(tree.journal.text(), "+control +admin +ingest -ingest -admin -control");
}

#[tokio::test(start_paused = true)]
async fn core_stops_in_reverse_and_starts_in_order_with_the_disk_open_in_between() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    let board = board(&node);
    assert!(board.crash("core"));
    let back = async {
        while restarts(&board).get("core") != Some(&1) {
            tokio::task::yield_now().await;
        }
    };
    let story = watched(&tree.bench.disk, &board, back).await;
    let start = ["core starting", "disk open", "store running", "syncer running"];
    let stop = &STOP_OF_CORE[..13];
    let (seen_apart, rest) = story.split_at(stop.len() + start.len());
    assert_eq!(seen_apart, [stop, &start].concat());
    // These start within one step of the runtime; that each waits for the one before is for the next test.
    let rest: BTreeSet<_> = rest.iter().map(String::as_str).collect();
    let expected = [
        "writer",
        "queue",
        "rate_limiter",
        "quarantine",
        "quarantine_reaper",
        "dispatch",
        "dedupe_sweeper",
        "scrubber",
        "recounter",
        "services",
        "core",
    ]
    .map(|id| format!("{id} running"));
    assert_eq!(rest, expected.iter().map(String::as_str).collect());
    assert_eq!(tree.journal.text(), "+control +admin +ingest", "the front has not noticed");
}

#[tokio::test(start_paused = true)]
async fn a_writer_that_cannot_read_its_state_refuses_hooks_for_as_long_as_it_takes() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    tree.bench.acked(&node, "acme", "before").await;
    let refuse = Fault::refuse(SimOp::Read, FailureClass::IoError);
    tree.bench.disk.fail(refuse.until_healed());
    assert!(board(&node).crash("queue"));
    for _ in 0..60 {
        secs(10).await;
        let began = Instant::now();
        assert_eq!(tree.bench.send(&node, tree.bench.hook("acme", "refused")).await, UNAVAILABLE);
        assert!(began.elapsed() < Duration::from_millis(100), "{:?}", began.elapsed());
    }
    assert!(board(&node).report().iter().all(|child| child.state.as_str() == "running"));
    let expected = [
        "queue",
        "syncer",
        "writer",
        "services",
        "rate_limiter",
        "quarantine",
        "quarantine_reaper",
        "dispatch",
        "dedupe_sweeper",
        "scrubber",
        "recounter",
    ];
    assert_eq!(restarted(&board(&node)), expected);
    assert_eq!(node.handles().writer.blocked(), Some(FailureClass::IoError));
    tree.bench.disk.heal();
    millis(100).await;
    assert_eq!(node.handles().writer.blocked(), None);
    assert_eq!(tree.bench.acked(&node, "acme", "after").await, Seq(2));
}

#[tokio::test(start_paused = true)]
async fn state_that_cannot_be_read_refuses_the_boot() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    assert!(node.stop(Duration::from_secs(60)).await);
    // The Store reads first, its format stamp and for its recount; then what the Writer needs is read.
    tree.bench.disk.fail(Fault::refuse(SimOp::Read, FailureClass::Corruption).after(10));
    let refused = tree.bench.try_start().await.err().unwrap();
    assert_eq!(refused, "store get failed (corruption): injected");
    assert!(!tree.bench.disk.is_open());
}

#[tokio::test(start_paused = true)]
async fn each_child_restarts_with_those_that_depend_on_it_and_no_other() {
    let core = [
        "core",
        "store",
        "queue",
        "syncer",
        "writer",
        "services",
        "rate_limiter",
        "quarantine",
        "quarantine_reaper",
        "dispatch",
        "dedupe_sweeper",
        "scrubber",
        "recounter",
    ];
    let front = ["front", "control", "admin", "batcher-1", "batcher-2", "ingest"];
    let table: [(&str, &[&str]); 19] = [
        ("core", &core),
        ("store", &core[1..]),
        ("queue", &core[2..]),
        ("syncer", &["syncer", "writer"]),
        ("writer", &["syncer", "writer"]),
        ("services", &core[5..]),
        ("rate_limiter", &["rate_limiter"]),
        ("quarantine", &["quarantine"]),
        ("quarantine_reaper", &["quarantine_reaper"]),
        ("dispatch", &["dispatch"]),
        ("dedupe_sweeper", &["dedupe_sweeper"]),
        ("scrubber", &["scrubber"]),
        ("recounter", &["recounter"]),
        ("front", &front),
        ("control", &["control"]),
        ("admin", &["admin"]),
        ("batcher-1", &["batcher-1"]),
        ("batcher-2", &["batcher-2"]),
        ("ingest", &["ingest"]),
    ];
    for (child, expected) in table {
        let tree = Tree::default();
        let node = tree.bench.start().await;
        tree.bench.acked(&node, "acme", "before").await;
        assert!(board(&node).crash(child));
        millis(100).await;
        assert_eq!(restarted(&board(&node)), expected, "after the death of {child}");
        let after = tree.bench.acked(&node, "acme", "after").await;
        assert_eq!(after, Seq(2), "after the death of {child}");
        assert!(node.stop(Duration::from_secs(60)).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_that_dies_too_often_takes_the_services_with_it_and_not_the_store() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    for _ in 0..6 {
        assert!(board(&node).crash("writer"));
        millis(10).await;
    }
    let expected = [
        ("dedupe_sweeper", 1),
        ("dispatch", 1),
        ("quarantine", 1),
        ("quarantine_reaper", 1),
        ("queue", 1),
        ("rate_limiter", 1),
        ("recounter", 1),
        ("scrubber", 1),
        ("services", 1),
        ("syncer", 6),
        ("writer", 6),
    ];
    assert_eq!(restarts(&board(&node)), expected.map(|(id, n)| (id.to_owned(), n)).into());
    tree.bench.acked(&node, "acme", "after").await;
}

#[tokio::test(start_paused = true)]
async fn dispatch_that_dies_too_often_stays_down_for_a_while_and_touches_nobody() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    for _ in 0..21 {
        assert!(board(&node).crash("dispatch"));
        millis(10).await;
    }
    let report = board(&node).report();
    let dispatch = report.iter().find(|child| &*child.id == "dispatch").unwrap();
    assert_eq!((dispatch.state.as_str(), dispatch.downs), ("down", 1));
    assert_eq!(restarted(&board(&node)), ["dispatch"]);
    tree.bench.acked(&node, "acme", "meanwhile").await;
    secs(1).await;
    assert_eq!(restarts(&board(&node)), [("dispatch".to_owned(), 21)].into());
}

#[tokio::test(start_paused = true)]
async fn a_listener_that_dies_too_often_stays_down_for_a_while_and_touches_nobody() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    for _ in 0..11 {
        assert!(board(&node).crash("ingest"));
        millis(10).await;
    }
    assert!(!tree.ingest.is_up());
    assert!(tree.control.is_up());
    secs(1).await;
    assert!(tree.ingest.is_up());
    assert_eq!(restarts(&board(&node)), [("ingest".to_owned(), 11)].into());
}

#[tokio::test(start_paused = true)]
async fn core_gives_up_after_six_deaths_and_is_started_afresh_without_the_front_noticing() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    for _ in 0..6 {
        assert!(board(&node).crash("store"));
        millis(10).await;
    }
    let counts = restarts(&board(&node));
    assert_eq!((counts["store"], counts["core"]), (6, 1));
    assert_eq!(tree.journal.text(), "+control +admin +ingest");
    tree.bench.acked(&node, "acme", "after").await;
}

#[tokio::test(start_paused = true)]
async fn a_core_that_keeps_giving_up_ends_the_node_and_leaves_nothing_open() {
    let tree = Tree::default();
    let mut node = tree.bench.start().await;
    let sent = tree.bench.acked(&node, "acme", "kept").await;
    for _ in 0..3 {
        assert!(board(&node).crash("core"));
        millis(10).await;
        tree.bench.acked(&node, "acme", "kept").await;
    }
    assert!(board(&node).crash("core"));
    node.gave_up().await;
    assert_eq!(sent, Seq(1));
    assert_eq!(tree.journal.text(), "+control +admin +ingest -ingest -admin -control");
    assert!(!tree.bench.disk.is_open());
    tree.bench.disk.cut_power();
    let node = tree.bench.start().await;
    assert_eq!(tree.bench.acked(&node, "acme", "after").await, Seq(5));
}

#[tokio::test(start_paused = true)]
async fn the_front_says_store_unavailable_at_once_while_core_is_down_and_goes_on_after_it() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    tree.bench.disk.fail_writes(FailureClass::NoSpace);
    assert!(board(&node).crash("store"));
    millis(100).await;
    let began = Instant::now();
    assert_eq!(tree.bench.send(&node, tree.bench.hook("acme", "refused")).await, UNAVAILABLE);
    let head = RequestHead {
        method: "POST".to_owned(),
        path: "/webhooks/src".to_owned(),
        query: None,
        headers: Vec::new(),
        content_length: None,
        remote: None,
        peer: None,
    };
    let ingest = &node.handles().ingest;
    let admitted = ingest.admit(&head).unwrap();
    let answer = ingest.accept(admitted, head, Bytes::new()).await;
    assert_eq!(answer, Answer::unavailable("store_unavailable"));
    assert_eq!(began.elapsed(), Duration::ZERO);
    let failure = node.handles().readiness.store_failure().await;
    assert_eq!(failure, Some(FailureClass::NoSpace), "and says why");
    tree.bench.disk.heal();
    secs(2).await;
    tree.bench.acked(&node, "acme", "after").await;
    assert_eq!(tree.journal.text(), "+control +admin +ingest");
    assert_eq!(tree.bench.stored().len(), 1);
}

/// Each process of the core killed over and over while the disk stays as it is.
#[tokio::test(start_paused = true)]
async fn a_disk_that_stays_bad_never_ends_the_node() {
    for class in [FailureClass::NoSpace, FailureClass::IoError] {
        for child in ["store", "queue", "syncer", "writer"] {
            let tree = Tree::default();
            let node = tree.bench.start().await;
            tree.bench.acked(&node, "acme", "kept").await;
            tree.bench.disk.fail_writes(class);
            for _ in 0..8 {
                assert!(board(&node).crash(child), "{child} is there to be crashed");
                let sent = tree.bench.send(&node, tree.bench.hook("acme", "not acked"));
                let answer = sent.await;
                assert!(!matches!(answer, CommitAnswer::Committed(_)), "{class:?} {child}");
                secs(11).await;
            }
            assert_eq!(tree.journal.text(), "+control +admin +ingest", "{class:?} {child}");
            let states = board(&node).report().into_iter().map(|child| child.state.as_str());
            assert_eq!(states.collect::<BTreeSet<_>>(), ["running"].into());
            tree.bench.disk.heal();
            secs(1).await;
            tree.bench.acked(&node, "acme", "after").await;
            let bodies = tree.bench.durable().into_iter().map(|(_, body)| body);
            assert_eq!(bodies.collect::<Vec<_>>(), ["kept", "after"], "{class:?} {child}");
        }
    }
}

/// What is found damaged at a reopen is waited out too, at the documented pace: somebody may bring the file back.
#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_open_any_more_never_ends_the_node() {
    let tree = Tree::default();
    let node = tree.bench.start().await;
    tree.bench.acked(&node, "acme", "kept").await;
    tree.bench.disk.fail(Fault::refuse(SimOp::Open, FailureClass::Corruption).until_healed());
    assert!(board(&node).crash("store"));
    secs(600).await;
    assert!(board(&node).report().iter().all(|child| child.state.as_str() == "running"));
    assert_eq!(node.handles().readiness.store_failure().await, Some(FailureClass::Corruption));
    assert_eq!(tree.bench.send(&node, tree.bench.hook("acme", "refused")).await, UNAVAILABLE);
    tree.bench.disk.heal();
    secs(60).await;
    assert_eq!(tree.bench.acked(&node, "acme", "after").await, Seq(2));
}

#[tokio::test(start_paused = true)]
async fn a_port_that_is_taken_refuses_the_boot_and_leaves_nothing_open() {
    let tree = Tree::default();
    tree.ingest.fail_starts(1);
    let refused = tree.bench.try_start().await.err().unwrap();
    assert_eq!(refused, "ingest cannot start");
    assert_eq!(tree.journal.text(), "+control +admin -admin -control");
    assert!(!tree.bench.disk.is_open());
    tree.bench.start().await;
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_open_refuses_the_boot_before_anybody_listens() {
    let tree = Tree::default();
    tree.bench.disk.fail_writes(FailureClass::ReadOnly);
    let refused = tree.bench.try_start().await.err().unwrap();
    assert_eq!(refused, "cannot open the store at sim/store: injected");
    assert_eq!(tree.journal.text(), "");
}

#[tokio::test(start_paused = true)]
async fn hooks_under_way_are_answered_whoever_crashes() {
    for child in ["core", "store", "queue", "syncer", "writer", "front", "batcher-1", "batcher-2"] {
        let tree = Tree::default();
        let node = tree.bench.start().await;
        let mut sent = Vec::new();
        for ix in 0..20 {
            sent.push((ix, tree.bench.sending(&node, tree.bench.hook("acme", &ix.to_string()))));
            if ix == 10 {
                assert!(board(&node).crash(child));
            }
            tokio::task::yield_now().await;
        }
        for (ix, sent) in sent {
            let stored =
                |bodies: Vec<(u64, String)>| bodies.iter().any(|(_, body)| *body == ix.to_string());
            match sent.await.unwrap() {
                CommitAnswer::Committed(_) => assert!(stored(tree.bench.durable()), "{child}"),
                CommitAnswer::Refused(_) => assert!(!stored(tree.bench.stored()), "{child}"),
                answer @ (CommitAnswer::Duplicate(_) | CommitAnswer::Unknown) => {
                    panic!("{child}: {ix}: {answer:?}")
                }
            }
        }
    }
}
