//! Objects over the control socket: what the stores of this node hold, for whoever owns the host.
//!
//! Nothing of a large object is ever whole in memory: one that comes lies in a file until it is stored, one that goes is
//! asked for in ranges by whoever wants it.

use std::fmt::Write;

use ankusa_actors::ports::{Blob, BlobEntry, BlobError, BlobKey, BlobStores};
use axum::Router;
use axum::body::Body;
use axum::extract::{RawQuery, Request, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream;
use serde_json::{Value, json};
use tracing::info;

use super::query::Fields;
use super::refusal::Refusal;
use super::routes::{Control, not_found, refuse};
use super::spool::NotTaken;
use crate::blob::advice::what_to_do;

/// The most bytes of an object that are answered at once where it is read in ranges.
pub const RANGE_MAX_BYTES: u64 = 8 << 20;

/// Lines of a listing that are written at a time.
const LINES: usize = 1_000;

type Answer = Result<Response, Refusal>;

pub(super) fn control_routes() -> Router<Control> {
    Router::new()
        .route("/v1/blob/list", get(list))
        .route("/v1/blob/stat", get(stat))
        .route("/v1/blob/object", get(read).put(write).delete(remove))
        .method_not_allowed_fallback(not_found)
}

/// The store that is called `name`: `segments`, `backup`, `claims` or, where there are several, `claims[1]`.
fn named<'a>(stores: &'a BlobStores, name: &str) -> Option<&'a dyn Blob> {
    let found = match name {
        "segments" => Some(&stores.segments),
        "backup" => Some(&stores.backup),
        "claims" => stores.claims.first(),
        other => {
            let at = other.strip_prefix("claims[")?.strip_suffix(']')?;
            at.parse().ok().and_then(|at: usize| stores.claims.get(at))
        }
    };
    found.map(AsRef::as_ref)
}

/// Which object of which store is asked for.
struct Asked<'a> {
    name: String,
    store: &'a dyn Blob,
    key: BlobKey,
}

fn store<'a>(control: &'a Control, fields: &Fields) -> Result<(String, &'a dyn Blob), Refusal> {
    let name = fields.text("store").unwrap_or_default();
    match named(&control.stores, name) {
        Some(store) => Ok((name.to_owned(), store)),
        None => {
            let claims = control.stores.claims.len();
            let known = format!("segments, backup, claims[0] to claims[{}]", claims.max(1) - 1);
            Err(invalid("store", &format!("this node has {known}")))
        }
    }
}

fn asked<'a>(control: &'a Control, fields: &Fields) -> Result<Asked<'a>, Refusal> {
    let (name, store) = store(control, fields)?;
    let key = BlobKey::new(fields.text("key").unwrap_or_default());
    let key = key.map_err(|error| invalid("key", &error.to_string()))?;
    Ok(Asked { name, store, key })
}

fn invalid(field: &str, message: &str) -> Refusal {
    let body = json!({"error": "invalid_filter", "field": field, "message": message});
    Refusal::new(StatusCode::BAD_REQUEST, &body)
}

/// Lines of JSON. The last one says how many there were: a listing that was cut short has none.
async fn list(State(control): State<Control>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["store", "prefix"])?;
    let (_, store) = store(&control, &fields)?;
    let listed = store.list(fields.text("prefix").unwrap_or_default(), None).await;
    let listed = listed.map_err(|error| failed(&error))?;
    let bytes = listed.iter().fold(0, |sum: u64, entry| sum.saturating_add(entry.bytes));
    let end = json!({"end": true, "objects": listed.len(), "bytes": bytes});
    let pages = stream::unfold((Some(end), listed.into_iter()), |(end, mut left)| async move {
        let end = end?;
        let mut text = String::new();
        for BlobEntry { key, bytes } in left.by_ref().take(LINES) {
            line(&mut text, &json!({"key": key, "bytes": bytes}));
        }
        if text.is_empty() {
            line(&mut text, &end);
            return Some((Ok::<_, std::convert::Infallible>(text), (None, left)));
        }
        Some((Ok(text), (Some(end), left)))
    });
    Ok(([(CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(pages)).into_response())
}

fn line(text: &mut String, value: &Value) {
    // Writing to a string does not fail.
    let _ = writeln!(text, "{value}");
}

/// Through a listing: no store tells the size of an object in one way that all have.
async fn stat(State(control): State<Control>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["store", "key"])?;
    let Asked { name, store, key } = asked(&control, &fields)?;
    let listed = store.list(key.as_str(), None).await.map_err(|error| failed(&error))?;
    match listed.into_iter().find(|entry| entry.key == key.as_str()) {
        Some(BlobEntry { key, bytes }) => {
            Ok(axum::Json(json!({"store": name, "key": key, "bytes": bytes})).into_response())
        }
        None => Err(failed(&BlobError::NotFound)),
    }
}

