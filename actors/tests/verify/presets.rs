//! Each preset against an example its provider publishes, where there is one, and against vectors computed elsewhere.

use ankusa_actors::model::verify::presets::{github, shopify, slack, standard_webhooks, stripe};
use ankusa_actors::model::verify::{Reason, Template};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use crate::support::{NOW, PRESETS, Verify, check, preset, signed, verifier};

fn golden() -> Value {
    let file = include_str!(concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../tests/golden/inbound_verification.json"
    ));
    serde_json::from_str(file).unwrap()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap()
}

#[test]
fn the_golden_vectors_verify_and_not_for_another_body() {
    let golden = golden();
    let mut seen = Vec::new();
    for case in golden["cases"].as_array().unwrap() {
        let name = text(case, "preset");
        let sent: Vec<(&str, &str)> = case["headers"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str().unwrap()))
            .collect();
        let verifier = preset(name, text(&golden, "secret"));
        let now = golden["now"].as_i64().unwrap();
        assert_eq!(verifier.verify(&sent, text(&golden, "body").as_bytes(), now), Ok(()), "{name}");
        assert_eq!(
            verifier.verify(&sent, br#"{"id":"evt_2"}"#, now),
            Err(Reason::NoMatch),
            "{name}"
        );
        seen.push(name);
    }
    assert_eq!(seen, ["github", "shopify", "slack", "stripe"]);
}

#[test]
fn the_golden_standard_webhooks_vectors_verify() {
    let golden = golden();
    let cases = golden["standard_webhooks"].as_array().unwrap();
    for case in cases {
        let now = case["timestamp"].as_i64().unwrap();
        let ts = now.to_string();
        let sent = [
            ("webhook-id", text(case, "id")),
            ("webhook-timestamp", &ts),
            ("webhook-signature", text(case, "signature")),
        ];
        let body = BASE64_STANDARD.decode(text(case, "body_base64")).unwrap();
        assert_eq!(
            preset("standard_webhooks", text(case, "secret")).verify(&sent, &body, now),
            Ok(()),
            "{case}"
        );
    }
    assert_eq!(cases.len(), 3);
}

#[test]
fn github_accepts_the_example_of_its_documentation() {
    let verifier = preset("github", "It's a Secret to Everybody");
    let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
    assert_eq!(check(&verifier, &[("X-Hub-Signature-256", signature)], "Hello, World!"), Ok(()));
}

#[test]
fn slack_accepts_the_example_of_its_documentation() {
    let verifier = preset("slack", "8f742231b10e8888abcd99yyyzzz85a5");
    let sent = [
        ("X-Slack-Request-Timestamp", "1531420618"),
        (
            "X-Slack-Signature",
            "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503",
        ),
    ];
    let body = "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V\
                &channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=\
                &response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554\
                %2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c";
    assert_eq!(verifier.verify(&sent, body.as_bytes(), 1_531_420_618), Ok(()));
}

#[test]
fn standard_webhooks_accepts_the_vector_of_its_reference_libraries() {
    let verifier = preset("standard_webhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
    // Beside it an asymmetric signature, as in the example headers of the specification.
    let sent = [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        (
            "webhook-signature",
            "v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg== \
             v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
        ),
    ];
    assert_eq!(verifier.verify(&sent, br#"{"test": 2432232314}"#, 1_614_265_330), Ok(()));
}

/// Stripe publishes no whole example: this is the body and the secret of its SDK's tests, the digest computed with
/// Python, and the other entries its documentation and those tests put beside it.
#[test]
fn stripe_accepts_a_request_like_those_of_its_sdk() {
    let verifier = preset("stripe", "whsec_test_secret");
    let signature = "t=1700000000,v1=potato,\
                     v1=4f1cd7feda9826e746b7d482c4badebb657398df1099e1046364f6196a230150,\
                     v0=6ffbb59b2300aae63f272406069a9788598b792a944a07aba816edb039989a39";
    let body = "{\n  \"id\": \"evt_test_webhook\",\n  \"object\": \"event\"\n}";
    assert_eq!(
        verifier.verify(&[("Stripe-Signature", signature)], body.as_bytes(), 1_700_000_000),
        Ok(())
    );
}

/// The digests that Stripe's SDK holds its own HMAC against.
#[test]
fn the_digests_of_stripes_sdk_are_ours() {
    let verifier =
        verifier(json!({"type": "hmac", "secret": "test_secret", "signature_header": "Signature"}));
    for (body, digest) in [
        ("", "f7f9bd47fb987337b5796fdc1fdb9ba221d0d5396814bfcaf9521f43fd8927fd"),
        (
            r#"{"obj1":"hello","obj2":"world"}"#,
            "bebb1a643997f419b315ddba19e6f5411e1ce7f810ba6d3617ce72823092f363",
        ),
        ("\u{1f600}", "837da296d05c4fe31f61d5d7ead035099d9585a5bcde87de952012a78f0b0c43"),
    ] {
        assert_eq!(check(&verifier, &[("Signature", digest)], body), Ok(()), "{body}");
    }
}

/// Shopify publishes no example; the digest was computed with Python.
#[test]
fn shopify_accepts_a_request_signed_elsewhere() {
    let verifier = preset("shopify", "hush");
    let signature = "D0UMXmhjwBRi4y66TmhJrDlhQABD7zI2fm3p6/QLMo8=";
    let body = r#"{"id":820982911946154508,"email":"jon@example.com"}"#;
    assert_eq!(check(&verifier, &[("X-Shopify-Hmac-SHA256", signature)], body), Ok(()));
}

#[test]
fn the_presets_sign_the_documented_text() {
    for (preset, signed) in [
        (github(), "{body}"),
        (shopify(), "{body}"),
        (slack(), "v0:{ts}:{body}"),
        (stripe(), "{ts}.{body}"),
        (standard_webhooks(), "{header:webhook-id}.{header:webhook-timestamp}.{body}"),
    ] {
        assert_eq!(Ok(preset.descriptor.signed), Template::parse(signed));
    }
}

#[test]
fn no_preset_takes_the_signature_of_another() {
    let body = b"{}";
    for (sender, secret) in PRESETS {
        let sent = signed(sender, secret, body, &NOW.to_string());
        for (receiver, secret) in PRESETS {
            let expected = if sender == receiver { Ok(()) } else { Err(Reason::MissingSignature) };
            assert_eq!(
                preset(receiver, secret).verify(&sent, body, NOW),
                expected,
                "{sender} to {receiver}"
            );
        }
    }
}
