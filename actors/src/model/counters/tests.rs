use proptest::prelude::*;

use super::*;

fn folded(bytes: Vec<u8>) -> Folded {
    Folded { bytes, unreadable: 0 }
}

fn ascii_text(number: i64) -> Vec<u8> {
    number.to_string().into_bytes()
}

/// A delta as an operand, in either documented form.
fn any_operand() -> impl Strategy<Value = Vec<u8>> {
    (any::<i64>(), any::<bool>())
        .prop_map(|(delta, text)| if text { ascii_text(delta) } else { operand(delta) })
}

fn slices(operands: &[Vec<u8>]) -> impl Iterator<Item = &[u8]> {
    operands.iter().map(Vec::as_slice)
}

#[test]
fn a_first_operand_becomes_the_value() {
    assert_eq!(fold(None, [operand(3).as_slice()]), folded(value(3)));
    assert_eq!(fold(None, []), folded(value(0)));
}

#[test]
fn terms_and_ascii_decimals_add_up_alike() {
    let both = [operand(-7), b"12".to_vec(), b"+2".to_vec()];
    assert_eq!(fold(Some(b"5"), slices(&both)), folded(value(12)));
    assert_eq!(fold(Some(&value(5)), slices(&both)), folded(value(12)));
    assert_eq!(fold_operands(slices(&both)), folded(operand(7)));
}

#[test]
fn integers_of_every_width_are_written_as_a_virtual_machine_does() {
    for (number, hex) in [
        (0, "836100"),
        (255, "8361ff"),
        (256, "836200000100"),
        (2_147_483_647, "83627fffffff"),
        (2_147_483_648, "836e040000000080"),
        (-1, "8362ffffffff"),
        (-2_147_483_648, "836280000000"),
        (-2_147_483_649, "836e040101000080"),
        (1_688_169_000_086, "836e060096acb60e8901"),
        (i64::MAX, "836e0800ffffffffffffff7f"),
        (i64::MIN, "836e08010000000000000080"),
    ] {
        let written: String = value(number).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(written, hex, "{number}");
        assert_eq!(read(&value(number)), Some(number));
        assert_eq!(read(&operand(number)), Some(number));
    }
}

#[test]
fn atoms_of_older_virtual_machines_are_read() {
    assert_eq!(read(b"\x83\x68\x02\x64\x00\x07int_add\x61\x05"), Some(5));
    assert_eq!(read(b"\x83\x68\x02\x73\x07int_add\x61\x05"), Some(5));
}

#[test]
fn what_is_no_number_counts_as_nothing_and_is_reported() {
    let junk: [&[u8]; 12] = [
        b"",
        b"\x83",
        b"\x83\x61",
        b"\x83\x61\x01\x00",
        b"\x83\x62\x00\x00\x00",
        b"\x83\x6e\x01\x02\x05",
        b"\x83\x6e\x02\x00\x05",
        b"\x83\x6e\x11\x00\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01\x01",
        b"\x83\x68\x02\x77\x07int_sub\x61\x01",
        b"1x",
        b"\xff",
        b"99999999999999999999999999999999999999999",
    ];
    for bytes in junk {
        assert_eq!(read(bytes), None, "{bytes:?}");
    }
    let operands = junk.into_iter().chain([b"4".as_slice()]);
    assert_eq!(fold(Some(&value(3)), operands), Folded { bytes: value(7), unreadable: 12 });
    assert_eq!(fold_operands(junk), Folded { bytes: operand(0), unreadable: 12 });
    assert_eq!(fold(Some(b"junk"), [b"4".as_slice()]), Folded { bytes: value(4), unreadable: 1 });
}

#[test]
fn a_sum_past_64_bits_comes_back_once_it_is_taken_down_again() {
    let beyond = fold(Some(&value(i64::MAX)), [operand(i64::MAX).as_slice()]);
    assert_eq!(beyond.unreadable, 0);
    assert_eq!(read(&beyond.bytes), Some(i64::MAX));
    assert_eq!(fold(Some(&beyond.bytes), [operand(-i64::MAX).as_slice()]), folded(value(i64::MAX)));
    assert_eq!(read(&fold(Some(&value(i64::MIN)), [b"-1".as_slice()]).bytes), Some(i64::MIN));
}

#[test]
fn every_field_has_its_own_number_name_and_place() {
    for (at, field) in Field::ALL.into_iter().enumerate() {
        assert_eq!(field.index(), at);
        assert_eq!(usize::from(field.number()), at + 1);
        assert_eq!(Field::from_number(field.number()), Some(field));
    }
    assert_eq!(Field::from_number(0), None);
    assert_eq!(Field::from_number(13), None);
    let documented = [Field::Dedupe, Field::DeadBytes, Field::ClaimLeases];
    assert_eq!(
        documented.map(|field| (field.number(), field.as_str())),
        [(7, "dedupe"), (8, "dead_bytes"), (9, "claim_leases"),]
    );
}

proptest! {
    #[test]
    fn the_fold_is_the_sum_of_what_it_reads(
        start in any::<i32>(),
        deltas in prop::collection::vec(any::<i32>(), 0..20),
    ) {
        let operands: Vec<_> = deltas.iter().map(|delta| operand(i64::from(*delta))).collect();
        let sum = deltas.iter().fold(i64::from(start), |sum, delta| sum + i64::from(*delta));
        prop_assert_eq!(fold(Some(&value(i64::from(start))), slices(&operands)), folded(value(sum)));
    }

    #[test]
    fn any_grouping_of_the_operands_folds_to_the_same(
        start in prop::option::of(any::<i64>().prop_map(value)),
        groups in prop::collection::vec(prop::collection::vec(any_operand(), 0..5), 0..5),
    ) {
        let start = start.as_deref();
        let flat: Vec<_> = groups.concat();
        let whole = fold(start, slices(&flat));
        // Operands folded among themselves first, as a compaction does.
        let partial: Vec<_> = groups.iter().map(|group| fold_operands(slices(group)).bytes).collect();
        prop_assert_eq!(&fold(start, slices(&partial)), &whole);
        let again = fold_operands(slices(&partial)).bytes;
        prop_assert_eq!(&fold(start, [again.as_slice()]), &whole);
        // Or the value made in steps.
        let stepwise = groups.iter().fold(start.map(<[u8]>::to_vec), |value, group| {
            Some(fold(value.as_deref(), slices(group)).bytes)
        });
        prop_assert_eq!(stepwise.unwrap_or_else(|| whole.bytes.clone()), whole.bytes);
    }

    #[test]
    fn no_bytes_fail_the_fold(
        start in prop::option::of(prop::collection::vec(any::<u8>(), 0..24)),
        operands in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..24), 0..4),
        tail in prop::collection::vec(any::<u8>(), 0..20),
    ) {
        let mut almost = operand(1);
        almost.truncate(12);
        almost.extend(tail);
        let operands: Vec<_> = operands.into_iter().chain([almost]).collect();
        let result = fold(start.as_deref(), slices(&operands));
        prop_assert!(read(&result.bytes).is_some());
        prop_assert!(read(&fold_operands(slices(&operands)).bytes).is_some());
    }
}
