//! Large objects: blocks that are sent by themselves, and one list that makes an object of them.
//!
//! The list is the one write that counts: it is conditional or not, and it is whole or not at all. Blocks that no list
//! named are nobody's object; there is no way to take them back, and the service drops them a week after the last of them.
//!
//! Two uploads of one object see each other's blocks, so the ids of each begin with chance of their own: a list never
//! names what another upload has sent.

use std::ops::Range;
use std::sync::Arc;

use ankusa_actors::ports::{BlobBody, BlobError, BlobKey};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tracing::Instrument;

use super::percent::encoded;
use super::{Container, Over, Written, insert};
use crate::blob::body::read_in_time;
use crate::blob::checksum::{DigestKind, RunningMd5, base64_digest};
use crate::blob::multipart::PARTS_AT_ONCE;
use crate::blob::transport::Ask;

/// The most a list may name.
pub(super) const BLOCKS_MAX: u64 = 50_000;

/// The id of a block. All are equally long, as the service wants it.
fn id(upload: u128, index: u32) -> String {
    let mut id = [0; 20];
    let (of_upload, of_block) = id.split_at_mut(16);
    of_upload.copy_from_slice(&upload.to_be_bytes());
    of_block.copy_from_slice(&index.to_be_bytes());
    STANDARD.encode(id)
}

/// `Latest`, so that the same list can be sent again: its blocks may have been made an object by then.
fn list(ids: &[String]) -> String {
    let mut list = String::from("<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList>");
    for id in ids {
        list.push_str("<Latest>");
        list.push_str(id);
        list.push_str("</Latest>");
    }
    list.push_str("</BlockList>");
    list
}

impl Container {
    /// Writes an object of many parts. Of its bytes, `PARTS_AT_ONCE` parts are in memory at once.
    ///
    /// # Errors
    /// It was not written, or nobody can say.
    pub(super) async fn put_blocks(
        self: &Arc<Self>,
        key: &BlobKey,
        (body, parts): (&BlobBody, Vec<Range<u64>>),
        over: Over,
        deadline: Instant,
    ) -> Result<Written, BlobError> {
        let upload = self.entropy.bits();
        let mut ids = Vec::with_capacity(parts.len());
        let mut whole = RunningMd5::default();
        // Dropped, it stops what is on its way.
        let mut sending: JoinSet<Result<Written, BlobError>> = JoinSet::new();
        for (index, part) in (0..).zip(parts) {
            if sending.len() == PARTS_AT_ONCE {
                match ended(sending.join_next().await)? {
                    Written::Done => {}
                    Written::IsThere(error) => return Ok(Written::IsThere(error)),
                }
            }
            let pieces = read_in_time(body, part, deadline).await?;
            let of_part = base64_digest(DigestKind::Md5, &pieces);
            let ((), digest) = tokio::join!(whole.add(&pieces), of_part);
            let id = id(upload, index);
            let ask = self.block(key, &id, pieces, &digest)?;
            let container = Arc::clone(self);
            let send = async move { container.write(&ask, over, deadline).await };
            sending.spawn(send.in_current_span());
            ids.push(id);
        }
        while !sending.is_empty() {
            match ended(sending.join_next().await)? {
                Written::Done => {}
                Written::IsThere(error) => return Ok(Written::IsThere(error)),
            }
        }
        let ask = self.block_list(key, &ids, &whole.base64(), over).await?;
        self.write(&ask, over, deadline).await
    }

    fn block(
        &self,
        key: &BlobKey,
        id: &str,
        pieces: Vec<Bytes>,
        digest: &str,
    ) -> Result<Ask, BlobError> {
        let mut url = self.object(key)?;
        url.set_query(Some(&format!("comp=block&blockid={}", encoded(id))));
        let mut ask = Ask::new(Method::PUT, url);
        ask.body = pieces;
        insert(&mut ask, "content-md5", digest)?;
        self.encrypt(&mut ask);
        Ok(ask)
    }

    /// With the digest of the whole object, for whoever reads it whole.
    async fn block_list(
        &self,
        key: &BlobKey,
        ids: &[String],
        digest: &str,
        over: Over,
    ) -> Result<Ask, BlobError> {
        let mut url = self.object(key)?;
        url.set_query(Some("comp=blocklist"));
        let mut ask = Ask::new(Method::PUT, url);
        ask.body = vec![Bytes::from(list(ids))];
        let of_list = base64_digest(DigestKind::Md5, &ask.body).await;
        insert(&mut ask, "content-md5", &of_list)?;
        insert(&mut ask, "x-ms-blob-content-md5", digest)?;
        over.insert(&mut ask)?;
        self.encrypt(&mut ask);
        Ok(ask)
    }
}

fn ended(
    joined: Option<Result<Result<Written, BlobError>, JoinError>>,
) -> Result<Written, BlobError> {
    joined.unwrap_or(Ok(Ok(Written::Done))).map_err(|error| stopped(&error))?
}

/// Only with the runtime, or by a fault of ours.
fn stopped(error: &JoinError) -> BlobError {
    BlobError::Transport(format!("a block was not sent: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_equally_long_and_those_of_two_uploads_and_two_blocks_differ() {
        let ids = [id(0, 0), id(0, 1), id(1, 0), id(u128::MAX, 49_999), id(u128::MAX, u32::MAX)];
        assert!(ids.iter().all(|id| id.len() == ids[0].len()), "{ids:?}");
        assert!((1..ids.len()).all(|at| !ids[..at].contains(&ids[at])), "{ids:?}");
        assert_eq!(ids[3], "/////////////////////wAAw08=");
    }

    #[test]
    fn a_list_names_its_blocks_in_order() {
        let expected = "<?xml version=\"1.0\" encoding=\"utf-8\"?><BlockList><Latest>YQ==</Latest>\
                        <Latest>YA==</Latest></BlockList>";
        assert_eq!(list(&["YQ==".to_owned(), "YA==".to_owned()]), expected);
    }
}
