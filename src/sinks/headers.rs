//! The headers of one delivery, in the documented order ("HTTP sink").

use bytes::{Bytes, BytesMut};
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};

use ankusa_actors::model::digest::sha256_hex;
use ankusa_actors::model::envelope::{Envelope, VerificationTerm};
use ankusa_actors::model::forward;
use ankusa_actors::model::idempotency::{dedupe_key, header_form, idempotency_key_header};
use ankusa_actors::model::sink_spec::{HttpSinkSpec, SinkSpecError};
use ankusa_actors::model::standard_webhooks::Signer;
use ankusa_actors::ports::Delivery;

static X_ID: HeaderName = HeaderName::from_static("x-ankusa-id");
static X_IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("x-ankusa-idempotency-key");
static X_SOURCE: HeaderName = HeaderName::from_static("x-ankusa-source");
static X_TENANT: HeaderName = HeaderName::from_static("x-ankusa-tenant");
static X_DEDUPE_KEY: HeaderName = HeaderName::from_static("x-ankusa-dedupe-key");
static X_REPLAY_ID: HeaderName = HeaderName::from_static("x-ankusa-replay-id");
static X_RECEIVED_AT: HeaderName = HeaderName::from_static("x-ankusa-received-at");
static X_BODY_SHA256: HeaderName = HeaderName::from_static("x-ankusa-body-sha256");
static X_VERIFICATION: HeaderName = HeaderName::from_static("x-ankusa-verification");
static X_VERIFICATION_FLAGGED: HeaderName =
    HeaderName::from_static("x-ankusa-verification-flagged");
static WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
static WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
static WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

static OCTET_STREAM: HeaderValue = HeaderValue::from_static("application/octet-stream");
static TRUE: HeaderValue = HeaderValue::from_static("true");

/// The most names the node sets itself.
const OWN_HEADERS: usize = 14;

/// The most headers of a provider that are passed on; more than that an HTTP server does not take by default.
const MAX_FORWARDED: usize = 256;

/// Room for the values that are put together for a delivery; more is found when a key is long.
const VALUE_BYTES: usize = 320;

/// Names that say how a message is framed: they belong to the connection, not to a configuration.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "expect",
    "keep-alive",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// What a sink sends with every delivery, and how it signs.
pub(super) struct SinkHeaders {
    configured: HeaderMap,
    signer: Option<Signer>,
}

impl SinkHeaders {
    /// Reads the spec's headers and secrets. `authorization` is what the URL's credentials come to; a configured header
    /// of that name wins.
    ///
    /// # Errors
    ///
    /// The first header that cannot be sent or is the node's own, or the first secret that cannot sign.
    pub(super) fn new(
        spec: &HttpSinkSpec,
        authorization: Option<HeaderValue>,
    ) -> Result<Self, SinkSpecError> {
        let mut configured = HeaderMap::with_capacity(spec.headers.len());
        for (name, value) in &spec.headers {
            let refuse = |problem: &str| SinkSpecError::new(format!("headers.{name}"), problem);
            let known: HeaderName = name.parse().map_err(|_| refuse("is not a header name"))?;
            if FRAMING.contains(&known.as_str()) {
                return Err(refuse("cannot be set: it says how the message is framed"));
            }
            let signs = [&WEBHOOK_ID, &WEBHOOK_TIMESTAMP, &WEBHOOK_SIGNATURE].contains(&&known);
            if signs || known.as_str().starts_with("x-ankusa-") {
                return Err(refuse("cannot be set: the node sets it itself"));
            }
            let value = HeaderValue::from_bytes(value.as_bytes());
            let mut value = value.map_err(|_| refuse("has a value with a control character"))?;
            value.set_sensitive(true);
            if configured.insert(known, value).is_some() {
                return Err(refuse("is set twice, in different case"));
            }
        }
        if let Some(authorization) = authorization {
            configured.entry(AUTHORIZATION).or_insert(authorization);
        }
        Ok(Self { configured, signer: spec.signer()? })
    }

