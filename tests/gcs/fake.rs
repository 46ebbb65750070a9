//! A strict server of the JSON API. It refuses what it does not know, checks every precondition and every digest on every
//! kind of upload, and does what it is told to do wrong.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

use super::BUCKET;
use super::objects::Object;
use super::request::{Asked, Fault, Said};
use super::uploads::Session;

pub struct Fake {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    serving: JoinHandle<()>,
}

/// A bucket, and how it behaves.
pub struct State {
    pub objects: BTreeMap<String, Object>,
    pub sessions: BTreeMap<String, Session>,
    /// How many objects and sessions there ever were.
    pub born: u64,
    /// The most objects of a page.
    pub page_max: usize,
    /// Who may ask; `None` for everybody.
    pub tokens: Option<BTreeSet<String>>,
    /// The forms of a digest it does not know: `header`, `metadata`.
    pub deaf_to: Vec<&'static str>,
    /// To be done wrong, each once: with a request of its verb, after so many others of it.
    faults: VecDeque<(&'static str, usize, Fault)>,
    journal: Vec<String>,
}

impl Fake {
    pub async fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = State {
            objects: BTreeMap::new(),
            sessions: BTreeMap::new(),
            born: 0,
            page_max: 1_000,
            tokens: None,
            deaf_to: Vec::new(),
            faults: VecDeque::new(),
            journal: Vec::new(),
        };
        let state = Arc::new(Mutex::new(state));
        let serving = tokio::spawn(serve(listener, Arc::clone(&state)));
        Self { address, state, serving }
    }

    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// With the next request of this verb for which there is none yet.
    pub fn fault(&self, verb: &'static str, fault: Fault) {
        self.fault_after(0, verb, fault);
    }

    /// The same after so many that go well.
    pub fn fault_after(&self, others: usize, verb: &'static str, fault: Fault) {
        self.state().faults.push_back((verb, others, fault));
    }

    /// What was asked since this was last asked: verbs, and what tells one from the other.
    pub fn journal(&self) -> Vec<String> {
        std::mem::take(&mut self.state().journal)
    }

    pub fn bytes_of(&self, key: &str) -> Option<Bytes> {
        self.state().objects.get(key).map(|object| object.bytes.clone())
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(listener: TcpListener, state: Arc<Mutex<State>>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { return };
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, Arc::clone(&state)));
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
        while connections.try_join_next().is_some() {}
    }
}

/// An error ends the connection without a word.
async fn answer(
    request: Request<Incoming>,
    state: Arc<Mutex<State>>,
) -> Result<Response<Full<Bytes>>, &'static str> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(|_| "the request was not whole")?.to_bytes();
    let query = head.uri.query().unwrap_or_default();
    let asked = Asked {
        path: head.uri.path().split('/').skip(1).map(decoded).collect(),
        query: query.split('&').filter_map(|pair| pair.split_once('=')).map(pair).collect(),
        target: head.uri.to_string(),
        method: head.method,
        headers: head.headers,
        body,
    };
    let said = state.lock().unwrap().answer(asked)?;
    Ok(said.response())
}

fn pair((name, value): (&str, &str)) -> (String, String) {
    (decoded(name), decoded(value))
}

/// Percent-encoded text, and nothing else that could mean something: a `+` is one.
fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let code = std::str::from_utf8(&tail[..2]).unwrap();
            bytes.push(u8::from_str_radix(code, 16).unwrap());
            rest = &tail[2..];
        } else {
            assert!(!b" \"<>".contains(first), "{text:?} is not encoded");
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).unwrap()
}

