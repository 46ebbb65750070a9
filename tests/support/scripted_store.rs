//! A server that answers as it is told, in plain HTTP/1.1 or over TLS, and shows every request as it was on the wire: for
//! what no emulator of a store can be made to do.
// Shared by several test programs, each of which uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Longer than anything here takes on a busy machine; reached only by what hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// A request as it arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// 1 for the first connection that was taken.
    pub connection: usize,
    pub method: String,
    /// Path and query, as they were written.
    pub target: String,
    /// In the order of the wire, their names in small letters.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        let value = self.headers.iter().find(|(known, _)| known == name);
        value.map(|(_, value)| value.as_str())
    }

    /// `PUT /bucket/key`
    pub fn line(&self) -> String {
        format!("{} {}", self.method, self.target)
    }
}

#[derive(Clone, Copy, Debug)]
enum How {
    Whole,
    Chunked,
    /// So many bytes of the body come, and then the end of the connection.
    BreaksOff(usize),
    /// So many bytes of the body come, and then nothing.
    Stalls(usize),
    Never,
    Closes,
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Say {
    status: u16,
    headers: Vec<(String, String)>,
    body: Bytes,
    how: How,
    gate: Option<Gate>,
    after: Duration,
}

impl Say {
    pub fn status(status: u16) -> Self {
        let (headers, body) = (Vec::new(), Bytes::new());
        let (how, gate, after) = (How::Whole, None, Duration::ZERO);
        Self { status, headers, body, how, gate, after }
    }

    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.headers.push((name.to_owned(), value.into()));
        self
    }

    pub fn body(self, body: impl Into<Bytes>) -> Self {
        Self { body: body.into(), ..self }
    }

    /// Without a length, in chunks.
    pub fn chunked(self) -> Self {
        Self { how: How::Chunked, ..self }
    }

    /// After so many bytes of its body the connection ends.
    pub fn breaks_off(self, bytes: usize) -> Self {
        Self { how: How::BreaksOff(bytes), ..self }
    }

    /// After so many bytes of its body nothing more comes.
    pub fn stalls(self, bytes: usize) -> Self {
        Self { how: How::Stalls(bytes), ..self }
    }

    /// The request is read and never answered.
    pub fn never() -> Self {
        Self { how: How::Never, ..Self::status(500) }
    }

    /// The request is read, and the connection ends.
    pub fn closes() -> Self {
        Self { how: How::Closes, ..Self::status(500) }
    }

    /// The store takes its time.
    pub fn after(self, after: Duration) -> Self {
        Self { after, ..self }
    }

    /// Not before the gate is opened. Of an answer that stalls, the rest comes then.
    pub fn once(self, gate: &Gate) -> Self {
        Self { gate: Some(gate.clone()), ..self }
    }
}

impl Say {
    async fn passed(&self) {
        if let Some(Gate(open)) = &self.gate {
            open.subscribe().wait_for(|open| *open).await.unwrap();
        }
    }
}

/// Holds answers back until it is opened.
#[derive(Clone, Debug)]
pub struct Gate(watch::Sender<bool>);

impl Gate {
    pub fn closed() -> Self {
        Self(watch::Sender::new(false))
    }

    pub fn open(&self) {
        self.0.send_replace(true);
    }
}

type Decide = Arc<dyn Fn(&Asked) -> Say + Send + Sync>;

#[derive(Default)]
struct Memory {
    connections: usize,
    asked: Vec<Asked>,
}

/// The server. Gone when dropped, with all its connections.
pub struct ScriptedStore {
    pub address: SocketAddr,
    scheme: &'static str,
    memory: Arc<Mutex<Memory>>,
    accepting: JoinHandle<()>,
}

impl ScriptedStore {
    /// One that looks at a request before it answers.
    pub async fn deciding(decide: impl Fn(&Asked) -> Say + Send + Sync + 'static) -> Self {
        Self::start(None, Arc::new(decide)).await
    }

    /// One that gives these answers, one after the other, and then the last of them for ever.
    pub async fn saying(script: impl IntoIterator<Item = Say>) -> Self {
        let script = Mutex::new(script.into_iter().collect::<VecDeque<_>>());
        Self::deciding(move |_asked| {
            let mut script = script.lock().unwrap();
            if script.len() > 1 { script.pop_front() } else { script.front().cloned() }.unwrap()
        })
        .await
    }

    /// The same over TLS, to whoever trusts the certificate.
    pub async fn tls(
        pair: &CertificatePair,
        decide: impl Fn(&Asked) -> Say + Send + Sync + 'static,
    ) -> Self {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain.map(Result::unwrap).collect(), key)
            .unwrap();
        Self::start(Some(TlsAcceptor::from(Arc::new(config))), Arc::new(decide)).await
    }

    async fn start(tls: Option<TlsAcceptor>, decide: Decide) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let memory = Arc::<Mutex<Memory>>::default();
        let accepting = tokio::spawn(accept(listener, tls, Arc::clone(&memory), decide));
        Self { address, scheme, memory, accepting }
    }

    /// Scheme, `localhost` and port: what a certificate of [`Authority`] is for.
    pub fn endpoint(&self) -> String {
        format!("{}://localhost:{}", self.scheme, self.address.port())
    }

    /// Every request so far, answered or not.
    pub fn asked(&self) -> Vec<Asked> {
        self.memory.lock().unwrap().asked.clone()
    }

    /// The method and the target of each.
    pub fn lines(&self) -> Vec<String> {
        self.asked().iter().map(Asked::line).collect()
    }

    /// How many requests there were.
    pub fn count(&self) -> usize {
        self.memory.lock().unwrap().asked.len()
    }

    /// Waits until so many have arrived.
    pub async fn has(&self, count: usize) {
        let since = Instant::now();
        while self.count() < count {
            assert!(since.elapsed() < PATIENCE, "waited in vain for {count} requests");
            sleep(Duration::from_millis(5)).await;
        }
    }

    pub fn connections(&self) -> usize {
        self.memory.lock().unwrap().connections
    }
}

