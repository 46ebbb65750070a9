//! What the JSON API says when it says no, and what that means.

use ankusa_actors::ports::BlobError;
use async_trait::async_trait;
use http::StatusCode;
use http::header::AUTHORIZATION;
use reqwest::Request;
use serde_json::Value;
use tokio::time::Instant;

use super::Gcs;
use crate::blob::answer::{Answer, Refusal, told};
use crate::blob::transport::Dialect;

/// The longest sentence that is kept, in bytes.
const MESSAGE_MAX_BYTES: usize = 1_024;

/// The words for "not so fast".
const THROTTLES: [&str; 3] = ["rateLimitExceeded", "userRateLimitExceeded", "SlowDown"];

/// What an answer that is no success says: a JSON object mostly, a sentence for downloads, XML of the other API's, or
/// the page of some proxy, of which nothing is kept.
pub fn parse_error(body: &[u8]) -> Refusal {
    if let Ok(Value::Object(told)) = serde_json::from_slice::<Value>(body) {
        return of_json(told.get("error").unwrap_or(&Value::Null));
    }
    let text = String::from_utf8_lossy(body.get(..MESSAGE_MAX_BYTES).unwrap_or(body));
    let text = text.trim();
    if text.starts_with('<') {
        let within = |open: &str, close: &str| {
            let (_, rest) = text.split_once(open)?;
            rest.split_once(close).map(|(within, _)| within.to_owned())
        };
        return Refusal {
            code: within("<Code>", "</Code>").unwrap_or_default(),
            message: within("<Message>", "</Message>").unwrap_or_default(),
            region: None,
        };
    }
    let message = if text.starts_with('{') { String::new() } else { text.to_owned() };
    Refusal { message, ..Refusal::default() }
}

fn of_json(error: &Value) -> Refusal {
    let text = |value: Option<&Value>| {
        let text = value.and_then(Value::as_str).unwrap_or_default();
        let end = text.floor_char_boundary(MESSAGE_MAX_BYTES);
        text.get(..end).unwrap_or_default().to_owned()
    };
    let first = error.get("errors").and_then(|errors| errors.get(0));
    let code = text(first.and_then(|first| first.get("reason")));
    let code = if code.is_empty() { text(error.get("status")) } else { code };
    Refusal { code, message: text(error.get("message")), region: None }
}

/// What a request was about: whether there may be nothing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// One object, which may not be there.
    Object,
    /// The bucket, which must.
    Bucket,
}

/// The error of an answer that is final.
pub fn error(answer: &Answer, about: About, now_ms: u64) -> BlobError {
    let refusal = parse_error(&answer.body);
    let told = told(answer.status, &refusal);
    match answer.status.as_u16() {
        400 if complains_of_a_digest(&refusal) => BlobError::Integrity(told),
        // A token has no date that a wrong clock could break.
        401 | 403 => BlobError::Forbidden(told),
        404 if about == About::Bucket || misses_the_bucket(&refusal) => {
            BlobError::Misconfigured(told)
        }
        _known => answer.error(&refusal, now_ms),
    }
}

/// `Provided MD5 hash "..." doesn't match calculated MD5 hash "..."`, and the like.
fn complains_of_a_digest(refusal: &Refusal) -> bool {
    let message = refusal.message.to_ascii_lowercase();
    let names_one = ["md5", "crc32c", "hash", "checksum"].iter().any(|name| message.contains(name));
    matches!(refusal.code.as_str(), "BadDigest" | "InvalidDigest")
        || (names_one && message.contains("match"))
}

/// `The specified bucket does not exist.`, against `No such object: ...`.
fn misses_the_bucket(refusal: &Refusal) -> bool {
    let message = refusal.message.to_ascii_lowercase();
    refusal.code == "NoSuchBucket" || message.contains("bucket does not exist")
}

#[async_trait]
impl Dialect for Gcs {
    async fn authorize(&self, request: &mut Request, deadline: Instant) -> Result<(), BlobError> {
        let clock = self.transport.clock().as_ref();
        if let Some(bearer) = self.credentials.bearer(clock, deadline).await? {
            request.headers_mut().insert(AUTHORIZATION, bearer);
        }
        Ok(())
    }

    fn refusal(&self, answer: &Answer) -> Refusal {
        parse_error(&answer.body)
    }

