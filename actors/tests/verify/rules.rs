//! The documented rules, one by one.

use ankusa_actors::model::envelope::{VerificationStatus, VerificationTerm};
use ankusa_actors::model::verify::{
    HMAC_PROVIDER, Keys, MAX_CANDIDATES, Reason, Secrets, Verifier, VerifyType,
};
use bytes::Bytes;
use serde_json::json;

use crate::support::{
    Headers, NOW, PRESETS, Verify, check, headers, hex, hmac_sha256, preset, signature_verifier,
    signed, verifier,
};

const SECRET: &str = "whsec_test";
const BODY: &[u8] = br#"{"id":"evt_1"}"#;

fn stripe_digest(secret: &str, ts: &str) -> String {
    hex(&hmac_sha256(secret.as_bytes(), &[ts.as_bytes(), b".", BODY]))
}

fn stripe(value: impl AsRef<[u8]>) -> Result<(), Reason> {
    check(&preset("stripe", SECRET), &[("Stripe-Signature", value)], BODY)
}

fn renamed(sent: &Headers, rename: fn(&str) -> String) -> Headers {
    sent.iter().map(|(name, value)| (rename(name), value.clone())).collect()
}

#[test]
fn header_names_are_found_in_any_case() {
    for (name, secret) in PRESETS {
        let sent = signed(name, secret, BODY, &NOW.to_string());
        for rename in
            [|it: &str| it.to_owned(), |it: &str| it.to_uppercase(), |it: &str| it.to_lowercase()]
        {
            assert_eq!(
                preset(name, secret).verify(&renamed(&sent, rename), BODY, NOW),
                Ok(()),
                "{name}"
            );
        }
    }
}

#[test]
fn headers_are_taken_as_the_envelope_holds_them() {
    let sent: Vec<(Bytes, Bytes)> = signed("github", SECRET, BODY, "")
        .into_iter()
        .map(|(name, value)| (Bytes::from(name), Bytes::from(value)))
        .collect();
    assert_eq!(preset("github", SECRET).verify(&sent, BODY, NOW), Ok(()));
}

#[test]
fn during_a_rotation_either_secret_signs() {
    for (name, old) in PRESETS {
        let new = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
        let forgotten = "whsec_8CGq/11JvjhkgLmuLjiFOAJHIj4HRMYNvr3bb0Xjuvw=";
        for secrets in [json!([new, old]), json!([old, new])] {
            let verifier = verifier(json!({"type": name, "secret": secrets}));
            let answer =
                |secret| verifier.verify(&signed(name, secret, BODY, &NOW.to_string()), BODY, NOW);
            assert_eq!(answer(new), Ok(()), "{name}");
            assert_eq!(answer(old), Ok(()), "{name}");
            assert_eq!(answer(forgotten), Err(Reason::NoMatch), "{name}");
        }
    }
}

#[test]
fn the_signatures_of_a_stripe_header_are_its_v1_pairs() {
    let ts = NOW.to_string();
    let right = stripe_digest(SECRET, &ts);
    let wrong = stripe_digest("another", &ts);
    for (value, expected) in [
        (format!("t={ts},v1={right}"), Ok(())),
        (format!("v1={right},t={ts}"), Ok(())),
        (format!("t={ts},v1={wrong},v1={right}"), Ok(())),
        (format!("t={ts},v1={right},v1={wrong}"), Ok(())),
        (format!("t={ts},v0={wrong},v1={right},v2=,nothing,,=,"), Ok(())),
        (format!("t={ts},v1={wrong},v1={wrong}"), Err(Reason::NoMatch)),
        (format!("t={ts},v1="), Err(Reason::NoMatch)),
        (format!("t={ts},v0={right}"), Err(Reason::MalformedSignature)),
        (format!("t={ts},v1x={right}"), Err(Reason::MalformedSignature)),
        (format!("t={ts},V1={right}"), Err(Reason::MalformedSignature)),
        (format!("t={ts},v1"), Err(Reason::MalformedSignature)),
        (right.clone(), Err(Reason::MalformedSignature)),
        (String::new(), Err(Reason::MalformedSignature)),
        // The first `t` is both the one judged and the one signed.
        (format!("t={ts},t=1,v1={right}"), Ok(())),
        (format!("t=1,t={ts},v1={right}"), Err(Reason::TimestampOutOfTolerance)),
        (format!("v1={right}"), Err(Reason::MissingSignature)),
        (format!("t=,v1={right}"), Err(Reason::MalformedSignature)),
    ] {
        assert_eq!(stripe(&value), expected, "{value}");
    }
}

