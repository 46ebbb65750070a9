//! What goes into the store comes out again, and damage comes out as an error.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod terms;

use ankusa_actors::model::delivery::{DeliveryRow, DeliveryRowError, PendingRow, RowState};
use ankusa_actors::model::envelope::{
    Envelope, EnvelopeError, VerificationStatus, VerificationTerm,
};
use ankusa_actors::model::etf::{EtfError, Term, TermWriter};
use ankusa_actors::model::ids::HookId;
use ankusa_actors::model::value_version::ValueVersion;
use bytes::Bytes;
use proptest::prelude::*;

use self::terms::{counted, damaged, envelope, noise, row, term, verification, versioned};

const ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const VERSIONS: [ValueVersion; 2] = [ValueVersion::V0, ValueVersion::V1];

fn plain() -> Envelope {
    Envelope {
        id: HookId::parse(ID).unwrap(),
        source_id: "github".to_owned(),
        tenant_id: None,
        received_at_ms: 1_688_169_000_086,
        method: "POST".to_owned(),
        path: "/in/github".to_owned(),
        headers: Vec::new(),
        content_type: None,
        body: Bytes::from_static(b"{}"),
        dedupe_key: None,
        verification: None,
    }
}

/// A map of atom keys to encoded values, in the order given.
fn map(pairs: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut rest = Vec::new();
    for (name, value) in pairs {
        TermWriter::bare(&mut rest).atom(name);
        rest.extend_from_slice(value);
    }
    versioned(&counted(116, pairs.len(), &rest))
}

fn binary(text: &str) -> Vec<u8> {
    counted(109, text.len(), text.as_bytes())
}

fn atom(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    TermWriter::bare(&mut out).atom(name);
    out
}

/// The keys an envelope cannot do without.
fn required() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("source_id", binary("github")),
        ("received_at", vec![97, 5]),
        ("path", binary("/in/github")),
        ("method", binary("POST")),
        ("id", binary(ID)),
        ("body", binary("{}")),
    ]
}

fn row_keys() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("state", atom("pending")),
        ("size", vec![97, 9]),
        ("attempts", vec![97, 2]),
        ("at", vec![97, 5]),
    ]
}

proptest! {
    #[test]
    fn an_envelope_comes_back_as_it_was(envelope in envelope()) {
        for version in VERSIONS {
            prop_assert_eq!(Envelope::decode(&envelope.encode(version)), Ok(envelope.clone()));
        }
        let shared = Bytes::from(envelope.encode(ValueVersion::V0));
        prop_assert_eq!(Envelope::decode_shared(&shared), Ok(envelope));
    }

    #[test]
    fn a_row_comes_back_as_it_was(row in row()) {
        for version in VERSIONS {
            prop_assert_eq!(DeliveryRow::decode(&row.encode(version)), Ok(row.clone()));
        }
    }

    #[test]
    fn a_row_stamped_late_is_the_row_encoded_at_once(
        size in any::<u32>(), bits in 0..64_u32, at in any::<u64>(), source in "\\PC{0,9}",
        lane in prop::option::of(any::<u128>()),
    ) {
        let at_ms = at >> bits;
        for version in VERSIONS {
            let pending = PendingRow::in_lane(lane, "Elixir.Ankusa.Sink.Log", &source, size, version);
            let row = DeliveryRow::pending("Elixir.Ankusa.Sink.Log", &source, size, at_ms);
            let row = DeliveryRow { lane, ..row };
            prop_assert_eq!(pending.bytes(at_ms), row.encode(version));
            let mut appended = vec![7];
            pending.write_stamped(at_ms, &mut appended);
            prop_assert_eq!(&appended[1..], row.encode(version));
        }
    }

    #[test]
    fn a_verification_comes_back_as_it_was(verification in verification()) {
        prop_assert_eq!(VerificationTerm::decode(&verification.encode()), Ok(verification));
    }

    #[test]
    fn any_reason_survives_and_can_be_read(reason in term()) {
        let stored = map(&[("reason", reason.clone()), ("status", atom("failed"))]);
        prop_assume!(Term::decode(&stored).is_ok());
        let verified = Envelope { verification: Some(Bytes::from(stored[1..].to_vec())), ..plain() };
        let again = Envelope::decode(&verified.encode(ValueVersion::V0)).unwrap();
        prop_assert_eq!(&again, &verified);
        let shown = VerificationTerm::decode(&again.verification.unwrap()).unwrap();
        prop_assert_eq!(shown.status, VerificationStatus::Failed);
        prop_assert!(shown.reason_text.is_none_or(|text| text.len() <= 1024 + '…'.len_utf8()));
    }

    #[test]
    fn what_still_reads_after_damage_can_be_stored_again(
        hook in damaged(envelope().prop_map(|e| e.encode(ValueVersion::V1))),
        row in damaged(row().prop_map(|r| r.encode(ValueVersion::V1))),
        noise in noise(),
    ) {
        for bytes in [&hook, &row, &noise] {
            if let Ok(envelope) = Envelope::decode(bytes) {
                prop_assert_eq!(Envelope::decode(&envelope.encode(ValueVersion::V0)), Ok(envelope));
            }
            if let Ok(row) = DeliveryRow::decode(bytes) {
                prop_assert_eq!(DeliveryRow::decode(&row.encode(ValueVersion::V0)), Ok(row));
            }
            if let Ok(term) = Term::decode(bytes) {
                let canonical = term.canonical();
                prop_assert_eq!(Term::decode(&versioned(&canonical)).unwrap().canonical(), canonical);
                prop_assert!(term.text(100).len() <= 100 + '…'.len_utf8());
            }
        }
    }
}

