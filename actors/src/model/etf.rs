//! Erlang external terms: what every stored value is made of.
//!
//! Our own codec, because the stored bytes must come out the same every time (map keys in a fixed order) and because
//! damaged bytes must come back as an error: lengths are checked against what is left before anything is allocated,
//! nesting is bounded, duplicate map keys are refused, and nothing may follow the term.
//!
//! * [`Reader`] walks a term of a known shape without building it, and gives the raw bytes of what it skips.
//! * [`Term`] is a term of any shape as a tree, for what may hold anything, such as a verification's reason.
//! * [`TermWriter`] appends terms to a buffer, in one pass.
//!
//! Not read, because nothing we store has it: compressed terms, atom cache references, local terms and the functions of
//! releases before R8.

mod reader;
mod shape;
mod text;
mod writer;

use std::borrow::Cow;
use std::collections::BTreeSet;

pub use self::reader::Reader;
pub use self::writer::{MapWriter, TermWriter};

/// The first byte of a term that stands alone.
pub const VERSION: u8 = 131;

/// Containers inside containers, at most.
pub const MAX_DEPTH: usize = 64;

/// Characters in an atom, at most.
pub const MAX_ATOM_CHARS: usize = 255;

mod tag {
    pub(super) const NEW_FLOAT: u8 = 70;
    pub(super) const BIT_BINARY: u8 = 77;
    pub(super) const NEW_PID: u8 = 88;
    pub(super) const NEW_PORT: u8 = 89;
    pub(super) const NEWER_REFERENCE: u8 = 90;
    pub(super) const SMALL_INTEGER: u8 = 97;
    pub(super) const INTEGER: u8 = 98;
    pub(super) const FLOAT: u8 = 99;
    pub(super) const ATOM: u8 = 100;
    pub(super) const REFERENCE: u8 = 101;
    pub(super) const PORT: u8 = 102;
    pub(super) const PID: u8 = 103;
    pub(super) const SMALL_TUPLE: u8 = 104;
    pub(super) const LARGE_TUPLE: u8 = 105;
    pub(super) const NIL: u8 = 106;
    pub(super) const STRING: u8 = 107;
    pub(super) const LIST: u8 = 108;
    pub(super) const BINARY: u8 = 109;
    pub(super) const SMALL_BIG: u8 = 110;
    pub(super) const LARGE_BIG: u8 = 111;
    pub(super) const NEW_FUN: u8 = 112;
    pub(super) const EXPORT: u8 = 113;
    pub(super) const NEW_REFERENCE: u8 = 114;
    pub(super) const SMALL_ATOM: u8 = 115;
    pub(super) const MAP: u8 = 116;
    pub(super) const ATOM_UTF8: u8 = 118;
    pub(super) const SMALL_ATOM_UTF8: u8 = 119;
    pub(super) const V4_PORT: u8 = 120;
}

