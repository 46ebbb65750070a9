//! Schemes spelled out by a source, and what of a `verify` block is refused with them.

use ankusa_actors::model::verify::{
    Judge, MAX_FORM_FIELDS, MAX_SIGNATURES, Reason, Request, Verifier, VerifySpec, VerifyType,
    verdict,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::support::{Headers, NOW, Verify, check, headers, hex, hmac_sha256, preset, verifier};

const ED25519: &str = "03a107bff3ce10be1d70dd18e74bc09967e4d6309ba50d5f1ddc8664125531b8";

fn with(block: Value, keys: &Value) -> Value {
    let mut block = block;
    block.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    block
}

fn refusal(block: Value) -> String {
    serde_json::from_value::<VerifySpec>(block).unwrap().build().unwrap_err().to_string()
}

fn ask(
    verifier: &Verifier,
    query: Option<&str>,
    headers: &Headers,
    body: &[u8],
    max_inflated_bytes: usize,
) -> Result<(), Reason> {
    let request =
        Request { method: "POST", path: "/webhooks/a%20b", query, headers, body, peer: None };
    verifier.check(&request, &Judge { now_unix_s: NOW, max_inflated_bytes })
}

#[test]
fn a_template_is_filled_in_with_every_part_of_the_request() {
    let block = json!({
        "type": "hmac", "secret": "k", "signature_header": "X-S", "url": "https://h.example:8443/p",
        "signed": "{method}|{path}|{query}|{url}|{url:unescaped}|{header:X-Id}|{form}|{body}",
    });
    let body = b"b=2&a=%31";
    for (query, filled) in [
        (
            Some("q=%2C%20"),
            "POST|/webhooks/a%20b|q=%2C%20|https://h.example:8443/p?q=%2C%20|\
             https://h.example:8443/p?q=,%20|7|a1b2|b=2&a=%31",
        ),
        (
            None,
            "POST|/webhooks/a%20b||https://h.example:8443/p|https://h.example:8443/p|7|a1b2|b=2&a=%31",
        ),
        (
            Some(""),
            "POST|/webhooks/a%20b||https://h.example:8443/p?|https://h.example:8443/p?|7|a1b2|b=2&a=%31",
        ),
    ] {
        let digest = hex(&hmac_sha256(b"k", &[filled.as_bytes()]));
        let form = "application/X-WWW-form-urlencoded ; charset=utf-8";
        let sent = headers(&[("x-s", digest.as_str()), ("x-id", "7"), ("content-type", form)]);
        assert_eq!(ask(&verifier(block.clone()), query, &sent, body, 0), Ok(()), "{filled}");
    }
}

#[test]
fn a_form_is_its_fields_or_proven_by_its_digest_or_nothing() {
    let twilio = verifier(json!({"type": "twilio", "secret": "k", "url": "https://h/p"}));
    let signed = |text: &str| {
        let mut mac = <hmac::Hmac<sha1::Sha1> as hmac::KeyInit>::new_from_slice(b"k").unwrap();
        hmac::Mac::update(&mut mac, text.as_bytes());
        BASE64_STANDARD.encode(hmac::Mac::finalize(mac).into_bytes())
    };
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let digest = format!("bodySHA256={empty}");
    let signed_query = format!("https://h/p?{digest}");
    let form = Some("application/x-www-form-urlencoded");
    let many = |count: usize| "a=1&".repeat(count);
    for (query, kind, body, text, expected) in [
        (None, form, "b=2&a=1&b=1", "https://h/pa1b1b2", Ok(())),
        (None, form, "", "https://h/p", Ok(())),
        (None, None, "", "https://h/p", Ok(())),
        (None, None, "a=1", "https://h/p", Err(Reason::MissingSignature)),
        (None, Some("application/json"), "{}", "https://h/p", Err(Reason::MissingSignature)),
        (Some(digest.as_str()), None, "", signed_query.as_str(), Ok(())),
        (Some(digest.as_str()), None, "x", signed_query.as_str(), Err(Reason::NoMatch)),
        // The digest counts even for a form.
        (Some(digest.as_str()), form, "a=1", signed_query.as_str(), Err(Reason::NoMatch)),
        (None, form, &many(MAX_FORM_FIELDS), "https://h/pa1", Ok(())),
        (None, form, &many(MAX_FORM_FIELDS + 1), "https://h/pa1", Err(Reason::MalformedBody)),
    ] {
        let signature = signed(text);
        let mut sent = headers(&[("X-Twilio-Signature", signature.as_str())]);
        sent.extend(kind.map(|kind| ("content-type".to_owned(), kind.as_bytes().to_vec())));
        assert_eq!(ask(&twilio, query, &sent, body.as_bytes(), 0), expected, "{query:?} {kind:?}");
    }
}

#[test]
fn a_secret_is_read_as_its_writing_says() {
    let digest = hex(&hmac_sha256(b"\x00\xffkey", &[b"body"]));
    let sent = [("X-S", digest.as_str())];
    for (decode, secret) in [("hex", "00ff6b6579"), ("hex", "00FF6B6579"), ("base64", "AP9rZXk=")] {
        let block = json!({"type": "hmac", "secret": secret, "signature_header": "X-S",
            "secret_decode": decode});
        assert_eq!(check(&verifier(block), &sent, "body"), Ok(()), "{decode}");
    }
}

#[test]
fn a_time_of_signing_may_stand_in_a_pair_or_in_the_body() {
    let pairs = verifier(json!({
        "type": "hmac", "secret": "k", "signature_header": "X-S", "signed": "{ts}/{body}",
        "parse": "csv_pairs", "sig_key": "s", "separator": ";", "timestamp_pair": "at",
        "timestamp_format": "milliseconds",
    }));
    let right = hex(&hmac_sha256(b"k", &[b"1688169000999/body"]));
    for (value, expected) in [
        (format!("at=1688169000999;s=0;s={right}"), Ok(())),
        (format!("at=1688169000999,s={right}"), Err(Reason::MalformedSignature)),
        (format!("s={right}"), Err(Reason::MissingSignature)),
        (format!("at=soon;s={right}"), Err(Reason::MalformedSignature)),
        (format!("at=1688169000;s={right}"), Err(Reason::TimestampOutOfTolerance)),
    ] {
        assert_eq!(check(&pairs, &[("X-S", &value)], "body"), expected, "{value}");
    }
    // Two lines are one header, with what separates its pairs between.
    let lines = [("X-S", "at=1688169000999".to_owned()), ("x-s", format!("s={right}"))];
    assert_eq!(check(&pairs, &lines, "body"), Ok(()));

    let linear = preset("linear", "k");
    let answer = |body: &str, signed: &str| {
        let digest = hex(&hmac_sha256(b"k", &[signed.as_bytes()]));
        check(&linear, &[("Linear-Signature", &digest)], body)
    };
    let (fresh, stale) =
        (r#"{"webhookTimestamp":1688169000123}"#, r#"{"webhookTimestamp":1688168699000}"#);
    assert_eq!(answer(fresh, fresh), Ok(()));
    assert_eq!(answer(stale, stale), Err(Reason::TimestampOutOfTolerance));
    assert_eq!(answer("{}", "{}"), Err(Reason::MissingSignature));
    assert_eq!(answer("no json", "no json"), Err(Reason::MissingSignature));
    let text = r#"{"webhookTimestamp":"now"}"#;
    assert_eq!(answer(text, text), Err(Reason::MalformedSignature));
    // What nobody has signed is not looked into.
    assert_eq!(answer(stale, fresh), Err(Reason::NoMatch));
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    std::io::Write::write_all(&mut encoder, body).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn a_source_may_say_which_body_is_signed() {
    let body = vec![b'a'; 100_000];
    let sent = gzip(&body);
    let over = |bytes: &[u8]| format!("sha256={}", hex(&hmac_sha256(b"k", &[bytes])));
    let github = |form: Option<&str>| {
        verifier(json!({"type": "github", "secret": "k", "signed_body": form}))
    };
    for (form, signed, max, expected) in [
        (None, &sent, 0, Ok(())),
        (Some("received"), &sent, 0, Ok(())),
        (Some("received"), &body, 1 << 20, Err(Reason::NoMatch)),
        (Some("inflated"), &body, 100_000, Ok(())),
        (Some("inflated"), &body, 99_999, Err(Reason::InflatedBodyTooLarge)),
        (Some("inflated"), &sent, 1 << 20, Err(Reason::NoMatch)),
    ] {
        let headers = headers(&[
            ("x-hub-signature-256", over(signed).as_str()),
            ("content-encoding", "gzip"),
        ]);
        assert_eq!(ask(&github(form), None, &headers, &sent, max), expected, "{form:?}");
    }
    // A bomb that nobody could have signed is not inflated.
    let headers = headers(&[("x-hub-signature-256", "none"), ("content-encoding", "gzip")]);
    let answer = ask(&github(Some("inflated")), None, &headers, &sent, 0);
    assert_eq!(answer, Err(Reason::MalformedSignature));
}

#[test]
fn a_signature_of_a_key_must_be_written_as_one() {
    let discord = verifier(json!({"type": "discord", "public_key": ED25519}));
    let ts = NOW.to_string();
    let answer = |value: &str| {
        let sent = headers(&[("x-signature-ed25519", value), ("x-signature-timestamp", &ts)]);
        discord.verify(&sent, b"{}", NOW)
    };
    for value in ["", "no hex", "0", "é", &"0".repeat(4_000)] {
        assert_eq!(answer(value), Err(Reason::MalformedSignature), "{value}");
    }
    for value in ["00", &"0".repeat(128), &"F".repeat(128), &"0".repeat(2_048)] {
        assert_eq!(answer(value), Err(Reason::NoMatch), "{value}");
    }
}

#[test]
fn only_so_many_signatures_are_held_against_a_key() {
    let golden: Value = serde_json::from_str(include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/golden/provider_signatures.json"
    )))
    .unwrap();
    let cases = golden["cases"].as_array().unwrap();
    let case = cases.iter().find(|case| case["preset"] == "ecdsa_p256").unwrap();
    let block = with(case["verify"].clone(), &json!({"parse": "space_versions"}));
    let right = case["headers"]["X-Signature"].as_str().unwrap();
    let answer = |before: usize| {
        let value = format!("{}{right}", "AAAA ".repeat(before));
        let sent = [("X-Signature", value.as_str())];
        check(&verifier(block.clone()), &sent, case["body"].as_str().unwrap())
    };
    assert_eq!(answer(MAX_SIGNATURES - 1), Ok(()));
    assert_eq!(answer(MAX_SIGNATURES), Err(Reason::NoMatch));
}

#[test]
fn every_type_is_written_as_it_is_read() {
    for kind in VerifyType::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), json!(kind.as_str()));
    }
    let mut names = VerifyType::ALL.map(VerifyType::as_str).to_vec();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), VerifyType::ALL.len());
}