#[test]
fn what_an_envelope_does_not_say_has_a_default() {
    let decoded = Envelope::decode(&map(&required()));
    assert_eq!(decoded, Ok(Envelope { received_at_ms: 5, ..plain() }));
}

#[test]
fn each_key_an_envelope_cannot_do_without_is_missed_by_name() {
    for (at, (name, _)) in required().into_iter().enumerate() {
        let mut keys = required();
        keys.remove(at);
        let missing = EnvelopeError::Undecodable(EtfError::MissingKey(name));
        assert_eq!(Envelope::decode(&map(&keys)), Err(missing));
    }
}

#[test]
fn an_envelope_drops_keys_it_does_not_know() {
    let old = [
        ("committed_at", vec![97, 1]),
        ("dedup_key", binary("k")),
        ("seq", vec![97, 42]),
        ("size", vec![97, 200]),
        ("__struct__", atom("Elixir.Ankusa.Envelope")),
    ];
    let with_old = Envelope::decode(&map(&[required(), old.to_vec()].concat()));
    assert_eq!(with_old, Envelope::decode(&map(&required())));
    assert!(with_old.is_ok());
}

#[test]
fn an_envelope_written_with_old_atoms_reads_the_same() {
    let mut stored = map(&required());
    let at = stored.windows(4).position(|four| four == [119, 4, b'b', b'o']).unwrap();
    stored.splice(at..at + 2, [100, 0, 4]);
    assert_eq!(Envelope::decode(&stored), Envelope::decode(&map(&required())));
}

#[test]
fn nil_in_any_encoding_is_no_verification() {
    for nil in [atom("nil"), vec![100, 0, 3, b'n', b'i', b'l']] {
        let keys = [required(), vec![("verification", nil)]].concat();
        assert_eq!(Envelope::decode(&map(&keys)).unwrap().verification, None);
    }
}

#[test]
fn a_path_of_other_bytes_does_not_cost_the_hook() {
    let mut keys = required();
    keys[2].1 = counted(109, 2, &[b'/', 0xff]);
    assert_eq!(Envelope::decode(&map(&keys)).unwrap().path, "/\u{fffd}");
}

