//! Hooks, delivery rows, and where a pending row stands: due or claimed, with its tenant's active marker.

use std::ops::Range;

use super::raw::{Fields, Reader};
use super::{after_all, starting_with};
use crate::model::ids::{Seq, TenantOrd};

/// A committed hook, in `hooks`. The value is the encoded envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HookKey(pub Seq);

impl HookKey {
    pub const SIZE: usize = 8;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().seq(self.0).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let key = Self(fields.seq()?);
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[], Self::SIZE)
    }

    /// Hooks with a seq above `seq`.
    pub fn after(seq: Seq) -> Range<Vec<u8>> {
        after_all(&Self(seq).encode(), 0)..Self::all().end
    }

    /// Hooks from `first` up to, but not including, `end`.
    pub fn between(first: Seq, end: Seq) -> Range<Vec<u8>> {
        Self(first).encode().to_vec()..Self(end).encode().to_vec()
    }
}

/// What is owed to one sink of one hook, in `deliveries`. The value is the encoded row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeliveryKey {
    pub seq: Seq,
    /// The sink's place in its source's list when the hook was acked.
    pub sink: u16,
}

impl DeliveryKey {
    pub const SIZE: usize = 8 + 2;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().seq(self.seq).u16(self.sink).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let key = Self { seq: fields.seq()?, sink: fields.u16()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[], Self::SIZE)
    }

    /// Every row of one hook.
    pub fn of_hook(seq: Seq) -> Range<Vec<u8>> {
        starting_with(&HookKey(seq).encode(), 2)
    }

    /// The rows of the hooks from `first` up to, but not including, `end`.
    pub fn between(first: Seq, end: Seq) -> Range<Vec<u8>> {
        HookKey::between(first, end)
    }
}

/// `?D`: a row that is due at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueKey {
    pub tenant: TenantOrd,
    /// Unix milliseconds.
    pub at_ms: u64,
    pub seq: Seq,
    pub sink: u16,
}

impl DueKey {
    pub const TAG: u8 = b'D';
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

    /// A tenant's rows due from `from_ms` up to and including `until_ms`.
    pub fn due_between(tenant: TenantOrd, from_ms: u64, until_ms: u64) -> Range<Vec<u8>> {
        Self::time(tenant, from_ms).to_vec()..after_all(&Self::time(tenant, until_ms), Self::SIZE)
    }

    /// A tenant's rows due by `until_ms`, inclusive.
    pub fn due_by(tenant: TenantOrd, until_ms: u64) -> Range<Vec<u8>> {
        Self::due_between(tenant, 0, until_ms)
    }

    /// The rows an active marker stands for: due in its second.
    pub fn of_active(active: ActiveKey) -> Range<Vec<u8>> {
        let from_ms = active.second.saturating_mul(1000);
        Self::due_between(active.tenant, from_ms, from_ms.saturating_add(999))
    }

    /// The marker that must exist while this key does.
    pub const fn active(self) -> ActiveKey {
        ActiveKey::at(self.at_ms, self.tenant)
    }

    pub const fn row(self) -> DeliveryKey {
        DeliveryKey { seq: self.seq, sink: self.sink }
    }

    fn time(tenant: TenantOrd, at_ms: u64) -> [u8; 1 + 4 + 8] {
        Fields::tagged(Self::TAG).tenant(tenant).u64(at_ms).done()
    }
}

/// What kind of wait a due key ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DueKind {
    First,
    Retry,
    LaneHeadFirst,
    LaneHeadRetry,
}

impl DueKind {
    pub const ALL: [Self; 4] = [Self::First, Self::Retry, Self::LaneHeadFirst, Self::LaneHeadRetry];

    /// The kind of a row outside any lane that has been tried `attempts` times.
    pub const fn after_attempts(attempts: u32) -> Self {
        if attempts == 0 { Self::First } else { Self::Retry }
    }