#[test]
fn a_public_key_that_is_none_is_refused_by_its_place() {
    let p256 = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE83T4O/n84iotIvIW4mdBgQ/7dAfSmpqIM8kF9mN1flpVKS3GRqe6\
                2gw+2fNNRaINXvVpiglSI8eNEc6wEA3F+g==";
    let private = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
    let nine = vec![ED25519; 9];
    for (keys, expected) in [
        (json!(null), "public_key: is required with type discord"),
        (json!([]), "public_key: must be 1 to 8 keys, got 0"),
        (json!(nine), "public_key: must be 1 to 8 keys, got 9"),
        (json!(""), "public_key: must not be empty"),
        (json!([ED25519, " \n"]), "public_key[1]: must not be empty"),
        (json!([ED25519, "no key!"]), "public_key[1]: must be PEM, base64 or hex"),
        (json!("-----BEGIN PUBLIC KEY-----\nAAAA"), "public_key: must be PEM, base64 or hex"),
        (json!("-----BEGIN "), "public_key: must be PEM, base64 or hex"),
        (json!("00"), "public_key: must be an Ed25519 public key"),
        (json!(p256), "public_key: must be an Ed25519 public key"),
        (
            json!(private),
            "public_key: is a private key: give the public one, and treat this one as known to others",
        ),
    ] {
        assert_eq!(refusal(json!({"type": "discord", "public_key": keys})), expected);
    }
    let block = |kind: &str, key: &str| {
        refusal(json!({"type": kind, "public_key": key, "signature_header": "X-S"}))
    };
    assert_eq!(block("ecdsa_p256", ED25519), "public_key: must be a P-256 public key");
    let expected = "public_key: must be an RSA (2048 to 8192 bits) public key";
    assert_eq!(block("rsa", p256), expected);
    // RSA with 1024 bits.
    let weak = "MIGfMA0GCSqGSIb3DQEBAQUAA4GNADCBiQKBgQDR2ySLgq8MmZAjWekb4H+CczDE+qfi1YbFyvuZtPX5AJmIOvHjRC/AtYoaaq4P\
                B0a/+Zkbm0eDmv5Awj+nGtM2G5Ssw1K7+c02/68hamOAQo5qPgVTa8coEhuCgLGjSxlEdseN6kOg6tHzMJt+0b4v6NqAXyoRjSaw+tyn2ToKkwIDAQAB";
    assert_eq!(block("rsa", weak), expected);
}

