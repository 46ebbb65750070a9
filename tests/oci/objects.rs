//! Object Storage with one bucket in memory.

use std::collections::BTreeMap;
use std::io::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use md5::{Digest, Md5};
use serde_json::{Value, json};
use tokio::sync::Barrier;
use url::form_urlencoded;

use super::verify::{Verifier, header};
use super::{Answers, BUCKET, NAMESPACE, SetClock, dated, field, refused};

type Answer = Response<Full<Bytes>>;

/// What goes wrong with one request.
#[derive(Clone)]
pub enum Fault {
    /// It is done, and nobody is told.
    LoseAnswer,
    /// It is not done, and answered with this status, header and body.
    Answer(u16, Option<(&'static str, &'static str)>, String),
    /// A bit of its body flips on the way there.
    FlipThere,
    /// A bit of the answer's body flips on the way back.
    FlipBack,
    /// This object is there before it is looked at.
    Put(&'static str, &'static [u8]),
    /// The answer has this header instead.
    Header(&'static str, &'static str),
    /// It is not done, and by the time that is told it is so late, here and by this clock.
    Late(Arc<SetClock>, u64),
}

/// What was asked: the method, the target after the bucket, and headers that a test asks about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    pub method: String,
    pub target: String,
    pub if_none_match: Option<String>,
    pub sse_key: Option<String>,
    pub key_id: String,
}

#[derive(Clone)]
struct Object {
    body: Bytes,
    in_parts: bool,
}

#[derive(Default)]
struct Upload {
    object: String,
    /// By number: etag and bytes.
    parts: BTreeMap<u64, (String, Bytes)>,
}

#[derive(Default)]
struct Kept {
    keys: BTreeMap<String, Vec<u8>>,
    objects: BTreeMap<String, Object>,
    uploads: BTreeMap<String, Upload>,
    faults: Vec<(Method, &'static str, Fault)>,
    seen: Vec<Seen>,
    refused: Vec<&'static str>,
    names: u64,
}

pub struct Objects {
    hosts: Mutex<Vec<String>>,
    pub clock: Arc<SetClock>,
    kept: Mutex<Kept>,
    /// Parts that are being sent wait for each other here.
    pub meeting: Mutex<Option<Arc<Barrier>>>,
    parts_now: AtomicUsize,
    pub parts_at_once: AtomicUsize,
}

impl Objects {
    pub fn new(host: String) -> Self {
        Self {
            hosts: Mutex::new(vec![host]),
            clock: SetClock::new(),
            kept: Mutex::default(),
            meeting: Mutex::default(),
            parts_now: AtomicUsize::new(0),
            parts_at_once: AtomicUsize::new(0),
        }
    }

    /// What requests can be sent to as well: something that is in front of it.
    pub fn is_behind(&self, host: String) {
        self.hosts.lock().unwrap().push(host);
    }

    pub fn trust(&self, key_id: &str, public_der: &[u8]) {
        self.kept.lock().unwrap().keys.insert(key_id.to_owned(), public_der.to_vec());
    }

    pub fn distrust_all(&self) {
        self.kept.lock().unwrap().keys.clear();
    }

    /// The next request of this method whose target after the bucket begins so goes wrong, once.
    pub fn fault(&self, method: Method, target: &'static str, fault: Fault) {
        self.kept.lock().unwrap().faults.push((method, target, fault));
    }

    /// What was asked since it was asked last.
    pub fn seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.kept.lock().unwrap().seen)
    }

    /// `PUT /o/a`, of all that was asked since.
    pub fn asked(&self) -> Vec<String> {
        self.seen().into_iter().map(|seen| format!("{} {}", seen.method, seen.target)).collect()
    }

    /// Why requests were refused whose signature did not count.
    pub fn unsigned(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.kept.lock().unwrap().refused)
    }

    pub fn object(&self, name: &str) -> Option<Bytes> {
        self.kept.lock().unwrap().objects.get(name).map(|object| object.body.clone())
    }

    pub fn uploads(&self) -> usize {
        self.kept.lock().unwrap().uploads.len()
    }

    fn signer(&self, request: &Request<Bytes>, target: &str) -> Result<String, &'static str> {
        let writes_object = request.method() == Method::PUT
            && (target.starts_with("/o/") || target.starts_with("/u/"));
        let hosts = self.hosts.lock().unwrap().clone();
        let asked = hosts.iter().find(|host| header(request, "host") == Some(host.as_str()));
        let host = asked.or(hosts.first()).unwrap();
        let verifier = Verifier {
            clock: &*self.clock,
            host,
            generic: &["date", "(request-target)", "host"],
            body_is_signed: !writes_object,
        };
        let key_of = |key_id: &str| self.kept.lock().unwrap().keys.get(key_id).cloned();
        verifier.verify(request, key_of).map(str::to_owned)
    }

    fn take_fault(&self, method: &Method, target: &str) -> Option<Fault> {
        let faults = &mut self.kept.lock().unwrap().faults;
        let place =
            faults.iter().position(|(of, begins, _)| of == method && target.starts_with(begins))?;
        Some(faults.remove(place).2)
    }
}

