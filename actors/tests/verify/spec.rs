//! What a `verify` block may say.

use ankusa_actors::model::verify::{SecretSpec, Verifier, VerifySpec, VerifyType};
use serde_json::{Value, json};

use crate::support::verifier;

fn parsed(block: Value) -> Result<VerifySpec, String> {
    serde_json::from_value(block).map_err(|error| error.to_string())
}

fn refusal(block: Value) -> String {
    parsed(block).unwrap().build().unwrap_err().to_string()
}

#[test]
fn every_documented_type_builds() {
    for (kind, scheme) in [
        ("none", None),
        ("stripe", Some("stripe")),
        ("github", Some("github")),
        ("standard_webhooks", Some("standard_webhooks")),
        ("shopify", Some("shopify")),
        ("slack", Some("slack")),
    ] {
        let secret = scheme.map(|_| "whsec_AAAA");
        assert_eq!(verifier(json!({"type": kind, "secret": secret})).scheme_name(), scheme);
    }
    let custom =
        verifier(json!({"type": "hmac", "secret": "s", "signature_header": "X-Signature"}));
    assert_eq!(custom.scheme_name(), Some("custom"));
    let most: Vec<String> = (0..8).map(|n| format!("secret {n}")).collect();
    assert_eq!(verifier(json!({"type": "github", "secret": most})).scheme_name(), Some("github"));
    let unverified = VerifySpec::default();
    assert!(matches!(unverified.build(), Ok(Verifier::None)));
}

#[test]
fn a_refused_block_names_the_key_and_says_why() {
    let empty = "must not be empty";
    let long: Vec<String> = (0..9).map(|n| format!("secret {n}")).collect();
    for (block, expected) in [
        (json!({"type": "github"}), "secret: is required with type github".to_owned()),
        (json!({"type": "github", "secret": ""}), format!("secret: {empty}")),
        (json!({"type": "github", "secret": " \t\n"}), format!("secret: {empty}")),
        (
            json!({"type": "github", "secret": []}),
            "secret: must be 1 to 8 secrets, got 0".to_owned(),
        ),
        (
            json!({"type": "github", "secret": long}),
            "secret: must be 1 to 8 secrets, got 9".to_owned(),
        ),
        (json!({"type": "github", "secret": ["a", ""]}), format!("secret[1]: {empty}")),
        (json!({"type": "github", "secret": ["", "b"]}), format!("secret[0]: {empty}")),
        (json!({"type": "standard_webhooks", "secret": "whsec_"}), format!("secret: {empty}")),
        (
            json!({"type": "standard_webhooks", "secret": ["whsec_AAAA", "whsec_!!!"]}),
            "secret[1]: must be base64, after a leading whsec_ if it has one".to_owned(),
        ),
        (json!({"type": "none", "secret": "s"}), "secret: has no effect with type none".to_owned()),
    ] {
        assert_eq!(refusal(block.clone()), expected, "{block}");
    }
}

#[test]
fn the_keys_of_a_custom_scheme_are_refused_elsewhere() {
    for (key, value) in [
        ("signature_header", "X-Signature"),
        ("signed", "{body}"),
        ("parse", "whole"),
        ("sig_prefix", "sha256="),
        ("sig_key", "v1"),
        ("version", "v1,"),
        ("hash", "sha256"),
        ("encoding", "hex"),
        ("secret_decode", "raw"),
        ("timestamp_header", "X-Time"),
    ] {
        for kind in ["none", "github", "stripe", "slack", "shopify", "standard_webhooks"] {
            let secret = (kind != "none").then_some("whsec_AAAA");
            let block = json!({"type": kind, "secret": secret, key: value});
            let whose = match key {
                "hash" | "secret_decode" => "type hmac",
                _ => "types hmac, ed25519, ecdsa_p256 and rsa",
            };
            assert_eq!(refusal(block), format!("{key}: belongs to {whose}, not to {kind}"));
        }
    }
}

