//! The routes of the guard over HTTP, on a listener of their own: lists, changes, IP rules, the dry run.

use std::sync::Arc;

use ankusa_actors::admin::{Admin, AdminError};
use ankusa_actors::edge::{RouteChange, RouteStoreError, RoutesNow};
use ankusa_actors::model::route::{
    DRY_RUN_ID, Invalid, IpRules, Route, RouteFields, RoutePatch, RouteSpec, is_route_id, question,
};
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde_json::{Map, Value, json};

use super::auth::Authorizer;
use super::query::{Fields, InvalidFilter};
use super::refusal::Refusal;
use super::routes::{failed, not_found, refused, unavailable};
use super::sources::bytes;
use super::table::{Endpoint, Table};

/// The document of the listener.
pub const OPENAPI: &str = include_str!("../../openapi/routes.v1.json");

/// Routes of one page.
const PAGE: usize = 100;
const MAX_PAGE: usize = 200;

/// What the routes API answers from.
#[derive(Clone)]
pub struct RoutesApi {
    pub admin: Admin,
    pub authorizer: Authorizer,
}

type Answer = Result<Response, Refusal>;
type Id = Result<Path<String>, PathRejection>;

/// The routes of the listener.
pub fn listener_routes(api: RoutesApi) -> Router {
    let guard = middleware::from_fn_with_state(api.authorizer.clone(), authorize);
    let routes = open().router.merge(guarded().router.layer(guard));
    routes.fallback(not_found).method_not_allowed_fallback(not_found).with_state(api)
}

/// The same for the control socket, which has its own `/health`.
pub(super) fn control_routes(admin: Admin) -> Router {
    let api = RoutesApi { admin, authorizer: Authorizer::default() };
    let on = middleware::from_fn_with_state(api.clone(), must_be_on);
    guarded().router.layer(on).method_not_allowed_fallback(not_found).with_state(api)
}

/// What the listener answers, for whoever documents it.
pub fn routes_endpoints() -> Vec<Endpoint> {
    let mut endpoints = open().merge(guarded().or(&[401, 403])).endpoints;
    endpoints.sort();
    endpoints
}

fn open() -> Table<RoutesApi> {
    Table::new().route("/health", get(health), &[("GET", &[200])]).route(
        "/openapi.json",
        get(openapi),
        &[("GET", &[200])],
    )
}

fn guarded() -> Table<RoutesApi> {
    Table::new()
        .route(
            "/admin/routes",
            get(list).post(create),
            &[("GET", &[200, 400, 503]), ("POST", &[201, 400, 409, 413, 503])],
        )
        .route("/admin/routes/test", post(dry_run), &[("POST", &[200, 400, 413, 503])])
        .route(
            "/admin/routes/{id}",
            get(one).put(replace).patch(patch).delete(delete),
            &[
                ("GET", &[200, 404, 500, 503]),
                ("PUT", &[200, 400, 409, 413, 503]),
                ("PATCH", &[200, 400, 404, 409, 413, 500, 503]),
                ("DELETE", &[204, 404, 503]),
            ],
        )
        .route(
            "/admin/ip-rules",
            get(rules).put(replace_rules),
            &[("GET", &[200, 500, 503]), ("PUT", &[200, 400, 413, 503])],
        )
}

async fn authorize(State(authorizer): State<Authorizer>, request: Request, next: Next) -> Response {
    let asks_only = request.method() == Method::GET || request.uri().path() == "/admin/routes/test";
    let scope = if asks_only { "routes:read" } else { "routes:write" };
    match authorizer.check(request.headers(), scope) {
        Ok(()) => next.run(request).await,
        Err(why) => refused(why),
    }
}

async fn must_be_on(State(api): State<RoutesApi>, request: Request, next: Next) -> Response {
    match api.admin.routes() {
        Ok(_) => next.run(request).await,
        Err(error) => failed(error),
    }
}

async fn openapi() -> Response {
    ([(CONTENT_TYPE, "application/json")], OPENAPI).into_response()
}

async fn health(State(api): State<RoutesApi>) -> Json<Value> {
    let now = api.admin.handles.routes.table().now();
    Json(json!({"status": "ok", "routes": now.set.routes().len()}))
}

async fn list(State(api): State<RoutesApi>, RawQuery(query): RawQuery) -> Answer {
    let query = Fields::read(query.as_deref(), &["enabled", "limit", "cursor"]).map_err(invalid)?;
    let limit = query
        .parsed("limit", |text| text.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit)));
    let limit = limit.map_err(invalid)?.unwrap_or(PAGE);
    let enabled: Option<bool> = query.read_as("enabled").map_err(invalid)?;
    let cursor = query.parsed("cursor", |text| is_route_id(text).then(|| text.to_owned()));
    let cursor = cursor.map_err(invalid)?;
    let now = now(&api)?;
    let behind = now.set.routes().range::<str, _>((
        cursor.as_deref().map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded),
        std::ops::Bound::Unbounded,
    ));
    let mut wanted = behind
        .map(|(_, route)| route)
        .filter(|route| enabled.is_none_or(|enabled| route.spec.enabled == enabled));
    let page: Vec<&Arc<Route>> = wanted.by_ref().take(limit).collect();
    let next = page.last().filter(|_| wanted.next().is_some()).map(|route| route.id.as_str());
    let routes: Vec<Value> = page.iter().map(|route| route.to_json()).collect();
    Ok(Json(json!({"routes": routes, "next_cursor": next})).into_response())
}

async fn create(State(api): State<RoutesApi>, body: Body) -> Answer {
    let fields = RouteFields::read(object(body).await?).map_err(invalid_route)?;
    let id = fields.id.clone();
    let spec = spec(fields, id.as_deref())?;
    changed(StatusCode::CREATED, &api, RouteChange::Create { id, spec }).await
}

