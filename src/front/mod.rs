//! What others connect to: the ingest listener, the admin port, the control socket.

pub mod admin;
pub mod auth;
pub mod blob;
pub mod body;
mod connection;
pub mod control;
mod frames;
mod framing;
pub mod gauges;
mod head_watch;
pub mod http2;
pub mod ingest;
mod limits;
pub mod listener;
mod own_answer;
mod query;
mod queue;
mod refusal;
pub mod routes;
pub mod routes_admin;
mod socket;
pub mod sources;
pub mod spool;
pub mod table;
pub mod tls;

use std::net::TcpListener;

use ankusa_actors::admin::Admin;
use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::Value;
use socket2::SockRef;
use tracing::debug;

fn json(status: StatusCode, body: &Value) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body.to_string())));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// `/ready`, the same on every port.
async fn ready(admin: &Admin) -> Response<Full<Bytes>> {
    let (ready, body) = admin.ready().await;
    let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut response = json(status, &body);
    if !ready {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Makes the kernel refuse connections from here on: the socket itself is shared by every incarnation of its server, so
/// dropping one copy would leave callers waiting in its queue.
fn close_socket(socket: &TcpListener) {
    if let Err(error) = SockRef::from(socket).shutdown(std::net::Shutdown::Both) {
        debug!(%error, "cannot shut a listening socket down");
    }
}
