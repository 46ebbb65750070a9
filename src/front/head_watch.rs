//! Tells a connection that is idle from one that dribbles a request head, takes its answers too slowly, or was refused
//! in the middle of a request.
//!
//! hyper has one timer, from the last answer to the end of the next head. An idle connection may wait for minutes: a load
//! balancer in front keeps its own for as long. A head, once begun, has seconds. So hyper's timer is set to the idle
//! limit, and the stream itself ends a head that takes too long.
//!
//! It also ends one whose client does not take its answers, which hyper would wait for without end; it does not close on
//! a client that is still sending, because the answer would be lost with the connection; and it completes what hyper
//! answers by itself.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::frames::Frames;
use super::framing::Framing;
use super::own_answer;
use crate::telemetry::metrics::{Cut, ListenerSeries, ParseFailure};

/// How long a client that was refused in the middle of its request may go on sending before the connection is closed on
/// it.
const LINGER: Duration = Duration::from_secs(1);

/// What is read of that at a time, to be thrown away.
const DISCARD_BYTES: usize = 8 * 1024;

/// What the stream of a connection tells its service.
#[derive(Clone, Debug)]
pub(super) struct Heads(Arc<Told>);

#[derive(Debug)]
struct Told {
    /// Requests the service was asked.
    asked: AtomicU64,
    /// The number of the first ambiguous head; `u64::MAX` while there is none.
    ambiguous: AtomicU64,
    /// Requests that the client has taken back.
    resets: AtomicU64,
    /// Told of each.
    reset: Notify,
}

impl Heads {
    /// Counts a request. Answers whether its head is ambiguous.
    pub(super) fn next_is_ambiguous(&self) -> bool {
        let number = self.0.asked.fetch_add(1, Ordering::Relaxed);
        self.0.ambiguous.load(Ordering::Relaxed) == number
    }

    /// Ready once the client has taken back more requests than that.
    pub(super) async fn more_resets_than(&self, limit: u64) {
        while self.0.resets.load(Ordering::Relaxed) <= limit {
            self.0.reset.notified().await;
        }
    }
}

/// How long a stream waits for its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a head, from its first byte.
    pub(super) head: Duration,
    /// For the client to take what is written.
    pub(super) write: Duration,
}

/// What is followed on a connection.
#[derive(Debug)]
pub(super) enum Follow {
    Http1(Framing),
    Http2(Frames),
}

impl Follow {
    fn see(&mut self, bytes: &[u8]) {
        match self {
            Self::Http1(framing) => framing.see(bytes),
            Self::Http2(frames) => frames.see(bytes),
        }
    }

    /// What has to end soon and did, so far.
    fn heads(&self) -> u64 {
        match self {
            Self::Http1(framing) => framing.heads(),
            Self::Http2(frames) => frames.heads(),
        }
    }

    fn is_in_head(&self) -> bool {
        match self {
            Self::Http1(framing) => framing.is_in_head(),
            Self::Http2(frames) => frames.is_in_head(),
        }
    }

    fn resets(&self) -> u64 {
        match self {
            Self::Http1(_) => 0,
            Self::Http2(frames) => frames.resets(),
        }
    }

    fn first_ambiguous(&self) -> Option<u64> {
        match self {
            Self::Http1(framing) => framing.first_ambiguous(),
            // Lengths are the protocol's own.
            Self::Http2(_) => None,
        }
    }

    /// Whether the client has nothing more to say that was begun. Of HTTP/2 it is not known.
    fn is_between_requests(&self) -> bool {
        match self {
            Self::Http1(framing) => framing.is_between_requests(),
            Self::Http2(_) => false,
        }
    }

    /// The answer to write instead, if it is one of the parser's own.
    fn completed(&self, written: &[u8]) -> Option<(Vec<u8>, ParseFailure)> {
        match self {
            Self::Http1(framing) => own_answer::completed(written, framing.is_in_request_line()),
            Self::Http2(_) => None,
        }
    }
}

/// A stream that knows where in a request it is.
pub(super) struct HeadWatch<T> {
    stream: T,
    /// Read before anybody asked, to see which protocol it is.
    read_ahead: Bytes,
    /// Written for the parser, and not out yet.
    instead: Bytes,
    patience: Patience,
    follow: Follow,
    series: Arc<ListenerSeries>,
    heads: Heads,
    /// When the first byte of the head under way came.
    began: Option<Instant>,
    /// Only for a head that did not arrive in one piece.
    alarm: Option<Pin<Box<Sleep>>>,
    /// Only while the client takes nothing.
    stuck: Option<Pin<Box<Sleep>>>,
    /// Only while a client is still sending what was refused.
    lingering: Option<Pin<Box<Sleep>>>,
    at_end: bool,
}

