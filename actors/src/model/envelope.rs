//! A hook as it is stored and delivered: the exact bytes received and what was decided about them on receipt.

mod verification;

use bytes::Bytes;

use super::etf::{EtfError, Reader, TermWriter};
use super::ids::{DEFAULT_TENANT, HookId};
use super::value_version::{ValueVersion, Versioned};

pub use self::verification::{VerificationStatus, VerificationTerm};

/// The letters of an envelope with a version.
const KIND: [u8; 2] = *b"AE";

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
    /// The verification result as the bytes of its term, without a version byte, so that any reason survives:
    /// see [`VerificationTerm`].
    pub verification: Option<Bytes>,
}

/// Why bytes are no envelope.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    #[error("envelope version {0} is not known to this release")]
    UnsupportedEnvelopeVersion(u8),
    #[error("undecodable envelope: {0}")]
    Undecodable(#[from] EtfError),
}

impl EnvelopeError {
    /// The documented word.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::UnsupportedEnvelopeVersion(_) => "unsupported_envelope_version",
            Self::Undecodable(_) => "undecodable",
        }
    }
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

    /// What a receiver recognises a repeated delivery by: `tenant:source:dedupe_key`, or the id of a hook without a
    /// dedupe key. Not always UTF-8, because the provider chose the key.
    pub fn idempotency_key(&self) -> Bytes {
        super::idempotency::idempotency_key(self).into()
    }

    /// The stored value. The same envelope always gives the same bytes.
    pub fn encode(&self, version: ValueVersion) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.size_hint());
        self.encode_into(version, &mut out);
        out
    }

    /// Appends the stored value to `out`.
    pub fn encode_into(&self, version: ValueVersion, out: &mut Vec<u8>) {
        version.begin(KIND, out);
        TermWriter::versioned(out).map(13, |map| {
            map.key("body").binary(&self.body);
            map.key("content_type").optional_binary(self.content_type.as_deref());
            map.key("dedupe_key").optional_binary(self.dedupe_key.as_deref());
            map.key("headers").list(self.headers.iter(), |writer, (name, value)| {
                writer.tuple(2);
                writer.binary(name);
                writer.binary(value);
            });
            map.key("id").text(self.id.as_str());
            map.key("method").text(&self.method);
            map.key("path").text(&self.path);
            map.key("received_at").uint(self.received_at_ms);
            // The key it is stored under carries the seq.
            map.key("seq").nil();
            map.key("size").uint(self.body.len() as u64);
            map.key("source_id").text(&self.source_id);
            map.key("tenant_id").optional_text(self.tenant_id.as_deref());
            match &self.verification {
                Some(term) => map.key("verification").raw(term),
                None => map.key("verification").nil(),
            }
        });
    }

    /// At least the bytes of the stored value, so that writing it never moves the buffer.
    fn size_hint(&self) -> usize {
        /// Keys, tags, lengths, the id and the numbers.
        const FIXED: usize = 288;
        /// The tags and lengths of a tuple of two binaries.
        const HEADER: usize = 12;
        let length = |bytes: &Option<Bytes>| bytes.as_ref().map_or(0, Bytes::len);
        let headers: usize =
            self.headers.iter().map(|(name, value)| HEADER + name.len() + value.len()).sum();
        let texts = self.method.len() + self.path.len() + self.source_id.len();
        let optional = length(&self.content_type) + length(&self.dedupe_key);
        let tenant = self.tenant_id.as_ref().map_or(0, String::len);
        FIXED + self.body.len() + headers + texts + optional + tenant + length(&self.verification)
    }

    /// Reads a stored value, copying it once: see [`Envelope::decode_shared`].
    ///
    /// # Errors
    /// A version this release does not know, or bytes that are no envelope.
    pub fn decode(value: &[u8]) -> Result<Self, EnvelopeError> {
        Self::decode_shared(&Bytes::copy_from_slice(value))
    }

    /// Reads a stored value; body, headers and the other binaries share its memory. Keys this release does not know
    /// are dropped, as are `seq` and `size`, which the stored key and the body tell.
    ///
    /// # Errors
    /// A version this release does not know, or bytes that are no envelope.
    pub fn decode_shared(value: &Bytes) -> Result<Self, EnvelopeError> {
        let term = match Versioned::of(KIND, value) {
            Versioned::Term(term) => term,
            Versioned::Unsupported(version) => {
                return Err(EnvelopeError::UnsupportedEnvelopeVersion(version));
            }
        };
        Ok(Fields::read(term, value)?.envelope()?)
    }
}

