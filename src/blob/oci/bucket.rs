//! One bucket: how its requests are made, signed and understood, and the ones that take one request.

use ankusa_actors::ports::{BlobBody, BlobEntry, BlobError, BlobKey, GET_MAX_BYTES};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_NONE_MATCH, RANGE};
use http::{HeaderName, HeaderValue, Method, StatusCode};
use reqwest::Request;
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio::time::Instant;
use url::Url;

use super::super::answer::{Answer, Refusal};
use super::super::body::{read_in_time, total};
use super::super::checksum::{DigestKind, base64_digest, check};
use super::super::read_back;
use super::super::transport::{Ask, Dialect, Transport};
use super::instance_principal::InstancePrincipal;
use super::listing::{Pages, parse_listing};
use super::refused::{error, parse_error};
use super::signing::{CONTENT_SHA256, GENERIC, Identity, sign, value};

pub(super) const CONTENT_MD5: HeaderName = HeaderName::from_static("content-md5");
const OPC_MULTIPART_MD5: &str = "opc-multipart-md5";
const OPC_SSE_KMS_KEY_ID: HeaderName = HeaderName::from_static("opc-sse-kms-key-id");

/// Room for a refusal, where a few bytes of an object are asked for.
const ANSWER_LEAST_BYTES: u64 = 64 << 10;

/// Names of a page of a listing.
const PAGE_NAMES: u32 = 1_000;

/// Who signs.
pub(super) enum Signer {
    Fixed(Identity),
    Instance(Box<InstancePrincipal>),
}

pub(super) struct Bucket {
    pub(super) transport: Transport,
    pub(super) endpoint: Url,
    /// `/n/<namespace>/b/<bucket>`.
    pub(super) path: String,
    pub(super) sse_key: Option<HeaderValue>,
    pub(super) signer: Signer,
}

/// How a write went that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    Done,
    /// It was to be a new object, and there is one.
    Taken,
}

/// Percent-encoded but for what is never special, a slash too: the name of an object is one segment of a path.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

impl Bucket {
    pub(super) fn now_ms(&self) -> u64 {
        self.transport.now_ms()
    }

    /// Of what is encoded already.
    pub(super) fn url(&self, path: &str, query: Option<&str>) -> Url {
        let mut url = self.endpoint.clone();
        url.set_path(&format!("{}{path}", self.path));
        url.set_query(query);
        url
    }

    fn object(&self, key: &BlobKey) -> Url {
        self.url(&format!("/o/{}", encoded(key.as_str())), None)
    }

    pub(super) async fn send(&self, ask: &Ask, deadline: Instant) -> Result<Answer, BlobError> {
        self.transport.send(self, ask, deadline).await
    }

    /// A request with `details`, whose digest is signed.
    pub(super) fn post(
        &self,
        path: &str,
        query: Option<&str>,
        details: &Value,
    ) -> Result<Ask, BlobError> {
        let mut ask = Ask::new(Method::POST, self.url(path, query));
        let details = Bytes::from(details.to_string());
        let digest = STANDARD.encode(Sha256::digest(&details));
        ask.headers.insert(CONTENT_SHA256, value(&digest)?);
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Self::carry(&mut ask, vec![details]);
        Ok(ask)
    }

    /// Bytes to go with a request, their length said where it can be signed.
    pub(super) fn carry(ask: &mut Ask, pieces: Vec<Bytes>) {
        ask.headers.insert(CONTENT_LENGTH, HeaderValue::from(total(&pieces)));
        ask.body = pieces;
    }

