//! Accepts connections and serves HTTP/1.1 on them, within limits. Shared by ingest, the admin port and the control socket.
//!
//! `axum::serve` sets no timer, so its header-read timeout would never fire, and it has no connection limit: the
//! connections are driven here with hyper-util instead.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::head_watch::{HeadWatch, Patience};

/// Wait after the kernel refused a connection (out of descriptors): accepting again at once would spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(50);

/// What one listener puts up with.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For a request head, from its first byte to its end.
    pub header_timeout: Duration,
    /// From the connect, and from each answer, to the end of the next head: silent connections are closed after it, and
    /// those that take none of what is written.
    pub idle_timeout: Duration,
    /// Connections served at once; more wait in the kernel's queue.
    pub max_connections: usize,
    pub max_headers: usize,
    pub max_header_bytes: usize,
}

/// Where connections come from.
pub enum Acceptor {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Acceptor {
    /// A listener of this incarnation on a socket that outlives it.
    pub fn tcp(socket: &StdTcpListener) -> io::Result<Self> {
        let socket = socket.try_clone()?;
        socket.set_nonblocking(true)?;
        Ok(Self::Tcp(TcpListener::from_std(socket)?))
    }

    /// The same for a unix socket.
    pub fn unix(socket: &StdUnixListener) -> io::Result<Self> {
        let socket = socket.try_clone()?;
        socket.set_nonblocking(true)?;
        Ok(Self::Unix(UnixListener::from_std(socket)?))
    }
}

/// An extension of requests whose heads two parsers can read differently: to be refused.
#[derive(Clone, Copy, Debug)]
pub struct Ambiguous;

/// An extension of requests that came over TCP: the address of whoever connected.
#[derive(Clone, Copy, Debug)]
pub struct Peer(pub IpAddr);

/// What answers requests; a failure closes the connection unanswered.
pub trait Serve: Clone + Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    type Error: Into<BoxError> + 'static;

    fn serve(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send + 'static;
}

type BoxError = Box<dyn Error + Send + Sync>;

/// A listener at work. Dropped, it aborts every connection.
pub struct Server {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Server {
    /// Serves `service` on every connection.
    pub fn start(acceptor: Acceptor, limits: Limits, service: impl Serve) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { stop, task: tokio::spawn(accept(acceptor, limits, service, stopped)) }
    }

    /// Accepts no more, lets the requests already read be answered with `Connection: close`, and returns when all
    /// connections are gone or `drain` is over.
    pub async fn stop(mut self, drain: Duration) -> bool {
        self.stop.send_replace(true);
        timeout(drain, &mut self.task).await.is_ok()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(
    acceptor: Acceptor,
    limits: Limits,
    service: impl Serve,
    mut stopped: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(limits.max_connections));
    let mut connections = JoinSet::new();
    while let Some(permit) = next_permit(&room, &mut stopped).await {
        let (service, served_until) = (service.clone(), stopped.clone());
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            accepted = accept_one(&acceptor) => accepted,
        };
        match accepted {
            Ok(Stream::Tcp(stream, peer)) => {
                let peer = Some(Peer(peer));
                connections.spawn(serve(stream, peer, limits, service, served_until, permit));
            }
            Ok(Stream::Unix(stream)) => {
                connections.spawn(serve(stream, None, limits, service, served_until, permit));
            }
            // The socket was shut down: a stop has begun.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => break,
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                sleep(ACCEPT_RETRY).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
    drop(acceptor);
    while connections.join_next().await.is_some() {}
}

async fn next_permit(
    room: &Arc<Semaphore>,
    stopped: &mut watch::Receiver<bool>,
) -> Option<OwnedSemaphorePermit> {
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => None,
        permit = Arc::clone(room).acquire_owned() => permit.ok(),
    }
}

enum Stream {
    Tcp(tokio::net::TcpStream, IpAddr),
    Unix(tokio::net::UnixStream),
}

async fn accept_one(acceptor: &Acceptor) -> io::Result<Stream> {
    match acceptor {
        Acceptor::Tcp(listener) => {
            let (stream, peer) = listener.accept().await?;
            stream.set_nodelay(true)?;
            Ok(Stream::Tcp(stream, peer.ip()))
        }
        Acceptor::Unix(listener) => Ok(Stream::Unix(listener.accept().await?.0)),
    }
}

async fn serve<T>(
    stream: T,
    peer: Option<Peer>,
    limits: Limits,
    service: impl Serve,
    mut stopped: watch::Receiver<bool>,
    permit: OwnedSemaphorePermit,
) where
    T: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let patience = Patience { head: limits.header_timeout, write: limits.idle_timeout };
    let (stream, heads) = HeadWatch::new(stream, patience);
    let service = service_fn(|mut request: Request<Incoming>| {
        if heads.next_is_ambiguous() {
            request.extensions_mut().insert(Ambiguous);
        }
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        service.serve(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.idle_timeout)
        .max_headers(limits.max_headers)
        // One bounds a head that comes in pieces, the other one that comes at once.
        .max_buf_size(limits.max_header_bytes)
        .max_header_size(limits.max_header_bytes)
        // Whoever has said all it has to say may still wait for the answer.
        .half_close(true)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let served = finish(connection.as_mut(), &mut stopped).await;
    let served = match served {
        Some(served) => served,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        debug!(%error, "a connection ended early");
    }
    drop(permit);
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
