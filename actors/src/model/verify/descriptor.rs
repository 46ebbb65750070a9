//! How a provider signs: where the signature stands, what it covers, and how it is written down.

use serde::{Deserialize, Serialize};

use super::template::{Piece, Template};

/// One scheme of signing, whatever makes the signature. The presets are values of this type, and the generic types spell
/// one out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The header that carries the signatures, in any case.
    pub signature_header: String,
    pub parse: Parse,
    /// The text that is signed.
    pub signed: Template,
    pub encoding: Encoding,
    /// When it was signed; none where nothing is dated: a captured request can then be sent again at any time.
    pub timestamp: Option<Timestamp>,
    pub body: BodyForm,
}

impl Descriptor {
    /// Whether a request can be checked against it at all. False only for a descriptor put together by hand:
    /// [`super::VerifySpec::build`] refuses to make one.
    pub fn is_consistent(&self) -> bool {
        let is_filled_in = self.signed.pieces.contains(&Piece::Timestamp);
        let is_dated = match (self.timestamp.as_ref().map(|it| &it.source), &self.parse) {
            (None, _) => !is_filled_in,
            (Some(TimestampSource::Header(_)), _)
            | (Some(TimestampSource::Pair(_)), Parse::Pairs { .. }) => true,
            (Some(TimestampSource::Pair(_)), Parse::Whole { .. } | Parse::SpaceVersions { .. }) => {
                false
            }
            (Some(TimestampSource::Json(_)), _) => {
                !is_filled_in && self.signed.pieces.contains(&Piece::Body)
            }
        };
        is_dated && self.signed.is_bounded()
    }
}

/// How the signature header is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse {
    /// The whole value is one signature, after `prefix`. A value without the prefix is malformed.
    Whole { prefix: Option<String> },
    /// `k=v,k=v`: every value of `key` is a signature. Pairs are split at the first `=` and not trimmed.
    Pairs { key: String, separator: Separator },
    /// Tokens between spaces: what follows `version` (delimiter included, as in `v1,`) is a signature, and tokens of
    /// other versions are skipped. Without a version every token is one.
    SpaceVersions { version: Option<String> },
}

/// What stands between the pairs of a signature header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Separator {
    #[default]
    #[serde(rename = ",")]
    Comma,
    #[serde(rename = ";")]
    Semicolon,
}

impl Separator {
    pub(super) const fn byte(self) -> u8 {
        match self {
            Self::Comma => b',',
            Self::Semicolon => b';',
        }
    }
}

/// When a hook was signed, as the hook says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timestamp {
    pub source: TimestampSource,
    pub format: TimestampFormat,
}

/// Where the signed timestamp stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// A header of its own; the first of that name.
    Header(String),
    /// The first pair of this key in the signature header, which must be read as [`Parse::Pairs`].
    Pair(String),
    /// This key of the JSON object that the body is. Looked for only in a body whose signature is right: nothing that
    /// anybody can send is parsed.
    Json(String),
}

/// How it is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimestampFormat {
    /// Unix seconds.
    #[default]
    Seconds,
    /// Unix milliseconds.
    Milliseconds,
    /// `2021-03-25T05:09:27Z`, with any fraction and offset.
    Rfc3339,
}

/// The hash under an HMAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashFunction {
    #[default]
    Sha256,
    Sha512,
    Sha1,
}

/// How a signature is written in the header. An HMAC is compared as text, so the case of its hex counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// Lower case.
    #[default]
    Hex,
    /// Standard alphabet, padded.
    Base64,
}

/// How a configured secret becomes the key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SecretDecode {
    /// Its bytes are the key, a `whsec_` at its head included.
    #[default]
    Raw,
    /// A `whsec_` at its head is taken off, and the rest is base64.
    WhsecBase64,
    /// Base64 with nothing before it.
    Base64,
    /// Hex in either case.
    Hex,
}

/// Which bytes of the body are signed. The stored body is the received one either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BodyForm {
    /// Those received.
    #[default]
    Received,
    /// Those that were compressed, where `Content-Encoding` says that they were.
    Inflated,
}
