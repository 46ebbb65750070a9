//! Tells a connection that is idle from one that dribbles a request head.
//!
//! hyper has one timer for both, from the last answer to the end of the next head. An idle connection may wait for
//! minutes: a load balancer in front keeps its own for as long. A head, once begun, has seconds. So hyper's timer is set
//! to the idle limit, and the stream itself ends a head that takes too long.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Whether the bytes that arrive now belong to a request head. Set by the service, read by the stream.
#[derive(Clone, Debug)]
pub(super) struct InHead(Arc<AtomicBool>);

impl InHead {
    pub(super) fn set(&self, in_head: bool) {
        self.0.store(in_head, Ordering::Relaxed);
    }

    fn get(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A stream that gives a head `limit` from its first byte.
pub(super) struct HeadWatch<T> {
    stream: T,
    limit: Duration,
    in_head: InHead,
    began: Option<Instant>,
    /// Only for a head that did not arrive in one piece.
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<T> HeadWatch<T> {
    pub(super) fn new(stream: T, limit: Duration) -> (Self, InHead) {
        let in_head = InHead(Arc::new(AtomicBool::new(true)));
        let watch = Self { stream, limit, in_head: in_head.clone(), began: None, alarm: None };
        (watch, in_head)
    }

    /// Ready once the head under way has taken too long.
    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let Some(began) = self.began.filter(|_| self.in_head.get()) else {
            self.began = None;
            self.alarm = None;
            return Poll::Pending;
        };
        let deadline = began + self.limit;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        ready!(alarm.as_mut().poll(context));
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the request head took too long"))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HeadWatch<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            if !self.in_head.get() {
                self.began = None;
            } else if buffer.filled().len() > before {
                self.began.get_or_insert_with(Instant::now);
            }
            return Poll::Ready(read);
        }
        self.poll_alarm(context).map(Err)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for HeadWatch<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::sleep;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_left_alone_and_a_dribbled_head_is_not() {
        let (mut client, server) = duplex(64);
        let (mut watch, _in_head) = HeadWatch::new(server, LIMIT);
        let writing = tokio::spawn(async move {
            sleep(Duration::from_secs(60)).await;
            for byte in *b"POST" {
                client.write_all(&[byte]).await.unwrap();
                sleep(Duration::from_secs(4)).await;
            }
            client
        });
        let mut byte = [0];
        for expected in *b"POS" {
            watch.read_exact(&mut byte).await.unwrap();
            assert_eq!(byte[0], expected);
        }
        let error = watch.read_exact(&mut byte).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        writing.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_has_limits_of_its_own() {
        let (mut client, server) = duplex(64);
        let (mut watch, in_head) = HeadWatch::new(server, LIMIT);
        client.write_all(b"h").await.unwrap();
        let mut byte = [0];
        watch.read_exact(&mut byte).await.unwrap();
        in_head.set(false);
        let body = tokio::spawn(async move {
            sleep(Duration::from_secs(60)).await;
            client.write_all(b"b").await.unwrap();
            client
        });
        watch.read_exact(&mut byte).await.unwrap();
        assert_eq!(&byte, b"b");
        drop(body);
    }
}