    async fn drops_credentials(&self, answer: &Answer, _refusal: &Refusal) -> bool {
        answer.status == StatusCode::UNAUTHORIZED && self.credentials.drop_token().await
    }

    fn is_throttle(&self, refusal: &Refusal) -> bool {
        THROTTLES.contains(&refusal.code.as_str())
    }

    /// A 403 may be a throttle's too.
    fn passes(&self, status: StatusCode, refusal: &Refusal) -> bool {
        status == StatusCode::FORBIDDEN && self.is_throttle(refusal)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;

    fn refusal(code: &str, message: &str) -> Refusal {
        Refusal { code: code.into(), message: message.into(), region: None }
    }

    fn means(status: u16, body: &str, about: About) -> BlobError {
        let (status, headers) = (StatusCode::from_u16(status).unwrap(), HeaderMap::new());
        error(&Answer { status, headers, body: Bytes::copy_from_slice(body.as_bytes()) }, about, 0)
    }

    const NO_OBJECT: &str = r#"{"error":{"code":404,"message":"No such object: b/k",
        "errors":[{"message":"No such object: b/k","domain":"global","reason":"notFound"}]}}"#;
    const NO_BUCKET: &str = r#"{"error":{"code":404,"message":"The specified bucket does not exist.",
        "errors":[{"domain":"global","reason":"notFound"}]}}"#;
    const BAD_MD5: &str = r#"{"error":{"code":400,"errors":[{"reason":"invalid"}],
        "message":"Provided MD5 hash \"a\" doesn't match calculated MD5 hash \"b\"."}}"#;

    #[test]
    fn an_error_is_read_in_whatever_form_it_comes() {
        assert_eq!(parse_error(NO_OBJECT.as_bytes()), refusal("notFound", "No such object: b/k"));
        let status = br#"{"error":{"code":403,"message":"m","status":"PERMISSION_DENIED"}}"#;
        assert_eq!(parse_error(status), refusal("PERMISSION_DENIED", "m"));
        assert_eq!(parse_error(b" No such object: b/k\n"), refusal("", "No such object: b/k"));
        let xml =
            b"<?xml version='1.0'?><Error><Code>NoSuchBucket</Code><Message>m</Message></Error>";
        assert_eq!(parse_error(xml), refusal("NoSuchBucket", "m"));
        for nothing in [&b""[..], b"<html>502</html>", b"{}", b"{\"error\":", b"{\"error\":[1]}"] {
            assert_eq!(parse_error(nothing), Refusal::default());
        }
        let long = "\u{e4}".repeat(2_000);
        let body = format!(r#"{{"error":{{"message":"{long}"}}}}"#);
        assert_eq!(parse_error(body.as_bytes()).message.len(), MESSAGE_MAX_BYTES);
        assert_eq!(parse_error(long.as_bytes()).message.len(), MESSAGE_MAX_BYTES);
    }

    #[test]
    fn a_missing_bucket_is_no_missing_object() {
        assert_eq!(means(404, NO_OBJECT, About::Object), BlobError::NotFound);
        assert_eq!(means(404, "No such object: b/k", About::Object), BlobError::NotFound);
        assert_eq!(means(404, "", About::Object), BlobError::NotFound);
        let missing = BlobError::Misconfigured(
            "404 notFound: The specified bucket does not exist.".to_owned(),
        );
        assert_eq!(means(404, NO_BUCKET, About::Object), missing);
        assert_eq!(means(404, NO_BUCKET, About::Bucket), missing);
        assert_eq!(means(404, "", About::Bucket), BlobError::Misconfigured("404".to_owned()));
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let digest = means(400, BAD_MD5, About::Bucket);
        assert_eq!(digest.as_str(), "integrity");
        let name =
            r#"{"error":{"message":"Invalid bucket name: 'x'","errors":[{"reason":"invalid"}]}}"#;
        assert_eq!(means(400, name, About::Bucket).as_str(), "misconfigured");
        assert_eq!(means(403, "", About::Bucket), BlobError::Forbidden("403".to_owned()));
        assert_eq!(means(401, "", About::Bucket), BlobError::Forbidden("401".to_owned()));
        assert_eq!(means(412, "", About::Bucket), BlobError::AlreadyExists);
        assert_eq!(means(503, "", About::Bucket), BlobError::Transport("503".to_owned()));
    }
}
