//! What keeps a hook besides its rows (the archive obligation), what records that something was cleared, and what hangs
//! on the hook: its claim-check reference, the lease of its pack, the segment that holds it.

use std::ops::Range;

use super::deliveries::HookKey;
use super::raw::{Fields, Reader};
use super::{after_all, starting_with};
use crate::model::ids::{Seq, TenantOrd};

/// `?a`: the hook is owed to the archive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchiveKey(pub Seq);

impl ArchiveKey {
    pub const TAG: u8 = b'a';
    pub const SIZE: usize = 1 + 8;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).seq(self.0).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self(fields.seq()?);
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    /// Obligations of the hooks above `seq`.
    pub fn after(seq: Seq) -> Range<Vec<u8>> {
        after_all(&Self(seq).encode(), 0)..Self::all().end
    }
}

/// The value of `?a`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ArchiveValue {
    /// Bytes of the stored hook value.
    pub size: u32,
    pub tenant: TenantOrd,
}

impl ArchiveValue {
    pub const SIZE: usize = 4 + 4;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().u32(self.size).tenant(self.tenant).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let value = Self { size: fields.u32()?, tenant: fields.tenant()? };
        fields.done(value)
    }
}

/// Which obligation a marker says is cleared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClearedKind {
    Delivery,
    /// Always with sink 0.
    Archive,
}

impl ClearedKind {
    pub const fn code(self) -> u8 {
        match self {
            Self::Delivery => 0,
            Self::Archive => 1,
        }
    }
}

/// `?c`: an obligation of the hook was cleared, and the hook is to be looked at. The value is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClearedKey {
    pub seq: Seq,
    pub kind: ClearedKind,
    pub sink: u16,
}

impl ClearedKey {
    pub const TAG: u8 = b'c';
    pub const SIZE: usize = 1 + 8 + 1 + 2;

    pub const fn delivery(seq: Seq, sink: u16) -> Self {
        Self { seq, kind: ClearedKind::Delivery, sink }
    }

    pub const fn archive(seq: Seq) -> Self {
        Self { seq, kind: ClearedKind::Archive, sink: 0 }
    }

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).seq(self.seq).u8(self.kind.code()).u16(self.sink).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let seq = fields.seq()?;
        let kind = match fields.u8()? {
            0 => ClearedKind::Delivery,
            1 => ClearedKind::Archive,
            _unknown => return None,
        };
        let key = Self { seq, kind, sink: fields.u16()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }

    /// Every marker of one hook.
    pub fn of_hook(seq: Seq) -> Range<Vec<u8>> {
        starting_with(&Fields::<9>::tagged(Self::TAG).seq(seq).done(), Self::SIZE)
    }
}

/// `?k`: where the body of the hook lies, if it is held outside. The value is a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRefKey(pub Seq);

impl ClaimRefKey {
    pub const TAG: u8 = b'k';
    pub const SIZE: usize = 1 + 8;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).seq(self.0).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self(fields.seq()?);
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }
}

/// Characters of a claim pack's id.
const PACK_ID_SIZE: usize = 26;

/// `?l`: a hook holds a pack of claims. The value is a u64: 0 while the hook lives, then the end of its grace in Unix
/// milliseconds.
///
/// The documented system names the row and not its bytes, so the layout is ours: tenant, 00, the 26 characters of the
/// pack id, seq. All leases of one pack are one range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseKey<'a> {
    pub tenant: &'a str,
    pub pack_id: [u8; PACK_ID_SIZE],
    pub seq: Seq,
}

impl<'a> LeaseKey<'a> {
    pub const TAG: u8 = b'l';

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Self::pack_prefix(self.tenant, &self.pack_id);
        out.extend_from_slice(&HookKey::encode(HookKey(self.seq)));
        out
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let tenant = fields.text_to_nul()?;
        let pack_id = fields.take(PACK_ID_SIZE)?.try_into().ok()?;
        let key = Self { tenant, pack_id, seq: fields.seq()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], 0)
    }

    pub fn of_pack(tenant: &str, pack_id: &[u8; PACK_ID_SIZE]) -> Range<Vec<u8>> {
        starting_with(&Self::pack_prefix(tenant, pack_id), HookKey::SIZE)
    }

    fn pack_prefix(tenant: &str, pack_id: &[u8]) -> Vec<u8> {
        [&[Self::TAG], tenant.as_bytes(), &[0], pack_id].concat()
    }
}

/// `?S` of the `archive` family: a segment, by its first seq. The value is a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentKey(pub Seq);

impl SegmentKey {
    pub const TAG: u8 = b'S';
    pub const SIZE: usize = 1 + 8;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).seq(self.0).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self(fields.seq()?);
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }
}

/// `?L` of the `archive` family: where a 0.3 node's archive holds an event. The value is a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegacyLocationKey<'a>(pub &'a [u8]);

impl<'a> LegacyLocationKey<'a> {
    pub const TAG: u8 = b'L';

    pub fn encode(&self) -> Vec<u8> {
        [&[Self::TAG], self.0].concat()
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let id = fields.remaining();
        (!id.is_empty()).then_some(Self(id))
    }
}

const _: () = assert!(ArchiveKey::SIZE == 9 && ArchiveValue::SIZE == 8 && ClearedKey::SIZE == 12);
const _: () = assert!(ClaimRefKey::SIZE == 9 && SegmentKey::SIZE == 9);
