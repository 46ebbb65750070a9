//! Ingest dedupe: a provider's event key, and when it expires.

use std::ops::Range;

use super::raw::{Fields, Reader};
use super::{after_all, starting_with};
use crate::model::ids::HookId;

/// `?u`: a provider's event key, in its source and tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupeKey<'a> {
    tenant: &'a str,
    source_id: &'a str,
    key: &'a [u8],
}

impl<'a> DedupeKey<'a> {
    pub const TAG: u8 = b'u';

    /// `None` where the bytes could not be told apart again: a tenant with a NUL, a source id past 65,535 bytes. Such a
    /// hook is not deduplicated.
    pub fn new(tenant: &'a str, source_id: &'a str, key: &'a [u8]) -> Option<Self> {
        let separable = !tenant.contains('\0') && u16::try_from(source_id.len()).is_ok();
        separable.then_some(Self { tenant, source_id, key })
    }

    pub const fn tenant(&self) -> &'a str {
        self.tenant
    }

    pub const fn source_id(&self) -> &'a str {
        self.source_id
    }

    pub const fn key(&self) -> &'a [u8] {
        self.key
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(1 + self.len());
        out.push(Self::TAG);
        self.write(&mut out);
        out
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        Self::read(Reader::tagged(bytes, Self::TAG)?)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], 0)
    }

    /// Bytes of [`Self::write`].
    fn len(&self) -> usize {
        self.tenant.len() + 1 + 2 + self.source_id.len() + self.key.len()
    }

    fn write(&self, out: &mut Vec<u8>) {
        // `new` has checked the length.
        let source_len = u16::try_from(self.source_id.len()).unwrap_or(u16::MAX);
        out.extend_from_slice(self.tenant.as_bytes());
        out.push(0);
        out.extend_from_slice(&source_len.to_be_bytes());
        out.extend_from_slice(self.source_id.as_bytes());
        out.extend_from_slice(self.key);
    }

    fn read(mut fields: Reader<'a>) -> Option<Self> {
        let tenant = fields.text_to_nul()?;
        let source_len = usize::from(fields.u16()?);
        let source_id = std::str::from_utf8(fields.take(source_len)?).ok()?;
        Some(Self { tenant, source_id, key: fields.remaining() })
    }
}

/// The value of `?u`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DedupeValue {
    /// Unix milliseconds; the key is live while this is in the future.
    pub expires_at_ms: u64,
    /// The hook that came first.
    pub original: HookId,
}

impl DedupeValue {
    pub const SIZE: usize = 8 + HookId::SIZE;

    pub fn encode(self) -> [u8; Self::SIZE] {
        Fields::new().u64(self.expires_at_ms).raw(self.original.as_str().as_bytes()).done()
    }

    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let mut fields = Reader::new(bytes);
        let expires_at_ms = fields.u64()?;
        let original = HookId::parse(std::str::from_utf8(fields.remaining()).ok()?)?;
        Some(Self { expires_at_ms, original })
    }
}

/// What stands under a dedupe key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    Nothing,
    /// A value that is none: whoever comes next takes its place.
    Unreadable,
    By(DedupeValue),
}

impl Held {
    /// What a read of the key has answered.
    pub fn read(value: Option<&[u8]>) -> Self {
        match value {
            None => Self::Nothing,
            Some(value) => DedupeValue::decode(value).map_or(Self::Unreadable, Self::By),
        }
    }

    /// The value, if it is live at this moment.
    pub fn live_at(self, now_ms: u64) -> Option<DedupeValue> {
        match self {
            Self::By(value) if value.expires_at_ms > now_ms => Some(value),
            Self::By(_) | Self::Unreadable | Self::Nothing => None,
        }
    }
}

/// `?e`: when a dedupe key expires. The value is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExpiryKey<'a> {
    /// Unix milliseconds.
    pub expires_at_ms: u64,
    pub dedupe: DedupeKey<'a>,
}

impl<'a> ExpiryKey<'a> {
    pub const TAG: u8 = b'e';

    pub fn encode(&self) -> Vec<u8> {
        let time = Self::time(self.expires_at_ms);
        let mut out = Vec::with_capacity(time.len() + self.dedupe.len());
        out.extend_from_slice(&time);
        self.dedupe.write(&mut out);
        out
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let mut fields = Reader::tagged(bytes, Self::TAG)?;
        let expires_at_ms = fields.u64()?;
        Some(Self { expires_at_ms, dedupe: DedupeKey::read(fields)? })
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(&[Self::TAG], 0)
    }

    /// Every key that has expired by `now_ms`, inclusive.
    pub fn expired_by(now_ms: u64) -> Range<Vec<u8>> {
        vec![Self::TAG]..after_all(&Self::time(now_ms), 0)
    }

    fn time(at_ms: u64) -> [u8; 9] {
        Fields::tagged(Self::TAG).u64(at_ms).done()
    }
}

const _: () = assert!(DedupeValue::SIZE == 44);