/// The whole object, checked against its digest, or some of its bytes.
async fn read(State(control): State<Control>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["store", "key", "offset", "length"])?;
    let Asked { store, key, .. } = asked(&control, &fields)?;
    let offset: Option<u64> = fields.read_as("offset")?;
    let length: Option<u64> = fields.read_as("length")?;
    let read = match (offset, length) {
        (None, None) => store.get(&key, None).await,
        (_, Some(RANGE_MAX_BYTES..)) if length != Some(RANGE_MAX_BYTES) => {
            return Err(invalid("length", &format!("at most {RANGE_MAX_BYTES} at once")));
        }
        (offset, length) => {
            let length = length.unwrap_or(RANGE_MAX_BYTES);
            store.get_range(&key, offset.unwrap_or(0), length, None).await
        }
    };
    let bytes = read.map_err(|error| failed(&error))?;
    Ok(([(CONTENT_TYPE, "application/octet-stream")], bytes).into_response())
}

async fn write(
    State(control): State<Control>,
    RawQuery(query): RawQuery,
    request: Request,
) -> Answer {
    // Before anything is refused: whoever is still sending does not listen.
    let body = control.spool.take(request.into_body()).await;
    let fields = Fields::read(query.as_deref(), &["store", "key", "if_absent"])?;
    let Asked { name, store, key } = asked(&control, &fields)?;
    let if_absent = fields.read_as("if_absent")?.unwrap_or(false);
    let body = body.map_err(|why| not_taken(&why))?;
    let bytes = body.bytes();
    let put = if if_absent {
        store.put_if_absent(&key, body, None).await
    } else {
        store.put(&key, body, None).await
    };
    put.map_err(|error| failed(&error))?;
    info!(store = name, %key, bytes, if_absent, "an object was put");
    Ok(axum::Json(json!({"store": name, "key": key.as_str(), "bytes": bytes})).into_response())
}

async fn remove(State(control): State<Control>, RawQuery(query): RawQuery) -> Answer {
    let fields = Fields::read(query.as_deref(), &["store", "key"])?;
    let Asked { name, store, key } = asked(&control, &fields)?;
    store.delete(&key, None).await.map_err(|error| failed(&error))?;
    info!(store = name, %key, "an object was removed");
    Ok(axum::Json(json!({"store": name, "removed": key.as_str()})).into_response())
}

fn not_taken(why: &NotTaken) -> Refusal {
    let (status, error, message) = match why {
        NotTaken::Broken(why) => (StatusCode::BAD_REQUEST, "body_read_failed", why.clone()),
        NotTaken::NoRoom => (
            StatusCode::INSUFFICIENT_STORAGE,
            "no_space",
            "it would lie in a file until it is stored, and the disk needs its room for hooks"
                .to_owned(),
        ),
        NotTaken::Disk(error) => (StatusCode::INTERNAL_SERVER_ERROR, "io_error", error.to_string()),
    };
    Refusal::new(status, &json!({"error": error, "message": message}))
}

/// What a store would not do: the word of it, what it says, and what to do.
fn failed(error: &BlobError) -> Refusal {
    let status = match error {
        BlobError::NotFound => StatusCode::NOT_FOUND,
        BlobError::AlreadyExists => StatusCode::CONFLICT,
        BlobError::Throttled { .. } | BlobError::BreakerOpen => StatusCode::SERVICE_UNAVAILABLE,
        BlobError::Deadline => StatusCode::GATEWAY_TIMEOUT,
        BlobError::Integrity(_)
        | BlobError::Forbidden(_)
        | BlobError::ClockSkew { .. }
        | BlobError::WrongRegion { .. }
        | BlobError::Misconfigured(_)
        | BlobError::Transport(_) => StatusCode::BAD_GATEWAY,
    };
    let (word, text) = (error.as_str(), error.to_string());
    let message = text.strip_prefix(word).and_then(|rest| rest.strip_prefix(": "));
    let mut answer =
        refuse(status, &json!({"error": word, "message": message, "advice": what_to_do(error)}));
    if let BlobError::Throttled { seconds } = error {
        answer.headers_mut().insert(RETRY_AFTER, HeaderValue::from(*seconds));
    }
    answer.into()
}
