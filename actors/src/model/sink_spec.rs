//! What a source says of one sink: the mapping under `sources.<id>.sinks[n]`.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ordering::{self, OrderBy};
use super::standard_webhooks::Signer;

/// How many secrets a sink may sign with: each signs every delivery.
pub const MAX_SECRETS: usize = 8;
/// How many headers a sink may add.
pub const MAX_HEADERS: usize = 64;
/// The longest attempt a sink may ask for, in milliseconds. `dispatch.attempt_timeout_ms` cuts it off earlier.
pub const MAX_TIMEOUT_MS: u64 = 600_000;
/// The most of an answer a sink may ask to be read, in bytes.
pub const MAX_RESPONSE_BYTES: usize = 16 << 20;

/// A sink, by its `type`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum SinkSpec {
    Log(LogSinkSpec),
    Http(HttpSinkSpec),
}

impl SinkSpec {
    pub const fn is_enabled(&self) -> bool {
        match self {
            Self::Log(spec) => spec.enabled,
            Self::Http(spec) => spec.enabled,
        }
    }

    /// What its hooks are kept in order by; `None` where any two may be delivered in any order.
    pub const fn ordered(&self) -> Option<&OrderBy> {
        match self {
            Self::Log(spec) => spec.ordered.as_ref(),
            Self::Http(spec) => spec.ordered.as_ref(),
        }
    }
}

/// The default of `enabled`.
pub(super) const fn on() -> bool {
    true
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it over so")]
pub(super) const fn is_on(enabled: &bool) -> bool {
    *enabled
}

/// A line in the node's own log. Not durable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogSinkSpec {
    /// See [`HttpSinkSpec::enabled`].
    #[serde(default = "on", skip_serializing_if = "is_on")]
    pub enabled: bool,
    /// See [`HttpSinkSpec::ordered`].
    #[serde(default, with = "ordering", skip_serializing_if = "Option::is_none")]
    pub ordered: Option<OrderBy>,
}

impl Default for LogSinkSpec {
    fn default() -> Self {
        Self { enabled: true, ordered: None }
    }
}

/// A request to a worker.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpSinkSpec {
    /// `https://`, or `http://` where `egress.allow_http` says so. Credentials in it are sent as `authorization`.
    pub url: String,
    /// False: it is left alone, and whatever is for it waits until it is enabled again. A sink that is not wanted any
    /// more is removed instead.
    #[serde(default = "on", skip_serializing_if = "is_on")]
    pub enabled: bool,
    #[serde(default)]
    pub method: HttpSinkMethod,
    /// At most [`MAX_HEADERS`], sent with every delivery; they win over forwarded headers of the same name, and over `content-type`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// The whole attempt, from the first look-up to the last byte of the answer, in milliseconds, 1 to
    /// [`MAX_TIMEOUT_MS`]. Too short, and a slow worker gets the same hook again and again; too long, and it holds a
    /// slot of `dispatch.concurrency`.
    #[serde(default = "default_timeout_ms")]
    pub timeout_ms: u64,
    /// One secret, or a list of 1 to [`MAX_SECRETS`], newest first. `whsec_` and base64, or any other text as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<SinkSecret>,
    /// Whether deliveries may go out without a signature. Default false: the worker could not tell them from anyone's.
    #[serde(default)]
    pub allow_unsigned: bool,
    /// How much of an answer is read before the connection is closed, in bytes, at most [`MAX_RESPONSE_BYTES`]. An
    /// answer read to its end leaves the connection open for the next delivery.
    #[serde(default = "default_max_response_bytes")]
    pub max_response_bytes: usize,
    /// A hook is delivered once the one before it in its lane was, or was given up: `true` for one lane a source and
    /// tenant, `{by: ...}` for one a header or a value of the body. One that fails holds its lane up, no other.
    #[serde(default, with = "ordering", skip_serializing_if = "Option::is_none")]
    pub ordered: Option<OrderBy>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum HttpSinkMethod {
    #[default]
    Post,
    Put,
    Patch,
}

