//! The rules of the term codec, one by one. What a term is at all is Erlang's to say: see `etf_differential.rs`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod terms;

use ankusa_actors::model::etf::{EtfError, MAX_DEPTH, Reader, Term, TermWriter};

use self::terms::{counted, versioned};

fn written(write: impl FnOnce(&mut TermWriter<'_>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut TermWriter::bare(&mut out));
    out
}

#[test]
fn integers_take_the_smallest_encoding_that_holds_them() {
    let cases: [(i64, &[u8]); 12] = [
        (0, &[97, 0]),
        (255, &[97, 255]),
        (256, &[98, 0, 0, 1, 0]),
        (-1, &[98, 255, 255, 255, 255]),
        ((1 << 31) - 1, &[98, 127, 255, 255, 255]),
        (1 << 31, &[110, 4, 0, 0, 0, 0, 128]),
        (-(1 << 31), &[98, 128, 0, 0, 0]),
        (-(1 << 31) - 1, &[110, 4, 1, 1, 0, 0, 128]),
        (1 << 40, &[110, 6, 0, 0, 0, 0, 0, 0, 1]),
        (1_688_169_000_086, &[110, 6, 0, 0x96, 0xac, 0xb6, 0x0e, 0x89, 0x01]),
        (i64::MAX, &[110, 8, 0, 255, 255, 255, 255, 255, 255, 255, 127]),
        (i64::MIN, &[110, 8, 1, 0, 0, 0, 0, 0, 0, 0, 128]),
    ];
    for (value, bytes) in cases {
        assert_eq!(written(|writer| writer.int(value)), bytes, "{value}");
        assert_eq!(Reader::bare(bytes).int(), Ok(value));
        assert_eq!(Reader::bare(bytes).term(), Ok(Term::Int(value)));
    }
    let most = [110, 8, 0, 255, 255, 255, 255, 255, 255, 255, 255];
    assert_eq!(written(|writer| writer.uint(u64::MAX)), most);
    assert_eq!(Reader::bare(&most).uint(), Ok(u64::MAX));
    assert_eq!(
        Reader::bare(&most).int(),
        Err(EtfError::Unexpected { wanted: "an integer", at: 11 })
    );
}

#[test]
fn a_list_a_tuple_and_a_map_are_written_as_documented() {
    let list = |items: &[i64]| {
        written(|writer| writer.list(items.iter(), |writer, item| writer.int(*item)))
    };
    assert_eq!(list(&[]), [106]);
    assert_eq!(list(&[1, 256]), [108, 0, 0, 0, 2, 97, 1, 98, 0, 0, 1, 0, 106]);
    let map = written(|writer| {
        writer.map(4, |map| {
            map.key("a").bool(true);
            let pair = map.key("b");
            pair.tuple(2);
            pair.int(1);
            pair.optional_atom(Some("x"));
            map.raw_pair(&[106], &[97, 7]);
            map.binary_key(b"c").optional_text(None);
        });
    });
    let pairs: [&[u8]; 4] = [
        &[119, 1, b'a', 119, 4, b't', b'r', b'u', b'e'],
        &[119, 1, b'b', 104, 2, 97, 1, 119, 1, b'x'],
        &[106, 97, 7],
        &[109, 0, 0, 0, 1, b'c', 119, 3, b'n', b'i', b'l'],
    ];
    assert_eq!(map, counted(116, 4, &pairs.concat()));
}

#[test]
fn an_atom_longer_than_255_bytes_has_a_long_length() {
    let name = "é".repeat(255);
    let atom = written(|writer| writer.atom(&name));
    assert_eq!(atom, [&[118, 1, 254], name.as_bytes()].concat());
    assert_eq!(Reader::bare(&atom).atom().unwrap(), name);
}

#[test]
#[should_panic(expected = "an atom has at most 255 characters")]
fn an_atom_of_256_characters_is_not_written() {
    written(|writer| writer.atom(&"a".repeat(256)));
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "map keys rise")]
fn a_map_whose_keys_do_not_rise_is_not_written() {
    written(|writer| {
        writer.map(2, |map| {
            map.key("b").nil();
            map.key("a").nil();
        });
    });
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "a map holds as many pairs as it announced")]
fn a_map_of_fewer_pairs_than_announced_is_not_written() {
    written(|writer| writer.map(2, |map| map.key("a").nil()));
}

