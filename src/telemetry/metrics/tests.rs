#![allow(clippy::unwrap_used)]

use std::time::Duration;

use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{
    BlobEvent, BlobScope, BlobVerb, DeliveryResult, IngestOutcome, QuarantineDeletion,
    RefusedReason, ReopenResult, StoreStats,
};

use super::*;
use crate::config::Environment;

/// Two sources, one breaker limit to find again.
fn metrics() -> Metrics {
    let text = "node: {instance: one}\n\
                dispatch: {sink_concurrency: 7}\n\
                sources: {a: {sinks: [{type: log}]}, b: {sinks: [{type: log}]}}";
    Metrics::new(&Config::parse(text, "test.yml", &Environment::default()).unwrap())
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The samples of one series: what follows its name, a line each.
fn samples(text: &str, name: &str) -> Vec<String> {
    let of_the_name =
        |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with('{'));
    text.lines().filter(of_the_name).map(|line| line[name.len()..].to_owned()).collect()
}

fn blob_done(
    scope: BlobScope,
    verb: BlobVerb,
    outcome: &'static str,
    bytes: u64,
) -> Event<'static> {
    Event::Blob(BlobEvent::Done { scope, verb, outcome, bytes, took: ms(40) })
}

fn emit_one_of_each(metrics: &Metrics) {
    let (source_id, took) = ("a", ms(3));
    for event in [
        Event::IngestAnswered { source_id, outcome: IngestOutcome::Committed, took },
        Event::IngestRefused { reason: RefusedReason::UnknownSource },
        Event::VerifyFailed {
            source_id,
            provider: "Elixir.Ankusa.Verifier.Hmac",
            scheme: "github",
        },
        Event::IngestAnswered { source_id, outcome: IngestOutcome::QuarantineRateLimited, took },
        Event::IngestAnswered { source_id, outcome: IngestOutcome::QuarantineFull, took },
        Event::RateLimited { tenant_id: "default" },
        Event::RateLimited { tenant_id: "named by a URL" },
        Event::TenantLimited { tenant_id: "acme" },
        Event::QuarantineDeleted { reason: QuarantineDeletion::Purge, entries: 30 },
        Event::LoadShed,
        Event::CommitApplied { hooks: 64, bytes: 4_096, took },
        Event::WalSynced { groups: 2, took: ms(600) },
        Event::StoreWriteFailed { class: FailureClass::NoSpace },
        Event::StoreReopened { result: ReopenResult::Ok, took: ms(1_500) },
        Event::StoreUnavailable { for_: ms(2_250) },
        Event::CountersRepaired { counters: 3 },
        Event::DedupePruned { keys: 7 },
        Event::ScrubRead { bytes: 5 },
        Event::ScrubFound,
        Event::ScrubFinished,
        Event::StoreAccepting { accepting: false },
        Event::Delivered { sink: "http", result: DeliveryResult::Timeout, took: ms(30_000) },
        Event::DeadLettered { source_id, sink: "http" },
        Event::Purged { state: "dead", rows: 6 },
        Event::Sources { ids: &["acme.c".to_owned()], unreadable: 2 },
        Event::SourceChanged { source_id: "acme.c", what: "created" },
        blob_done(BlobScope::Segments, BlobVerb::Put, "ok", 4_096),
        Event::Blob(BlobEvent::Retried { scope: BlobScope::Claims }),
        Event::Blob(BlobEvent::Breaker { endpoint: "https://s3.test", bucket: "b", state: "open" }),
        Event::ChildRestarted { child: "syncer" },
        Event::SubtreeDown { domain: "dispatch" },
    ] {
        metrics.emit(&event);
    }
}

#[test]
fn every_series_comes_out_as_documented() {
    let metrics = metrics();
    emit_one_of_each(&metrics);
    metrics.gauges.set_store(StoreStats {
        hooks: 1,
        deliveries: 2,
        disk_bytes: 3,
        wal_bytes: 15,
        write_stopped: true,
        delayed_write_bytes_per_s: 16,
        background_errors: 17,
        wal_oldest_age_ms: 18_500,
        pending_compaction_bytes: 19,
        running_compactions: 20,
        running_flushes: 21,
    });
    metrics.gauges.set_room(RoomGauges {
        accepting: true,
        free_bytes: 22,
        reserve_bytes: 23,
        reserve_wanted_bytes: 24,
        min_free_bytes: 25,
        resume_free_bytes: 26,
    });
    metrics.gauges.set_queue(QueueGauges {
        pending: 4,
        scheduled: 5,
        inflight: 6,
        dead: 7,
        archive_pending: 8,
        dedupe_keys: 30,
        lanes: 27,
        lanes_blocked: 28,
        lane_members: 29,
        oldest_due_age_ms: 9_500,
    });
    metrics.gauges.set_quarantine(31, 32);
    metrics.gauges.set_disk(120_000_000_000, 240_000_000_000);
    let dispatch = DispatchGauges {
        running: 10,
        claimed: 11,
        claimed_bytes: 12,
        runnable: 13,
        breakers_open: 14,
    };
    metrics.gauges.set_dispatch(dispatch);
    metrics.gauges.set_tenants([("gone".to_owned(), 26)]);
    metrics.gauges.set_tenants([("b".to_owned(), 27), ("a".to_owned(), 28)]);
    let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/metrics.txt");
    if std::env::var_os("ANKUSA_UPDATE_GOLDEN").is_some() {
        std::fs::write(golden, metrics.encode()).unwrap();
    }
    let (text, golden) = (metrics.encode(), std::fs::read_to_string(golden).unwrap());
    // The first line that differs says more than two whole texts.
    for (line, golden) in text.lines().zip(golden.lines()) {
        assert_eq!(line, golden);
    }
    assert_eq!(text.len(), golden.len());
}

