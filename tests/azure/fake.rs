//! A service that answers whatever a test says, hands on to a real one, or says nothing at all; and remembers what it
//! was asked.

use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// What came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: http::Method,
    /// Path and query.
    pub target: String,
    pub headers: http::HeaderMap,
    pub body: Bytes,
}

impl Asked {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    /// The value of a field of the query, as it stands there.
    pub fn field(&self, name: &str) -> Option<&str> {
        let (_, query) = self.target.split_once('?')?;
        let mut fields = query.split('&').filter_map(|field| field.split_once('='));
        fields.find(|(known, _)| *known == name).map(|(_, value)| value)
    }
}

/// What goes back; `None` for the end of the connection.
pub type Answer = Option<Response<Full<Bytes>>>;

pub fn answer(status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::builder().status(status);
    for (name, value) in headers {
        answer = answer.header(*name, *value);
    }
    Some(answer.body(Full::new(body.into())).unwrap())
}

/// As the service refuses.
pub fn refusal(status: u16, code: &str) -> Answer {
    let body = format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><Error><Code>{code}</Code>\
         <Message>Why.\nRequestId:1\nTime:2026-11-30T10:00:00Z</Message></Error>"
    );
    answer(status, &[("x-ms-error-code", code), ("content-type", "application/xml")], body)
}

/// What the real service at `origin` answers.
pub async fn hand_on(origin: &str, asked: &Asked) -> Answer {
    let client = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let request = client.request(asked.method.clone(), format!("{origin}{}", asked.target));
    let mut headers = asked.headers.clone();
    headers.remove("host");
    let came = request.headers(headers).body(asked.body.clone()).send().await.unwrap();
    let mut answer = Response::builder().status(came.status());
    for (name, value) in came.headers() {
        if !matches!(name.as_str(), "transfer-encoding" | "connection" | "keep-alive") {
            answer = answer.header(name, value);
        }
    }
    Some(answer.body(Full::new(came.bytes().await.unwrap())).unwrap())
}

/// Listens until it is dropped.
pub struct Fake {
    /// Without a path.
    pub origin: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    accepting: JoinHandle<()>,
}

impl Fake {
    pub async fn start<F, A>(answers: F) -> Self
    where
        F: Fn(Asked) -> A + Clone + Send + Sync + 'static,
        A: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&asked);
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let (answers, log) = (answers.clone(), Arc::clone(&log));
                connections.spawn(async move {
                    let service = service_fn(|request| serve(request, answers.clone(), &log));
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Self { origin, asked, accepting }
    }

    /// One answer after the other; the last one for ever.
    pub async fn scripted(answers: Vec<Answer>) -> Self {
        let next = Arc::new(Mutex::new(0));
        Self::start(move |_| {
            let mut next = next.lock().unwrap_or_else(PoisonError::into_inner);
            let answer = answers[(*next).min(answers.len() - 1)].clone();
            *next += 1;
            async move { answer }
        })
        .await
    }

    /// Everything since the last time this was asked.
    pub fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

/// The connection ends without an answer.
#[derive(Debug)]
struct Silence;

impl std::fmt::Display for Silence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("silence")
    }
}

impl std::error::Error for Silence {}

impl From<Infallible> for Silence {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

async fn serve<F, A>(
    request: Request<Incoming>,
    answers: F,
    log: &Mutex<Vec<Asked>>,
) -> Result<Response<Full<Bytes>>, Silence>
where
    F: Fn(Asked) -> A,
    A: Future<Output = Answer>,
{
    let (parts, body) = request.into_parts();
    let target = parts.uri.path_and_query().unwrap().to_string();
    let body = body.collect().await.map_err(|_| Silence)?.to_bytes();
    let asked = Asked { method: parts.method, target, headers: parts.headers, body };
    log.lock().unwrap_or_else(PoisonError::into_inner).push(asked.clone());
    answers(asked).await.ok_or(Silence)
}