#[test]
fn damage_is_named_with_its_place() {
    let cases: [(&[u8], EtfError); 17] = [
        (&[], EtfError::NoVersion),
        (&[130, 106], EtfError::NoVersion),
        (&[131], EtfError::Truncated { at: 0 }),
        (&[131, 97], EtfError::Truncated { at: 1 }),
        (&[131, 98, 0, 0, 0], EtfError::Truncated { at: 4 }),
        (&[131, 109, 0, 0, 0, 3, 1, 2], EtfError::Truncated { at: 7 }),
        (&[131, 110, 3, 0, 1, 1], EtfError::Truncated { at: 5 }),
        (&[131, 106, 106], EtfError::Trailing { bytes: 1 }),
        (&[131, 104, 1, 82, 0], EtfError::UnknownTag { tag: 82, at: 2 }),
        (&[131, 80, 0, 0, 0, 1], EtfError::UnknownTag { tag: 80, at: 0 }),
        (&[131, 119, 1, 255], EtfError::Malformed { what: "atom", at: 3 }),
        (&[131, 77, 0, 0, 0, 1, 9, 0], EtfError::Malformed { what: "bitstring", at: 7 }),
        (&[131, 70, 127, 240, 0, 0, 0, 0, 0, 0], EtfError::Malformed { what: "float", at: 9 }),
        (&[131, 112, 0, 0, 0, 3], EtfError::Malformed { what: "function", at: 5 }),
        // Counts larger than what is left, though the first items are there.
        (&[131, 108, 255, 255, 255, 255, 106, 106], EtfError::Truncated { at: 7 }),
        (&[131, 116, 0, 0, 0, 2, 97, 1, 106], EtfError::Truncated { at: 8 }),
        (
            &[131, 116, 0, 0, 0, 2, 97, 1, 106, 98, 0, 0, 0, 1, 106],
            EtfError::DuplicateKey { at: 14 },
        ),
    ];
    for (bytes, error) in cases {
        assert_eq!(Term::decode(bytes), Err(error), "{bytes:?}");
    }
}

#[test]
fn a_container_needs_room_for_all_it_claims_before_any_of_it_is_read() {
    // Read one by one, the first of these items would be an unknown tag.
    let containers = [
        counted(108, 2, &[82, 82]),
        counted(116, 2, &[82, 82, 82]),
        counted(105, 3, &[82, 82]),
        vec![104, 2, 82],
    ];
    for bytes in containers {
        let at = bytes.len();
        assert_eq!(Reader::bare(&bytes).term(), Err(EtfError::Truncated { at }), "{bytes:?}");
    }
}

#[test]
fn the_same_value_has_the_same_canonical_bytes() {
    let canonical = |bytes: &[u8]| Reader::bare(bytes).term().unwrap().canonical();
    let pairs: [[Vec<u8>; 2]; 6] = [
        [vec![97, 1], vec![98, 0, 0, 0, 1]],
        [vec![100, 0, 1, b'a'], vec![119, 1, b'a']],
        [vec![107, 0, 1, 7], counted(108, 1, &[97, 7, 106])],
        [vec![104, 1, 106], counted(105, 1, &[106])],
        // Bits that do not count.
        [counted(77, 1, &[3, 0b1010_0000]), counted(77, 1, &[3, 0b1011_1111])],
        [counted(116, 2, &[97, 1, 106, 97, 2, 106]), counted(116, 2, &[97, 2, 106, 97, 1, 106])],
    ];
    for [one, other] in &pairs {
        assert_eq!(canonical(one), canonical(other));
    }
    let bits = |byte| counted(77, 1, &[3, byte]);
    assert_eq!(canonical(&bits(0b1011_1111)), bits(0b1010_0000));
}

#[test]
fn nesting_stops_at_the_limit_whatever_the_container() {
    let list = |inner: Vec<u8>| counted(108, 1, &[inner, vec![106]].concat());
    let tuple = |inner: Vec<u8>| [vec![104, 1], inner].concat();
    let key = |inner: Vec<u8>| counted(116, 1, &[inner, vec![106]].concat());
    let value = |inner: Vec<u8>| counted(116, 1, &[vec![106], inner].concat());
    let around: [&dyn Fn(Vec<u8>) -> Vec<u8>; 4] = [&list, &tuple, &key, &value];
    for (which, wrap) in around.into_iter().enumerate() {
        let deepest = (0..MAX_DEPTH).fold(vec![97, 1], |inner, _| wrap(inner));
        assert!(Reader::bare(&deepest).term().is_ok(), "{which}");
        assert!(Reader::bare(&deepest).skip().is_ok(), "{which}");
        let deeper = wrap(deepest);
        assert!(matches!(Reader::bare(&deeper).term(), Err(EtfError::TooDeep { .. })), "{which}");
        assert!(matches!(Reader::bare(&deeper).skip(), Err(EtfError::TooDeep { .. })), "{which}");
    }
}

#[test]
fn depth_is_how_deep_not_how_many() {
    let many = counted(108, 500, &[[104, 1, 106].repeat(500), vec![106]].concat());
    assert!(Reader::bare(&many).term().is_ok());
    assert!(Reader::bare(&many).skip().is_ok());
    let maps = counted(108, 500, &[counted(116, 0, &[]).repeat(500), vec![106]].concat());
    assert!(Reader::bare(&maps).term().is_ok());
    assert!(Reader::bare(&maps).skip().is_ok());
}

