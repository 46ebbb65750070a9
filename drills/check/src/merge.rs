//! What a counter's merge operands add up to: needed by whoever reads a store's files without the node.
//!
//! An operand is the term `{int_add, N}`, or ASCII decimal; a value is the term of an integer. This fold is written from
//! that description alone, so that the node's operator and its recount cannot be wrong together.

use crate::term::{self, Term};

/// The name the operator must be registered under.
pub const OPERATOR_NAME: &str = "ErlangMergeOperator";

/// The value that `operands` make of `existing`. Nothing when one of them is no number: the key is then unreadable, as it
/// should be to a judge.
pub fn fold<'a>(
    existing: Option<&[u8]>,
    operands: impl IntoIterator<Item = &'a [u8]>,
) -> Option<Vec<u8>> {
    let start = existing.map_or(Some(0), number)?;
    let sum =
        operands.into_iter().try_fold(start, |sum, operand| sum.checked_add(number(operand)?))?;
    Some(integer_term(sum))
}

/// The number an operand adds or a value holds.
fn number(bytes: &[u8]) -> Option<i128> {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Ok(decimal) = text.parse()
    {
        return Some(decimal);
    }
    match term::read(bytes).ok()? {
        Term::Int(value) => Some(value),
        Term::Tuple(parts) => match parts.as_slice() {
            [Term::Atom("int_add"), Term::Int(delta)] => Some(*delta),
            _ => None,
        },
        Term::Float(_)
        | Term::Atom(_)
        | Term::Binary(_)
        | Term::List(_)
        | Term::Map(_)
        | Term::Opaque(_) => None,
    }
}

/// The term of an integer, in its shortest form.
fn integer_term(value: i128) -> Vec<u8> {
    if let Ok(small) = u8::try_from(value) {
        return vec![131, 97, small];
    }
    if let Ok(int) = i32::try_from(value) {
        return [&[131, 98], int.to_be_bytes().as_slice()].concat();
    }
    let magnitude = value.unsigned_abs().to_le_bytes();
    let length = magnitude.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let header = [131, 110, u8::try_from(length).unwrap_or(u8::MAX), u8::from(value < 0)];
    header.into_iter().chain(magnitude.into_iter().take(length)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLUS_ONE: &[u8] = b"\x83\x68\x02\x77\x07int_add\x61\x01";
    const MINUS_ONE: &[u8] = b"\x83\x68\x02\x77\x07int_add\x62\xff\xff\xff\xff";
    const FIVE_BILLION: &[u8] = b"\x83\x68\x02\x77\x07int_add\x6e\x05\x00\x00\xf2\x05\x2a\x01";

    #[test]
    fn operands_of_both_forms_add_up() {
        assert_eq!(fold(None, [PLUS_ONE, PLUS_ONE, PLUS_ONE]), Some(vec![131, 97, 3]));
        assert_eq!(fold(Some(&[131, 97, 3]), [MINUS_ONE, b"-1", b"2"]), Some(vec![131, 97, 3]));
        assert_eq!(
            fold(None, [FIVE_BILLION]),
            Some(b"\x83\x6e\x05\x00\x00\xf2\x05\x2a\x01".to_vec())
        );
        assert_eq!(fold(None, [MINUS_ONE]), Some(b"\x83\x62\xff\xff\xff\xff".to_vec()));
        assert_eq!(fold(Some(&[131, 97, 7]), []), Some(vec![131, 97, 7]));
    }

    #[test]
    fn every_width_of_a_sum_reads_back() {
        for value in [
            0,
            255,
            256,
            -1,
            i128::from(i32::MIN),
            i128::from(i32::MIN) - 1,
            i128::from(u64::MAX),
            -i128::from(u64::MAX),
        ] {
            assert_eq!(term::read(&integer_term(value)), Ok(Term::Int(value)), "{value}");
        }
    }

    #[test]
    fn what_is_no_number_makes_the_key_unreadable() {
        assert_eq!(fold(None, [b"one".as_slice()]), None);
        assert_eq!(fold(Some(&[131, 106]), [PLUS_ONE]), None);
        assert_eq!(fold(None, [&PLUS_ONE[..PLUS_ONE.len() - 1]]), None);
    }
}
