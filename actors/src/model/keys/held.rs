//! The quarantine pen and the audit trail: families of their own.

use std::ops::Range;

use super::raw::{Fields, Reader};
use super::{after_all, starting_with};

/// The two rows of a held envelope.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum QuarantinePart {
    /// `?b`: what was held.
    Body,
    /// `?s`: who, when, why and how large.
    Summary,
}

impl QuarantinePart {
    pub const fn tag(self) -> u8 {
        match self {
            Self::Body => b'b',
            Self::Summary => b's',
        }
    }
}

/// A held envelope, in `quarantine`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QuarantineKey<'a> {
    pub part: QuarantinePart,
    /// Unix milliseconds.
    pub received_at_ms: u64,
    pub id: &'a [u8],
}

impl<'a> QuarantineKey<'a> {
    pub fn encode(&self) -> Vec<u8> {
        let head = Fields::<9>::tagged(self.part.tag()).u64(self.received_at_ms).done();
        [&head, self.id].concat()
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let part = match bytes.first()? {
            b'b' => QuarantinePart::Body,
            b's' => QuarantinePart::Summary,
            _other => return None,
        };
        let mut fields = Reader::tagged(bytes, part.tag())?;
        let received_at_ms = fields.u64()?;
        let id = fields.remaining();
        (!id.is_empty()).then_some(Self { part, received_at_ms, id })
    }

    /// The rows of one part received from `from_ms` up to and including `until_ms`.
    pub fn between(part: QuarantinePart, from_ms: u64, until_ms: u64) -> Range<Vec<u8>> {
        let time = |at_ms| Fields::<9>::tagged(part.tag()).u64(at_ms).done();
        time(from_ms).to_vec()..after_all(&time(until_ms), 0)
    }
}

/// `?a` of the `audit` family: one change, in commit order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditKey {
    pub audit_seq: u64,
    /// Unix milliseconds.
    pub at_ms: u64,
}

impl AuditKey {
    pub const TAG: u8 = b'a';
    pub const SIZE: usize = 1 + 8 + 8;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).u64(self.audit_seq).u64(self.at_ms).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self { audit_seq: fields.u64()?, at_ms: fields.u64()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }
}

/// `?p` of the `audit` family: a change still in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AuditPendingKey {
    pub audit_seq: u64,
}

impl AuditPendingKey {
    pub const TAG: u8 = b'p';
    pub const SIZE: usize = 1 + 8;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::tagged(Self::TAG).u64(self.audit_seq).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let key = Self { audit_seq: fields.u64()? };
        fields.done(key)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], Self::SIZE)
    }
}

const _: () = assert!(AuditKey::SIZE == 17 && AuditPendingKey::SIZE == 9);