#[test]
fn a_custom_scheme_that_makes_no_sense_is_refused() {
    for (keys, expected) in [
        (json!({"signature_header": null}), "signature_header: is required with type hmac"),
        (json!({"signature_header": ""}), "signature_header: must be the name of a header"),
        (
            json!({"signature_header": "X Signature"}),
            "signature_header: must be the name of a header",
        ),
        (
            json!({"signed": "{ts}{bodi}"}),
            "signed: has the unknown placeholder {bodi}; there are {body}, {ts}, {header:NAME}, {method}, {path}, {query}, {url}, {url:unescaped} and {form}",
        ),
        (
            json!({"signed": "{}"}),
            "signed: has the unknown placeholder {}; there are {body}, {ts}, {header:NAME}, {method}, {path}, {query}, {url}, {url:unescaped} and {form}",
        ),
        (
            json!({"signed": "{header:}{body}"}),
            "signed: names \"\" as a header, which cannot be one",
        ),
        (
            json!({"signed": "{body}{header:a b}"}),
            "signed: names \"a b\" as a header, which cannot be one",
        ),
        (
            json!({"signed": "{body}{ts"}),
            "signed: opens a placeholder with { and does not close it",
        ),
        (
            json!({"signed": "{ts}.{body}"}),
            "signed: uses {ts}, which needs a timestamp_header or timestamp_pair",
        ),
        (
            json!({"signed": "{header:X-Id}"}),
            "signed: must cover {body}: nothing else proves whose body it is",
        ),
        (
            json!({"timestamp_header": "X-Time"}),
            "timestamp_header: must be covered by `signed`, as {ts}: else anyone can change it",
        ),
        (
            json!({"timestamp_header": "a:b", "signed": "{ts}{body}"}),
            "timestamp_header: must be the name of a header",
        ),
        (json!({"parse": "csv_pairs"}), "sig_key: is required with parse: csv_pairs"),
        (json!({"parse": "csv_pairs", "sig_key": ""}), "sig_key: must not be empty"),
        (
            json!({"parse": "csv_pairs", "sig_key": "v1", "version": "v1,"}),
            "version: belongs to parse: space_versions",
        ),
        (
            json!({"parse": "space_versions", "sig_prefix": "v1="}),
            "sig_prefix: belongs to parse: whole",
        ),
        (json!({"sig_key": "v1"}), "sig_key: belongs to parse: csv_pairs"),
        (json!({"sig_prefix": ""}), "sig_prefix: must not be empty"),
        (
            json!({"secret_decode": "whsec_base64"}),
            "secret: must be base64, after a leading whsec_ if it has one",
        ),
    ] {
        let mut block =
            json!({"type": "hmac", "secret": "a secret", "signature_header": "X-Signature"});
        block.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        assert_eq!(refusal(block), expected, "{keys}");
    }
}

#[test]
fn a_timestamp_header_may_be_signed_by_its_name() {
    let block = json!({
        "type": "hmac", "secret": "s", "signature_header": "X-Signature",
        "timestamp_header": "X-Time", "signed": "{header:x-time}.{body}",
    });
    assert_eq!(verifier(block).scheme_name(), Some("custom"));
}

#[test]
fn unknown_keys_and_values_are_refused() {
    for block in [
        json!({}),
        json!({"type": "github", "secret": "s", "tolerance": 5}),
        json!({"type": "paypal", "secret": "s"}),
        json!({"type": "github", "secret": "s", "tolerance_seconds": -1}),
        json!({"type": "hmac", "secret": "s", "hash": "md5"}),
        json!({"type": "hmac", "secret": "s", "encoding": "base32"}),
        json!({"type": "hmac", "secret": "s", "parse": "json"}),
    ] {
        assert!(parsed(block.clone()).is_err(), "{block}");
    }
}

#[test]
fn a_secret_of_the_wrong_type_is_refused_without_being_shown() {
    for secret in
        [json!(1234), json!(true), json!(12.5), json!({"value": "1234"}), json!(["ok", 1234])]
    {
        let error = parsed(json!({"type": "github", "secret": secret})).unwrap_err();
        assert_eq!(error, "`secret` must be a string or a list of strings");
    }
}

#[test]
fn a_block_is_written_as_it_was_read() {
    for text in [
        r#"{"type":"none"}"#,
        r#"{"type":"standard_webhooks","secret":["a","b"],"tolerance_seconds":60}"#,
        r#"{"type":"hmac","secret":"s","signature_header":"X-S","signed":"{body}","parse":"csv_pairs","sig_key":"v1","hash":"sha512","encoding":"base64","secret_decode":"whsec_base64","timestamp_header":"X-T"}"#,
        r#"{"type":"hmac","secret":"s","parse":"space_versions","version":"v1,"}"#,
        r#"{"type":"hmac","secret":"s","parse":"whole","sig_prefix":"sha1=","hash":"sha1","encoding":"hex","secret_decode":"raw"}"#,
    ] {
        let spec: VerifySpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
    }
    let built = VerifySpec {
        kind: VerifyType::Slack,
        secret: Some(SecretSpec::from("s")),
        ..VerifySpec::default()
    };
    assert_eq!(parsed(json!({"type": "slack", "secret": "s"})), Ok(built));
}
