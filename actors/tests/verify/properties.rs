//! What holds for every request.

use ankusa_actors::model::verify::{Reason, Verifier, VerifySpec};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use crate::support::{NOW, PRESETS, Verify, preset, signed, verifier};

/// A preset and a secret that it can use.
fn senders() -> impl Strategy<Value = (&'static str, String)> {
    (select(PRESETS.map(|(name, _)| name).to_vec()), vec(any::<u8>(), 1..80))
        .prop_map(|(name, key)| (name, format!("whsec_{}", BASE64_STANDARD.encode(key))))
}

/// Blocks that read a signature header in every way there is.
fn blocks() -> Vec<Value> {
    let custom = |parse: Value| {
        let mut block = json!({
            "type": "hmac", "secret": ["k", "l"], "signature_header": "webhook-signature",
            "signed": "{ts}.{header:webhook-id}.{body}", "timestamp_header": "webhook-timestamp",
        });
        block.as_object_mut().unwrap().extend(parse.as_object().unwrap().clone());
        block
    };
    let presets = PRESETS.map(|(name, secret)| json!({"type": name, "secret": secret}));
    let customs = [
        custom(json!({"parse": "whole"})),
        custom(json!({"parse": "csv_pairs", "sig_key": "v1", "hash": "sha1"})),
        custom(json!({"parse": "space_versions", "hash": "sha512"})),
        custom(json!({"parse": "space_versions", "version": "v1", "encoding": "base64"})),
    ];
    presets.into_iter().chain(customs).collect()
}

/// A value that begins to look like something, or does not.
fn values() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        vec(any::<u8>(), 0..200),
        "[tv01,= .+a-f-]{0,80}".prop_map(String::into_bytes),
        "(t=16881690[0-9]{2}|v1[,=][0-9a-f]{0,70}|v0=[0-9a-f]{64}|[, ]){0,60}"
            .prop_map(String::into_bytes),
        "[+-]?[0-9]{0,30}.{0,3}".prop_map(String::into_bytes),
    ]
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    let known = [
        "x-hub-signature-256",
        "X-Shopify-Hmac-SHA256",
        "X-Slack-Signature",
        "X-Slack-Request-Timestamp",
        "Stripe-Signature",
        "webhook-signature",
        "Webhook-Timestamp",
        "webhook-id",
    ];
    prop_oneof![4 => select(known.map(|name| name.as_bytes().to_vec()).to_vec()), 1 => vec(any::<u8>(), 0..20)]
}

proptest! {
    #[test]
    fn what_the_provider_signs_is_accepted(
        (name, secret) in senders(),
        body in vec(any::<u8>(), 0..400),
        age in -300_i64..=300,
    ) {
        let sent = signed(name, &secret, &body, &(NOW - age).to_string());
        prop_assert_eq!(preset(name, &secret).verify(&sent, &body, NOW), Ok(()));
    }

    #[test]
    fn any_change_of_one_byte_of_the_body_is_refused(
        (name, secret) in senders(),
        body in vec(any::<u8>(), 1..400),
        at in any::<proptest::sample::Index>(),
        change in 1_u8..,
    ) {
        let sent = signed(name, &secret, &body, &NOW.to_string());
        let mut changed = body.clone();
        changed[at.index(body.len())] ^= change;
        prop_assert_eq!(preset(name, &secret).verify(&sent, &changed, NOW), Err(Reason::NoMatch));
    }

    #[test]
    fn any_byte_more_or_less_is_refused(
        (name, secret) in senders(),
        body in vec(any::<u8>(), 1..400),
        more in any::<u8>(),
        at in any::<proptest::sample::Index>(),
    ) {
        let sent = signed(name, &secret, &body, &NOW.to_string());
        let verifier = preset(name, &secret);
        prop_assert_eq!(verifier.verify(&sent, &body[1..], NOW), Err(Reason::NoMatch));
        let mut longer = body.clone();
        longer.insert(at.index(body.len() + 1), more);
        prop_assert_eq!(verifier.verify(&sent, &longer, NOW), Err(Reason::NoMatch));
    }

    #[test]
    fn any_change_of_one_byte_of_a_header_is_refused(
        (name, secret) in senders(),
        body in vec(any::<u8>(), 0..100),
        header in any::<proptest::sample::Index>(),
        at in any::<proptest::sample::Index>(),
        change in 1_u8..,
    ) {
        let mut sent = signed(name, &secret, &body, &NOW.to_string());
        let header = header.index(sent.len());
        let at = at.index(sent[header].1.len());
        sent[header].1[at] ^= change;
        prop_assert!(preset(name, &secret).verify(&sent, &body, NOW).is_err());
    }

    #[test]
    fn another_secret_is_refused(
        (name, secret) in senders(),
        (_, other) in senders(),
        body in vec(any::<u8>(), 0..100),
    ) {
        prop_assume!(secret != other);
        let sent = signed(name, &secret, &body, &NOW.to_string());
        prop_assert_eq!(preset(name, &other).verify(&sent, &body, NOW), Err(Reason::NoMatch));
    }

    #[test]
    fn no_request_panics_or_is_accepted_unsigned(
        block in select(blocks()),
        sent in vec((names(), values()), 0..8),
        body in vec(any::<u8>(), 0..100),
        now in prop_oneof![Just(NOW), any::<i64>()],
    ) {
        prop_assert!(verifier(block).verify(&sent, &body, now).is_err());
    }

    #[test]
    fn no_block_panics(
        template in "([{}]|body|ts|header:|[a-z: ]){0,12}",
        secret in vec(".{0,10}", 0..10),
        key in proptest::option::of(".{0,4}"),
    ) {
        let block = json!({
            "type": "hmac", "secret": secret, "signature_header": "X-Signature", "signed": template,
            "secret_decode": "whsec_base64", "parse": "csv_pairs", "sig_key": key,
        });
        let spec: VerifySpec = serde_json::from_value(block).unwrap();
        if let Ok(Verifier::Signature(built)) = spec.build() {
            prop_assert!(built.descriptor.is_consistent() && built.descriptor.signed.covers_body());
        }
    }
}
