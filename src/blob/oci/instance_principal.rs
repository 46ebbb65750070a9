//! The compute instance as who signs: its certificate is exchanged for a session token that expires.
//!
//! 1. The metadata server of the instance has a certificate for it, its key, and the certificate in between.
//! 2. A new key of ours is told to the federation endpoint, in a request that the certificate's key signs.
//! 3. It answers a token: `ST$<token>` and our key sign from then on, until the token ends.

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::model::certificate::Certificate;
use ankusa_actors::ports::{BlobError, Clock};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Method, StatusCode};
use reqwest::Request;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde::Deserialize;
use serde_json::json;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use url::Url;

use super::super::answer::{Answer, short, told};
use super::super::cached::{Cached, Fetched};
use super::super::retry::is_transient;
use super::super::side::SideChannel;
use super::super::spec_error::BlobSpecError;
use super::refused::parse_error;
use super::signing::{CONTENT_SHA256, GENERIC_FEDERATION, Identity, SigningKey, sign, value};
use super::spec::{SESSION_PREFIX, is_token, origin};

/// How long before its end a token is exchanged for another one.
const EARLY: Duration = Duration::from_secs(120);

/// The most certificates between the instance's and the root.
const INTERMEDIATES_MAX: usize = 8;

/// Where to ask.
pub(super) struct InstancePrincipalSpec {
    pub(super) metadata: Url,
    /// `None` for that of the region.
    pub(super) federation: Option<Url>,
    /// `None` for the one the instance is in.
    pub(super) region: Option<String>,
}

pub(super) struct InstancePrincipal {
    spec: InstancePrincipalSpec,
    side: SideChannel,
    clock: Arc<dyn Clock>,
    session: Cached<Identity>,
}

/// The instance, by its certificate.
struct Leaf {
    certificate: Vec<u8>,
    intermediates: Vec<Vec<u8>>,
    identity: Identity,
}

#[derive(Deserialize)]
struct Instance {
    #[serde(rename = "canonicalRegionName")]
    canonical_region_name: String,
}

#[derive(Deserialize)]
struct Federated {
    token: String,
}

#[derive(Deserialize)]
struct Claims {
    exp: u64,
}

