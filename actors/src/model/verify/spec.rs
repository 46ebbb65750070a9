//! The `verify` block of a source, as YAML and JSON say it, and everything that is refused about it.
//!
//! A key that would have no effect is refused too: whoever wrote it expects a check that would not be made.

use serde::{Deserialize, Serialize};

use super::descriptor::{
    Encoding, HashFunction, HmacDescriptor, Parse, SecretDecode, Template, TimestampSource,
    is_header_name,
};
use super::presets;
use super::secrets::{MAX_SECRETS, Secrets};
use super::{CUSTOM_SCHEME, DEFAULT_TOLERANCE_SECONDS, HmacVerifier, Verifier};

/// What a source says under `verify`. The default verifies nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifySpec {
    #[serde(rename = "type")]
    pub kind: VerifyType,
    /// One secret, or 1 to [`MAX_SECRETS`] of them, newest first: a rotation lists both until the provider has switched.
    /// Required by every type but `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretSpec>,
    /// How far the signed timestamp may be from now, to either side, in seconds; [`DEFAULT_TOLERANCE_SECONDS`] unless
    /// given. Too small and a slow network or a drifting clock refuses honest hooks; too large and a captured hook can
    /// be sent again for as long. Without effect where the scheme signs no timestamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_seconds: Option<u64>,

    // The rest describes a scheme, and belongs to `hmac` alone.
    /// The header that carries the signature. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_header: Option<String>,
    /// The text that is signed, with `{body}`, `{ts}` and `{header:NAME}`; `{body}` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed: Option<String>,
    /// How the header is read; `whole` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parse: Option<ParseName>,
    /// With `parse: whole`: what precedes the signature, as in `sha256=`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sig_prefix: Option<String>,
    /// With `parse: csv_pairs`, and required there: the key of the pairs that are signatures, as in `v1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sig_key: Option<String>,
    /// With `parse: space_versions`: what precedes each signature, delimiter included, as in `v1,`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `sha256` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashFunction>,
    /// `hex` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// `raw` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_decode: Option<SecretDecode>,
    /// The header with the Unix seconds of signing, which `signed` must cover. Unless given, nothing is dated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
}

/// The documented types of verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyType {
    #[default]
    None,
    Stripe,
    Github,
    StandardWebhooks,
    Shopify,
    Slack,
    /// A scheme spelled out by the source.
    Hmac,
}

impl VerifyType {
    /// As configured.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Stripe => "stripe",
            Self::Github => "github",
            Self::StandardWebhooks => "standard_webhooks",
            Self::Shopify => "shopify",
            Self::Slack => "slack",
            Self::Hmac => "hmac",
        }
    }
}

/// The documented ways to read a signature header: see [`Parse`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ParseName {
    #[default]
    Whole,
    CsvPairs,
    SpaceVersions,
}

/// A secret or a list of them. Serialized in full, as the source store needs it; never printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
// `expecting` is the whole error message: serde's own would quote a secret that is, say, a number.
#[serde(untagged, expecting = "`secret` must be a string or a list of strings")]
pub enum SecretSpec {
    One(String),
    List(Vec<String>),
}

impl SecretSpec {
    fn as_slice(&self) -> &[String] {
        match self {
            Self::One(secret) => std::slice::from_ref(secret),
            Self::List(secrets) => secrets,
        }
    }

    /// Names the secret at `index` as a config key.
    fn key(&self, index: usize) -> String {
        match self {
            Self::One(_) => "secret".to_owned(),
            Self::List(_) => format!("secret[{index}]"),
        }
    }
}

impl std::fmt::Debug for SecretSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SecretSpec({} redacted)", self.as_slice().len())
    }
}

impl From<&str> for SecretSpec {
    fn from(secret: &str) -> Self {
        Self::One(secret.to_owned())
    }
}

/// What is wrong with a [`VerifySpec`], to be printed after the key of the block: `secret[1]: must not be empty`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {sentence}")]
pub struct VerifySpecError {
    /// The key within the block. Never its value.
    pub key: String,
    pub sentence: String,
}

fn refuse<T>(key: impl Into<String>, sentence: impl Into<String>) -> Result<T, VerifySpecError> {
    Err(VerifySpecError { key: key.into(), sentence: sentence.into() })
}

impl VerifySpec {
    /// Builds the verifier and keys its secrets.
    ///
    /// # Errors
    ///
    /// The first key that is missing, unusable or without effect.
    pub fn build(&self) -> Result<Verifier, VerifySpecError> {
        let descriptor = match self.kind {
            VerifyType::None => {
                self.refuse_scheme_keys()?;
                if self.secret.is_some() {
                    return refuse("secret", "has no effect with type none");
                }
                return Ok(Verifier::None);
            }
            VerifyType::Hmac => self.descriptor()?,
            VerifyType::Stripe => self.preset(presets::stripe)?,
            VerifyType::Github => self.preset(presets::github)?,
            VerifyType::StandardWebhooks => self.preset(presets::standard_webhooks)?,
            VerifyType::Shopify => self.preset(presets::shopify)?,
            VerifyType::Slack => self.preset(presets::slack)?,
        };
        let scheme = if self.kind == VerifyType::Hmac { CUSTOM_SCHEME } else { self.kind.as_str() };
        Ok(Verifier::Hmac(HmacVerifier {
            scheme: scheme.to_owned(),
            secrets: self.secrets(descriptor.secret_decode, descriptor.hash)?,
            descriptor,
            tolerance_seconds: self.tolerance_seconds.unwrap_or(DEFAULT_TOLERANCE_SECONDS),
        }))
    }

