//! The ingest listener: reads requests for [`Ingest`] and sends what it answers.
//!
//! * **Owns:** its connections; the listening socket outlives it.
//! * **Talks to:** the batchers, through [`Ingest`]; the store, for `/ready`.
//! * **Supervised by:** `front`, one_for_one: it answers 503 while the core is down.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::Admin;
use ankusa_actors::edge::{
    Admitted, Answer, BodyFailure, Ingest, IngestConfig, RequestHead, Routing,
};
use ankusa_actors::supervision::{Crash, told_to_crash};
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{
    CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, EXPECT, HOST, HeaderName, HeaderValue, RETRY_AFTER,
    X_CONTENT_TYPE_OPTIONS,
};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Request, Response, StatusCode, Version};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::timeout;
use tracing::warn;

use super::body::{BodyMemory, NoBody, read};
use super::listener::{Acceptor, Ambiguous, Limits, Origin, Serve, Server, Terms};
use super::own_answer::HEADERS_TOO_LARGE;
use super::table::Endpoint;
use crate::telemetry::metrics::ParseFailure;

/// The header that says what a 201 promises.
const DURABILITY: HeaderName = HeaderName::from_static("ankusa-durability");

/// The largest body of a refused request that is read off, and how long that may take.
const MAX_PASSED_OVER_BYTES: usize = 64 * 1024;
const PASS_OVER_WITHIN: Duration = Duration::from_secs(1);

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
    pub terms: Terms,
    pub body_timeout: Duration,
    pub body_memory: BodyMemory,
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
            body_memory: args.body_memory.clone(),
            terms: args.terms.clone(),
        };
        let acceptor = Acceptor::tcp(&args.socket)?;
        let server = Server::start(acceptor, args.terms.clone(), Arc::new(edge));
        Ok(IngestServerState { server: Some(server), args })
    }

    async fn handle(
        &self,
        _: ActorRef<IngestServerMsg>,
        message: IngestServerMsg,
        _: &mut IngestServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            IngestServerMsg::Crash => told_to_crash(),
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

/// The document of the ingest port.
pub const OPENAPI: &str = include_str!("../../openapi/ingest.v1.json");

/// Where catch URLs begin unless `http.prefix` says otherwise.
const PREFIX: &str = "/webhooks";
const CATCH: &str = "/webhooks/{source_id}";
const CATCH_OF_TENANT: &str = "/webhooks/{tenant_id}/{source_id}";
/// Besides 2xx: a source says what its provider hears of a hook that was taken.
const CATCH_REFUSALS: [u16; 9] = [400, 401, 403, 404, 413, 414, 429, 431, 503];
/// Of a handshake.
const GET_CATCH_STATUSES: [u16; 5] = [200, 400, 403, 404, 503];

/// The connection is to be closed without an answer.
#[derive(Debug, thiserror::Error)]
#[error("the outcome is unknown; closing unanswered")]
pub struct Unanswered;

type Answered = Result<Response<Full<Bytes>>, Unanswered>;

struct Edge {
    ingest: Arc<Ingest>,
    admin: Admin,
    body_timeout: Duration,
    body_memory: BodyMemory,
    terms: Terms,
}

impl Serve for Arc<Edge> {
    type Body = Full<Bytes>;
    type Error = Unanswered;

    fn serve(
        &self,
        request: Request<Incoming>,
        origin: Origin,
    ) -> impl Future<Output = Answered> + Send + 'static {
        let edge = Arc::clone(self);
        async move {
            let version = request.version();
            let mut answer = edge.answer(request, origin).await;
            if version == Version::HTTP_2
                && let Ok(answer) = &mut answer
            {
                // There a request ends without its connection.
                answer.headers_mut().remove(CONNECTION);
            }
            answer
        }
    }
}

impl Edge {
    async fn answer(&self, request: Request<Incoming>, origin: Origin) -> Answered {
        let (parts, body) = request.into_parts();
        if let Some(refusal) = self.refuse_head(&parts) {
            return closing(refusal);
        }
        if parts.method == Method::GET {
            return self.get(&parts, origin).await;
        }
        let head = head(&parts, origin);
        match self.ingest.admit(&head) {
            Ok(admitted) if self.body_memory.is_full() => closing(self.ingest.no_room(admitted)),
            Ok(admitted) => self.receive(admitted, head, body).await,
            Err(answer) if parts.headers.contains_key(EXPECT) => closing(answer),
            Err(answer) => self.pass_over(answer, body).await,
        }
    }