#[test]
fn a_block_that_would_not_do_what_it_says_is_refused() {
    let hmac = json!({"type": "hmac", "secret": "s", "signature_header": "X-S"});
    let only = "must be the only timestamp";
    for (keys, expected) in [
        (json!({"public_key": "x"}), "public_key: has no effect with type hmac"),
        (json!({"padding": "pss"}), "padding: belongs to type rsa, not to hmac"),
        (json!({"token_header": "X-T"}), "token_header: belongs to type bearer, not to hmac"),
        (json!({"peers": "cn:a"}), "peers: belongs to type mtls, not to hmac"),
        (json!({"url": "https://h/"}), "url: has no effect: the URL is not signed"),
        (json!({"signed": "{url}{body}"}), "url: is required with type hmac: the URL is signed"),
        (json!({"separator": ";"}), "separator: belongs to parse: csv_pairs"),
        (json!({"timestamp_pair": "t"}), "timestamp_pair: belongs to parse: csv_pairs"),
        (
            json!({"parse": "csv_pairs", "sig_key": "s", "timestamp_pair": "t"}),
            "timestamp_pair: must be covered by `signed`, as {ts}: else anyone can change it",
        ),
        (
            json!({"parse": "csv_pairs", "sig_key": "s", "timestamp_pair": "", "signed": "{ts}{body}"}),
            "timestamp_pair: must not be empty",
        ),
        (json!({"timestamp_json": ""}), "timestamp_json: must not be empty"),
        (
            json!({"timestamp_json": "at", "signed": "{form}"}),
            "timestamp_json: must be covered by `signed`, as {body}",
        ),
        (
            json!({"timestamp_json": "at", "signed": "{ts}{body}"}),
            "signed: uses {ts}, which needs a timestamp_header or timestamp_pair",
        ),
        (
            json!({"timestamp_json": "at", "timestamp_header": "X-T"}),
            &format!("timestamp_json: {only}"),
        ),
        (
            json!({"parse": "csv_pairs", "sig_key": "s", "timestamp_pair": "t", "timestamp_header": "X-T"}),
            &format!("timestamp_pair: {only}"),
        ),
        (
            json!({"timestamp_format": "rfc3339"}),
            "timestamp_format: has no effect: nothing is dated",
        ),
        (json!({"signed": "{body}".repeat(33)}), "signed: is put together from too many parts"),
        (json!({"secret_decode": "hex", "secret": "0"}), "secret: must be hex"),
        (json!({"secret_decode": "base64", "secret": ["AAAA", "!"]}), "secret[1]: must be base64"),
    ] {
        assert_eq!(refusal(with(hmac.clone(), &keys)), expected, "{keys}");
    }
    for (block, expected) in [
        (json!({"type": "rsa"}), "signature_header: is required with type rsa"),
        (
            json!({"type": "discord", "public_key": ED25519, "secret": "s"}),
            "secret: has no effect with type discord",
        ),
        (json!({"type": "mtls", "secret": "s"}), "secret: has no effect with type mtls"),
        (json!({"type": "mtls"}), "peers: is required with type mtls"),
        (json!({"type": "mtls", "peers": []}), "peers: must be 1 to 64 clients, got 0"),
        (
            json!({"type": "mtls", "peers": ["cn:a", "dns: "]}),
            "peers[1]: must name something after the colon",
        ),
        (
            json!({"type": "mtls", "peers": "cert_sha256:00"}),
            "peers: must be the 32 bytes of a SHA-256, as hex or base64",
        ),
        (json!({"type": "bearer"}), "secret: is required with type bearer"),
        (json!({"type": "bearer", "secret": ["a", " "]}), "secret[1]: must not be empty"),
        (
            json!({"type": "bearer", "secret": "a", "token_header": "X T"}),
            "token_header: must be the name of a header",
        ),
        (
            json!({"type": "bearer", "secret": "a", "signed_body": "inflated"}),
            "signed_body: has no effect with type bearer",
        ),
        (json!({"type": "none", "url": "https://h"}), "url: has no effect with type none"),
        (
            json!({"type": "square", "secret": "a", "url": "https://h/p?q=1"}),
            "url: must end before its query: that of each request is put behind it",
        ),
        (
            json!({"type": "square", "secret": "a", "url": "h/p"}),
            "url: must be the URL the provider was given, as in https://host/path",
        ),
        (
            json!({"type": "square", "secret": "a", "url": "https:///p"}),
            "url: must be the URL the provider was given, as in https://host/path",
        ),
    ] {
        assert_eq!(refusal(block.clone()), expected, "{block}");
    }
}