/// As documented: a space belongs to the key it precedes.
#[test]
fn pairs_are_not_trimmed() {
    let ts = NOW.to_string();
    let right = stripe_digest(SECRET, &ts);
    assert_eq!(stripe(format!("t={ts}, v1={right}")), Err(Reason::MalformedSignature));
    assert_eq!(stripe(format!("v1={right}, t={ts}")), Err(Reason::MissingSignature));
    assert_eq!(stripe(format!("t={ts}, v0=0,v1={right}")), Ok(()));
    assert_eq!(stripe(format!("t={ts},v1={right} ")), Err(Reason::NoMatch));
}

#[test]
fn the_signatures_of_a_standard_webhooks_header_are_its_v1_tokens() {
    let (name, secret) = PRESETS[4];
    let sent = signed(name, secret, BODY, &NOW.to_string());
    let right = String::from_utf8(sent[2].1.clone()).unwrap();
    for (value, expected) in [
        (format!("v1,wrong {right}"), Ok(())),
        (format!("{right} v1,wrong"), Ok(())),
        (format!("  v1a,AAAA  v2,{}   {right} ", &right[3..]), Ok(())),
        ("v1,wrong v1,".to_owned(), Err(Reason::NoMatch)),
        (format!("v2,{}", &right[3..]), Err(Reason::MalformedSignature)),
        (right[3..].to_owned(), Err(Reason::MalformedSignature)),
        ("v1".to_owned(), Err(Reason::MalformedSignature)),
        (String::new(), Err(Reason::MalformedSignature)),
    ] {
        let sent = [
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", "1688169000"),
            ("webhook-signature", &value),
        ];
        assert_eq!(check(&preset(name, secret), &sent, BODY), expected, "{value}");
    }
}

#[test]
fn a_repeated_signature_header_is_joined_with_commas() {
    let ts = NOW.to_string();
    let right = stripe_digest(SECRET, &ts);
    let verifier = preset("stripe", SECRET);
    let (t, v1) = (format!("t={ts}"), format!("v1={right}"));
    let lines = [
        ("Stripe-Signature", t.as_str()),
        ("X-Other", ""),
        ("stripe-signature", "v1=0"),
        ("STRIPE-SIGNATURE", &v1),
    ];
    assert_eq!(check(&verifier, &lines, BODY), Ok(()));

    let (name, secret) = PRESETS[4];
    let sent = signed(name, secret, BODY, &ts);
    let right = String::from_utf8(sent[2].1.clone()).unwrap();
    for lines in [
        vec!["v1,wrong", &right],
        vec![&right, "v1,wrong"],
        vec!["v1a,AAAA v1a,BBBB", "v1,wrong", &right],
        // One that was taken apart at its own comma.
        vec!["v1", &right[3..]],
    ] {
        let mut sent = sent[..2].to_vec();
        sent.extend(
            lines.iter().map(|line| ("webhook-signature".to_owned(), line.as_bytes().to_vec())),
        );
        assert_eq!(preset(name, secret).verify(&sent, BODY, NOW), Ok(()), "{lines:?}");
    }

    // Where the header is one signature, two of them are none.
    let (name, value) = signed("github", SECRET, BODY, "").remove(0);
    let sent = [(name.clone(), value.clone()), (name, value)];
    assert_eq!(preset("github", SECRET).verify(&sent, BODY, NOW), Err(Reason::NoMatch));
}

#[test]
fn of_any_other_header_the_first_value_counts() {
    let (name, secret) = PRESETS[4];
    let sent = signed(name, secret, BODY, &NOW.to_string());
    let also = headers(&[("Webhook-Id", "msg_2"), ("Webhook-Timestamp", "1")]);
    let answer = |sent: Headers| preset(name, secret).verify(&sent, BODY, NOW);
    assert_eq!(answer([sent.clone(), also.clone()].concat()), Ok(()));
    assert_eq!(answer([also[..1].to_vec(), sent.clone()].concat()), Err(Reason::NoMatch));
    assert_eq!(answer([also[1..].to_vec(), sent].concat()), Err(Reason::TimestampOutOfTolerance));
}

