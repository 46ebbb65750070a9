//! Sources over the admin API: what they are, never with a secret, and changes of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::admin::{AdminError, Deliveries, SourceError};
use ankusa_actors::edge::{IngestConfig, Routing, SourceChange, SourceStoreError};
use ankusa_actors::model::source::SourceSpec;
use ankusa_actors::model::stored_source::SourceName;
use ankusa_actors::sources::{SourceSet, StoredSource};
use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::header::{ETAG, IF_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::query::{Fields, InvalidFilter};
use super::queue::InvalidTenant;
use super::refusal::Refusal;
use super::routes::{Api, failed as answer_of, unavailable};
use super::table::Table;
use crate::config::{ConfigErrors, redacted_source};
use crate::sources::{NAME, SourceRules};

/// The largest body, in bytes.
pub(super) const MAX_BODY_BYTES: usize = 64 << 10;
/// How long a body may take.
pub(super) const BODY_WITHIN: Duration = Duration::from_secs(10);

/// What the API knows of sources besides those that are stored.
#[derive(Clone)]
pub struct SourcesApi {
    pub(crate) rules: Arc<SourceRules>,
    /// Those of the configuration, by id.
    pub(crate) configured: Arc<BTreeMap<String, SourceSpec>>,
    /// Where hooks arrive.
    pub(crate) ingest: IngestConfig,
}

type Answer = Result<Response, Refusal>;

pub(super) fn routes() -> Table<Api> {
    Table::new()
        .route(
            "/v1/tenants/{tenant}/sources",
            get(list).post(create),
            &[("GET", &[200, 400, 503]), ("POST", &[201, 400, 409, 413, 503])],
        )
        .route(
            "/v1/tenants/{tenant}/sources/{name}",
            get(one).put(replace).delete(delete),
            &[
                ("GET", &[200, 400, 404, 500, 503]),
                ("PUT", &[200, 400, 404, 409, 412, 413, 503]),
                ("DELETE", &[204, 400, 404, 409, 412, 503]),
            ],
        )
}

async fn list(
    State(api): State<Api>,
    of: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Answer {
    let tenant = tenant(of.ok().map(|Path(tenant)| tenant))?;
    Fields::read(query.as_deref(), &[])?;
    let set = api.admin.sources().map_err(failed)?;
    let configured = api.sources.configured.iter().filter(|(_, spec)| spec.tenant == tenant);
    let mut entries: Vec<(&str, Value)> = configured
        .map(|(id, spec)| (id.as_str(), api.sources.entry(id, id, spec, None)))
        .chain(
            of_tenant(&set, &tenant)
                .map(|stored| (stored.name.name.as_str(), api.sources.stored(stored))),
        )
        .collect();
    entries.sort_by_key(|(name, _)| *name);
    let entries: Vec<Value> = entries.into_iter().map(|(_, entry)| entry).collect();
    let unreadable: Vec<Value> = set
        .unreadable
        .iter()
        .filter(|(name, _)| name.tenant == tenant)
        .map(|(name, reason)| json!({"name": name.name, "reason": reason}))
        .collect();
    let body = json!({"tenant": tenant, "entries": entries, "unreadable": unreadable});
    Ok(Json(body).into_response())
}

fn of_tenant<'a>(
    set: &'a SourceSet,
    tenant: &'a str,
) -> impl Iterator<Item = &'a Arc<StoredSource>> {
    set.stored.values().filter(move |stored| stored.name.tenant == tenant)
}

async fn create(
    State(api): State<Api>,
    of: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
    body: Body,
) -> Answer {
    let tenant = tenant(of.ok().map(|Path(tenant)| tenant))?;
    Fields::read(query.as_deref(), &[])?;
    must_be_writable(&api)?;
    let body = object(body).await?;
    let name = match body.get("name").and_then(Value::as_str) {
        Some(name) => source_name(&tenant, name)?,
        None => return Err(invalid("name: is required")),
    };
    if api.sources.is_configured(&name) {
        return Err(store_refused(&SourceStoreError::Exists));
    }
    let spec = Box::new(api.sources.rules.read(&tenant, body).map_err(|all| not_a_source(&all))?);
    let change = SourceChange::Create { name, spec };
    let created = api.admin.change_source(change).await.map_err(refused)?;
    Ok(shown(StatusCode::CREATED, &api, created.as_deref()))
}

