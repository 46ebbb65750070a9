//! Stored values against bytes that never change: what this release writes, and what it must always read.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::envelope::{Envelope, VerificationStatus, VerificationTerm};
use ankusa_actors::model::etf::Term;
use ankusa_actors::model::ids::HookId;
use ankusa_actors::model::quarantine::{StoredSummary, Summary};
use ankusa_actors::model::value_version::ValueVersion;
use bytes::Bytes;
use serde_json::Value;

const ENVELOPES: &str = include_str!("../../tests/golden/envelopes.json");
const ROWS: &str = include_str!("../../tests/golden/delivery_rows.json");
const HELD: &str = include_str!("../../tests/golden/quarantine.json");
const TERMS: &str = include_str!("../../tests/golden/terms.json");

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

fn vectors(file: &str) -> Vec<Value> {
    serde_json::from_str::<Value>(file).unwrap()["vectors"].as_array().unwrap().clone()
}

/// The vector of this name in both versions.
fn versions(file: &str, name: &str) -> [(ValueVersion, Vec<u8>); 2] {
    [(0, ValueVersion::V0), (1, ValueVersion::V1)].map(|(number, version)| {
        let wanted = |v: &&Value| v["name"] == name && v["version"] == number;
        let all = vectors(file);
        let vector = all.iter().find(wanted).unwrap();
        (version, bytes(vector["hex"].as_str().unwrap()))
    })
}

fn minimal() -> Envelope {
    Envelope {
        id: HookId::parse("01890a5d-ac96-774b-bcce-b302099a8057").unwrap(),
        source_id: "github".to_owned(),
        tenant_id: Some("acme".to_owned()),
        received_at_ms: 1_688_169_000_086,
        method: "POST".to_owned(),
        path: "/in/github".to_owned(),
        headers: Vec::new(),
        content_type: None,
        body: Bytes::new(),
        dedupe_key: Some(Bytes::from_static(b"d1")),
        verification: None,
    }
}

fn verified() -> Envelope {
    let result = VerificationTerm {
        status: VerificationStatus::Ok,
        provider: Some("Elixir.Ankusa.Verifier.Hmac".to_owned()),
        scheme: Some("github".to_owned()),
        reason_text: None,
        flagged: false,
    };
    let header = |name: &'static str, value: &'static str| (Bytes::from(name), Bytes::from(value));
    Envelope {
        tenant_id: None,
        dedupe_key: None,
        content_type: Some(Bytes::from_static(b"application/json")),
        body: Bytes::from_static(b"{\"a\":1}"),
        headers: vec![
            header("content-type", "application/json"),
            header("x-github-delivery", "d1"),
        ],
        verification: Some(result.encode().into()),
        ..minimal()
    }
}

#[test]
fn an_envelope_is_written_and_read_as_the_golden_bytes() {
    for (name, envelope) in [("minimal", minimal()), ("verified", verified())] {
        for (version, stored) in versions(ENVELOPES, name) {
            assert_eq!(envelope.encode(version), stored, "{name} {version:?}");
            assert_eq!(Envelope::decode(&stored).as_ref(), Ok(&envelope), "{name} {version:?}");
        }
    }
}

#[test]
fn a_delivery_row_is_written_and_read_as_the_golden_bytes() {
    let pending =
        DeliveryRow::pending("Elixir.Ankusa.Sink.Http", "github", 1234, 1_688_169_000_086);
    let dead = DeliveryRow {
        state: RowState::Dead,
        attempts: 84,
        error: Some("{:status, 500}".to_owned()),
        replay: Some("01890a5d-ac96-774b-bcce-b302099a8057".to_owned()),
        ..pending.clone()
    };
    let lane = Some(0x0001_0203_0405_0607_0809_0a0b_0c0d_0e0f);
    let in_a_lane = DeliveryRow { lane, ..pending.clone() };
    let rows = [("pending", pending), ("dead_replayed", dead), ("pending_in_a_lane", in_a_lane)];
    for (name, row) in rows {
        for (version, stored) in versions(ROWS, name) {
            assert_eq!(row.encode(version), stored, "{name} {version:?}");
            assert_eq!(DeliveryRow::decode(&stored).as_ref(), Ok(&row), "{name} {version:?}");
        }
    }
}

#[test]
fn a_summary_of_a_held_hook_is_written_and_read_as_the_golden_bytes() {
    for vector in vectors(HELD) {
        let text = |key: &str| vector[key].as_str().map(str::to_owned);
        let reason = ["no_match", "missing_signature"];
        let reason = reason.into_iter().find(|reason| vector["reason"] == *reason).unwrap();
        let summary = Summary {
            id: "01890a5d-ac96-774b-bcce-b302099a8057".to_owned(),
            source_id: "github".to_owned(),
            tenant_id: text("tenant_id"),
            received_at_ms: 1_688_169_000_086,
            reason,
        };
        let stored = bytes(&text("hex").unwrap());
        let envelope_bytes = usize::try_from(vector["envelope_bytes"].as_u64().unwrap()).unwrap();
        let size = vector["size"].as_u64().unwrap();
        assert_eq!(summary.encode(envelope_bytes), (stored.clone(), size), "{}", vector["name"]);
        let read = StoredSummary::decode(&stored).unwrap();
        let expected = StoredSummary {
            id: summary.id,
            source_id: summary.source_id,
            tenant_id: summary.tenant_id,
            received_at_ms: summary.received_at_ms,
            reason: format!(":{reason}"),
            size,
        };
        assert_eq!(read, expected, "{}", vector["name"]);
    }
}

#[test]
fn any_golden_term_reads_as_a_person_would_write_it() {
    for vector in vectors(TERMS) {
        let stored = bytes(vector["hex"].as_str().unwrap());
        let term = Term::decode(&stored).unwrap();
        assert_eq!(term.to_string(), vector["text"], "{}", vector["name"]);
    }
}