const fn default_timeout_ms() -> u64 {
    5_000
}

const fn default_max_response_bytes() -> usize {
    64 << 10
}

/// A sink that cannot be built as it is written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct SinkSpecError {
    /// Below the sink: `url`, `headers.x-a`, `secret[1]`.
    pub key: String,
    /// A sentence with the way out.
    pub problem: String,
}

impl SinkSpecError {
    pub fn new(key: impl Into<String>, problem: impl Into<String>) -> Self {
        Self { key: key.into(), problem: problem.into() }
    }
}

impl HttpSinkSpec {
    /// The spec of a sink that says no more than this.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            enabled: true,
            method: HttpSinkMethod::default(),
            headers: BTreeMap::new(),
            timeout_ms: default_timeout_ms(),
            secret: None,
            allow_unsigned: false,
            max_response_bytes: default_max_response_bytes(),
            ordered: None,
        }
    }

    /// Holds the numbers against their bounds. The URL and the headers are read by whoever sends them.
    ///
    /// # Errors
    ///
    /// The first key out of bounds.
    pub fn check_bounds(&self) -> Result<(), SinkSpecError> {
        if !(1..=MAX_TIMEOUT_MS).contains(&self.timeout_ms) {
            return Err(SinkSpecError::new("timeout_ms", format!("must be 1 to {MAX_TIMEOUT_MS}")));
        }
        if self.max_response_bytes > MAX_RESPONSE_BYTES {
            return Err(SinkSpecError::new(
                "max_response_bytes",
                format!("must be at most {MAX_RESPONSE_BYTES}"),
            ));
        }
        if self.headers.len() > MAX_HEADERS {
            return Err(SinkSpecError::new("headers", format!("must be at most {MAX_HEADERS}")));
        }
        Ok(())
    }

    /// What signs its deliveries; none where it may send unsigned.
    ///
    /// # Errors
    ///
    /// No secret without `allow_unsigned`, too many, or the first that cannot sign.
    pub fn signer(&self) -> Result<Option<Signer>, SinkSpecError> {
        let Some(secret) = &self.secret else {
            if self.allow_unsigned {
                return Ok(None);
            }
            let problem =
                "is missing: give the worker a secret to check, or say allow_unsigned: true";
            return Err(SinkSpecError::new("secret", problem));
        };
        if !(1..=MAX_SECRETS).contains(&secret.secrets().len()) {
            return Err(SinkSpecError::new(
                "secret",
                format!("must be one secret or a list of 1 to {MAX_SECRETS}"),
            ));
        }
        let signer = Signer::new(secret.secrets());
        signer
            .map(Some)
            .map_err(|(index, why)| SinkSpecError::new(secret.key(index), why.to_string()))
    }
}

impl fmt::Debug for HttpSinkSpec {
    /// Without what must not be logged: secrets, header values, and a URL that may carry credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSinkSpec")
            .field("enabled", &self.enabled)
            .field("method", &self.method)
            .field("headers", &self.headers.keys())
            .field("timeout_ms", &self.timeout_ms)
            .field("secret", &self.secret)
            .field("allow_unsigned", &self.allow_unsigned)
            .field("max_response_bytes", &self.max_response_bytes)
            .field("ordered", &self.ordered)
            .finish_non_exhaustive()
    }
}

/// One secret or several, as they were written.
#[derive(Clone, PartialEq, Eq)]
pub enum SinkSecret {
    One([String; 1]),
    List(Vec<String>),
}

impl SinkSecret {
    pub fn one(secret: impl Into<String>) -> Self {
        Self::One([secret.into()])
    }

    pub fn secrets(&self) -> &[String] {
        match self {
            Self::One(secret) => secret,
            Self::List(secrets) => secrets,
        }
    }

