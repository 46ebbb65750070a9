//! What stands between a client and a server, or in a server's place: it hears every request, and answers, forwards or
//! loses it as a test says.
// Every test program uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// A request as it was sent.
#[derive(Clone, Debug)]
pub struct Heard {
    /// Of all requests, from 0 on.
    pub n: usize,
    pub method: String,
    /// Path and query.
    pub target: String,
    /// Names in lower case.
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

/// What becomes of it.
pub enum Act {
    /// The server's answer.
    Forward,
    /// The server does it; nobody hears of that.
    Lose,
    /// No server is asked.
    Answer(u16, Vec<(&'static str, String)>, String),
    /// These bytes and an end.
    Bytes(Vec<u8>),
}

impl Act {
    pub fn ok(body: impl Into<String>) -> Self {
        Self::Answer(200, Vec::new(), body.into())
    }

    pub fn status(status: u16) -> Self {
        Self::Answer(status, Vec::new(), String::new())
    }

    /// An error as S3 writes it.
    pub fn error(status: u16, code: &str) -> Self {
        Self::Answer(
            status,
            Vec::new(),
            format!("<Error><Code>{code}</Code><Message>Because.</Message></Error>"),
        )
    }
}

pub struct Relay {
    pub port: u16,
    heard: Arc<Mutex<Vec<Heard>>>,
}

type Rule = dyn AsyncRule;

/// `async Fn(&Heard) -> Act`, as an object.
pub trait AsyncRule: Send + Sync {
    fn act(&self, heard: &Heard) -> std::pin::Pin<Box<dyn Future<Output = Act> + Send>>;
}

impl<F, R> AsyncRule for F
where
    F: Fn(&Heard) -> R + Send + Sync,
    R: Future<Output = Act> + Send + 'static,
{
    fn act(&self, heard: &Heard) -> std::pin::Pin<Box<dyn Future<Output = Act> + Send>> {
        Box::pin(self(heard))
    }
}

impl Relay {
    /// In a server's place.
    pub async fn alone(rule: impl Fn(&Heard) -> Act + Send + Sync + 'static) -> Self {
        Self::start(None, Arc::new(move |heard: &Heard| std::future::ready(rule(heard)))).await
    }

    /// In a server's place, taking its time.
    pub async fn alone_in_time(rule: impl AsyncRule + 'static) -> Self {
        Self::start(None, Arc::new(rule)).await
    }

    /// Before the server at a port of this machine.
    pub async fn before(port: u16, rule: impl Fn(&Heard) -> Act + Send + Sync + 'static) -> Self {
        Self::start(
            Some((port, None)),
            Arc::new(move |heard: &Heard| std::future::ready(rule(heard))),
        )
        .await
    }

    /// Before one that is to believe it is called by another name.
    pub async fn before_as(port: u16, host: &'static str) -> Self {
        Self::start(
            Some((port, Some(host))),
            Arc::new(|_: &Heard| std::future::ready(Act::Forward)),
        )
        .await
    }

    async fn start(server: Option<(u16, Option<&'static str>)>, rule: Arc<Rule>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&heard);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, server, Arc::clone(&rule), Arc::clone(&all)));
            }
        });
        Self { port, heard }
    }

    pub fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    /// What was asked, as `GET /path`, without the queries' values.
    pub fn told(&self) -> Vec<String> {
        let told = |heard: &Heard| {
            let (path, query) = heard.target.split_once('?').unwrap_or((&heard.target, ""));
            let names = query.split('&').map(|pair| pair.split('=').next().unwrap_or_default());
            let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
            let mark = if names.is_empty() { "" } else { "?" };
            format!("{} {path}{mark}{}", heard.method, names.join("&"))
        };
        self.heard().iter().map(told).collect()
    }
}

/// One request, then the connection is closed.
async fn serve(
    mut client: TcpStream,
    server: Option<(u16, Option<&'static str>)>,
    rule: Arc<Rule>,
    all: Arc<Mutex<Vec<Heard>>>,
) {
    let Some(mut heard) = read(&mut client).await else { return };
    {
        let mut all = all.lock().unwrap();
        heard.n = all.len();
        all.push(heard.clone());
    }
    let answer = match rule.act(&heard).await {
        Act::Forward => forwarded(&heard, server.expect("there is a server")).await,
        Act::Lose => {
            forwarded(&heard, server.expect("there is a server")).await;
            return;
        }
        Act::Answer(status, headers, body) => answered(status, &headers, &body, &heard.method),
        Act::Bytes(bytes) => bytes,
    };
    let _ = client.write_all(&answer).await;
    let _ = client.shutdown().await;
}

async fn read(client: &mut TcpStream) -> Option<Heard> {
    let mut bytes = Vec::new();
    let head = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end;
        }
        if client.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let text = String::from_utf8(bytes[..head].to_vec()).unwrap();
    let mut lines = text.split("\r\n");
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let (method, target) = (first.next()?, first.next()?);
    let header = |line: &str| {
        line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()))
    };
    let headers: BTreeMap<String, String> = lines.filter_map(header).collect();
    assert!(!headers.contains_key("transfer-encoding"), "a body without its length: {text}");
    let length: usize = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = bytes.split_off(head + 4);
    while body.len() < length {
        if client.read_buf(&mut body).await.ok()? == 0 {
            return None;
        }
    }
    Some(Heard { n: 0, method, target, headers, body })
}

async fn forwarded(heard: &Heard, (port, host): (u16, Option<&str>)) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nconnection: close\r\n", heard.method, heard.target);
    for (name, value) in &heard.headers {
        let value = host.filter(|_| name == "host").unwrap_or(value);
        write!(head, "{name}: {value}\r\n").unwrap();
    }
    head.push_str("\r\n");
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    server.write_all(head.as_bytes()).await.unwrap();
    // It may have answered, and gone, before it had everything.
    let _ = server.write_all(&heard.body).await;
    let mut answer = Vec::new();
    let _ = server.read_to_end(&mut answer).await;
    answer
}

fn answered(status: u16, headers: &[(&'static str, String)], body: &str, method: &str) -> Vec<u8> {
    let mut answer = format!("HTTP/1.1 {status} As said\r\nconnection: close\r\n");
    for (name, value) in headers {
        write!(answer, "{name}: {value}\r\n").unwrap();
    }
    if status != 204 {
        write!(answer, "content-length: {}\r\n", body.len()).unwrap();
    }
    answer.push_str("\r\n");
    if method != "HEAD" {
        answer.push_str(body);
    }
    answer.into_bytes()
}