#[test]
fn the_window_is_inclusive_to_both_sides() {
    for name in ["slack", "stripe", "standard_webhooks"] {
        let secret = PRESETS[4].1;
        let sent = signed(name, secret, BODY, &NOW.to_string());
        let at = |tolerance: Option<u64>, now| {
            verifier(json!({"type": name, "secret": secret, "tolerance_seconds": tolerance}))
                .verify(&sent, BODY, now)
        };
        for (tolerance, seconds) in
            [(None, 300), (Some(0), 0), (Some(5), 5), (Some(86_400), 86_400)]
        {
            for sign in [-1, 1] {
                assert_eq!(at(tolerance, NOW + sign * seconds), Ok(()), "{name}");
                let beyond = at(tolerance, NOW + sign * (seconds + 1));
                assert_eq!(beyond, Err(Reason::TimestampOutOfTolerance), "{name}");
            }
        }
        assert_eq!(at(None, i64::MIN), Err(Reason::TimestampOutOfTolerance), "{name}");
    }
}

#[test]
fn undated_schemes_have_no_window() {
    for name in ["github", "shopify"] {
        let verifier = verifier(json!({"type": name, "secret": SECRET, "tolerance_seconds": 0}));
        assert_eq!(
            verifier.verify(&signed(name, SECRET, BODY, ""), BODY, i64::MAX),
            Ok(()),
            "{name}"
        );
    }
}

#[test]
fn a_timestamp_is_the_integer_it_begins_with() {
    for (ts, expected) in [
        ("1688169000x0", Ok(())),
        ("1688169000.25", Ok(())),
        ("+1688169000", Ok(())),
        ("0000000001688169000", Ok(())),
        ("1688169301x", Err(Reason::TimestampOutOfTolerance)),
        ("-1688169000", Err(Reason::TimestampOutOfTolerance)),
        ("99999999999999999999999999", Err(Reason::TimestampOutOfTolerance)),
        ("-99999999999999999999999999", Err(Reason::TimestampOutOfTolerance)),
        ("9223372036854775808", Err(Reason::TimestampOutOfTolerance)),
        // 2^64 more than now.
        ("18446744075397720616", Err(Reason::TimestampOutOfTolerance)),
        ("x1688169000", Err(Reason::MalformedSignature)),
        (" 1688169000", Err(Reason::MalformedSignature)),
        ("--1688169000", Err(Reason::MalformedSignature)),
        ("-", Err(Reason::MalformedSignature)),
        ("2023-07-01T00:00:00Z", Err(Reason::TimestampOutOfTolerance)),
    ] {
        for name in ["slack", "stripe", "standard_webhooks"] {
            let secret = PRESETS[4].1;
            let sent = signed(name, secret, BODY, ts);
            assert_eq!(preset(name, secret).verify(&sent, BODY, NOW), expected, "{name} {ts}");
        }
    }
}

#[test]
fn the_timestamp_is_signed_as_it_was_sent() {
    let right = stripe_digest(SECRET, "1688169000");
    assert_eq!(stripe(format!("t=1688169000x,v1={right}")), Err(Reason::NoMatch));
    assert_eq!(stripe(format!("t=01688169000,v1={right}")), Err(Reason::NoMatch));
}

#[test]
fn an_empty_timestamp_header_is_a_missing_one() {
    for name in ["slack", "standard_webhooks"] {
        let secret = PRESETS[4].1;
        let sent = signed(name, secret, BODY, "");
        assert_eq!(
            preset(name, secret).verify(&sent, BODY, NOW),
            Err(Reason::MissingSignature),
            "{name}"
        );
    }
}

