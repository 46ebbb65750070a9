//! From a request to an answer: which check comes first, what a sender is told, what is stored of its request.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ankusa_actors::edge::{
    Answer, BodyFailure, Ingest, IngestConfig, LimitsHandle, QuarantineConfig, QuarantineHandle,
    RequestHead, Routing,
};
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::delivery::DeliveryRow;
use ankusa_actors::model::envelope::{Envelope, VerificationStatus, VerificationTerm};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::keys::LaneMemberKey;
use ankusa_actors::model::ordering::{OrderBy, lane};
use ankusa_actors::model::source::OnVerifyFailure;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::model::verify::VerifySpec;
use ankusa_actors::node::Node;
use ankusa_actors::ports::sim::{Fault, JournalEvents, SimClock, SimEntropy, SimOp};
use ankusa_actors::queue::{BatcherConfig, BatcherHandle, Ledger};
use ankusa_actors::sources::{LaneRules, Source, SourceTable, Sources};
use ankusa_actors::store::StoreHandle;
use bytes::Bytes;
use common::{Bench, EPOCH_MS, HTTP, millis, open_source, secs};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

const LIMIT_BYTES: usize = 1 << 20;
const SECRET: &str = "it is a secret";

fn head(path: &str) -> RequestHead {
    RequestHead {
        method: "POST".to_owned(),
        path: path.to_owned(),
        query: None,
        headers: Vec::new(),
        content_length: None,
        remote: None,
        peer: None,
    }
}

fn with_header(mut head: RequestHead, name: &[u8], value: &[u8]) -> RequestHead {
    head.headers.push((Bytes::copy_from_slice(name), Bytes::copy_from_slice(value)));
    head
}

fn signed_source(id: &str, on_verify_failure: OnVerifyFailure) -> Source {
    let spec: VerifySpec =
        serde_json::from_value(json!({"type": "github", "secret": SECRET})).unwrap();
    let verifier = spec.build().unwrap();
    let passed = verifier.passed();
    Source { verifier, passed, on_verify_failure, ..open_source(id, "default", &[HTTP]) }
}

fn signature(body: &[u8]) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    mac.update(body);
    let hex: String = mac.finalize().into_bytes().iter().map(|b| format!("{b:02x}")).collect();
    format!("sha256={hex}")
}

fn sources() -> Sources {
    [
        open_source("open", "default", &[HTTP]),
        open_source("owned", "acme", &[HTTP]),
        signed_source("strict", OnVerifyFailure::Reject),
        signed_source("lenient", OnVerifyFailure::AcceptFlag),
    ]
    .into_iter()
    .collect()
}

fn sources_of(sources: impl IntoIterator<Item = Source>) -> SourceTable {
    Arc::new(sources.into_iter().collect::<Sources>()).into()
}

/// The edge without a node behind it.
struct Edge {
    ingest: Ingest,
    events: Arc<JournalEvents>,
}

fn edge(routing: Routing, prefix: &str) -> Edge {
    let events = Arc::<JournalEvents>::default();
    let ingest = Ingest {
        config: IngestConfig {
            routing,
            prefix: prefix.to_owned(),
            max_body_bytes: LIMIT_BYTES,
            trusted_proxies: Arc::default(),
        },
        guard: None,
        sources: Arc::new(sources()).into(),
        batchers: Arc::from([BatcherHandle::new(
            &BatcherConfig::default(),
            &Ledger::default(),
            &StoreHandle::default(),
        )]),
        limits: LimitsHandle::default(),
        quarantine: QuarantineHandle::new(
            &QuarantineConfig::default(),
            Duration::from_secs(2),
            ValueVersion::V0,
            &StoreHandle::default(),
        ),
        clock: Arc::new(SimClock::at(EPOCH_MS)),
        entropy: Arc::new(SimEntropy::seeded(7)),
        events: Arc::clone(&events) as _,
        turn: AtomicUsize::new(0),
    };
    Edge { ingest, events }
}

