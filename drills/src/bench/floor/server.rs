//! A bare hyper server: reads a body, checks its signature, gives it an id, has it kept, answers 201.

use std::convert::Infallible;
use std::net::Ipv4Addr;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use super::check::{Key, new_id, now_ms};
use super::{FloorError, say};

/// A hook that was signed.
pub(super) struct Hook {
    pub(super) id: [u8; 36],
    pub(super) at_ms: u64,
    pub(super) body: Bytes,
}

/// What becomes of hooks before they are answered.
pub(super) trait Keep: Clone + Send + Sync + 'static {
    /// Whether it is kept.
    fn keep(&self, hook: Hook) -> impl Future<Output = bool> + Send;
}

/// Serves until the process ends, on the runtime the node runs on by default. Says its port.
pub(super) fn serve(keep: impl Keep) -> Result<(), FloorError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(accept(keep))
}

async fn accept(keep: impl Keep) -> Result<(), FloorError> {
    let key = Key::new().ok_or("HMAC takes any key")?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    say(&listener.local_addr()?.port().to_string())?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let (keep, key) = (keep.clone(), key.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| answer(&key, &keep, request));
            // A connection that ends early is the load generator's to report.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(
    key: &Key,
    keep: &impl Keep,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else { return Ok(refusal(StatusCode::BAD_REQUEST)) };
    let body = body.to_bytes();
    if !key.signed(&parts.headers, &body) {
        return Ok(refusal(StatusCode::UNAUTHORIZED));
    }
    let at_ms = now_ms();
    let id = new_id(at_ms);
    if !keep.keep(Hook { id, at_ms, body }).await {
        return Ok(refusal(StatusCode::SERVICE_UNAVAILABLE));
    }
    let text = [br#"{"id":""#.as_slice(), &id, br#"","status":"accepted"}"#].concat();
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = StatusCode::CREATED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

fn refusal(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}
