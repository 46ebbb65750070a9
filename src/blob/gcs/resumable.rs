//! An upload in parts: begun, filled from the front, and finished by its last part.
//!
//! After a part whose answer was lost the store is asked how far it came (`Content-Range: bytes */N`), and the upload
//! goes on from there: nothing is guessed, and nothing of it is in memory but the part that is on its way. The parts are
//! digested as they are read, and the last one carries the digest of all, which the store validates: an object that
//! arrived wrong is never made. An upload that fails, comes too late for its name, or is dropped, is cancelled; one that
//! cannot be is forgotten by the store after a week.

use std::sync::Arc;

use ankusa_actors::ports::{BlobBody, BlobError, BlobKey};
use async_trait::async_trait;
use bytes::Bytes;
use http::header::{CONTENT_RANGE, CONTENT_TYPE, LOCATION, RANGE};
use http::{HeaderValue, Method, StatusCode};
use tokio::time::Instant;
use url::Url;

use super::object::persisted;
use super::refusal::{About, error};
use super::{CONTENT, Gcs, Write, header};
use crate::blob::answer::Answer;
use crate::blob::begun::{self, Begun, to_its_end};
use crate::blob::body::{read_in_time, total};
use crate::blob::checksum::RunningMd5;
use crate::blob::multipart::PART_STEP_BYTES;
use crate::blob::transport::{Ask, Tries};

/// One object on its way.
pub(super) struct Upload<'a> {
    gcs: &'a Arc<Gcs>,
    write: &'a Write<'a>,
    body: &'a BlobBody,
    deadline: Instant,
    digest: PrefixDigest,
}

/// Where the parts of one object go.
struct Session {
    gcs: Arc<Gcs>,
    key: BlobKey,
    /// Whoever has it may write the object: it is told nobody.
    url: Url,
}

/// How the filling of a session ended, if it did not fail.
enum Filled {
    Finished(Answer),
    /// The store does not know the session any more.
    Gone,
}

/// The digest of the first bytes of a body, which are read in order but some of them again.
#[derive(Default)]
struct PrefixDigest {
    md5: RunningMd5,
    bytes: u64,
}

impl PrefixDigest {
    /// Adds what is new of `pieces`, the first of which lies at `at`.
    async fn add(&mut self, at: u64, pieces: &[Bytes]) {
        let mut known = usize::try_from(self.bytes.saturating_sub(at)).unwrap_or(usize::MAX);
        let mut new = Vec::with_capacity(pieces.len());
        for piece in pieces {
            let known_of_it = known.min(piece.len());
            known -= known_of_it;
            new.push(piece.slice(known_of_it..));
        }
        self.bytes += total(&new);
        self.md5.add(&new).await;
    }
}

/// How many bytes one request carries: a multiple of what the store takes.
pub(super) fn part_bytes(configured: u64) -> u64 {
    configured.max(1).checked_next_multiple_of(PART_STEP_BYTES).unwrap_or(PART_STEP_BYTES)
}

impl<'a> Upload<'a> {
    pub(super) fn new(
        gcs: &'a Arc<Gcs>,
        write: &'a Write<'a>,
        body: &'a BlobBody,
        deadline: Instant,
    ) -> Self {
        Self { gcs, write, body, deadline, digest: PrefixDigest::default() }
    }

    /// Writes the object.
    ///
    /// # Errors
    /// `already_exists` if it was to be new and is not.
    pub(super) async fn run(mut self) -> Result<(), BlobError> {
        let mut begun_anew = 0;
        loop {
            let session = self.begin().await?;
            match self.fill(&session.url).await {
                Ok(Filled::Finished(answer)) => {
                    session.over();
                    let md5 = self.digest.md5.base64();
                    let (bytes, deadline) = (self.body.bytes(), self.deadline);
                    return self.gcs.landed(self.write.key, &answer, &md5, bytes, deadline).await;
                }
                Ok(Filled::Gone) if begun_anew < self.gcs.transport.options().retries => {
                    session.over();
                    begun_anew += 1;
                }
                Ok(Filled::Gone) => {
                    session.over();
                    let text = "its upload was forgotten before it was finished";
                    return Err(BlobError::Transport(text.to_owned()));
                }
                Err(error) => {
                    session.take_back(self.deadline).await;
                    return Err(error);
                }
            }
        }
    }

    async fn begin(&self) -> Result<Begun<Session>, BlobError> {
        let mut ask = self.write.ask(self.gcs, "resumable")?;
        ask.headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        ask.headers.insert("x-upload-content-type", HeaderValue::from_static(CONTENT));
        ask.headers.insert("x-upload-content-length", HeaderValue::from(self.body.bytes()));
        ask.body = vec![self.write.metadata(None)];
        let (gcs, key, deadline) = (Arc::clone(self.gcs), self.write.key.clone(), self.deadline);
        let begins = async move {
            let answer = gcs.transport.send(&*gcs, &ask, deadline).await?;
            if !answer.status.is_success() {
                return Err(error(&answer, About::Bucket, gcs.transport.now_ms()));
            }
            let Some(location) = answer.header(LOCATION.as_str()) else {
                let text = "its upload began nowhere: there is no Location";
                return Err(BlobError::Transport(text.to_owned()));
            };
            let url = gcs.places.session(location)?;
            Ok(Begun::new(Session { gcs, key, url }))
        };
        to_its_end(begins).await
    }