impl Edge {
    fn refusal(&self, head: &RequestHead) -> Option<Answer> {
        self.ingest.admit(head).err()
    }
}

fn refused(reason: &str) -> String {
    format!("IngestRefused {{ reason: {reason} }}")
}

/// What is wrong with a request, in the order it is looked for, with the answer and the event.
type Defect = (fn(&mut RequestHead), Answer, Option<&'static str>);

fn defects() -> [Defect; 5] {
    let bad_header = |head: &mut RequestHead| {
        *head = with_header(head.clone(), b"x-bad", b"a\0b");
    };
    [
        (|head| head.method = "PUT".to_owned(), Answer::not_found(), None),
        (
            |head| head.path = "/elsewhere/open".to_owned(),
            Answer::unknown_source(),
            Some("UnknownSource"),
        ),
        (
            |head| head.content_length = Some(LIMIT_BYTES as u64 + 1),
            Answer::too_large(LIMIT_BYTES),
            Some("PayloadTooLarge"),
        ),
        (
            // Keeps an URL that is already wrong.
            |head| head.path = head.path.replace("/webhooks/open", "/webhooks/nobody"),
            Answer::unknown_source(),
            Some("UnknownSource"),
        ),
        (bad_header, Answer::invalid_header(b"x-bad"), Some("InvalidHeader")),
    ]
}

#[tokio::test(start_paused = true)]
async fn of_two_things_that_are_wrong_the_one_that_is_checked_first_is_answered() {
    let edge = edge(Routing::Path, "/webhooks");
    for (first, (spoil, answer, event)) in defects().into_iter().enumerate() {
        for (_, (spoil_too, _, _)) in defects().into_iter().enumerate().skip(first) {
            let mut head = head("/webhooks/open");
            spoil(&mut head);
            spoil_too(&mut head);
            assert_eq!(edge.refusal(&head).as_ref(), Some(&answer), "{head:?}");
            let events: Vec<_> = event.map(refused).into_iter().collect();
            assert_eq!(edge.events.take(), events, "one event and no series of a source: {head:?}");
        }
    }
    assert_eq!(edge.refusal(&head("/webhooks/open")), None);
    assert_eq!(edge.events.take(), Vec::<String>::new(), "nothing is counted before the answer");
}

#[tokio::test(start_paused = true)]
async fn a_declared_length_may_reach_the_limit_and_not_pass_it() {
    let edge = edge(Routing::Path, "/webhooks");
    let answer = |content_length| {
        edge.refusal(&RequestHead { content_length, ..head("/webhooks/open") }).is_none()
    };
    let limit = LIMIT_BYTES as u64;
    let table = [None, Some(0), Some(limit), Some(limit + 1), Some(u64::MAX)].map(answer);
    assert_eq!(table, [true, true, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn a_url_names_a_source_below_the_prefix_or_nothing() {
    let table = [
        ("/webhooks", "/webhooks/open", true),
        ("/webhooks", "/open", false),
        ("/webhooks", "/webhooks", false),
        ("/webhooks", "/webhooks/", false),
        ("/webhooks", "/webhooksopen", false),
        ("/webhooks", "/webhooks/open/", false),
        ("/webhooks", "/webhooks//open", false),
        ("/webhooks", "/webhooks/open/more", false),
        ("/webhooks", "/webhooks/ankusa:lifecycle", false),
        ("/webhooks", "webhooks/open", false),
        ("/webhooks", "", false),
        ("", "/open", true),
        ("", "open", false),
        ("", "/webhooks/open", false),
        ("/a/b", "/a/b/open", true),
    ];
    for (prefix, path, known) in table {
        let refusal = edge(Routing::Path, prefix).refusal(&head(path));
        let expected = (!known).then(Answer::unknown_source);
        assert_eq!(refusal, expected, "{path} under {prefix}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_of_the_lifecycle_s_name_is_not_reachable_even_if_it_were_configured() {
    let mut edge = edge(Routing::Path, "");
    edge.ingest.sources = sources_of([open_source("ankusa:lifecycle", "default", &[HTTP])]);
    assert_eq!(edge.refusal(&head("/ankusa:lifecycle")), Some(Answer::unknown_source()));
}

#[tokio::test(start_paused = true)]
async fn unknown_sources_and_sources_of_another_tenant_look_the_same() {
    let long = format!("/webhooks/{}/open", "a".repeat(65));
    let wrong = [
        "/webhooks/acme/nobody",
        "/webhooks/other/owned",
        "/webhooks/default/owned",
        "/webhooks/owned",
        "/webhooks/acme/",
        "/webhooks//owned",
        "/webhooks/a.b/open",
        "/webhooks/acme/ankusa:lifecycle",
        &long,
    ];
    let edge = edge(Routing::TenantPath, "/webhooks");
    for path in wrong {
        assert_eq!(edge.refusal(&head(path)), Some(Answer::unknown_source()), "{path}");
        assert_eq!(edge.events.take(), [refused("UnknownSource")], "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn header_names_are_visible_ascii_and_values_may_hold_spaces_and_tabs() {
    let edge = edge(Routing::Path, "/webhooks");
    for byte in 0..=u8::MAX {
        let visible = (0x21..=0x7e).contains(&byte);
        let in_name = with_header(head("/webhooks/open"), &[b'x', byte], b"v");
        let named = visible.then_some(()).map_or(Some(Answer::invalid_header(&[byte])), |()| None);
        assert_eq!(edge.refusal(&in_name), named, "{byte:#x} in a name");
        let in_value = with_header(head("/webhooks/open"), b"x", &[b'v', byte]);
        let clean = visible || byte == b' ' || byte == b'\t';
        let named = (!clean).then(|| Answer::invalid_header(b"x"));
        assert_eq!(edge.refusal(&in_value), named, "{byte:#x} in a value");
    }
    let second = with_header(with_header(head("/webhooks/open"), b"a", b"ok"), b"b", b"\x7f");
    assert_eq!(edge.refusal(&second), Some(Answer::invalid_header(b"b")), "the first bad one");
}

#[tokio::test(start_paused = true)]
async fn a_body_that_did_not_arrive_is_answered_by_what_kept_it() {
    let edge = edge(Routing::Path, "/webhooks");
    let table = [
        (BodyFailure::TooLarge, Answer::too_large(LIMIT_BYTES), "PayloadTooLarge"),
        (BodyFailure::Disconnected, Answer::body_read_failed("closed"), "BodyReadFailed"),
        (BodyFailure::Timeout, Answer::body_read_failed("timeout"), "BodyReadFailed"),
    ];
    for (failure, answer, reason) in table {
        assert_eq!(edge.ingest.body_failed(failure), answer);
        assert_eq!(edge.events.take(), [refused(reason)]);
    }
}

async fn post(ingest: &Ingest, head: RequestHead, body: &'static [u8]) -> Answer {
    let admitted = ingest.admit(&head).unwrap();
    ingest.accept(admitted, head, Bytes::from_static(body)).await
}

fn answered(source: &str, outcome: &str, took: &str) -> String {
    format!("IngestAnswered {{ source_id: \"{source}\", outcome: {outcome}, took: {took} }}")
}

const NOT_VERIFIED: &str = "VerifyFailed { source_id: \"strict\", \
                            provider: \"Elixir.Ankusa.Verifier.Hmac\", scheme: \"github\" }";

#[tokio::test(start_paused = true)]
async fn a_hook_that_does_not_verify_is_told_so_before_anything_is_asked_of_the_queue() {
    let edge = edge(Routing::Path, "/webhooks");
    // Nobody could commit it, which a forger does not learn.
    let forged = with_header(head("/webhooks/strict"), b"x-hub-signature-256", b"sha256=00");
    let answer = post(&edge.ingest, forged, b"body").await;
    assert_eq!(answer, Answer::verification_failed(":no_match"));
    let events = [NOT_VERIFIED.to_owned(), answered("strict", "Rejected", "0ns")];
    assert_eq!(edge.events.take(), events);
    let answer = post(&edge.ingest, head("/webhooks/strict"), b"body").await;
    assert_eq!(answer, Answer::verification_failed(":missing_signature"));
}

#[tokio::test(start_paused = true)]
async fn without_anybody_to_commit_it_a_hook_is_refused_at_once() {
    let mut edge = edge(Routing::Path, "/webhooks");
    let unavailable = Answer::unavailable("store_unavailable");
    assert_eq!(post(&edge.ingest, head("/webhooks/open"), b"").await, unavailable);
    assert_eq!(edge.events.take(), [answered("open", "StoreUnavailable", "0ns")]);
    edge.ingest.batchers = Arc::from([]);
    assert_eq!(post(&edge.ingest, head("/webhooks/open"), b"").await, unavailable);
}

/// A node that takes hooks for the sources of this file.
fn bench() -> Bench {
    let mut bench = Bench::default();
    bench.sources = Arc::new(sources());
    bench
}

fn envelopes(bench: &Bench) -> Vec<Envelope> {
    let rows = bench.disk.durable_rows(Cf::Hooks);
    rows.iter().map(|(_, value)| Envelope::decode(value).unwrap()).collect()
}

fn verification(envelope: &Envelope) -> VerificationTerm {
    VerificationTerm::decode(envelope.verification.as_ref().unwrap()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_stored_hook_is_the_request_as_it_came_with_an_id_and_the_time_it_came_at() {
    let bench = bench();
    let node = bench.start().await;
    millis(1_234).await;
    let request = with_header(head("/webhooks/owned"), b"X-Twice", b"one");
    let request = with_header(request, b"Content-Type", b"text/plain");
    let request = with_header(request, b"x-twice", b"two");
    let answer = post(&node.handles().ingest, request.clone(), b"\x00 any \xff bytes").await;
    let stored = envelopes(&bench).remove(0);
    assert_eq!(answer, Answer::accepted(stored.id));
    assert_eq!(stored.id.at_ms(), EPOCH_MS + 1_234);
    let expected = Envelope {
        id: stored.id,
        source_id: "owned".to_owned(),
        tenant_id: Some("acme".to_owned()),
        received_at_ms: EPOCH_MS + 1_234,
        method: "POST".to_owned(),
        path: "/webhooks/owned".to_owned(),
        headers: request.headers,
        content_type: Some(Bytes::from_static(b"text/plain")),
        body: Bytes::from_static(b"\x00 any \xff bytes"),
        dedupe_key: None,
        verification: stored.verification.clone(),
    };
    assert_eq!(stored, expected);
}

#[tokio::test(start_paused = true)]
async fn the_answer_is_counted_for_its_source_with_the_time_it_took() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_millis(20));
    post(&node.handles().ingest, head("/webhooks/open"), b"").await;
    let lines = bench.events.take();
    assert!(lines.contains(&answered("open", "Committed", "20ms")), "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn what_the_check_of_the_signature_said_is_stored_with_the_hook() {
    let bench = bench();
    let node = bench.start().await;
    let ingest = &node.handles().ingest;
    let signed =
        |path: &str| with_header(head(path), b"X-Hub-Signature-256", signature(b"body").as_bytes());
    let hmac = VerificationTerm {
        status: VerificationStatus::Ok,
        provider: Some("Elixir.Ankusa.Verifier.Hmac".to_owned()),
        scheme: Some("github".to_owned()),
        reason_text: None,
        flagged: false,
    };
    let flagged = VerificationTerm {
        status: VerificationStatus::Failed,
        reason_text: Some("missing_signature".to_owned()),
        flagged: true,
        ..hmac.clone()
    };
    let skipped = VerificationTerm {
        status: VerificationStatus::Skipped,
        provider: None,
        scheme: None,
        ..hmac.clone()
    };
    let table = [
        (head("/webhooks/open"), skipped),
        (signed("/webhooks/strict"), hmac.clone()),
        (signed("/webhooks/lenient"), hmac),
        (head("/webhooks/lenient"), flagged),
    ];
    for (ix, (request, expected)) in table.into_iter().enumerate() {
        let answer = post(ingest, request, b"body").await;
        let stored = envelopes(&bench).remove(ix);
        assert_eq!(answer, Answer::accepted(stored.id));
        assert_eq!(verification(&stored), expected);
    }
    let failures = bench.events.take().into_iter().filter(|line| line.starts_with("VerifyFailed"));
    let expected = NOT_VERIFIED.replace("strict", "lenient");
    assert_eq!(failures.collect::<Vec<_>>(), [expected], "a flagged hook is counted as well");
}

#[tokio::test(start_paused = true)]
async fn a_hook_is_stored_under_the_tenant_of_its_url_or_else_of_its_source() {
    let table = [
        (Routing::Path, "/webhooks/open", None),
        (Routing::Path, "/webhooks/owned", Some("acme")),
        (Routing::TenantPath, "/webhooks/default/open", None),
        (Routing::TenantPath, "/webhooks/anybody/open", Some("anybody")),
        (Routing::TenantPath, "/webhooks/acme/owned", Some("acme")),
    ];
    for (routing, path, tenant) in table {
        let mut bench = bench();
        bench.settings.ingest.routing = routing;
        let node = bench.start().await;
        post(&node.handles().ingest, head(path), b"").await;
        assert_eq!(envelopes(&bench).remove(0).tenant_id.as_deref(), tenant, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hook_of_an_ordered_sink_joins_the_lane_its_header_names() {
    let mut bench = bench();
    let by = Some(OrderBy::Header("x-order".to_owned()));
    let ordered = Source {
        lanes: LaneRules::new([None, by]),
        ..open_source("ordered", "default", &[HTTP, HTTP])
    };
    bench.sources = Arc::new([ordered].into_iter().collect());
    let node = bench.start().await;
    for order in ["7", "8", "7"] {
        let head = with_header(head("/webhooks/ordered"), b"X-Order", order.as_bytes());
        post(&node.handles().ingest, head, b"{}").await;
    }
    let rows = bench.disk.rows(Cf::Deliveries);
    let lanes = rows.iter().map(|(_, row)| DeliveryRow::decode(row).unwrap().lane);
    let [seven, eight] = [b"7", b"8"].map(|key| Some(lane("ordered", 1, key)));
    assert_eq!(lanes.collect::<Vec<_>>(), [None, seven, None, eight, None, seven]);
    let index = bench.disk.rows(Cf::Index);
    let members = index.iter().filter_map(|(key, _)| LaneMemberKey::decode(key));
    let waiting: BTreeSet<_> = members.map(|member| (member.lane, member.seq.0)).collect();
    let expected = [(seven, 1), (eight, 2), (seven, 3)].map(|(lane, seq)| (lane.unwrap(), seq));
    assert_eq!(waiting, BTreeSet::from(expected));
    node.stop(Duration::from_secs(60)).await;
}

#[tokio::test(start_paused = true)]
async fn hooks_are_dealt_out_to_the_partitions_in_turn() {
    let mut bench = bench();
    bench.settings.batcher.partitions = 3;
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(1));
    let ingest = Arc::clone(&node.handles().ingest);
    let sent: Vec<_> = (0..7)
        .map(|_| {
            let ingest = Arc::clone(&ingest);
            tokio::spawn(async move { post(&ingest, head("/webhooks/open"), b"").await })
        })
        .collect();
    millis(1).await;
    let held: Vec<_> = ingest.batchers.iter().map(|b| b.admission().records()).collect();
    assert_eq!(held, [3, 2, 2]);
    for sent in sent {
        assert!(matches!(sent.await.unwrap(), Answer::Send { status: 201, .. }));
    }
    let held: Vec<_> = ingest.batchers.iter().map(|b| b.admission().records()).collect();
    assert_eq!(held, [0, 0, 0], "room is given back with the answer");
}

fn posting(node: &Node, path: &'static str) -> tokio::task::JoinHandle<Answer> {
    let ingest = Arc::clone(&node.handles().ingest);
    tokio::spawn(async move { post(&ingest, head(path), b"12345678").await })
}

#[tokio::test(start_paused = true)]
async fn a_full_partition_answers_overload_and_counts_what_it_shed() {
    for by_bytes in [false, true] {
        let mut bench = bench();
        bench.settings.batcher.partitions = 1;
        if by_bytes {
            bench.settings.batcher.max_queue_bytes = 15;
        } else {
            bench.settings.batcher.max_queue = 1;
        }
        let node = bench.start().await;
        bench.disk.slow(SimOp::Sync, Duration::from_millis(500));
        let first = posting(&node, "/webhooks/open");
        millis(1).await;
        bench.events.take();
        let answer = posting(&node, "/webhooks/open").await.unwrap();
        assert_eq!(answer, Answer::unavailable("overload"));
        let shed = ["LoadShed".to_owned(), answered("open", "Overload", "0ns")];
        assert_eq!(bench.events.take(), shed);
        assert!(matches!(first.await.unwrap(), Answer::Send { status: 201, .. }));
        assert_eq!(bench.stored().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn behind_a_stall_hooks_are_shed_at_once_and_taken_again_after_it() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.slow(SimOp::Sync, Duration::from_secs(3));
    let stalled = posting(&node, "/webhooks/open");
    millis(1_000).await;
    let joined = posting(&node, "/webhooks/open");
    millis(1).await;
    let shed = posting(&node, "/webhooks/open").await.unwrap();
    assert_eq!(shed, Answer::unavailable("overload"), "older than the stall limit");
    for sent in [stalled, joined] {
        assert!(matches!(sent.await.unwrap(), Answer::Send { status: 201, .. }));
    }
    bench.disk.slow(SimOp::Sync, Duration::ZERO);
    let after = posting(&node, "/webhooks/open").await.unwrap();
    assert!(matches!(after, Answer::Send { status: 201, .. }));
}

#[tokio::test(start_paused = true)]
async fn one_tenant_too_many_is_asked_to_wait_for_an_operator() {
    let mut bench = bench();
    bench.settings.tenants.max = 1;
    let node = bench.start().await;
    posting(&node, "/webhooks/open").await.unwrap();
    bench.events.take();
    assert_eq!(posting(&node, "/webhooks/owned").await.unwrap(), Answer::tenant_limit());
    assert_eq!(bench.events.take(), [answered("owned", "TenantLimit", "0ns")]);
}

#[tokio::test(start_paused = true)]
async fn a_hook_whose_fate_is_not_known_is_not_answered() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.fail(Fault::sync_landed(FailureClass::IoError));
    bench.disk.fail_writes(FailureClass::IoError);
    let sent = posting(&node, "/webhooks/open");
    secs(9).await;
    assert!(!sent.is_finished());
    bench.events.take();
    assert_eq!(sent.await.unwrap(), Answer::CloseUnanswered);
    let lines = bench.events.take();
    let unknown = lines.iter().filter(|line| line.contains("outcome: Unknown")).count();
    assert_eq!(unknown, 1, "{lines:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failed_commit_answers_store_unavailable() {
    let bench = bench();
    let node = bench.start().await;
    bench.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::NoSpace));
    let answer = posting(&node, "/webhooks/open").await.unwrap();
    assert_eq!(answer, Answer::unavailable("store_unavailable"));
    assert_eq!(bench.stored(), vec![]);
}