impl<T> HeadWatch<T> {
    /// Of a connection of which `read_ahead` has been read.
    pub(super) fn new(
        stream: T,
        read_ahead: Bytes,
        follow: Follow,
        patience: Patience,
        series: Arc<ListenerSeries>,
    ) -> (Self, Heads) {
        let heads = Heads(Arc::new(Told {
            asked: AtomicU64::new(0),
            ambiguous: AtomicU64::new(u64::MAX),
            resets: AtomicU64::new(0),
            reset: Notify::new(),
        }));
        let watch = Self {
            stream,
            read_ahead,
            instead: Bytes::new(),
            patience,
            follow,
            series,
            heads: heads.clone(),
            began: None,
            alarm: None,
            stuck: None,
            lingering: None,
            at_end: false,
        };
        (watch, heads)
    }

    /// Ready once the head under way has taken too long.
    fn poll_alarm(&mut self, context: &mut Context<'_>) -> Poll<io::Error> {
        let Some(began) = self.began else { return Poll::Pending };
        let deadline = began + self.patience.head;
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        ready!(alarm.as_mut().poll(context));
        self.series.cut(Cut::SlowHead);
        Poll::Ready(io::Error::new(io::ErrorKind::TimedOut, "the request head took too long"))
    }

    fn saw(&mut self, bytes: &[u8]) {
        self.at_end |= bytes.is_empty();
        let (before, resets_before) = (self.follow.heads(), self.follow.resets());
        self.follow.see(bytes);
        if self.follow.resets() != resets_before {
            self.heads.0.resets.store(self.follow.resets(), Ordering::Relaxed);
            self.heads.0.reset.notify_one();
        }
        if let Some(number) = self.follow.first_ambiguous() {
            self.heads.0.ambiguous.store(number, Ordering::Relaxed);
        }
        if self.follow.heads() != before || !self.follow.is_in_head() {
            self.began = None;
            self.alarm = None;
        }
        if self.follow.is_in_head() {
            self.began.get_or_insert_with(Instant::now);
        }
    }

    /// What writing came to, unless the client has taken nothing for too long.
    fn unless_stuck<R>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if written.is_ready() {
            self.stuck = None;
            return written;
        }
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(self.patience.write)));
        ready!(stuck.as_mut().poll(context));
        self.series.cut(Cut::SlowReader);
        let text = "the client does not take its answers";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)))
    }
}

impl<T: AsyncWrite + Unpin> HeadWatch<T> {
    /// Takes an answer of the parser's own, to be written as it should be.
    fn take_instead(&mut self, written: &[u8]) -> bool {
        let Some((whole, kind)) = self.follow.completed(written) else { return false };
        self.series.parse_failed(kind);
        self.instead = Bytes::from(whole);
        true
    }