impl Drop for ScriptedStore {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    memory: Arc<Mutex<Memory>>,
    decide: Decide,
) {
    // Those that are over are taken out as others come; the rest ends with this task.
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let connection = {
            let mut memory = memory.lock().unwrap();
            memory.connections += 1;
            memory.connections
        };
        let (memory, decide, tls) = (Arc::clone(&memory), Arc::clone(&decide), tls.clone());
        while connections.try_join_next().is_some() {}
        connections.spawn(async move {
            match tls {
                None => serve(stream, connection, &memory, &decide).await,
                Some(tls) => match timeout(PATIENCE, tls.accept(stream)).await.unwrap() {
                    Ok(stream) => serve(stream, connection, &memory, &decide).await,
                    Err(_refused) => None,
                },
            }
        });
    }
}

/// Until either side ends it.
async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    connection: usize,
    memory: &Mutex<Memory>,
    decide: &Decide,
) -> Option<()> {
    let mut buffer = Vec::new();
    loop {
        let asked = read_request(&mut stream, &mut buffer, connection).await?;
        let say = decide(&asked);
        memory.lock().unwrap().asked.push(asked);
        sleep(say.after).await;
        if !matches!(say.how, How::Stalls(_)) {
            say.passed().await;
        }
        answer(&mut stream, &say).await?;
    }
}

/// `None` when the other side has ended the connection.
async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    connection: usize,
) -> Option<Asked> {
    let head = through(stream, buffer, b"\r\n\r\n").await?;
    let head = String::from_utf8(head).unwrap();
    let mut lines = head.trim_end().split("\r\n");
    let mut first = lines.next().unwrap().splitn(3, ' ').map(str::to_owned);
    let (method, target) = (first.next().unwrap(), first.next().unwrap());
    let header = |line: &str| {
        let (name, value) = line.split_once(':').unwrap();
        (name.to_lowercase(), value.trim().to_owned())
    };
    let headers = lines.map(header).collect();
    let mut asked = Asked { connection, method, target, headers, body: Bytes::new() };
    asked.body = if asked.header("transfer-encoding").is_some() {
        let mut body = Vec::new();
        loop {
            let size = String::from_utf8(through(stream, buffer, b"\r\n").await?).unwrap();
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap();
            body.extend(exactly(stream, buffer, size).await?);
            exactly(stream, buffer, 2).await?;
            if size == 0 {
                break body.into();
            }
        }
    } else {
        let length = asked.header("content-length").map_or(0, |length| length.parse().unwrap());
        exactly(stream, buffer, length).await?.into()
    };
    Some(asked)
}

/// Everything up to and with `end`.
async fn through(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    end: &[u8],
) -> Option<Vec<u8>> {
    loop {
        if let Some(at) = buffer.windows(end.len()).position(|window| window == end) {
            return Some(buffer.drain(..at + end.len()).collect());
        }
        more(stream, buffer).await?;
    }
}

async fn exactly(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
    count: usize,
) -> Option<Vec<u8>> {
    while buffer.len() < count {
        more(stream, buffer).await?;
    }
    let rest = buffer.split_off(count);
    Some(std::mem::replace(buffer, rest))
}

async fn more(stream: &mut (impl AsyncRead + Unpin), buffer: &mut Vec<u8>) -> Option<()> {
    let read = stream.read_buf(buffer).await.ok()?;
    (read > 0).then_some(())
}

/// `None` when the connection is over.
async fn answer(stream: &mut (impl AsyncWrite + Unpin), say: &Say) -> Option<()> {
    let sent = match say.how {
        How::Whole | How::Chunked => say.body.len(),
        How::BreaksOff(bytes) | How::Stalls(bytes) => bytes,
        How::Never => std::future::pending().await,
        How::Closes => return None,
    };
    let mut head = format!("HTTP/1.1 {} Scripted\r\n", say.status);
    for (name, value) in &say.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let chunked = matches!(say.how, How::Chunked);
    if chunked {
        head.push_str("transfer-encoding: chunked\r\n");
    } else if say.status != 204 && say.status != 304 {
        head.push_str(&format!("content-length: {}\r\n", say.body.len()));
    }
    head.push_str("\r\n");
    stream.write_all(head.as_bytes()).await.ok()?;
    if chunked {
        for chunk in say.body.chunks(1 << 16) {
            stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await.ok()?;
            stream.write_all(chunk).await.ok()?;
            stream.write_all(b"\r\n").await.ok()?;
        }
        stream.write_all(b"0\r\n\r\n").await.ok()?;
    } else {
        stream.write_all(&say.body[..sent]).await.ok()?;
    }
    stream.flush().await.ok()?;
    match say.how {
        How::Whole | How::Chunked => Some(()),
        How::Stalls(_) if say.gate.is_none() => std::future::pending().await,
        How::Stalls(_) => {
            say.passed().await;
            stream.write_all(&say.body[sent..]).await.ok()
        }
        How::BreaksOff(_) | How::Never | How::Closes => None,
    }
}

/// Signs certificates.
pub struct Authority {
    /// Its own certificate.
    pub pem: String,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
pub struct CertificatePair {
    pub certificate: String,
    pub key: String,
}

impl Authority {
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// For `localhost`.
    pub fn sign(&self) -> CertificatePair {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap().pem();
        CertificatePair { certificate, key: key.serialize_pem() }
    }
}