/// The keys as they come, in any order.
#[derive(Default)]
struct Fields<'a> {
    id: Option<HookId>,
    source_id: Option<&'a str>,
    tenant_id: Option<&'a str>,
    received_at_ms: Option<u64>,
    method: Option<&'a str>,
    path: Option<String>,
    headers: Vec<(Bytes, Bytes)>,
    content_type: Option<Bytes>,
    body: Option<Bytes>,
    dedupe_key: Option<Bytes>,
    verification: Option<Bytes>,
}

impl<'a> Fields<'a> {
    fn read(term: &'a [u8], memory: &Bytes) -> Result<Self, EtfError> {
        let mut fields = Self::default();
        let mut reader = Reader::versioned(term)?;
        reader.map(|key, value| match key.as_atom() {
            Some(name) => fields.take(name, value, memory),
            None => value.skip(),
        })?;
        reader.end()?;
        Ok(fields)
    }

    fn take(&mut self, name: &str, value: &mut Reader<'a>, memory: &Bytes) -> Result<(), EtfError> {
        let shared = |bytes: &[u8]| memory.slice_ref(bytes);
        match name {
            "body" => self.body = Some(shared(value.binary()?)),
            "content_type" => self.content_type = value.optional_binary()?.map(shared),
            "dedupe_key" => self.dedupe_key = value.optional_binary()?.map(shared),
            "headers" => value.list(|item| {
                item.tuple(2)?;
                self.headers.push((shared(item.binary()?), shared(item.binary()?)));
                Ok::<_, EtfError>(())
            })?,
            "id" => {
                let id = HookId::parse(value.text()?);
                self.id = Some(id.ok_or_else(|| value.unexpected("a UUIDv7"))?);
            }
            "method" => self.method = Some(value.text()?),
            // Nothing forbids other bytes in a request line, and a hook is worth more than its path.
            "path" => self.path = Some(String::from_utf8_lossy(value.binary()?).into_owned()),
            "received_at" => self.received_at_ms = Some(value.uint()?),
            "source_id" => self.source_id = Some(value.text()?),
            "tenant_id" => self.tenant_id = value.optional_text()?,
            "verification" => {
                self.verification = Some(value.raw()?).filter(|term| !is_nil(term)).map(shared);
            }
            _unknown => value.skip()?,
        }
        Ok(())
    }

    fn envelope(self) -> Result<Envelope, EtfError> {
        let missing = EtfError::MissingKey;
        Ok(Envelope {
            id: self.id.ok_or(missing("id"))?,
            source_id: self.source_id.ok_or(missing("source_id"))?.to_owned(),
            tenant_id: self.tenant_id.map(str::to_owned),
            received_at_ms: self.received_at_ms.ok_or(missing("received_at"))?,
            method: self.method.ok_or(missing("method"))?.to_owned(),
            path: self.path.ok_or(missing("path"))?,
            headers: self.headers,
            content_type: self.content_type,
            body: self.body.ok_or(missing("body"))?,
            dedupe_key: self.dedupe_key,
            verification: self.verification,
        })
    }
}

/// Whether a raw term is the atom `nil`, in whichever encoding of an atom.
fn is_nil(term: &[u8]) -> bool {
    matches!(Reader::bare(term).optional_atom(), Ok(None))
}
