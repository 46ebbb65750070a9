//! Bodies: of one piece, of many, from elsewhere, larger than a part, and such as cannot be read.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::{BlobTrial, len, noise};
use crate::ports::{BlobBody, BlobError, BlobSource};

/// Bytes that are read when they are sent, up to where they cannot be.
pub struct Elsewhere {
    bytes: Bytes,
    fails_from: u64,
}

/// What reading behind that answers.
const UNREADABLE: &str = "the source is gone";

impl Elsewhere {
    pub fn with(bytes: impl Into<Bytes>) -> Self {
        Self { bytes: bytes.into(), fails_from: u64::MAX }
    }

    /// A read that goes beyond `offset` fails.
    pub fn failing_from(bytes: impl Into<Bytes>, offset: u64) -> Self {
        Self { bytes: bytes.into(), fails_from: offset }
    }
}

#[async_trait]
impl BlobSource for Elsewhere {
    fn bytes(&self) -> u64 {
        len(self.bytes.len())
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        tokio::task::yield_now().await;
        if range.end > self.fails_from {
            return Err(BlobError::Transport(UNREADABLE.to_owned()));
        }
        let place = |at| usize::try_from(at).expect("a place in memory");
        Ok(self.bytes.slice(place(range.start)..place(range.end)))
    }
}

pub async fn a_body_in_pieces_is_one_object(trial: &BlobTrial) {
    let pieces = [&b"header "[..], b"", b"frame ", b"", b"", b"trailer"].map(Bytes::from_static);
    trial.put("put", BlobBody::of_pieces(pieces.clone())).await;
    trial.create("created", BlobBody::of_pieces(pieces)).await.unwrap();
    for key in ["put", "created"] {
        assert_eq!(trial.get(key).await.unwrap(), &b"header frame trailer"[..]);
    }
    let bytes = noise(300_000);
    let pieces: Vec<_> = bytes.chunks(7_001).map(Bytes::copy_from_slice).collect();
    trial.put("many", BlobBody::of_pieces(pieces)).await;
    assert!(trial.get("many").await.unwrap() == bytes);
}

pub async fn a_body_elsewhere_is_one_object(trial: &BlobTrial) {
    for bytes in [0, 1, 300_000] {
        let body = Bytes::from(noise(bytes));
        let source = || BlobBody::of_source(Arc::new(Elsewhere::with(body.clone())));
        trial.put("put", source()).await;
        trial.delete("created").await;
        trial.create("created", source()).await.unwrap();
        for key in ["put", "created"] {
            assert!(trial.get(key).await.unwrap() == body, "{key} of {bytes} bytes");
        }
    }
}

pub async fn a_large_object_comes_back(trial: &BlobTrial) {
    let large = Bytes::from(noise(trial.large_bytes));
    let pieces: Vec<_> = large.chunks(1_000_003).map(Bytes::copy_from_slice).collect();
    let source = BlobBody::of_source(Arc::new(Elsewhere::with(large.clone())));
    for (key, body) in [("pieces", BlobBody::of_pieces(pieces)), ("elsewhere", source)] {
        trial.put(key, body).await;
        assert!(trial.get(key).await.unwrap() == large, "{key}");
        let (middle, end) = (large.len() / 2, large.len());
        for range in [0..10, middle - 500_000..middle + 500_000, end - 10..end] {
            let offset = len(range.start);
            let part = trial.range(key, offset, len(range.len())).await.unwrap();
            assert!(part == large.slice(range.clone()), "{range:?} of {key}");
        }
        // Over itself, with something small.
        trial.put(key, &b"small"[..]).await;
        assert_eq!(trial.get(key).await.unwrap(), &b"small"[..], "{key}");
    }
    assert_eq!(trial.list("").await, [("elsewhere".to_owned(), 5), ("pieces".to_owned(), 5)]);
}

/// Not at all, not half, and not over what is there.
pub async fn a_body_that_cannot_be_read_is_not_written(trial: &BlobTrial) {
    trial.put("kept", &b"kept"[..]).await;
    let gone = || Err(BlobError::Transport(UNREADABLE.to_owned()));
    let large = Bytes::from(noise(trial.large_bytes));
    let last = len(large.len()) - 1;
    for (bytes, fails_from) in [(large.slice(..100), 0), (large.clone(), 0), (large, last)] {
        let body = BlobBody::of_source(Arc::new(Elsewhere::failing_from(bytes, fails_from)));
        for key in ["kept", "new"] {
            assert_eq!(trial.store.put(&trial.key(key), body.clone(), None).await, gone());
        }
        assert_eq!(trial.create("created", body).await, gone());
        assert_eq!(trial.list("").await, [("kept".to_owned(), 4)]);
        assert_eq!(trial.get("kept").await.unwrap(), &b"kept"[..]);
    }
}
