//! Google Cloud Storage, by its JSON API.
//!
//! | | |
//! |---|---|
//! | `spec` | what an operator says, and the store it makes |
//! | `places` | addresses |
//! | `token` | who we are |
//! | `object`, `listing` | what the store says of objects |
//! | `refusal` | what it says when it says no |
//! | `resumable` | uploads in parts |
//!
//! **Digests.** A small object is uploaded with its metadata (`uploadType=multipart`), because it is in the metadata that
//! the API documents an MD5 the store validates (`md5Hash`); the `x-goog-hash` header, which Google's own clients send
//! along with JSON uploads too, says the same. An upload in parts knows its MD5 only at the end, and says it in that header
//! with the last part, as those clients do. What the store then says it has is compared with what was sent.

mod listing;
mod object;
mod places;
mod refusal;
mod resumable;
mod spec;
mod token;

use std::sync::Arc;

use ankusa_actors::ports::{
    Blob, BlobBody, BlobEntry, BlobError, BlobKey, Entropy, GET_MAX_BYTES, is_range_asked,
};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, RANGE};
use http::{HeaderValue, Method, StatusCode};
use serde_json::json;
use tokio::time::Instant;

pub use listing::{Page, parse_listing};
pub use object::{Uploaded, content_range, md5_of, parse_uploaded, persisted};
pub use places::Places;
pub use refusal::{About, error, parse_error};
pub use resumable::reached;
pub use spec::{GcsAuth, GcsSpec, open, open_at};
pub use token::parse_token;

use object::UPLOADED_FIELDS;
use resumable::{Upload, part_bytes};
use token::Credentials;

use super::answer::{Answer, short};
use super::body::read_in_time;
use super::checksum::{self, DigestKind};
use super::read_back;
use super::transport::{Ask, Transport};

/// What every object is, to the store.
const CONTENT: &str = "application/octet-stream";

/// Room for what an answer without the bytes that were asked for says, in bytes.
const SAID_MAX_BYTES: u64 = 64 << 10;

/// The last byte that can be asked for: the store counts in 63 bits, and has nothing near it.
const LAST_BYTE: u64 = u64::MAX >> 1;

/// One bucket as a store.
struct Store(Arc<Gcs>);

/// One bucket.
struct Gcs {
    transport: Transport,
    places: Places,
    credentials: Credentials,
    /// As a parameter, and as a header.
    kms_key: Option<(String, HeaderValue)>,
    entropy: Arc<dyn Entropy>,
}

/// One object that is written.
struct Write<'a> {
    key: &'a BlobKey,
    /// Only if there is none: generation 0 is that of an object that is not there.
    only_new: bool,
}

impl Write<'_> {
    /// The first request of an upload, without its body.
    fn ask(&self, gcs: &Gcs, upload_type: &str) -> Result<Ask, BlobError> {
        let mut query = vec![
            ("uploadType", upload_type),
            ("name", self.key.as_str()),
            ("fields", UPLOADED_FIELDS),
        ];
        if self.only_new {
            query.push(("ifGenerationMatch", "0"));
        }
        if let Some((key, _)) = &gcs.kms_key {
            query.push(("kmsKeyName", key));
        }
        let mut ask = Ask::new(Method::POST, gcs.places.uploads(&query)?);
        if let Some((_, header)) = &gcs.kms_key {
            ask.headers.insert("x-goog-encryption-kms-key-name", header.clone());
        }
        Ok(ask)
    }

    fn metadata(&self, md5: Option<&str>) -> Bytes {
        let mut metadata = json!({"name": self.key.as_str(), "contentType": CONTENT});
        if let (Some(md5), Some(fields)) = (md5, metadata.as_object_mut()) {
            fields.insert("md5Hash".to_owned(), md5.into());
        }
        Bytes::from(metadata.to_string())
    }
}