async fn one(
    State(api): State<Api>,
    of: Result<Path<(String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Answer {
    let name = full_name(of)?;
    Fields::read(query.as_deref(), &[])?;
    let set = api.admin.sources().map_err(failed)?;
    if let Some(stored) = set.stored.get(&name) {
        return Ok(shown(StatusCode::OK, &api, Some(stored)));
    }
    if let Some(reason) = set.unreadable.get(&name) {
        let (family, key, reason) = ("default", name.source_id(), reason.clone());
        return Err(failed(AdminError::CorruptValue { family, key, reason }));
    }
    match api.sources.configured.get(&name.name).filter(|spec| spec.tenant == name.tenant) {
        Some(spec) => {
            Ok(Json(api.sources.entry(&name.name, &name.name, spec, None)).into_response())
        }
        None => Err(store_refused(&SourceStoreError::NotFound)),
    }
}

async fn replace(
    State(api): State<Api>,
    of: Result<Path<(String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let name = full_name(of)?;
    Fields::read(query.as_deref(), &[])?;
    must_be_writable(&api)?;
    let expected = expected(&headers)?;
    let body = object(body).await?;
    must_be_stored(&api, &name)?;
    let rules = &api.sources.rules;
    let spec = Box::new(rules.read(&name.tenant, body).map_err(|all| not_a_source(&all))?);
    let change = SourceChange::Replace { name, spec, expected };
    let replaced = api.admin.change_source(change).await.map_err(refused)?;
    Ok(shown(StatusCode::OK, &api, replaced.as_deref()))
}

async fn delete(
    State(api): State<Api>,
    of: Result<Path<(String, String)>, PathRejection>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Answer {
    let name = full_name(of)?;
    let fields = Fields::read(query.as_deref(), &["deliveries"])?;
    let deliveries = match fields.text("deliveries") {
        None => Deliveries::Keep,
        Some("dead_letter") => Deliveries::DeadLetter,
        Some(_) => return Err(InvalidFilter("deliveries".to_owned()).into()),
    };
    must_be_writable(&api)?;
    let expected = expected(&headers)?;
    must_be_stored(&api, &name)?;
    api.admin.delete_source(name, expected, deliveries).await.map_err(refused)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

impl SourcesApi {
    fn stored(&self, stored: &StoredSource) -> Value {
        let StoredSource { name, revision, spec, source } = stored;
        self.entry(&name.name, &source.id, spec, Some(*revision))
    }

    /// A source as it is shown. One of the configuration has no revision.
    fn entry(&self, name: &str, id: &str, spec: &SourceSpec, revision: Option<u64>) -> Value {
        let prefix = &self.ingest.prefix;
        let ingest_path = match self.ingest.routing {
            Routing::Path => format!("{prefix}/{id}"),
            Routing::TenantPath => format!("{prefix}/{}/{id}", spec.tenant),
        };
        let mut entry = Map::new();
        entry.insert("tenant".to_owned(), json!(spec.tenant));
        entry.insert("name".to_owned(), json!(name));
        entry.insert("source_id".to_owned(), json!(id));
        entry.insert("ingest_path".to_owned(), json!(ingest_path));
        entry.insert("origin".to_owned(), json!(revision.map_or("config", |_| "api")));
        entry.insert("revision".to_owned(), json!(revision));
        entry.insert("enabled".to_owned(), json!(spec.enabled));
        if let Value::Object(spec) = redacted_source(spec) {
            entry.extend(spec.into_iter().filter(|(key, _)| key != "tenant"));
        }
        Value::Object(entry)
    }

    fn is_configured(&self, name: &SourceName) -> bool {
        self.configured.get(&name.name).is_some_and(|spec| spec.tenant == name.tenant)
    }
}

/// The tenant of a path, if it can be one.
fn tenant(name: Option<String>) -> Result<String, Refusal> {
    name.and_then(|name| super::queue::tenant(name).ok())
        .ok_or_else(|| Response::from(InvalidTenant).into())
}

fn source_name(tenant: &str, name: &str) -> Result<SourceName, Refusal> {
    SourceName::new(tenant, name).ok_or_else(|| invalid(&format!("name: must be {NAME}")))
}

fn full_name(of: Result<Path<(String, String)>, PathRejection>) -> Result<SourceName, Refusal> {
    let (of, name) = of.ok().map_or((None, None), |Path((of, name))| (Some(of), Some(name)));
    let tenant = tenant(of)?;
    source_name(&tenant, &name.unwrap_or_default())
}

/// Whether changes are taken at all is the first thing said about one.
fn must_be_writable(api: &Api) -> Result<(), Refusal> {
    let writable = api.admin.handles.sources.takes_changes();
    if writable { Ok(()) } else { Err(store_refused(&SourceStoreError::ReadOnly)) }
}

/// Sources of the configuration are changed there.
fn must_be_stored(api: &Api, name: &SourceName) -> Result<(), Refusal> {
    let set = api.admin.sources().map_err(failed)?;
    if set.stored.contains_key(name) || set.unreadable.contains_key(name) {
        Ok(())
    } else if api.sources.is_configured(name) {
        Err(store_refused(&SourceStoreError::ReadOnly))
    } else {
        Err(store_refused(&SourceStoreError::NotFound))
    }
}

/// The revision that `if-match` names, as an answer's `etag` did.
fn expected(headers: &HeaderMap) -> Result<Option<u64>, Refusal> {
    let Some(given) = headers.get(IF_MATCH) else { return Ok(None) };
    let text = given.to_str().unwrap_or_default();
    if text == "*" {
        return Ok(None);
    }
    let quoted = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    let revision = quoted.and_then(|text| text.parse().ok());
    let body = json!({"error": "invalid_header", "header": "if-match"});
    revision.map(Some).ok_or_else(|| Refusal::new(StatusCode::BAD_REQUEST, &body))
}

/// The whole body, which must be a JSON object.
async fn object(body: Body) -> Result<Map<String, Value>, Refusal> {
    match serde_json::from_slice(&bytes(body).await?) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => Err(invalid("body must be a JSON object")),
    }
}

/// The whole body.
pub(super) async fn bytes(body: Body) -> Result<axum::body::Bytes, Refusal> {
    match timeout(BODY_WITHIN, to_bytes(body, MAX_BODY_BYTES)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        Ok(Err(error)) if is_too_large(&error) => {
            let body = json!({"error": "payload_too_large", "limit": MAX_BODY_BYTES});
            Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, &body))
        }
        Ok(Err(_)) => Err(body_failed("closed")),
        Err(_elapsed) => Err(body_failed("timeout")),
    }
}

fn is_too_large(error: &axum::Error) -> bool {
    let source = std::error::Error::source(error);
    source.is_some_and(|source| source.is::<http_body_util::LengthLimitError>())
}

fn body_failed(reason: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, &json!({"error": "body_read_failed", "reason": reason}))
}

fn shown(status: StatusCode, api: &Api, stored: Option<&StoredSource>) -> Response {
    let Some(stored) = stored else { return status.into_response() };
    let mut answer = (status, Json(api.sources.stored(stored))).into_response();
    if let Ok(etag) = HeaderValue::from_str(&format!("\"{}\"", stored.revision)) {
        answer.headers_mut().insert(ETAG, etag);
    }
    answer
}

fn failed(error: AdminError) -> Refusal {
    answer_of(error).into()
}

fn invalid(message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, &json!({"error": "invalid_source", "message": message}))
}