impl Answers for Objects {
    async fn answer(self: Arc<Self>, mut request: Request<Bytes>) -> Result<Answer, Error> {
        let whole = request.uri().path_and_query().unwrap().to_string();
        let bucket = format!("/n/{NAMESPACE}/b/{BUCKET}");
        let target = after_the_bucket(&whole).to_owned();
        let fault = self.take_fault(request.method(), &target);
        let key_id = match self.signer(&request, &target) {
            Ok(key_id) => key_id,
            Err(why) => {
                self.kept.lock().unwrap().refused.push(why);
                let refused = refused(StatusCode::UNAUTHORIZED, "NotAuthenticated");
                return Ok(dated(refused, &*self.clock));
            }
        };
        let told = |name| header(&request, name).map(str::to_owned);
        self.kept.lock().unwrap().seen.push(Seen {
            method: request.method().to_string(),
            target: target.clone(),
            if_none_match: told("if-none-match"),
            sse_key: told("opc-sse-kms-key-id"),
            key_id,
        });
        match &fault {
            Some(Fault::Answer(status, header, body)) => {
                let mut answer = Response::new(Full::new(Bytes::from(body.clone())));
                *answer.status_mut() = StatusCode::from_u16(*status).unwrap();
                if let Some((name, value)) = header {
                    answer.headers_mut().insert(*name, value.parse().unwrap());
                }
                return Ok(dated(answer, &*self.clock));
            }
            Some(Fault::FlipThere) => *request.body_mut() = flipped(request.body()),
            Some(Fault::Put(name, body)) => {
                let object = Object { body: Bytes::from_static(body), in_parts: false };
                self.kept.lock().unwrap().objects.insert((*name).to_owned(), object);
            }
            Some(Fault::Late(other, now_ms)) => {
                self.clock.set(*now_ms);
                other.set(*now_ms);
                let late = refused(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable");
                return Ok(dated(late, &*self.clock));
            }
            Some(Fault::LoseAnswer | Fault::FlipBack | Fault::Header(..)) | None => {}
        }
        let mut answer = if whole.strip_suffix(&target) == Some(&bucket) {
            self.route(&request, &target).await
        } else if whole.starts_with(&format!("/n/{NAMESPACE}/b/")) {
            refused(StatusCode::NOT_FOUND, "BucketNotFound")
        } else {
            refused(StatusCode::NOT_FOUND, "NamespaceNotFound")
        };
        match fault {
            Some(Fault::LoseAnswer) => return Err(Error::other("lost")),
            Some(Fault::FlipBack) => {
                let (parts, body) = answer.into_parts();
                let body = flipped(&collected(body).await);
                answer = Response::from_parts(parts, Full::new(body));
            }
            Some(Fault::Header(name, value)) => {
                answer.headers_mut().insert(name, value.parse().unwrap());
            }
            Some(Fault::Answer(..) | Fault::Late(..) | Fault::FlipThere | Fault::Put(..))
            | None => {}
        }
        Ok(dated(answer, &*self.clock))
    }
}

impl Objects {
    async fn route(&self, request: &Request<Bytes>, target: &str) -> Answer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<String, String> =
            form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let method = request.method().as_str();
        let name = |rest: &str| decoded(rest);
        if let Some(name) = path.strip_prefix("/o/").and_then(name) {
            return match method {
                "PUT" => self.put(request, &name),
                "GET" => self.get(request, &name),
                "DELETE" => self.delete(&name),
                _ => refused(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            };
        }
        if let Some(name) = path.strip_prefix("/u/").and_then(name) {
            let Some(id) = query.get("uploadId") else {
                return refused(StatusCode::BAD_REQUEST, "InvalidParameter");
            };
            return match method {
                "PUT" => self.part(request, &name, id, &query).await,
                "POST" => self.commit(request, &name, id),
                "DELETE" => self.abort(&name, id),
                _ => refused(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed"),
            };
        }
        match (method, path) {
            ("GET", "/o") => self.list(&query),
            ("POST", "/u") => self.create(request),
            _ => refused(StatusCode::NOT_FOUND, "NotFound"),
        }
    }

    fn put(&self, request: &Request<Bytes>, name: &str) -> Answer {
        if let Some(refused) = wrong_digest(request) {
            return refused;
        }
        let kept = &mut *self.kept.lock().unwrap();
        if let Some(refused) = condition(request, kept, name) {
            return refused;
        }
        let object = Object { body: request.body().clone(), in_parts: false };
        kept.objects.insert(name.to_owned(), object);
        ok(Bytes::new())
    }

    fn get(&self, request: &Request<Bytes>, name: &str) -> Answer {
        let kept = self.kept.lock().unwrap();
        let Some(object) = kept.objects.get(name) else {
            return refused(StatusCode::NOT_FOUND, "ObjectNotFound");
        };
        let length = object.body.len();
        let mut answer = match header(request, "range") {
            None => ok(object.body.clone()),
            Some(range) => {
                let (from, to) = range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap());
                let from = usize::try_from(from).unwrap();
                if from >= length {
                    return refused(StatusCode::RANGE_NOT_SATISFIABLE, "InvalidRange");
                }
                let end = usize::try_from(to).unwrap().saturating_add(1).min(length);
                let mut answer = ok(object.body.slice(from..end));
                *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
                let range = format!("bytes {from}-{}/{length}", end - 1);
                answer.headers_mut().insert("content-range", range.parse().unwrap());
                answer
            }
        };
        // Of the whole object, whatever range of it is sent.
        let (header, digest) = if object.in_parts {
            ("opc-multipart-md5", format!("{}-2", md5(&object.body)))
        } else {
            ("content-md5", md5(&object.body))
        };
        answer.headers_mut().insert(header, digest.parse().unwrap());
        answer
    }

