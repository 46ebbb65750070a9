//! How a provider signs: where the signature stands, what it covers, and how it is written down.

use serde::{Deserialize, Serialize};

/// One HMAC scheme. The presets are values of this type, and `type: hmac` spells one out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HmacDescriptor {
    /// The header that carries the signatures, in any case.
    pub signature_header: String,
    pub parse: Parse,
    /// The text that is signed.
    pub signed: Template,
    pub hash: HashFunction,
    pub encoding: Encoding,
    pub secret_decode: SecretDecode,
    pub timestamp: TimestampSource,
}

impl HmacDescriptor {
    /// Whether a request can be checked against it at all. False only for a descriptor put together by hand:
    /// [`super::VerifySpec::build`] refuses to make one.
    pub fn is_consistent(&self) -> bool {
        match (&self.timestamp, &self.parse) {
            (TimestampSource::None, _) => !self.signed.pieces.contains(&Piece::Timestamp),
            (TimestampSource::Header(_), _)
            | (TimestampSource::Pair(_), Parse::CsvPairs { .. }) => true,
            (TimestampSource::Pair(_), Parse::Whole { .. } | Parse::SpaceVersions { .. }) => false,
        }
    }
}

/// How the signature header is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parse {
    /// The whole value is one signature, after `prefix`. A value without the prefix is malformed.
    Whole { prefix: Option<String> },
    /// `k=v,k=v`: every value of `key` is a signature. Pairs are split at the first `=` and not trimmed.
    CsvPairs { key: String },
    /// Tokens between spaces: what follows `version` (delimiter included, as in `v1,`) is a signature, and tokens of
    /// other versions are skipped. Without a version every token is one.
    SpaceVersions { version: Option<String> },
}

/// Where the signed timestamp stands, in Unix seconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TimestampSource {
    /// Nothing is dated: a captured request can be sent again at any time.
    None,
    /// A header of its own; the first of that name.
    Header(String),
    /// The first pair of this key in the signature header, which must be read as [`Parse::CsvPairs`].
    Pair(String),
}

/// The hash under the HMAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HashFunction {
    #[default]
    Sha256,
    Sha512,
    Sha1,
}

/// How the digest is written in the header. Compared as text, so the case of hex counts.
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
}

/// The signed text, with what each request fills in. Filled in one pass: what a request sends is never read as a
/// placeholder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pub pieces: Vec<Piece>,
}

/// A part of the signed text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    Literal(String),
    /// `{body}`: the bytes received.
    Body,
    /// `{ts}`: the timestamp as it was sent, not the number read from it.
    Timestamp,
    /// `{header:NAME}`: the first value of that header.
    Header(String),
}

/// Why a template is refused, as a sentence.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("has the unknown placeholder {{{0}}}; there are {{body}}, {{ts}} and {{header:NAME}}")]
    UnknownPlaceholder(String),
    #[error("names {0:?} as a header, which cannot be one")]
    NotAHeaderName(String),
    #[error("opens a placeholder with {{ and does not close it")]
    Unclosed,
}

impl Template {
    /// Reads `v0:{ts}:{body}` and the like.
    ///
    /// # Errors
    ///
    /// Anything in braces that is not one of the three placeholders.
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((literal, after_brace)) = rest.split_once('{') {
            let (placeholder, tail) = after_brace.split_once('}').ok_or(TemplateError::Unclosed)?;
            if !literal.is_empty() {
                pieces.push(Piece::Literal(literal.to_owned()));
            }
            pieces.push(Piece::placeholder(placeholder)?);
            rest = tail;
        }
        if !rest.is_empty() {
            pieces.push(Piece::Literal(rest.to_owned()));
        }
        Ok(Self { pieces })
    }

    /// Whether the signature covers the body.
    pub fn covers_body(&self) -> bool {
        self.pieces.contains(&Piece::Body)
    }

    /// Whether the signature covers the timestamp found in the header `name`, by either way of naming it.
    pub fn covers_timestamp(&self, name: &str) -> bool {
        self.pieces.iter().any(|piece| match piece {
            Piece::Timestamp => true,
            Piece::Header(header) => header.eq_ignore_ascii_case(name),
            Piece::Literal(_) | Piece::Body => false,
        })
    }
}

impl Piece {
    fn placeholder(text: &str) -> Result<Self, TemplateError> {
        match (text, text.strip_prefix("header:")) {
            ("body", _) => Ok(Self::Body),
            ("ts", _) => Ok(Self::Timestamp),
            (_, Some(name)) if is_header_name(name) => Ok(Self::Header(name.to_owned())),
            (_, Some(name)) => Err(TemplateError::NotAHeaderName(name.to_owned())),
            (_, None) => Err(TemplateError::UnknownPlaceholder(text.to_owned())),
        }
    }
}

/// Whether a request can carry a header of this name (a token of RFC 9110).
pub(super) fn is_header_name(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}
