//! The schemes of well-known providers, as data.
//!
//! Each cites the page it was checked against. The encoding of the secret is part of it: several of these providers hand
//! out secrets that begin with `whsec_`, and not all of them mean base64 by it.

use super::descriptor::{
    BodyForm, Descriptor, Encoding, HashFunction, Parse, SecretDecode, Separator, Timestamp,
    TimestampFormat, TimestampSource,
};
use super::public_key::Algorithm;
use super::template::{Piece, Template};

/// A provider's scheme.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preset {
    pub descriptor: Descriptor,
    pub signer: Signer,
}

/// What makes the signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    Hmac(HashFunction, SecretDecode),
    Key(Algorithm),
}

/// What most of them use.
const HMAC_SHA256: Signer = Signer::Hmac(HashFunction::Sha256, SecretDecode::Raw);

/// One signature over the body in a header, dated by nothing.
fn over_body(header: &str, prefix: &str, encoding: Encoding) -> Descriptor {
    Descriptor {
        signature_header: header.to_owned(),
        parse: Parse::Whole { prefix: Some(prefix.to_owned()).filter(|it| !it.is_empty()) },
        signed: Template { pieces: vec![Piece::Body] },
        encoding,
        timestamp: None,
        body: BodyForm::Received,
    }
}

fn literal(text: &str) -> Piece {
    Piece::Literal(text.to_owned())
}

fn header(name: &str) -> Piece {
    Piece::Header(name.to_owned())
}

fn signed(pieces: impl Into<Vec<Piece>>) -> Template {
    Template { pieces: pieces.into() }
}

/// A timestamp in a header, in Unix seconds.
fn dated_by(header: &str) -> Option<Timestamp> {
    let source = TimestampSource::Header(header.to_owned());
    Some(Timestamp { source, format: TimestampFormat::Seconds })
}

/// Adyen's webhooks for platforms, management and banking: `HmacSignature: <base64>` over the body, keyed with the bytes
/// that the HMAC key is the hex of. Nothing is dated. Its standard payment webhooks sign fields of each item within the
/// body instead, which no header scheme can check.
///
/// <https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures>
pub fn adyen() -> Preset {
    Preset {
        descriptor: over_body("HmacSignature", "", Encoding::Base64),
        signer: Signer::Hmac(HashFunction::Sha256, SecretDecode::Hex),
    }
}

/// Discord: `X-Signature-Ed25519: <hex>` over `<timestamp><body>`, dated by `X-Signature-Timestamp`, under the public key
/// of the application.
///
/// <https://docs.discord.com/developers/interactions/overview#setting-up-an-endpoint-validating-security-request-headers>
pub fn discord() -> Preset {
    Preset {
        descriptor: Descriptor {
            signed: signed([Piece::Timestamp, Piece::Body]),
            timestamp: dated_by("X-Signature-Timestamp"),
            ..over_body("X-Signature-Ed25519", "", Encoding::Hex)
        },
        signer: Signer::Key(Algorithm::Ed25519),
    }
}

/// GitHub: `X-Hub-Signature-256: sha256=<hex>` over the body. Nothing is dated.
///
/// <https://docs.github.com/en/webhooks/using-webhooks/validating-webhook-deliveries>
pub fn github() -> Preset {
    let descriptor = over_body("X-Hub-Signature-256", "sha256=", Encoding::Hex);
    Preset { descriptor, signer: HMAC_SHA256 }
}

/// HubSpot, version 3: `X-HubSpot-Signature-v3: <base64>` over `<method><url><body><timestamp>`, dated by
/// `X-HubSpot-Request-Timestamp` in milliseconds, keyed with the app's client secret. Some escapes in the query are undone
/// before it is signed.
///
/// <https://developers.hubspot.com/docs/apps/developer-platform/build-apps/authentication/request-validation>
pub fn hubspot() -> Preset {
    let source = TimestampSource::Header("X-HubSpot-Request-Timestamp".to_owned());
    Preset {
        descriptor: Descriptor {
            signed: signed([Piece::Method, Piece::UrlUnescaped, Piece::Body, Piece::Timestamp]),
            timestamp: Some(Timestamp { source, format: TimestampFormat::Milliseconds }),
            ..over_body("X-HubSpot-Signature-v3", "", Encoding::Base64)
        },
        signer: HMAC_SHA256,
    }
}