#[test]
fn a_source_that_is_not_configured_makes_no_series() {
    let metrics = metrics();
    let before = metrics.encode();
    let (source_id, took) = ("forged", ms(1));
    metrics.emit(&Event::IngestAnswered { source_id, outcome: IngestOutcome::Committed, took });
    assert_eq!(metrics.encode(), before);

    metrics.emit(&Event::DeadLettered { source_id, sink: "log" });
    metrics.emit(&Event::VerifyFailed { source_id, provider: "p", scheme: "s" });
    let text = metrics.encode();
    assert!(!text.contains("forged"));
    assert_eq!(
        samples(&text, "ankusa_dispatch_dead_lettered_total"),
        ["{instance=\"one\",source_id=\"other\",sink=\"log\"} 1"]
    );
}

#[test]
fn what_was_never_sampled_is_absent_and_what_was_keeps_its_value() {
    let metrics = metrics();
    assert!(!metrics.encode().contains("ankusa_disk_"));
    assert!(!metrics.encode().contains("ankusa_queue_"));
    metrics.gauges.set_disk(0, u64::MAX);
    assert_eq!(samples(&metrics.encode(), "ankusa_disk_free_bytes"), ["{instance=\"one\"} 0"]);
    let largest = format!("{{instance=\"one\"}} {}", u64::MAX - 1);
    assert_eq!(samples(&metrics.encode(), "ankusa_disk_total_bytes"), [largest]);
    metrics.gauges.set_disk(5, 6);
    assert_eq!(samples(&metrics.encode(), "ankusa_disk_free_bytes"), ["{instance=\"one\"} 5"]);
}

#[test]
fn that_hooks_are_refused_for_want_of_room_shows_before_the_next_sample() {
    let metrics = metrics();
    assert!(!metrics.encode().contains("ankusa_store_accepting"));
    for (accepting, shown) in [(false, "{instance=\"one\"} 0"), (true, "{instance=\"one\"} 1")] {
        metrics.emit(&Event::StoreAccepting { accepting });
        assert_eq!(samples(&metrics.encode(), "ankusa_store_accepting"), [shown]);
    }
}

#[test]
fn counters_add_up_and_only_a_reopen_that_worked_tells_how_long_it_took() {
    let metrics = metrics();
    for hooks in [3, 4] {
        metrics.emit(&Event::CommitApplied { hooks, bytes: 10, took: ms(1) });
    }
    for result in [DeliveryResult::Ok, DeliveryResult::Ok, DeliveryResult::Error] {
        metrics.emit(&Event::Delivered { sink: "log", result, took: ms(1) });
    }
    metrics.emit(&Event::StoreReopened { result: ReopenResult::Error, took: ms(9_000) });
    metrics.emit(&Event::StoreUnavailable { for_: ms(9_000) });
    metrics.emit(&Event::StoreUnavailable { for_: ms(0) });
    let text = metrics.encode();
    assert_eq!(samples(&text, "ankusa_wal_commit_batch_size"), ["{instance=\"one\"} 7"]);
    assert_eq!(
        samples(&text, "ankusa_dispatch_deliveries_total"),
        [
            "{instance=\"one\",result=\"error\",sink=\"log\"} 1",
            "{instance=\"one\",result=\"ok\",sink=\"log\"} 2"
        ]
    );
    assert_eq!(samples(&text, "ankusa_store_wal_replay_seconds"), ["{instance=\"one\"} 0.0"]);
    assert_eq!(samples(&text, "ankusa_store_unavailable_seconds"), ["{instance=\"one\"} 0.0"]);
}

