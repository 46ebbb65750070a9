//! Big-endian fields, one after the other.

use crate::model::ids::{Seq, TenantOrd};

/// Fills an array of exactly `N` bytes.
pub(super) struct Fields<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Fields<N> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    pub(super) fn tagged(tag: u8) -> Self {
        Self::new().u8(tag)
    }

    fn put(mut self, field: &[u8]) -> Self {
        let end = self.at + field.len();
        self.bytes[self.at..end].copy_from_slice(field);
        self.at = end;
        self
    }

    pub(super) fn u8(self, value: u8) -> Self {
        self.put(&[value])
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn u128(self, value: u128) -> Self {
        self.put(&value.to_be_bytes())
    }

    pub(super) fn seq(self, seq: Seq) -> Self {
        self.u64(seq.0)
    }

    pub(super) fn tenant(self, tenant: TenantOrd) -> Self {
        self.u32(tenant.0)
    }

    pub(super) fn raw(self, bytes: &[u8]) -> Self {
        self.put(bytes)
    }

    pub(super) fn done(self) -> [u8; N] {
        debug_assert_eq!(self.at, N, "the fields of a key fill its width");
        self.bytes
    }
}

/// Reads fields back; `None` once the bytes run out.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The fields after `tag`, or `None` where another tag stands.
    pub(super) fn tagged(bytes: &'a [u8], tag: u8) -> Option<Self> {
        let (first, rest) = bytes.split_first()?;
        (*first == tag).then_some(Self { rest })
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*field)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_be_bytes)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    pub(super) fn u128(&mut self) -> Option<u128> {
        self.array().map(u128::from_be_bytes)
    }

    pub(super) fn seq(&mut self) -> Option<Seq> {
        self.u64().map(Seq)
    }

    pub(super) fn tenant(&mut self) -> Option<TenantOrd> {
        self.u32().map(TenantOrd)
    }

    pub(super) fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (field, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(field)
    }

    /// Text up to the next 00, which is consumed.
    pub(super) fn text_to_nul(&mut self) -> Option<&'a str> {
        let len = self.rest.iter().position(|byte| *byte == 0)?;
        let field = std::str::from_utf8(self.take(len)?).ok()?;
        self.take(1)?;
        Some(field)
    }

    pub(super) fn remaining(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// `value`, if nothing is left over.
    pub(super) fn done<T>(&self, value: T) -> Option<T> {
        self.rest.is_empty().then_some(value)
    }
}