#[test]
fn a_chain_of_tails_is_one_list_however_long() {
    let links = counted(108, 1, &[97, 7]).repeat(100_000);
    let chain = [links, vec![106]].concat();
    assert_eq!(Reader::bare(&chain).term(), Ok(Term::List(vec![Term::Int(7); 100_000])));
    let empty = [counted(108, 0, &[]).repeat(100_000), vec![97, 7]].concat();
    assert_eq!(Reader::bare(&empty).term(), Ok(Term::Int(7)));
    assert_eq!(Reader::bare(&empty).uint(), Ok(7));
}

#[test]
fn many_keys_are_compared_quickly_and_found_when_equal() {
    let keys = |kind: fn(u32) -> Vec<u8>, count: u32, last: u32| {
        let pairs: Vec<_> =
            (0..count).chain([last]).map(|n| [kind(n), vec![106]].concat()).collect();
        counted(116, pairs.len(), &pairs.concat())
    };
    let binary = |n: u32| counted(109, 4, &n.to_be_bytes());
    let atom = |n: u32| [&[119, 6], format!("{n:06}").as_bytes()].concat();
    let mixed = |n: u32| [&[104, 1, 98], &n.to_be_bytes()[..]].concat();
    for kind in [binary, atom, mixed] {
        assert!(Reader::bare(&keys(kind, 50_000, 50_000)).skip().is_ok());
        let twice = keys(kind, 50_000, 31);
        let at = twice.len();
        assert_eq!(Reader::bare(&twice).skip(), Err(EtfError::DuplicateKey { at }));
        assert_eq!(Reader::bare(&twice).map(|_, v| v.skip()), Err(EtfError::DuplicateKey { at }));
    }
}

#[test]
fn a_foreign_value_survives_as_its_raw_bytes() {
    let pid = [&[88, 119, 3, b'a', b'@', b'b'][..], &[0; 12]].concat();
    let reference = [&[90, 0, 2, 119, 1, b'n'][..], &[1; 4 + 8]].concat();
    let port = [&[120, 119, 1, b'n'][..], &[2; 12]].concat();
    let export = [113, 119, 1, b'm', 119, 1, b'f', 97, 2].to_vec();
    let function = counted(112, 4 + 30, &[3; 30]);
    let old_pid = [&[103, 100, 0, 1, b'n'][..], &[0; 9]].concat();
    let old_reference = [&[114, 0, 1, 100, 0, 1, b'n'][..], &[0; 1 + 4]].concat();
    let oldest_reference = [&[101, 100, 0, 1, b'n'][..], &[0; 5]].concat();
    let old_port = [&[102, 100, 0, 1, b'n'][..], &[0; 5]].concat();
    let newer_port = [&[89, 100, 0, 1, b'n'][..], &[0; 8]].concat();
    let all = [
        pid,
        reference,
        port,
        export,
        function,
        old_pid,
        old_reference,
        oldest_reference,
        old_port,
        newer_port,
    ];
    for raw in all {
        let reason = [&[104, 2], &raw[..], &[97, 1]].concat();
        let expected = Term::Tuple(vec![Term::Opaque(&raw), Term::Int(1)]);
        assert_eq!(Reader::bare(&reason).term(), Ok(expected));
        let mut reader = Reader::bare(&reason);
        reader.tuple(2).unwrap();
        assert_eq!(reader.raw(), Ok(&raw[..]));
        assert_eq!(reader.uint(), Ok(1));
        assert_eq!(reader.end(), Ok(()));
        assert!(Reader::bare(&raw[..raw.len() - 1]).skip().is_err());
    }
}

#[test]
fn an_expected_shape_refuses_every_other() {
    let nil = [119, 3, b'n', b'i', b'l'];
    assert_eq!(Reader::bare(&nil).optional_binary(), Ok(None));
    assert_eq!(Reader::bare(&nil).optional_text(), Ok(None));
    assert_eq!(Reader::bare(&nil).optional_atom(), Ok(None));
    assert_eq!(refusal(Reader::bare(&nil).binary()), "expected a binary before byte 5");
    assert_eq!(refusal(Reader::bare(&nil).text()), "expected a text before byte 5");
    assert_eq!(refusal(Reader::bare(&nil).bool()), "expected true or false before byte 5");
    assert_eq!(refusal(Reader::bare(&[97, 1]).atom()), "expected an atom before byte 2");
    let text = counted(109, 1, &[255]);
    assert_eq!(Reader::bare(&text).binary(), Ok(&[255][..]));
    assert_eq!(refusal(Reader::bare(&text).text()), "expected UTF-8 before byte 6");
    assert_eq!(refusal(Reader::bare(&text).atom()), "expected an atom before byte 6");
    let minus_one = [98, 255, 255, 255, 255];
    let expected = "expected a non-negative integer before byte 5";
    assert_eq!(refusal(Reader::bare(&minus_one).uint()), expected);
    let large = [110, 5, 0, 0, 0, 0, 0, 1];
    let expected = "expected an integer below 2^32 before byte 8";
    assert_eq!(refusal(Reader::bare(&large).uint32()), expected);
    assert_eq!(Reader::bare(&[98, 127, 0, 0, 0]).uint32(), Ok(127 << 24));
}

