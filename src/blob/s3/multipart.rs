//! An object in parts: begun, sent some parts at a time, and put together at the end; or taken back.
//!
//! What a node leaves behind that is killed in between is for a lifecycle rule of the bucket
//! (`AbortIncompleteMultipartUpload`).

use std::ops::Range;
use std::sync::Arc;

use ankusa_actors::ports::{BlobBody, BlobError, BlobKey};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use http::{HeaderValue, Method};
use quick_xml::escape::escape;
use tokio::time::Instant;

use super::dialect::Completing;
use super::refusal::is_conflict;
use super::{S3, elsewhere, header_value, if_none_match};
use crate::blob::begun::{self, Begun, to_its_end};
use crate::blob::body::read_in_time;
use crate::blob::checksum::{DigestKind, base64_digest};
use crate::blob::multipart::PARTS_AT_ONCE;
use crate::blob::xml::elements;

/// The most parts an object may have.
pub(super) const PARTS_MAX: u64 = 10_000;

/// One object on its way.
struct Upload {
    store: Arc<S3>,
    key: BlobKey,
    id: String,
    deadline: Instant,
}

/// How the end of an upload was taken.
enum Ended {
    Whole,
    /// Another write of the key was under way: the parts are to be sent anew.
    Conflict(BlobError),
    /// It was refused, or nobody answered. An earlier attempt may have ended it all the same: what stores say of an upload
    /// that is over differs.
    InDoubt(BlobError),
}

impl S3 {
    /// Writes the object in these parts.
    pub(super) async fn put_in_parts(
        self: &Arc<Self>,
        key: &BlobKey,
        body: &BlobBody,
        parts: &[Range<u64>],
        if_absent: bool,
        deadline: Instant,
    ) -> Result<(), BlobError> {
        let mut conflicts = 0;
        loop {
            let (store, of) = (Arc::clone(self), key.clone());
            let begins = async move {
                let id = store.begin(&of, deadline).await?;
                Ok(Begun::new(Upload { store, key: of, id, deadline }))
            };
            let upload = to_its_end(begins).await?;
            let tags = match upload.send(body, parts).await {
                Ok(tags) => tags,
                Err(error) => {
                    upload.take_back(deadline).await;
                    return Err(error);
                }
            };
            let ended = upload.end(&tags, body.bytes(), if_absent).await;
            if matches!(ended, Ok(Ended::Whole)) {
                upload.over();
                return Ok(());
            }
            upload.take_back(deadline).await;
            match ended? {
                Ended::Whole => return Ok(()),
                Ended::Conflict(_) if conflicts < self.transport.options().retries => {
                    conflicts += 1
                }
                Ended::Conflict(error) => return Err(error),
                Ended::InDoubt(error) => {
                    let is_whole = self.holds(key, body, deadline).await;
                    return if is_whole == Ok(true) { Ok(()) } else { Err(error) };
                }
            }
        }
    }

    /// Begins an upload and answers its id.
    async fn begin(&self, key: &BlobKey, deadline: Instant) -> Result<String, BlobError> {
        let mut ask = self.ask(Method::POST, self.address.of_key(key.as_str(), &[("uploads", "")]));
        ask.headers.extend(self.sse.clone());
        parse_upload_id(&self.send(&ask, deadline).await.map_err(elsewhere)?.body)
    }
}

/// Reads the id of an upload from the answer to its beginning.
///
/// # Errors
/// `transport`: there is none in it, or it is not whole.
pub fn parse_upload_id(xml: &[u8]) -> Result<String, BlobError> {
    let mut id = String::new();
    let told = elements(xml, |path, text| {
        if path == ["InitiateMultipartUploadResult", "UploadId"] {
            text.trim().clone_into(&mut id);
        }
    });
    match told {
        Ok(()) if !id.is_empty() => Ok(id),
        Ok(()) => Err(BlobError::Transport("an upload was begun without an id".to_owned())),
        Err(why) => Err(BlobError::Transport(format!("an upload's id cannot be read: {why}"))),
    }
}

