//! The schemes of well-known providers, as data.
//!
//! Each cites the page it was checked against. The encoding of the secret is part of it: two of these providers hand out
//! secrets that begin with `whsec_`, and only one of them means base64 by it.

use super::descriptor::{
    Encoding, HashFunction, HmacDescriptor, Parse, Piece, SecretDecode, Template, TimestampSource,
};

/// GitHub: `X-Hub-Signature-256: sha256=<hex>` over the body. Nothing is dated.
///
/// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>
pub fn github() -> HmacDescriptor {
    HmacDescriptor {
        signature_header: "X-Hub-Signature-256".to_owned(),
        parse: Parse::Whole { prefix: Some("sha256=".to_owned()) },
        signed: Template { pieces: vec![Piece::Body] },
        hash: HashFunction::Sha256,
        encoding: Encoding::Hex,
        secret_decode: SecretDecode::Raw,
        timestamp: TimestampSource::None,
    }
}

/// Shopify: `X-Shopify-Hmac-SHA256: <base64>` over the body, keyed with the app's client secret. Nothing is dated.
///
/// <https://shopify.dev/docs/apps/build/webhooks/verify-deliveries>
pub fn shopify() -> HmacDescriptor {
    HmacDescriptor {
        signature_header: "X-Shopify-Hmac-SHA256".to_owned(),
        parse: Parse::Whole { prefix: None },
        signed: Template { pieces: vec![Piece::Body] },
        hash: HashFunction::Sha256,
        encoding: Encoding::Base64,
        secret_decode: SecretDecode::Raw,
        timestamp: TimestampSource::None,
    }
}

/// Slack: `X-Slack-Signature: v0=<hex>` over `v0:<timestamp>:<body>`, dated by `X-Slack-Request-Timestamp`.
///
/// <https://docs.slack.dev/authentication/verifying-requests-from-slack>
pub fn slack() -> HmacDescriptor {
    let literal = |text: &str| Piece::Literal(text.to_owned());
    HmacDescriptor {
        signature_header: "X-Slack-Signature".to_owned(),
        parse: Parse::Whole { prefix: Some("v0=".to_owned()) },
        signed: Template {
            pieces: vec![literal("v0:"), Piece::Timestamp, literal(":"), Piece::Body],
        },
        hash: HashFunction::Sha256,
        encoding: Encoding::Hex,
        secret_decode: SecretDecode::Raw,
        timestamp: TimestampSource::Header("X-Slack-Request-Timestamp".to_owned()),
    }
}

/// Stripe: `Stripe-Signature: t=<timestamp>,v1=<hex>[,v1=<hex>]` over `<timestamp>.<body>`; pairs of other schemes, such
/// as `v0`, are to be ignored. The endpoint's secret is the key as it is shown, `whsec_` included.
///
/// <https://docs.stripe.com/webhooks#verify-manually>
pub fn stripe() -> HmacDescriptor {
    HmacDescriptor {
        signature_header: "Stripe-Signature".to_owned(),
        parse: Parse::CsvPairs { key: "v1".to_owned() },
        signed: Template {
            pieces: vec![Piece::Timestamp, Piece::Literal(".".to_owned()), Piece::Body],
        },
        hash: HashFunction::Sha256,
        encoding: Encoding::Hex,
        secret_decode: SecretDecode::Raw,
        timestamp: TimestampSource::Pair("t".to_owned()),
    }
}

/// Standard Webhooks, symmetric: `webhook-signature: v1,<base64> ...` over `<webhook-id>.<webhook-timestamp>.<body>`.
/// Signatures of other versions, such as the asymmetric `v1a`, are ignored. The secret is base64 after its `whsec_`.
///
/// <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>
pub fn standard_webhooks() -> HmacDescriptor {
    let header = |name: &str| Piece::Header(name.to_owned());
    let dot = || Piece::Literal(".".to_owned());
    HmacDescriptor {
        signature_header: "webhook-signature".to_owned(),
        parse: Parse::SpaceVersions { version: Some("v1,".to_owned()) },
        signed: Template {
            pieces: vec![
                header("webhook-id"),
                dot(),
                header("webhook-timestamp"),
                dot(),
                Piece::Body,
            ],
        },
        hash: HashFunction::Sha256,
        encoding: Encoding::Base64,
        secret_decode: SecretDecode::WhsecBase64,
        timestamp: TimestampSource::Header("webhook-timestamp".to_owned()),
    }
}
