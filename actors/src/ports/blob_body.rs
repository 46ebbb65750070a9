//! What an object is made of, read in pieces and as often as a write is tried: never joined, and never whole in memory
//! unless it was.

use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::BlobError;

/// Bytes that lie elsewhere, such as in a file: read when they are sent, and again when they are sent again.
#[async_trait]
pub trait BlobSource: Send + Sync + 'static {
    /// How many there are. They do not change.
    fn bytes(&self) -> u64;

    /// Exactly those of `range`, which lies within them.
    ///
    /// # Errors
    /// They cannot be read.
    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError>;
}

/// The bytes of an object to be written.
#[derive(Clone)]
pub struct BlobBody(Inner);

#[derive(Clone)]
enum Inner {
    Pieces { pieces: Arc<[Bytes]>, bytes: u64 },
    Source(Arc<dyn BlobSource>),
}

impl BlobBody {
    /// Of what is in memory, piece by piece: a segment's header, frames and trailer.
    pub fn of_pieces(pieces: impl IntoIterator<Item = Bytes>) -> Self {
        let pieces: Arc<[Bytes]> = pieces.into_iter().filter(|piece| !piece.is_empty()).collect();
        let bytes = pieces.iter().map(len).sum();
        Self(Inner::Pieces { pieces, bytes })
    }

    pub fn of_source(source: Arc<dyn BlobSource>) -> Self {
        Self(Inner::Source(source))
    }

    /// How many bytes.
    pub fn bytes(&self) -> u64 {
        match &self.0 {
            Inner::Pieces { bytes, .. } => *bytes,
            Inner::Source(source) => source.bytes(),
        }
    }

    /// Those of `range`, cut to what there is, in the pieces they are in. What is in memory is not copied.
    ///
    /// # Errors
    /// The source cannot be read.
    pub async fn read(&self, range: Range<u64>) -> Result<Vec<Bytes>, BlobError> {
        let range = range.start.min(self.bytes())..range.end.min(self.bytes());
        if range.is_empty() {
            return Ok(Vec::new());
        }
        match &self.0 {
            Inner::Pieces { pieces, .. } => Ok(within(pieces, &range)),
            Inner::Source(source) => {
                let wanted = range.end - range.start;
                let read = source.read(range).await?;
                if len(&read) == wanted {
                    Ok(vec![read])
                } else {
                    let why = format!("the source gave {} bytes of {wanted}", read.len());
                    Err(BlobError::Integrity(why))
                }
            }
        }
    }
}

impl From<Bytes> for BlobBody {
    fn from(bytes: Bytes) -> Self {
        Self::of_pieces([bytes])
    }
}

impl From<Vec<u8>> for BlobBody {
    fn from(bytes: Vec<u8>) -> Self {
        Bytes::from(bytes).into()
    }
}

impl From<&'static [u8]> for BlobBody {
    fn from(bytes: &'static [u8]) -> Self {
        Bytes::from_static(bytes).into()
    }
}

fn len(piece: &Bytes) -> u64 {
    u64::try_from(piece.len()).unwrap_or(u64::MAX)
}

fn within(pieces: &[Bytes], range: &Range<u64>) -> Vec<Bytes> {
    let mut found = Vec::new();
    let mut at = 0;
    for piece in pieces {
        let (start, end) = (at, at + len(piece));
        at = end;
        let from = range.start.clamp(start, end) - start;
        let to = range.end.clamp(start, end) - start;
        if let (Ok(from), Ok(to)) = (usize::try_from(from), usize::try_from(to))
            && from < to
        {
            found.push(piece.slice(from..to));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn joined(pieces: &[Bytes]) -> Vec<u8> {
        pieces.iter().flat_map(|piece| piece.iter().copied()).collect()
    }

    #[tokio::test]
    async fn every_range_of_every_cut_is_what_it_would_be_of_one_piece() {
        let whole: Vec<u8> = (0..12).collect();
        for cut in 0..=12 {
            for second in cut..=12 {
                let pieces = [&whole[..cut], &whole[cut..second], &whole[second..]];
                let body = BlobBody::of_pieces(pieces.map(Bytes::copy_from_slice));
                assert_eq!(body.bytes(), 12);
                for from in 0..=14_usize {
                    for to in from..=14 {
                        let read = body.read(from as u64..to as u64).await.unwrap();
                        assert_eq!(
                            joined(&read),
                            whole[from.min(12)..to.min(12)],
                            "{cut} {second}"
                        );
                    }
                }
            }
        }
    }

    struct Short;

    #[async_trait]
    impl BlobSource for Short {
        fn bytes(&self) -> u64 {
            10
        }

        async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
            let from = usize::try_from(range.start).unwrap();
            Ok(Bytes::from_static(b"01234567").slice(from..8))
        }
    }

    #[tokio::test]
    async fn a_source_that_shrank_is_no_object() {
        let body = BlobBody::of_source(Arc::new(Short));
        assert_eq!(joined(&body.read(2..8).await.unwrap()), b"234567");
        assert_eq!(body.read(2..20).await.unwrap_err().as_str(), "integrity");
        assert_eq!(body.read(10..20).await.unwrap(), Vec::<Bytes>::new());
    }
}
