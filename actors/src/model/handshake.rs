//! What a provider asks of an URL before it sends hooks there, and what it wants to hear when one was taken.
//!
//! A handshake stores nothing. Where the provider signs it, it is answered only if it verifies; where the provider gives a
//! token, only for the token. What a request says is repeated to it only if it is short and of plain characters, as text
//! that no browser takes for anything else: whoever can make somebody open an URL of this node must not choose what it
//! shows.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::verify::{
    HashFunction, MAX_SECRETS, SecretDecode, SecretSpec, Secrets, Tokens, VerifySpec,
    VerifySpecError, VerifyType, fields, refuse,
};

/// The longest value of a request that is repeated to it, in bytes.
pub const MAX_CHALLENGE_BYTES: usize = 1_024;

/// A verified body longer than this is no handshake: it is not even looked into.
const MAX_HANDSHAKE_BODY_BYTES: usize = 4_096;

/// The longest body of a fixed answer, in bytes.
pub const MAX_RESPONSE_BYTES: usize = 4_096;

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

/// The mapping under `handshake`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HandshakeSpec {
    #[serde(rename = "type")]
    pub kind: HandshakeType,
    /// With `meta`, and required there: the token the provider was told, or a list of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify_token: Option<SecretSpec>,
}

/// The handshakes there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandshakeType {
    /// A hook `{"type":0}` or `{"type":1}`, which must verify.
    ///
    /// <https://docs.discord.com/developers/events/webhook-events#preparing-for-events>
    Discord,
    /// `GET ?hub.mode=subscribe&hub.challenge=...&hub.verify_token=...`.
    ///
    /// <https://developers.facebook.com/docs/graph-api/webhooks/getting-started#verification-requests>
    Meta,
    /// `POST ?validationToken=...`, which nobody signs.
    ///
    /// <https://learn.microsoft.com/en-us/graph/change-notifications-delivery-webhooks#notificationurl-validation>
    MicrosoftGraph,
    /// A hook `{"type":"url_verification","challenge":"..."}`, which must verify.
    ///
    /// <https://docs.slack.dev/reference/events/url_verification>
    Slack,
    /// `GET ?crc_token=...`, to be answered with an HMAC of it under the secret of `verify`.
    ///
    /// <https://docs.x.com/x-api/webhooks/quickstart>
    TwitterCrc,
}

impl HandshakeType {
    /// As configured.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discord => "discord",
            Self::Meta => "meta",
            Self::MicrosoftGraph => "microsoft_graph",
            Self::Slack => "slack",
            Self::TwitterCrc => "twitter_crc",
        }
    }
}

/// The handshake of one source.
#[derive(Clone, Debug)]
pub enum Handshake {
    Discord,
    Meta(Tokens),
    MicrosoftGraph,
    Slack,
    TwitterCrc(Secrets),
}

/// What a handshake is answered with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub status: u16,
    pub content_type: &'static str,
    pub body: String,
}

/// Why a handshake is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HandshakeRefusal {
    /// The request is none, or what it says cannot be repeated.
    Malformed,
    /// It does not know the token.
    Forbidden,
}

impl HandshakeSpec {
    /// Builds the handshake of a source that verifies by `verify`.
    ///
    /// # Errors
    ///
    /// A key that is missing, unusable or without effect, and a `verify` that cannot check what the handshake answers.
    pub fn build(&self, verify: &VerifySpec) -> Result<Handshake, VerifySpecError> {
        let name = self.kind.as_str();
        if self.verify_token.is_some() && self.kind != HandshakeType::Meta {
            return refuse("verify_token", format!("has no effect with type {name}"));
        }
        let needs = |kind: VerifyType| {
            let sentence = format!("{name} needs verify.type {}", kind.as_str());
            if verify.kind == kind { Ok(()) } else { refuse("type", sentence) }
        };
        match self.kind {
            HandshakeType::Discord => needs(VerifyType::Discord).map(|()| Handshake::Discord),
            HandshakeType::Slack => needs(VerifyType::Slack).map(|()| Handshake::Slack),
            HandshakeType::MicrosoftGraph => Ok(Handshake::MicrosoftGraph),
            HandshakeType::Meta => self.tokens().map(Handshake::Meta),
            HandshakeType::TwitterCrc => {
                needs(VerifyType::Twitter)?;
                let secrets = verify.secret.as_ref().map_or(&[][..], SecretSpec::as_slice);
                Secrets::new(secrets, SecretDecode::Raw, HashFunction::Sha256)
                    .map(Handshake::TwitterCrc)
                    .or_else(|(_, why)| refuse("type", format!("{name}: verify.secret {why}")))
            }
        }
    }