#[test]
fn a_source_of_the_api_has_series_for_as_long_as_it_is_there() {
    let metrics = metrics();
    let before = metrics.encode();
    let id = "acme.new".to_owned();
    let ids = std::slice::from_ref(&id);
    let took = ms(1);
    let answered =
        Event::IngestAnswered { source_id: &id, outcome: IngestOutcome::Committed, took };
    metrics.emit(&Event::Sources { ids, unreadable: 0 });
    metrics.emit(&answered);
    // Another change does not begin it anew.
    metrics.emit(&Event::Sources { ids, unreadable: 0 });
    metrics.emit(&answered);
    metrics.emit(&Event::VerifyFailed { source_id: &id, provider: "p", scheme: "s" });
    let committed = r#"{instance="one",source_id="acme.new",outcome="committed"} 2"#.to_owned();
    assert!(samples(&metrics.encode(), "ankusa_ingest_requests_total").contains(&committed));
    assert_eq!(samples(&metrics.encode(), "ankusa_sources_stored"), ["{instance=\"one\"} 1"]);
    metrics.emit(&Event::Sources { ids: &[], unreadable: 0 });
    metrics.emit(&answered);
    assert_eq!(metrics.encode(), before);
}

#[test]
fn a_store_has_its_operations_by_what_they_were_and_how_they_ended() {
    let metrics = metrics();
    for event in [
        blob_done(BlobScope::Backup, BlobVerb::Get, "ok", 10),
        blob_done(BlobScope::Backup, BlobVerb::Get, "ok", 5),
        blob_done(BlobScope::Backup, BlobVerb::Get, "not_found", 0),
        blob_done(BlobScope::Backup, BlobVerb::PutIfAbsent, "already_exists", 0),
        blob_done(BlobScope::Claims, BlobVerb::GetRange, "ok", 7),
        blob_done(BlobScope::Claims, BlobVerb::Delete, "breaker_open", 0),
        blob_done(BlobScope::Segments, BlobVerb::List, "deadline", 0),
        Event::Blob(BlobEvent::Retried { scope: BlobScope::Claims }),
        Event::Blob(BlobEvent::Retried { scope: BlobScope::Claims }),
    ] {
        metrics.emit(&event);
    }
    let text = metrics.encode();
    let label = |rest: &str| format!("{{instance=\"one\",{rest}");
    assert_eq!(
        samples(&text, "ankusa_blob_store_operations_total"),
        [
            label("store=\"backup\",verb=\"get\",outcome=\"not_found\"} 1"),
            label("store=\"backup\",verb=\"get\",outcome=\"ok\"} 2"),
            label("store=\"backup\",verb=\"put_if_absent\",outcome=\"already_exists\"} 1"),
            label("store=\"claims\",verb=\"delete\",outcome=\"breaker_open\"} 1"),
            label("store=\"claims\",verb=\"get_range\",outcome=\"ok\"} 1"),
            label("store=\"segments\",verb=\"list\",outcome=\"deadline\"} 1"),
        ]
    );
    assert_eq!(
        samples(&text, "ankusa_blob_store_bytes_total"),
        [
            label("store=\"backup\",verb=\"get\"} 15"),
            label("store=\"backup\",verb=\"put_if_absent\"} 0"),
            label("store=\"claims\",verb=\"delete\"} 0"),
            label("store=\"claims\",verb=\"get_range\"} 7"),
            label("store=\"segments\",verb=\"list\"} 0"),
        ]
    );
    assert_eq!(
        samples(&text, "ankusa_blob_store_duration_seconds_count"),
        [
            label("store=\"backup\",verb=\"get\"} 3"),
            label("store=\"backup\",verb=\"put_if_absent\"} 1"),
            label("store=\"claims\",verb=\"delete\"} 1"),
            label("store=\"claims\",verb=\"get_range\"} 1"),
            label("store=\"segments\",verb=\"list\"} 1"),
        ]
    );
    assert_eq!(samples(&text, "ankusa_blob_store_retries_total"), [label("store=\"claims\"} 2")]);
}

#[test]
fn a_bucket_shows_the_state_of_its_breaker_and_how_often_it_came_into_it() {
    let metrics = metrics();
    let turned = |bucket: &str, states: &[&'static str]| {
        for state in states {
            let breaker = BlobEvent::Breaker { endpoint: "https://s3.test", bucket, state };
            metrics.emit(&Event::Blob(breaker));
        }
    };
    turned("a", &["open", "half_open", "open", "half_open", "closed"]);
    turned("b", &["open"]);
    turned("c", &["open", "half_open"]);
    let text = metrics.encode();
    let label =
        |rest: &str| format!("{{instance=\"one\",endpoint=\"https://s3.test\",bucket={rest}");
    assert_eq!(
        samples(&text, "ankusa_blob_store_breaker_open"),
        [label("\"a\"} 0"), label("\"b\"} 1"), label("\"c\"} 2")]
    );
    assert_eq!(
        samples(&text, "ankusa_blob_store_breaker_transitions_total"),
        [
            label("\"a\",state=\"closed\"} 1"),
            label("\"a\",state=\"half_open\"} 2"),
            label("\"a\",state=\"open\"} 2"),
            label("\"b\",state=\"open\"} 1"),
            label("\"c\",state=\"half_open\"} 1"),
            label("\"c\",state=\"open\"} 1"),
        ]
    );
}
