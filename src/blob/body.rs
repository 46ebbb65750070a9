//! Pieces as the body of a request, with their length said beforehand.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::ops::Range;
use std::pin::Pin;
use std::task::{Context, Poll};

use ankusa_actors::ports::{BlobBody, BlobError};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, timeout_at};

/// Sent as they are, one after the other, with a `content-length` and never chunked.
pub struct PiecesBody {
    pieces: VecDeque<Bytes>,
    left: u64,
}

impl PiecesBody {
    pub fn new(pieces: &[Bytes]) -> Self {
        let pieces: VecDeque<Bytes> = pieces.iter().filter(|p| !p.is_empty()).cloned().collect();
        let left = pieces.iter().map(len).sum();
        Self { pieces, left }
    }
}

/// Those of `range` of a body, if they come in time: what it is read from can hang, too.
///
/// # Errors
/// `deadline`, or they cannot be read.
pub async fn read_in_time(
    body: &BlobBody,
    range: Range<u64>,
    deadline: impl Into<Option<Instant>>,
) -> Result<Vec<Bytes>, BlobError> {
    match deadline.into() {
        None => body.read(range).await,
        Some(deadline) => {
            timeout_at(deadline, body.read(range)).await.unwrap_or(Err(BlobError::Deadline))
        }
    }
}

/// How many bytes all of them are.
pub fn total(pieces: &[Bytes]) -> u64 {
    pieces.iter().map(len).sum()
}

fn len(piece: &Bytes) -> u64 {
    u64::try_from(piece.len()).unwrap_or(u64::MAX)
}

impl Body for PiecesBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(piece) = self.pieces.pop_front() else { return Poll::Ready(None) };
        self.left -= len(&piece);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