async fn one(State(api): State<RoutesApi>, id: Id) -> Answer {
    let id = of_path(id)?;
    let now = now(&api)?;
    if let Some(reason) = now.unreadable.get(&id).cloned() {
        return Err(refuse(RouteStoreError::Unreadable { id, reason }));
    }
    let route = now.set.routes().get(&id).ok_or_else(|| refuse(RouteStoreError::NotFound))?;
    Ok(Json(route.to_json()).into_response())
}

async fn replace(State(api): State<RoutesApi>, id: Id, body: Body) -> Answer {
    let id = of_path(id)?;
    let mut fields = object(body).await?;
    // That of the path counts.
    fields.insert("id".to_owned(), Value::from(id.as_str()));
    let fields = RouteFields::read(fields).map_err(invalid_route)?;
    let spec = spec(fields, Some(&id))?;
    changed(StatusCode::OK, &api, RouteChange::Put { id, spec }).await
}

async fn patch(State(api): State<RoutesApi>, id: Id, body: Body) -> Answer {
    let id = of_path(id)?;
    let patch = RoutePatch::read(object(body).await?).map_err(invalid_route)?;
    changed(StatusCode::OK, &api, RouteChange::Patch { id, patch }).await
}

async fn delete(State(api): State<RoutesApi>, id: Id) -> Answer {
    let id = of_path(id)?;
    changed(StatusCode::NO_CONTENT, &api, RouteChange::Delete { id }).await
}

async fn rules(State(api): State<RoutesApi>) -> Answer {
    let now = now(&api)?;
    if let Some(reason) = now.rules_unreadable.clone() {
        return Err(refuse(RouteStoreError::Unreadable { id: "ip-rules".to_owned(), reason }));
    }
    Ok(Json(now.set.rules().as_ref()).into_response())
}

async fn replace_rules(State(api): State<RoutesApi>, body: Body) -> Answer {
    let rules = IpRules::read(object(body).await?);
    let rules = rules.map_err(|error| wrong("invalid_ip_rules", error))?;
    let shown = Json(json!(rules)).into_response();
    let store = &api.admin.handles.routes;
    store.change(RouteChange::Rules(rules)).await.map_err(refuse)?;
    Ok(shown)
}

async fn dry_run(State(api): State<RoutesApi>, body: Body) -> Answer {
    let (method, path, client) =
        question(&object(body).await?).map_err(|error| wrong("invalid_request", error))?;
    let path = path.split_once('?').map_or(path.as_str(), |(path, _)| path);
    let now = now(&api)?;
    let decision = now.set.decide(&method, path, Some(client));
    if now.is_unsure(decision.reason) {
        return Err(refuse(RouteStoreError::Unavailable("some routes cannot be read".to_owned())));
    }
    Ok(Json(decision.to_json()).into_response())
}

/// The routes, once they have been read.
fn now(api: &RoutesApi) -> Result<Arc<RoutesNow>, Refusal> {
    let now = api.admin.handles.routes.table().now();
    if now.is_loading {
        let why = "the routes have not been read yet";
        return Err(refuse(RouteStoreError::Unavailable(why.to_owned())));
    }
    Ok(now)
}

async fn changed(status: StatusCode, api: &RoutesApi, change: RouteChange) -> Answer {
    let changed = api.admin.handles.routes.change(change).await.map_err(refuse)?;
    Ok(match changed {
        Some(route) => (status, Json(route.to_json())).into_response(),
        None => status.into_response(),
    })
}

fn of_path(id: Id) -> Result<String, Refusal> {
    id.map(|Path(id)| id).map_err(|_| refuse(RouteStoreError::NotFound))
}

fn spec(fields: RouteFields, id: Option<&str>) -> Result<Box<RouteSpec>, Refusal> {
    if id == Some(DRY_RUN_ID) {
        return Err(invalid_route(Invalid::new("id", "this id is reserved")));
    }
    RouteSpec::new(fields).map(Box::new).map_err(invalid_route)
}

/// The whole body, which must be a JSON object.
async fn object(body: Body) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(&bytes(body).await?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => {
            let body = json!({"error": "invalid_body", "message": "body must be a JSON object"});
            Err(Refusal::new(StatusCode::BAD_REQUEST, &body))
        }
    }
}

fn invalid(InvalidFilter(field): InvalidFilter) -> Refusal {
    let body = json!({"error": "invalid_query", "field": field});
    Refusal::new(StatusCode::BAD_REQUEST, &body)
}

fn invalid_route(error: Invalid) -> Refusal {
    wrong("invalid_route", error)
}

fn wrong(name: &str, Invalid { field, message }: Invalid) -> Refusal {
    let body = json!({"error": name, "field": field, "message": message});
    Refusal::new(StatusCode::BAD_REQUEST, &body)
}

fn refuse(error: RouteStoreError) -> Refusal {
    let name = error.to_string();
    match error {
        RouteStoreError::NotFound => Refusal::new(StatusCode::NOT_FOUND, &json!({"error": name})),
        RouteStoreError::Duplicate { conflicting_id } => {
            let body = json!({"error": name, "conflicting_id": conflicting_id});
            Refusal::new(StatusCode::CONFLICT, &body)
        }
        RouteStoreError::TooMany { max_routes } => {
            Refusal::new(StatusCode::CONFLICT, &json!({"error": name, "max_routes": max_routes}))
        }
        RouteStoreError::Invalid(error) => invalid_route(error),
        RouteStoreError::Unreadable { id, reason } => {
            failed(AdminError::CorruptValue { family: "default", key: id, reason }).into()
        }
        RouteStoreError::Unavailable(message) => {
            unavailable(&json!({"error": name, "message": message})).into()
        }
    }
}
