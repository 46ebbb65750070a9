//! A source as the API keeps it: the row under `s:`, and the id its hooks carry.
//!
//! The value is the JSON object of the spec, compact, its keys in the order of the spec and without `tenant` and `name`:
//! the key says those. Secrets are in it as they were given.

use serde_json::Value;

use super::ids::is_name;
use super::keys::SourceKey;
use super::source::SourceSpec;

/// The largest value that is read, in bytes: the API takes no body of a sixteenth of that.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// Who a source of the API is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceName {
    pub tenant: String,
    pub name: String,
}

impl SourceName {
    /// `None` unless both are 1 to 64 of `A-Z a-z 0-9 _ -`.
    pub fn new(tenant: &str, name: &str) -> Option<Self> {
        let both = is_name(tenant) && is_name(name);
        both.then(|| Self { tenant: tenant.to_owned(), name: name.to_owned() })
    }

    /// What catch URLs and hooks call it. No id of the config has a dot.
    pub fn source_id(&self) -> String {
        format!("{}.{}", self.tenant, self.name)
    }
}

/// Why a row is no source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredSourceError {
    #[error("a key that names no source")]
    Key,
    #[error("a value of {0} bytes, and at most {MAX_VALUE_BYTES} are read")]
    TooLarge(usize),
    #[error("{0}")]
    Spec(String),
}

/// The value of a row.
pub fn encode(spec: &SourceSpec) -> Vec<u8> {
    // A spec has text keys and no floats: it always is JSON.
    let mut json = serde_json::to_value(spec).unwrap_or_default();
    if let Value::Object(keys) = &mut json {
        keys.shift_remove("tenant");
    }
    json.to_string().into_bytes()
}

/// What a row stands for.
///
/// # Errors
/// What is wrong with it. Never repeats what a secret could be in.
pub fn decode(key: &[u8], value: &[u8]) -> Result<(SourceName, SourceSpec), StoredSourceError> {
    let name = SourceKey::decode(key).and_then(|key| SourceName::new(key.tenant, key.name));
    let name = name.ok_or(StoredSourceError::Key)?;
    if value.len() > MAX_VALUE_BYTES {
        return Err(StoredSourceError::TooLarge(value.len()));
    }
    let unreadable = |error: serde_json::Error| {
        let what = match error.classify() {
            // The parser's own sentence can repeat a value.
            serde_json::error::Category::Data => "its spec is not one of this release",
            serde_json::error::Category::Io
            | serde_json::error::Category::Syntax
            | serde_json::error::Category::Eof => "its value is no JSON object",
        };
        StoredSourceError::Spec(what.to_owned())
    };
    let mut json: Value = serde_json::from_slice(value).map_err(unreadable)?;
    let Value::Object(keys) = &mut json else {
        return Err(StoredSourceError::Spec("its value is no JSON object".to_owned()));
    };
    keys.shift_remove("name");
    keys.insert("tenant".to_owned(), Value::from(name.tenant.as_str()));
    let spec = serde_json::from_value(json).map_err(unreadable)?;
    Ok((name, spec))
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    fn spec(value: Value) -> SourceSpec {
        from_value(value).unwrap()
    }

    fn key(tenant: &str, name: &str) -> Vec<u8> {
        SourceKey { tenant, name }.encode()
    }

    #[test]
    fn a_row_is_read_as_it_was_written_and_its_key_says_whose_it_is() {
        let written = spec(
            json!({"tenant": "acme", "verify": {"type": "github", "secret": ["a", "b"]},
            "sinks": [{"type": "http", "url": "https://w.example", "secret": "s"}, {"type": "log"}]}),
        );
        let value = encode(&written);
        let text = String::from_utf8(value.clone()).unwrap();
        assert!(text.starts_with(r#"{"verify":{"type":"github","secret":["a","b"]},"#), "{text}");
        let name = SourceName::new("acme", "github").unwrap();
        assert_eq!(name.source_id(), "acme.github");
        assert_eq!(decode(&key("acme", "github"), &value), Ok((name, written)));
    }

    #[test]
    fn what_others_wrote_of_it_is_read() {
        let value = br#"{"name":"x","tenant":"y","sinks":[{"type":"log"}]}"#;
        let (name, read) = decode(&key("acme", "github"), value).unwrap();
        assert_eq!((name.source_id().as_str(), read.tenant.as_str()), ("acme.github", "acme"));
    }

    #[test]
    fn what_is_no_source_says_why_and_repeats_nothing() {
        let said = |key: &[u8], value: &[u8]| decode(key, value).unwrap_err().to_string();
        let good = key("acme", "github");
        assert_eq!(said(b"s:acme", b"{}"), "a key that names no source");
        assert_eq!(said(&key("ac.me", "github"), b"{}"), "a key that names no source");
        for broken in [&b""[..], b"[]", b"7", b"{", b"\xff\x00", b"null"] {
            assert_eq!(said(&good, broken), "its value is no JSON object", "{broken:?}");
        }
        for strange in [r#"{"sinks":[],"hunter2":1}"#, r#"{"sinks":"hunter2"}"#] {
            assert_eq!(said(&good, strange.as_bytes()), "its spec is not one of this release");
        }
        let large = vec![b' '; MAX_VALUE_BYTES + 1];
        assert_eq!(said(&good, &large), "a value of 1048577 bytes, and at most 1048576 are read");
    }
}
