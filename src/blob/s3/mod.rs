//! S3, and the many stores that speak its language.
//!
//! | | |
//! |---|---|
//! | [`spec`] | what is configured |
//! | [`address`] | where the bucket is, and how keys are written into addresses |
//! | [`signing`], [`credentials`] | who asks, proved on every attempt |
//! | [`dialect`], [`refusal`] | what an answer means |
//! | [`listing`], [`xml`] | pages of a listing |
//! | [`multipart`] | large objects |
//!
//! Requests are plain: their body is what it is, with its length, its digest in a header and in the signature. What newer
//! clients do (`aws-chunked`, checksums behind the body) many stores do not take.

mod address;
pub mod credentials;
mod dialect;
mod listing;
mod multipart;
mod refusal;
mod signing;
mod spec;

use std::sync::Arc;

use ankusa_actors::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobKey, BlobScope, GET_MAX_BYTES, is_range_asked,
};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{HOST, IF_NONE_MATCH, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use tokio::time::Instant;
use url::Url;

use address::Address;
use credentials::{Chain, Environment};
use dialect::S3Dialect;
pub use dialect::completion_status;
pub use listing::{ListPage, Pages, parse_listing};
use multipart::PARTS_MAX;
pub use multipart::{list_of, parse_upload_id};
pub use refusal::{error, parse_error, refusal};
pub use signing::Keys;
use signing::{CONTENT_SHA256, NOTHINGS_SHA256};
pub use spec::S3Spec;

use super::answer::{Answer, Refusal};
use super::body::read_in_time;
use super::checksum::{DigestKind, check, digest};
use super::multipart::parts;
use super::options::Sse;
use super::read_back;
use super::spec_error::BlobSpecError;
use super::transport::{Ask, Dialect, PAGE_MAX_BYTES, Transport, World};

const CHECKSUM_SHA256: HeaderName = HeaderName::from_static("x-amz-checksum-sha256");

/// How much of an object is read at once to see whether it is the one that was written, in bytes.
const COMPARED_AT_ONCE_BYTES: u64 = 8 << 20;

/// As much is sent before an answer is waited for, in bytes: the system takes it all at once.
const UNHEARD_BYTES: u64 = 64 << 10;

/// No object reaches this far, and no store can count further.
const OFFSET_MAX: u64 = i64::MAX.unsigned_abs();

/// One bucket as a store.
struct Store(Arc<S3>);

/// One bucket.
struct S3 {
    transport: Transport,
    dialect: S3Dialect,
    address: Address,
    /// What asks for encryption, on whatever begins an object.
    sse: HeaderMap,
}

/// A store as configured. Nothing is asked of it yet.
///
/// # Errors
/// What is configured makes none.
pub fn open(
    spec: &S3Spec,
    scope: BlobScope,
    world: &World,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    open_in(spec, scope, world, &Environment::of_process())
}

/// The same in another environment than the process's.
///
/// # Errors
/// What is configured makes none.
pub fn open_in(
    spec: &S3Spec,
    scope: BlobScope,
    world: &World,
    environment: &Environment,
) -> Result<Arc<dyn Blob>, BlobSpecError> {
    spec.check()?;
    let address = Address::new(spec)?;
    let credentials = Chain::new(spec, environment, &world.clock)?;
    let transport =
        Transport::new(scope, address.endpoint(), &spec.bucket, &spec.transport, world)?;
    let dialect =
        S3Dialect { region: spec.region.clone(), credentials, clock: Arc::clone(&world.clock) };
    let sse = sse_headers(spec.sse.as_ref())
        .map_err(|error| BlobSpecError::new("sse.key_id", error.to_string()))?;
    Ok(Arc::new(Store(Arc::new(S3 { transport, dialect, address, sse }))))
}

fn sse_headers(sse: Option<&Sse>) -> Result<HeaderMap, BlobError> {
    let kind = HeaderName::from_static("x-amz-server-side-encryption");
    let key = HeaderName::from_static("x-amz-server-side-encryption-aws-kms-key-id");
    let mut headers = HeaderMap::new();
    match sse {
        None => {}
        Some(Sse::Aes256 {}) => {
            headers.insert(kind, HeaderValue::from_static("AES256"));
        }
        Some(Sse::Kms { key_id }) => {
            headers.insert(kind, HeaderValue::from_static("aws:kms"));
            headers.insert(key, header_value(key_id)?);
        }
    }
    Ok(headers)
}

fn header_value(text: &str) -> Result<HeaderValue, BlobError> {
    HeaderValue::from_str(text)
        .map_err(|_| BlobError::Misconfigured("a header cannot hold what it is to say".to_owned()))
}

fn if_none_match() -> (HeaderName, HeaderValue) {
    (IF_NONE_MATCH, HeaderValue::from_static("*"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn len(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

impl S3 {
    /// A request without a body.
    fn ask(&self, method: Method, url: Url) -> Ask {
        let mut ask = Ask::new(method, url);
        ask.headers.insert(HOST, self.address.host().clone());
        ask.headers.insert(CONTENT_SHA256, HeaderValue::from_static(NOTHINGS_SHA256));
        ask
    }

    /// One with a body, whose digest it says.
    async fn ask_with(&self, method: Method, url: Url, body: Vec<Bytes>) -> Result<Ask, BlobError> {
        let mut ask = self.ask(method, url);
        let sha256 = digest(DigestKind::Sha256, &body).await;
        ask.headers.insert(CONTENT_SHA256, header_value(&hex(&sha256))?);
        ask.body = body;
        Ok(ask)
    }

    /// # Errors
    /// Also for an answer that is no success.
    async fn send(&self, ask: &Ask, deadline: Instant) -> Result<Answer, BlobError> {
        let answer = self.transport.send(&self.dialect, ask, deadline).await?;
        if answer.status.is_success() { Ok(answer) } else { Err(self.refused(&answer).1) }
    }

    fn refused(&self, answer: &Answer) -> (Refusal, BlobError) {
        let refusal = self.dialect.refusal(answer);
        let error = error(answer, &refusal, self.transport.now_ms());
        (refusal, error)
    }

    async fn write(
        self: &Arc<Self>,
        key: &BlobKey,
        body: &BlobBody,
        if_absent: bool,
        deadline: Instant,
    ) -> Result<(), BlobError> {
        if let Some(parts) = parts(self.transport.options(), body.bytes(), PARTS_MAX) {
            return self.put_in_parts(key, body, &parts, if_absent, deadline).await;
        }
        let pieces = read_in_time(body, 0..body.bytes(), deadline).await?;
        let mut ask = self.ask(Method::PUT, self.address.of_key(key.as_str(), &[]));
        let sha256 = digest(DigestKind::Sha256, &pieces).await;
        ask.headers.insert(CONTENT_SHA256, header_value(&hex(&sha256))?);
        ask.headers.insert(CHECKSUM_SHA256, header_value(&STANDARD.encode(&sha256))?);
        ask.headers.extend(self.sse.clone());
        if if_absent {
            ask.headers.extend([if_none_match()]);
        }
        ask.body = pieces;
        match self.send(&ask, deadline).await {
            Ok(_) => Ok(()),
            // A store that refuses before it has everything may hang up, and what it said is lost with what was sent.
            Err(error @ BlobError::Transport(_)) if if_absent && body.bytes() > UNHEARD_BYTES => {
                let there = self.range(key, 0, 1, deadline).await;
                Err(there.map_or(error, |_| BlobError::AlreadyExists))
            }
            Err(error) => Err(elsewhere(error)),
        }
    }

    /// Whether the object there is exactly `body`, of which no more than a piece is in memory.
    async fn holds(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        deadline: Instant,
    ) -> Result<bool, BlobError> {
        let range = |offset, length| self.range(key, offset, length, deadline);
        read_back::holds(body, COMPARED_AT_ONCE_BYTES, deadline, range).await
    }

    async fn range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Instant,
    ) -> Result<Bytes, BlobError> {
        let first = offset.min(OFFSET_MAX);
        let last = first.saturating_add(length.saturating_sub(1)).min(OFFSET_MAX);
        let mut ask = self.ask(Method::GET, self.address.of_key(key.as_str(), &[]));
        ask.headers.insert(RANGE, header_value(&format!("bytes={first}-{last}"))?);
        ask.answer_max_bytes = length.max(PAGE_MAX_BYTES);
        let answer = self.transport.send(&self.dialect, &ask, deadline).await?;
        match answer.status {
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(Bytes::new()),
            StatusCode::PARTIAL_CONTENT => part_of(&answer, first, length),
            // All there is: a store may take no notice of a range, or not of one of nothing.
            status if status.is_success() => {
                let at = |offset: u64| {
                    usize::try_from(offset.min(len(&answer.body))).unwrap_or(usize::MAX)
                };
                Ok(answer.body.slice(at(offset)..at(offset.saturating_add(length))))
            }
            _refused => Err(self.refused(&answer).1),
        }
    }

    async fn page(
        &self,
        prefix: &str,
        token: Option<&str>,
        deadline: Instant,
    ) -> Result<ListPage, BlobError> {
        let mut query = vec![("list-type", "2"), ("encoding-type", "url"), ("prefix", prefix)];
        query.extend(token.map(|token| ("continuation-token", token)));
        let ask = self.ask(Method::GET, self.address.of_bucket(&query));
        parse_listing(&self.send(&ask, deadline).await.map_err(elsewhere)?.body)
    }
}

/// What finds nothing where only a bucket must be has come to the wrong place.
fn elsewhere(error: BlobError) -> BlobError {
    if error == BlobError::NotFound {
        return BlobError::Misconfigured("404: no store is at this address".to_owned());
    }
    error
}

/// The bytes of an answer to a range, if it is the one that was asked for.
///
/// # Errors
/// `integrity`: it is another, or does not say which.
pub fn part_of(answer: &Answer, first: u64, length: u64) -> Result<Bytes, BlobError> {
    let wrong = || {
        BlobError::Integrity(format!("{length} bytes from {first} on were asked for, others came"))
    };
    let told = answer.header("content-range").and_then(|range| {
        let (range, whole) = range.strip_prefix("bytes ")?.split_once('/')?;
        let (from, to) = range.split_once('-')?;
        Some((
            from.parse::<u64>().ok()?,
            to.parse::<u64>().ok()?.checked_add(1)?,
            whole.parse::<u64>().ok(),
        ))
    });
    let Some((from, to, whole)) = told else { return Err(wrong()) };
    // Where the store does not say how long the object is, it cannot be told whether this is all there is of it.
    let end = whole.unwrap_or(to).min(first.saturating_add(length));
    if from != first || to != end || to.checked_sub(from) != Some(len(&answer.body)) {
        return Err(wrong());
    }
    Ok(answer.body.clone())
}

#[async_trait]
impl Blob for Store {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let Self(bucket) = self;
        bucket.write(key, &body, false, bucket.transport.deadline(deadline)).await
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let Self(bucket) = self;
        let deadline = bucket.transport.deadline(deadline);
        match bucket.write(key, &body, true, deadline).await {
            Err(BlobError::AlreadyExists) if bucket.holds(key, &body, deadline).await? => Ok(()),
            written => written,
        }
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        let Self(bucket) = self;
        let mut ask = bucket.ask(Method::GET, bucket.address.of_key(key.as_str(), &[]));
        ask.headers.insert("x-amz-checksum-mode", HeaderValue::from_static("ENABLED"));
        ask.answer_max_bytes = GET_MAX_BYTES;
        let answer = bucket.send(&ask, bucket.transport.deadline(deadline)).await?;
        // That of an object in parts is a digest of digests, and ends with their number: it is read as none.
        check(DigestKind::Sha256, answer.header(CHECKSUM_SHA256.as_str()), &answer.body).await?;
        Ok(answer.body)
    }

    async fn get_range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Option<Instant>,
    ) -> Result<Bytes, BlobError> {
        if !is_range_asked(length)? {
            return Ok(Bytes::new());
        }
        self.0.range(key, offset, length, self.0.transport.deadline(deadline)).await
    }

    async fn delete(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<(), BlobError> {
        let Self(bucket) = self;
        let ask = bucket.ask(Method::DELETE, bucket.address.of_key(key.as_str(), &[]));
        match bucket.send(&ask, bucket.transport.deadline(deadline)).await {
            Ok(_) | Err(BlobError::NotFound) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        let deadline = self.0.transport.deadline(deadline);
        let mut pages = Pages::default();
        let mut token = None;
        loop {
            let page = self.0.page(prefix, token.as_deref(), deadline).await?;
            token = pages.add(page)?;
            if token.is_none() {
                return pages.into_listing(prefix);
            }
        }
    }
}
