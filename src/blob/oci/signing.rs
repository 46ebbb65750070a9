//! Request signatures of Oracle Cloud Infrastructure, version 1: RSA-SHA256 over some headers, after
//! draft-cavage-http-signatures-08.
//!
//! A request without a body signs its date, its target and its host. One with a body signs `content-length`,
//! `content-type` and `x-content-sha256` as well. Writing an object or a part of one is exempt from the digest: what
//! is signed there is which of the three are sent.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use ankusa_actors::ports::BlobError;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, DATE, HOST};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Request;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use url::{Position, Url};

/// The digest of a body: standard base64.
pub const CONTENT_SHA256: HeaderName = HeaderName::from_static("x-content-sha256");

/// What every request signs.
pub const GENERIC: &[&str] = &["date", "(request-target)", "host"];

/// What the exchange of a certificate for a token signs: its servers know no host.
pub const GENERIC_FEDERATION: &[&str] = &["date", "(request-target)"];

/// Signed if it is there.
const OF_THE_BODY: [HeaderName; 3] = [CONTENT_LENGTH, CONTENT_TYPE, CONTENT_SHA256];

/// An RSA key of 2048 to 8192 bits.
#[derive(Clone)]
pub struct SigningKey(Arc<KeyPair>);

/// Why a text is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadKey {
    #[error("must be a private key in PEM, not encrypted")]
    Pem,
    #[error("must be an RSA key of 2048 to 8192 bits, in PKCS#1 or PKCS#8")]
    Rsa,
}

/// Who signs, and with what.
#[derive(Clone)]
pub struct Identity {
    /// `<tenancy>/<user>/<fingerprint>`, or `ST$<token>`.
    pub key_id: String,
    pub key: SigningKey,
}

impl SigningKey {
    /// # Errors
    /// The first private key of `pem` is none of RSA, or there is none.
    pub fn from_pem(pem: &str) -> Result<Self, BadKey> {
        let der = PrivateKeyDer::from_pem_slice(pem.as_bytes()).map_err(|_| BadKey::Pem)?;
        let pair = if let PrivateKeyDer::Pkcs1(der) = &der {
            KeyPair::from_der(der.secret_pkcs1_der())
        } else if let PrivateKeyDer::Pkcs8(der) = &der {
            KeyPair::from_pkcs8(der.secret_pkcs8_der())
        } else {
            return Err(BadKey::Rsa);
        };
        pair.map(|pair| Self(Arc::new(pair))).map_err(|_| BadKey::Rsa)
    }

    /// A new one of 2048 bits.
    ///
    /// # Errors
    /// The kernel has no randomness.
    pub async fn generate() -> Result<Self, BlobError> {
        // A tenth of a second, give or take.
        let made = tokio::task::spawn_blocking(|| KeyPair::generate(KeySize::Rsa2048)).await;
        let pair = made.ok().and_then(Result::ok);
        pair.map(|pair| Self(Arc::new(pair))).ok_or_else(|| failed("no key could be made"))
    }

    /// SubjectPublicKeyInfo, in DER.
    ///
    /// # Errors
    /// It cannot be encoded.
    pub fn public_der(&self) -> Result<Vec<u8>, BlobError> {
        let der = self.0.public_key().as_der().map_err(|_| failed("a key has no encoding"))?;
        Ok(der.as_ref().to_vec())
    }

    /// PKCS#1 v1.5 with SHA-256, in standard base64.
    ///
    /// # Errors
    /// The key does not sign.
    pub async fn sign(&self, text: String) -> Result<String, BlobError> {
        let pair = Arc::clone(&self.0);
        // A millisecond of it would hold up everything else on this thread.
        let signed = tokio::task::spawn_blocking(move || {
            let mut signature = vec![0; pair.public_modulus_len()];
            pair.sign(&RSA_PKCS1_SHA256, &SystemRandom::new(), text.as_bytes(), &mut signature)
                .map(|()| STANDARD.encode(&signature))
        });
        signed.await.ok().and_then(Result::ok).ok_or_else(|| failed("the key does not sign"))
    }
}

/// The names that are signed, in order: `generic` ones, and what of the body is told.
pub fn names(generic: &[&'static str], headers: &HeaderMap) -> Vec<String> {
    let of_the_body = OF_THE_BODY.into_iter().filter(|name| headers.contains_key(name));
    let of_the_body = of_the_body.map(|name| name.as_str().to_owned());
    generic.iter().map(|name| (*name).to_owned()).chain(of_the_body).collect()
}

/// What is signed: a line a name. A header that is not there has no value.
pub fn signing_string(method: &Method, url: &Url, headers: &HeaderMap, names: &[String]) -> String {
    let mut text = String::new();
    for name in names {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(name);
        text.push_str(": ");
        if name == "(request-target)" {
            let target = &url[Position::BeforePath..Position::AfterQuery];
            // Into a string, which takes everything.
            let _ = write!(text, "{} {target}", method.as_str().to_ascii_lowercase());
        } else {
            let value = headers.get(name).and_then(|value| value.to_str().ok());
            text.push_str(value.unwrap_or_default());
        }
    }
    text
}

/// The value of the header `authorization`.
pub fn authorization(key_id: &str, names: &[String], signature: &str) -> String {
    let names = names.join(" ");
    let who = format!("keyId=\"{key_id}\",algorithm=\"rsa-sha256\"");
    format!("Signature version=\"1\",headers=\"{names}\",{who},signature=\"{signature}\"")
}

/// Dates the request as of `now_ms` and signs it.
///
/// # Errors
/// The key does not sign, or the identity cannot be said in a header.
pub async fn sign(
    request: &mut Request,
    identity: &Identity,
    generic: &[&'static str],
    now_ms: u64,
) -> Result<(), BlobError> {
    let host = request.url()[Position::BeforeHost..Position::AfterPort].to_owned();
    let date = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(now_ms));
    let headers = request.headers_mut();
    headers.insert(HOST, value(&host)?);
    headers.insert(DATE, value(&date)?);
    let names = names(generic, request.headers());
    let text = signing_string(request.method(), request.url(), request.headers(), &names);
    let signature = identity.key.sign(text).await?;
    let mut authorization = value(&authorization(&identity.key_id, &names, &signature))?;
    authorization.set_sensitive(true);
    request.headers_mut().insert(AUTHORIZATION, authorization);
    Ok(())
}

/// # Errors
/// It cannot be said in a header.
pub(super) fn value(text: &str) -> Result<HeaderValue, BlobError> {
    HeaderValue::from_str(text).map_err(|_| failed("a header cannot hold its value"))
}

fn failed(why: &str) -> BlobError {
    BlobError::Misconfigured(why.to_owned())
}