fn header(value: &str) -> Result<HeaderValue, BlobError> {
    HeaderValue::from_str(value).map_err(|error| BlobError::Misconfigured(error.to_string()))
}

impl Gcs {
    async fn write(
        self: &Arc<Self>,
        write: &Write<'_>,
        body: &BlobBody,
        deadline: Instant,
    ) -> Result<(), BlobError> {
        if body.bytes() > self.transport.options().multipart_threshold_bytes {
            return Upload::new(self, write, body, deadline).run().await;
        }
        let pieces = read_in_time(body, 0..body.bytes(), deadline).await?;
        let md5 = checksum::base64_digest(DigestKind::Md5, &pieces).await;
        let mut ask = write.ask(self, "multipart")?;
        // Bodies are what strangers send: a boundary that they cannot foresee is in none.
        let boundary = format!("{:032x}", self.entropy.bits());
        let kind = header(&format!("multipart/related; boundary={boundary}"))?;
        ask.headers.insert(CONTENT_TYPE, kind);
        ask.headers.insert("x-goog-hash", header(&format!("md5={md5}"))?);
        ask.body = related(&boundary, write.metadata(Some(&md5)), pieces);
        let answer = self.transport.send(&**self, &ask, deadline).await?;
        if !answer.status.is_success() {
            return Err(error(&answer, About::Bucket, self.transport.now_ms()));
        }
        self.landed(write.key, &answer, &md5, body.bytes(), deadline).await
    }

    /// Compares what the store says it has now with what was sent.
    ///
    /// # Errors
    /// `integrity` if it has something else, which is removed: nobody shall read it.
    async fn landed(
        &self,
        key: &BlobKey,
        answer: &Answer,
        md5: &str,
        bytes: u64,
        deadline: Instant,
    ) -> Result<(), BlobError> {
        let Some(uploaded) = parse_uploaded(&answer.body) else {
            return Err(BlobError::Transport("its answer to an upload names no object".to_owned()));
        };
        if uploaded.bytes == bytes && uploaded.md5.as_deref().is_none_or(|told| told == md5) {
            return Ok(());
        }
        if let Some(generation) = &uploaded.generation {
            let url = self.places.object(key, &[("ifGenerationMatch", generation)])?;
            let _ = self.transport.send(self, &Ask::new(Method::DELETE, url), deadline).await;
        }
        let has = short(&uploaded.md5.unwrap_or_default());
        let told = format!("{bytes} bytes ({md5}) were sent, it has {} ({has})", uploaded.bytes);
        Err(BlobError::Integrity(told))
    }

    /// Whether the object that was in the way of a create holds just what was to be created.
    ///
    /// # Errors
    /// `already_exists` if it does not.
    async fn is_this(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        deadline: Instant,
    ) -> Result<(), BlobError> {
        let part_bytes = part_bytes(self.transport.options().multipart_part_bytes);
        let range = |offset, length| self.range(key, offset, length, deadline);
        match read_back::holds(body, part_bytes, deadline, range).await? {
            true => Ok(()),
            false => Err(BlobError::AlreadyExists),
        }
    }

    /// `length` bytes at `offset`, or as many as there are.
    async fn range(
        &self,
        key: &BlobKey,
        offset: u64,
        length: u64,
        deadline: Instant,
    ) -> Result<Bytes, BlobError> {
        let offset = offset.min(LAST_BYTE);
        let last = offset.saturating_add(length).saturating_sub(1).min(LAST_BYTE);
        let mut ask = Ask::new(Method::GET, self.places.object(key, &[("alt", "media")])?);
        ask.headers.insert(RANGE, header(&format!("bytes={offset}-{last}"))?);
        ask.answer_max_bytes = length.max(SAID_MAX_BYTES);
        let answer = self.transport.send(self, &ask, deadline).await?;
        match answer.status {
            StatusCode::PARTIAL_CONTENT => part_of(&answer, offset, length),
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(Bytes::new()),
            // Who ignores the range has sent everything.
            StatusCode::OK => Ok(cut(&answer.body, offset, length)),
            _refused => Err(error(&answer, About::Object, self.transport.now_ms())),
        }
    }
}

