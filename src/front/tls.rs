//! TLS of a listener: the certificate in force, and its change while connections stay.
//!
//! A pair that cannot be used refuses the boot. Later it changes nothing: the one in force stays, with a line in the log
//! and a number in the metrics. A certificate that has run out is served all the same: whoever must renew it needs the
//! node to say so, and senders refuse it by themselves.

mod load;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ankusa_actors::model::peer_identity::PeerIdentity;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tracing::{error, info};

use load::{Files, Loaded};
pub use load::{TlsError, load};

use crate::config::TlsConfig;
use crate::telemetry::metrics::{HandshakeFailure, ListenerSeries};

/// HTTP/2 over TLS, as the client chooses it in the handshake.
const ALPN_HTTP2: &[u8] = b"h2";

/// The TLS of one listener. Outlives every incarnation of its server.
pub struct Tls {
    config: TlsConfig,
    http2: bool,
    in_force: watch::Sender<Arc<ServerConfig>>,
    /// The digest of what the files held at the last look, good or not: each change is told once.
    looked_at: Mutex<[u8; 32]>,
    series: Arc<ListenerSeries>,
}

/// What a handshake came to.
pub(super) struct Encrypted {
    pub(super) stream: TlsStream<TcpStream>,
    /// The client chose HTTP/2.
    pub(super) is_http2: bool,
    pub(super) peer: Option<Arc<PeerIdentity>>,
}

impl Tls {
    /// With the files that `config` names; nothing if it names none.
    ///
    /// # Errors
    /// What is wrong with the files, at its key.
    pub fn open(
        config: &TlsConfig,
        http2: bool,
        series: Arc<ListenerSeries>,
    ) -> Result<Option<Arc<Self>>, TlsError> {
        let files = Files::read(config);
        let Some(Loaded { server, not_after_s }) = files.load(config, http2)? else {
            return Ok(None);
        };
        series.certificate_ends(not_after_s);
        Ok(Some(Arc::new(Self {
            config: config.clone(),
            http2,
            in_force: watch::Sender::new(server),
            looked_at: Mutex::new(files.digest()),
            series,
        })))
    }

    /// Puts what is new in the files in force, for as long as it is polled.
    pub(super) async fn keep_up(self: Arc<Self>) {
        loop {
            sleep(Duration::from_millis(self.config.reload_interval_ms)).await;
            let config = self.config.clone();
            // A file on a file system that hangs holds up this look, and no worker of the runtime.
            let read = tokio::task::spawn_blocking(move || Files::read(&config)).await;
            if let Ok(files) = read {
                self.look(&files);
            }
        }
    }

    fn look(&self, files: &Files) {
        let digest = files.digest();
        let mut looked_at = self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *looked_at, digest) == digest {
            return;
        }
        match files.load(&self.config, self.http2) {
            Ok(Some(Loaded { server, not_after_s })) => {
                self.in_force.send_replace(server);
                self.series.certificate_ends(not_after_s);
                self.series.reloaded(true);
                info!(not_after_s, "a new certificate is in force");
            }
            // The keys do not change while the node runs.
            Ok(None) => {}
            Err(error) => {
                self.series.reloaded(false);
                error!(%error, "the new certificate cannot be used; the old one stays in force");
            }
        }
    }

    /// The handshake of one connection, within its time.
    pub(super) async fn handshake(&self, stream: TcpStream) -> Option<Encrypted> {
        let acceptor = TlsAcceptor::from(Arc::clone(&self.in_force.borrow()));
        let limit = Duration::from_millis(self.config.handshake_timeout_ms);
        let failed = |failure| {
            self.series.handshake_failed(failure);
            None
        };
        let stream = match timeout(limit, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => return failed(failure_of(&error)),
            Err(_elapsed) => return failed(HandshakeFailure::Timeout),
        };
        let (_, session) = stream.get_ref();
        let is_http2 = session.alpn_protocol() == Some(ALPN_HTTP2);
        let shown = session.peer_certificates().and_then(<[_]>::first);
        let peer = match shown.map(|leaf| PeerIdentity::from_certificate(leaf)).transpose() {
            Ok(peer) => peer.map(Arc::new),
            // Signed by an authority and unreadable: better no connection than one that is somebody unknown.
            Err(_) => return failed(HandshakeFailure::ClientCertificate),
        };
        Some(Encrypted { stream, is_http2, peer })
    }
}

fn failure_of(error: &std::io::Error) -> HandshakeFailure {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match inner {
        Some(
            rustls::Error::InvalidCertificate(_)
            | rustls::Error::NoCertificatesPresented
            | rustls::Error::InvalidCertRevocationList(_),
        ) => HandshakeFailure::ClientCertificate,
        Some(_other) => HandshakeFailure::Protocol,
        None => HandshakeFailure::Closed,
    }
}