impl InstancePrincipal {
    pub(super) fn new(
        spec: InstancePrincipalSpec,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, BlobSpecError> {
        let side = SideChannel::new().map_err(|why| BlobSpecError::new("auth", why))?;
        Ok(Self { spec, side, clock, session: Cached::new(EARLY) })
    }

    /// Who signs now.
    pub(super) async fn identity(&self, deadline: Instant) -> Result<Identity, BlobError> {
        self.session.get(&*self.clock, self.fetch(deadline)).await
    }

    /// The token is not taken any more. Whether there was one.
    pub(super) async fn forget(&self) -> bool {
        self.session.forget().await
    }

    async fn fetch(&self, deadline: Instant) -> Result<Fetched<Identity>, BlobError> {
        let leaf = self.leaf(deadline).await?;
        let endpoint = self.federation(deadline).await?;
        let key = SigningKey::generate().await?;
        let token = self.exchange(endpoint, &leaf, &key, deadline).await?;
        let end_ms = parse_token_end_ms(&token)
            .filter(|_| is_token(&token))
            .ok_or_else(|| misconfigured("the federation endpoint gave no session token"))?;
        let value = Identity { key_id: format!("{SESSION_PREFIX}{token}"), key };
        Ok(Fetched { value, expires_at_ms: Some(end_ms) })
    }

    async fn leaf(&self, deadline: Instant) -> Result<Leaf, BlobError> {
        let certificate = self.metadata("identity/cert.pem", deadline).await?;
        let key = self.metadata("identity/key.pem", deadline).await?;
        let intermediates = self.metadata("identity/intermediate.pem", deadline).await?;
        let certificate = certificates(&certificate)?.into_iter().next();
        let certificate = certificate.ok_or_else(|| misconfigured("cert.pem is empty"))?;
        let key = SigningKey::from_pem(&key)
            .map_err(|error| misconfigured(&format!("the instance's key {error}")))?;
        let tenancy = tenancy(&certificate)?;
        let key_id = format!("{tenancy}/fed-x509/{}", fingerprint(&certificate));
        let intermediates = certificates(&intermediates)?;
        Ok(Leaf { certificate, intermediates, identity: Identity { key_id, key } })
    }

    async fn federation(&self, deadline: Instant) -> Result<Url, BlobError> {
        if let Some(endpoint) = &self.spec.federation {
            return Ok(endpoint.clone());
        }
        match &self.spec.region {
            Some(region) => federation_of(region),
            None => federation_of(&region_of(&self.metadata("instance/", deadline).await?)?),
        }
    }

    /// What the metadata server says, as text.
    async fn metadata(&self, what: &str, deadline: Instant) -> Result<String, BlobError> {
        let mut url = self.spec.metadata.clone();
        url.set_path(&format!("/opc/v2/{what}"));
        let mut request = Request::new(Method::GET, url);
        request.headers_mut().insert(AUTHORIZATION, HeaderValue::from_static("Bearer Oracle"));
        let answer = self.side.ask(request, deadline).await?;
        if answer.status != StatusCode::OK {
            return Err(refused(&answer, self.clock.now_ms(), what));
        }
        String::from_utf8(answer.body.to_vec())
            .map_err(|_| misconfigured(&format!("the instance's metadata: {what} is no text")))
    }

    async fn exchange(
        &self,
        mut endpoint: Url,
        leaf: &Leaf,
        key: &SigningKey,
        deadline: Instant,
    ) -> Result<String, BlobError> {
        endpoint.set_path("/v1/x509");
        let intermediates = leaf.intermediates.iter().map(|der| STANDARD.encode(der));
        let body = json!({
            "certificate": STANDARD.encode(&leaf.certificate),
            "publicKey": STANDARD.encode(key.public_der()?),
            "intermediateCertificates": intermediates.collect::<Vec<_>>(),
        });
        let body = body.to_string();
        let mut request = Request::new(Method::POST, endpoint);
        let digest = STANDARD.encode(Sha256::digest(&body));
        let headers = request.headers_mut();
        headers.insert(CONTENT_LENGTH, HeaderValue::from(body.len()));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CONTENT_SHA256, value(&digest)?);
        *request.body_mut() = Some(body.into());
        let now_ms = self.clock.now_ms();
        sign(&mut request, &leaf.identity, GENERIC_FEDERATION, now_ms).await?;
        let answer = self.side.ask(request, deadline).await?;
        if answer.status != StatusCode::OK {
            return Err(refused(&answer, self.clock.now_ms(), "x509"));
        }
        parse_token(&answer.body)
    }
}

/// The error of an answer for `what` that gives none. Whether there is an object or not, none says.
fn refused(answer: &Answer, now_ms: u64, what: &str) -> BlobError {
    let refusal = parse_error(&answer.body);
    let why = format!("instance principal, {what}: {}", told(answer.status, &refusal));
    match answer.status.as_u16() {
        401 | 403 => {
            let denied = answer.error(&refusal, now_ms);
            let is_skewed = matches!(denied, BlobError::ClockSkew { .. });
            if is_skewed { denied } else { BlobError::Forbidden(why) }
        }
        _other if is_transient(answer.status) => BlobError::Transport(why),
        _other => BlobError::Misconfigured(why),
    }
}

fn misconfigured(why: &str) -> BlobError {
    BlobError::Misconfigured(format!("instance principal: {}", short(why)))
}

/// The region, of what the metadata server says of the instance.
///
/// # Errors
/// `misconfigured`: it names none.
pub fn region_of(said: &str) -> Result<String, BlobError> {
    let instance: Result<Instance, _> = serde_json::from_str(said);
    let region = instance.map(|instance| instance.canonical_region_name);
    region.map_err(|error| misconfigured(&format!("the instance's metadata: {error}")))
}