#[test]
fn an_expected_container_refuses_every_other() {
    let expected = "expected a tuple of another size before byte 2";
    assert_eq!(refusal(Reader::bare(&[104, 0]).tuple(1)), expected);
    assert_eq!(refusal(Reader::bare(&[97, 1]).tuple(1)), expected);
    assert_eq!(Reader::bare(&[105, 0, 0, 0, 1, 106]).tuple(1), Ok(()));
    let items = |bytes: &[u8]| {
        let mut seen = Vec::new();
        Reader::bare(bytes)
            .list(|item| {
                seen.push(item.uint()?);
                Ok::<_, EtfError>(())
            })
            .map(|()| seen)
    };
    assert_eq!(items(&[106]), Ok(vec![]));
    assert_eq!(items(&counted(108, 2, &[97, 1, 97, 2, 106])), Ok(vec![1, 2]));
    let expected = "expected a list before byte 9";
    assert_eq!(refusal(items(&counted(108, 1, &[97, 1, 97, 1]))), expected);
    assert_eq!(refusal(items(&[107, 0, 1, 1])), "expected a list before byte 4");
    let no_map = Reader::bare(&[106]).map(|_, value| value.skip());
    assert_eq!(refusal(no_map), "expected a map before byte 1");
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, EtfError>) -> String {
    answer.unwrap_err().to_string()
}

#[test]
fn a_value_is_found_by_its_key() {
    let bytes = versioned(&counted(116, 2, &[97, 1, 97, 2, 119, 1, b'k', 109, 0, 0, 0, 1, 9]));
    let map = Term::decode(&bytes).unwrap();
    assert_eq!(map.get("k").and_then(Term::as_binary), Some(&[9][..]));
    assert_eq!(map.get("missing"), None);
    assert_eq!(Term::Int(1).get("k"), None);
    assert_eq!(Term::Int(-1).as_u64(), None);
}

#[test]
fn a_term_reads_as_a_person_would_write_it() {
    let atom = |name: &'static str| Term::Atom(name.into());
    let big = |negative, magnitude| Term::BigInt { negative, magnitude };
    let cases = [
        (atom("nil"), "nil"),
        (atom("no_match"), ":no_match"),
        (atom("Elixir.Ankusa.Sink.Http"), "Ankusa.Sink.Http"),
        (atom("two words"), ":\"two words\""),
        (atom(""), ":\"\""),
        (atom("Elixir."), ":\"Elixir.\""),
        (Term::Binary(b"say \"hi\"\n"), "\"say \\\"hi\\\"\\n\""),
        (Term::Binary(&[1, 255]), "<<1, 255>>"),
        (Term::Bits { bytes: &[7, 0b1010_0000], bits: 3 }, "<<7, 5::size(3)>>"),
        (Term::Float(2.0), "2.0"),
        (big(true, &[0, 0, 0, 0, 0, 0, 0, 0, 1]), "-18446744073709551616"),
        (big(false, &[1; 17]), "0x0101010101010101010101010101010101"),
        (Term::List(vec![]), "[]"),
        (Term::List(vec![Term::Int(104), Term::Int(105)]), "~c\"hi\""),
        (Term::List(vec![Term::Int(104), Term::Int(300)]), "[104, 300]"),
        (Term::ImproperList(Box::new((vec![Term::Int(1)], atom("b")))), "[1 | :b]"),
        (Term::Tuple(vec![atom("status"), Term::Int(503)]), "{:status, 503}"),
        (Term::Map(vec![(atom("a"), Term::Int(1)), (Term::Int(2), atom("b"))]), "%{a: 1, 2 => :b}"),
        (Term::Opaque(&[88]), "#Opaque<>"),
    ];
    for (term, text) in cases {
        assert_eq!(term.to_string(), text);
    }
}

#[test]
fn a_long_text_is_cut_at_a_whole_character() {
    let term = Term::Binary("ééé".as_bytes());
    assert_eq!(term.text(8), "\"ééé\"");
    assert_eq!(term.text(7), "\"ééé…");
    assert_eq!(term.text(4), "\"é…");
    assert_eq!(term.text(0), "…");
}
