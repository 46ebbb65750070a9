//! Random terms and stored values, for the tests that have no use for chosen ones.

#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::envelope::{Envelope, VerificationStatus, VerificationTerm};
use ankusa_actors::model::etf::Term;
use ankusa_actors::model::ids::HookId;
use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;

pub(crate) fn counted(tag: u8, count: usize, rest: &[u8]) -> Vec<u8> {
    let count = u32::try_from(count).unwrap();
    [&[tag], &count.to_be_bytes()[..], rest].concat()
}

fn short(length: usize) -> u8 {
    u8::try_from(length).unwrap()
}

pub(crate) fn versioned(term: &[u8]) -> Vec<u8> {
    [&[131], term].concat()
}

fn atom(name: &str, old: bool, wide: bool) -> Vec<u8> {
    let latin1: Option<Vec<u8>> = name.chars().map(|c| u8::try_from(c).ok()).collect();
    let (tags, text) = match latin1 {
        Some(latin1) if old => ([115, 100], latin1),
        Some(_) | None => ([119, 118], name.as_bytes().to_vec()),
    };
    match u8::try_from(text.len()) {
        Ok(length) if !wide => [&[tags[0], length], &text[..]].concat(),
        Ok(_) | Err(_) => {
            let length = u16::try_from(text.len()).unwrap();
            [&[tags[1]], &length.to_be_bytes()[..], &text[..]].concat()
        }
    }
}

fn big(large: bool, sign: u8, magnitude: &[u8]) -> Vec<u8> {
    match u8::try_from(magnitude.len()) {
        Ok(length) if !large => [&[110, length, sign], magnitude].concat(),
        Ok(_) | Err(_) => counted(111, magnitude.len(), &[&[sign], magnitude].concat()),
    }
}

fn printed_float(value: f64) -> Vec<u8> {
    let mut field = format!("{value:.20e}").into_bytes();
    field.resize(31, 0);
    [&[99], &field[..]].concat()
}

fn leaf(printed_floats: bool) -> impl Strategy<Value = Vec<u8>> {
    let name = prop_oneof!["[a-z_]{0,12}", "[a-zà-ÿ]{1,6}", "\\PC{0,6}", "[a-zé]{254,255}"];
    let finite = any::<f64>().prop_filter("infinite", |value| value.is_finite());
    prop_oneof![
        any::<u8>().prop_map(|byte| vec![97, byte]),
        any::<i32>().prop_map(|word| [&[98], &word.to_be_bytes()[..]].concat()),
        (any::<bool>(), 0..3_u8, vec(any::<u8>(), 0..12)).prop_map(|(l, s, m)| big(l, s, &m)),
        (0..2_u8, vec(any::<u8>(), 250..300)).prop_map(|(sign, m)| big(false, sign, &m)),
        finite.clone().prop_map(|value| [&[70], &value.to_be_bytes()[..]].concat()),
        finite.prop_map(move |value| if printed_floats { printed_float(value) } else { vec![106] }),
        (name, any::<bool>(), any::<bool>()).prop_map(|(name, old, wide)| atom(&name, old, wide)),
        vec(any::<u8>(), 0..40).prop_map(|bytes| counted(109, bytes.len(), &bytes)),
        (1..9_u8, vec(any::<u8>(), 1..5)).prop_map(|(bits, bytes)| counted(
            77,
            bytes.len(),
            &[&[bits], &bytes[..]].concat()
        )),
        Just(vec![106]),
        vec(any::<u8>(), 0..6)
            .prop_map(|bytes| [&[107, 0, short(bytes.len())], &bytes[..]].concat()),
    ]
}

/// A term without its version byte, in any encoding Erlang has ever written.
pub(crate) fn term() -> impl Strategy<Value = Vec<u8>> {
    term_of(leaf(true))
}

/// The same without floats as digits.
pub(crate) fn term_without_printed_floats() -> impl Strategy<Value = Vec<u8>> {
    term_of(leaf(false))
}

fn term_of(leaf: impl Strategy<Value = Vec<u8>> + 'static) -> impl Strategy<Value = Vec<u8>> {
    leaf.prop_recursive(5, 48, 6, |inner| {
        let items = vec(inner.clone(), 0..6);
        let pair = (inner.clone(), inner.clone()).prop_map(|(key, value)| [key, value].concat());
        prop_oneof![
            items.clone().prop_map(|items| counted(
                108,
                items.len(),
                &[items.concat(), vec![106]].concat()
            )),
            (items.clone(), inner).prop_map(|(items, tail)| {
                counted(108, items.len(), &[items.concat(), tail].concat())
            }),
            items
                .clone()
                .prop_map(|items| [&[104, short(items.len())], &items.concat()[..]].concat()),
            items.prop_map(|items| counted(105, items.len(), &items.concat())),
            vec(pair, 0..5).prop_map(|pairs| counted(116, pairs.len(), &pairs.concat())),
        ]
    })
}

/// A term in the one encoding that this node and Erlang write alike: no map has a second key.
fn plain_term() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        any::<u8>().prop_map(|byte| vec![97, byte]),
        "[a-z]{1,8}".prop_map(|name| atom(&name, false, false)),
        vec(any::<u8>(), 0..20).prop_map(|bytes| counted(109, bytes.len(), &bytes)),
        any::<u8>().prop_map(|byte| vec![104, 2, 106, 97, byte]),
        any::<u8>().prop_map(|byte| counted(116, 1, &[119, 1, b'k', 97, byte])),
    ]
}