    /// What the parser lets through and this node does not.
    fn refuse_head(&self, parts: &Parts) -> Option<Answer> {
        let series = &self.terms.series;
        if parts.extensions.get::<Ambiguous>().is_some() {
            return Some(self.ingest.body_failed(BodyFailure::Ambiguous));
        }
        // Of two, whoever relayed this may have gone by the other.
        let is_repeated = parts.headers.len() != parts.headers.keys_len();
        if is_repeated && parts.headers.get_all(HOST).iter().nth(1).is_some() {
            series.parse_failed(ParseFailure::Ambiguous);
            return Some(self.ingest.body_failed(BodyFailure::Ambiguous));
        }
        if parts.version == Version::HTTP_2 && !fits(parts, &self.terms.limits) {
            series.parse_failed(ParseFailure::HeadersTooLarge);
            return Some(Answer::refused_head(431, HEADERS_TOO_LARGE));
        }
        None
    }

    async fn receive(&self, admitted: Admitted, head: RequestHead, body: Incoming) -> Answered {
        let limit = self.ingest.config.max_body_bytes;
        match timeout(self.body_timeout, read(body, limit, &self.body_memory)).await {
            Ok(Ok(body)) => respond(self.ingest.accept(admitted, head, body).await),
            Ok(Err(NoBody::Failed(failure))) => closing(self.ingest.body_failed(failure)),
            Ok(Err(NoBody::NoRoom)) => closing(self.ingest.no_room(admitted)),
            Err(_elapsed) => closing(self.ingest.body_failed(BodyFailure::Timeout)),
        }
    }

    /// Answers a request whose body nobody wants. A small one is read off, so that its connection can be used again.
    async fn pass_over(&self, answer: Answer, body: Incoming) -> Answered {
        let most = MAX_PASSED_OVER_BYTES.min(self.ingest.config.max_body_bytes);
        let declared = body.size_hint().upper().and_then(|bytes| usize::try_from(bytes).ok());
        if declared.is_none_or(|bytes| bytes > most) {
            return closing(answer);
        }
        match timeout(PASS_OVER_WITHIN, body.collect()).await {
            Ok(Ok(_)) => respond(answer),
            Ok(Err(_)) | Err(_) => closing(answer),
        }
    }

    async fn get(&self, parts: &Parts, origin: Origin) -> Answered {
        match parts.uri.path() {
            "/health" => Ok(super::json(StatusCode::OK, &self.admin.ingest_health())),
            "/ready" => Ok(super::ready(&self.admin).await),
            "/openapi.json" => Ok(super::json(StatusCode::OK, &openapi(&self.ingest.config))),
            _other => respond(self.ingest.get(&head(parts, origin))),
        }
    }
}

/// Whether a head of HTTP/2 keeps to what the parser of HTTP/1.1 is told, counted as the protocol counts it.
fn fits(parts: &Parts, limits: &Limits) -> bool {
    const FIELD_BYTES: usize = 32;
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + FIELD_BYTES
    };
    let line = parts.uri.path_and_query().map_or(0, |target| target.as_str().len());
    let bytes = line + parts.headers.iter().map(field).sum::<usize>();
    parts.headers.len() <= limits.max_headers && bytes <= limits.max_header_bytes
}

/// The document of the ingest port, with catch URLs as they are here.
fn openapi(config: &IngestConfig) -> serde_json::Value {
    // It is ours, and a test reads it.
    let mut document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap_or_default();
    if let Some(serde_json::Value::Object(paths)) = document.get_mut("paths") {
        let (path, other) = match config.routing {
            Routing::Path => (CATCH, CATCH_OF_TENANT),
            Routing::TenantPath => (CATCH_OF_TENANT, CATCH),
        };
        paths.shift_remove(other);
        if let Some(catch) = paths.shift_remove(path) {
            let path = path.strip_prefix(PREFIX).unwrap_or(path);
            paths.insert(format!("{}{path}", config.prefix), catch);
        }
    }
    document
}

