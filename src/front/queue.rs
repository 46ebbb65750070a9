//! The queue over the admin API: what it holds, its hooks and dead letters, and what an operator does about them.

use std::collections::BTreeSet;

use ankusa_actors::admin::AdminError;
use ankusa_actors::dispatch::Purgeable;
use ankusa_actors::dispatch::dlq::DeadFilter;
use ankusa_actors::model::ids::{Seq, is_name};
use ankusa_actors::model::reason::ReasonClass;
use axum::Json;
use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use serde_json::{Value, json};

use super::query::{Fields, InvalidFilter};
use super::routes::{Api, Control, failed, refuse};
use super::table::Table;

/// Rows a list holds unless another number is asked for, and the most.
const LIMIT: usize = 100;
const MAX_LIMIT: usize = 1_000;

pub(super) type Answer = Result<Json<Value>, Response>;

/// What anybody may ask whom the admin port lets in.
pub(super) fn routes() -> Table<Api> {
    Table::new()
        .route("/v1/dlq", get(dlq), &[("GET", &[200, 400, 409, 503])])
        .route("/v1/hooks", get(hooks), &[("GET", &[200, 400, 500, 503])])
        .route("/v1/queue", get(queue), &[("GET", &[200, 400, 503])])
        .route("/v1/queue/tenants", get(tenants), &[("GET", &[200, 400, 503])])
        .route("/v1/tenants/{tenant}/queue", get(tenant_queue), &[("GET", &[200, 400, 404, 503])])
        .route("/v1/tenants/{tenant}/purge", post(purge), &[("POST", &[200, 400, 404, 409, 503])])
}

/// What reads the whole store: for whoever owns the host.
pub(super) fn control_routes() -> Router<Control> {
    Router::new().route("/v1/recount", post(recount))
}

/// The scope that a route of [`routes`] takes.
pub(super) fn scope_of(method: &Method, path: &str) -> Option<&'static str> {
    match path {
        "/v1/dlq" => Some("dlq:read"),
        "/v1/hooks" => Some("hooks:read"),
        "/v1/queue" | "/v1/queue/tenants" => Some("queue:read"),
        _of_a_tenant => {
            let (_tenant, what) = path.strip_prefix("/v1/tenants/")?.split_once('/')?;
            match what {
                "queue" => Some("queue:read"),
                "purge" => Some("queue:write"),
                _other if what == "sources" || what.starts_with("sources/") => {
                    Some(if method == Method::GET { "sources:read" } else { "sources:write" })
                }
                _other => None,
            }
        }
    }
}

/// A part of the path that can be no tenant's name.
pub(super) struct InvalidTenant;

impl From<InvalidTenant> for Response {
    fn from(_: InvalidTenant) -> Self {
        refuse(StatusCode::BAD_REQUEST, &json!({"error": "invalid_tenant"}))
    }
}

/// A tenant's name as it is in a path.
pub(super) fn tenant(name: String) -> Result<String, InvalidTenant> {
    if is_name(&name) { Ok(name) } else { Err(InvalidTenant) }
}

/// The same of what the router made of it: bytes that are no text cannot be one either.
fn tenant_of(of: Result<Path<String>, PathRejection>) -> Result<String, InvalidTenant> {
    of.map_err(|_| InvalidTenant).and_then(|Path(name)| tenant(name))
}

fn name(text: &str) -> Option<String> {
    is_name(text).then(|| text.to_owned())
}

async fn dlq(State(api): State<Api>, RawQuery(query): RawQuery) -> Answer {
    let names = ["source_id", "tenant_id", "since", "until", "reason", "limit", "cursor"];
    let fields = Fields::read(query.as_deref(), &names)?;
    let read = || {
        let filter = DeadFilter {
            source_id: fields.text("source_id").map(str::to_owned),
            tenant_id: fields.parsed("tenant_id", name)?,
            since_ms: fields.read_as("since")?,
            until_ms: fields.read_as("until")?,
            class: fields.parsed("reason", ReasonClass::parse)?,
        };
        if filter.since_ms.zip(filter.until_ms).is_some_and(|(since, until)| until < since) {
            return Err(InvalidFilter("until".to_owned()));
        }
        Ok((filter, fields.read_as("cursor")?, fields.limit(LIMIT, MAX_LIMIT)?))
    };
    let (filter, after, limit) = read()?;
    Ok(Json(api.admin.dlq(&filter, after, limit).await.map_err(failed)?))
}

async fn hooks(State(api): State<Api>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["after", "limit"])?;
    let after = Seq(fields.read_as("after")?.unwrap_or(0));
    let limit = fields.limit(LIMIT, MAX_LIMIT)?;
    Ok(Json(api.admin.hooks(after, limit).await.map_err(failed)?))
}

async fn queue(State(api): State<Api>, RawQuery(query): RawQuery) -> Answer {
    Fields::read(query.as_deref(), &[])?;
    Ok(Json(api.admin.queue().await.map_err(failed)?))
}

async fn tenants(State(api): State<Api>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["limit", "cursor"])?;
    let after = fields.read_as("cursor")?;
    let limit = fields.limit(LIMIT, MAX_LIMIT)?;
    Ok(Json(api.admin.tenants(after, limit).await.map_err(failed)?))
}

async fn tenant_queue(
    State(api): State<Api>,
    of: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Answer {
    Fields::read(query.as_deref(), &[])?;
    Ok(Json(api.admin.tenant_queue(&tenant_of(of)?).await.map_err(failed)?))
}

/// `pending,dead`: which rows are to go is always said.
fn states(text: &str) -> Option<BTreeSet<Purgeable>> {
    text.split(',').map(Purgeable::parse).collect()
}

async fn purge(
    State(api): State<Api>,
    of: Result<Path<String>, PathRejection>,
    RawQuery(query): RawQuery,
) -> Answer {
    let tenant = tenant_of(of)?;
    let fields = Fields::read(query.as_deref(), &["state", "cursor"])?;
    let wanted = fields.parsed("state", states)?.unwrap_or_default();
    let cursor = fields.read_as("cursor")?;
    Ok(Json(api.admin.purge(&tenant, &wanted, cursor).await.map_err(failed)?))
}

async fn recount(State(control): State<Control>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["repair"])?;
    let repair = fields.read_as("repair")?.unwrap_or(false);
    let counted: Result<Value, AdminError> = control.api.admin.recount(repair).await;
    Ok(Json(counted.map_err(failed)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_of_a_tenant_has_a_scope() {
        let scope = |path: &str| scope_of(&Method::GET, path);
        assert_eq!(scope("/v1/tenants/acme/queue"), Some("queue:read"));
        assert_eq!(scope("/v1/tenants/acme/purge"), Some("queue:write"));
        assert_eq!(scope("/v1/tenants/acme"), None);
        assert_eq!(scope("/v1/tenants/acme/purge/now"), None);
        assert_eq!(scope("/metrics"), None);
        for sources in ["/v1/tenants/acme/sources", "/v1/tenants/acme/sources/a"] {
            assert_eq!(scope(sources), Some("sources:read"));
            for method in [Method::POST, Method::PUT, Method::DELETE, Method::HEAD] {
                assert_eq!(scope_of(&method, sources), Some("sources:write"));
            }
        }
        assert_eq!(scope("/v1/tenants/acme/sourcesque"), None);
    }

    #[test]
    fn states_are_named_one_by_one() {
        let all = Purgeable::ALL.into_iter().collect();
        assert_eq!(states("dead,pending,inflight"), Some(all));
        for none in ["", "all", "dead,", "dead, pending", "Dead"] {
            assert_eq!(states(none), None, "{none:?}");
        }
    }
}
