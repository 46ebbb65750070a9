//! The `default` family: single facts under `m:`, and what the APIs keep (sources, rate limits, replay jobs).

use std::ops::Range;

use super::raw::{Fields, Reader};
use super::starting_with;

/// u64: the seq the next hook gets.
pub const META_NEXT_SEQ: &[u8] = b"m:next_seq";
/// The ordinal the next new tenant gets. Written as u32; read with [`read_tolerant`].
pub const META_NEXT_ORD: &[u8] = b"m:next_ord";
/// The store format. Its bytes are not documented: we write u64, like the seq, and read with [`read_tolerant`].
pub const META_FORMAT_VERSION: &[u8] = b"m:format_version";
/// u64: the last seq known to be synced when the group that carries this was built. Ours: it tells a torn tail of the
/// write-ahead log from a rotten one.
pub const META_SYNCED_THROUGH: &[u8] = b"m:synced_through";
/// 16 characters of lowercase base32: which store this is, for the backups.
pub const META_STORE_ID: &[u8] = b"m:store_id";
/// u64, Unix milliseconds: the last write of the readiness probe.
pub const META_READY_PROBE: &[u8] = b"m:ready_probe";
/// `done` once a 0.3 node's files were imported.
pub const META_MIGRATION: &[u8] = b"m:migration";
pub const META_AUDIT_SEQ: &[u8] = b"m:audit_seq";
pub const META_AUDIT_KEY: &[u8] = b"m:audit_key";
pub const META_INCARNATION: &[u8] = b"m:incarnation";
pub const META_LIFECYCLE_CURSOR: &[u8] = b"m:lifecycle_cursor";

/// The global IP rules of the route guard, once the API has written them. The value is JSON. Ours.
pub const META_ROUTE_RULES: &[u8] = b"m:route_ip_rules";

/// Says `done` once one artifact of a 0.3 node was imported: sources, rate_limits, quarantine, wal, dlq or index.
pub fn imported_key(artifact: &str) -> Vec<u8> {
    [b"m:imported:", artifact.as_bytes()].concat()
}

/// How far the erase of a tenant has come.
pub fn erase_progress_key(tenant: &str) -> Vec<u8> {
    [b"m:erase:", tenant.as_bytes()].concat()
}

/// u64, Unix milliseconds: hooks of the tenant received up to then are gone.
pub fn erased_key(tenant: &str) -> Vec<u8> {
    [b"m:erased:", tenant.as_bytes()].concat()
}

pub fn u64_value(value: u64) -> [u8; 8] {
    Fields::new().u64(value).done()
}

pub fn u32_value(value: u32) -> [u8; 4] {
    Fields::new().u32(value).done()
}

/// Exactly eight bytes.
pub fn read_u64(bytes: &[u8]) -> Option<u64> {
    let mut fields = Reader::new(bytes);
    let value = fields.u64()?;
    fields.done(value)
}

/// A number whose bytes the documented system leaves open: 1, 2, 4 or 8 bytes big-endian, ASCII decimal, or an integer
/// term. Text and terms are tried first: the numbers kept this way are small, and as a plain number either would be
/// enormous.
pub fn read_tolerant(bytes: &[u8]) -> Option<u64> {
    if let Some(number) = crate::model::counters::number(bytes) {
        return u64::try_from(number).ok();
    }
    let mut fields = Reader::new(bytes);
    let value = match bytes.len() {
        1 => u64::from(fields.u8()?),
        2 => u64::from(fields.u16()?),
        4 => u64::from(fields.u32()?),
        8 => fields.u64()?,
        _other => return None,
    };
    Some(value)
}

/// `s:`: a source kept by the API. The value is its JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceKey<'a> {
    pub tenant: &'a str,
    pub name: &'a str,
}

impl<'a> SourceKey<'a> {
    pub const PREFIX: &'static [u8] = b"s:";

    pub fn encode(&self) -> Vec<u8> {
        named(Self::PREFIX, self.tenant, self.name)
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (tenant, name) = read_named(Self::PREFIX, bytes)?;
        Some(Self { tenant, name })
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(Self::PREFIX, 0)
    }
}

/// `v:`: the revision of a source, kept when the source goes. The layout is not documented; ours is that of `s:`, with a
/// u64 value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRevisionKey<'a> {
    pub tenant: &'a str,
    pub name: &'a str,
}

impl<'a> SourceRevisionKey<'a> {
    pub const PREFIX: &'static [u8] = b"v:";

    pub fn encode(&self) -> Vec<u8> {
        named(Self::PREFIX, self.tenant, self.name)
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let (tenant, name) = read_named(Self::PREFIX, bytes)?;
        Some(Self { tenant, name })
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(Self::PREFIX, 0)
    }
}

/// `r:`: a tenant's own rate limit. The value is JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitKey<'a>(pub &'a str);

impl<'a> RateLimitKey<'a> {
    pub const PREFIX: &'static [u8] = b"r:";

    pub fn encode(&self) -> Vec<u8> {
        [Self::PREFIX, self.0.as_bytes()].concat()
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        text(bytes.strip_prefix(Self::PREFIX)?).map(Self)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(Self::PREFIX, 0)
    }
}

/// `R:`: a route of the guard, by its id. The value is JSON. Ours: the documented system keeps routes elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteKey<'a>(pub &'a str);

impl<'a> RouteKey<'a> {
    pub const PREFIX: &'static [u8] = b"R:";

    pub fn encode(&self) -> Vec<u8> {
        [Self::PREFIX, self.0.as_bytes()].concat()
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        text(bytes.strip_prefix(Self::PREFIX)?).map(Self)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(Self::PREFIX, 0)
    }
}

/// `j:`: a replay job, by its id. The value is a term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayKey<'a>(pub &'a str);

impl<'a> ReplayKey<'a> {
    pub const PREFIX: &'static [u8] = b"j:";

    pub fn encode(&self) -> Vec<u8> {
        [Self::PREFIX, self.0.as_bytes()].concat()
    }

    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        text(bytes.strip_prefix(Self::PREFIX)?).map(Self)
    }

    pub fn all() -> Range<Vec<u8>> {
        starting_with(Self::PREFIX, 0)
    }
}

fn named(prefix: &[u8], tenant: &str, name: &str) -> Vec<u8> {
    [prefix, tenant.as_bytes(), &[0], name.as_bytes()].concat()
}

/// Tenant and name, split at the first 00.
fn read_named<'a>(prefix: &[u8], bytes: &'a [u8]) -> Option<(&'a str, &'a str)> {
    let mut fields = Reader::new(bytes.strip_prefix(prefix)?);
    let tenant = fields.text_to_nul()?;
    Some((tenant, text(fields.remaining())?))
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.is_empty())
}