    /// Everything but what the HTTP client adds (`accept`, `host`, `content-length`), for a delivery sent at `sent_ms`.
    ///
    /// What cannot be a header value, a control character in a provider's header say, is left out.
    pub(super) fn of(&self, delivery: &Delivery, sent_ms: u64) -> HeaderMap {
        let names =
            delivery.forwarded.len().min(MAX_FORWARDED) + OWN_HEADERS + self.configured.len();
        let mut headers = HeaderMap::with_capacity(names);
        self.forward(delivery, &mut headers);
        describe(delivery, &mut headers);
        if let Some(signer) = &self.signer {
            sign(signer, &delivery.envelope, sent_ms / 1_000, &mut headers);
        }
        for (name, value) in &self.configured {
            headers.insert(name, value.clone());
        }
        headers
    }

    fn forward(&self, delivery: &Delivery, headers: &mut HeaderMap) {
        for (name, text) in delivery.forwarded.iter().take(MAX_FORWARDED) {
            let Ok(known) = HeaderName::from_bytes(name.as_bytes()) else { continue };
            let own = self.signer.is_some()
                && [&WEBHOOK_ID, &WEBHOOK_TIMESTAMP, &WEBHOOK_SIGNATURE].contains(&&known);
            if own || self.configured.contains_key(&known) {
                continue;
            }
            if let Ok(value) =
                HeaderValue::from_bytes(&forward::exact(&delivery.envelope, name, text))
            {
                headers.insert(known, value);
            }
        }
    }
}

/// What the node knows of the hook.
fn describe(delivery: &Delivery, headers: &mut HeaderMap) {
    let envelope = &delivery.envelope;
    let mut values = Values(BytesMut::with_capacity(VALUE_BYTES));
    let mut set = |name: &'static HeaderName, value: Option<HeaderValue>| {
        if let Some(value) = value {
            headers.insert(name, value);
        }
    };
    set(&X_ID, values.of(envelope.id.as_str().as_bytes()));
    set(&X_IDEMPOTENCY_KEY, values.of(&idempotency_key_header(envelope)));
    set(&X_SOURCE, values.of(envelope.source_id.as_bytes()));
    let content_type = envelope.content_type.clone().map(HeaderValue::from_maybe_shared);
    set(
        &CONTENT_TYPE,
        Some(content_type.and_then(Result::ok).unwrap_or_else(|| OCTET_STREAM.clone())),
    );
    set(&X_TENANT, envelope.tenant_id.as_ref().and_then(|tenant| values.of(tenant.as_bytes())));
    set(&X_DEDUPE_KEY, dedupe_key(envelope).and_then(|key| values.of(&header_form(key))));
    set(&X_REPLAY_ID, delivery.replay_id.as_ref().and_then(|id| values.of(id.as_bytes())));
    set(&X_RECEIVED_AT, Some(envelope.received_at_ms.into()));
    set(&X_BODY_SHA256, owned(sha256_hex(&envelope.body)));
    let verification = envelope.verification.as_deref().map(VerificationTerm::decode);
    if let Some(Ok(verification)) = verification {
        set(&X_VERIFICATION, Some(HeaderValue::from_static(verification.status.as_str())));
        set(&X_VERIFICATION_FLAGGED, verification.flagged.then(|| TRUE.clone()));
    }
}

/// The three headers of Standard Webhooks.
fn sign(signer: &Signer, envelope: &Envelope, sent_s: u64, headers: &mut HeaderMap) {
    let id = envelope.id.as_str();
    let signature = owned(signer.sign(id, sent_s, &envelope.body));
    // Base64, spaces and a UUID are always header text; unsigned, the worker would refuse what it gets.
    if let (Ok(id), Some(signature)) = (HeaderValue::from_str(id), signature) {
        headers.insert(&WEBHOOK_ID, id);
        headers.insert(&WEBHOOK_TIMESTAMP, sent_s.into());
        headers.insert(&WEBHOOK_SIGNATURE, signature);
    }
}

/// A value of its own text, not copied.
fn owned(text: String) -> Option<HeaderValue> {
    HeaderValue::from_maybe_shared(Bytes::from(text)).ok()
}

/// Values cut from one allocation.
struct Values(BytesMut);

impl Values {
    fn of(&mut self, bytes: &[u8]) -> Option<HeaderValue> {
        self.0.extend_from_slice(bytes);
        HeaderValue::from_maybe_shared(self.0.split().freeze()).ok()
    }
}
