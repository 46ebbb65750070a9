//! A sender of each scheme, written apart from the node's checks.

use ankusa_actors::model::verify::{
    Judge, Reason, Request, SignatureVerifier, Verifier, VerifySpec,
};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

pub(crate) type Headers = Vec<(String, Vec<u8>)>;

/// The time at which the requests of these tests are signed and, unless a test says otherwise, judged.
pub(crate) const NOW: i64 = 1_688_169_000;

/// The largest body that may come out of a compressed one here.
pub(crate) const MAX_INFLATED_BYTES: usize = 1 << 20;

/// A check of headers and body alone, as most schemes make it.
pub(crate) trait Verify {
    fn verify<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        headers: &[(N, V)],
        body: &[u8],
        now_unix_s: i64,
    ) -> Result<(), Reason>;
}

impl Verify for Verifier {
    fn verify<N: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        headers: &[(N, V)],
        body: &[u8],
        now_unix_s: i64,
    ) -> Result<(), Reason> {
        let path = "/webhooks/source";
        let request = Request { method: "POST", path, query: None, headers, body, peer: None };
        self.check(&request, &Judge { now_unix_s, max_inflated_bytes: MAX_INFLATED_BYTES })
    }
}

/// The verifier within, which must be one of signatures.
pub(crate) fn signature_verifier(verifier: Verifier) -> SignatureVerifier {
    let Verifier::Signature(verifier) = verifier else { panic!("no signatures") };
    *verifier
}

/// Some presets that sign any body, each with a secret that it can use.
pub(crate) const PRESETS: [(&str, &str); 5] = [
    ("github", "whsec_test"),
    ("shopify", "whsec_test"),
    ("slack", "whsec_test"),
    ("stripe", "whsec_test"),
    ("standard_webhooks", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
];

/// The verifier of a `verify` block.
pub(crate) fn verifier(block: Value) -> Verifier {
    serde_json::from_value::<VerifySpec>(block).unwrap().build().unwrap()
}

pub(crate) fn preset(name: &str, secret: &str) -> Verifier {
    verifier(json!({"type": name, "secret": secret}))
}

pub(crate) fn headers<V: AsRef<[u8]>>(pairs: &[(&str, V)]) -> Headers {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), value.as_ref().to_vec())).collect()
}

/// Judged at [`NOW`].
pub(crate) fn check<V: AsRef<[u8]>>(
    verifier: &Verifier,
    pairs: &[(&str, V)],
    body: impl AsRef<[u8]>,
) -> Result<(), Reason> {
    verifier.verify(pairs, body.as_ref(), NOW)
}

pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The headers with which a provider would send this body.
pub(crate) fn signed(name: &str, secret: &str, body: &[u8], ts: &str) -> Headers {
    let key = secret.as_bytes();
    match name {
        "github" => headers(&[(
            "X-Hub-Signature-256",
            format!("sha256={}", hex(&hmac_sha256(key, &[body]))),
        )]),
        "shopify" => {
            headers(&[("X-Shopify-Hmac-SHA256", BASE64_STANDARD.encode(hmac_sha256(key, &[body])))])
        }
        "slack" => {
            let digest = hmac_sha256(key, &[b"v0:", ts.as_bytes(), b":", body]);
            headers(&[
                ("X-Slack-Signature", format!("v0={}", hex(&digest))),
                ("X-Slack-Request-Timestamp", ts.to_owned()),
            ])
        }
        "stripe" => {
            let digest = hmac_sha256(key, &[ts.as_bytes(), b".", body]);
            headers(&[("Stripe-Signature", format!("t={ts},v1={}", hex(&digest)))])
        }
        "standard_webhooks" => {
            let key = BASE64_STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
            let digest = hmac_sha256(&key, &[b"msg_1.", ts.as_bytes(), b".", body]);
            headers(&[
                ("webhook-id", "msg_1".to_owned()),
                ("webhook-timestamp", ts.to_owned()),
                ("webhook-signature", format!("v1,{}", BASE64_STANDARD.encode(digest))),
            ])
        }
        other => panic!("no such preset: {other}"),
    }
}