/// Why bytes are no term, or not the term that was expected. Offsets count from the byte after the version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EtfError {
    #[error("not an external term: it does not start with 131")]
    NoVersion,
    #[error("cut short at byte {at}")]
    Truncated { at: usize },
    #[error("unknown tag {tag} at byte {at}")]
    UnknownTag { tag: u8, at: usize },
    /// The tag is known, what it holds is not allowed.
    #[error("malformed {what} before byte {at}")]
    Malformed { what: &'static str, at: usize },
    #[error("nested deeper than {MAX_DEPTH} at byte {at}")]
    TooDeep { at: usize },
    #[error("a map before byte {at} has the same key twice")]
    DuplicateKey { at: usize },
    #[error("{bytes} bytes after the term")]
    Trailing { bytes: usize },
    /// A well-formed term of another shape.
    #[error("expected {wanted} before byte {at}")]
    Unexpected { wanted: &'static str, at: usize },
    #[error("key {0} is missing")]
    MissingKey(&'static str),
}

/// A term as a tree that borrows its bytes.
///
/// A tree costs up to the size of this enum for each input byte: read large values of a known shape with [`Reader`].
/// Comparison with `==` minds the order of map keys; [`Term::canonical`] does not.
#[derive(Clone, Debug, PartialEq)]
pub enum Term<'a> {
    /// Every integer that fits, however it was encoded.
    Int(i64),
    /// An integer that does not fit: its magnitude, least significant byte first, no zero at the end.
    BigInt {
        negative: bool,
        magnitude: &'a [u8],
    },
    /// Always finite.
    Float(f64),
    Atom(Cow<'a, str>),
    Binary(&'a [u8]),
    /// A bitstring: `bits` (1 to 7) high bits of the last byte count.
    Bits {
        bytes: &'a [u8],
        bits: u8,
    },
    List(Vec<Term<'a>>),
    /// The items and what stands where the empty list should.
    ImproperList(Box<(Vec<Term<'a>>, Term<'a>)>),
    Tuple(Vec<Term<'a>>),
    /// Pairs in the order they were stored.
    Map(Vec<(Term<'a>, Term<'a>)>),
    /// A pid, port, reference or function, as its raw bytes: measured, not looked into.
    Opaque(&'a [u8]),
}

impl<'a> Term<'a> {
    /// Reads a whole value: the version byte, one term, nothing else.
    ///
    /// # Errors
    /// Anything that is not exactly that.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, EtfError> {
        let mut reader = Reader::versioned(bytes)?;
        let term = reader.term()?;
        reader.end()?;
        Ok(term)
    }

    pub fn as_atom(&self) -> Option<&str> {
        if let Self::Atom(name) = self { Some(name) } else { None }
    }

    pub fn as_binary(&self) -> Option<&'a [u8]> {
        if let Self::Binary(bytes) = self { Some(bytes) } else { None }
    }

    /// A non-negative integer up to 2^64 - 1.
    pub fn as_u64(&self) -> Option<u64> {
        if let Self::BigInt { negative: false, magnitude } = self {
            return le_u64(magnitude);
        }
        if let Self::Int(value) = self { u64::try_from(*value).ok() } else { None }
    }

    /// The value of an atom key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Term<'a>> {
        let Self::Map(pairs) = self else { return None };
        pairs.iter().find(|(name, _)| name.as_atom() == Some(key)).map(|(_, value)| value)
    }

    /// Bytes that two terms share exactly when they are the same value: one encoding for each number, atom and list,
    /// and map keys in one order (of their own canonical bytes, which is not the documented order).
    pub fn canonical(&self) -> Vec<u8> {
        let mut out = Vec::new();
        writer::write_canonical(self, &mut out);
        out
    }
}

/// The value of at most eight bytes, least significant first.
fn le_u64(bytes: &[u8]) -> Option<u64> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(wide))
}

/// Whether two of `keys` are the same value. Never quadratic: the keys are foreign. Keys that rise, as we write them,
/// cost one pass.
fn has_duplicates<'k, 'a: 'k>(keys: impl Iterator<Item = &'k Term<'a>> + Clone) -> bool {
    let atom = |key: &'k Term<'a>| key.as_atom().map(str::as_bytes);
    let binary = |key: &'k Term<'a>| key.as_binary();
    if rising(keys.clone().map(atom)) || rising(keys.clone().map(binary)) {
        return false;
    }
    let names: Option<Vec<_>> = keys.clone().map(atom).collect();
    if let Some(mut names) = names.or_else(|| keys.clone().map(binary).collect()) {
        names.sort_unstable();
        return !rising(names.into_iter().map(Some));
    }
    let mut seen = BTreeSet::new();
    !keys.map(Term::canonical).all(|key| seen.insert(key))
}

/// Whether all are there, each greater than the one before. One alone always is.
fn rising<'k>(names: impl Iterator<Item = Option<&'k [u8]>>) -> bool {
    names.is_sorted_by(|one, next| one.is_some() && one < next)
}
