//! The demo's worker: takes every delivery and prints it.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::cli::print;

/// The node takes no larger body unless told to.
const MAX_BODY_BYTES: usize = 8_000_000;
/// Of a body, so much is printed.
const SHOWN_BYTES: usize = 1_000;

/// Starts it on a thread of its own, which ends with the process, and answers where it listens.
pub(super) fn start() -> io::Result<SocketAddr> {
    let (ready, listening) = mpsc::sync_channel(1);
    let work = move || {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(error));
                return;
            }
        };
        runtime.block_on(async {
            let bound = async {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                listener.local_addr().map(|address| (listener, address))
            };
            match bound.await {
                Ok((listener, address)) => {
                    let _ = ready.send(Ok(address));
                    serve(listener).await;
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        });
    };
    thread::Builder::new().name("demo-worker".to_owned()).spawn(work)?;
    listening.recv().map_err(io::Error::other)?
}

async fn serve(listener: TcpListener) {
    loop {
        let Ok((connection, _)) = listener.accept().await else { continue };
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(connection), service_fn(receive));
        tokio::spawn(serving);
    }
}

async fn receive(request: Request<Incoming>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let mut response = Response::new(Empty::new());
    match Limited::new(body, MAX_BODY_BYTES).collect().await {
        Ok(body) => {
            let _ = print(&delivery(&head.headers, &body.to_bytes()));
        }
        // Not taken: the node sends it again.
        Err(_) => *response.status_mut() = StatusCode::BAD_REQUEST,
    }
    Ok(response)
}

/// `worker <- github 0192... (17 bytes): {"action":"opened"}`.
fn delivery(headers: &HeaderMap, body: &[u8]) -> String {
    let header = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("?");
    let (shown, cut) = match body.get(..SHOWN_BYTES) {
        Some(start) => (start, "..."),
        None => (body, ""),
    };
    let (source, id) = (header("x-ankusa-source"), header("x-ankusa-id"));
    // Whatever bytes a hook holds, the terminal sees one line of text.
    let shown: String = String::from_utf8_lossy(shown)
        .chars()
        .flat_map(|c| if c.is_control() { c.escape_default().collect() } else { vec![c] })
        .collect();
    format!("worker <- {source} {id} ({} bytes): {shown}{cut}\n", body.len())
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn a_delivery_is_one_line() {
        let mut headers = HeaderMap::new();
        headers.insert("x-ankusa-source", HeaderValue::from_static("github"));
        headers.insert("x-ankusa-id", HeaderValue::from_static("01890a5d"));
        let line = delivery(&headers, b"a\nb\x1b[2J\xff");
        assert_eq!(line, "worker <- github 01890a5d (8 bytes): a\\nb\\u{1b}[2J\u{fffd}\n");
        let long = delivery(&HeaderMap::new(), &[b'x'; 1_001]);
        assert_eq!(long, format!("worker <- ? ? (1001 bytes): {}...\n", "x".repeat(1_000)));
        let just = delivery(&HeaderMap::new(), &[b'x'; 999]);
        assert_eq!(just, format!("worker <- ? ? (999 bytes): {}\n", "x".repeat(999)));
    }
}
