//! Tenant ordinals, both ways, and the counters kept for each.

use std::ops::Range;

use super::raw::{Fields, Reader};
use super::starting_with;
use crate::model::counters::Field;
use crate::model::ids::TenantOrd;

/// `?t` of the `tenants` family: an ordinal. The value is the tenant's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenantKey(pub TenantOrd);

impl TenantKey {
    pub const TAG: u8 = b't';
    pub const SIZE: usize = 1 + 4;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).tenant(self.0).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self(fields.tenant()?);
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }
}

/// `?n` of the `tenants` family: a tenant's id. The value is its ordinal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TenantNameKey<'a>(pub &'a str);

impl<'a> TenantNameKey<'a> {
    pub const TAG: u8 = b'n';

    pub fn encode(&self) -> Vec<u8> {
        [&[Self::TAG], self.0.as_bytes()].concat()
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let id = std::str::from_utf8(fields.remaining()).ok()?;
        (!id.is_empty()).then_some(Self(id))
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], 0)
    }

    pub fn value(tenant: TenantOrd) -> [u8; 4] {
        Fields::new().tenant(tenant).done()
    }

    pub fn read_value(bytes: &[u8]) -> Option<TenantOrd> {
        let mut fields = Reader::new(bytes);
        let tenant = fields.tenant()?;
        fields.done(tenant)
    }
}

/// A counter of a tenant, or of the node under [`TenantOrd::NODE`]; the key of the `counters` family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CounterKey {
    pub tenant: TenantOrd,
    pub field: Field,
}

impl CounterKey {
    pub const SIZE: usize = 4 + 1;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().tenant(self.tenant).u8(self.field.number()).done()
    }

    /// `None` also for a field this release does not know.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let key = Self { tenant: fields.tenant()?, field: Field::from_number(fields.u8()?)? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[], Self::SIZE)
    }

    pub fn of_tenant(tenant: TenantOrd) -> Range<Vec<u8>> {
        starting_with(&Fields::<4>::new().tenant(tenant).done(), 1)
    }
}

const _: () = assert!(TenantKey::SIZE == 5 && CounterKey::SIZE == 5);
