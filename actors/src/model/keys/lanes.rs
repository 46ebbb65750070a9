//! Ordering lanes: one row of a lane is due or claimed, the others wait in seq order.

use std::ops::Range;

use super::deliveries::DeliveryKey;
use super::raw::{Fields, Reader};
use super::starting_with;
use crate::model::ids::{Seq, TenantOrd};

/// One lane of one tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneKey {
    pub tenant: TenantOrd,
    pub lane: u128,
}

impl LaneKey {
    pub const fn head(self) -> LaneHeadKey {
        LaneHeadKey { tenant: self.tenant, lane: self.lane }
    }

    pub const fn marker(self) -> LaneMarkerKey {
        LaneMarkerKey { tenant: self.tenant, lane: self.lane }
    }

    /// Its members from `seq` on, in the order they will be tried.
    pub fn members_from(self, seq: Seq) -> Range<Vec<u8>> {
        let Self { tenant, lane } = self;
        let first = LaneMemberKey { tenant, lane, seq, sink: 0 }.encode().to_vec();
        first..LaneMemberKey::of_lane(tenant, lane).end
    }
}

/// `?O`: a pending row that waits its turn, and has no due key. The value is a [`super::SizeValue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneMemberKey {
    pub tenant: TenantOrd,
    pub lane: u128,
    pub seq: Seq,
    pub sink: u16,
}

impl LaneMemberKey {
    pub const TAG: u8 = b'O';
    pub const SIZE: usize = 1 + 4 + 16 + 8 + 2;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG)
            .tenant(self.tenant)
            .u128(self.lane)
            .seq(self.seq)
            .u16(self.sink)
            .done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self {
            tenant: fields.tenant()?,
            lane: fields.u128()?,
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

    /// The members of one lane, in the order they will be tried.
    pub fn of_lane(tenant: TenantOrd, lane: u128) -> Range<Vec<u8>> {
        let prefix = Fields::<21>::tagged(Self::TAG).tenant(tenant).u128(lane).done();
        starting_with(&prefix, Self::SIZE)
    }

    pub const fn row(self) -> DeliveryKey {
        DeliveryKey { seq: self.seq, sink: self.sink }
    }

    /// The lane it is in.
    pub const fn of(self) -> LaneKey {
        LaneKey { tenant: self.tenant, lane: self.lane }
    }
}

/// `?H`: the lane is busy; the value names its one row that is due or claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneHeadKey {
    pub tenant: TenantOrd,
    pub lane: u128,
}

impl LaneHeadKey {
    pub const TAG: u8 = b'H';
    pub const SIZE: usize = 1 + 4 + 16;

    /// The lane it is of.
    pub const fn of(self) -> LaneKey {
        LaneKey { tenant: self.tenant, lane: self.lane }
    }

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).tenant(self.tenant).u128(self.lane).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self { tenant: fields.tenant()?, lane: fields.u128()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    pub fn of_tenant(tenant: TenantOrd) -> Range<Vec<u8>> {
        starting_with(&Fields::<5>::tagged(Self::TAG).tenant(tenant).done(), Self::SIZE)
    }
}

/// The value of `?H`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneHeadValue {
    pub seq: Seq,
    pub sink: u16,
}

impl LaneHeadValue {
    pub const SIZE: usize = 8 + 2;

    pub const fn row(self) -> DeliveryKey {
        DeliveryKey { seq: self.seq, sink: self.sink }
    }

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().seq(self.seq).u16(self.sink).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let value = Self { seq: fields.seq()?, sink: fields.u16()? };
        fields.done(value)
    }
}

/// `?P`: the lane may have members and no head. The value is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LaneMarkerKey {
    pub tenant: TenantOrd,
    pub lane: u128,
}

impl LaneMarkerKey {
    pub const TAG: u8 = b'P';
    pub const SIZE: usize = 1 + 4 + 16;

    /// The lane it is of.
    pub const fn of(self) -> LaneKey {
        LaneKey { tenant: self.tenant, lane: self.lane }
    }

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).tenant(self.tenant).u128(self.lane).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self { tenant: fields.tenant()?, lane: fields.u128()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }
}

const _: () = assert!(LaneMemberKey::SIZE == 31 && LaneHeadKey::SIZE == 21);
const _: () = assert!(LaneHeadValue::SIZE == 10 && LaneMarkerKey::SIZE == 21);