fn federation_of(region: &str) -> Result<Url, BlobError> {
    let endpoint = format!("https://auth.{region}.oraclecloud.com");
    origin("region", &endpoint).map_err(|error| misconfigured(&error.to_string()))
}

/// The certificates of a PEM file, as DER.
///
/// # Errors
/// `misconfigured`: one of them is none, or there are too many.
pub fn certificates(pem: &str) -> Result<Vec<Vec<u8>>, BlobError> {
    let mut found = Vec::new();
    for der in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let der = der.map_err(|error| misconfigured(&format!("no certificate: {error}")))?;
        if found.len() == INTERMEDIATES_MAX {
            return Err(misconfigured("more certificates than there can be"));
        }
        found.push(der.to_vec());
    }
    Ok(found)
}

/// The tenancy of an instance's certificate: a unit of its subject says it.
///
/// # Errors
/// `misconfigured`: it is no certificate, or names none.
pub fn tenancy(certificate: &[u8]) -> Result<String, BlobError> {
    let read = Certificate::from_der(certificate)
        .map_err(|error| misconfigured(&format!("cert.pem: {error}")))?;
    // An OCID has nothing in it that a name must escape.
    let tenancy = read.subject.split([',', '+']).find_map(|part| {
        part.strip_prefix("OU=opc-tenant:").or_else(|| part.strip_prefix("OU=opc-identity:"))
    });
    let tenancy = tenancy.filter(|tenancy| is_token(tenancy));
    tenancy.map(str::to_owned).ok_or_else(|| misconfigured("cert.pem names no tenancy"))
}

/// `5a:01:...`: SHA-1 of the certificate, which is what it is known by there.
fn fingerprint(certificate: &[u8]) -> String {
    let digest = digest(&SHA1_FOR_LEGACY_USE_ONLY, certificate);
    let pairs: Vec<String> = digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect();
    pairs.join(":")
}

/// Reads what the federation endpoint gives.
///
/// # Errors
/// `misconfigured`: it is no token. Not a word of it is repeated.
pub fn parse_token(body: &[u8]) -> Result<String, BlobError> {
    let federated: Result<Federated, _> = serde_json::from_slice(body);
    let token = federated.map(|federated| federated.token);
    token.map_err(|_| misconfigured("the federation endpoint gave no token"))
}

/// When a JSON web token ends, in milliseconds since the Unix epoch. Who signed it is not checked: it is theirs.
pub fn parse_token_end_ms(token: &str) -> Option<u64> {
    let claims = token.split('.').nth(1)?;
    let claims = URL_SAFE_NO_PAD.decode(claims.trim_end_matches('=')).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    claims.exp.checked_mul(1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_federation_endpoint_is_that_of_the_region() {
        let said = r#"{"region":"phx","canonicalRegionName":"us-phoenix-1","shape":"VM"}"#;
        let endpoint = region_of(said).and_then(|region| federation_of(&region));
        let endpoint = endpoint.map(|url| url.to_string());
        assert_eq!(endpoint, Ok("https://auth.us-phoenix-1.oraclecloud.com/".to_owned()));
    }

    #[test]
    fn a_token_ends_when_it_says() {
        let token = |claims: &str| format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims));
        assert_eq!(
            parse_token_end_ms(&token(r#"{"sub":"x","exp":1796000000}"#)),
            Some(1_796_000_000_000)
        );
        assert_eq!(parse_token_end_ms("h.eyJleHAiOjF9.s"), Some(1_000));
        for none in [r#"{"exp":-1}"#, r#"{"exp":"1"}"#, "{}", r#"{"exp":18446744073709551615}"#] {
            assert_eq!(parse_token_end_ms(&token(none)), None, "{none}");
        }
        for none in ["", "a", "a.b", "a.*.c", "..", "h.eyJleHAiOj.s"] {
            assert_eq!(parse_token_end_ms(none), None, "{none}");
        }
    }
}