    fn poll_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.instead.has_remaining() {
            let written = Pin::new(&mut self.stream).poll_write(context, &self.instead);
            match ready!(self.unless_stuck(context, written)) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(count) => self.instead.advance(count),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncRead + Unpin> HeadWatch<T> {
    /// Ready once the client has stopped sending, or has had its time.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let lingering = self.lingering.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut discarded = [0; DISCARD_BYTES];
        while lingering.as_mut().poll(context).is_pending() {
            let mut buffer = ReadBuf::new(&mut discarded);
            match ready!(Pin::new(&mut self.stream).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {}
                Ok(()) | Err(_) => break,
            }
        }
        Poll::Ready(())
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for HeadWatch<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.read_ahead.is_empty() {
            let count = self.read_ahead.len().min(buffer.remaining());
            let bytes = self.read_ahead.split_to(count);
            buffer.put_slice(&bytes);
            self.saw(&bytes);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            self.saw(buffer.filled().get(before..).unwrap_or_default());
            return Poll::Ready(read);
        }
        self.poll_alarm(context).map(Err)
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> AsyncWrite for HeadWatch<T> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.take_instead(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_stuck(context, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // Two parts are a head and a body.
        if let [only] = bytes
            && self.take_instead(only)
        {
            return Poll::Ready(Ok(only.len()));
        }
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        self.unless_stuck(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_instead(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.lingering.is_none() {
            ready!(self.poll_instead(context))?;
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        if !self.at_end && !self.follow.is_between_requests() {
            ready!(self.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;
    use crate::config::Config;
    use crate::telemetry::metrics::Metrics;

    const PATIENCE: Patience =
        Patience { head: Duration::from_secs(10), write: Duration::from_secs(20) };

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_left_alone_and_a_dribbled_head_is_not() {
        let (mut client, server) = duplex(64);
        let (mut watch, _heads) = self::watch(server);
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

    fn watch<T>(stream: T) -> (HeadWatch<T>, Heads) {
        watch_after("", stream)
    }

    fn watch_after<T>(read_ahead: &'static str, stream: T) -> (HeadWatch<T>, Heads) {
        let (metrics, follow) = (Metrics::new(&Config::default()), Follow::Http1(Framing::new()));
        let series = Arc::clone(&metrics.listeners.ingest);
        HeadWatch::new(stream, Bytes::from_static(read_ahead.as_bytes()), follow, PATIENCE, series)
    }

    /// How long it takes until a read fails after `pieces` have come, four seconds apart.
    async fn cut_off_after(pieces: &[&[u8]]) -> Duration {
        let (mut client, server) = duplex(1_024);
        let (mut watch, _heads) = self::watch(server);
        let since = Instant::now();
        let reading = tokio::spawn(async move {
            let mut read = Vec::new();
            let _ = timeout(Duration::from_secs(1_000), watch.read_to_end(&mut read)).await;
            since.elapsed()
        });
        for piece in pieces {
            client.write_all(piece).await.unwrap();
            sleep(Duration::from_secs(4)).await;
        }
        reading.await.unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte_and_nothing_else_has() {
        const LEFT_ALONE: u64 = 1_000;
        for (pieces, expected) in [
            (&[&b"G"[..], b"E", b"T"][..], 10),
            // The second head begins with the piece that ends the first.
            (&[b"GET / HTTP/1.1\r\n", b"\r\nGET / HTTP/1.1\r\n"], 14),
            (&[b"GET / HTTP/1.1\r\n\r\n", b"GE", b"T"], 14),
            (&[b"GET / HTTP/1.1\r\n", b"\r\n"], LEFT_ALONE),
            (&[b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\n", b"1", b"2"], LEFT_ALONE),
            (&[b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n", b"1"], LEFT_ALONE),
            (&[], LEFT_ALONE),
        ] {
            assert_eq!(cut_off_after(pieces).await.as_secs(), expected, "{pieces:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_no_answers_is_given_up() {
        let (_client, server) = duplex(64);
        let (mut watch, _heads) = self::watch(server);
        watch.write_all(&[b'a'; 64]).await.unwrap();
        let since = Instant::now();
        let error = watch.write_all(b"b").await.unwrap_err();
        assert_eq!((error.kind(), since.elapsed()), (io::ErrorKind::TimedOut, PATIENCE.write));
    }

    /// How long a shutdown takes after the client has sent `sent` and goes on sending.
    async fn shut_down_after(sent: &'static [u8]) -> Duration {
        let (mut client, server) = duplex(64);
        let (mut watch, _heads) = self::watch(server);
        client.write_all(sent).await.unwrap();
        watch.read_exact(&mut vec![0; sent.len()]).await.unwrap();
        let sending = tokio::spawn(async move {
            while client.write_all(&[b'x'; 64]).await.is_ok() {
                sleep(Duration::from_millis(1)).await;
            }
        });
        let since = Instant::now();
        watch.shutdown().await.unwrap();
        drop(watch);
        sending.await.unwrap();
        since.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_in_the_middle_of_a_request_is_not_cut_off_at_once() {
        let middle = b"POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nx";
        assert_eq!(shut_down_after(middle).await.as_millis() / 10, LINGER.as_millis() / 10);
        let between = b"GET / HTTP/1.1\r\n\r\n";
        assert!(shut_down_after(between).await < Duration::from_millis(10));
    }

    #[tokio::test(start_paused = true)]
    async fn the_service_learns_which_head_was_ambiguous() {
        let (mut client, server) = duplex(1_024);
        let (mut watch, heads) = self::watch(server);
        client.write_all(b"GET /1 HTTP/1.1\r\n\r\nGET /2 HTTP/1.1\n\n").await.unwrap();
        drop(client);
        watch.read_to_end(&mut Vec::new()).await.unwrap();
        let told = [(); 3].map(|()| heads.next_is_ambiguous());
        assert_eq!(told, [false, true, false]);
    }

    #[tokio::test]
    async fn what_was_read_ahead_comes_first_and_is_followed() {
        let (mut client, server) = duplex(64);
        let (mut watch, heads) = watch_after("GET /1 HTTP/1.1\n", server);
        client.write_all(b"\nrest").await.unwrap();
        drop(client);
        let mut read = String::new();
        watch.read_to_string(&mut read).await.unwrap();
        assert_eq!(read, "GET /1 HTTP/1.1\n\nrest");
        assert!(heads.next_is_ambiguous());
    }

    #[tokio::test]
    async fn an_answer_of_the_parsers_own_goes_out_with_its_body_at_the_next_flush() {
        // Not all of it fits at once.
        let (mut client, server) = duplex(16);
        let (mut watch, _heads) = self::watch(server);
        let reading = tokio::spawn(async move {
            let mut read = String::new();
            client.read_to_string(&mut read).await.unwrap();
            read
        });
        let bare = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        assert_eq!(watch.write_vectored(&[io::IoSlice::new(bare)]).await.unwrap(), bare.len());
        watch.flush().await.unwrap();
        drop(watch);
        let expected = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\
            content-type: application/json\r\ncontent-length: 27\r\n\r\n{\"error\":\"invalid_request\"}";
        assert_eq!(reading.await.unwrap(), expected);
    }
}