    /// Likewise, of one that is put back, and that is the head of a lane where `is_head`: it holds its lane up then.
    pub const fn put_back(is_head: bool, attempts: u32) -> Self {
        if is_head { Self::LaneHeadRetry } else { Self::after_attempts(attempts) }
    }

    /// Likewise, of a row that is tried again because nobody knows how its last attempt ended.
    pub const fn recovered(is_head: bool, attempts: u32) -> Self {
        match (is_head, attempts) {
            (true, 0) => Self::LaneHeadFirst,
            (true, _) => Self::LaneHeadRetry,
            (false, _) => Self::after_attempts(attempts),
        }
    }

    /// Whether the row is the head of a lane.
    pub const fn is_lane_head(self) -> bool {
        match self {
            Self::First | Self::Retry => false,
            Self::LaneHeadFirst | Self::LaneHeadRetry => true,
        }
    }

    pub const fn code(self) -> u8 {
        match self {
            Self::First => 0,
            Self::Retry => 1,
            Self::LaneHeadFirst => 2,
            Self::LaneHeadRetry => 3,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }
}

/// The value of `?D`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DueValue {
    /// Bytes of the stored hook value.
    pub size: u32,
    pub kind: DueKind,
}

impl DueValue {
    pub const SIZE: usize = 4 + 1;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().u32(self.size).u8(self.kind.code()).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let value = Self { size: fields.u32()?, kind: DueKind::from_code(fields.u8()?)? };
        fields.done(value)
    }
}

/// The value of `?F` and `?O`: bytes of the stored hook value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SizeValue(pub u32);

impl SizeValue {
    pub const SIZE: usize = 4;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().u32(self.0).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let value = Self(fields.u32()?);
        fields.done(value)
    }
}

/// `?F`: a row claimed by dispatch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimedKey {
    pub tenant: TenantOrd,
    pub seq: Seq,
    pub sink: u16,
}

impl ClaimedKey {
    pub const TAG: u8 = b'F';
    pub const SIZE: usize = 1 + 4 + 8 + 2;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).tenant(self.tenant).seq(self.seq).u16(self.sink).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self { tenant: fields.tenant()?, seq: fields.seq()?, sink: fields.u16()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    pub fn of_tenant(tenant: TenantOrd) -> Range<Vec<u8>> {
        starting_with(&Fields::<5>::tagged(Self::TAG).tenant(tenant).done(), Self::SIZE)
    }

    pub const fn row(self) -> DeliveryKey {
        DeliveryKey { seq: self.seq, sink: self.sink }
    }
}

/// `?A`: the tenant may have a row due in that second. The value is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ActiveKey {
    /// Unix seconds.
    pub second: u64,
    pub tenant: TenantOrd,
}

impl ActiveKey {
    pub const TAG: u8 = b'A';
    pub const SIZE: usize = 1 + 8 + 4;

    /// The marker of a row due at `at_ms`.
    pub const fn at(at_ms: u64, tenant: TenantOrd) -> Self {
        Self { second: at_ms / 1000, tenant }
    }

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).u64(self.second).tenant(self.tenant).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self { second: fields.u64()?, tenant: fields.tenant()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    /// Markers of the seconds up to and including `second`, oldest first.
    pub fn up_to(second: u64) -> Range<Vec<u8>> {
        let last = Fields::<9>::tagged(Self::TAG).u64(second).done();
        vec![Self::TAG]..after_all(&last, Self::SIZE)
    }

    /// Markers of the seconds after `second`, soonest first.
    pub fn after(second: u64) -> Range<Vec<u8>> {
        Self::up_to(second).end..Self::all().end
    }
}

const _: () = assert!(HookKey::SIZE == 8 && DeliveryKey::SIZE == 10);
const _: () = assert!(DueKey::SIZE == 23 && DueValue::SIZE == 5);
const _: () = assert!(ClaimedKey::SIZE == 15 && SizeValue::SIZE == 4 && ActiveKey::SIZE == 13);
