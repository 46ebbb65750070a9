//! The admin API: one set of routes over two transports, the admin port and the control socket.
//!
//! The control socket has the node-local ones too: what only whoever owns the host may do. There its file mode is the
//! authentication; on the admin port bearer tokens are, once it is bound beyond loopback.

use std::convert::Infallible;
use std::sync::Arc;

use ankusa_actors::admin::{Admin, AdminError, DumpCursor};
use ankusa_actors::ports::BlobStores;
use axum::body::Body;
use axum::extract::{Query, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower::ServiceExt;

use super::auth::{Authorizer, Refused};
use super::blob;
use super::limits;
use super::listener::{Origin, Serve};
use super::queue;
use super::routes_admin;
use super::sources::{self, SourcesApi};
use super::spool::Spool;
use super::table::{Endpoint, Table};
use crate::telemetry::metrics::Metrics;

/// The document of the admin port.
pub const OPENAPI: &str = include_str!("../../openapi/admin.v1.json");

/// What every route answers from.
#[derive(Clone)]
pub struct Api {
    pub admin: Admin,
    pub metrics: Arc<Metrics>,
    /// The effective config, redacted.
    pub config: Arc<Value>,
    pub sources: SourcesApi,
    pub authorizer: Authorizer,
}

/// What the control socket can do besides.
#[derive(Clone)]
pub struct Control {
    pub api: Api,
    pub allow_crash: bool,
    /// Raised by `POST /v1/stop`.
    pub stop: Arc<watch::Sender<bool>>,
    pub stores: BlobStores,
    /// Where objects lie that are being put.
    pub spool: Spool,
}

/// Routes, as a listener serves them.
#[derive(Clone)]
pub struct Routes(pub Router);

impl Serve for Routes {
    type Body = Body;
    type Error = Infallible;

    fn serve(
        &self,
        request: axum::http::Request<Incoming>,
        _origin: Origin,
    ) -> impl Future<Output = Result<Response, Infallible>> + Send + 'static {
        self.0.clone().oneshot(request.map(Body::new))
    }
}

/// The routes of the admin port.
pub fn admin_routes(api: Api) -> Router {
    let guard = middleware::from_fn_with_state(api.authorizer.clone(), authorize);
    let routes = open().router.merge(guarded().router.layer(guard));
    routes.fallback(not_found).method_not_allowed_fallback(not_found).with_state(api)
}

/// What the admin port answers, for whoever documents it.
pub fn admin_endpoints() -> Vec<Endpoint> {
    let mut endpoints = open().merge(guarded()).endpoints;
    endpoints.sort();
    endpoints
}

/// Without credentials.
fn open() -> Table<Api> {
    Table::new()
        .route("/health", get(health), &[("GET", &[200])])
        .route("/ready", get(ready), &[("GET", &[200, 503])])
        .route("/openapi.json", get(openapi), &[("GET", &[200])])
}

/// With them, where there are tokens.
fn guarded() -> Table<Api> {
    Table::new()
        .route("/metrics", get(metrics), &[("GET", &[200])])
        .route("/v1/config", get(config), &[("GET", &[200])])
        .route("/v1/wal", get(wal), &[("GET", &[200])])
        .merge(queue::routes())
        .merge(limits::routes())
        .merge(sources::routes())
        .or(&[401, 403])
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

/// The same and the node-local ones.
pub fn control_routes(control: Control) -> Router {
    let local = Router::new()
        .route("/v1/status", get(status))
        .route("/v1/tree", get(tree))
        .route("/v1/dump", get(dump))
        .route("/v1/scrub", get(scrub).post(begin_scrub))
        .route("/v1/store/reopen", post(reopen))
        .route("/v1/crash", post(crash))
        .route("/v1/stop", post(stop))
        .merge(queue::control_routes())
        .merge(blob::control_routes())
        .method_not_allowed_fallback(not_found)
        .with_state(control.clone());
    let guard = routes_admin::control_routes(control.api.admin.clone());
    admin_routes(control.api).merge(local).merge(guard)
}

pub(super) async fn not_found() -> Response {
    refuse(StatusCode::NOT_FOUND, &json!({"error": "not_found"}))
}

pub(super) fn refuse(status: StatusCode, body: &Value) -> Response {
    (status, Json(body.clone())).into_response()
}

/// Which scope a route takes: its resource, and whether it is read or written.
fn scope_of(method: &Method, path: &str) -> &'static str {
    match path {
        "/metrics" => "metrics:read",
        "/v1/config" => "config:read",
        "/v1/wal" => "wal:read",
        other => {
            let scope = queue::scope_of(method, other).or_else(|| limits::scope_of(method, other));
            scope.unwrap_or("*")
        }
    }
}

async fn authorize(State(authorizer): State<Authorizer>, request: Request, next: Next) -> Response {
    let scope = scope_of(request.method(), request.uri().path());
    match authorizer.check(request.headers(), scope) {
        Ok(()) => next.run(request).await,
        Err(why) => refused(why),
    }
}