    fn tokens(&self) -> Result<Tokens, VerifySpecError> {
        let name = "verify_token";
        let Some(spec) = &self.verify_token else {
            return refuse(name, "is required with type meta");
        };
        let count = spec.as_slice().len();
        if count == 0 || count > MAX_SECRETS {
            return refuse(name, format!("must be 1 to {MAX_SECRETS} tokens, got {count}"));
        }
        Tokens::new(spec.as_slice())
            .or_else(|(index, why)| refuse(spec.key(name, index), why.to_string()))
    }
}

impl Handshake {
    /// Whether a GET is one.
    pub const fn answers_get(&self) -> bool {
        match self {
            Self::Meta(_) | Self::TwitterCrc(_) => true,
            Self::Discord | Self::MicrosoftGraph | Self::Slack => false,
        }
    }

    /// Answers a GET.
    ///
    /// # Errors
    ///
    /// Why it is not answered.
    pub fn on_get(&self, query: Option<&str>) -> Result<Reply, HandshakeRefusal> {
        match self {
            Self::Meta(tokens) => {
                let token = field(query, "hub.verify_token");
                let token = token.ok_or(HandshakeRefusal::Malformed)?;
                if field(query, "hub.mode").as_deref() != Some(b"subscribe") {
                    return Err(HandshakeRefusal::Malformed);
                }
                if !tokens.contains(&token) {
                    return Err(HandshakeRefusal::Forbidden);
                }
                let challenge = field(query, "hub.challenge").ok_or(HandshakeRefusal::Malformed)?;
                echo(&challenge, is_token).ok_or(HandshakeRefusal::Malformed)
            }
            Self::TwitterCrc(secrets) => {
                let token = field(query, "crc_token").ok_or(HandshakeRefusal::Malformed)?;
                // The answer is also the signature of a hook with this body. Of such characters no JSON object can be
                // made, so none can be had signed here; what else can is taken for no hook.
                let is_safe = self.may_have_signed(&token);
                let signed = if is_safe { secrets.sign_newest(&token) } else { None };
                let signed = signed.ok_or(HandshakeRefusal::Malformed)?;
                let body = json!({"response_token": format!("sha256={signed}")}).to_string();
                Ok(Reply { status: 200, content_type: JSON, body })
            }
            Self::Discord | Self::MicrosoftGraph | Self::Slack => Err(HandshakeRefusal::Malformed),
        }
    }

    /// Answers a POST that is known for a handshake by its query; none if it is a hook.
    pub fn on_post(&self, query: Option<&str>) -> Option<Result<Reply, HandshakeRefusal>> {
        match self {
            Self::MicrosoftGraph => {
                let token = field(query, "validationToken")?;
                Some(echo(&token, is_printable).ok_or(HandshakeRefusal::Malformed))
            }
            Self::Discord | Self::Meta(_) | Self::Slack | Self::TwitterCrc(_) => None,
        }
    }

    /// Whether anybody can have had this body signed by a handshake: its signature then proves nothing.
    pub fn may_have_signed(&self, body: &[u8]) -> bool {
        match self {
            Self::TwitterCrc(_) => is_short(body) && body.iter().all(|byte| is_token(*byte)),
            Self::Discord | Self::Meta(_) | Self::MicrosoftGraph | Self::Slack => false,
        }
    }

