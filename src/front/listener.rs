//! Accepts connections and serves HTTP on them, within limits. Shared by ingest, the admin port and the control socket.
//!
//! `axum::serve` sets no timer, so its header-read timeout would never fire, and it has no connection limit: the
//! connections are driven here with hyper instead.

use std::error::Error;
use std::future::Future;
use std::io;
use std::net::{IpAddr, TcpListener as StdTcpListener};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::model::peer_identity::PeerIdentity;
use bytes::Bytes;
use hyper::body::{Body, Incoming};
use hyper::{Request, Response};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tracing::warn;

use super::connection;
use super::http2::Http2Limits;
use super::tls::Tls;
use crate::telemetry::metrics::ListenerSeries;

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
    /// Nothing where HTTP/2 is not spoken.
    pub http2: Option<Http2Limits>,
}

/// What a listener serves its connections by.
#[derive(Clone)]
pub struct Terms {
    pub limits: Limits,
    /// Nothing for plain connections.
    pub tls: Option<Arc<Tls>>,
    pub series: Arc<ListenerSeries>,
}

/// Whom a connection is from.
#[derive(Clone, Debug)]
pub struct Origin {
    /// Nothing for a connection over a unix socket.
    pub remote: Option<IpAddr>,
    /// By a certificate, where one was asked for and shown.
    pub peer: Option<Arc<PeerIdentity>>,
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

/// What answers requests; a failure closes the connection unanswered.
pub trait Serve: Clone + Send + Sync + 'static {
    type Body: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static;
    type Error: Into<BoxError> + 'static;

    fn serve(
        &self,
        request: Request<Incoming>,
        origin: Origin,
    ) -> impl Future<Output = Result<Response<Self::Body>, Self::Error>> + Send + 'static;
}

type BoxError = Box<dyn Error + Send + Sync>;

/// A listener at work. Dropped, it aborts every connection.
pub struct Server {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
    /// Keeps up with the certificate files.
    keeping_up: Option<AbortHandle>,
}

impl Server {
    /// Serves `service` on every connection.
    pub fn start(acceptor: Acceptor, terms: Terms, service: impl Serve) -> Self {
        let (stop, stopped) = watch::channel(false);
        let keep_up = terms.tls.clone().map(Tls::keep_up);
        Self {
            stop,
            task: tokio::spawn(accept(acceptor, Arc::new(terms), service, stopped)),
            keeping_up: keep_up.map(|keep_up| tokio::spawn(keep_up).abort_handle()),
        }
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
        if let Some(keeping_up) = &self.keeping_up {
            keeping_up.abort();
        }
    }
}

async fn accept(
    acceptor: Acceptor,
    terms: Arc<Terms>,
    service: impl Serve,
    mut stopped: watch::Receiver<bool>,
) {
    let room = Arc::new(Semaphore::new(terms.limits.max_connections));
    let mut connections = JoinSet::new();
    while let Some(permit) = next_permit(&room, &terms, &mut stopped).await {
        let accepted = tokio::select! {
            biased;
            _ = stopped.wait_for(|stopped| *stopped) => break,
            accepted = accept_one(&acceptor) => accepted,
        };
        match accepted {
            Ok((stream, remote)) => {
                let terms = Arc::clone(&terms);
                let (service, served_until) = (service.clone(), stopped.clone());
                connections.spawn(async move {
                    connection::serve(stream, remote, &terms, service, served_until).await;
                    drop(permit);
                });
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
    terms: &Terms,
    stopped: &mut watch::Receiver<bool>,
) -> Option<OwnedSemaphorePermit> {
    if room.available_permits() == 0 {
        terms.series.at_limit();
    }
    tokio::select! {
        biased;
        _ = stopped.wait_for(|stopped| *stopped) => None,
        permit = Arc::clone(room).acquire_owned() => permit.ok(),
    }
}

/// As it comes from the kernel.
pub(super) enum Accepted {
    Tcp(TcpStream),
    Unix(UnixStream),
}

async fn accept_one(acceptor: &Acceptor) -> io::Result<(Accepted, Option<IpAddr>)> {
    match acceptor {
        Acceptor::Tcp(listener) => {
            let (stream, remote) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // The same address, however the socket is bound.
            Ok((Accepted::Tcp(stream), Some(remote.ip().to_canonical())))
        }
        Acceptor::Unix(listener) => Ok((Accepted::Unix(listener.accept().await?.0), None)),
    }
}