/// The body of a `206`, if it is what was asked for.
///
/// # Errors
/// `integrity`: it is something else.
pub fn part_of(answer: &Answer, offset: u64, length: u64) -> Result<Bytes, BlobError> {
    let came = u64::try_from(answer.body.len()).unwrap_or(u64::MAX);
    let told = answer.header(CONTENT_RANGE.as_str()).unwrap_or_default();
    let is_it = match content_range(told) {
        Some((first, whole)) => first == offset && came == whole.saturating_sub(offset).min(length),
        None => came <= length,
    };
    if is_it {
        return Ok(answer.body.clone());
    }
    let told = short(told);
    let text = format!("{came} bytes came as {told:?}, asked for were {length} at {offset}");
    Err(BlobError::Integrity(text))
}

fn cut(whole: &Bytes, offset: u64, length: u64) -> Bytes {
    let from = usize::try_from(offset).unwrap_or(usize::MAX).min(whole.len());
    let length = usize::try_from(length).unwrap_or(usize::MAX).min(whole.len() - from);
    whole.slice(from..from + length)
}

/// Metadata and bytes in one body.
fn related(boundary: &str, metadata: Bytes, content: Vec<Bytes>) -> Vec<Bytes> {
    let before =
        format!("--{boundary}\r\ncontent-type: application/json; charset=UTF-8\r\n\r\n").into();
    let between = format!("\r\n--{boundary}\r\ncontent-type: {CONTENT}\r\n\r\n").into();
    let after = format!("\r\n--{boundary}--\r\n").into();
    let mut body = vec![before, metadata, between];
    body.extend(content);
    body.push(after);
    body
}

#[async_trait]
impl Blob for Store {
    async fn put(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let Self(gcs) = self;
        let deadline = gcs.transport.deadline(deadline);
        gcs.write(&Write { key, only_new: false }, &body, deadline).await
    }

    async fn put_if_absent(
        &self,
        key: &BlobKey,
        body: BlobBody,
        deadline: Option<Instant>,
    ) -> Result<(), BlobError> {
        let Self(gcs) = self;
        let deadline = gcs.transport.deadline(deadline);
        match gcs.write(&Write { key, only_new: true }, &body, deadline).await {
            Err(BlobError::AlreadyExists) => gcs.is_this(key, &body, deadline).await,
            written => written,
        }
    }

    async fn get(&self, key: &BlobKey, deadline: Option<Instant>) -> Result<Bytes, BlobError> {
        let Self(gcs) = self;
        let deadline = gcs.transport.deadline(deadline);
        let mut ask = Ask::new(Method::GET, gcs.places.object(key, &[("alt", "media")])?);
        ask.answer_max_bytes = GET_MAX_BYTES;
        let answer = gcs.transport.send(&**gcs, &ask, deadline).await?;
        if answer.status != StatusCode::OK {
            return Err(error(&answer, About::Object, gcs.transport.now_ms()));
        }
        checksum::check(DigestKind::Md5, md5_of(&answer.headers), &answer.body).await?;
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
        let Self(gcs) = self;
        let deadline = gcs.transport.deadline(deadline);
        let ask = Ask::new(Method::DELETE, gcs.places.object(key, &[])?);
        let answer = gcs.transport.send(&**gcs, &ask, deadline).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        let error = error(&answer, About::Object, gcs.transport.now_ms());
        if error == BlobError::NotFound { Ok(()) } else { Err(error) }
    }

    async fn list(
        &self,
        prefix: &str,
        deadline: Option<Instant>,
    ) -> Result<Vec<BlobEntry>, BlobError> {
        let Self(gcs) = self;
        let deadline = gcs.transport.deadline(deadline);
        listing::all(gcs, prefix, deadline).await
    }
}
