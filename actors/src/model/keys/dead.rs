//! Dead letters, twice: in the node's time order and by tenant.

use std::ops::Range;

use super::deliveries::DeliveryKey;
use super::raw::{Fields, Reader};
use super::starting_with;
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
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self { at_ms: fields.u64()?, seq: fields.seq()?, sink: fields.u16()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    /// Rows that died at `at_ms` or later.
    pub fn since(at_ms: u64) -> Range<Vec<u8>> {
        Fields::<9>::tagged(Self::TAG).u64(at_ms).done().to_vec()..Self::all().end
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
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
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

impl DeadValue<'_> {
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![131, 104, if self.tenant.is_some() { 3 } else { 2 }];
        for text in [self.source_id, self.hook_id] {
            out.push(109);
            out.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        }
        if let Some(tenant) = self.tenant {
            out.extend(crate::model::counters::value(i64::from(tenant.0)).iter().skip(1));
        }
        out
    }
}

const _: () = assert!(DeadKey::SIZE == 19 && DeadByTenantKey::SIZE == 23);