    fn delete(&self, name: &str) -> Answer {
        match self.kept.lock().unwrap().objects.remove(name) {
            Some(_) => no_content(),
            None => refused(StatusCode::NOT_FOUND, "ObjectNotFound"),
        }
    }

    fn list(&self, query: &BTreeMap<String, String>) -> Answer {
        let of = |name: &str| query.get(name).map(String::as_str).unwrap_or_default();
        let limit: usize = of("limit").parse().unwrap_or(100).min(1_000);
        let with_sizes = of("fields").split(',').any(|field| field == "size");
        let kept = self.kept.lock().unwrap();
        let mut names = kept
            .objects
            .iter()
            .filter(|(name, _)| name.starts_with(of("prefix")) && name.as_str() >= of("start"));
        let mut objects = Vec::new();
        for (name, object) in names.by_ref().take(limit) {
            objects.push(if with_sizes {
                json!({ "name": name, "size": object.body.len() })
            } else {
                json!({ "name": name })
            });
        }
        let mut page = json!({ "objects": objects, "prefixes": [] });
        if let Some((next, _)) = names.next() {
            page["nextStartWith"] = json!(next);
        }
        ok(Bytes::from(page.to_string()))
    }

    fn create(&self, request: &Request<Bytes>) -> Answer {
        let details: Value = serde_json::from_slice(request.body()).unwrap();
        let object = field(&details, "object").to_owned();
        let kept = &mut *self.kept.lock().unwrap();
        if let Some(refused) = condition(request, kept, &object) {
            return refused;
        }
        kept.names += 1;
        let id = format!("upload+{}/=", kept.names);
        let told = json!({ "object": object, "bucket": BUCKET, "uploadId": id });
        kept.uploads.insert(id, Upload { object, parts: BTreeMap::new() });
        ok(Bytes::from(told.to_string()))
    }

