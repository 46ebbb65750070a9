//! The proxy itself.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1 as client;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use socket2::SockRef;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::sleep;

use crate::fault::{Armed, Fault, Rule};
use crate::link::{Cut, Handed, dripped, truncated, whole};

/// A request that reached the proxy.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at: Instant,
    pub method: Method,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    /// Bytes of its body.
    pub bytes: usize,
}

/// A proxy on a port of its own. Everything ends when it is dropped.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    upstream: SocketAddr,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    rules: Vec<Armed>,
    seen: Vec<Seen>,
    /// What [`Fault::Repeat`] repeats.
    first: Option<(StatusCode, HeaderMap, Bytes)>,
}

impl Proxy {
    /// Listens on a free port of this host, before the server at `upstream`.
    ///
    /// # Errors
    /// There is no port.
    pub async fn start(upstream: SocketAddr) -> std::io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared { upstream, state: Mutex::default() });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on these are broken, and nothing else.
    pub fn break_by(&self, rules: impl IntoIterator<Item = Rule>) {
        let mut state = self.shared.state();
        state.rules = rules.into_iter().map(|rule| Armed { rule, matched: 0 }).collect();
        state.first = None;
    }

    /// Nothing is broken from now on.
    pub fn heal(&self) {
        self.break_by([]);
    }

    /// Every request since the last time this was asked.
    #[must_use]
    pub fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.state().seen)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Dropped with this task, and every connection with it.
    let mut links = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                links.spawn(serve(stream, Arc::clone(&shared)));
            }
            Some(_) = links.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<Shared>) {
    let _ = stream.set_nodelay(true);
    let Ok(stream) = stream.into_std() else { return };
    // A second handle of the same socket, to say how it is to be closed.
    let Ok(handle) = stream.try_clone().map(Arc::new) else { return };
    let Ok(stream) = TcpStream::from_std(stream) else { return };
    let service =
        service_fn(move |request| answer(request, Arc::clone(&shared), Arc::clone(&handle)));
    // An error is what was to be broken, or a client that has gone.
    let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// An error ends the connection.
async fn answer(
    request: Request<Incoming>,
    shared: Arc<Shared>,
    socket: Arc<std::net::TcpStream>,
) -> Result<Response<Handed>, Cut> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let fault = shared.note(&parts.method, &target, &parts.headers, body.len());
    let request = Request::from_parts(parts, Full::new(body));
    match fault {
        Some(Fault::Answer { status, headers, body }) => Ok(own_answer(status, &headers, body)),
        Some(Fault::Reset) => Err(reset(&socket)),
        Some(Fault::Blackhole) => std::future::pending().await,
        Some(Fault::LoseAnswer) => {
            let _ = shared.ask(request).await;
            Err(reset(&socket))
        }
        Some(Fault::Late(by)) => {
            sleep(by).await;
            Ok(handed(shared.ask(request).await?, None))
        }
        fault @ (None
        | Some(
            Fault::Truncate { .. } | Fault::Drip { .. } | Fault::CorruptBody | Fault::Header { .. },
        )) => Ok(handed(shared.ask(request).await?, fault)),
        Some(Fault::Repeat) => {
            let asked = shared.ask(request).await?;
            let first = shared.state().first.get_or_insert(asked).clone();
            Ok(handed(first, None))
        }
    }
}

fn reset(socket: &std::net::TcpStream) -> Cut {
    let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
    Cut
}

fn own_answer(status: u16, headers: &[(String, String)], body: Vec<u8>) -> Response<Handed> {
    let mut answer = Response::new(whole(body.into()));
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
    for (name, value) in headers {
        let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
        if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
            answer.headers_mut().insert(name, value);
        }
    }
    answer
}

fn handed(
    (status, mut headers, body): (StatusCode, HeaderMap, Bytes),
    fault: Option<Fault>,
) -> Response<Handed> {
    headers.remove(TRANSFER_ENCODING);
    headers.remove(CONNECTION);
    let length = HeaderValue::from(body.len());
    let body = match fault {
        Some(Fault::Truncate { after_bytes }) => {
            headers.insert(CONTENT_LENGTH, length);
            truncated(body, after_bytes)
        }
        Some(Fault::Drip { bytes, every }) => dripped(body, bytes, every),
        Some(Fault::CorruptBody) => whole(corrupted(&body)),
        Some(Fault::Header { name, value }) => {
            let name = hyper::header::HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(&value))
                && headers.contains_key(&name)
            {
                headers.insert(name, value);
            }
            whole(body)
        }
        _whole => whole(body),
    };
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}

fn corrupted(body: &[u8]) -> Bytes {
    let mut body = body.to_vec();
    let middle = body.len() / 2;
    if let Some(byte) = body.get_mut(middle) {
        *byte ^= 1;
    }
    body.into()
}

impl Shared {
    fn note(
        &self,
        method: &Method,
        target: &str,
        headers: &HeaderMap,
        bytes: usize,
    ) -> Option<Fault> {
        let mut state = self.state();
        let (method, headers) = (method.clone(), headers.clone());
        let mut hit = None;
        for armed in &mut state.rules {
            if armed.hits(&method, target) {
                hit = Some(armed.rule.fault.clone());
                break;
            }
        }
        let target = target.to_owned();
        state.seen.push(Seen { at: Instant::now(), method, target, headers, bytes });
        hit
    }

    /// The server's whole answer.
    async fn ask(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Cut> {
        let stream = TcpStream::connect(self.upstream).await.map_err(|_| Cut)?;
        let _ = stream.set_nodelay(true);
        let (mut sender, connection) =
            client::handshake(TokioIo::new(stream)).await.map_err(|_| Cut)?;
        let connection = tokio::spawn(connection);
        // The length is that of the body, which was read whole.
        request.headers_mut().remove(TRANSFER_ENCODING);
        let answer = sender.send_request(request).await.map_err(|_| Cut)?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await.map_err(|_| Cut)?.to_bytes();
        connection.abort();
        Ok((parts.status, parts.headers, body))
    }
}
