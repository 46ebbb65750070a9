//! The `verify` block of a source, as YAML and JSON say it.

use serde::{Deserialize, Serialize};

use super::descriptor::{
    BodyForm, Encoding, HashFunction, SecretDecode, Separator, TimestampFormat,
};
use super::presets::{self, Preset};
use super::public_key::RsaPadding;

/// What a source says under `verify`. The default verifies nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VerifySpec {
    #[serde(rename = "type")]
    pub kind: VerifyType,
    /// One secret, or 1 to [`super::MAX_SECRETS`] of them, newest first: a rotation lists both until the provider has
    /// switched. Required by every type that uses secrets. With `bearer` the tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SecretSpec>,
    /// Likewise with types that use public keys: PEM, base64 or hex, up to
    /// [`super::MAX_PUBLIC_KEYS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<TextsSpec>,
    /// How far the signed timestamp may be from now, to either side, in seconds; [`super::DEFAULT_TOLERANCE_SECONDS`]
    /// unless given. Too small and a slow network or a drifting clock refuses honest hooks; too large and a captured hook
    /// can be sent again for as long. Without effect where the scheme signs no timestamp.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_seconds: Option<u64>,
    /// The URL the provider was given, without its query. Required where the URL is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Whether the signature is over the body as it was `received` or, where it came compressed, as it was before
    /// (`inflated`); what the provider does unless given. Stored is the received one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_body: Option<BodyForm>,

    // What describes a scheme belongs to the types that are no preset.
    /// The header that carries the signature. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_header: Option<String>,
    /// The text that is signed: see [`super::Piece`] for what it may be made of; `{body}` unless given.
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
    /// With `parse: csv_pairs`: what stands between the pairs; a comma unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub separator: Option<Separator>,
    /// With `parse: space_versions`: what precedes each signature, delimiter included, as in `v1,`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// With `hmac`; `sha256` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hash: Option<HashFunction>,
    /// `hex` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// With `hmac`; `raw` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_decode: Option<SecretDecode>,
    /// With `rsa`; `pkcs1v15` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub padding: Option<RsaPadding>,
    /// The header with the time of signing, which `signed` must cover. Unless one of the three is given, nothing is dated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// The same, as a pair of the signature header; with `parse: csv_pairs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_pair: Option<String>,
    /// The same, as a key of the JSON object that the body is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_json: Option<String>,
    /// How that time is written; `seconds` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_format: Option<TimestampFormat>,

    /// With `bearer`: the header whose value is the token; `Authorization: Bearer <token>` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_header: Option<String>,
    /// With `mtls`, and required there: who may send, each by one thing that its certificate says (see [`super::Peer`]).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peers: Option<TextsSpec>,
}

/// The documented types of verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerifyType {
    #[default]
    None,
    Adyen,
    Discord,
    Github,
    Hubspot,
    Intercom,
    Linear,
    Meta,
    Paddle,
    Sendgrid,
    Shopify,
    Slack,
    Square,
    StandardWebhooks,
    Stream,
    Stripe,
    Svix,
    Twilio,
    Twitter,
    Zendesk,
    /// A scheme spelled out by the source.
    Hmac,
    /// Likewise, and the next two.
    Ed25519,
    EcdsaP256,
    Rsa,
    /// A token in a header.
    Bearer,
    /// A client certificate.
    Mtls,
}

impl VerifyType {
    /// Every type there is: none, the presets, the generic ones.
    pub const ALL: [Self; 26] = [
        Self::None,
        Self::Adyen,
        Self::Discord,
        Self::Github,
        Self::Hubspot,
        Self::Intercom,
        Self::Linear,
        Self::Meta,
        Self::Paddle,
        Self::Sendgrid,
        Self::Shopify,
        Self::Slack,
        Self::Square,
        Self::StandardWebhooks,
        Self::Stream,
        Self::Stripe,
        Self::Svix,
        Self::Twilio,
        Self::Twitter,
        Self::Zendesk,
        Self::Hmac,
        Self::Ed25519,
        Self::EcdsaP256,
        Self::Rsa,
        Self::Bearer,
        Self::Mtls,
    ];

    /// As configured.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Adyen => "adyen",
            Self::Discord => "discord",
            Self::Github => "github",
            Self::Hubspot => "hubspot",
            Self::Intercom => "intercom",
            Self::Linear => "linear",
            Self::Meta => "meta",
            Self::Paddle => "paddle",
            Self::Sendgrid => "sendgrid",
            Self::Shopify => "shopify",
            Self::Slack => "slack",
            Self::Square => "square",
            Self::StandardWebhooks => "standard_webhooks",
            Self::Stream => "stream",
            Self::Stripe => "stripe",
            Self::Svix => "svix",
            Self::Twilio => "twilio",
            Self::Twitter => "twitter",
            Self::Zendesk => "zendesk",
            Self::Hmac => "hmac",
            Self::Ed25519 => "ed25519",
            Self::EcdsaP256 => "ecdsa_p256",
            Self::Rsa => "rsa",
            Self::Bearer => "bearer",
            Self::Mtls => "mtls",
        }
    }

    /// The scheme of a provider, if it is one.
    pub fn preset(self) -> Option<Preset> {
        Some(match self {
            Self::None
            | Self::Hmac
            | Self::Ed25519
            | Self::EcdsaP256
            | Self::Rsa
            | Self::Bearer
            | Self::Mtls => return None,
            Self::Adyen => presets::adyen(),
            Self::Discord => presets::discord(),
            Self::Github => presets::github(),
            Self::Hubspot => presets::hubspot(),
            Self::Intercom => presets::intercom(),
            Self::Linear => presets::linear(),
            Self::Meta => presets::meta(),
            Self::Paddle => presets::paddle(),
            Self::Sendgrid => presets::sendgrid(),
            Self::Shopify => presets::shopify(),
            Self::Slack => presets::slack(),
            Self::Square => presets::square(),
            Self::StandardWebhooks => presets::standard_webhooks(),
            Self::Stream => presets::stream(),
            Self::Stripe => presets::stripe(),
            Self::Svix => presets::svix(),
            Self::Twilio => presets::twilio(),
            Self::Twitter => presets::twitter(),
            Self::Zendesk => presets::zendesk(),
        })
    }
}

/// The documented ways to read a signature header: see [`super::Parse`].
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
    pub(in super::super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(secret) => std::slice::from_ref(secret),
            Self::List(secrets) => secrets,
        }
    }

    /// Names the secret at `index` of the key `name`.
    pub(in super::super) fn key(&self, name: &str, index: usize) -> String {
        match self {
            Self::One(_) => name.to_owned(),
            Self::List(_) => format!("{name}[{index}]"),
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

/// A text that is no secret, or a list of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "must be a string or a list of strings")]
pub enum TextsSpec {
    One(String),
    List(Vec<String>),
}

impl TextsSpec {
    pub(super) fn as_slice(&self) -> &[String] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::List(texts) => texts,
        }
    }

    /// Names the text at `index` of the key `name`.
    pub(super) fn key(&self, name: &str, index: usize) -> String {
        match self {
            Self::One(_) => name.to_owned(),
            Self::List(_) => format!("{name}[{index}]"),
        }
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