fn not_a_source(errors: &ConfigErrors) -> Refusal {
    invalid(&errors.to_string().replace('\n', "; "))
}

fn refused(error: SourceError) -> Refusal {
    match error {
        SourceError::Store(error) => store_refused(&error),
        SourceError::HasDeliveries { pending, inflight } => {
            let error = "source_has_deliveries";
            let body = json!({"error": error, "pending": pending, "inflight": inflight});
            Refusal::new(StatusCode::CONFLICT, &body)
        }
        SourceError::Admin(error) => failed(error),
    }
}

fn store_refused(error: &SourceStoreError) -> Refusal {
    let name = error.to_string();
    match error {
        SourceStoreError::ReadOnly | SourceStoreError::Exists => {
            Refusal::new(StatusCode::CONFLICT, &json!({"error": name}))
        }
        SourceStoreError::NotFound => Refusal::new(StatusCode::NOT_FOUND, &json!({"error": name})),
        SourceStoreError::RevisionMismatch { revision } => {
            let body = json!({"error": name, "revision": revision});
            Refusal::new(StatusCode::PRECONDITION_FAILED, &body)
        }
        SourceStoreError::TooMany { max_sources } => {
            Refusal::new(StatusCode::CONFLICT, &json!({"error": name, "max_sources": max_sources}))
        }
        SourceStoreError::Invalid(message) => invalid(message),
        SourceStoreError::Unavailable(message) => {
            unavailable(&json!({"error": name, "message": message})).into()
        }
    }
}
