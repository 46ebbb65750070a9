//! Objects on a real S3 server, by our adapter and by the `object_store` crate.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::{Blob, BlobBody, BlobError, BlobKey, BlobScope, BlobSource};
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::s3::{self, S3Spec};
use async_trait::async_trait;
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload};
use tokio::task::JoinSet;

use super::{OBJECT_BYTES, Turns, peak, random_bytes, timed};
use crate::drill::{CannotInject, OrCannot};
use crate::seaweedfs::{ACCESS_KEY_ID, BUCKET, REGION, SECRET_ACCESS_KEY, SeaweedFs};

/// What is read of an object at a time.
const RANGE_BYTES: u64 = 1 << 10;

/// Ranges of a turn.
const RANGES: u64 = 200;

/// Keys written at once.
const WRITERS: u64 = 16;

pub(super) struct Stores {
    ours: Arc<dyn Blob>,
    /// The same, but that it sends an object of the size of a segment in one piece, as the crate does.
    whole: Arc<dyn Blob>,
    theirs: AmazonS3,
}

impl Stores {
    pub(super) async fn open(server: &SeaweedFs) -> Result<Self, CannotInject> {
        let open = |transport| {
            let spec = S3Spec {
                bucket: BUCKET.to_owned(),
                region: REGION.to_owned(),
                endpoint: Some(server.endpoint()),
                access_key_id: Some(ACCESS_KEY_ID.to_owned()),
                secret_access_key: Some(SECRET_ACCESS_KEY.to_owned()),
                transport,
                ..S3Spec::default()
            };
            s3::open(&spec, BlobScope::Segments, &super::world()).or_cannot("open the store")
        };
        let options = TransportOptions { op_deadline_ms: 600_000, ..TransportOptions::default() };
        let ours = open(options.clone())?;
        let multipart_threshold_bytes = u64::try_from(OBJECT_BYTES).unwrap_or(u64::MAX);
        let whole = open(TransportOptions { multipart_threshold_bytes, ..options })?;
        let theirs = AmazonS3Builder::new()
            .with_bucket_name(BUCKET)
            .with_region(REGION)
            .with_endpoint(server.endpoint())
            .with_access_key_id(ACCESS_KEY_ID)
            .with_secret_access_key(SECRET_ACCESS_KEY)
            .with_allow_http(true)
            .build()
            .or_cannot("open the crate's store")?;
        Ok(Self { ours, whole, theirs })
    }

    /// Objects of the size of a segment, each in one request.
    pub(super) async fn puts(&self, rounds: usize) -> Result<Turns, CannotInject> {
        let mut turns = Turns::default();
        for n in 0..rounds {
            let bytes = random_bytes(OBJECT_BYTES);
            let key = key(format!("puts/ours-{n}"))?;
            let put = self.whole.put(&key, bytes.clone().into(), None);
            turns.ours.push(timed("put an object", put).await?.1);
            let theirs = Path::from(format!("puts/theirs-{n}"));
            let put = self.theirs.put(&theirs, PutPayload::from(bytes));
            turns.theirs.push(timed("put an object with the crate", put).await?.1);
        }
        Ok(turns)
    }

    /// The same in two parts, which is what the default options come to. Ours have an MD5 each, which the crate has not.
    pub(super) async fn puts_in_parts(&self, rounds: usize) -> Result<Turns, CannotInject> {
        let mut turns = Turns::default();
        for n in 0..rounds {
            let bytes = random_bytes(OBJECT_BYTES);
            let key = key(format!("parts/ours-{n}"))?;
            let put = self.ours.put(&key, bytes.clone().into(), None);
            turns.ours.push(timed("put an object in parts", put).await?.1);
            let put = self.put_in_parts(Path::from(format!("parts/theirs-{n}")), bytes);
            turns.theirs.push(timed("put an object in parts with the crate", put).await?.1);
        }
        Ok(turns)
    }

    async fn put_in_parts(&self, path: Path, bytes: Bytes) -> Result<(), object_store::Error> {
        let mut upload = self.theirs.put_multipart(&path).await?;
        let (first, second) = (bytes.slice(..OBJECT_BYTES / 2), bytes.slice(OBJECT_BYTES / 2..));
        let parts = [first, second].map(|part| upload.put_part(PutPayload::from(part)));
        futures_util::future::try_join_all(parts).await?;
        upload.complete().await.map(drop)
    }