#[test]
fn a_damaged_envelope_is_undecodable_and_says_where() {
    let mut wrong_id = required();
    wrong_id[4].1 = binary("not-a-uuid");
    let error = Envelope::decode(&map(&wrong_id)).unwrap_err();
    assert_eq!(error.as_str(), "undecodable");
    assert_eq!(error.to_string(), "undecodable envelope: expected a UUIDv7 before byte 99");
    let mut trailing = plain().encode(ValueVersion::V0);
    trailing.push(0);
    let error = EnvelopeError::Undecodable(EtfError::Trailing { bytes: 1 });
    assert_eq!(Envelope::decode(&trailing), Err(error));
    let error = EnvelopeError::Undecodable(EtfError::NoVersion);
    for nothing in [&b""[..], b"A", b"AE", b"AE\x01", b"AD\x01", b"ANKSEG"] {
        assert_eq!(Envelope::decode(nothing), Err(error.clone()), "{nothing:?}");
    }
    let twice = [required(), vec![("body", binary("other"))]].concat();
    let error = Envelope::decode(&map(&twice)).unwrap_err();
    assert!(matches!(error, EnvelopeError::Undecodable(EtfError::DuplicateKey { .. })), "{error}");
}

#[test]
fn a_version_of_a_later_release_is_told_from_damage() {
    for version in [0, 2, 255] {
        let hook = [b"AE", &[version][..], &plain().encode(ValueVersion::V0)].concat();
        let error = Envelope::decode(&hook).unwrap_err();
        assert_eq!(error, EnvelopeError::UnsupportedEnvelopeVersion(version));
        assert_eq!(error.as_str(), "unsupported_envelope_version");
        let row = [b"AD", &[version][..], &map(&row_keys())].concat();
        let error = DeliveryRow::decode(&row).unwrap_err();
        assert_eq!(error, DeliveryRowError::UnsupportedDeliveryRowVersion(version));
        assert_eq!(error.as_str(), "unsupported_delivery_row_version");
    }
}

#[test]
fn what_a_row_does_not_say_is_none() {
    let expected = DeliveryRow {
        module: None,
        state: RowState::Pending,
        attempts: 2,
        at_ms: 5,
        error: None,
        lane: None,
        size: 9,
        source_id: None,
        replay: None,
        unknown: Vec::new(),
    };
    assert_eq!(DeliveryRow::decode(&map(&row_keys())), Ok(expected));
    for (at, (name, _)) in row_keys().into_iter().enumerate() {
        let mut keys = row_keys();
        keys.remove(at);
        let missing = DeliveryRowError::Undecodable(EtfError::MissingKey(name));
        assert_eq!(missing.as_str(), "undecodable");
        assert_eq!(DeliveryRow::decode(&map(&keys)), Err(missing));
    }
}

#[test]
fn keys_of_a_later_release_stay_in_a_row_that_is_written_again() {
    let reason = counted(108, 1, &[97, 1, 70, 63, 240, 0, 0, 0, 0, 0, 0]);
    let later =
        [("zone", binary("z")), ("lane", reason.clone()), ("atx", vec![97, 1]), ("a", vec![106])];
    let stored = map(&[row_keys(), later.to_vec()].concat());
    let mut row = DeliveryRow::decode(&stored).unwrap();
    row.attempts = 3;
    let rewritten = map(&[
        ("a", vec![106]),
        ("at", vec![97, 5]),
        ("attempts", vec![97, 3]),
        ("atx", vec![97, 1]),
        ("error", atom("nil")),
        ("lane", reason),
        ("module", atom("nil")),
        ("size", vec![97, 9]),
        ("state", atom("pending")),
        ("zone", binary("z")),
    ]);
    assert_eq!(row.encode(ValueVersion::V0), rewritten);
    assert_eq!(DeliveryRow::decode(&rewritten), Ok(row));
}

#[test]
fn a_key_that_is_no_atom_stays_too_behind_those_that_are() {
    let mut stored = map(&row_keys());
    stored[5] = 6;
    stored.extend([98, 0, 0, 0, 7, 106, 119, 1, b'z', 106]);
    let row = DeliveryRow::decode(&stored).unwrap();
    let unknown = [(vec![119, 1, b'z'], vec![106]), (vec![97, 7], vec![106])];
    assert_eq!(row.unknown, unknown);
    let again = row.encode(ValueVersion::V0);
    assert!(again.ends_with(&[119, 1, b'z', 106, 97, 7, 106]));
    assert_eq!(DeliveryRow::decode(&again), Ok(row));
}

