//! Workers to deliver to, on loopback: one that speaks HTTP and remembers, one that does what it should not.
// Shared by several test programs, each of which uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// 1 for the first connection the worker took.
    pub connection: usize,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// In the order of the wire.
    pub headers: Vec<(String, Vec<u8>)>,
    pub body: Bytes,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<String> {
        let value = self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    }
}

/// What a worker says.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: Bytes,
    /// Nothing is ever said.
    hangs: bool,
}

impl Answer {
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: Bytes::new(), hangs: false }
    }

    /// The request is read and never answered.
    pub fn never() -> Self {
        Self { hangs: true, ..Self::status(500) }
    }

    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }
}

#[derive(Default)]
struct Memory {
    connections: usize,
    seen: Vec<Seen>,
}

/// Decides what to say to a request.
type Decide = Arc<dyn Fn(&Seen) -> Answer + Send + Sync>;

/// An HTTP/1.1 server that remembers what it was sent. Gone when dropped.
pub struct Worker {
    pub address: SocketAddr,
    memory: Arc<Mutex<Memory>>,
    accepting: JoinHandle<()>,
}

impl Worker {
    /// One that gives the same answer to everybody.
    pub async fn start(answer: Answer) -> Self {
        Self::deciding(move |_| answer.clone()).await
    }

    /// One that looks at a request before it answers.
    pub async fn deciding(decide: impl Fn(&Seen) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        Self::serving(listener, Arc::new(decide))
    }

    pub fn listen(listener: TcpListener, answer: Answer) -> Self {
        Self::serving(listener, Arc::new(move |_: &Seen| answer.clone()))
    }

    fn serving(listener: TcpListener, decide: Decide) -> Self {
        let address = listener.local_addr().unwrap();
        let memory = Arc::<Mutex<Memory>>::default();
        let accepting = tokio::spawn(accept(listener, Arc::clone(&memory), decide));
        Self { address, memory, accepting }
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Every request so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.memory.lock().unwrap().seen.clone()
    }

    pub fn last(&self) -> Seen {
        self.seen().pop().unwrap()
    }

    pub fn connections(&self) -> usize {
        self.memory.lock().unwrap().connections
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, memory: Arc<Mutex<Memory>>, decide: Decide) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let connection = {
            let mut memory = memory.lock().unwrap();
            memory.connections += 1;
            memory.connections
        };
        let (memory, decide) = (Arc::clone(&memory), Arc::clone(&decide));
        let service = service_fn(move |request| {
            serve(connection, request, Arc::clone(&memory), Arc::clone(&decide))
        });
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move {
            let _ = serving.await;
        });
    }
}

#[derive(Debug)]
struct BrokenOff;

impl std::fmt::Display for BrokenOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the sender broke off")
    }
}

impl std::error::Error for BrokenOff {}

async fn serve(
    connection: usize,
    request: Request<Incoming>,
    memory: Arc<Mutex<Memory>>,
    decide: Decide,
) -> Result<Response<Full<Bytes>>, BrokenOff> {
    let (head, body) = request.into_parts();
    let seen = Seen {
        connection,
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), value.as_bytes().into()))
            .collect(),
        // A sender that is killed breaks off.
        body: body.collect().await.map_err(|_| BrokenOff)?.to_bytes(),
    };
    let answer = decide(&seen);
    memory.lock().unwrap().seen.push(seen);
    if answer.hangs {
        std::future::pending::<()>().await;
    }
    let mut response = Response::new(Full::new(answer.body));
    *response.status_mut() = answer.status.try_into().unwrap();
    for (name, value) in &answer.headers {
        response
            .headers_mut()
            .append(HeaderName::from_static(name), HeaderValue::from_str(value).unwrap());
    }
    Ok(response)
}

/// What a misbehaving worker does once it has read a request and written what it has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    Close,
    /// With a RST instead of a FIN.
    Reset,
    /// Says nothing more and holds the connection.
    Hang,
    /// Says it again and again, until nobody takes it any more.
    Repeat,
}

/// A TCP server that reads one request a connection, writes bytes and misbehaves. Gone when dropped.
pub struct RawWorker {
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
    accepting: JoinHandle<()>,
}

impl RawWorker {
    pub async fn start(says: &'static [u8], then: Then) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::<Mutex<Vec<Vec<u8>>>>::default();
        let remembered = Arc::clone(&requests);
        let accepting = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(misbehave(stream, says, then, Arc::clone(&remembered)));
            }
        });
        Self { address, requests, accepting }
    }

    /// Every request so far, byte for byte.
    pub fn requests(&self) -> Vec<Vec<u8>> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for RawWorker {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn misbehave(
    mut stream: TcpStream,
    says: &'static [u8],
    then: Then,
    requests: Arc<Mutex<Vec<Vec<u8>>>>,
) {
    let request = read_request(&mut stream).await;
    requests.lock().unwrap().push(request);
    let mut taken = stream.write_all(says).await;
    match then {
        Then::Close => {}
        Then::Reset => socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap(),
        Then::Hang => std::future::pending().await,
        Then::Repeat => {
            while taken.is_ok() {
                taken = stream.write_all(says).await;
            }
        }
    }
}

/// Reads a head and the body it announces, or whatever comes first on a connection that is not HTTP.
async fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    let mut chunk = vec![0; 64 << 10];
    loop {
        let read = stream.read(&mut chunk).await.unwrap_or(0);
        request.extend_from_slice(&chunk[..read]);
        if read == 0 || !request.starts_with(b"P") || is_whole(&request) {
            return request;
        }
    }
}

fn is_whole(request: &[u8]) -> bool {
    let Some(head_end) = request.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let head = String::from_utf8_lossy(&request[..head_end]).to_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
    request.len() >= head_end + 4 + length.map_or(0, |length| length.parse::<usize>().unwrap())
}

/// Two listeners on one port of two loopback addresses.
pub async fn same_port(first: IpAddr, second: IpAddr) -> (TcpListener, TcpListener) {
    loop {
        let one = TcpListener::bind((first, 0)).await.unwrap();
        // Somebody may hold the port on the second address.
        if let Ok(two) = TcpListener::bind((second, one.local_addr().unwrap().port())).await {
            return (one, two);
        }
    }
}

/// An address nobody listens at.
pub fn nobody() -> Nobody {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    Nobody { address, _socket: socket }
}

/// A port that is taken, so that no other test listens there, and refuses, because nobody listens.
pub struct Nobody {
    pub address: SocketAddr,
    _socket: Socket,
}
