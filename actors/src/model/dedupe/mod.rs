//! By which key the retries of one provider's event are told from new ones ("Dedupe").
//!
//! A source says where its provider puts the key and how long it is remembered. The key of a hook is scoped to its tenant
//! and source. Whether a hook may have one (only one that was verified may) is the edge's to know.

mod json_path;

use std::fmt;

use bytes::Bytes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use json_path::{JsonPath, PATH_EXPECTED};

use super::digest::sha256_hex;

/// How long a key is remembered unless the source says otherwise: three days, as long as most providers retry.
pub const DEFAULT_TTL_SECONDS: u64 = 259_200;

/// The longest a key can be remembered: a leap year.
pub const MAX_TTL_SECONDS: u64 = 366 * 86_400;

/// A longer key is remembered by its digest, in bytes.
pub const MAX_KEY_BYTES: usize = 200;

/// Where a well-known provider puts its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DedupePreset {
    Github,
    StandardWebhooks,
    Svix,
    Shopify,
    Stripe,
}

impl DedupePreset {
    pub const ALL: [Self; 5] =
        [Self::Github, Self::StandardWebhooks, Self::Svix, Self::Shopify, Self::Stripe];

    /// Its word in a configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Github => "github",
            Self::StandardWebhooks => "standard_webhooks",
            Self::Svix => "svix",
            Self::Shopify => "shopify",
            Self::Stripe => "stripe",
        }
    }

    fn place(self) -> Place {
        let header = |name: &str| Place::Header(name.to_owned());
        match self {
            Self::Github => header("x-github-delivery"),
            Self::StandardWebhooks => header("webhook-id"),
            Self::Svix => header("svix-id"),
            Self::Shopify => header("x-shopify-webhook-id"),
            Self::Stripe => Place::Json(JsonPath::of(["id"])),
        }
    }
}

/// Where the key of a hook is, as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DedupeBy {
    Preset(DedupePreset),
    /// The first value of this header.
    Header(String),
    /// The text or whole number at the end of this path through the objects of a JSON body: `data.object.id`.
    Json(String),
}

/// The value of `sources.<id>.dedupe`: a preset by its word, or a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupeSpec {
    pub by: DedupeBy,
    /// How long a key is remembered, in seconds, 1 to [`MAX_TTL_SECONDS`]. A retry does not make it longer. Too short and
    /// a late retry is stored again; every key costs some 200 bytes of disk until it expires.
    pub ttl_seconds: u64,
}

/// Every way to write it.
pub const EXPECTED: &str = "a preset (github, standard_webhooks, svix, shopify, stripe) or a mapping with exactly one of \
                            preset, header and json, and perhaps ttl_seconds";

/// As the mapping is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mapping {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preset: Option<DedupePreset>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    json: Option<String>,
    #[serde(default = "default_ttl_seconds")]
    ttl_seconds: u64,
}

const fn default_ttl_seconds() -> u64 {
    DEFAULT_TTL_SECONDS
}

impl Serialize for DedupeSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ttl_seconds = self.ttl_seconds;
        let mut mapping = Mapping { preset: None, header: None, json: None, ttl_seconds };
        match self.by.clone() {
            DedupeBy::Preset(preset) => mapping.preset = Some(preset),
            DedupeBy::Header(name) => mapping.header = Some(name),
            DedupeBy::Json(path) => mapping.json = Some(path),
        }
        mapping.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for DedupeSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SpecVisitor)
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = DedupeSpec;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<Self::Value, E> {
        let preset = DedupePreset::ALL.into_iter().find(|preset| preset.as_str() == word);
        let preset = preset.ok_or_else(|| E::custom(format!("{word} is not {EXPECTED}")))?;
        Ok(DedupeSpec { by: DedupeBy::Preset(preset), ttl_seconds: DEFAULT_TTL_SECONDS })
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let Mapping { preset, header, json, ttl_seconds } =
            Mapping::deserialize(MapAccessDeserializer::new(map))?;
        let by = match (preset, header, json) {
            (Some(preset), None, None) => DedupeBy::Preset(preset),
            (None, Some(name), None) => DedupeBy::Header(name),
            (None, None, Some(path)) => DedupeBy::Json(path),
            (_, _, _) => return Err(A::Error::custom(format!("must be {EXPECTED}"))),
        };
        Ok(DedupeSpec { by, ttl_seconds })
    }
}

/// A spec that no key can be found by.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key} {sentence}")]
pub struct DedupeSpecError {
    /// Below `dedupe`.
    pub key: &'static str,
    pub sentence: String,
}

impl DedupeSpec {
    /// The rule it stands for.
    ///
    /// # Errors
    /// The key below `dedupe`, and what is wrong with it.
    pub fn build(&self) -> Result<DedupeRule, DedupeSpecError> {
        let wrong = |key, must: &str, got: String| {
            Err(DedupeSpecError { key, sentence: format!("must be {must}, got {got}") })
        };
        if !(1..=MAX_TTL_SECONDS).contains(&self.ttl_seconds) {
            let must = format!("1 to {MAX_TTL_SECONDS}");
            return wrong("ttl_seconds", &must, self.ttl_seconds.to_string());
        }
        let place = match &self.by {
            DedupeBy::Preset(preset) => preset.place(),
            DedupeBy::Header(name) if is_header_name(name) => Place::Header(name.clone()),
            DedupeBy::Header(name) => {
                return wrong("header", "the name of a header", format!("{name:?}"));
            }
            DedupeBy::Json(path) => match JsonPath::parse(path) {
                Some(path) => Place::Json(path),
                None => return wrong("json", PATH_EXPECTED, format!("{path:?}")),
            },
        };
        Ok(DedupeRule { place, ttl_ms: self.ttl_seconds * 1_000 })
    }
}

fn is_header_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Header(String),
    Json(JsonPath),
}

/// How a source finds the keys of its hooks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DedupeRule {
    place: Place,
    ttl_ms: u64,
}

impl DedupeRule {
    /// How long a key lives from the commit of its hook, in milliseconds.
    pub const fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    /// The key of a hook; `None` where there is none or it is empty, and the hook is stored without. At most
    /// [`MAX_KEY_BYTES`] bytes.
    pub fn key(&self, headers: &[(Bytes, Bytes)], body: &[u8]) -> Option<Bytes> {
        let key = match &self.place {
            Place::Header(name) => {
                let named = |(key, _): &&(Bytes, Bytes)| key.eq_ignore_ascii_case(name.as_bytes());
                headers.iter().find(named).map(|(_, value)| value.clone())?
            }
            Place::Json(path) => Bytes::from(path.find(body)?),
        };
        (!key.is_empty()).then(|| bounded(key))
    }
}

/// A key as it is stored: a long one as its digest.
fn bounded(key: Bytes) -> Bytes {
    if key.len() <= MAX_KEY_BYTES {
        return key;
    }
    Bytes::from(format!("sha256:{}", sha256_hex(&key)))
}

#[cfg(test)]
mod tests;