#[test]
fn a_state_of_a_later_release_is_undecodable() {
    let mut keys = row_keys();
    keys[0].1 = atom("parked");
    let error = DeliveryRow::decode(&map(&keys)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "undecodable delivery row: expected pending or dead before byte 20"
    );
}

#[test]
fn an_error_text_cut_in_a_character_is_still_shown() {
    let keys = [row_keys(), vec![("error", counted(109, 3, &[b'n', b'o', 0xc3]))]].concat();
    let row = DeliveryRow::decode(&map(&keys)).unwrap();
    assert_eq!(row.error.as_deref(), Some("no\u{fffd}"));
}

#[test]
fn the_idempotency_key_names_tenant_and_source_or_is_the_id() {
    let keyed = |tenant: Option<&str>, key: &'static [u8]| Envelope {
        tenant_id: tenant.map(str::to_owned),
        dedupe_key: Some(Bytes::from_static(key)),
        ..plain()
    };
    assert_eq!(keyed(Some("acme"), b"d1").idempotency_key(), "acme:github:d1");
    assert_eq!(keyed(None, b"d\xff").idempotency_key(), &b"default:github:d\xff"[..]);
    assert_eq!(keyed(None, b"").idempotency_key(), ID);
    assert_eq!(plain().idempotency_key(), ID);
}

#[test]
fn a_verification_shows_any_reason() {
    let shown = |reason: Vec<u8>| {
        let keys = [("status", atom("failed")), ("reason", reason), ("later", vec![106])];
        VerificationTerm::decode(&map(&keys)[1..]).unwrap().reason_text
    };
    assert_eq!(shown(atom("nil")), None);
    assert_eq!(shown(atom("no_match")).as_deref(), Some("no_match"));
    let tuple = [vec![104, 2], atom("bad_sig"), binary("x")].concat();
    assert_eq!(shown(tuple).as_deref(), Some("{:bad_sig, \"x\"}"));
    let long = shown(binary(&"a".repeat(2000))).unwrap();
    assert_eq!(long, format!("\"{}…", "a".repeat(1023)));
}

#[test]
fn a_reason_too_long_for_an_atom_is_written_as_text() {
    let verification = VerificationTerm {
        status: VerificationStatus::Failed,
        provider: None,
        scheme: None,
        reason_text: Some("r".repeat(256)),
        flagged: true,
    };
    let again = VerificationTerm::decode(&verification.encode()).unwrap();
    assert_eq!(again.reason_text, Some(format!("{:?}", "r".repeat(256))));
    assert!(again.flagged);
}

#[test]
fn a_verification_of_another_shape_is_an_error() {
    assert_eq!(VerificationTerm::decode(&map(&[])[1..]), Err(EtfError::MissingKey("status")));
    let later = map(&[("status", atom("later"))]);
    let error = EtfError::Unexpected { wanted: "a status", at: 20 };
    assert_eq!(VerificationTerm::decode(&later[1..]), Err(error));
    assert!(VerificationTerm::decode(&atom("ok")).is_err());
}

#[test]
fn writing_an_envelope_never_moves_its_buffer() {
    let verification = VerificationTerm {
        status: VerificationStatus::Ok,
        provider: Some("Elixir.Ankusa.Verifier.Hmac".to_owned()),
        scheme: None,
        reason_text: None,
        flagged: false,
    };
    let long = "x".repeat(500);
    let full = Envelope {
        source_id: long.clone(),
        tenant_id: Some(long.clone()),
        received_at_ms: u64::MAX,
        method: long.clone(),
        path: long.clone(),
        headers: vec![(Bytes::from(long.clone()), Bytes::from(long.clone())); 40],
        content_type: Some(Bytes::from(long.clone())),
        body: Bytes::from(long.repeat(200)),
        dedupe_key: Some(Bytes::from(long)),
        verification: Some(verification.encode().into()),
        ..plain()
    };
    let room = full.encode(ValueVersion::V1).capacity();
    let used = full.encode(ValueVersion::V1).len();
    assert!((used..used + 64).contains(&room), "{used} bytes in {room}");
}
