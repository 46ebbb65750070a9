//! One connection of a client: requests one after the other, each answered, or broken as a rule has it.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

/// The way an answer's body is handed on.
pub(crate) type Handed = BoxBody<Bytes, Cut>;

const WRITTEN_OUT_WITHIN: Duration = Duration::from_millis(20);

/// The end of a connection in the middle of a body.
#[derive(Debug)]
pub(crate) struct Cut;

impl std::fmt::Display for Cut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection is cut here")
    }
}

impl std::error::Error for Cut {}

/// All of it at once.
pub(crate) fn whole(body: Bytes) -> Handed {
    Full::new(body).map_err(|never| match never {}).boxed()
}

/// Some of it, and then the end of the connection; the length that is said is that of all.
pub(crate) fn truncated(body: Bytes, after_bytes: usize) -> Handed {
    let cut = after_bytes.min(body.len());
    let said = u64::try_from(body.len()).unwrap_or(u64::MAX);
    Pieces { left: body.slice(..cut), piece: cut.max(1), wait: None, every: None, said, cut: true }
        .boxed()
}

/// All of it, piece by piece.
pub(crate) fn dripped(body: Bytes, piece: usize, every: Duration) -> Handed {
    let said = u64::try_from(body.len()).unwrap_or(u64::MAX);
    Pieces { left: body, piece: piece.max(1), wait: None, every: Some(every), said, cut: false }
        .boxed()
}

struct Pieces {
    left: Bytes,
    piece: usize,
    wait: Option<Pin<Box<Sleep>>>,
    every: Option<Duration>,
    said: u64,
    cut: bool,
}

impl Body for Pieces {
    type Data = Bytes;
    type Error = Cut;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Cut>>> {
        if self.left.is_empty() && !self.cut {
            return Poll::Ready(None);
        }
        // What was given before a cut is written out while this waits, and lost otherwise.
        let wait = self.every.or_else(|| self.left.is_empty().then_some(WRITTEN_OUT_WITHIN));
        if let Some(every) = wait {
            let wait = self.wait.get_or_insert_with(|| Box::pin(sleep(every)));
            if wait.as_mut().poll(context).is_pending() {
                return Poll::Pending;
            }
            self.wait = None;
        }
        if self.left.is_empty() {
            return Poll::Ready(Some(Err(Cut)));
        }
        let end = self.piece.min(self.left.len());
        let piece = self.left.split_to(end);
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn size_hint(&self) -> SizeHint {
        // Of a body that is cut, the length of all is in the header, which is handed on.
        if self.cut { SizeHint::default() } else { SizeHint::with_exact(self.said) }
    }
}
