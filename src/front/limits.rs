//! Rate limits and the quarantine pen over the admin API.

use ankusa_actors::admin::AdminError;
use ankusa_actors::model::quarantine::HeldFilter;
use ankusa_actors::model::rate_limit::TenantLimit;
use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, Path, RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use serde_json::Value;

use super::query::{Fields, InvalidFilter};
use super::queue::{Answer, tenant};
use super::routes::{Api, failed};
use super::table::Table;

/// Held hooks a list shows unless another number is asked for, and the most.
const LIST_LIMIT: usize = 100;
const LIST_MAX: usize = 1_000;

/// Held hooks a call deletes likewise.
const PURGE_LIMIT: usize = 1_000;
const PURGE_MAX: usize = 10_000;

/// The largest body of a change.
const MAX_BODY_BYTES: usize = 65_536;

pub(super) fn routes() -> Table<Api> {
    let set = put(set_rate_limit).layer(DefaultBodyLimit::max(MAX_BODY_BYTES));
    Table::new()
        .route(
            "/v1/quarantine",
            get(quarantine).delete(purge),
            &[("GET", &[200, 400, 409, 503]), ("DELETE", &[200, 400, 409, 503])],
        )
        .route("/v1/rate-limits", get(rate_limits), &[("GET", &[200, 400, 409])])
        .route(
            "/v1/tenants/{tenant}/rate-limit",
            get(rate_limit).delete(delete_rate_limit).merge(set),
            &[
                ("GET", &[200, 400, 409]),
                ("PUT", &[200, 400, 409, 503]),
                ("DELETE", &[204, 400, 404, 409, 503]),
            ],
        )
}

/// The scope that a route of [`routes`] takes.
pub(super) fn scope_of(method: &Method, path: &str) -> Option<&'static str> {
    let reads = method == Method::GET || method == Method::HEAD;
    match path {
        "/v1/quarantine" if reads => Some("quarantine:read"),
        "/v1/quarantine" => Some("quarantine:write"),
        "/v1/rate-limits" => Some("rate_limits:read"),
        _of_a_tenant => {
            let (_tenant, what) = path.strip_prefix("/v1/tenants/")?.split_once('/')?;
            match what {
                "rate-limit" if reads => Some("rate_limits:read"),
                "rate-limit" => Some("rate_limits:write"),
                _other => None,
            }
        }
    }
}

async fn quarantine(State(api): State<Api>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["limit"])?;
    let limit = fields.limit(LIST_LIMIT, LIST_MAX)?;
    Ok(Json(api.admin.quarantine(limit).await.map_err(failed)?))
}

async fn purge(State(api): State<Api>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["source_id", "id", "since", "until", "limit"])?;
    let filter = HeldFilter {
        source_id: fields.text("source_id").map(str::to_owned),
        id: fields.text("id").map(str::to_owned),
        since_ms: fields.read_as("since")?,
        until_ms: fields.read_as("until")?,
    };
    if filter.since_ms.zip(filter.until_ms).is_some_and(|(since, until)| until < since) {
        return Err(InvalidFilter("until".to_owned()).into());
    }
    let limit = fields.limit(PURGE_LIMIT, PURGE_MAX)?.max(1);
    Ok(Json(api.admin.purge_quarantine(&filter, limit).await.map_err(failed)?))
}

async fn rate_limits(State(api): State<Api>, RawQuery(query): RawQuery) -> Answer {
    Fields::read(query.as_deref(), &[])?;
    Ok(Json(api.admin.rate_limits().map_err(failed)?))
}

async fn rate_limit(
    State(api): State<Api>,
    Path(of): Path<String>,
    RawQuery(query): RawQuery,
) -> Answer {
    Fields::read(query.as_deref(), &[])?;
    Ok(Json(api.admin.rate_limit(&tenant(of)?).map_err(failed)?))
}

async fn set_rate_limit(
    State(api): State<Api>,
    Path(of): Path<String>,
    RawQuery(query): RawQuery,
    body: Result<Bytes, BytesRejection>,
) -> Answer {
    Fields::read(query.as_deref(), &[])?;
    let tenant = tenant(of)?;
    let invalid = |why: String| failed(AdminError::InvalidRateLimit(why));
    let body = body.map_err(|error| invalid(error.body_text()))?;
    let limit = read(&body).map_err(invalid)?;
    Ok(Json(api.admin.set_rate_limit(&tenant, limit).await.map_err(failed)?))
}

fn read(body: &[u8]) -> Result<TenantLimit, String> {
    let body: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
    if !body.is_object() {
        return Err("body must be a JSON object".to_owned());
    }
    serde_json::from_value(body).map_err(|error| error.to_string())
}

async fn delete_rate_limit(
    State(api): State<Api>,
    Path(of): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<Response, Response> {
    Fields::read(query.as_deref(), &[])?;
    api.admin.delete_rate_limit(&tenant(of)?).await.map_err(failed)?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_changes_something_needs_another_scope_than_whoever_looks() {
        let scopes = |path: &str| {
            [Method::GET, Method::HEAD, Method::PUT, Method::DELETE]
                .map(|method| scope_of(&method, path))
        };
        let rows = |read, write| [Some(read), Some(read), Some(write), Some(write)];
        assert_eq!(scopes("/v1/quarantine"), rows("quarantine:read", "quarantine:write"));
        let of_tenant = scopes("/v1/tenants/acme/rate-limit");
        assert_eq!(of_tenant, rows("rate_limits:read", "rate_limits:write"));
        assert_eq!(scopes("/v1/rate-limits"), [Some("rate_limits:read"); 4]);
        for other in ["/v1/tenants/acme/queue", "/v1/tenants/acme", "/v1/quarantine/x", "/metrics"]
        {
            assert_eq!(scopes(other), [None; 4], "{other}");
        }
    }

    #[test]
    fn a_limit_is_an_object_with_fields_that_are_known() {
        assert!(read(br#"{"rate": 1, "burst": 2}"#).is_ok());
        for (body, told) in [
            (&b"[]"[..], "body must be a JSON object"),
            (b"null", "body must be a JSON object"),
            (b"", "EOF while parsing a value at line 1 column 0"),
            (
                br#"{"rate": "1"}"#,
                "invalid type: string \"1\", expected a number of at least a millionth",
            ),
        ] {
            assert_eq!(read(body), Err(told.to_owned()));
        }
        let unknown = read(br#"{"rte": 1}"#);
        assert!(unknown.is_err_and(|told| told.starts_with("unknown field `rte`")));
    }
}