/// A value for a key, good or not.
fn values() -> impl Strategy<Value = Value> {
    let texts = "([{}]|body|ts|url|form|https://|header:|[a-f0-9]{2}|[A-Za-z+/=;,: -]){0,12}";
    prop_oneof![
        texts.prop_map(Value::from),
        proptest::collection::vec(texts, 0..4).prop_map(Value::from),
        select(vec!["whole", "csv_pairs", ",", ";", "hex", "base64", "sha1", "pss", "inflated"])
            .prop_map(Value::from),
        select(vec![
            "milliseconds",
            "rfc3339",
            "{ts}{body}",
            "https://h/p",
            ED25519,
            "cn:a",
            "X-S"
        ])
        .prop_map(Value::from),
    ]
}

proptest! {
    #[test]
    fn no_block_and_no_request_panics(
        kind in select(VerifyType::ALL.to_vec()),
        required in any::<[bool; 4]>(),
        keys in proptest::collection::btree_map(
            select(vec![
                "secret", "public_key", "url", "signed_body", "signature_header", "signed", "parse",
                "sig_prefix", "sig_key", "separator", "version", "hash", "encoding",
                "secret_decode", "padding", "timestamp_header", "timestamp_pair",
                "timestamp_json", "timestamp_format", "token_header", "peers",
            ]),
            values(),
            0..6,
        ),
        query in proptest::option::of("[ -~]{0,40}"),
        sent in proptest::collection::vec(("(X-S|[a-z-]{1,12}|authorization)", "[ -~]{0,60}"), 0..6),
        body in proptest::collection::vec(any::<u8>(), 0..60),
    ) {
        let mut block = json!({"type": kind});
        let defaults = [("secret", "00ff"), ("public_key", ED25519), ("signature_header", "X-S"), ("url", "https://h/p")];
        for ((key, value), is_there) in defaults.into_iter().zip(required) {
            if is_there {
                block[key] = json!(value);
            }
        }
        let block = with(block, &json!(keys));
        let Ok(spec) = serde_json::from_value::<VerifySpec>(block) else { return Ok(()) };
        let headers = headers(&sent.iter().map(|(name, value)| (name.as_str(), value)).collect::<Vec<_>>());
        let path = "/webhooks/source";
        let request = Request { method: "POST", path, query: query.as_deref(), headers: &headers, body: &body, peer: None };
        let judge = Judge { now_unix_s: NOW, max_inflated_bytes: 1_000 };
        if let Ok(verdict) = verdict(&spec, &request, &judge) {
            prop_assert_eq!(verdict.is_ok(), kind == VerifyType::None);
        }
    }
}

#[test]
fn a_block_with_every_new_key_is_written_as_it_was_read() {
    for text in [
        r#"{"type":"rsa","public_key":["a","b"],"signature_header":"X-S","padding":"pss"}"#,
        r#"{"type":"hmac","secret":"s","url":"u","signed_body":"inflated","signature_header":"X-S","separator":";","timestamp_pair":"t","timestamp_format":"rfc3339"}"#,
        r#"{"type":"hmac","secret":"s","timestamp_json":"t","timestamp_format":"milliseconds"}"#,
        r#"{"type":"bearer","secret":"s","token_header":"X-T"}"#,
        r#"{"type":"mtls","peers":"cn:a"}"#,
    ] {
        let spec: VerifySpec = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&spec).unwrap(), text);
    }
    let error = serde_json::from_value::<VerifySpec>(json!({"type": "rsa", "public_key": 5}));
    assert_eq!(error.unwrap_err().to_string(), "must be a string or a list of strings");
}