/// What nobody hears, or somebody who may not.
pub(super) fn refused(why: Refused) -> Response {
    match why {
        Refused::Unauthorized => {
            let mut answer = refuse(StatusCode::UNAUTHORIZED, &json!({"error": "unauthorized"}));
            let bearer = axum::http::HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, bearer);
            answer
        }
        Refused::Forbidden(scope) => {
            refuse(StatusCode::FORBIDDEN, &json!({"error": "forbidden", "scope": scope}))
        }
    }
}

async fn health(State(api): State<Api>) -> Json<Value> {
    Json(api.admin.health())
}

async fn ready(State(api): State<Api>) -> Response {
    super::ready(&api.admin).await.map(Body::new)
}

async fn metrics(State(api): State<Api>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "text/plain; version=0.0.4")], api.metrics.encode())
}

async fn config(State(api): State<Api>) -> Json<Value> {
    Json(api.config.as_ref().clone())
}

async fn wal(State(api): State<Api>) -> Json<Value> {
    Json(api.admin.wal().await)
}

async fn status(State(control): State<Control>) -> Json<Value> {
    Json(control.api.admin.status())
}

async fn tree(State(control): State<Control>) -> Json<Value> {
    Json(control.api.admin.tree())
}

async fn scrub(State(control): State<Control>) -> Json<Value> {
    Json(control.api.admin.scrub())
}

async fn begin_scrub(State(control): State<Control>) -> Response {
    match control.api.admin.begin_scrub() {
        Ok(()) => Json(json!({"status": "scrubbing"})).into_response(),
        Err(error) => failed(error),
    }
}

/// Streams line by line: a dump is never held in memory. An error on the way breaks the connection, so that a dump cut
/// short cannot be taken for a whole one: the last line of a whole one says `end`.
async fn dump(State(control): State<Control>) -> Response {
    let admin = control.api.admin;
    let pages = stream::try_unfold(Some(DumpCursor::default()), move |cursor| {
        let admin = admin.clone();
        async move {
            let Some(cursor) = cursor else { return Ok::<_, AdminError>(None) };
            let page = admin.dump(cursor).await?;
            Ok(Some((page.lines, page.next)))
        }
    });
    ([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pages)).into_response()
}

async fn reopen(State(control): State<Control>) -> Response {
    match control.api.admin.handles.store.reopen().await {
        Ok(()) => Json(json!({"status": "reopened"})).into_response(),
        Err(why) => failed(AdminError::StoreUnavailable(why)),
    }
}

#[derive(Deserialize)]
struct CrashQuery {
    child: Option<String>,
}

async fn crash(State(control): State<Control>, Query(query): Query<CrashQuery>) -> Response {
    if !control.allow_crash {
        let message = "set control.allow_crash: true to allow this";
        return refuse(
            StatusCode::FORBIDDEN,
            &json!({"error": "crash_not_allowed", "message": message}),
        );
    }
    let child = query.child.unwrap_or_default();
    match control.api.admin.crash(&child) {
        Ok(()) => Json(json!({"status": "crashed", "child": child})).into_response(),
        Err(error) => failed(error),
    }
}

async fn stop(State(control): State<Control>) -> Json<Value> {
    control.stop.send_replace(true);
    Json(json!({"status": "stopping"}))
}

pub(super) fn failed(error: AdminError) -> Response {
    let name = error.to_string();
    match error {
        AdminError::StoreUnavailable(message) => {
            unavailable(&json!({"error": name, "message": message}))
        }
        AdminError::RoleNotEnabled(role) => {
            refuse(StatusCode::CONFLICT, &json!({"error": name, "role": role}))
        }
        AdminError::CorruptValue { family, key, reason } => {
            let body = json!({"error": name, "family": family, "key": key, "reason": reason});
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &body)
        }
        AdminError::ScrubDisabled => {
            let message = "store.scrub_bytes_per_s is 0";
            refuse(StatusCode::CONFLICT, &json!({"error": name, "message": message}))
        }
        AdminError::RoutesDisabled => {
            let message = "routes.enabled is false";
            refuse(StatusCode::CONFLICT, &json!({"error": name, "message": message}))
        }
        AdminError::TenantNotFound(tenant) => {
            refuse(StatusCode::NOT_FOUND, &json!({"error": name, "tenant_id": tenant}))
        }
        AdminError::InvalidFilter(field) => {
            refuse(StatusCode::BAD_REQUEST, &json!({"error": name, "field": field}))
        }
        AdminError::InvalidRateLimit(message) => {
            refuse(StatusCode::BAD_REQUEST, &json!({"error": name, "message": message}))
        }
        AdminError::RateLimitNotFound => refuse(StatusCode::NOT_FOUND, &json!({"error": name})),
        AdminError::TooManyRateLimits(max) => {
            refuse(StatusCode::CONFLICT, &json!({"error": name, "max": max}))
        }
        AdminError::DispatchUnavailable => unavailable(&json!({"error": name})),
        AdminError::NoSuchChild(child) => {
            refuse(StatusCode::NOT_FOUND, &json!({"error": name, "child": child}))
        }
    }
}

/// Worth another try in a second.
pub(super) fn unavailable(body: &Value) -> Response {
    let headers = HeaderMap::from_iter([(RETRY_AFTER, axum::http::HeaderValue::from_static("1"))]);
    (StatusCode::SERVICE_UNAVAILABLE, headers, Json(body)).into_response()
}
