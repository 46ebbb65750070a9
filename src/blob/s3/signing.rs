//! Signature version 4, put on a request as it is sent.

use std::time::{Duration, UNIX_EPOCH};

use ankusa_actors::ports::BlobError;
use aws_credential_types::Credentials;
use aws_sigv4::http_request::{
    PercentEncodingMode, SignableBody, SignableRequest, SigningSettings, UriPathNormalizationMode,
    sign as signed,
};
use aws_sigv4::sign::v4::SigningParams;
use http::HeaderValue;
use reqwest::Request;

/// The header that says what the body's SHA-256 is, in hexadecimal. It is in the signature, so that no other body has it.
pub(super) const CONTENT_SHA256: &str = "x-amz-content-sha256";

/// What it says of no body.
pub(super) const NOTHINGS_SHA256: &str =
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// What proves who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    pub access_key_id: String,
    pub secret_access_key: String,
    pub session_token: Option<String>,
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// Signs everything that is on `request` by now: its headers, among them the host and the digest of the body, its path as
/// it is written, and its query.
///
/// # Errors
/// `misconfigured`: it cannot be signed, because a header holds what none may.
pub(super) fn sign(
    request: &mut Request,
    keys: &Keys,
    region: &str,
    now_ms: u64,
) -> Result<(), BlobError> {
    let failed =
        |why: String| BlobError::Misconfigured(format!("a request cannot be signed: {why}"));
    let mut settings = SigningSettings::default();
    // S3 takes a path as it is: a key may hold what would be tidied away, and what is encoded is encoded once.
    settings.percent_encoding_mode = PercentEncodingMode::Single;
    settings.uri_path_normalization_mode = UriPathNormalizationMode::Disabled;
    let identity = Credentials::new(
        &keys.access_key_id,
        &keys.secret_access_key,
        keys.session_token.clone(),
        None,
        "ankusa",
    )
    .into();
    let params = SigningParams::builder()
        .identity(&identity)
        .region(region)
        .name("s3")
        .time(UNIX_EPOCH + Duration::from_millis(now_ms))
        .settings(settings)
        .build()
        .map_err(|error| failed(error.to_string()))?
        .into();

    let mut headers = Vec::with_capacity(request.headers().len());
    for (name, value) in request.headers() {
        headers.push((name.as_str(), value.to_str().map_err(|error| failed(error.to_string()))?));
    }
    let digest = headers.iter().find(|(name, _)| *name == CONTENT_SHA256);
    let digest = digest.map_or(NOTHINGS_SHA256, |(_, digest)| digest).to_owned();
    let signable = SignableRequest::new(
        request.method().as_str(),
        request.url().as_str(),
        headers.into_iter(),
        SignableBody::Precomputed(digest),
    )
    .map_err(|error| failed(error.to_string()))?;
    let (instructions, _) =
        signed(signable, &params).map_err(|error| failed(error.to_string()))?.into_parts();
    let (headers, _) = instructions.into_parts();
    for header in headers {
        let mut value =
            HeaderValue::from_str(header.value()).map_err(|error| failed(error.to_string()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(header.name(), value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use http::{HeaderName, Method};
    use serde_json::Value;
    use url::Url;

    use super::*;

    /// The examples of the documentation of S3's signatures.
    fn examples() -> Value {
        serde_json::from_str(include_str!("../../../tests/golden/s3_signatures.json")).unwrap()
    }

    fn signature_of(example: &Value, secret: &str) -> String {
        let text = |key: &str| example[key].as_str().unwrap();
        let url = Url::parse(text("url")).unwrap();
        let mut request = Request::new(Method::from_bytes(text("method").as_bytes()).unwrap(), url);
        for (name, value) in example["headers"].as_object().unwrap() {
            let name = HeaderName::try_from(name).unwrap();
            request.headers_mut().insert(name, value.as_str().unwrap().parse().unwrap());
        }
        let keys = Keys {
            access_key_id: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_access_key: secret.into(),
            session_token: None,
        };
        // 2013-05-24T00:00:00Z
        sign(&mut request, &keys, "us-east-1", 1_369_353_600_000).unwrap();
        request.headers()["authorization"].to_str().unwrap().to_owned()
    }

    #[test]
    fn the_published_examples_are_signed_as_published() {
        let secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let examples = examples();
        let examples = examples.as_array().unwrap();
        assert_eq!(examples.len(), 4);
        for example in examples {
            let expected = example["authorization"].as_str().unwrap();
            assert_eq!(signature_of(example, secret), expected, "{example}");
            assert_ne!(signature_of(example, "another secret"), expected);
        }
    }

    #[test]
    fn a_session_token_is_sent_and_signed() {
        let url = Url::parse("http://h/bkt/a%20b?x=%20").unwrap();
        let mut request = Request::new(Method::GET, url);
        let keys = Keys {
            access_key_id: "a".into(),
            secret_access_key: "s".into(),
            session_token: Some("the token".into()),
        };
        sign(&mut request, &keys, "r", 0).unwrap();
        assert_eq!(request.headers()["x-amz-security-token"], "the token");
        let authorization = request.headers()["authorization"].to_str().unwrap();
        assert!(
            authorization.starts_with(
                "AWS4-HMAC-SHA256 Credential=a/19700101/r/s3/aws4_request, \
                 SignedHeaders=host;x-amz-date;x-amz-security-token, Signature="
            ),
            "{authorization}"
        );
        assert!(!format!("{request:?}{keys:?}").contains("the token"));
    }
}