impl State {
    fn answer(&mut self, mut asked: Asked) -> Result<Said, &'static str> {
        let verb = asked.verb();
        self.journal.push(line(verb, &asked));
        let fault = self.fault_of(verb);
        match &fault {
            Some(Fault::Says(said)) => return Ok(said.clone()),
            Some(Fault::LostOnTheWayThere) => return Err("lost on the way there"),
            Some(Fault::SessionEnds(status)) => {
                self.sessions.clear();
                return Ok(Said::new(*status, ""));
            }
            Some(Fault::BitFlipsOnTheWayThere) => {
                // The last byte of what is uploaded: behind it there may be the end of a multipart body.
                let before_end = asked.body.windows(4).rposition(|four| four == b"\r\n--");
                let at = before_end.unwrap_or(asked.body.len()) - 1;
                asked.body = flipped(&asked.body, at);
            }
            Some(Fault::ArrivesUpTo(bytes)) => {
                self.part_that_breaks(&asked, *bytes);
                return Err("lost on the way there");
            }
            _ => {}
        }
        let known: BTreeSet<String> = self.objects.keys().cloned().collect();
        let mut said = self.denied(&asked).unwrap_or_else(|| self.done(verb, &asked));
        match fault {
            Some(Fault::LostOnTheWayBack) => return Err("lost on the way back"),
            Some(Fault::BitFlipsOnTheWayBack) => said.body = flipped(&said.body, 0),
            Some(Fault::BitFlipsWithin) => {
                let new = self.objects.iter_mut().find(|(key, _)| !known.contains(*key));
                let (_, object) = new.expect("an object was made");
                object.bytes = flipped(&object.bytes, 0);
                said = Said::json(&object.described());
            }
            _ => {}
        }
        Ok(said)
    }

    fn fault_of(&mut self, verb: &str) -> Option<Fault> {
        let at = self.faults.iter().position(|(wanted, ..)| *wanted == verb)?;
        let (_, others, _) = &mut self.faults[at];
        if *others > 0 {
            *others -= 1;
            return None;
        }
        self.faults.remove(at).map(|(_, _, fault)| fault)
    }

    fn denied(&self, asked: &Asked) -> Option<Said> {
        let tokens = self.tokens.as_ref()?;
        let told = asked.header("authorization").and_then(|told| told.strip_prefix("Bearer "));
        match told {
            Some(token) if tokens.contains(token) => None,
            Some(_) => Some(Said::error(401, "authError", "Invalid Credentials")),
            None => Some(Said::error(401, "required", "Login Required")),
        }
    }

    fn done(&mut self, verb: &str, asked: &Asked) -> Said {
        if asked.path[0] == BUCKET {
            return self.xml(asked);
        }
        let bucket_at = if asked.path[0] == "upload" { 4 } else { 3 };
        let prefixes = [&["upload", "storage", "v1", "b"][..], &["storage", "v1", "b"]];
        let begins = |prefix: &&[&str]| prefix.iter().eq(asked.path.iter().take(prefix.len()));
        let names_objects = asked.path.get(bucket_at + 1).is_some_and(|o| o == "o");
        if !names_objects || !prefixes.iter().any(begins) {
            return Said::new(404, "Not Found");
        }
        if asked.path[bucket_at] != BUCKET {
            let message = "The specified bucket does not exist.";
            return if matches!(verb, "get" | "range") {
                Said::new(404, message)
            } else {
                Said::error(404, "notFound", message)
            };
        }
        if let Some(unknown) = asked.query.keys().find(|name| !PARAMETERS.contains(&name.as_str()))
        {
            return Said::error(400, "invalidParameter", &format!("Unknown parameter {unknown}"));
        }
        match verb {
            "media" | "multipart" => self.upload(verb, asked),
            "begin" => self.begin(asked),
            "part" | "ask" => self.part(asked),
            "cancel" => self.cancel(asked),
            "get" | "range" => self.read(asked),
            "delete" => self.delete(asked),
            "list" => self.list(asked),
            _ => Said::error(405, "methodNotAllowed", "Method Not Allowed"),
        }
    }
}

/// Those that are known: a misspelled precondition is no precondition.
const PARAMETERS: [&str; 10] = [
    "uploadType",
    "upload_id",
    "name",
    "fields",
    "ifGenerationMatch",
    "kmsKeyName",
    "alt",
    "prefix",
    "pageToken",
    "maxResults",
];

fn line(verb: &str, asked: &Asked) -> String {
    let mut line = verb.to_owned();
    let range = asked.header("content-range").or(asked.header("range"));
    let range = range.map(|range| range.trim_start_matches("bytes").trim_start_matches(['=', ' ']));
    for more in [range, asked.parameter("pageToken")].into_iter().flatten() {
        line.push(' ');
        line.push_str(more);
    }
    if let Some(generation) = asked.parameter("ifGenerationMatch").filter(|_| range.is_none()) {
        line.push_str(" if ");
        line.push_str(generation);
    }
    line
}

fn flipped(bytes: &Bytes, at: usize) -> Bytes {
    let mut bytes = bytes.to_vec();
    bytes[at] ^= 1;
    bytes.into()
}
