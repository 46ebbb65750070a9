//! Serves one connection, from its first byte to its last: the handshake, which protocol it is, the requests.

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tracing::debug;

use super::frames::Frames;
use super::framing::Framing;
use super::head_watch::{Follow, HeadWatch, Patience};
use super::http2;
use super::listener::{Accepted, Ambiguous, Limits, Origin, Serve, Terms};
use super::socket::Socket;
use crate::telemetry::metrics::{Cut, ListenerSeries, ParseFailure};

/// What a client says first that knows it speaks HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Room for what is read before it is known which protocol it is.
const READ_AHEAD_BYTES: usize = 1_024;

/// Whose connections are counted as open.
struct Open<'a>(&'a ListenerSeries);

impl<'a> Open<'a> {
    fn of(series: &'a ListenerSeries) -> Self {
        series.opened();
        Self(series)
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.closed();
    }
}

/// Serves a connection to its end, or until `stopped` and the request under way is answered.
pub(super) async fn serve(
    accepted: Accepted,
    remote: Option<IpAddr>,
    terms: &Terms,
    service: impl Serve,
    mut stopped: watch::Receiver<bool>,
) {
    let _open = Open::of(&terms.series);
    let begun = tokio::select! {
        biased;
        begun = begin(accepted, remote, terms) => begun,
        _ = stopped.wait_for(|stopped| *stopped) => None,
    };
    let Some(Begun { socket, read_ahead, is_http2, origin }) = begun else { return };
    let follow = if is_http2 {
        Follow::Http2(Frames::after(PREFACE.len()))
    } else {
        Follow::Http1(Framing::new())
    };
    let limits = &terms.limits;
    let patience = Patience { head: limits.header_timeout, write: limits.idle_timeout };
    let series = &terms.series;
    let (stream, heads) = HeadWatch::new(socket, read_ahead, follow, patience, Arc::clone(series));
    match &limits.http2 {
        Some(own) if is_http2 => {
            // On the heap: the state of HTTP/2 is large, and few connections need it.
            let serving = http2::serve(
                (stream, heads),
                (limits, own),
                &service,
                &origin,
                series,
                &mut stopped,
            );
            Box::pin(serving).await;
        }
        Some(_) | None => {
            let service = service_fn(|mut request: Request<Incoming>| {
                if heads.next_is_ambiguous() {
                    series.parse_failed(ParseFailure::Ambiguous);
                    request.extensions_mut().insert(Ambiguous);
                }
                service.serve(request, origin.clone())
            });
            let connection = http1_of(limits).serve_connection(TokioIo::new(stream), service);
            let mut connection = pin!(connection);
            let served = match finish(connection.as_mut(), &mut stopped).await {
                Some(served) => served,
                None => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
            };
            if let Err(error) = served {
                if error.is_timeout() {
                    series.cut(Cut::Idle);
                }
                debug!(%error, "a connection ended early");
            }
        }
    }
}

fn http1_of(limits: &Limits) -> http1::Builder {
    let mut http1 = http1::Builder::new();
    http1
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_headers(limits.max_headers)
        // One bounds a head that comes in pieces, the other one that comes at once.
        .max_buf_size(limits.max_header_bytes)
        .max_header_size(limits.max_header_bytes)
        // Whoever has said all it has to say may still wait for the answer.
        .half_close(true);
    http1
}

/// A connection of which it is known what is spoken on it.
struct Begun {
    socket: Socket,
    read_ahead: Bytes,
    is_http2: bool,
    origin: Origin,
}

/// Nothing for a connection that came to nothing.
async fn begin(accepted: Accepted, remote: Option<IpAddr>, terms: &Terms) -> Option<Begun> {
    let plain = Origin { remote, peer: None };
    let mut socket = match (accepted, &terms.tls) {
        (Accepted::Tcp(stream), Some(tls)) => {
            let encrypted = tls.handshake(stream).await?;
            return Some(Begun {
                socket: Socket::Tls(Box::new(encrypted.stream)),
                read_ahead: Bytes::new(),
                is_http2: encrypted.is_http2,
                origin: Origin { remote, peer: encrypted.peer },
            });
        }
        (Accepted::Tcp(stream), None) => Socket::Tcp(stream),
        (Accepted::Unix(stream), _) => Socket::Unix(stream),
    };
    if terms.limits.http2.is_none() {
        return Some(Begun { socket, read_ahead: Bytes::new(), is_http2: false, origin: plain });
    }
    match read_ahead(&mut socket, &terms.limits).await {
        Ok(read_ahead) => {
            let is_http2 = read_ahead.starts_with(PREFACE);
            Some(Begun { socket, read_ahead, is_http2, origin: plain })
        }
        Err(NoBeginning::Late(cut)) => {
            terms.series.cut(cut);
            None
        }
        Err(NoBeginning::Broken(error)) => {
            debug!(%error, "a connection ended before its first request");
            None
        }
    }
}

enum NoBeginning {
    Late(Cut),
    Broken(io::Error),
}

/// Reads until it is certain whether the preface of HTTP/2 is what comes.
async fn read_ahead(socket: &mut Socket, limits: &Limits) -> Result<Bytes, NoBeginning> {
    let mut read = BytesMut::with_capacity(READ_AHEAD_BYTES);
    let (mut limit, mut cut) = (limits.idle_timeout, Cut::Idle);
    let mut since = Instant::now();
    loop {
        let count = match timeout_at(since + limit, socket.read_buf(&mut read)).await {
            Ok(Ok(count)) => count,
            Ok(Err(error)) => return Err(NoBeginning::Broken(error)),
            Err(_elapsed) => return Err(NoBeginning::Late(cut)),
        };
        let could_be = PREFACE.starts_with(&read) && read.len() < PREFACE.len();
        if count == 0 || !could_be {
            return Ok(read.freeze());
        }
        if cut == Cut::Idle {
            (limit, cut, since) = (limits.header_timeout, Cut::SlowHead, Instant::now());
        }
    }
}

/// The connection's end, or `None` when the stop came first.
async fn finish<F: Future>(
    connection: F,
    stopped: &mut watch::Receiver<bool>,
) -> Option<F::Output> {
    tokio::select! {
        biased;
        // First: a request that has arrived is read before the stop is looked at, and then it is answered.
        served = connection => Some(served),
        _ = stopped.wait_for(|stopped| *stopped) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn a_connection_is_looked_at_before_the_stop() {
        let (_told, mut stopped) = watch::channel(true);
        assert_eq!(finish(ready(7), &mut stopped).await, Some(7));
        assert_eq!(finish(pending::<u8>(), &mut stopped).await, None);
    }
}