#[test]
fn bodies_are_bytes() {
    for body in [
        &b""[..],
        b"\xef\xbb\xbf{\"a\":1}",
        b"{\r\n  \"a\": 1\r\n}\r\n",
        b"{\"b\":1,\"a\":2,\"b\":3}",
        b"{\"url\":\"https:\\/\\/example.com\\/\",\"n\":1e2}",
        b"\0\xff\xfe{body}{ts}",
        b"{\"text\":\"gr\xc3\xbc\xc3\x9fe\"}",
    ] {
        for (name, secret) in PRESETS {
            let sent = signed(name, secret, body, &NOW.to_string());
            let verifier = preset(name, secret);
            assert_eq!(verifier.verify(&sent, body, NOW), Ok(()), "{name} {body:?}");
            let longer = [body, b"\n"].concat();
            assert_eq!(
                verifier.verify(&sent, &longer, NOW),
                Err(Reason::NoMatch),
                "{name} {body:?}"
            );
        }
    }
}

#[test]
fn a_signature_is_compared_as_text() {
    let right = hex(&hmac_sha256(SECRET.as_bytes(), &[BODY]));
    let github = preset("github", SECRET);
    for (value, expected) in [
        (format!("sha256={right}"), Ok(())),
        (format!("sha256={}", right.to_uppercase()), Err(Reason::NoMatch)),
        (format!("sha256={}", &right[..62]), Err(Reason::NoMatch)),
        (format!("sha256={right}00"), Err(Reason::NoMatch)),
        (format!("sha256={right} "), Err(Reason::NoMatch)),
        ("sha256=".to_owned(), Err(Reason::NoMatch)),
        (format!("SHA256={right}"), Err(Reason::MalformedSignature)),
        (format!(" sha256={right}"), Err(Reason::MalformedSignature)),
        (format!("sha1={right}"), Err(Reason::MalformedSignature)),
        (right, Err(Reason::MalformedSignature)),
        (String::new(), Err(Reason::MalformedSignature)),
    ] {
        assert_eq!(check(&github, &[("X-Hub-Signature-256", &value)], BODY), expected, "{value}");
    }
    let shopify = preset("shopify", SECRET);
    for (value, expected) in [
        ("Aw+jskE9GZPFUTZL1Tu5s+21wMNNVdumraYEEkVjKBE=", Ok(())),
        ("Aw+jskE9GZPFUTZL1Tu5s+21wMNNVdumraYEEkVjKBE", Err(Reason::NoMatch)),
        ("Aw-jskE9GZPFUTZL1Tu5s-21wMNNVdumraYEEkVjKBE=", Err(Reason::NoMatch)),
        ("Aw+jskE9GZPFUTZL1Tu5s+21wMNNVdumraYEEkVjKBF=", Err(Reason::NoMatch)),
        ("", Err(Reason::NoMatch)),
    ] {
        assert_eq!(check(&shopify, &[("X-Shopify-Hmac-SHA256", value)], BODY), expected, "{value}");
    }
}

#[test]
fn only_so_many_signatures_are_looked_at() {
    let ts = NOW.to_string();
    let right = stripe_digest(SECRET, &ts);
    let after = |wrong: usize| stripe(format!("t={ts}{},v1={right}", ",v1=0".repeat(wrong)));
    assert_eq!(after(MAX_CANDIDATES - 1), Ok(()));
    assert_eq!(after(MAX_CANDIDATES), Err(Reason::NoMatch));
}

#[test]
fn a_custom_scheme_takes_any_hash_in_any_encoding() {
    for (hash, encoding, signature) in [
        ("sha1", "hex", "a2282e7648e8caf7d224d6531dcd95c2808a5d89"),
        ("sha1", "base64", "oigudkjoyvfSJNZTHc2VwoCKXYk="),
        (
            "sha512",
            "hex",
            "4d948b89a71133e81eb5922b7a2eff649adc1a068cd29c8dd9650946f0e79977\
             511f52e06933619416f70be91b7568c258a037a5d22cd64b00cbc9cab1f981a6",
        ),
        (
            "sha512",
            "base64",
            "TZSLiacRM+getZIrei7/ZJrcGgaM0pyN2WUJRvDnmXdRH1LgaTNhlBb3C+kbdWjCWKA3pdIs1ksAy8nKsfmBpg==",
        ),
    ] {
        let verifier = verifier(json!({
            "type": "hmac", "secret": "k", "signature_header": "X-Signature", "hash": hash, "encoding": encoding
        }));
        assert_eq!(
            check(&verifier, &[("x-signature", signature)], "body"),
            Ok(()),
            "{hash} {encoding}"
        );
        assert_eq!(check(&verifier, &[("x-signature", signature)], "bodY"), Err(Reason::NoMatch));
    }
}

