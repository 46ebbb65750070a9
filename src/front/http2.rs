//! One HTTP/2 connection, within limits.
//!
//! Lengths and ends of requests are frames here, so nothing of what makes HTTP/1.1 ambiguous is possible; but a
//! connection is many requests, and asking for one costs a client less than answering it. Every number a client could
//! drive up has a limit: requests at once, bytes ahead of their reader, the size of heads and frames, requests taken
//! back. A connection on which nothing is asked for the idle time is closed, as is one whose client will not take its
//! answers.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;

use super::head_watch::{HeadWatch, Heads};
use super::listener::{Limits, Origin, Serve};
use super::socket::Socket;
use crate::telemetry::metrics::{Cut, ListenerSeries, ParseFailure};

/// By how much a head may pass its limit and still be answered with a body: past it the library refuses it alone.
const HEADER_SLACK_BYTES: usize = 16 * 1024;

/// Bytes of one answer waiting for their client.
const SEND_BUFFER_BYTES: usize = 64 * 1024;

/// How long a connection that is being closed may take over it.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);

/// What one connection may ask for.
#[derive(Clone, Copy, Debug)]
pub struct Http2Limits {
    pub max_streams: u32,
    pub stream_window_bytes: u32,
    pub connection_window_bytes: u32,
    pub max_frame_bytes: u32,
    pub max_resets: usize,
}

/// Serves a connection to its end, or until `stopped` and every request under way is answered.
pub(super) async fn serve(
    (stream, heads): (HeadWatch<Socket>, Heads),
    (limits, own): (&Limits, &Http2Limits),
    service: &impl Serve,
    origin: &Origin,
    series: &ListenerSeries,
    stopped: &mut watch::Receiver<bool>,
) {
    // Dropped with the connection, and every request of it that still runs with it.
    let streams = Arc::new(Mutex::new(JoinSet::new()));
    let calls = Arc::new(Calls::new());
    let answering = service_fn(|request: Request<Incoming>| {
        let call = Call::begin(Arc::clone(&calls));
        answer(service.clone(), request, origin.clone(), call)
    });
    let header_bytes = limits.max_header_bytes.saturating_add(HEADER_SLACK_BYTES);
    let connection = http2::Builder::new(Streams(Arc::downgrade(&streams)))
        .timer(TokioTimer::new())
        .max_concurrent_streams(own.max_streams)
        .initial_stream_window_size(own.stream_window_bytes)
        .initial_connection_window_size(own.connection_window_bytes)
        .max_frame_size(own.max_frame_bytes)
        .max_header_list_size(u32::try_from(header_bytes).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(own.max_resets)
        .max_local_error_reset_streams(own.max_resets)
        .max_send_buf_size(SEND_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), answering);
    let mut connection = pin!(connection);
    let max_resets = u64::try_from(own.max_resets).unwrap_or(u64::MAX);
    let cut = tokio::select! {
        biased;
        served = connection.as_mut() => return ended(served, series),
        _ = stopped.wait_for(|stopped| *stopped) => None,
        () = heads.more_resets_than(max_resets) => Some(Cut::Resets),
        () = calls.idle(limits.idle_timeout) => Some(Cut::Idle),
    };
    connection.as_mut().graceful_shutdown();
    let Some(cut) = cut else { return ended(connection.await, series) };
    series.cut(cut);
    if let Ok(served) = timeout(CLOSE_WITHIN, connection).await {
        ended(served, series);
    }
}

fn ended(served: hyper::Result<()>, series: &ListenerSeries) {
    if let Err(error) = served {
        // What the library found wrong; the rest is connections that went away.
        if error.source_is_protocol() {
            series.parse_failed(ParseFailure::Invalid);
        }
        debug!(%error, "an HTTP/2 connection ended early");
    }
}

trait Protocol {
    /// Whether this side found fault with what the other sent.
    fn source_is_protocol(&self) -> bool;
}

impl Protocol for hyper::Error {
    fn source_is_protocol(&self) -> bool {
        let source = std::error::Error::source(self);
        source.is_some_and(|source| !source.is::<std::io::Error>()) && !self.is_timeout()
    }
}

async fn answer<S: Serve>(
    service: S,
    request: Request<Incoming>,
    origin: Origin,
    _call: Call,
) -> Result<Response<S::Body>, S::Error> {
    service.serve(request, origin).await
}

/// Runs the requests of one connection.
#[derive(Clone)]
struct Streams(Weak<Mutex<JoinSet<()>>>);

impl<F> Executor<F> for Streams
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, stream: F) {
        // Without its connection nobody waits for it.
        let Some(streams) = self.0.upgrade() else { return };
        let mut streams = streams.lock().unwrap_or_else(PoisonError::into_inner);
        while streams.try_join_next().is_some() {}
        streams.spawn(async move {
            stream.await;
        });
    }
}

/// What is asked on one connection.
struct Calls {
    since: Instant,
    under_way: AtomicUsize,
    /// When the last one began or ended, in milliseconds after `since`.
    last_ms: AtomicU64,
}

impl Calls {
    fn new() -> Self {
        Self { since: Instant::now(), under_way: AtomicUsize::new(0), last_ms: AtomicU64::new(0) }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Ready once nothing has been under way for so long.
    async fn idle(&self, limit: Duration) {
        loop {
            let quiet_ms = match self.under_way.load(Ordering::Relaxed) {
                0 => self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)),
                _some => 0,
            };
            match limit.checked_sub(Duration::from_millis(quiet_ms)) {
                Some(left) if !left.is_zero() => sleep(left).await,
                Some(_) | None => return,
            }
        }
    }
}

/// One request, until it is answered or taken back.
struct Call(Arc<Calls>);

impl Call {
    fn begin(calls: Arc<Calls>) -> Self {
        calls.under_way.fetch_add(1, Ordering::Relaxed);
        Self(calls)
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let calls = &self.0;
        calls.last_ms.store(calls.now_ms(), Ordering::Relaxed);
        calls.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_connection_is_idle_once_nothing_has_been_asked_for_the_whole_time() {
        let calls = Arc::new(Calls::new());
        let limit = Duration::from_secs(10);
        let asked = Arc::clone(&calls);
        tokio::spawn(async move {
            sleep(Duration::from_secs(4)).await;
            let call = Call::begin(Arc::clone(&asked));
            sleep(Duration::from_secs(60)).await;
            drop(call);
            drop(Call::begin(asked));
        });
        let since = Instant::now();
        calls.idle(limit).await;
        assert_eq!(since.elapsed().as_secs(), 74);
    }
}
