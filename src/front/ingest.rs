//! The ingest listener: reads requests for [`Ingest`] and sends what it answers.
//!
//! * **Owns:** its connections; the listening socket outlives it.
//! * **Talks to:** the batchers, through [`Ingest`]; the store, for `/ready`.
//! * **Supervised by:** `front`, one_for_one: it answers 503 while the core is down.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::Admin;
use ankusa_actors::edge::{Admitted, Answer, BodyFailure, Ingest, RequestHead};
use ankusa_actors::supervision::Crash;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{
    CONTENT_LENGTH, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER, TRANSFER_ENCODING,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::timeout;
use tracing::warn;

use super::listener::{Acceptor, Limits, Serve, Server};

/// The largest body a declared length makes room for before it has arrived.
const MAX_RESERVED_BYTES: usize = 64 * 1024;

pub enum IngestServerMsg {
    /// Panic, for a drill.
    Crash,
}

impl Crash for IngestServerMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct IngestServerArgs {
    pub socket: Arc<TcpListener>,
    pub limits: Limits,
    pub body_timeout: Duration,
    /// How long a stop waits for requests that have been read.
    pub drain: Duration,
    pub ingest: Arc<Ingest>,
    pub admin: Admin,
}

pub struct IngestServerState {
    server: Option<Server>,
    args: IngestServerArgs,
}

pub struct IngestServer;

impl Actor for IngestServer {
    type Msg = IngestServerMsg;
    type State = IngestServerState;
    type Arguments = IngestServerArgs;

    async fn pre_start(
        &self,
        _: ActorRef<IngestServerMsg>,
        args: IngestServerArgs,
    ) -> Result<IngestServerState, ActorProcessingErr> {
        let edge = Edge {
            ingest: Arc::clone(&args.ingest),
            admin: args.admin.clone(),
            body_timeout: args.body_timeout,
        };
        let server = Server::start(Acceptor::tcp(&args.socket)?, args.limits, Arc::new(edge));
        Ok(IngestServerState { server: Some(server), args })
    }

    async fn handle(
        &self,
        _: ActorRef<IngestServerMsg>,
        message: IngestServerMsg,
        _: &mut IngestServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            IngestServerMsg::Crash => Err("told to crash".into()),
        }
    }

    async fn post_stop(
        &self,
        _: ActorRef<IngestServerMsg>,
        state: &mut IngestServerState,
    ) -> Result<(), ActorProcessingErr> {
        if *state.args.admin.handles.stopping.borrow() {
            super::close_socket(&state.args.socket);
        }
        if let Some(server) = state.server.take()
            && !server.stop(state.args.drain).await
        {
            warn!("ingest connections were still open at the end of the drain");
        }
        Ok(())
    }
}

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the outcome is unknown; closing unanswered")]
pub struct Unanswered;

struct Edge {
    ingest: Arc<Ingest>,
    admin: Admin,
    body_timeout: Duration,
}

impl Serve for Arc<Edge> {
    type Body = Full<Bytes>;
    type Error = Unanswered;

    fn serve(
        &self,
        request: Request<Incoming>,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, Unanswered>> + Send + 'static {
        let edge = Arc::clone(self);
        async move { edge.answer(request).await }
    }
}

impl Edge {
    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Unanswered> {
        if request.method() == Method::GET {
            return Ok(self.get(request.uri().path()).await);
        }
        let (parts, body) = request.into_parts();
        let head = match head(parts) {
            Ok(head) => head,
            Err(answer) => return respond(answer),
        };
        let admitted = match self.ingest.admit(&head) {
            Ok(admitted) => admitted,
            Err(answer) => return respond(answer),
        };
        respond(self.receive(admitted, head, body).await)
    }

    async fn receive(&self, admitted: Admitted, head: RequestHead, body: Incoming) -> Answer {
        let limit = self.ingest.config.max_body_bytes;
        match timeout(self.body_timeout, read(body, limit)).await {
            Ok(Ok(body)) => self.ingest.accept(admitted, head, body).await,
            Ok(Err(failure)) => self.ingest.body_failed(failure),
            Err(_elapsed) => self.ingest.body_failed(BodyFailure::Timeout),
        }
    }

    async fn get(&self, path: &str) -> Response<Full<Bytes>> {
        match path {
            "/health" => super::json(StatusCode::OK, &self.admin.ingest_health()),
            "/ready" => super::ready(&self.admin).await,
            _other => {
                let not_found = serde_json::json!({"error": "not_found"});
                super::json(StatusCode::NOT_FOUND, &not_found)
            }
        }
    }
}

/// What the edge needs of the request line and the headers.
fn head(parts: Parts) -> Result<RequestHead, Answer> {
    let declared = parts.headers.get_all(CONTENT_LENGTH).iter();
    let lengths: Vec<_> = declared.map(|value| value.to_str().ok()?.parse::<u64>().ok()).collect();
    if parts.headers.contains_key(TRANSFER_ENCODING) && !lengths.is_empty() {
        // Two framings: whoever relays this may have seen another body than we would.
        return Err(Answer::body_read_failed("framing"));
    }
    let content_length = match lengths.as_slice() {
        [Some(one)] => Some(*one),
        _none_or_several => None,
    };
    let headers = shared(&parts.headers);
    let method = parts.method.as_str().to_owned();
    Ok(RequestHead { method, path: parts.uri.path().to_owned(), headers, content_length })
}

/// Names and values as received, in one piece of memory.
fn shared(headers: &HeaderMap) -> Vec<(Bytes, Bytes)> {
    let length = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    let mut text = BytesMut::with_capacity(headers.iter().map(length).sum());
    let mut shared = Vec::with_capacity(headers.len());
    for (name, value) in headers {
        text.extend_from_slice(name.as_str().as_bytes());
        let name = text.split().freeze();
        text.extend_from_slice(value.as_bytes());
        shared.push((name, text.split().freeze()));
    }
    shared
}

/// The exact bytes, held to `limit` while they arrive.
async fn read(mut body: Incoming, limit: usize) -> Result<Bytes, BodyFailure> {
    let declared = body.size_hint().exact().and_then(|bytes| usize::try_from(bytes).ok());
    let mut first = None;
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_closed| BodyFailure::Disconnected)?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + first.as_ref().map_or(0, Bytes::len) + data.len() > limit {
            return Err(BodyFailure::TooLarge);
        }
        match first.take() {
            // Most bodies are one frame: nothing is copied.
            None if whole.is_empty() => first = Some(data),
            None => whole.extend_from_slice(&data),
            Some(before) => {
                whole.reserve(declared.unwrap_or(0).min(MAX_RESERVED_BYTES));
                whole.extend_from_slice(&before);
                whole.extend_from_slice(&data);
            }
        }
    }
    Ok(first.unwrap_or_else(|| whole.freeze()))
}

fn respond(answer: Answer) -> Result<Response<Full<Bytes>>, Unanswered> {
    let Answer::Send { status, body, retry_after_s, durable } = answer else {
        return Err(Unanswered);
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if let Some(seconds) = retry_after_s {
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if durable {
        headers.insert("ankusa-durability", HeaderValue::from_static("fsync"));
    }
    Ok(response)
}
