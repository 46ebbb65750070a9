//! The configuration as it may be shown: everything that is not known to be harmless is hidden.

use ankusa_actors::model::source::SourceSpec;
use serde_json::{Map, Value};
use url::Url;

use super::Config;

/// What stands where something is hidden.
pub const REDACTED: &str = "[REDACTED]";

/// Keys of a source, of its `verify` and of its sinks that are shown as they are.
const SHOWN: &[&str] = &[
    "allow_unsigned",
    "body",
    "content_type",
    "dedupe",
    "enabled",
    "encoding",
    "forward_headers",
    "hash",
    "header",
    "json",
    "max_response_bytes",
    "method",
    "on_verify_failure",
    "ordered",
    "padding",
    "parse",
    "peers",
    "preset",
    "public_key",
    "rate_limit",
    "secret_decode",
    "separator",
    "sig_key",
    "sig_prefix",
    "signature_header",
    "signed",
    "signed_body",
    "status",
    "tenant",
    "timeout_ms",
    "timestamp_format",
    "timestamp_header",
    "timestamp_json",
    "timestamp_pair",
    "token_header",
    "tolerance_seconds",
    "trust_url_tenant",
    "ttl_seconds",
    "type",
    "version",
];

/// Texts of a store of objects that are shown as they are.
const SHOWN_OF_STORES: &[&str] = &[
    "account_name",
    "addressing",
    "auth",
    "bucket",
    "cacertfile",
    "client_id",
    "container",
    "key_fingerprint",
    "namespace",
    "region",
    "root",
    "tenancy_ocid",
    "type",
    "user_ocid",
];

/// The effective configuration as JSON: what `print-config` and `GET /v1/config` show.
///
/// Names are kept. Hidden are secrets, tokens, header values, and the credentials, query values and fragment of a URL.
pub fn redacted(config: &Config) -> Value {
    // A config has text keys and no floats: it always is JSON.
    let mut json = serde_json::to_value(config).unwrap_or_default();
    if let Some(Value::Object(sources)) = json.get_mut("sources") {
        for source in sources.values_mut() {
            redact_source(source);
        }
    }
    let claims = json.pointer_mut("/claim_check/stores").and_then(Value::as_array_mut);
    claims.into_iter().flatten().for_each(redact_store);
    for place in ["/storage", "/backup/store"] {
        if let Some(store) = json.pointer_mut(place) {
            redact_store(store);
        }
    }
    json
}

fn redact_store(store: &mut Value) {
    let blocks = store.as_object_mut().into_iter().flat_map(|store| store.values_mut());
    for (key, value) in blocks.filter_map(Value::as_object_mut).flatten() {
        match &mut *value {
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
            Value::String(url) if key.ends_with("endpoint") => *url = redacted_endpoint(url),
            // Which key something is encrypted with, is no key.
            Value::Object(_) if key == "sse" => {}
            Value::String(_) if SHOWN_OF_STORES.contains(&key.as_str()) => {}
            Value::String(_) | Value::Object(_) | Value::Array(_) => *value = hidden(),
        }
    }
}

/// An address as it was written, unless there is something in it.
fn redacted_endpoint(text: &str) -> String {
    let is_plain = Url::parse(text).is_ok_and(|url| {
        url.username().is_empty() && url.password().is_none() && url.query().is_none()
    });
    if is_plain { text.to_owned() } else { redacted_url(text) }
}

/// A source as it may be shown.
pub(crate) fn redacted_source(source: &SourceSpec) -> Value {
    let mut json = serde_json::to_value(source).unwrap_or_default();
    redact_source(&mut json);
    json
}

fn redact_source(source: &mut Value) {
    let Value::Object(source) = source else {
        *source = hidden();
        return;
    };
    for (key, value) in source.iter_mut() {
        match (key.as_str(), &mut *value) {
            ("verify" | "handshake" | "response" | "dedupe", Value::Object(options)) => {
                redact_options(options)
            }
            ("sinks", Value::Array(sinks)) => {
                for sink in sinks {
                    if let Value::Object(options) = sink {
                        redact_options(options);
                    } else {
                        *sink = hidden();
                    }
                }
            }
            (key, value) => redact_unless_shown(key, value),
        }
    }
}

fn redact_options(options: &mut Map<String, Value>) {
    for (key, value) in options.iter_mut() {
        match (key.as_str(), &mut *value) {
            ("url", Value::String(url)) => *url = redacted_url(url),
            ("headers", Value::Object(headers)) => {
                headers.values_mut().for_each(|value| *value = hidden())
            }
            (key, value) => redact_unless_shown(key, value),
        }
    }
}

fn redact_unless_shown(key: &str, value: &mut Value) {
    if !SHOWN.contains(&key) && !value.is_null() {
        *value = hidden();
    }
}

fn hidden() -> Value {
    Value::from(REDACTED)
}

/// The URL without its user, password, query values and fragment. What cannot be read as a URL is hidden whole.
pub(super) fn redacted_url(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else { return REDACTED.to_owned() };
    let had_credentials = !url.username().is_empty() || url.password().is_some();
    // A URL that can have no user has none to hide.
    let _ = url.set_username("");
    let _ = url.set_password(None);
    let query = url.query().map(str::to_owned);
    let had_fragment = url.fragment().is_some();
    url.set_query(None);
    url.set_fragment(None);
    let mut shown = url.to_string();
    if had_credentials {
        shown = shown.replacen("://", &format!("://{REDACTED}@"), 1);
    }
    for (at, pair) in query.iter().flat_map(|query| query.split('&')).enumerate() {
        shown.push(if at == 0 { '?' } else { '&' });
        // Without a value, the name may be the secret.
        if let Some((name, _)) = pair.split_once('=') {
            shown.push_str(name);
            shown.push('=');
        }
        shown.push_str(REDACTED);
    }
    if had_fragment {
        shown.push('#');
        shown.push_str(REDACTED);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_keeps_what_is_no_secret() {
        for (url, shown) in [
            ("https://worker.internal/hooks", "https://worker.internal/hooks"),
            ("http://127.0.0.1:9000/", "http://127.0.0.1:9000/"),
            ("https://me:pw@h.example/a", "https://[REDACTED]@h.example/a"),
            ("https://token@h.example/a", "https://[REDACTED]@h.example/a"),
            (
                "https://h.example/a?key=1&other=2#at",
                "https://h.example/a?key=[REDACTED]&other=[REDACTED]#[REDACTED]",
            ),
            ("https://h.example/?secretflag", "https://h.example/?[REDACTED]"),
            ("no url at all", "[REDACTED]"),
        ] {
            assert_eq!(redacted_url(url), shown, "{url}");
        }
    }
}