/// Intercom: `X-Hub-Signature: sha1=<hex>`, an HMAC-SHA1 over the body, keyed with the app's client secret. Nothing is
/// dated.
///
/// <https://developers.intercom.com/docs/references/webhooks/webhook-models>
pub fn intercom() -> Preset {
    Preset {
        descriptor: over_body("X-Hub-Signature", "sha1=", Encoding::Hex),
        signer: Signer::Hmac(HashFunction::Sha1, SecretDecode::Raw),
    }
}

/// Linear: `Linear-Signature: <hex>` over the body, dated by `webhookTimestamp` in it, in milliseconds.
///
/// <https://linear.app/developers/webhooks>
pub fn linear() -> Preset {
    let source = TimestampSource::Json("webhookTimestamp".to_owned());
    Preset {
        descriptor: Descriptor {
            timestamp: Some(Timestamp { source, format: TimestampFormat::Milliseconds }),
            ..over_body("Linear-Signature", "", Encoding::Hex)
        },
        signer: HMAC_SHA256,
    }
}

/// Meta (Facebook, Instagram, WhatsApp): `X-Hub-Signature-256: sha256=<hex>` over the body, keyed with the app secret.
/// Nothing is dated.
///
/// <https://developers.facebook.com/docs/graph-api/webhooks/getting-started#validate-payloads>
pub fn meta() -> Preset {
    let descriptor = over_body("X-Hub-Signature-256", "sha256=", Encoding::Hex);
    Preset { descriptor, signer: HMAC_SHA256 }
}

/// Paddle Billing: `Paddle-Signature: ts=<timestamp>;h1=<hex>[;h1=<hex>]` over `<timestamp>:<body>`, keyed with the secret
/// as it is shown.
///
/// <https://developer.paddle.com/webhooks/about/signature-verification>
pub fn paddle() -> Preset {
    let source = TimestampSource::Pair("ts".to_owned());
    Preset {
        descriptor: Descriptor {
            parse: Parse::Pairs { key: "h1".to_owned(), separator: Separator::Semicolon },
            signed: signed([Piece::Timestamp, literal(":"), Piece::Body]),
            timestamp: Some(Timestamp { source, format: TimestampFormat::Seconds }),
            ..over_body("Paddle-Signature", "", Encoding::Hex)
        },
        signer: HMAC_SHA256,
    }
}

/// SendGrid's event webhook: `X-Twilio-Email-Event-Webhook-Signature: <base64>`, ECDSA over P-256 of `<timestamp><body>`,
/// dated by `X-Twilio-Email-Event-Webhook-Timestamp`, under the verification key it shows.
///
/// <https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features>
pub fn sendgrid() -> Preset {
    Preset {
        descriptor: Descriptor {
            signed: signed([Piece::Timestamp, Piece::Body]),
            timestamp: dated_by("X-Twilio-Email-Event-Webhook-Timestamp"),
            ..over_body("X-Twilio-Email-Event-Webhook-Signature", "", Encoding::Base64)
        },
        signer: Signer::Key(Algorithm::EcdsaP256),
    }
}

/// Shopify: `X-Shopify-Hmac-SHA256: <base64>` over the body, keyed with the app's client secret. Nothing is dated.
///
/// <https://shopify.dev/docs/apps/build/webhooks/verify-deliveries>
pub fn shopify() -> Preset {
    let descriptor = over_body("X-Shopify-Hmac-SHA256", "", Encoding::Base64);
    Preset { descriptor, signer: HMAC_SHA256 }
}

/// Slack: `X-Slack-Signature: v0=<hex>` over `v0:<timestamp>:<body>`, dated by `X-Slack-Request-Timestamp`.
///
/// <https://docs.slack.dev/authentication/verifying-requests-from-slack>
pub fn slack() -> Preset {
    Preset {
        descriptor: Descriptor {
            signed: signed([literal("v0:"), Piece::Timestamp, literal(":"), Piece::Body]),
            timestamp: dated_by("X-Slack-Request-Timestamp"),
            ..over_body("X-Slack-Signature", "v0=", Encoding::Hex)
        },
        signer: HMAC_SHA256,
    }
}

/// Square: `x-square-hmacsha256-signature: <base64>` over `<url><body>`, keyed with the signature key of the subscription.
/// Nothing is dated.
///
/// <https://developer.squareup.com/docs/webhooks/step3validate>
pub fn square() -> Preset {
    Preset {
        descriptor: Descriptor {
            signed: signed([Piece::Url, Piece::Body]),
            ..over_body("x-square-hmacsha256-signature", "", Encoding::Base64)
        },
        signer: HMAC_SHA256,
    }
}