fn blob(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..max).prop_map(Bytes::from)
}

fn optional<T: Clone + std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = Option<T>> {
    proptest::option::of(value)
}

fn name() -> impl Strategy<Value = String> {
    "[A-Za-z0-9_-]{1,64}"
}

pub(crate) fn verification() -> impl Strategy<Value = VerificationTerm> {
    let status = prop::sample::select(VerificationStatus::ALL.to_vec());
    let reason = "[a-z_]{4,20}|[à-ÿ ]{200,255}";
    (
        status,
        optional("Elixir\\.[A-Z][a-z]{1,9}"),
        optional("\\PC{0,9}"),
        optional(reason),
        any::<bool>(),
    )
        .prop_map(|(status, provider, scheme, reason_text, flagged)| VerificationTerm {
            status,
            provider,
            scheme,
            reason_text,
            flagged,
        })
}

pub(crate) fn envelope() -> impl Strategy<Value = Envelope> {
    let id = (any::<u64>(), any::<u128>()).prop_map(|(ms, random)| HookId::v7(ms, random));
    let texts = ("[A-Z]{1,7}", "/\\PC{0,30}", name(), optional(name()));
    let blobs = (optional(blob(30)), optional(blob(30)), blob(400));
    let headers = vec((blob(20), blob(40)), 0..8);
    (id, any::<u64>(), texts, blobs, headers, optional(verification())).prop_map(
        |(id, received_at_ms, texts, blobs, headers, verification)| Envelope {
            id,
            source_id: texts.2,
            tenant_id: texts.3,
            received_at_ms,
            method: texts.0,
            path: texts.1,
            headers,
            content_type: blobs.0,
            body: blobs.2,
            dedupe_key: blobs.1,
            verification: verification.map(|term| term.encode().into()),
        },
    )
}

/// Keys that no release knows yet: between, before and after those of today, in the order they are kept.
fn unknown() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
    let names = proptest::collection::btree_set("[a-z]{3,4}_x", 0..5);
    (names, vec(plain_term(), 5)).prop_map(|(names, values)| {
        names.iter().map(|name| atom(name, false, false)).zip(values).collect()
    })
}

pub(crate) fn row() -> impl Strategy<Value = DeliveryRow> {
    let module = optional("Elixir\\.[A-Z][a-z]{1,9}");
    let numbers = (any::<u32>(), any::<u64>(), any::<u32>());
    let texts = (
        optional("\\PC{0,40}"),
        prop::option::of(any::<u128>()),
        optional(name()),
        optional("[0-9a-f-]{36}"),
    );
    (module, any::<bool>(), numbers, texts, unknown()).prop_map(
        |(module, dead, numbers, texts, unknown)| DeliveryRow {
            module,
            state: if dead { RowState::Dead } else { RowState::Pending },
            attempts: numbers.0,
            at_ms: numbers.1,
            error: texts.0,
            lane: texts.1,
            size: numbers.2,
            source_id: texts.2,
            replay: texts.3,
            unknown,
        },
    )
}

/// `bytes` with a few of them changed, dropped, doubled or cut off.
pub(crate) fn damaged(bytes: impl Strategy<Value = Vec<u8>>) -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::sample::select((68..=121).collect::<Vec<u8>>());
    let byte = prop_oneof![any::<u8>(), tags, 0..3_u8];
    let change = (any::<prop::sample::Index>(), 0..5_u8, byte);
    (bytes, vec(change, 1..4)).prop_map(|(mut bytes, changes)| {
        for (at, kind, byte) in changes {
            let at = at.index(bytes.len() + 1);
            let end = (at + 1).min(bytes.len());
            match kind {
                0 | 1 => drop(bytes.splice(at..end, [byte])),
                2 => drop(bytes.drain(at..end)),
                3 => bytes.insert(at, byte),
                _cut => bytes.truncate(at),
            }
        }
        bytes
    })
}

/// Bytes that are no accident: tags, small counts and noise.
pub(crate) fn noise() -> impl Strategy<Value = Vec<u8>> {
    let tags = prop::sample::select((68..=121).collect::<Vec<u8>>());
    vec(prop_oneof![tags, 0..3_u8, any::<u8>()], 0..24).prop_map(|bytes| versioned(&bytes))
}

/// Whether a pid, port, reference or function is anywhere inside.
pub(crate) fn holds_opaque(term: &Term<'_>) -> bool {
    match term {
        Term::Opaque(_) => true,
        Term::List(terms) | Term::Tuple(terms) => terms.iter().any(holds_opaque),
        Term::ImproperList(list) => list.0.iter().chain([&list.1]).any(holds_opaque),
        Term::Map(pairs) => pairs.iter().any(|(k, v)| holds_opaque(k) || holds_opaque(v)),
        Term::Int(_) | Term::BigInt { .. } | Term::Float(_) | Term::Atom(_) => false,
        Term::Binary(_) | Term::Bits { .. } => false,
    }
}