#[test]
fn a_custom_scheme_signs_what_its_template_says() {
    let verifier = verifier(json!({
        "type": "hmac", "secret": "k", "signature_header": "X-Signature",
        "signed": "v9|{ts}|{header:X-Nonce}|{body}}|{header:x-nonce}", "timestamp_header": "X-Time",
    }));
    assert_eq!(verifier.scheme_name(), Some("custom"));
    // What the request sends is not read as a template.
    let digest = hex(&hmac_sha256(b"k", &[b"v9|1688169000|{body}|{ts}}|{body}"]));
    let sent = [("X-Signature", digest.as_str()), ("X-Nonce", "{body}"), ("X-Time", "1688169000")];
    assert_eq!(check(&verifier, &sent, "{ts}"), Ok(()));
    assert_eq!(check(&verifier, &sent[..2], "{ts}"), Err(Reason::MissingSignature));
    assert_eq!(check(&verifier, &[sent[0], sent[2]], "{ts}"), Err(Reason::MissingSignature));
    // An empty header is there.
    let digest = hex(&hmac_sha256(b"k", &[b"v9|1688169000||{ts}}|"]));
    let sent = [("X-Signature", digest.as_str()), ("X-Nonce", ""), ("X-Time", "1688169000")];
    assert_eq!(check(&verifier, &sent, "{ts}"), Ok(()));
}

#[test]
fn without_a_version_every_token_is_a_signature() {
    let verifier = verifier(json!({
        "type": "hmac", "secret": "k", "signature_header": "X-Signature", "parse": "space_versions"
    }));
    let right = hex(&hmac_sha256(b"k", &[BODY]));
    let answer = |value: &str| check(&verifier, &[("X-Signature", value)], BODY);
    assert_eq!(answer(&format!("0 {right} 1")), Ok(()));
    assert_eq!(answer("0 1"), Err(Reason::NoMatch));
    assert_eq!(answer("  "), Err(Reason::MalformedSignature));
}

#[test]
fn a_secret_is_used_as_its_scheme_says() {
    // The same text is the key itself for Stripe, and base64 of the key for Standard Webhooks.
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let sent = signed("standard_webhooks", secret, BODY, &NOW.to_string());
    for (written, expected) in [
        (secret, Ok(())),
        ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", Ok(())),
        ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSx", Err(Reason::NoMatch)),
    ] {
        assert_eq!(
            preset("standard_webhooks", written).verify(&sent, BODY, NOW),
            expected,
            "{written}"
        );
    }
    // Bits that are no whole byte are let go.
    let sent = signed("standard_webhooks", "whsec_AAA=", BODY, &NOW.to_string());
    assert_eq!(preset("standard_webhooks", "whsec_AAB=").verify(&sent, BODY, NOW), Ok(()));

    let sent = signed("stripe", secret, BODY, &NOW.to_string());
    assert_eq!(preset("stripe", secret).verify(&sent, BODY, NOW), Ok(()));
    assert_eq!(preset("stripe", &secret[6..]).verify(&sent, BODY, NOW), Err(Reason::NoMatch));
}

