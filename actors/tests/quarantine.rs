//! The quarantine pen: what its answers promise, what limits it, and what is left of a write that failed.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::Admin;
use ankusa_actors::edge::{Answer, PenSize, RequestHead};
use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::envelope::{Envelope, VerificationStatus, VerificationTerm};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::gcra::Rate;
use ankusa_actors::model::keys::{QuarantineKey, QuarantinePart};
use ankusa_actors::model::quarantine::{HeldFilter, StoredSummary};
use ankusa_actors::model::source::OnVerifyFailure;
use ankusa_actors::model::verify::VerifySpec;
use ankusa_actors::node::Node;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use ankusa_actors::sources::Source;
use bytes::Bytes;
use common::{Bench, HTTP, millis, open_source, secs};
use serde_json::json;
use tokio::task::JoinHandle;

fn bench() -> Bench {
    let mut bench = Bench::default();
    let source = |id: &str, tenant: &str, on_verify_failure| {
        let spec: VerifySpec =
            serde_json::from_value(json!({"type": "github", "secret": "secret"})).unwrap();
        let verifier = spec.build().unwrap();
        Source { verifier, on_verify_failure, ..open_source(id, tenant, &[HTTP]) }
    };
    bench.sources = Arc::new(
        [
            source("pen", "default", OnVerifyFailure::Quarantine),
            source("other", "acme", OnVerifyFailure::Quarantine),
            source("lenient", "default", OnVerifyFailure::AcceptFlag),
        ]
        .into_iter()
        .collect(),
    );
    bench
}

fn held() -> Answer {
    Answer::quarantined(":no_match")
}

const UNAVAILABLE: &str = "store_unavailable";

fn sending(node: &Node, source: &'static str, body: &str) -> JoinHandle<Answer> {
    let (ingest, body) = (Arc::clone(&node.handles().ingest), body.to_owned());
    tokio::spawn(async move {
        let signature = (Bytes::from("X-Hub-Signature-256"), Bytes::from("sha256=00"));
        let head = RequestHead {
            method: "POST".to_owned(),
            path: format!("/webhooks/{source}"),
            headers: vec![signature],
            content_length: None,
            remote: None,
            peer: None,
            query: None,
        };
        let admitted = ingest.admit(&head).unwrap();
        ingest.accept(admitted, head, Bytes::from(body)).await
    })
}

async fn send(node: &Node, source: &'static str, body: &str) -> Answer {
    sending(node, source, body).await.unwrap()
}

