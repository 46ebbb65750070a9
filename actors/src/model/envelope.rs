//! A hook as it is stored and delivered: the exact bytes received and what was decided about them on receipt.

use bytes::Bytes;

use super::ids::{DEFAULT_TENANT, HookId};

/// What the edge knows of one hook ("Encoding and versions"; the fields are the documented ones).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope {
    pub id: HookId,
    pub source_id: String,
    /// `None` is the tenant `default`.
    pub tenant_id: Option<String>,
    /// Unix milliseconds.
    pub received_at_ms: u64,
    pub method: String,
    pub path: String,
    /// Arrival order and duplicates kept, names and values as received.
    pub headers: Vec<(Bytes, Bytes)>,
    pub content_type: Option<Bytes>,
    pub body: Bytes,
    pub dedupe_key: Option<Bytes>,
    /// The verification result, kept as the bytes of its term so that any reason survives: see [`super::verify`].
    pub verification: Option<Bytes>,
}

impl Envelope {
    /// The tenant it is stored under.
    pub fn tenant(&self) -> &str {
        self.tenant_id.as_deref().unwrap_or(DEFAULT_TENANT)
    }

    /// The first value of a header, by name in any case.
    pub fn header(&self, name: &str) -> Option<&Bytes> {
        let named = |(key, _): &&(Bytes, Bytes)| key.eq_ignore_ascii_case(name.as_bytes());
        self.headers.iter().find(named).map(|(_, value)| value)
    }
}
