//! The sink: an HTTP server on loopback that writes down what it receives and answers 200, or now and then 503.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ankusa_drills_check::Digest;
use ankusa_drills_replay::Rng;
use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::drill::{CannotInject, OrCannot};
use crate::journal::Journal;

/// One request in this many is answered 503.
const REFUSES_ONE_IN: u64 = 20;

/// The sink at work. It stops when this is dropped.
pub struct Worker {
    port: u16,
    accepting: JoinHandle<()>,
}

impl Worker {
    /// Starts a sink on a free port. Which attempts of which hooks it refuses follows from the seed.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn start(seed: u64, journal: Arc<Journal>) -> Result<Self, CannotInject> {
        Self::slow(seed, journal, 0..1).await
    }

    /// The same, but every answer takes as many milliseconds as are drawn from the range.
    ///
    /// # Errors
    /// When it cannot listen.
    pub async fn slow(
        seed: u64,
        journal: Arc<Journal>,
        delay_ms: Range<u64>,
    ) -> Result<Self, CannotInject> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
            .await
            .or_cannot("listen as the sink")?;
        let port = listener.local_addr().or_cannot("listen as the sink")?.port();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, seed, Arc::clone(&journal), delay_ms.clone()));
            }
        });
        Ok(Self { port, accepting })
    }

    /// Where a node is to deliver to.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hooks", self.port)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn serve(stream: TcpStream, seed: u64, journal: Arc<Journal>, delay_ms: Range<u64>) {
    let service = service_fn(|request| receive(request, seed, &journal, &delay_ms));
    // A node that is killed breaks its connections; that is no error here.
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn receive(
    request: Request<Incoming>,
    seed: u64,
    journal: &Journal,
    delay_ms: &Range<u64>,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    let mut response = Response::new(Empty::new());
    let id =
        request.headers().get("x-ankusa-id").and_then(|id| id.to_str().ok()).map(str::to_owned);
    let said = request
        .headers()
        .get("x-ankusa-body-sha256")
        .and_then(|digest| digest.to_str().ok())
        .map(str::to_owned);
    let (Some(id), Ok(body)) = (id, request.into_body().collect().await) else {
        *response.status_mut() = StatusCode::BAD_REQUEST;
        return Ok(response);
    };
    let body = Digest::of(&body.to_bytes());
    // A header that says otherwise is as wrong as a body that is: nobody sent what it names.
    let body = match said.and_then(|said| said.parse().ok()) {
        Some(said) if said != body => said,
        _ => body,
    };
    if !journal.seen(&id, body, |attempt| accepts(seed, &id, attempt)) {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    let spread = delay_ms.end.saturating_sub(delay_ms.start).max(1);
    sleep(Duration::from_millis(
        delay_ms.start + chance(seed.rotate_left(9), &id, 0).below(spread),
    ))
    .await;
    Ok(response)
}

fn accepts(seed: u64, id: &str, attempt: u32) -> bool {
    chance(seed, id, attempt).below(REFUSES_ONE_IN) != 0
}

fn chance(seed: u64, id: &str, attempt: u32) -> Rng {
    let of_id = id.bytes().fold(seed, |mixed, byte| mixed.rotate_left(7) ^ u64::from(byte));
    Rng::new(of_id ^ u64::from(attempt))
}