impl Upload {
    /// Sends all parts and answers the tag of each.
    async fn send(
        &self,
        body: &BlobBody,
        parts: &[Range<u64>],
    ) -> Result<Vec<HeaderValue>, BlobError> {
        let numbered = (1_u32..).zip(parts.iter().cloned());
        let sent = numbered.map(|(number, range)| self.part(body, number, range));
        // As they come, and never more of them in memory than are on their way.
        stream::iter(sent).buffered(PARTS_AT_ONCE).try_collect().await
    }

    async fn part(
        &self,
        body: &BlobBody,
        number: u32,
        range: Range<u64>,
    ) -> Result<HeaderValue, BlobError> {
        let pieces = read_in_time(body, range, self.deadline).await?;
        let number = number.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", self.id.as_str())];
        let url = self.store.address.of_key(self.key.as_str(), &query);
        let mut ask = self.store.ask_with(Method::PUT, url, pieces).await?;
        let md5 = base64_digest(DigestKind::Md5, &ask.body).await;
        ask.headers.insert("content-md5", header_value(&md5)?);
        let mut answer = self.store.send(&ask, self.deadline).await.map_err(elsewhere)?;
        let tag = answer.headers.remove("etag");
        tag.ok_or_else(|| BlobError::Transport(format!("part {number} was taken without a tag")))
    }

    /// Has the parts put together.
    async fn end(
        &self,
        tags: &[HeaderValue],
        bytes: u64,
        if_absent: bool,
    ) -> Result<Ended, BlobError> {
        let query = [("uploadId", self.id.as_str())];
        let url = self.store.address.of_key(self.key.as_str(), &query);
        let mut ask = self.store.ask_with(Method::POST, url, vec![list_of(tags)?]).await?;
        ask.moves_bytes = bytes;
        if if_absent {
            ask.headers.extend([if_none_match()]);
        }
        let dialect = Completing(&self.store.dialect);
        let answer = match self.store.transport.send(&dialect, &ask, self.deadline).await {
            Ok(answer) => answer,
            Err(error @ BlobError::Transport(_)) => return Ok(Ended::InDoubt(error)),
            Err(error) => return Err(error),
        };
        if answer.status.is_success() {
            return Ok(Ended::Whole);
        }
        let (refusal, error) = self.store.refused(&answer);
        if is_conflict(answer.status, &refusal) {
            return Ok(Ended::Conflict(BlobError::Transport(format!("409 {}", refusal.code))));
        }
        if error == BlobError::AlreadyExists {
            return Err(error);
        }
        Ok(Ended::InDoubt(elsewhere(error)))
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
        let query = [("uploadId", self.id.as_str())];
        let url = self.store.address.of_key(self.key.as_str(), &query);
        let ask = self.store.ask(Method::DELETE, url);
        let answer = self.store.transport.send(&self.store.dialect, &ask, deadline).await?;
        if answer.status.is_success() {
            return Ok(());
        }
        let (refusal, error) = self.store.refused(&answer);
        // It is over.
        if refusal.code == "NoSuchUpload" { Ok(()) } else { Err(error) }
    }
}

/// The parts in order, as the store wants them listed.
///
/// # Errors
/// `transport`: a tag is none.
pub fn list_of(tags: &[HeaderValue]) -> Result<Bytes, BlobError> {
    let mut xml =
        "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">".to_owned();
    for (number, tag) in (1_u32..).zip(tags) {
        let tag = tag
            .to_str()
            .map_err(|_| BlobError::Transport(format!("the tag of part {number} is none")))?;
        xml.push_str(&format!(
            "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag></Part>",
            escape(tag)
        ));
    }
    xml.push_str("</CompleteMultipartUpload>");
    Ok(xml.into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn parts_are_listed_in_order_with_their_tags() {
        let tags = ["\"a\"", "b&<"].map(|tag| HeaderValue::from_str(tag).unwrap());
        assert_eq!(
            list_of(&tags).unwrap(),
            "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
             <Part><PartNumber>1</PartNumber><ETag>&quot;a&quot;</ETag></Part>\
             <Part><PartNumber>2</PartNumber><ETag>b&amp;&lt;</ETag></Part></CompleteMultipartUpload>"
        );
    }
}