    async fn part(
        &self,
        request: &Request<Bytes>,
        name: &str,
        id: &str,
        query: &BTreeMap<String, String>,
    ) -> Answer {
        let now = self.parts_now.fetch_add(1, Ordering::SeqCst) + 1;
        self.parts_at_once.fetch_max(now, Ordering::SeqCst);
        let meeting = self.meeting.lock().unwrap().clone();
        if let Some(meeting) = meeting {
            meeting.wait().await;
        }
        self.parts_now.fetch_sub(1, Ordering::SeqCst);
        if let Some(refused) = wrong_digest(request) {
            return refused;
        }
        let number: u64 = query.get("uploadPartNum").and_then(|n| n.parse().ok()).unwrap_or(0);
        if !(1..=10_000).contains(&number) {
            return refused(StatusCode::BAD_REQUEST, "InvalidUploadPart");
        }
        let kept = &mut *self.kept.lock().unwrap();
        let Some(upload) = kept.uploads.get_mut(id).filter(|upload| upload.object == name) else {
            return refused(StatusCode::NOT_FOUND, "UploadNotFound");
        };
        kept.names += 1;
        let etag = format!("etag-{}", kept.names);
        upload.parts.insert(number, (etag.clone(), request.body().clone()));
        let mut answer = ok(Bytes::new());
        answer.headers_mut().insert("etag", etag.parse().unwrap());
        answer
    }

    fn commit(&self, request: &Request<Bytes>, name: &str, id: &str) -> Answer {
        let kept = &mut *self.kept.lock().unwrap();
        let Some(upload) = kept.uploads.get(id).filter(|upload| upload.object == name) else {
            return refused(StatusCode::NOT_FOUND, "UploadNotFound");
        };
        let details: Value = serde_json::from_slice(request.body()).unwrap();
        let mut body = Vec::new();
        let mut before = 0;
        for part in details["partsToCommit"].as_array().unwrap() {
            let number = part["partNum"].as_u64().unwrap();
            match upload.parts.get(&number) {
                Some((etag, bytes)) if etag == field(part, "etag") && number > before => {
                    body.extend_from_slice(bytes);
                }
                Some(_) | None => return refused(StatusCode::BAD_REQUEST, "InvalidUploadPart"),
            }
            before = number;
        }
        if let Some(refused) = condition(request, kept, name) {
            return refused;
        }
        kept.uploads.remove(id);
        let object = Object { body: body.into(), in_parts: true };
        kept.objects.insert(name.to_owned(), object);
        ok(Bytes::new())
    }

    fn abort(&self, name: &str, id: &str) -> Answer {
        let kept = &mut *self.kept.lock().unwrap();
        match kept.uploads.remove(id).filter(|upload| upload.object == name) {
            Some(_) => no_content(),
            None => refused(StatusCode::NOT_FOUND, "UploadNotFound"),
        }
    }
}

fn condition(request: &Request<Bytes>, kept: &Kept, name: &str) -> Option<Answer> {
    match header(request, "if-none-match") {
        Some("*") if kept.objects.contains_key(name) => {
            Some(refused(StatusCode::PRECONDITION_FAILED, "IfNoneMatchFailed"))
        }
        Some("*") | None => None,
        Some(_) => Some(refused(StatusCode::BAD_REQUEST, "InvalidParameter")),
    }
}

/// `/o/<object>` of `/n/<namespace>/b/<bucket>/o/<object>`.
fn after_the_bucket(target: &str) -> &str {
    let slash = target.match_indices('/').nth(4);
    slash.and_then(|(at, _)| target.get(at..)).unwrap_or_default()
}

/// Whoever writes says what: a digest is demanded here.
fn wrong_digest(request: &Request<Bytes>) -> Option<Answer> {
    let right = md5(request.body());
    match header(request, "content-md5") {
        Some(told) if told == right => None,
        Some(_) => Some(refused(StatusCode::BAD_REQUEST, "UnmatchedContentMD5")),
        None => Some(refused(StatusCode::BAD_REQUEST, "MissingContentMD5")),
    }
}

/// The name in one segment of a path. What should have been encoded is none.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let digits = [rest.next()?, rest.next()?];
            let digits = std::str::from_utf8(&digits).ok()?.to_owned();
            bytes.push(u8::from_str_radix(&digits, 16).ok()?);
        } else if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            bytes.push(byte);
        } else {
            return None;
        }
    }
    String::from_utf8(bytes).ok()
}

fn md5(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(Md5::digest(bytes))
}

fn ok(body: Bytes) -> Answer {
    Response::new(Full::new(body))
}

fn no_content() -> Answer {
    let mut answer = ok(Bytes::new());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    answer
}

fn flipped(body: &Bytes) -> Bytes {
    let mut body = body.to_vec();
    if let Some(byte) = body.first_mut() {
        *byte ^= 1;
    }
    body.into()
}

async fn collected(body: Full<Bytes>) -> Bytes {
    use http_body_util::BodyExt;
    body.collect().await.unwrap().to_bytes()
}