/// Bodies in these rows, by when they were received.
fn bodies(rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<String> {
    let envelopes = rows.iter().filter(|(key, _)| key[0] == b'b');
    let body = |(_, value): &(Vec<u8>, Vec<u8>)| {
        String::from_utf8(Envelope::decode(value).unwrap().body.to_vec()).unwrap()
    };
    let mut bodies: Vec<String> = envelopes.map(body).collect();
    bodies.sort();
    bodies
}

fn in_the_pen(bench: &Bench) -> Vec<String> {
    bodies(&bench.disk.rows(Cf::Quarantine))
}

/// What its summaries say.
fn size_on_disk(bench: &Bench) -> PenSize {
    let rows = bench.disk.rows(Cf::Quarantine);
    let summaries = rows.iter().filter(|(key, _)| key[0] == b's');
    let sizes = summaries.map(|(_, value)| StoredSummary::decode(value).unwrap().size);
    sizes.fold(PenSize::default(), |sum, size| PenSize {
        entries: sum.entries + 1,
        bytes: sum.bytes + size,
    })
}

fn size(node: &Node) -> PenSize {
    node.handles().quarantine.size().unwrap()
}

async fn stop(node: Node) {
    assert!(node.stop(Duration::from_secs(60)).await);
}

#[tokio::test(start_paused = true)]
async fn a_202_is_a_promise_that_outlives_a_power_cut_and_nothing_is_delivered_of_it() {
    let bench = bench();
    let node = bench.start().await;
    assert_eq!(send(&node, "pen", "one").await, held());
    assert_eq!(send(&node, "other", "two").await, held());
    assert_eq!(bodies(&bench.disk.durable_rows(Cf::Quarantine)), ["one", "two"]);
    assert_eq!((bench.rows(Cf::Hooks), bench.rows(Cf::Deliveries)), (0, 0));
    bench.disk.cut_power();
    let node = bench.start().await;
    assert_eq!(in_the_pen(&bench), ["one", "two"]);
    assert_eq!((size(&node).entries, size(&node)), (2, size_on_disk(&bench)));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_the_hook_as_it_would_have_been_stored_with_why_it_was_not() {
    let bench = bench();
    let node = bench.start().await;
    send(&node, "other", "body").await;
    let rows = bench.disk.rows(Cf::Quarantine);
    let [(body_key, body), (summary_key, summary)] = &rows[..] else { panic!("two rows") };
    let envelope = Envelope::decode(body).unwrap();
    let summary_of = StoredSummary::decode(summary).unwrap();
    let key = |part| {
        QuarantineKey {
            part,
            received_at_ms: common::EPOCH_MS,
            id: envelope.id.as_str().as_bytes(),
        }
        .encode()
    };
    let parts = [QuarantinePart::Body, QuarantinePart::Summary].map(key);
    assert_eq!([body_key.clone(), summary_key.clone()], parts);
    let verification = VerificationTerm::decode(envelope.verification.as_ref().unwrap()).unwrap();
    assert_eq!(
        (verification.status, verification.flagged, verification.reason_text.as_deref()),
        (VerificationStatus::Failed, false, Some("no_match"))
    );
    assert_eq!(
        (envelope.source_id.as_str(), envelope.tenant(), &envelope.body[..]),
        ("other", "acme", &b"body"[..])
    );
    let expected = StoredSummary {
        id: envelope.id.to_string(),
        source_id: "other".to_owned(),
        tenant_id: Some("acme".to_owned()),
        received_at_ms: common::EPOCH_MS,
        reason: ":no_match".to_owned(),
        size: summary_of.size,
    };
    assert_eq!(summary_of, expected);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn each_source_has_a_bucket_that_held_and_flagged_hooks_take_from() {
    let mut bench = bench();
    bench.settings.quarantine.burst = 3;
    bench.settings.quarantine.rate = Rate::from_f64(0.25).unwrap();
    let node = bench.start().await;
    let limited = Answer::quarantine_rate_limited(4);
    for source in ["pen", "lenient"] {
        let mut answers = Vec::new();
        for ix in 0..5 {
            answers.push(send(&node, source, &format!("{source}-{ix}")).await);
        }
        assert_eq!(answers[3..], [limited.clone(), limited.clone()], "{source}");
        assert_ne!(answers[2], limited);
    }
    assert_eq!(in_the_pen(&bench).len(), 3);
    assert_eq!(bench.stored().len(), 3);
    secs(4).await;
    assert_eq!(send(&node, "pen", "later").await, held());
    assert_eq!(send(&node, "pen", "too many").await, limited);
    let outcomes = |outcome: &str| {
        let wanted = format!("outcome: {outcome},");
        bench.events.lines().iter().filter(|line| line.contains(&wanted)).count()
    };
    assert_eq!((outcomes("Quarantined"), outcomes("QuarantineRateLimited")), (4, 5));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_full_pen_refuses_and_evicts_nothing_and_takes_again_after_a_purge() {
    let mut bench = bench();
    bench.settings.quarantine.max_bytes = 3_000;
    let node = bench.start().await;
    let body = "x".repeat(500);
    let mut answers = Vec::new();
    for _ in 0..5 {
        answers.push(send(&node, "pen", &body).await);
        millis(1).await;
    }
    let full = Answer::quarantine_full();
    let held_hooks = answers.iter().filter(|answer| **answer == held()).count();
    assert_eq!((held_hooks, answers.last()), (2, Some(&full)));
    assert_eq!(in_the_pen(&bench).len(), 2, "the oldest are still there");
    assert_eq!(send(&node, "other", "").await, held(), "a smaller one still fits");
    assert_eq!(size(&node), size_on_disk(&bench));
    let node = restarted(&bench, node).await;
    assert_eq!(send(&node, "pen", &body).await, full, "a restart makes no room");
    let gone = node.handles().quarantine.purge(&HeldFilter::default(), 1).await.unwrap();
    assert_eq!(gone.entries, 1);
    assert_eq!(send(&node, "pen", &body).await, held());
    assert_eq!(size(&node), size_on_disk(&bench));
    stop(node).await;
}

async fn restarted(bench: &Bench, node: Node) -> Node {
    stop(node).await;
    bench.start().await
}

#[tokio::test(start_paused = true)]
async fn a_failed_write_is_503_uses_nothing_up_and_leaves_nothing_behind() {
    let faults = [
        Fault::refuse(SimOp::Apply, FailureClass::NoSpace),
        Fault::apply_landed(FailureClass::IoError),
        Fault::apply_logged_unseen(FailureClass::IoError),
        Fault::refuse(SimOp::Sync, FailureClass::IoError),
        Fault::sync_landed(FailureClass::IoError),
        Fault::sync_drops_pages(FailureClass::IoError),
    ];
    for fault in faults {
        let mut bench = bench();
        bench.settings.quarantine.burst = 2;
        bench.settings.quarantine.rate = Rate::from_f64(0.001).unwrap();
        let node = bench.start().await;
        bench.disk.fail(fault);
        let refused = send(&node, "pen", "refused").await;
        assert_eq!(refused, Answer::unavailable(UNAVAILABLE), "{fault:?}");
        // Told so only once it is gone for good.
        assert_eq!(bodies(&bench.disk.durable_rows(Cf::Quarantine)), [""; 0], "{fault:?}");
        assert_eq!(in_the_pen(&bench), [""; 0], "{fault:?}");
        secs(10).await;
        assert_eq!(send(&node, "pen", "one").await, held(), "{fault:?}");
        assert_eq!(send(&node, "pen", "two").await, held(), "the refused one took no place");
        assert_eq!(send(&node, "pen", "three").await, Answer::quarantine_rate_limited(1_000));
        bench.disk.cut_power();
        let node = bench.start().await;
        assert_eq!(in_the_pen(&bench), ["one", "two"], "{fault:?}");
        assert_eq!(size(&node), size_on_disk(&bench));
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flagged_hook_that_was_not_stored_took_no_place() {
    let mut bench = bench();
    bench.settings.quarantine.burst = 1;
    bench.settings.quarantine.rate = Rate::from_f64(0.001).unwrap();
    let node = bench.start().await;
    bench.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::NoSpace));
    assert_eq!(send(&node, "lenient", "refused").await, Answer::unavailable(UNAVAILABLE));
    secs(10).await;
    assert!(matches!(send(&node, "lenient", "stored").await, Answer::Send { status: 201, .. }));
    assert_eq!(send(&node, "lenient", "more").await, Answer::quarantine_rate_limited(1_000));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn where_the_fence_cannot_be_made_in_time_nobody_is_told_anything() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.fail(Fault::sync_landed(FailureClass::IoError));
    bench.disk.fail_writes(FailureClass::IoError);
    let sent = sending(&node, "pen", "unknown");
    secs(9).await;
    assert!(!sent.is_finished());
    assert_eq!(sent.await.unwrap(), Answer::CloseUnanswered);
    assert_eq!(send(&node, "pen", "meanwhile").await, Answer::unavailable(UNAVAILABLE));
    bench.disk.heal();
    secs(130).await;
    assert_eq!(send(&node, "pen", "after").await, held());
    assert_eq!(in_the_pen(&bench), ["after"], "fenced all the same");
    assert_eq!(size(&node), size_on_disk(&bench));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_that_wait_together_are_made_durable_by_one_fsync() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(100));
    let first = sending(&node, "pen", "first");
    millis(1).await;
    let before = bench.disk.counts().syncs;
    let rest: Vec<_> = (0..20).map(|ix| sending(&node, "pen", &format!("{ix}"))).collect();
    assert_eq!(first.await.unwrap(), held());
    for sent in rest {
        assert_eq!(sent.await.unwrap(), held());
    }
    assert_eq!(bench.disk.counts().syncs - before, 1);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_hook_that_waits_too_long_is_refused_and_never_put_there() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(5));
    let first = sending(&node, "pen", "first");
    millis(1).await;
    assert_eq!(send(&node, "pen", "late").await, Answer::unavailable(UNAVAILABLE));
    assert_eq!(first.await.unwrap(), held());
    secs(10).await;
    assert_eq!(in_the_pen(&bench), ["first"]);
    assert_eq!(size(&node), size_on_disk(&bench));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_write_and_answer_tells_nobody_anything_and_the_pen_is_counted_again() {
    let bench = bench();
    let node = bench.start().await;
    send(&node, "pen", "before").await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
    let sent = sending(&node, "pen", "unknown");
    millis(100).await;
    assert!(node.handles().board.crash("quarantine"));
    millis(1).await;
    // A message waits its turn: the write comes to its end first.
    assert_eq!(sent.await.unwrap(), held());
    bench.disk.slow(SimOp::Sync, Duration::ZERO);
    secs(5).await;
    assert_eq!(send(&node, "pen", "after").await, held());
    assert_eq!(in_the_pen(&bench), ["after", "before", "unknown"]);
    assert_eq!(size(&node), size_on_disk(&bench));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn while_the_quarantine_is_down_hooks_for_it_are_503_and_others_are_taken() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.fail(Fault::refuse(SimOp::Read, FailureClass::IoError).times(50));
    assert!(node.handles().board.crash("quarantine"));
    millis(10).await;
    assert_eq!(send(&node, "pen", "refused").await, Answer::unavailable(UNAVAILABLE));
    let stored = send(&node, "lenient", "stored").await;
    assert!(matches!(stored, Answer::Send { status: 201, .. }), "{stored:?}");
    secs(60).await;
    assert_eq!(send(&node, "pen", "after").await, held());
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_pen_that_cannot_be_read_refuses_the_boot_and_a_row_that_cannot_be_read_does_not() {
    let bench = bench();
    let node = bench.start().await;
    send(&node, "pen", "one").await;
    let mut batch = Batch::default();
    let key = QuarantineKey { part: QuarantinePart::Summary, received_at_ms: 7, id: b"rot" };
    batch.put(Cf::Quarantine, &key.encode(), b"damaged");
    node.handles().store.apply_synced(batch, Lane::Commit).await.unwrap();
    let mut bench = bench;
    bench.stays_sound = false;
    let node = restarted(&bench, node).await;
    assert_eq!(size(&node).entries, 2);
    let admin = Admin::new(node.handles().clone(), bench.settings.clone(), "0.0.0");
    let listed = admin.quarantine(10).await.unwrap();
    assert_eq!(listed["entries"][1]["id"], "rot");
    assert_eq!(listed["entries"][1]["size"], 7);
    let gone = node.handles().quarantine.purge(&HeldFilter::default(), 10).await.unwrap();
    assert_eq!((gone.entries, size(&node)), (2, PenSize::default()));
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn held_hooks_are_listed_newest_first_and_purged_oldest_first() {
    let bench = bench();
    let node = bench.start().await;
    for (ix, source) in ["pen", "other", "pen", "other", "pen"].into_iter().enumerate() {
        assert_eq!(send(&node, source, &format!("{ix}")).await, held());
        secs(1).await;
    }
    let admin = Admin::new(node.handles().clone(), bench.settings.clone(), "0.0.0");
    let listed = admin.quarantine(2).await.unwrap();
    let at = |entry: &serde_json::Value| entry["received_at"].as_u64().unwrap() - common::EPOCH_MS;
    let entries = listed["entries"].as_array().unwrap();
    assert_eq!(entries.iter().map(at).collect::<Vec<_>>(), [4_000, 3_000]);
    let [newest, other] = &entries[..] else { panic!("two") };
    let fields = ["id", "source_id", "tenant_id", "received_at", "reason", "size"];
    assert_eq!(newest.as_object().unwrap().len(), fields.len());
    assert!(fields.iter().all(|field| newest.get(field).is_some()));
    assert_eq!((&newest["source_id"], &newest["tenant_id"]), (&json!("pen"), &json!("default")));
    assert_eq!((&other["source_id"], &other["tenant_id"]), (&json!("other"), &json!("acme")));
    assert_eq!(newest["reason"], ":no_match");
    assert_eq!(admin.quarantine(0).await.unwrap(), json!({"entries": []}));

    let left = || in_the_pen(&bench);
    let all = HeldFilter::default;
    let since = |ms| Some(common::EPOCH_MS + ms);
    let purge = async |filter: HeldFilter, limit| {
        let before = size(&node).bytes;
        let told = admin.purge_quarantine(&filter, limit).await.unwrap();
        assert_eq!(told["bytes"], before - size(&node).bytes);
        told["deleted"].as_u64().unwrap()
    };
    assert_eq!(purge(HeldFilter { source_id: Some("other".to_owned()), ..all() }, 1).await, 1);
    assert_eq!(left(), ["0", "2", "3", "4"]);
    let id = newest["id"].as_str().map(str::to_owned);
    assert_eq!(purge(HeldFilter { id, ..all() }, 10).await, 1);
    assert_eq!(left(), ["0", "2", "3"]);
    let window = HeldFilter { since_ms: since(2_000), until_ms: since(2_000), ..all() };
    assert_eq!(purge(window, 10).await, 1);
    assert_eq!(left(), ["0", "3"]);
    assert_eq!(purge(all(), 1).await, 1);
    assert_eq!(left(), ["3"]);
    assert_eq!((purge(all(), 10).await, purge(all(), 10).await), (1, 0));
    assert_eq!(size(&node), PenSize::default());
    let deleted = |line: &&String| line.starts_with("QuarantineDeleted { reason: Purge");
    assert_eq!(bench.events.lines().iter().filter(deleted).count(), 5);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn a_purge_that_failed_is_counted_again() {
    for fault in [
        Fault::refuse(SimOp::Apply, FailureClass::NoSpace),
        Fault::apply_logged_unseen(FailureClass::IoError),
        Fault::sync_landed(FailureClass::IoError),
    ] {
        let bench = bench();
        let node = bench.start().await;
        for body in ["one", "two"] {
            send(&node, "pen", body).await;
            millis(1).await;
        }
        let quarantine = node.handles().quarantine.clone();
        bench.disk.fail(fault);
        assert!(quarantine.purge(&HeldFilter::default(), 1).await.is_err());
        assert_eq!(quarantine.size(), None);
        secs(10).await;
        assert_eq!(size(&node), size_on_disk(&bench));
        assert_eq!(send(&node, "pen", "three").await, held());
        let left = size_on_disk(&bench).entries;
        let gone = quarantine.purge(&HeldFilter::default(), 10).await.unwrap();
        assert_eq!((gone.entries, size(&node)), (left, PenSize::default()));
        stop(node).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_pen_of_many_pages_is_counted_beside_the_boot() {
    let bench = bench();
    let node = bench.start().await;
    let mut batch = Batch::default();
    let summary = |ix: u64| ankusa_actors::model::quarantine::Summary {
        id: format!("{ix}"),
        source_id: "pen".to_owned(),
        tenant_id: None,
        received_at_ms: ix,
        reason: "no_match",
    };
    for ix in 0..25_000 {
        let (stored, _) = summary(ix).encode(1);
        summary(ix).key().put(&stored, Bytes::from_static(b"x"), &mut batch);
    }
    node.handles().store.apply_synced(batch, Lane::Commit).await.unwrap();
    let node = restarted(&bench, node).await;
    millis(100).await;
    assert_eq!(size(&node), size_on_disk(&bench));
    assert_eq!(size(&node).entries, 25_000);
    let until_ms = Some(9_999);
    let filter = HeldFilter { until_ms, ..HeldFilter::default() };
    let gone = node.handles().quarantine.purge(&filter, 20_000).await.unwrap();
    assert_eq!(gone.entries, 10_000);
    assert_eq!(size(&node), size_on_disk(&bench));
    stop(node).await;
}

const DAY_MS: i64 = 86_400_000;

#[tokio::test(start_paused = true)]
async fn held_hooks_are_deleted_for_their_age_every_hour_and_no_sooner() {
    let mut bench = bench();
    bench.settings.quarantine.retention_days = Some(2);
    let node = bench.start().await;
    for body in ["one", "two"] {
        send(&node, "pen", body).await;
        bench.clock.step_ms(DAY_MS);
    }
    secs(61).await;
    assert_eq!(in_the_pen(&bench), ["two"], "the first is two days old");
    bench.clock.step_ms(DAY_MS);
    secs(3_500).await;
    assert_eq!(in_the_pen(&bench), ["two"]);
    secs(200).await;
    assert_eq!(in_the_pen(&bench), [""; 0]);
    assert_eq!(size(&node), PenSize::default());
    let told: Vec<_> = bench.events.lines();
    let deleted = "QuarantineDeleted { reason: Retention, entries: 1 }";
    assert_eq!(told.iter().filter(|line| *line == deleted).count(), 2);
    stop(node).await;
}

#[tokio::test(start_paused = true)]
async fn more_than_a_chunk_goes_at_once_and_without_an_age_nothing_goes() {
    let mut bench = bench();
    bench.settings.quarantine.retention_days = Some(1);
    bench.settings.quarantine.burst = 2_500;
    let node = bench.start().await;
    let sent: Vec<_> = (0..2_500).map(|ix| sending(&node, "pen", &format!("{ix}"))).collect();
    let mut in_time = 0;
    for sent in sent {
        in_time += usize::from(sent.await.unwrap() == held());
    }
    bench.clock.step_ms(2 * DAY_MS);
    send(&node, "pen", "young").await;
    assert!(in_time >= 1_000, "{in_time}");
    secs(61).await;
    assert_eq!(in_the_pen(&bench), ["young"]);
    stop(node).await;
    bench.settings.quarantine.retention_days = None;
    let node = bench.start().await;
    bench.clock.step_ms(1_000 * DAY_MS);
    secs(7_300).await;
    assert_eq!(in_the_pen(&bench), ["young"]);
    stop(node).await;
}