/// Standard Webhooks, symmetric: `webhook-signature: v1,<base64> ...` over `<webhook-id>.<webhook-timestamp>.<body>`.
/// Signatures of other versions, such as the asymmetric `v1a`, are ignored. The secret is base64 after its `whsec_`.
///
/// <https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md>
pub fn standard_webhooks() -> Preset {
    named_standard("webhook")
}

/// Stream: `X-Signature: <hex>` over the body, and over what it was before where it comes compressed. Nothing is dated.
///
/// <https://getstream.io/chat/docs/node/webhooks_overview/>
pub fn stream() -> Preset {
    let descriptor =
        Descriptor { body: BodyForm::Inflated, ..over_body("X-Signature", "", Encoding::Hex) };
    Preset { descriptor, signer: HMAC_SHA256 }
}

/// Stripe: `Stripe-Signature: t=<timestamp>,v1=<hex>[,v1=<hex>]` over `<timestamp>.<body>`; pairs of other schemes, such
/// as `v0`, are to be ignored. The endpoint's secret is the key as it is shown, `whsec_` included.
///
/// <https://docs.stripe.com/webhooks#verify-manually>
pub fn stripe() -> Preset {
    let source = TimestampSource::Pair("t".to_owned());
    Preset {
        descriptor: Descriptor {
            parse: Parse::Pairs { key: "v1".to_owned(), separator: Separator::Comma },
            signed: signed([Piece::Timestamp, literal("."), Piece::Body]),
            timestamp: Some(Timestamp { source, format: TimestampFormat::Seconds }),
            ..over_body("Stripe-Signature", "", Encoding::Hex)
        },
        signer: HMAC_SHA256,
    }
}

/// Svix: Standard Webhooks under other names of its headers. A sender that has paid for headers of its own is a
/// [`standard_webhooks`].
///
/// <https://docs.svix.com/receiving/verifying-payloads/how-manual>
pub fn svix() -> Preset {
    named_standard("svix")
}

/// Twilio: `X-Twilio-Signature: <base64>`, an HMAC-SHA1 over the URL with its query and the fields of the form, keyed with
/// the account's auth token. Of a body that is no form the SHA-256 stands in the query. Nothing is dated.
///
/// <https://www.twilio.com/docs/usage/security#validating-requests>
pub fn twilio() -> Preset {
    Preset {
        descriptor: Descriptor {
            signed: signed([Piece::Url, Piece::Form]),
            ..over_body("X-Twilio-Signature", "", Encoding::Base64)
        },
        signer: Signer::Hmac(HashFunction::Sha1, SecretDecode::Raw),
    }
}

/// X: `x-twitter-webhooks-signature: sha256=<base64>` over the body, keyed with the consumer secret. Nothing is dated.
///
/// <https://docs.x.com/x-api/webhooks/quickstart>
pub fn twitter() -> Preset {
    let descriptor = over_body("x-twitter-webhooks-signature", "sha256=", Encoding::Base64);
    Preset { descriptor, signer: HMAC_SHA256 }
}

/// Zendesk: `X-Zendesk-Webhook-Signature: <base64>` over `<timestamp><body>`, dated by
/// `X-Zendesk-Webhook-Signature-Timestamp` as in RFC 3339. The signing secret is the key as it is shown.
///
/// <https://developer.zendesk.com/documentation/webhooks/verifying/>
pub fn zendesk() -> Preset {
    let source = TimestampSource::Header("X-Zendesk-Webhook-Signature-Timestamp".to_owned());
    Preset {
        descriptor: Descriptor {
            signed: signed([Piece::Timestamp, Piece::Body]),
            timestamp: Some(Timestamp { source, format: TimestampFormat::Rfc3339 }),
            ..over_body("X-Zendesk-Webhook-Signature", "", Encoding::Base64)
        },
        signer: HMAC_SHA256,
    }
}

fn named_standard(prefix: &str) -> Preset {
    let name = |suffix: &str| format!("{prefix}-{suffix}");
    let (id, timestamp) = (name("id"), name("timestamp"));
    Preset {
        descriptor: Descriptor {
            parse: Parse::SpaceVersions { version: Some("v1,".to_owned()) },
            signed: signed([
                header(&id),
                literal("."),
                header(&timestamp),
                literal("."),
                Piece::Body,
            ]),
            timestamp: dated_by(&timestamp),
            ..over_body(&name("signature"), "", Encoding::Base64)
        },
        signer: Signer::Hmac(HashFunction::Sha256, SecretDecode::WhsecBase64),
    }
}