/// What the ingest port answers, for whoever documents it: one of the catch URLs is there, under `http.prefix`.
pub fn ingest_endpoints() -> Vec<Endpoint> {
    let endpoint =
        |path, method, statuses: &[u16]| Endpoint { path, method, statuses: statuses.to_vec() };
    let catch: Vec<u16> = (200..300).chain(CATCH_REFUSALS).collect();
    let mut endpoints = vec![
        endpoint("/health", "GET", &[200]),
        endpoint("/ready", "GET", &[200, 503]),
        endpoint("/openapi.json", "GET", &[200]),
        endpoint(CATCH, "GET", &GET_CATCH_STATUSES),
        endpoint(CATCH, "POST", &catch),
        endpoint(CATCH_OF_TENANT, "GET", &GET_CATCH_STATUSES),
        endpoint(CATCH_OF_TENANT, "POST", &catch),
    ];
    endpoints.sort();
    endpoints
}

/// What the edge needs of the request line and the headers.
fn head(parts: &Parts, origin: Origin) -> RequestHead {
    // Several that differ, or one that is no number, the parser has refused.
    let declared = parts.headers.get(CONTENT_LENGTH);
    RequestHead {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers: match parts.version {
            Version::HTTP_2 => of_http2(parts),
            _one => shared(&parts.headers),
        },
        content_length: declared.and_then(|value| value.to_str().ok()?.parse().ok()),
        remote: origin.remote,
        peer: origin.peer,
    }
}

/// The headers of an HTTP/2 request, and the one that HTTP/1.1 would have had.
fn of_http2(parts: &Parts) -> Vec<(Bytes, Bytes)> {
    let host = parts.uri.authority().filter(|_| !parts.headers.contains_key(HOST));
    let host = host.map(|host| {
        let name = Bytes::from_static(HOST.as_str().as_bytes());
        (name, Bytes::copy_from_slice(host.as_str().as_bytes()))
    });
    let copied = |(name, value): (&HeaderName, &HeaderValue)| {
        let name = Bytes::copy_from_slice(name.as_str().as_bytes());
        (name, Bytes::copy_from_slice(value.as_bytes()))
    };
    host.into_iter().chain(parts.headers.iter().map(copied)).collect()
}

/// Names and values as received, in the order they came, in one piece of memory.
fn shared(headers: &HeaderMap) -> Vec<(Bytes, Bytes)> {
    let length = |(name, value): (&HeaderName, &HeaderValue)| name.as_str().len() + value.len();
    let mut text = BytesMut::with_capacity(headers.iter().map(length).sum());
    let mut share = |(name, value): (&HeaderName, &HeaderValue)| {
        text.extend_from_slice(name.as_str().as_bytes());
        let name = text.split().freeze();
        text.extend_from_slice(value.as_bytes());
        (name, text.split().freeze())
    };
    if headers.len() == headers.keys_len() {
        return headers.iter().map(share).collect();
    }
    // The map files the values of a repeated name together. But every value is a slice of the head as it was read, so
    // where they lie is the order they came in.
    let mut came: Vec<_> = headers.iter().collect();
    came.sort_by_key(|(_, value)| value.as_bytes().as_ptr());
    came.into_iter().map(&mut share).collect()
}

/// Answers on a connection that cannot be used again, because some of the body has not been read.
fn closing(answer: Answer) -> Answered {
    let mut response = respond(answer)?;
    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    Ok(response)
}

fn respond(answer: Answer) -> Answered {
    let (mut response, durable) = match answer {
        Answer::Send { status, body, retry_after_s, durable } => {
            let json = HeaderValue::from_static("application/json");
            let mut response = of_status(status, json, Bytes::from(body));
            if let Some(seconds) = retry_after_s {
                response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
            }
            (response, durable)
        }
        Answer::Said { status, content_type, body, durable } => {
            // Checked when the source was loaded.
            let content_type = HeaderValue::from_maybe_shared(content_type);
            let text = HeaderValue::from_static("text/plain; charset=utf-8");
            let mut response = of_status(status, content_type.unwrap_or(text), body);
            let nosniff = HeaderValue::from_static("nosniff");
            response.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
            (response, durable)
        }
        Answer::CloseUnanswered => return Err(Unanswered),
    };
    if durable {
        response.headers_mut().insert(DURABILITY, HeaderValue::from_static("fsync"));
    }
    Ok(response)
}

fn of_status(status: u16, content_type: HeaderValue, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() =
        StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, content_type);
    response
}
