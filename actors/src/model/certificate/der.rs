//! Reads the distinguished encoding of ASN.1: tags of one byte, definite lengths in their shortest form.

use super::BadCertificate;

/// The first byte of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u8);

impl Tag {
    pub(super) const BOOLEAN: Self = Self(0x01);
    pub(super) const INTEGER: Self = Self(0x02);
    pub(super) const BIT_STRING: Self = Self(0x03);
    pub(super) const OCTET_STRING: Self = Self(0x04);
    pub(super) const OBJECT_IDENTIFIER: Self = Self(0x06);
    pub(super) const UTF8_STRING: Self = Self(0x0c);
    pub(super) const PRINTABLE_STRING: Self = Self(0x13);
    pub(super) const IA5_STRING: Self = Self(0x16);
    pub(super) const UTC_TIME: Self = Self(0x17);
    pub(super) const GENERALIZED_TIME: Self = Self(0x18);
    pub(super) const SEQUENCE: Self = Self(0x30);
    pub(super) const SET: Self = Self(0x31);

    pub(super) const fn context(number: u8) -> Self {
        Self(0x80 | number)
    }

    pub(super) const fn context_constructed(number: u8) -> Self {
        Self(0xa0 | number)
    }
}

/// One element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    pub(super) tag: Tag,
    pub(super) content: &'a [u8],
    /// With its tag and length.
    pub(super) whole: &'a [u8],
}

/// A cursor over elements, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// # Errors
    /// [`BadCertificate::Structure`] if something is left.
    pub(super) fn end(&self) -> Result<(), BadCertificate> {
        if self.is_empty() { Ok(()) } else { Err(BadCertificate::Structure) }
    }

    /// # Errors
    /// The end, or what is no element.
    pub(super) fn next(&mut self) -> Result<Element<'a>, BadCertificate> {
        let (&tag, rest) = self.0.split_first().ok_or(BadCertificate::Short)?;
        // A tag of several bytes: no certificate has any.
        if tag & 0x1f == 0x1f {
            return Err(BadCertificate::Encoding);
        }
        let (length, rest) = length(rest)?;
        let (content, rest) = rest.split_at_checked(length).ok_or(BadCertificate::Short)?;
        let taken = self.0.len() - rest.len();
        let whole = self.0.get(..taken).ok_or(BadCertificate::Short)?;
        self.0 = rest;
        Ok(Element { tag: Tag(tag), content, whole })
    }

    /// # Errors
    /// [`BadCertificate::Structure`] if the next element is another, and as [`Der::next`].
    pub(super) fn expect(&mut self, tag: Tag) -> Result<Element<'a>, BadCertificate> {
        let element = self.next()?;
        if element.tag == tag { Ok(element) } else { Err(BadCertificate::Structure) }
    }

    /// The next element if it has this tag.
    ///
    /// # Errors
    /// As [`Der::next`].
    pub(super) fn optional(&mut self, tag: Tag) -> Result<Option<Element<'a>>, BadCertificate> {
        if self.0.first() == Some(&tag.0) { self.next().map(Some) } else { Ok(None) }
    }
}

/// One byte below 128, or how many bytes of length follow: as few as can be, and four at most.
fn length(bytes: &[u8]) -> Result<(usize, &[u8]), BadCertificate> {
    let (&first, rest) = bytes.split_first().ok_or(BadCertificate::Short)?;
    if first < 0x80 {
        return Ok((usize::from(first), rest));
    }
    let count = usize::from(first & 0x7f);
    if !(1..=4).contains(&count) {
        return Err(BadCertificate::Encoding);
    }
    let (digits, rest) = rest.split_at_checked(count).ok_or(BadCertificate::Short)?;
    let length = digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit));
    let is_shortest = digits.first() != Some(&0) && length >= 0x80;
    if is_shortest { Ok((length, rest)) } else { Err(BadCertificate::Encoding) }
}