#[test]
fn the_first_fault_in_the_documented_order_is_the_reason() {
    let (name, secret) = PRESETS[4];
    let good = signature_verifier(preset(name, secret));
    let mut no_secrets = good.clone();
    no_secrets.keys = Keys::Hmac(Secrets::unusable());
    let mut bad_scheme = no_secrets.clone();
    bad_scheme.descriptor.timestamp =
        signature_verifier(preset("stripe", secret)).descriptor.timestamp;

    let id = ("webhook-id", "msg_1");
    let (stale, fresh) = (("webhook-timestamp", "1"), ("webhook-timestamp", "1688169000"));
    let (malformed, wrong) = (("webhook-signature", "v2,AAAA"), ("webhook-signature", "v1,AAAA"));
    for (verifier, sent, expected) in [
        (&bad_scheme, vec![], Reason::BadScheme),
        (&no_secrets, vec![stale], Reason::MissingSignature),
        (&no_secrets, vec![stale, malformed], Reason::MalformedSignature),
        (&no_secrets, vec![wrong], Reason::MissingSignature),
        (&no_secrets, vec![wrong, stale], Reason::TimestampOutOfTolerance),
        (&no_secrets, vec![wrong, fresh], Reason::MissingSignature),
        (&no_secrets, vec![wrong, fresh, id], Reason::BadSecret),
        (&good, vec![wrong, fresh, id], Reason::NoMatch),
    ] {
        assert_eq!(
            check(&Verifier::Signature(Box::new(verifier.clone())), &sent, BODY),
            Err(expected),
            "{sent:?}"
        );
    }
}

#[test]
fn a_template_with_a_timestamp_and_no_source_for_it_is_a_bad_scheme() {
    let mut verifier = signature_verifier(preset("slack", SECRET));
    verifier.descriptor.timestamp = None;
    let sent = signed("slack", SECRET, BODY, &NOW.to_string());
    let undated = Verifier::Signature(Box::new(verifier));
    assert_eq!(undated.verify(&sent, BODY, NOW), Err(Reason::BadScheme));
    for preset in VerifyType::ALL.into_iter().filter_map(VerifyType::preset) {
        assert!(preset.descriptor.is_consistent(), "{preset:?}");
    }
}

#[test]
fn nothing_printed_shows_a_secret() {
    let [one, two] = ["whsec_c2hvdyBtZQ==", "show me"];
    let block = json!({"type": "hmac", "secret": [one, two], "signature_header": "Signature"});
    let spec: ankusa_actors::model::verify::VerifySpec = serde_json::from_value(block).unwrap();
    let built = signature_verifier(spec.build().unwrap());
    let bearer = verifier(json!({"type": "bearer", "secret": [one, two]}));
    let printed = format!("{spec:?} {built:?} {:#?} {bearer:?}", built.keys);
    for secret in [one, two, "c2hvdyBtZQ", "[115, 104"] {
        assert!(!printed.contains(secret), "{printed}");
    }
    assert_eq!(format!("{:?}", built.keys), "Hmac(Secrets(2 redacted))");
}

#[test]
fn the_result_travels_in_documented_words() {
    let none = verifier(json!({"type": "none"}));
    assert_eq!(none.verify::<&str, &str>(&[], b"anything", NOW), Ok(()));
    let skipped = VerificationTerm {
        status: VerificationStatus::Skipped,
        provider: None,
        scheme: None,
        reason_text: None,
        flagged: false,
    };
    assert_eq!(none.verification(Ok(())), skipped);

    let github = preset("github", SECRET);
    let ok = VerificationTerm {
        status: VerificationStatus::Ok,
        provider: Some(HMAC_PROVIDER.to_owned()),
        scheme: Some("github".to_owned()),
        reason_text: None,
        flagged: false,
    };
    assert_eq!(github.verification(Ok(())), ok);
    let failed = VerificationTerm {
        status: VerificationStatus::Failed,
        reason_text: Some("no_match".to_owned()),
        ..ok
    };
    assert_eq!(github.verification(Err(Reason::NoMatch)), failed);

    let words = Reason::ALL.map(|reason| (reason.as_str(), reason.as_term_text()));
    assert_eq!(
        words,
        [
            ("missing_signature", ":missing_signature"),
            ("malformed_signature", ":malformed_signature"),
            ("bad_scheme", ":bad_scheme"),
            ("bad_secret", ":bad_secret"),
            ("timestamp_out_of_tolerance", ":timestamp_out_of_tolerance"),
            ("no_match", ":no_match"),
            ("malformed_body", ":malformed_body"),
            ("inflated_body_too_large", ":inflated_body_too_large"),
        ]
    );
    let statuses =
        [VerificationStatus::Ok, VerificationStatus::Failed, VerificationStatus::Skipped];
    assert_eq!(statuses.map(VerificationStatus::as_str), ["ok", "failed", "skipped"]);
}
