//! The metadata server of a machine, which gives out tokens.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::request::Said;

pub struct MetadataServer {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

struct State {
    /// The tokens it gives, one after the other and the last for ever, with the seconds each has left.
    tokens: Vec<(String, u64)>,
    given: usize,
    /// Said instead, each once.
    instead: Vec<Said>,
}

impl MetadataServer {
    pub async fn start(tokens: &[(&str, u64)]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let tokens = tokens.iter().map(|&(token, left_s)| (token.to_owned(), left_s)).collect();
        let state = Arc::new(Mutex::new(State { tokens, given: 0, instead: Vec::new() }));
        let shared = Arc::clone(&state);
        let serving = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| {
                    let response = state.lock().unwrap().answer(&request);
                    async { Ok::<_, std::convert::Infallible>(response) }
                });
                connections
                    .spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { address, state, serving }
    }

    /// A host and a port.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// How many tokens it has given.
    pub fn given(&self) -> usize {
        self.state.lock().unwrap().given
    }

    pub fn says_once(&self, said: Said) {
        self.state.lock().unwrap().instead.push(said);
    }
}

impl Drop for MetadataServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl State {
    fn answer(&mut self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        let path = "/computeMetadata/v1/instance/service-accounts/default/token";
        let flavor = request.headers().get("metadata-flavor");
        if request.method() != "GET" || request.uri().path() != path {
            return Said::new(404, "no such thing").response();
        }
        if flavor.is_none_or(|flavor| flavor != "Google") {
            return Said::new(403, "Missing Metadata-Flavor:Google header.").response();
        }
        if let Some(said) = self.instead.pop() {
            return said.response();
        }
        let (token, left_s) = self.tokens[self.given.min(self.tokens.len() - 1)].clone();
        self.given += 1;
        let told = serde_json::json!({
            "access_token": token, "expires_in": left_s, "token_type": "Bearer"});
        Said::json(&told).with("metadata-flavor", "Google").response()
    }
}
