//! Our term codec against two others: Erlang itself and the `eetf` crate.
//!
//! Erlang has the last word: what it reads, we read to the same value, what it refuses, we refuse, and it writes the
//! terms that we write byte for byte. Known differences, each named in [`may_differ`].

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod terms;

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::thread;

use ankusa_actors::model::delivery::{DeliveryRow, PendingRow};
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::etf::{EtfError, Reader, Term, TermWriter};
use ankusa_actors::model::value_version::ValueVersion;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use self::terms::{
    counted, damaged, envelope, holds_opaque, noise, row, term, term_without_printed_floats,
    versioned,
};

const ORACLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/oracle.escript");
const COMPRESSED: u8 = 80;

/// The same values at every run.
fn samples<T>(count: usize, strategy: impl Strategy<Value = T>) -> Vec<T> {
    let mut runner = TestRunner::deterministic();
    (0..count).map(|_| strategy.new_tree(&mut runner).unwrap().current()).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(hex: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(digit).collect()
}

/// What Erlang reads from each value, written again by Erlang; `None` where it refuses.
fn erlang(values: &[Vec<u8>]) -> Vec<Option<Vec<u8>>> {
    let started =
        Command::new("escript").arg(ORACLE).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut oracle = started.unwrap_or_else(|error| {
        panic!(
            "cannot run `escript`, the Erlang that checks our terms: {error}. It comes with the \
             Debian package erlang-base, which `make test` installs."
        )
    });
    let questions: String = values.iter().map(|value| hex(value) + "\n").collect();
    let mut stdin = oracle.stdin.take().unwrap();
    let asking = thread::spawn(move || stdin.write_all(questions.as_bytes()).unwrap());
    let lines = BufReader::new(oracle.stdout.take().unwrap()).lines().map(Result::unwrap);
    let answers: Vec<_> = lines.map(|line| line.strip_prefix("ok ").map(bytes)).collect();
    asking.join().unwrap();
    assert!(oracle.wait().unwrap().success());
    assert_eq!(answers.len(), values.len(), "one answer a value");
    answers
}

/// The differences we chose. Nothing we store is among them, except inside foreign reasons.
fn may_differ(value: &[u8], ours: &Result<Term<'_>, EtfError>) -> bool {
    match ours {
        // We measure pids, ports, references and functions; Erlang builds them, and refuses some.
        Ok(term) => holds_opaque(term),
        // Erlang nests as deep as its memory allows.
        Err(EtfError::TooDeep { .. }) => true,
        // An atom by its place in the reader's own table: a leftover of Erlang's, never written anywhere.
        Err(EtfError::UnknownTag { tag: 73 | 75, .. }) => true,
        // Never written by anything we read.
        Err(_) => value.get(1) == Some(&COMPRESSED),
    }
}

/// How often the two agreed that it is a term, and that it is none.
fn agree(values: &[Vec<u8>]) -> (usize, usize) {
    let (mut terms, mut refused) = (0, 0);
    for (value, theirs) in values.iter().zip(erlang(values)) {
        let ours = Term::decode(value);
        match (&ours, &theirs) {
            _ if may_differ(value, &ours) => {}
            (Err(_), None) => refused += 1,
            (Ok(ours), Some(theirs)) => {
                let theirs = Term::decode(theirs).unwrap();
                assert_eq!(hex(&ours.canonical()), hex(&theirs.canonical()), "{}", hex(value));
                terms += 1;
            }
            (Ok(_), None) | (Err(_), Some(_)) => {
                panic!("{}: ours {ours:?}, theirs {theirs:?}", hex(value))
            }
        }
        let skipped = Reader::versioned(value).and_then(|mut reader| {
            reader.skip()?;
            reader.end()
        });
        assert_eq!(skipped, ours.map(|_| ()), "skipping is as strict as reading: {}", hex(value));
    }
    (terms, refused)
}

#[test]
fn erlang_reads_the_same_value_from_every_encoding() {
    let values: Vec<_> = samples(1500, term()).iter().map(|term| versioned(term)).collect();
    let (terms, refused) = agree(&values);
    assert!(terms > 1300, "{terms} terms, {refused} with the same key twice");
}

#[test]
fn erlang_refuses_the_same_damage() {
    let small = damaged(term().prop_map(|term| versioned(&term)));
    let stored = damaged(envelope().prop_map(|envelope| envelope.encode(ValueVersion::V0)));
    let rows = damaged(row().prop_map(|row| row.encode(ValueVersion::V0)));
    let values =
        [samples(2000, small), samples(400, stored), samples(400, rows), samples(3000, noise())];
    let (terms, refused) = agree(&values.concat());
    assert!(terms > 300 && refused > 3000, "{terms} terms, {refused} refused");
}

fn float(printed: &str) -> Vec<u8> {
    [&[99], printed.as_bytes(), &vec![0; 31 - printed.len()]].concat()
}

fn agreed(terms: &[Vec<u8>]) -> (usize, usize) {
    agree(&terms.iter().map(|term| versioned(term)).collect::<Vec<_>>())
}

#[test]
fn erlang_reads_the_odd_terms_that_we_read() {
    let terms = [
        float("1.5e1"),
        float("1,5"),
        float("+1.5E+01"),
        float("-0.5"),
        float("1.5e-999"),
        [&[118, 1, 254], "é".repeat(255).as_bytes()].concat(),
        [&[100, 0, 255], &[0xe9; 255][..]].concat(),
        vec![119, 3, 0xef, 0xbf, 0xbf],
        vec![115, 1, 0xff],
        // Two letters of Latin-1, which would be one of UTF-8.
        vec![115, 2, 0xc3, 0xa9],
        // Lists of no items are their tails, and tails that are lists go on.
        counted(108, 0, &[97, 1]),
        counted(108, 0, &[108, 0, 0, 0, 0, 106]),
        counted(108, 1, &[97, 1, 108, 0, 0, 0, 1, 97, 2, 107, 0, 1, 3]),
        vec![107, 0, 0],
        counted(111, 3, &[0, 1, 2, 3]),
        vec![110, 0, 1],
        vec![110, 2, 2, 1, 0],
        counted(77, 0, &[0]),
        counted(77, 1, &[3, 0xff]),
        counted(77, 1, &[8, 0xff]),
        // An integer beside a float of the same size.
        counted(116, 2, &[97, 1, 106, 70, 0x3f, 0xf0, 0, 0, 0, 0, 0, 0, 106]),
    ];
    assert_eq!(agreed(&terms), (terms.len(), 0));
}

#[test]
fn erlang_refuses_the_odd_terms_that_we_refuse() {
    let most = usize::try_from(u32::MAX).unwrap();
    let terms = [
        float(" 1.5"),
        float("1.5e999"),
        float("1.5x"),
        float("1."),
        float(".5"),
        float("15"),
        float("inf"),
        [&[70], &f64::NAN.to_be_bytes()[..]].concat(),
        [&[70], &f64::INFINITY.to_be_bytes()[..]].concat(),
        [&[118, 1, 0], &[b'a'; 256][..]].concat(),
        [&[100, 1, 0], &[b'a'; 256][..]].concat(),
        [&[118, 2, 0], "é".repeat(256).as_bytes()].concat(),
        vec![119, 2, 0xc0, 0x80],
        vec![119, 3, 0xed, 0xa0, 0x80],
        vec![119, 4, 0xf4, 0x90, 0x80, 0x80],
        vec![119, 1, 0xff],
        counted(108, 1, &[97, 1]),
        counted(108, most, &[106; 40]),
        counted(116, most, &[106; 40]),
        counted(105, most, &[106; 40]),
        counted(109, most, &[106; 40]),
        counted(77, 0, &[1]),
        counted(77, 1, &[0, 1]),
        counted(77, 1, &[9, 1]),
        vec![],
        vec![97, 1, 97],
        // The same key twice, in two encodings or deep inside.
        counted(116, 2, &[97, 1, 106, 98, 0, 0, 0, 1, 106]),
        counted(116, 2, &[119, 1, b'a', 106, 100, 0, 1, b'a', 106]),
        counted(116, 2, &[107, 0, 1, 5, 106, 108, 0, 0, 0, 1, 97, 5, 106, 106]),
        counted(116, 2, &[109, 0, 0, 0, 1, 1, 106, 109, 0, 0, 0, 1, 1, 106]),
        counted(116, 1, &counted(116, 2, &[97, 1, 106, 97, 1, 106, 106])),
    ];
    assert_eq!(agreed(&terms), (0, terms.len()));
}

#[test]
fn what_we_write_comes_back_from_erlang_unchanged() {
    let mut values = Vec::new();
    for envelope in samples(300, envelope()) {
        values.push(envelope.encode(ValueVersion::V0));
        values.extend(envelope.verification.map(|term| versioned(&term)));
    }
    for row in samples(300, row()) {
        values.push(row.encode(ValueVersion::V0));
        let fresh = PendingRow::new("Elixir.Ankusa.Sink.Http", "s", row.size, ValueVersion::V0);
        values.push(fresh.bytes(row.at_ms));
    }
    let powers = (0..64).map(|bit| 1_u64 << bit);
    for number in powers.flat_map(|power| [power - 1, power]).chain([u64::MAX]) {
        let mut value = Vec::new();
        TermWriter::versioned(&mut value).uint(number);
        values.push(value);
        for signed in [number.cast_signed(), number.cast_signed().wrapping_neg()] {
            let mut value = Vec::new();
            TermWriter::versioned(&mut value).int(signed);
            values.push(value);
        }
    }
    for (value, theirs) in values.iter().zip(erlang(&values)) {
        assert_eq!(theirs.as_deref().map(hex), Some(hex(value)));
    }
}

#[test]
fn whatever_reads_as_a_stored_value_is_a_term_to_erlang() {
    let envelopes = samples(700, damaged(envelope().prop_map(|e| e.encode(ValueVersion::V0))));
    let rows = samples(700, damaged(row().prop_map(|row| row.encode(ValueVersion::V0))));
    let ours = |value: &Vec<u8>| {
        (Envelope::decode(value).is_ok() || DeliveryRow::decode(value).is_ok())
            && !may_differ(value, &Term::decode(value))
    };
    let values: Vec<_> = [envelopes, rows].concat().into_iter().filter(ours).collect();
    assert!(values.len() > 100, "{} of 1400 still read", values.len());
    assert!(erlang(&values).iter().all(Option::is_some));
}

/// The items of a list and what stands where the empty list should; that codec leaves a tail that is a list a tail.
fn flat(list: &eetf::Term) -> (Vec<eetf::Term>, Option<&eetf::Term>) {
    if let eetf::Term::List(list) = list {
        return (list.elements.clone(), None);
    }
    if let eetf::Term::ByteList(list) = list {
        let item = |byte: &u8| eetf::FixInteger::from(*byte).into();
        return (list.bytes.iter().map(item).collect(), None);
    }
    if let eetf::Term::ImproperList(list) = list {
        let (more, tail) = flat(&list.last);
        return ([list.elements.clone(), more].concat(), tail);
    }
    (Vec::new(), Some(list))
}

fn same(ours: &Term<'_>, theirs: &eetf::Term) -> bool {
    let all_same = |ours: &[Term<'_>], theirs: &[eetf::Term]| {
        ours.len() == theirs.len() && ours.iter().zip(theirs).all(|(o, t)| same(o, t))
    };
    match (ours, theirs) {
        (_, eetf::Term::List(_) | eetf::Term::ByteList(_) | eetf::Term::ImproperList(_)) => {
            match (ours, flat(theirs)) {
                (Term::List(items), (theirs, None)) => all_same(items, &theirs),
                (Term::ImproperList(list), (theirs, Some(tail))) => {
                    all_same(&list.0, &theirs) && same(&list.1, tail)
                }
                (leaf, (theirs, Some(tail))) => theirs.is_empty() && same(leaf, tail),
                (_, (_, None)) => false,
            }
        }
        (Term::Int(value), eetf::Term::FixInteger(theirs)) => *value == i64::from(theirs.value),
        (Term::Int(value), eetf::Term::BigInteger(theirs)) => {
            value.to_string() == theirs.value.to_string()
        }
        (Term::BigInt { negative, magnitude }, eetf::Term::BigInteger(theirs)) => {
            let digits: String = magnitude.iter().rev().map(|byte| format!("{byte:02x}")).collect();
            let sign = if *negative { "-" } else { "" };
            format!("{sign}{}", digits.trim_start_matches('0')) == format!("{:x}", theirs.value)
        }
        (Term::Float(value), eetf::Term::Float(theirs)) => {
            value.to_bits() == theirs.value.to_bits()
        }
        (Term::Atom(name), eetf::Term::Atom(theirs)) => *name == theirs.name,
        (Term::Binary(bytes), eetf::Term::Binary(theirs)) => *bytes == theirs.bytes,
        (Term::Binary(bytes), eetf::Term::BitBinary(theirs)) => {
            theirs.tail_bits_size == 8 && *bytes == theirs.bytes
        }
        (Term::Bits { bytes, bits }, eetf::Term::BitBinary(theirs)) => {
            // It keeps the last bits at the low end of their byte.
            let (last, whole) = bytes.split_last().unwrap();
            let moved = [whole, &[last >> (8 - bits)]].concat();
            *bits == theirs.tail_bits_size && moved == theirs.bytes
        }
        (Term::Tuple(elements), eetf::Term::Tuple(theirs)) => all_same(elements, &theirs.elements),
        (Term::Map(pairs), eetf::Term::Map(theirs)) => {
            let found = |key, value| theirs.map.iter().any(|(k, v)| same(key, k) && same(value, v));
            pairs.len() == theirs.map.len() && pairs.iter().all(|(key, value)| found(key, value))
        }
        (_, _) => false,
    }
}

#[test]
fn another_codec_reads_the_same_value_from_undamaged_terms() {
    let mut compared = 0;
    // It reads printed floats to fewer digits.
    for term in samples(1500, term_without_printed_floats()) {
        let value = versioned(&term);
        // It collapses a key that occurs twice, and knows only the half of Latin-1 that is ASCII.
        let Ok(ours) = Term::decode(&value) else { continue };
        let Ok(theirs) = eetf::Term::decode(&value[..]) else { continue };
        assert!(same(&ours, &theirs), "{}: {ours:?} is not {theirs:?}", hex(&value));
        compared += 1;
    }
    assert!(compared > 1000, "{compared} compared");
}