    /// Sends part after part, from wherever the store says it is.
    async fn fill(&mut self, session: &Url) -> Result<Filled, BlobError> {
        let stalls_max = self.gcs.transport.options().retries;
        let (mut at, mut furthest, mut stalls) = (0, 0, 0);
        let mut tries = Tries::default();
        loop {
            let (ask, sent_to) = self.part(session, at).await?;
            let sent =
                self.gcs.transport.try_once(&**self.gcs, &ask, self.deadline, &mut tries).await?;
            let answer = match sent {
                Some(answer) => answer,
                None => self.ask_how_far(session).await?,
            };
            match answer.status {
                StatusCode::PERMANENT_REDIRECT => at = reached(&answer, sent_to)?,
                status if status.is_success() => return Ok(Filled::Finished(answer)),
                StatusCode::NOT_FOUND | StatusCode::GONE => return Ok(Filled::Gone),
                _refused => {
                    return Err(error(&answer, About::Bucket, self.gcs.transport.now_ms()));
                }
            }
            if at > furthest {
                (furthest, stalls, tries) = (at, 0, Tries::default());
            } else if stalls < stalls_max {
                stalls += 1;
            } else {
                let text = format!("its upload does not get past {furthest} bytes");
                return Err(BlobError::Transport(text));
            }
        }
    }

    /// The request that carries the part at `at`, and where the part ends. At the end there is none left, and the upload
    /// is finished by asking.
    async fn part(&mut self, session: &Url, at: u64) -> Result<(Ask, u64), BlobError> {
        let bytes = self.body.bytes();
        let part_bytes = part_bytes(self.gcs.transport.options().multipart_part_bytes);
        let end = bytes.min(at.saturating_add(part_bytes));
        let pieces = read_in_time(self.body, at..end, self.deadline).await?;
        self.digest.add(at, &pieces).await;
        let range = if at < end {
            format!("bytes {at}-{}/{bytes}", end - 1)
        } else {
            format!("bytes */{bytes}")
        };
        let mut ask = Ask::new(Method::PUT, session.clone());
        ask.headers.insert(CONTENT_RANGE, header(&range)?);
        if end == bytes {
            // Of all of it, and so with the last part alone: with another the store would compare it with less.
            let md5 = format!("md5={}", self.digest.md5.base64());
            ask.headers.insert("x-goog-hash", header(&md5)?);
        }
        ask.body = pieces;
        Ok((ask, end))
    }

    async fn ask_how_far(&self, session: &Url) -> Result<Answer, BlobError> {
        let mut ask = Ask::new(Method::PUT, session.clone());
        ask.headers.insert(CONTENT_RANGE, header(&format!("bytes */{}", self.body.bytes()))?);
        self.gcs.transport.send(&**self.gcs, &ask, self.deadline).await
    }
}

#[async_trait]
impl begun::Upload for Session {
    fn key(&self) -> &BlobKey {
        &self.key
    }

    fn id(&self) -> &str {
        "a session"
    }

    /// Nothing of it will ever be seen. What is answered makes no difference to what has happened.
    async fn take_back(&self, deadline: Instant) -> Result<(), BlobError> {
        let mut ask = Ask::new(Method::DELETE, self.url.clone());
        ask.headers.insert(http::header::CONTENT_LENGTH, HeaderValue::from_static("0"));
        let mut tries = Tries::default();
        match self.gcs.transport.try_once(&*self.gcs, &ask, deadline, &mut tries).await? {
            Some(_) => Ok(()),
            None => Err(BlobError::Transport("it was not heard".to_owned())),
        }
    }
}

/// Where the store is, by a 308 after all up to `sent_to` has been sent.
///
/// # Errors
/// `integrity`: it has more than that; `transport`: it does not say what it has.
pub fn reached(answer: &Answer, sent_to: u64) -> Result<u64, BlobError> {
    let at = persisted(answer.header(RANGE.as_str())).map_err(BlobError::Transport)?;
    if at > sent_to {
        let text = format!("its upload has {at} bytes of {sent_to} that were sent");
        return Err(BlobError::Integrity(text));
    }
    Ok(at)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_part_is_a_multiple_of_what_the_store_takes() {
        for (configured, part) in [
            (0, 262_144),
            (1, 262_144),
            (262_144, 262_144),
            (262_145, 524_288),
            (8 << 20, 8 << 20),
            (u64::MAX, 262_144),
        ] {
            assert_eq!(part_bytes(configured), part, "{configured}");
        }
    }

    #[tokio::test]
    async fn bytes_that_are_read_again_are_digested_once() {
        let whole = Bytes::from_static(b"0123456789");
        let mut digest = PrefixDigest::default();
        for (from, to) in [(0, 4), (0, 4), (2, 6), (3, 5), (6, 10), (10, 10)] {
            let cut = from + (to - from) / 2;
            let pieces = [whole.slice(from..cut), whole.slice(cut..to)];
            digest.add(from as u64, &pieces).await;
        }
        let mut at_once = RunningMd5::default();
        at_once.add(&[whole]).await;
        assert_eq!((digest.bytes, digest.md5.base64()), (10, at_once.base64()));
    }
}
