//! The encodings of a term, tag by tag.

use std::borrow::Cow;

use super::reader::Reader;
use super::{EtfError, MAX_ATOM_CHARS, Term, le_u64, tag};

/// What a tag and the fixed part after it announce.
pub(super) enum Shape<'a> {
    Leaf(Term<'a>),
    /// A list of small integers; empty for the empty list.
    Bytes(&'a [u8]),
    /// This many items, then a tail.
    List(usize),
    Tuple(usize),
    /// This many pairs.
    Map(usize),
}

impl<'a> Reader<'a> {
    pub(super) fn shape(&mut self) -> Result<Shape<'a>, EtfError> {
        loop {
            let at = self.at();
            let leaf = match self.u8()? {
                tag::SMALL_INTEGER => Term::Int(i64::from(self.u8()?)),
                tag::INTEGER => Term::Int(i64::from(i32::from_be_bytes(self.array()?))),
                tag::SMALL_BIG => {
                    let bytes = usize::from(self.u8()?);
                    self.big(bytes)?
                }
                tag::LARGE_BIG => {
                    let bytes = self.length()?;
                    self.big(bytes)?
                }
                tag::NEW_FLOAT => {
                    let value = f64::from_be_bytes(self.array()?);
                    self.finite(value)?
                }
                tag::FLOAT => self.printed_float()?,
                tag::SMALL_ATOM_UTF8 => {
                    let bytes = usize::from(self.u8()?);
                    self.atom_utf8(bytes)?
                }
                tag::ATOM_UTF8 => {
                    let bytes = usize::from(self.u16()?);
                    self.atom_utf8(bytes)?
                }
                tag::SMALL_ATOM => {
                    let bytes = usize::from(self.u8()?);
                    self.atom_latin1(bytes)?
                }
                tag::ATOM => {
                    let bytes = usize::from(self.u16()?);
                    self.atom_latin1(bytes)?
                }
                tag::BINARY => {
                    let bytes = self.length()?;
                    Term::Binary(self.take(bytes)?)
                }
                tag::BIT_BINARY => self.bits()?,
                tag::NIL => return Ok(Shape::Bytes(&[])),
                tag::STRING => {
                    let bytes = usize::from(self.u16()?);
                    return Ok(Shape::Bytes(self.take(bytes)?));
                }
                tag::LIST => match self.count(1, 1)? {
                    // A list of no items is its tail.
                    0 => continue,
                    items => return Ok(Shape::List(items)),
                },
                tag::SMALL_TUPLE => {
                    let arity = usize::from(self.u8()?);
                    return self.fitting(arity, 1, 0).map(Shape::Tuple);
                }
                tag::LARGE_TUPLE => return self.count(1, 0).map(Shape::Tuple),
                tag::MAP => return self.count(2, 0).map(Shape::Map),
                foreign => self.opaque(foreign, at)?,
            };
            return Ok(Shape::Leaf(leaf));
        }
    }

    /// Values that mean something only to the machine that made them, measured.
    fn opaque(&mut self, tag: u8, at: usize) -> Result<Term<'a>, EtfError> {
        let after_node = match tag {
            tag::PID => 9,
            tag::NEW_PID | tag::V4_PORT => 12,
            tag::PORT | tag::REFERENCE => 5,
            tag::NEW_PORT => 8,
            tag::NEW_REFERENCE => 1 + 4 * usize::from(self.u16()?),
            tag::NEWER_REFERENCE => 4 + 4 * usize::from(self.u16()?),
            tag::EXPORT => {
                self.atom()?;
                // The arity follows the two names, as an integer of one byte.
                2
            }
            tag::NEW_FUN => return self.function(at),
            tag => return Err(EtfError::UnknownTag { tag, at }),
        };
        self.atom()?;
        self.take(after_node)?;
        Ok(Term::Opaque(self.since(at)))
    }

    /// A function tells its own size, the size field included.
    fn function(&mut self, at: usize) -> Result<Term<'a>, EtfError> {
        const SIZE_FIELD: usize = 4;
        let size = self.length()?;
        let rest = size.checked_sub(SIZE_FIELD).ok_or_else(|| self.malformed("function"))?;
        self.take(rest)?;
        Ok(Term::Opaque(self.since(at)))
    }

    /// The bytes from `at`, where this reader was before.
    pub(super) fn since(&self, at: usize) -> &'a [u8] {
        self.whole.get(at..self.at()).unwrap_or_default()
    }

    fn big(&mut self, bytes: usize) -> Result<Term<'a>, EtfError> {
        let negative = self.u8()? != 0;
        let padded = self.take(bytes)?;
        let used = padded.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let magnitude = padded.get(..used).unwrap_or_default();
        let small = le_u64(magnitude).map(i128::from).map(|m| if negative { -m } else { m });
        let int = small.and_then(|value| i64::try_from(value).ok());
        Ok(int.map_or(Term::BigInt { negative, magnitude }, Term::Int))
    }

    fn finite(&self, value: f64) -> Result<Term<'a>, EtfError> {
        if value.is_finite() { Ok(Term::Float(value)) } else { Err(self.malformed("float")) }
    }

    /// A float as digits, padded with zero bytes: how the oldest releases stored one.
    fn printed_float(&mut self) -> Result<Term<'a>, EtfError> {
        const SIZE: usize = 31;
        let field = self.take(SIZE)?;
        let printed = field.split(|byte| *byte == 0).next().unwrap_or_default();
        let text = std::str::from_utf8(printed).map_err(|_| self.malformed("float"))?;
        if !is_printed_float(text) {
            return Err(self.malformed("float"));
        }
        let value = text.replace(',', ".").parse().map_err(|_| self.malformed("float"))?;
        self.finite(value)
    }

    fn atom_utf8(&mut self, bytes: usize) -> Result<Term<'a>, EtfError> {
        let name = std::str::from_utf8(self.take(bytes)?).map_err(|_| self.malformed("atom"))?;
        if name.len() > MAX_ATOM_CHARS && name.chars().count() > MAX_ATOM_CHARS {
            return Err(self.malformed("atom"));
        }
        Ok(Term::Atom(Cow::Borrowed(name)))
    }

    fn atom_latin1(&mut self, bytes: usize) -> Result<Term<'a>, EtfError> {
        let name = self.take(bytes)?;
        if name.len() > MAX_ATOM_CHARS {
            return Err(self.malformed("atom"));
        }
        let ascii = std::str::from_utf8(name).ok().filter(|_| name.is_ascii());
        let wide = || Cow::Owned(name.iter().map(|byte| char::from(*byte)).collect());
        Ok(Term::Atom(ascii.map_or_else(wide, Cow::Borrowed)))
    }

    fn bits(&mut self) -> Result<Term<'a>, EtfError> {
        let length = self.length()?;
        let bits = self.u8()?;
        let bytes = self.take(length)?;
        match bits {
            0 if bytes.is_empty() => Ok(Term::Binary(bytes)),
            1..=7 if !bytes.is_empty() => Ok(Term::Bits { bytes, bits }),
            8 if !bytes.is_empty() => Ok(Term::Binary(bytes)),
            _other => Err(self.malformed("bitstring")),
        }
    }

    /// A count of items that take at least `each` bytes, with at least `after` bytes behind them.
    fn count(&mut self, each: usize, after: usize) -> Result<usize, EtfError> {
        let count = self.length()?;
        self.fitting(count, each, after)
    }

    fn fitting(&self, count: usize, each: usize, after: usize) -> Result<usize, EtfError> {
        let least = count.checked_mul(each).and_then(|bytes| bytes.checked_add(after));
        match least {
            Some(least) if least <= self.rest.len() => Ok(count),
            Some(_) | None => Err(self.truncated()),
        }
    }

    fn length(&mut self) -> Result<usize, EtfError> {
        let length = u32::from_be_bytes(self.array()?);
        usize::try_from(length).map_err(|_| self.malformed("length"))
    }

    fn u8(&mut self) -> Result<u8, EtfError> {
        self.array::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Result<u16, EtfError> {
        self.array().map(u16::from_be_bytes)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N], EtfError> {
        let (taken, rest) = self.rest.split_first_chunk::<N>().ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(*taken)
    }

    #[inline]
    fn take(&mut self, length: usize) -> Result<&'a [u8], EtfError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or_else(|| self.truncated())?;
        self.rest = rest;
        Ok(taken)
    }

    pub(super) fn at(&self) -> usize {
        self.whole.len() - self.rest.len()
    }

    #[cold]
    fn truncated(&self) -> EtfError {
        EtfError::Truncated { at: self.whole.len() }
    }

    fn malformed(&self, what: &'static str) -> EtfError {
        EtfError::Malformed { what, at: self.at() }
    }
}

/// `[+-]digits[.,]digits` and maybe `[eE][+-]digits`: Rust alone would also take `inf`, `1.` and `1`.
fn is_printed_float(text: &str) -> bool {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let signed = |text: &str| digits(text.strip_prefix(['+', '-']).unwrap_or(text));
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let Some((whole, fraction)) = mantissa.split_once(['.', ',']) else { return false };
    signed(whole) && digits(fraction) && exponent.is_none_or(signed)
}