    fn preset(&self, preset: fn() -> HmacDescriptor) -> Result<HmacDescriptor, VerifySpecError> {
        self.refuse_scheme_keys()?;
        Ok(preset())
    }

    fn refuse_scheme_keys(&self) -> Result<(), VerifySpecError> {
        let given = [
            ("signature_header", self.signature_header.is_some()),
            ("signed", self.signed.is_some()),
            ("parse", self.parse.is_some()),
            ("sig_prefix", self.sig_prefix.is_some()),
            ("sig_key", self.sig_key.is_some()),
            ("version", self.version.is_some()),
            ("hash", self.hash.is_some()),
            ("encoding", self.encoding.is_some()),
            ("secret_decode", self.secret_decode.is_some()),
            ("timestamp_header", self.timestamp_header.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((key, _)) => {
                refuse(*key, format!("belongs to type hmac, not to {}", self.kind.as_str()))
            }
            None => Ok(()),
        }
    }

    fn secrets(
        &self,
        decode: SecretDecode,
        hash: HashFunction,
    ) -> Result<Secrets, VerifySpecError> {
        let Some(secret) = &self.secret else {
            return refuse("secret", format!("is required with type {}", self.kind.as_str()));
        };
        let secrets = secret.as_slice();
        if secrets.is_empty() || secrets.len() > MAX_SECRETS {
            return refuse(
                "secret",
                format!("must be 1 to {MAX_SECRETS} secrets, got {}", secrets.len()),
            );
        }
        Secrets::new(secrets, decode, hash)
            .or_else(|(index, why)| refuse(secret.key(index), why.to_string()))
    }

    /// The scheme spelled out by `type: hmac`.
    fn descriptor(&self) -> Result<HmacDescriptor, VerifySpecError> {
        let Some(signature_header) = &self.signature_header else {
            return refuse("signature_header", "is required with type hmac");
        };
        if !is_header_name(signature_header) {
            return refuse("signature_header", "must be the name of a header");
        }
        let signed = match Template::parse(self.signed.as_deref().unwrap_or("{body}")) {
            Ok(signed) if signed.covers_body() => signed,
            Ok(_) => {
                return refuse("signed", "must cover {body}: nothing else proves whose body it is");
            }
            Err(error) => return refuse("signed", error.to_string()),
        };
        let descriptor = HmacDescriptor {
            signature_header: signature_header.clone(),
            parse: self.parse()?,
            timestamp: self.timestamp(&signed)?,
            signed,
            hash: self.hash.unwrap_or_default(),
            encoding: self.encoding.unwrap_or_default(),
            secret_decode: self.secret_decode.unwrap_or_default(),
        };
        if !descriptor.is_consistent() {
            return refuse("signed", "uses {ts}, which needs a timestamp_header");
        }
        Ok(descriptor)
    }

    fn parse(&self) -> Result<Parse, VerifySpecError> {
        let parse = self.parse.unwrap_or_default();
        let given = [
            ("sig_prefix", &self.sig_prefix, ParseName::Whole, "whole"),
            ("sig_key", &self.sig_key, ParseName::CsvPairs, "csv_pairs"),
            ("version", &self.version, ParseName::SpaceVersions, "space_versions"),
        ];
        for (key, value, belongs_to, name) in given {
            if value.is_some() && belongs_to != parse {
                return refuse(key, format!("belongs to parse: {name}"));
            }
            if value.as_ref().is_some_and(String::is_empty) {
                return refuse(key, "must not be empty");
            }
        }
        match (parse, &self.sig_key) {
            (ParseName::Whole, _) => Ok(Parse::Whole { prefix: self.sig_prefix.clone() }),
            (ParseName::SpaceVersions, _) => {
                Ok(Parse::SpaceVersions { version: self.version.clone() })
            }
            (ParseName::CsvPairs, Some(key)) => Ok(Parse::CsvPairs { key: key.clone() }),
            (ParseName::CsvPairs, None) => refuse("sig_key", "is required with parse: csv_pairs"),
        }
    }

    fn timestamp(&self, signed: &Template) -> Result<TimestampSource, VerifySpecError> {
        let Some(name) = &self.timestamp_header else { return Ok(TimestampSource::None) };
        if !is_header_name(name) {
            return refuse("timestamp_header", "must be the name of a header");
        }
        if !signed.covers_timestamp(name) {
            return refuse(
                "timestamp_header",
                "must be covered by `signed`, as {ts}: else anyone can change it",
            );
        }
        Ok(TimestampSource::Header(name.clone()))
    }
}