    /// Whether an object may be replaced.
    pub(super) fn conditions(ask: &mut Ask, only_new: bool) {
        if only_new {
            ask.headers.insert(IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
    }

    pub(super) fn encryption(&self, ask: &mut Ask) {
        if let Some(key) = &self.sse_key {
            ask.headers.insert(OPC_SSE_KMS_KEY_ID, key.clone());
        }
    }

    /// Writes an object in one request.
    pub(super) async fn put_whole(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        only_new: bool,
        deadline: Instant,
    ) -> Result<Written, BlobError> {
        let pieces = read_in_time(body, 0..body.bytes(), deadline).await?;
        let digest = base64_digest(DigestKind::Md5, &pieces).await;
        let mut ask = Ask::new(Method::PUT, self.object(key));
        ask.headers.insert(CONTENT_MD5, value(&digest)?);
        Self::conditions(&mut ask, only_new);
        self.encryption(&mut ask);
        Self::carry(&mut ask, pieces);
        let answer = self.send(&ask, deadline).await?;
        if answer.status.is_success() {
            Ok(Written::Done)
        } else if only_new && answer.status == StatusCode::PRECONDITION_FAILED {
            Ok(Written::Taken)
        } else {
            Err(error(&answer, self.now_ms()))
        }
    }

    pub(super) async fn get(&self, key: &BlobKey, deadline: Instant) -> Result<Bytes, BlobError> {
        let mut ask = Ask::new(Method::GET, self.object(key));
        ask.answer_max_bytes = GET_MAX_BYTES;
        let answer = self.send(&ask, deadline).await?;
        if answer.status != StatusCode::OK {
            return Err(error(&answer, self.now_ms()));
        }
        // Of an object in parts there is a digest of their digests alone.
        let in_parts = answer.headers.contains_key(OPC_MULTIPART_MD5);
        let told = answer.header("content-md5").filter(|_| !in_parts);
        check(DigestKind::Md5, told, &answer.body).await?;
        Ok(answer.body)
    }

    /// `length` is more than nothing.
    pub(super) async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Instant,
    ) -> Result<Bytes, BlobError> {
        let last = offset.saturating_add(length.saturating_sub(1));
        let mut ask = Ask::new(Method::GET, self.object(key));
        ask.headers.insert(RANGE, value(&format!("bytes={offset}-{last}"))?);
        ask.answer_max_bytes = length.max(ANSWER_LEAST_BYTES);
        let answer = self.send(&ask, deadline).await?;
        match answer.status {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::RANGE_NOT_SATISFIABLE => return Ok(Bytes::new()),
            StatusCode::OK => {
                let why = "a range was asked for, and the whole object came";
                return Err(BlobError::Misconfigured(why.to_owned()));
            }
            _refused => return Err(error(&answer, self.now_ms())),
        }
        part_of(&answer, offset, length)
    }

    /// Whether the object is exactly `body`, read a part at a time.
    pub(super) async fn holds(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        deadline: Instant,
    ) -> Result<bool, BlobError> {
        let at_once = self.transport.options().multipart_part_bytes;
        let range = |at, length| self.get_range(key, at, length, deadline);
        read_back::holds(body, at_once, deadline, range).await
    }

    pub(super) async fn delete(&self, key: &BlobKey, deadline: Instant) -> Result<(), BlobError> {
        let ask = Ask::new(Method::DELETE, self.object(key));
        let answer = self.send(&ask, deadline).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        let error = error(&answer, self.now_ms());
        if error == BlobError::NotFound { Ok(()) } else { Err(error) }
    }

    pub(super) async fn list(
        &self,
        prefix: &str,
        deadline: Instant,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        let mut pages = Pages::default();
        loop {
            let mut query = format!("fields={}&limit={PAGE_NAMES}", encoded("name,size"));
            if !prefix.is_empty() {
                query.push_str(&format!("&prefix={}", encoded(prefix)));
            }
            if let Some(start) = pages.start() {
                query.push_str(&format!("&start={}", encoded(start)));
            }
            let ask = Ask::new(Method::GET, self.url("/o", Some(&query)));
            let answer = self.send(&ask, deadline).await?;
            if answer.status != StatusCode::OK {
                return Err(error(&answer, self.now_ms()));
            }
            if !pages.add(parse_listing(&answer.body)?)? {
                return pages.into_entries();
            }
        }
    }
}

/// The body of a `206`, if it is what was asked for.
///
/// # Errors
/// `integrity`: it is something else.
pub fn part_of(answer: &Answer, offset: u64, length: u64) -> Result<Bytes, BlobError> {
    let begins = format!("bytes {offset}-");
    let told = answer.header(CONTENT_RANGE.as_str());
    let is_another = told.is_some_and(|range| !range.starts_with(&begins));
    if is_another || total(std::slice::from_ref(&answer.body)) > length {
        return Err(BlobError::Integrity("another range came than was asked for".to_owned()));
    }
    Ok(answer.body.clone())
}

#[async_trait]
impl Dialect for Bucket {
    async fn authorize(&self, request: &mut Request, deadline: Instant) -> Result<(), BlobError> {
        match &self.signer {
            Signer::Fixed(identity) => sign(request, identity, GENERIC, self.now_ms()).await,
            Signer::Instance(instance) => {
                let identity = instance.identity(deadline).await?;
                sign(request, &identity, GENERIC, self.now_ms()).await
            }
        }
    }

    fn refusal(&self, answer: &Answer) -> Refusal {
        parse_error(&answer.body)
    }

    async fn drops_credentials(&self, answer: &Answer, _: &Refusal) -> bool {
        match &self.signer {
            Signer::Instance(instance) if answer.status == StatusCode::UNAUTHORIZED => {
                instance.forget().await
            }
            Signer::Instance(_) | Signer::Fixed(_) => false,
        }
    }

    fn is_throttle(&self, refusal: &Refusal) -> bool {
        refusal.code == "TooManyRequests"
    }

    /// Two writers of one object at one moment: one of them is asked to come again.
    fn passes(&self, status: StatusCode, refusal: &Refusal) -> bool {
        status == StatusCode::CONFLICT && refusal.code == "ConcurrentObjectUpdate"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_segment_whatever_is_in_it() {
        assert_eq!(encoded("aZ09-._~"), "aZ09-._~");
        assert_eq!(encoded("a/b c+%2F?#\"n\u{e4}h"), "a%2Fb%20c%2B%252F%3F%23%22n%C3%A4h");
    }
}
