//! An object in parts: create, up to [`PARTS_AT_ONCE`] parts on their way, commit; abort if anything fails.
//!
//! Of a create whose answer is lost, the upload stays behind unfinished: nobody knows its id. A bucket's lifecycle rule
//! removes those.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use ankusa_actors::ports::{BlobBody, BlobError, BlobKey};
use async_trait::async_trait;
use http::header::ETAG;
use http::{HeaderValue, Method, StatusCode};
use serde::Deserialize;
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::super::answer::short;
use super::super::begun::{self, Begun, to_its_end};
use super::super::body::read_in_time;
use super::super::checksum::{DigestKind, base64_digest};
use super::super::multipart::PARTS_AT_ONCE;
use super::super::transport::Ask;
use super::bucket::{Bucket, CONTENT_MD5, Written, encoded};
use super::refused::{error, parse_error};
use super::signing::value;

/// The most parts of an upload, and the highest number of one.
pub(super) const PARTS_MAX: u64 = 10_000;

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "uploadId")]
    upload_id: String,
}

/// One upload, begun.
#[derive(Clone)]
struct Upload {
    bucket: Arc<Bucket>,
    key: BlobKey,
    id: String,
    /// `/u/<object>`.
    path: String,
    /// `uploadId=<id>`.
    query: String,
    deadline: Instant,
}

/// Writes an object in `parts`, over what is there or not.
pub(super) async fn put(
    bucket: &Arc<Bucket>,
    key: &BlobKey,
    body: &BlobBody,
    parts: Vec<Range<u64>>,
    only_new: bool,
    deadline: Instant,
) -> Result<Written, BlobError> {
    let creates = create(Arc::clone(bucket), key.clone(), only_new, deadline);
    let Some(upload) = to_its_end(creates).await? else { return Ok(Written::Taken) };
    let written = match upload.send_all(body, parts).await {
        Ok(etags) => upload.commit(key, body, only_new, &etags).await,
        Err(error) => Err(error),
    };
    if matches!(written, Ok(Written::Done)) {
        upload.over();
    } else {
        upload.take_back(deadline).await;
    }
    written
}

/// `None`: there is such an object already.
async fn create(
    bucket: Arc<Bucket>,
    key: BlobKey,
    only_new: bool,
    deadline: Instant,
) -> Result<Option<Begun<Upload>>, BlobError> {
    let details = json!({ "object": key.as_str() });
    let mut ask = bucket.post("/u", None, &details)?;
    Bucket::conditions(&mut ask, only_new);
    bucket.encryption(&mut ask);
    let answer = bucket.send(&ask, deadline).await?;
    if only_new && answer.status == StatusCode::PRECONDITION_FAILED {
        return Ok(None);
    }
    if !answer.status.is_success() {
        return Err(error(&answer, bucket.now_ms()));
    }
    let path = format!("/u/{}", encoded(key.as_str()));
    let id = parse_upload_id(&answer.body)?;
    let query = format!("uploadId={}", encoded(&id));
    Ok(Some(Begun::new(Upload { bucket, key, id, path, query, deadline })))
}

/// Reads the id of an upload that has begun.
///
/// # Errors
/// `transport`: it names none.
pub fn parse_upload_id(body: &[u8]) -> Result<String, BlobError> {
    let created: Created = serde_json::from_slice(body)
        .map_err(|error| BlobError::Transport(short(&format!("no upload was named: {error}"))))?;
    Ok(created.upload_id)
}

impl Upload {
    /// The etags of all parts, by their numbers.
    async fn send_all(
        &self,
        body: &BlobBody,
        parts: Vec<Range<u64>>,
    ) -> Result<BTreeMap<u64, String>, BlobError> {
        let mut waiting = (1..).zip(parts);
        let mut on_their_way = JoinSet::new();
        let mut etags = BTreeMap::new();
        loop {
            while on_their_way.len() < PARTS_AT_ONCE
                && let Some((number, range)) = waiting.next()
            {
                let part = self.clone().send(number, body.clone(), range);
                on_their_way.spawn(part.in_current_span());
            }
            let failed = match on_their_way.join_next().await {
                None => return Ok(etags),
                Some(Ok(Ok((number, etag)))) => {
                    etags.insert(number, etag);
                    continue;
                }
                Some(Ok(Err(error))) => error,
                Some(Err(error)) => BlobError::Transport(format!("a part was given up: {error}")),
            };
            // None may arrive after the upload has been aborted.
            on_their_way.shutdown().await;
            return Err(failed);
        }
    }

    async fn send(
        self,
        number: u64,
        body: BlobBody,
        range: Range<u64>,
    ) -> Result<(u64, String), BlobError> {
        let pieces = read_in_time(&body, range, self.deadline).await?;
        let digest = base64_digest(DigestKind::Md5, &pieces).await;
        let query = format!("{}&uploadPartNum={number}", self.query);
        let mut ask = Ask::new(Method::PUT, self.bucket.url(&self.path, Some(&query)));
        ask.headers.insert(CONTENT_MD5, value(&digest)?);
        Bucket::carry(&mut ask, pieces);
        let answer = self.bucket.send(&ask, self.deadline).await?;
        if !answer.status.is_success() {
            return Err(error(&answer, self.bucket.now_ms()));
        }
        let etag = answer.headers.get(ETAG).and_then(|etag| HeaderValue::to_str(etag).ok());
        let etag = etag.ok_or_else(|| BlobError::Transport("a part got no etag".to_owned()))?;
        Ok((number, etag.to_owned()))
    }

    async fn commit(
        &self,
        key: &BlobKey,
        body: &BlobBody,
        only_new: bool,
        etags: &BTreeMap<u64, String>,
    ) -> Result<Written, BlobError> {
        let part = |(number, etag): (&u64, &String)| json!({ "partNum": number, "etag": etag });
        let parts: Vec<_> = etags.iter().map(part).collect();
        let details = json!({ "partsToCommit": parts });
        let mut ask = self.bucket.post(&self.path, Some(&self.query), &details)?;
        Bucket::conditions(&mut ask, only_new);
        let answer = self.bucket.send(&ask, self.deadline).await?;
        if answer.status.is_success() {
            return Ok(Written::Done);
        }
        if only_new && answer.status == StatusCode::PRECONDITION_FAILED {
            return Ok(Written::Taken);
        }
        let refused = error(&answer, self.bucket.now_ms());
        let of_the_upload = !matches!(
            parse_error(&answer.body).code.as_str(),
            "BucketNotFound" | "NamespaceNotFound" | "NotAuthorizedOrNotFound"
        );
        // There is no such upload any more: it was committed, and the answer to that was lost.
        if answer.status == StatusCode::NOT_FOUND
            && of_the_upload
            && self.bucket.holds(key, body, self.deadline).await == Ok(true)
        {
            return Ok(Written::Done);
        }
        Err(refused)
    }
}

#[async_trait]
impl begun::Upload for Upload {
    fn key(&self) -> &BlobKey {
        &self.key
    }

    fn id(&self) -> &str {
        &self.id
    }

    async fn take_back(&self, deadline: Instant) -> Result<(), BlobError> {
        let ask = Ask::new(Method::DELETE, self.bucket.url(&self.path, Some(&self.query)));
        let answer = self.bucket.send(&ask, deadline).await?;
        let is_over = parse_error(&answer.body).code == "UploadNotFound";
        if answer.status.is_success() || is_over {
            return Ok(());
        }
        Err(error(&answer, self.bucket.now_ms()))
    }
}