    /// Answers a hook that has verified; none if it is no handshake.
    pub fn on_verified(&self, body: &[u8]) -> Option<Reply> {
        // Most hooks are none, and told by a glance.
        let mentions = |word: &[u8]| body.windows(word.len()).any(|window| window == word);
        let is_short = body.len() <= MAX_HANDSHAKE_BODY_BYTES;
        let read = || serde_json::from_slice(body).ok();
        match self {
            Self::Slack if is_short && mentions(b"url_verification") => slack(&read()?),
            Self::Discord if is_short && !mentions(br#""event""#) => discord(&read()?),
            Self::Slack
            | Self::Discord
            | Self::Meta(_)
            | Self::MicrosoftGraph
            | Self::TwitterCrc(_) => None,
        }
    }
}

fn slack(body: &Value) -> Option<Reply> {
    if body.get("type")?.as_str() != Some("url_verification") {
        return None;
    }
    echo(body.get("challenge")?.as_str()?.as_bytes(), is_printable)
}

/// An event's ping is of type 0 and an interaction's of type 1, which is also the type of an event that is none.
fn discord(body: &Value) -> Option<Reply> {
    match (body.get("type")?.as_u64()?, body.get("event")) {
        (0, None) => Some(Reply { status: 204, content_type: TEXT, body: String::new() }),
        (1, None) => {
            Some(Reply { status: 200, content_type: JSON, body: r#"{"type":1}"#.to_owned() })
        }
        _ => None,
    }
}

/// What the request says, repeated.
fn echo(text: &[u8], is_plain: fn(u8) -> bool) -> Option<Reply> {
    let is_safe = is_short(text) && text.iter().all(|byte| is_plain(*byte));
    let body = std::str::from_utf8(text).ok().filter(|_| is_safe)?.to_owned();
    Some(Reply { status: 200, content_type: TEXT, body })
}

const fn is_short(text: &[u8]) -> bool {
    !text.is_empty() && text.len() <= MAX_CHALLENGE_BYTES
}

const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~' | b'=' | b'+' | b'/')
}

const fn is_printable(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e)
}

/// The first field of that name in a query, decoded.
fn field(query: Option<&str>, name: &str) -> Option<Vec<u8>> {
    let mut found = fields(query?.as_bytes()).filter(|(key, _)| key.as_ref() == name.as_bytes());
    found.next().map(|(_, value)| value.into_owned())
}

/// The mapping under `response`: what the provider hears when a hook was taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResponseSpec {
    /// 200 to 299; 200 unless given.
    #[serde(default = "default_status")]
    pub status: u16,
    /// Nothing unless given; at most [`MAX_RESPONSE_BYTES`].
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub body: String,
    /// `text/plain; charset=utf-8` unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
}

fn default_status() -> u16 {
    200
}

/// A fixed answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// A success: it is a promise like any other.
    pub status: u16,
    pub content_type: bytes::Bytes,
    pub body: bytes::Bytes,
}

impl ResponseSpec {
    /// # Errors
    ///
    /// A status that is no success, a body that is too long or where there may be none, a type that no header can carry.
    pub fn build(&self) -> Result<Response, VerifySpecError> {
        if !(200..=299).contains(&self.status) {
            let sentence = format!("must be 200 to 299, got {}: the hook was taken", self.status);
            return refuse("status", sentence);
        }
        if self.body.len() > MAX_RESPONSE_BYTES {
            return refuse("body", format!("must be at most {MAX_RESPONSE_BYTES} bytes"));
        }
        if matches!(self.status, 204 | 205) && !self.body.is_empty() {
            return refuse("body", format!("must be empty with status {}", self.status));
        }
        let content_type = self.content_type.as_deref().unwrap_or(TEXT);
        if content_type.is_empty() || !content_type.bytes().all(is_printable) {
            return refuse("content_type", "must be a media type, as in text/plain");
        }
        Ok(Response {
            status: self.status,
            content_type: content_type.to_owned().into(),
            body: self.body.clone().into(),
        })
    }
}