    /// The key under which the secret at `index` stands.
    fn key(&self, index: usize) -> String {
        match self {
            Self::One(_) => "secret".into(),
            Self::List(_) => format!("secret[{index}]"),
        }
    }
}

impl fmt::Debug for SinkSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SinkSecret({} redacted)", self.secrets().len())
    }
}

impl Serialize for SinkSecret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::One([secret]) => secret.serialize(serializer),
            Self::List(secrets) => secrets.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for SinkSecret {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SinkSecretVisitor)
    }
}

struct SinkSecretVisitor;

impl<'de> Visitor<'de> for SinkSecretVisitor {
    type Value = SinkSecret;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a list of strings")
    }

    fn visit_str<E>(self, secret: &str) -> Result<SinkSecret, E> {
        Ok(SinkSecret::one(secret))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<SinkSecret, A::Error> {
        let mut secrets = Vec::new();
        while let Some(secret) = list.next_element()? {
            secrets.push(secret);
        }
        Ok(SinkSecret::List(secrets))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, from_value, json, to_value};

    use super::*;

    fn refused(spec: Value) -> String {
        from_value::<SinkSpec>(spec).unwrap_err().to_string()
    }

    fn http(change: impl FnOnce(&mut HttpSinkSpec)) -> HttpSinkSpec {
        let mut spec = HttpSinkSpec::new("https://worker.example/hooks");
        spec.secret = Some(SinkSecret::one("raw"));
        change(&mut spec);
        spec
    }

    fn error(spec: &HttpSinkSpec) -> Option<String> {
        spec.check_bounds()
            .and_then(|()| spec.signer().map(|_| ()))
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn the_defaults_are_the_documented_ones() {
        let spec: SinkSpec =
            from_value(json!({"type": "http", "url": "https://worker.example/hooks"})).unwrap();
        assert_eq!(spec, SinkSpec::Http(HttpSinkSpec::new("https://worker.example/hooks")));
        let written = json!({"type": "http", "url": "https://worker.example/hooks", "method": "post",
            "timeout_ms": 5000, "allow_unsigned": false, "max_response_bytes": 65536});
        assert_eq!(to_value(&spec).unwrap(), written);
        assert_eq!(
            from_value::<SinkSpec>(json!({"type": "log"})).unwrap(),
            SinkSpec::Log(LogSinkSpec::default())
        );
        assert_eq!(
            to_value(SinkSpec::Log(LogSinkSpec::default())).unwrap(),
            json!({"type": "log"})
        );
    }

    #[test]
    fn every_key_is_read_and_written_as_it_was() {
        let written = json!({"type": "http", "url": "http://w", "method": "patch", "headers": {"X-A": "b"},
            "timeout_ms": 1, "secret": ["new", "old"], "allow_unsigned": true, "max_response_bytes": 0,
            "ordered": {"by": "source"}, "enabled": false});
        let spec: SinkSpec = from_value(written.clone()).unwrap();
        let expected = HttpSinkSpec {
            url: "http://w".into(),
            enabled: false,
            method: HttpSinkMethod::Patch,
            headers: BTreeMap::from([("X-A".into(), "b".into())]),
            timeout_ms: 1,
            secret: Some(SinkSecret::List(vec!["new".into(), "old".into()])),
            allow_unsigned: true,
            max_response_bytes: 0,
            ordered: Some(OrderBy::Source),
        };
        assert_eq!(spec, SinkSpec::Http(expected));
        assert_eq!(to_value(&spec).unwrap(), written);
    }

    #[test]
    fn what_nobody_knows_is_refused() {
        assert!(
            refused(json!({"type": "log", "level": "info"})).starts_with("unknown field `level`")
        );
        assert!(
            refused(json!({"type": "http", "url": "x", "timeout": 1}))
                .starts_with("unknown field `timeout`")
        );
        assert!(
            refused(json!({"type": "pigeon"}))
                .starts_with("unknown variant `pigeon`, expected `log` or `http`")
        );
        assert!(refused(json!({"url": "x"})).starts_with("missing field `type`"));
        assert!(refused(json!({"type": "http"})).starts_with("missing field `url`"));
        assert!(
            refused(json!({"type": "http", "url": "x", "method": "get"}))
                .starts_with("unknown variant `get`")
        );
        let number = refused(json!({"type": "http", "url": "x", "secret": 7}));
        assert_eq!(number, "invalid type: integer `7`, expected a string or a list of strings");
    }

    #[test]
    fn a_number_out_of_bounds_is_named() {
        assert_eq!(error(&http(|spec| spec.timeout_ms = 1)), None);
        assert_eq!(error(&http(|spec| spec.timeout_ms = MAX_TIMEOUT_MS)), None);
        assert_eq!(
            error(&http(|spec| spec.timeout_ms = 0)).unwrap(),
            "timeout_ms: must be 1 to 600000"
        );
        assert_eq!(
            error(&http(|spec| spec.timeout_ms = 600_001)).unwrap(),
            "timeout_ms: must be 1 to 600000"
        );
        assert_eq!(error(&http(|spec| spec.max_response_bytes = 16 << 20)), None);
        let too_much = error(&http(|spec| spec.max_response_bytes = (16 << 20) + 1));
        assert_eq!(too_much.unwrap(), "max_response_bytes: must be at most 16777216");
        let headers = |count| (0..count).map(|n| (format!("x-{n}"), "v".into())).collect();
        assert_eq!(error(&http(|spec| spec.headers = headers(64))), None);
        let too_many = error(&http(|spec| spec.headers = headers(65)));
        assert_eq!(too_many.unwrap(), "headers: must be at most 64");
    }

    #[test]
    fn sending_unsigned_must_be_asked_for() {
        let missing =
            "secret: is missing: give the worker a secret to check, or say allow_unsigned: true";
        assert_eq!(error(&http(|spec| spec.secret = None)).unwrap(), missing);
        let unsigned = http(|spec| (spec.secret, spec.allow_unsigned) = (None, true));
        assert!(unsigned.signer().unwrap().is_none());
        let signed_all_the_same = http(|spec| spec.allow_unsigned = true);
        assert!(signed_all_the_same.signer().unwrap().is_some());
    }

    #[test]
    fn a_secret_that_cannot_sign_is_named() {
        let list = |secrets: &[&str]| {
            let secrets = secrets.iter().map(|secret| (*secret).into()).collect();
            error(&http(|spec| spec.secret = Some(SinkSecret::List(secrets))))
        };
        assert_eq!(list(&["a"; 8]), None);
        assert_eq!(list(&["a"; 9]).unwrap(), "secret: must be one secret or a list of 1 to 8");
        assert_eq!(list(&[]).unwrap(), "secret: must be one secret or a list of 1 to 8");
        assert_eq!(list(&["a", ""]).unwrap(), "secret[1]: must not be empty");
        assert_eq!(
            list(&["whsec_!"]).unwrap(),
            "secret[0]: must be base64 after whsec_, with its padding"
        );
        let one = error(&http(|spec| spec.secret = Some(SinkSecret::one(" "))));
        assert_eq!(one.unwrap(), "secret: must not be empty");
    }

    #[test]
    fn nothing_secret_is_printed() {
        let spec = http(|spec| {
            spec.url = "https://user:hunter2@worker.example".into();
            spec.headers.insert("authorization".into(), "Bearer hunter2".into());
            spec.secret = Some(SinkSecret::List(vec!["hunter2".into()]));
        });
        let printed = format!("{:?}", SinkSpec::Http(spec));
        let expected = "Http(HttpSinkSpec { enabled: true, method: Post, headers: [\"authorization\"], timeout_ms: 5000, \
                        secret: Some(SinkSecret(1 redacted)), allow_unsigned: false, max_response_bytes: 65536, ordered: None, .. })";
        assert_eq!(printed, expected);
    }
}
