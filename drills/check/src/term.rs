//! A reader of Erlang's external term format, for the terms a store holds.
//!
//! It is written from the format's public description and knows nothing of the node's own codec. Every length is checked
//! against the bytes that are left before anything is allocated, nesting is bounded, and a term must use up its bytes.

use thiserror::Error;

/// Terms nested deeper than this are refused.
const DEPTH_MAX: usize = 64;

/// A term. Binaries and atoms borrow from the bytes they were read from.
#[derive(Clone, Debug, PartialEq)]
pub enum Term<'a> {
    /// An integer of at most 15 bytes; bigger ones are [`Term::Opaque`].
    Int(i128),
    Float(f64),
    /// An atom. Latin-1 atoms with bytes from 0x80 on are [`Term::Opaque`].
    Atom(&'a str),
    Binary(&'a [u8]),
    Tuple(Vec<Term<'a>>),
    /// A proper list; the empty list is one.
    List(Vec<Term<'a>>),
    /// Key and value, in the order in which they were written.
    Map(Vec<(Term<'a>, Term<'a>)>),
    /// A term that was skipped over correctly and that no invariant asks about.
    Opaque(&'a [u8]),
}

impl<'a> Term<'a> {
    /// The value a map has under an atom key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&Term<'a>> {
        let Term::Map(pairs) = self else { return None };
        pairs.iter().find(|(name, _)| *name == Term::Atom(key)).map(|(_, value)| value)
    }

    /// The bytes of a binary.
    #[must_use]
    pub fn as_binary(&self) -> Option<&'a [u8]> {
        if let Term::Binary(bytes) = self { Some(bytes) } else { None }
    }

    /// The text of a binary that is UTF-8.
    #[must_use]
    pub fn as_text(&self) -> Option<&'a str> {
        std::str::from_utf8(self.as_binary()?).ok()
    }

    /// The value of an integer.
    #[must_use]
    pub fn as_int(&self) -> Option<i128> {
        if let Term::Int(value) = self { Some(*value) } else { None }
    }

    /// Whether this is the atom `nil`.
    #[must_use]
    pub fn is_nil(&self) -> bool {
        *self == Term::Atom("nil")
    }
}

/// Why bytes are not a term.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TermError {
    #[error("does not start with the version byte 131")]
    NoVersion,
    #[error("ends before the term does")]
    Truncated,
    #[error("goes on for {0} bytes after the term")]
    Trailing(usize),
    #[error("is nested deeper than {DEPTH_MAX}")]
    TooDeep,
    #[error("has the unknown tag {0}")]
    UnknownTag(u8),
    #[error("has an atom that is not UTF-8")]
    BadAtom,
}

/// Reads a term, version byte first, and nothing after it.
///
/// # Errors
/// When the bytes are not exactly one term of the kinds a store holds.
pub fn read(bytes: &[u8]) -> Result<Term<'_>, TermError> {
    let Some((131, rest)) = bytes.split_first() else { return Err(TermError::NoVersion) };
    let mut reader = Reader { rest };
    let term = reader.term(0)?;
    match reader.rest.len() {
        0 => Ok(term),
        left => Err(TermError::Trailing(left)),
    }
}

struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], TermError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(TermError::Truncated)?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], TermError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(TermError::Truncated)?;
        self.rest = rest;
        Ok(*taken)
    }

    fn byte(&mut self) -> Result<u8, TermError> {
        self.array().map(u8::from_be_bytes)
    }

    /// A 32-bit length or count.
    fn length(&mut self) -> Result<usize, TermError> {
        usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| TermError::Truncated)
    }

    fn term(&mut self, depth: usize) -> Result<Term<'a>, TermError> {
        if depth > DEPTH_MAX {
            return Err(TermError::TooDeep);
        }
        let start = self.rest;
        match self.byte()? {
            97 => Ok(Term::Int(self.byte()?.into())),
            98 => Ok(Term::Int(i32::from_be_bytes(self.array()?).into())),
            70 => Ok(Term::Float(f64::from_be_bytes(self.array()?))),
            110 => {
                let length = usize::from(self.byte()?);
                self.big(start, length)
            }
            111 => {
                let length = self.length()?;
                self.big(start, length)
            }
            119 | 115 => {
                let length = usize::from(self.byte()?);
                self.atom(length)
            }
            118 | 100 => {
                let length = usize::from(u16::from_be_bytes(self.array()?));
                self.atom(length)
            }
            109 => {
                let length = self.length()?;
                Ok(Term::Binary(self.take(length)?))
            }
            77 => {
                let length = self.length()?;
                self.byte()?;
                self.take(length)?;
                Ok(self.opaque_since(start))
            }
            104 => {
                let count = usize::from(self.byte()?);
                Ok(Term::Tuple(self.terms(count, depth)?))
            }
            105 => {
                let count = self.length()?;
                Ok(Term::Tuple(self.terms(count, depth)?))
            }
            106 => Ok(Term::List(Vec::new())),
            107 => {
                let length = usize::from(u16::from_be_bytes(self.array()?));
                Ok(Term::List(
                    self.take(length)?.iter().map(|byte| Term::Int((*byte).into())).collect(),
                ))
            }
            108 => self.list(start, depth),
            116 => self.map(depth),
            tag => Err(TermError::UnknownTag(tag)),
        }
    }

    /// Sign byte and magnitude, little endian.
    fn big(&mut self, start: &'a [u8], length: usize) -> Result<Term<'a>, TermError> {
        let negative = self.byte()? != 0;
        let magnitude = self.take(length)?;
        if length > 15 {
            return Ok(self.opaque_since(start));
        }
        let value =
            magnitude.iter().rev().fold(0_i128, |value, byte| value * 256 + i128::from(*byte));
        Ok(Term::Int(if negative { -value } else { value }))
    }

    fn atom(&mut self, length: usize) -> Result<Term<'a>, TermError> {
        std::str::from_utf8(self.take(length)?).map(Term::Atom).map_err(|_| TermError::BadAtom)
    }

    /// `count` terms. Each is at least one byte, so a count that lies ends at the end of the bytes; no room is reserved
    /// on its word.
    fn terms(&mut self, count: usize, depth: usize) -> Result<Vec<Term<'a>>, TermError> {
        if count > self.rest.len() {
            return Err(TermError::Truncated);
        }
        (0..count).map(|_| self.term(depth + 1)).collect()
    }

    fn list(&mut self, start: &'a [u8], depth: usize) -> Result<Term<'a>, TermError> {
        let count = self.length()?;
        let items = self.terms(count, depth)?;
        let is_proper = self.term(depth + 1)? == Term::List(Vec::new());
        Ok(if is_proper { Term::List(items) } else { self.opaque_since(start) })
    }

    fn map(&mut self, depth: usize) -> Result<Term<'a>, TermError> {
        let count = self.length()?;
        if count > self.rest.len() / 2 {
            return Err(TermError::Truncated);
        }
        let pairs: Result<_, TermError> =
            (0..count).map(|_| Ok((self.term(depth + 1)?, self.term(depth + 1)?))).collect();
        Ok(Term::Map(pairs?))
    }

    /// Everything read since `start`, unread.
    fn opaque_since(&self, start: &'a [u8]) -> Term<'a> {
        Term::Opaque(start.get(..start.len() - self.rest.len()).unwrap_or(start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_hex(hex: &str) -> Vec<u8> {
        (0..hex.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap())
            .collect()
    }

    /// A reason with a tuple, a list of characters, a list of bytes, a float, a negative, a bit string, an improper list and
    /// 2^300: made by Erlang itself.
    const REASON: &str = "8374000000017706726561736f6e680877076261645f7369676b00036162636b0003010203463ff800000000000062fffffffb4d0000000103a06c000000017701617701626e26000000000000000000000000000000000000000000000000000000000000000000000000000010";

    #[test]
    fn every_kind_of_term_is_read() {
        let bytes = read_hex(REASON);
        let ints = |values: &[i128]| Term::List(values.iter().copied().map(Term::Int).collect());
        let Ok(term) = read(&bytes) else { panic!("refused") };
        let Some(Term::Tuple(reason)) = term.get("reason") else { panic!("no reason in {term:?}") };
        assert_eq!(
            reason[..5],
            [
                Term::Atom("bad_sig"),
                ints(&[97, 98, 99]),
                ints(&[1, 2, 3]),
                Term::Float(1.5),
                Term::Int(-5)
            ]
        );
        assert!(reason[5..].iter().all(|term| matches!(term, Term::Opaque(_))), "{reason:?}");
        assert_eq!(reason.len(), 8);
    }

    #[test]
    fn integers_are_read_at_every_width() {
        for (hex, value) in [
            ("836103", 3),
            ("8362ffffffff", -1),
            ("836e050000f2052a01", 5_000_000_000),
            ("836e0801ffffffffffffff7f", -i128::from(i64::MAX)),
            ("836f0000000500 00f2052a01", 5_000_000_000),
        ] {
            assert_eq!(read(&read_hex(&hex.replace(' ', ""))), Ok(Term::Int(value)), "{hex}");
        }
    }

    #[test]
    fn a_term_cut_anywhere_is_refused() {
        let bytes = read_hex(REASON);
        for length in 1..bytes.len() {
            assert_eq!(read(&bytes[..length]), Err(TermError::Truncated), "{length} bytes");
        }
        assert_eq!(read(&[]), Err(TermError::NoVersion));
        assert_eq!(read(&[131, 97, 1, 0]), Err(TermError::Trailing(1)));
    }

    #[test]
    fn a_count_that_lies_is_refused_without_an_allocation() {
        for tag in [105_u8, 108, 109, 111, 116] {
            assert_eq!(
                read(&[131, tag, 255, 255, 255, 255, 97, 1]),
                Err(TermError::Truncated),
                "tag {tag}"
            );
        }
    }

    #[test]
    fn endless_nesting_and_unknown_tags_are_refused() {
        let nested = |depth: usize| [vec![131], [104, 1].repeat(depth), vec![97, 1]].concat();
        assert!(read(&nested(64)).is_ok());
        assert_eq!(read(&nested(65)), Err(TermError::TooDeep));
        assert_eq!(read(&nested(300_000)), Err(TermError::TooDeep));
        assert_eq!(read(&[131, 82, 0]), Err(TermError::UnknownTag(82)));
    }
}