    /// Parts of an object, one after the other.
    pub(super) async fn ranges(&self, rounds: usize) -> Result<Turns, CannotInject> {
        let whole = random_bytes(OBJECT_BYTES);
        let (name, length) = ("ranges/object", u64::try_from(OBJECT_BYTES).unwrap_or(u64::MAX));
        let (key, path) = (key(name.to_owned())?, Path::from(name));
        self.ours.put(&key, whole.clone().into(), None).await.or_cannot("put an object")?;
        let offset =
            |n: u64| n.wrapping_mul(7_919).wrapping_mul(RANGE_BYTES) % (length - RANGE_BYTES);
        let mut turns = Turns::default();
        for _ in 0..rounds {
            let ours = async {
                for n in 0..RANGES {
                    let read = self.ours.get_range(&key, offset(n), RANGE_BYTES, None).await?;
                    expect(&whole, offset(n), &read)?;
                }
                Ok::<_, BlobError>(())
            };
            turns.ours.push(timed("read ranges", ours).await?.1);
            let theirs = async {
                for n in 0..RANGES {
                    self.theirs.get_range(&path, offset(n)..offset(n) + RANGE_BYTES).await?;
                }
                Ok::<_, object_store::Error>(())
            };
            turns.theirs.push(timed("read ranges with the crate", theirs).await?.1);
        }
        Ok(turns)
    }

    /// Small objects, for the listing.
    pub(super) async fn fill(&self, keys: u64) -> Result<(), CannotInject> {
        let mut writers = JoinSet::new();
        for writer in 0..WRITERS {
            let store = Arc::clone(&self.ours);
            writers.spawn(async move {
                for n in (writer..keys).step_by(usize::try_from(WRITERS).unwrap_or(1)) {
                    let key = key(format!("list/dt=2026-11-30/seg-{n:020}.seg"))?;
                    store.put(&key, b"x".as_slice().into(), None).await.or_cannot("put a key")?;
                }
                Ok::<_, CannotInject>(())
            });
        }
        while let Some(written) = writers.join_next().await {
            written.or_cannot("write the keys")??;
        }
        Ok(())
    }

    pub(super) async fn listings(&self, keys: u64, rounds: usize) -> Result<Turns, CannotInject> {
        let mut turns = Turns::default();
        for _ in 0..rounds {
            let (ours, took) = timed("list the keys", self.ours.list("list/", None)).await?;
            turns.ours.push(took);
            let listing = self.theirs.list(Some(&Path::from("list"))).try_collect::<Vec<_>>();
            let (theirs, took) = timed("list the keys with the crate", listing).await?;
            turns.theirs.push(took);
            let found = [ours.len(), theirs.len()].map(|len| u64::try_from(len).unwrap_or(0));
            if found != [keys; 2] {
                return Err(CannotInject(format!("of {keys} keys, {found:?} were listed")));
            }
        }
        Ok(turns)
    }

    /// An object that was never whole in memory. Answers by how much the process grew at most, in MiB.
    pub(super) async fn upload(&self, bytes: u64) -> Result<(f64, Duration), CannotInject> {
        let piece = random_bytes(1 << 20);
        let body = BlobBody::of_source(Arc::new(Endless { piece, bytes }));
        let key = key("upload/large".to_owned())?;
        let no_peak = || CannotInject("cannot read this process's memory".to_owned());
        let before = peak::reset().ok_or_else(no_peak)?;
        let ((), took) = timed("upload", self.ours.put(&key, body, None)).await?;
        let after = peak::since().ok_or_else(no_peak)?;
        Ok(((after - before).max(0.0) / 1_024.0, took))
    }
}

fn key(key: String) -> Result<BlobKey, CannotInject> {
    BlobKey::new(key).or_cannot("name an object")
}

fn expect(whole: &Bytes, offset: u64, read: &Bytes) -> Result<(), BlobError> {
    let from = usize::try_from(offset).unwrap_or(usize::MAX);
    if whole.get(from..from.saturating_add(read.len())) == Some(&read[..]) && !read.is_empty() {
        return Ok(());
    }
    Err(BlobError::Integrity("other bytes than were written".to_owned()))
}

/// A piece over and over, as a file would be read.
struct Endless {
    piece: Bytes,
    bytes: u64,
}

#[async_trait]
impl BlobSource for Endless {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        let wanted = usize::try_from(range.end - range.start).unwrap_or(usize::MAX);
        let period = u64::try_from(self.piece.len()).unwrap_or(1).max(1);
        let mut from = usize::try_from(range.start % period).unwrap_or(0);
        let mut read = Vec::with_capacity(wanted);
        while read.len() < wanted {
            let end = self.piece.len().min(from + wanted - read.len());
            read.extend_from_slice(self.piece.get(from..end).unwrap_or_default());
            from = 0;
        }
        Ok(read.into())
    }
}
