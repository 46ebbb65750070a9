//! Digests of what is sent and of what came back ("Checksums").

use ankusa_actors::ports::BlobError;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use md5::Md5;
use sha2::{Digest, Sha256};

use super::body::total;

/// More than this is hashed where it may take its time, in bytes: about 50 us of it.
const INLINE_MAX_BYTES: u64 = 64 << 10;

/// A digest a store validates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestKind {
    Sha256,
    Md5,
}

/// The digest of `pieces`, joined.
pub async fn digest(kind: DigestKind, pieces: &[Bytes]) -> Vec<u8> {
    if total(pieces) <= INLINE_MAX_BYTES {
        return of(kind, pieces);
    }
    let pieces = pieces.to_vec();
    let hashed = tokio::task::spawn_blocking(move || of(kind, &pieces)).await;
    // It is cancelled only with the runtime. Nothing is a digest of anything.
    hashed.unwrap_or_default()
}

/// The same in standard base64, padded, as the headers want it.
pub async fn base64_digest(kind: DigestKind, pieces: &[Bytes]) -> String {
    STANDARD.encode(digest(kind, pieces).await)
}

/// The MD5 of what comes in parts.
#[derive(Clone, Default)]
pub struct RunningMd5(Md5);

impl RunningMd5 {
    /// Adds the next of it.
    pub async fn add(&mut self, pieces: &[Bytes]) {
        if total(pieces) <= INLINE_MAX_BYTES {
            pieces.iter().for_each(|piece| self.0.update(piece));
            return;
        }
        let (mut digest, pieces) = (self.0.clone(), pieces.to_vec());
        let hashed = tokio::task::spawn_blocking(move || {
            pieces.iter().for_each(|piece| digest.update(piece));
            digest
        });
        // It is cancelled only with the runtime.
        self.0 = hashed.await.unwrap_or_default();
    }

    /// In standard base64, padded, of all so far.
    pub fn base64(&self) -> String {
        STANDARD.encode(self.0.clone().finalize())
    }
}

fn of(kind: DigestKind, pieces: &[Bytes]) -> Vec<u8> {
    match kind {
        DigestKind::Sha256 => hashed::<Sha256>(pieces),
        DigestKind::Md5 => hashed::<Md5>(pieces),
    }
}

fn hashed<D: Digest>(pieces: &[Bytes]) -> Vec<u8> {
    let mut digest = D::new();
    for piece in pieces {
        digest.update(piece);
    }
    digest.finalize().to_vec()
}

/// Compares what came with the digest that came with it. One that is no digest of `kind` in base64, as a composite one of
/// S3 is not, says nothing.
///
/// # Errors
/// `integrity`.
pub async fn check(kind: DigestKind, told: Option<&str>, body: &Bytes) -> Result<(), BlobError> {
    let Some(told) = told.and_then(|told| STANDARD.decode(told).ok()) else { return Ok(()) };
    let expected_len = match kind {
        DigestKind::Sha256 => 32,
        DigestKind::Md5 => 16,
    };
    if told.len() != expected_len || digest(kind, std::slice::from_ref(body)).await == told {
        return Ok(());
    }
    Err(BlobError::Integrity(format!("{} bytes came whose digest is another", body.len())))
}
