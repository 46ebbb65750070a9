//! Dead letters, twice: in the node's time order and by tenant.

use std::ops::Range;

use super::deliveries::DeliveryKey;
use super::raw::{Fields, Reader as FieldReader};
use super::{after_all, starting_with};
use crate::model::etf::{Reader, TermWriter};
use crate::model::ids::{Seq, TenantOrd};

/// `?x`: a dead row, in the node-wide order of dying. The value names its hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadKey {
    /// Unix milliseconds: when it died.
    pub at_ms: u64,
    pub seq: Seq,
    pub sink: u16,
}

impl DeadKey {
    pub const TAG: u8 = b'x';
    pub const SIZE: usize = 1 + 8 + 8 + 2;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).u64(self.at_ms).seq(self.seq).u16(self.sink).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::tagged(bytes, Self::TAG)?;
        let key = Self { at_ms: fields.u64()?, seq: fields.seq()?, sink: fields.u16()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    /// Rows that died from `from_ms` up to and including `until_ms`.
    pub fn died_between(from_ms: u64, until_ms: u64) -> Range<Vec<u8>> {
        let time = |at_ms| Fields::<9>::tagged(Self::TAG).u64(at_ms).done();
        time(from_ms).to_vec()..after_all(&time(until_ms), Self::SIZE)
    }

    pub const fn row(self) -> DeliveryKey {
        DeliveryKey { seq: self.seq, sink: self.sink }
    }

    pub const fn by_tenant(self, tenant: TenantOrd) -> DeadByTenantKey {
        DeadByTenantKey { tenant, at_ms: self.at_ms, seq: self.seq, sink: self.sink }
    }
}

/// `?X`: the same dead row, by tenant. The value is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeadByTenantKey {
    pub tenant: TenantOrd,
    /// Unix milliseconds: when it died.
    pub at_ms: u64,
    pub seq: Seq,
    pub sink: u16,
}

impl DeadByTenantKey {
    pub const TAG: u8 = b'X';
    pub const SIZE: usize = 1 + 4 + 8 + 8 + 2;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG)
            .tenant(self.tenant)
            .u64(self.at_ms)
            .seq(self.seq)
            .u16(self.sink)
            .done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = FieldReader::tagged(bytes, Self::TAG)?;
        let key = Self {
            tenant: fields.tenant()?,
            at_ms: fields.u64()?,
            seq: fields.seq()?,
            sink: fields.u16()?,
        };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    pub fn of_tenant(tenant: TenantOrd) -> Range<Vec<u8>> {
        starting_with(&Fields::<5>::tagged(Self::TAG).tenant(tenant).done(), Self::SIZE)
    }

    /// A tenant's rows that died from `from_ms` up to and including `until_ms`.
    pub fn died_between(tenant: TenantOrd, from_ms: u64, until_ms: u64) -> Range<Vec<u8>> {
        let time = |at_ms| Fields::<13>::tagged(Self::TAG).tenant(tenant).u64(at_ms).done();
        time(from_ms).to_vec()..after_all(&time(until_ms), Self::SIZE)
    }

    pub const fn dead(self) -> DeadKey {
        DeadKey { at_ms: self.at_ms, seq: self.seq, sink: self.sink }
    }
}

/// The value of `?x`: the term `{source_id, id, ordinal}`. The first formats wrote it without the ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadValue<'a> {
    pub source_id: &'a str,
    pub hook_id: &'a str,
    pub tenant: Option<TenantOrd>,
}

impl<'a> DeadValue<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + self.source_id.len() + self.hook_id.len());
        let mut term = TermWriter::versioned(&mut out);
        term.tuple(if self.tenant.is_some() { 3 } else { 2 });
        term.text(self.source_id);
        term.text(self.hook_id);
        if let Some(tenant) = self.tenant {
            term.uint(tenant.0.into());
        }
        out
    }

    /// Takes both forms.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        Self::read(bytes, 3).or_else(|| Self::read(bytes, 2))
    }

    fn read(bytes: &'a [u8], elements: usize) -> Option<Self> {
        let mut term = Reader::versioned(bytes).ok()?;
        term.tuple(elements).ok()?;
        let (source_id, hook_id) = (term.text().ok()?, term.text().ok()?);
        let tenant = if elements == 3 { Some(TenantOrd(term.uint32().ok()?)) } else { None };
        term.end().ok()?;
        Some(Self { source_id, hook_id, tenant })
    }
}

const _: () = assert!(DeadKey::SIZE == 19 && DeadByTenantKey::SIZE == 23);
