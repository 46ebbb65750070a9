//! The same requests to our server and to others' emulators, wherever those are right: the same answers.
//!
//! What each emulator gets wrong is stated here too, so that one day it is seen if it does not any more.

use std::collections::BTreeMap;

use serde_json::Value;

use super::emulators::Emulator;
use super::{BUCKET, Fake, STEP, md5_base64, noise};

/// A request, or two of them, as any client would send it.
#[derive(Clone, Debug)]
pub struct Raw {
    pub method: &'static str,
    /// Path and query, or what follows the address of the session the first has begun.
    pub target: String,
    pub headers: BTreeMap<&'static str, String>,
    pub body: Vec<u8>,
    /// Sent to the session this one begins.
    pub then: Option<Box<Self>>,
}

/// What was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Told {
    fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The object that is told of.
    fn object(&self) -> (u16, [Option<String>; 3]) {
        let told = self.json();
        let field = |name| told[name].as_str().map(str::to_owned);
        (self.status, ["name", "size", "md5Hash"].map(field))
    }

    /// What an unfinished upload has.
    fn progress(&self) -> (u16, Option<&str>) {
        (self.status, self.header("range"))
    }

    /// Bytes, which of them, and the digest of all.
    fn bytes(&self) -> (u16, Option<&str>, Option<&str>, &[u8]) {
        (self.status, self.header("content-range"), self.header("x-goog-hash"), &self.body)
    }
}

impl Raw {
    pub fn new(method: &'static str, target: impl Into<String>) -> Self {
        let (headers, body) = (BTreeMap::new(), Vec::new());
        Self { method, target: target.into(), headers, body, then: None }
    }

    #[must_use]
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.insert(name, value.into());
        self
    }

    #[must_use]
    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    fn upload(kind: &str, key: &str) -> Self {
        let target = format!("/upload/storage/v1/b/{BUCKET}/o?uploadType={kind}&name={key}");
        Self::new("POST", target)
    }

    pub fn media(key: &str, body: &[u8]) -> Self {
        Self::upload("media", key).header("content-type", "application/octet-stream").body(body)
    }

    pub fn multipart(key: &str, body: &[u8], md5: Option<&str>) -> Self {
        let mut metadata = serde_json::json!({"name": key, "contentType": "text/plain"});
        if let Some(md5) = md5 {
            metadata["md5Hash"] = md5.into();
        }
        let mut whole = format!(
            "--xyzzy\r\ncontent-type: application/json\r\n\r\n{metadata}\r\n\
             --xyzzy\r\ncontent-type: text/plain\r\n\r\n"
        )
        .into_bytes();
        whole.extend_from_slice(body);
        whole.extend_from_slice(b"\r\n--xyzzy--\r\n");
        let kind = "multipart/related; boundary=xyzzy";
        Self::upload("multipart", key).header("content-type", kind).body(&whole)
    }

    pub fn begin(key: &str, bytes: usize) -> Self {
        Self::upload("resumable", key)
            .header("content-type", "application/json")
            .header("x-upload-content-length", bytes.to_string())
            .body(b"{\"contentType\":\"text/plain\"}")
    }

    pub fn part(range: &str, body: &[u8]) -> Self {
        Self::new("PUT", "").header("content-range", format!("bytes {range}")).body(body)
    }

    /// Every kind of upload of one small object.
    pub fn uploads(key: &str, body: &[u8]) -> [Self; 3] {
        let all = format!("0-{}/{}", body.len() - 1, body.len());
        let mut resumable = Self::begin(key, body.len());
        resumable.then = Some(Box::new(Self::part(&all, body)));
        [Self::media(key, body), Self::multipart(key, body, None), resumable]
    }

    /// With more in the query of the first.
    #[must_use]
    pub fn with(&self, query: &str) -> Self {
        let target = format!("{}{query}", self.target);
        Self { target, ..self.clone() }
    }

    /// With this MD5 in the header of the last.
    #[must_use]
    pub fn with_hash(&self, md5: &str) -> Self {
        let mut raw = self.clone();
        match &mut raw.then {
            Some(then) => **then = then.with_hash(md5),
            None => raw = raw.header("x-goog-hash", format!("md5={md5}")),
        }
        raw
    }

    /// What the last of them is answered, or the first that fails.
    pub async fn run(&self, base: &str) -> Told {
        let told = self.send(&format!("{base}{}", self.target)).await;
        match &self.then {
            Some(then) if told.status < 300 => Box::pin(then.send(&session(base, &told))).await,
            Some(_) | None => told,
        }
    }

    async fn send(&self, url: &str) -> Told {
        let client = reqwest::Client::builder();
        let client = client.redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let mut request = client.request(self.method.parse().unwrap(), url);
        for (name, value) in &self.headers {
            request = request.header(*name, value);
        }
        let answer = request.body(self.body.clone()).send().await.unwrap();
        let headers = answer.headers().iter();
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        Told {
            status: answer.status().as_u16(),
            headers: headers.map(|(name, value)| (name.to_string(), text(value))).collect(),
            body: answer.bytes().await.unwrap().to_vec(),
        }
    }
}

/// The address of the session that was begun, at `base`.
fn session(base: &str, begun: &Told) -> String {
    let location = url::Url::parse(begun.header("location").unwrap()).unwrap();
    format!("{base}{}?{}", location.path(), location.query().unwrap())
}

fn object(key: &str) -> String {
    format!("/storage/v1/b/{BUCKET}/o/{key}?alt=media")
}

fn range(key: &str, range: &str) -> Raw {
    Raw::new("GET", object(key)).header("range", format!("bytes={range}"))
}

/// Names and sizes, page by page.
async fn pages(base: &str, prefix: &str, most: usize) -> Vec<Vec<(String, String)>> {
    let mut pages = Vec::new();
    let mut token = String::new();
    loop {
        let target = format!("/storage/v1/b/{BUCKET}/o?prefix={prefix}&maxResults={most}{token}");
        let told = Raw::new("GET", target).run(base).await;
        assert_eq!((told.status, &told.json()["kind"]), (200, &"storage#objects".into()));
        let page = told.json();
        let items = page["items"].as_array().cloned().unwrap_or_default();
        let text = |item: &Value, name| item[name].as_str().unwrap().to_owned();
        pages.push(items.iter().map(|item| (text(item, "name"), text(item, "size"))).collect());
        match page["nextPageToken"].as_str().filter(|token| !token.is_empty()) {
            Some(next) => token = format!("&pageToken={}", next.replace('=', "%3D")),
            None => return pages,
        }
    }
}

/// The answers to one request.
async fn both(raw: &Raw, ours: &str, theirs: &str) -> (Told, Told) {
    (raw.run(ours).await, raw.run(theirs).await)
}

/// Small objects, read and listed: what every emulator knows.
async fn objects_are_alike(ours: &str, theirs: &str) {
    let content = b"\r\n--not the end--\r\n\0\xff";
    for raw in [Raw::media("m%2F1", content), Raw::multipart("m/2", content, None)] {
        let (our, their) = both(&raw, ours, theirs).await;
        assert_eq!(our.object(), their.object());
        assert_eq!((our.status, our.object().1[1].as_deref()), (200, Some("21")));
    }
    for raw in [
        Raw::new("GET", object("m%2F1")),
        range("m%2F1", "0-0"),
        range("m%2F1", "2-5"),
        range("m%2F1", "15-400"),
    ] {
        let (our, mut their) = both(&raw, ours, theirs).await;
        if their.header("x-goog-hash").is_none() {
            // One of them says no digest with a part.
            assert_eq!(our.status, 206);
            let hash = our.header("x-goog-hash").unwrap().to_owned();
            their.headers.insert("x-goog-hash".to_owned(), hash);
        }
        assert_eq!(our.bytes(), their.bytes(), "{raw:?}");
    }
    assert_eq!(pages(ours, "m%2F", 100).await, pages(theirs, "m%2F", 100).await);
    assert_eq!(pages(ours, "none", 100).await, pages(theirs, "none", 100).await);
    let elsewhere = |raw: Raw| Raw { target: raw.target.replace(BUCKET, "other"), ..raw };
    for raw in [
        Raw::new("GET", object("none")),
        Raw::new("DELETE", object("none").replace("?alt=media", "")),
        elsewhere(Raw::new("GET", object("m%2F1"))),
        elsewhere(Raw::new("GET", format!("/storage/v1/b/{BUCKET}/o?prefix=m"))),
        elsewhere(Raw::media("m%2F1", b"1")),
    ] {
        let (our, their) = both(&raw, ours, theirs).await;
        assert_eq!((our.status, their.status), (404, 404), "{raw:?}");
    }
    let delete = Raw::new("DELETE", object("m%2F1").replace("?alt=media", ""));
    let (our, their) = both(&delete, ours, theirs).await;
    assert_eq!((our.status / 100, their.status / 100), (2, 2));
    assert_eq!(both(&delete, ours, theirs).await.1.status, 404);
}

/// An upload of two parts, begun on both.
async fn begun(ours: &str, theirs: &str, bytes: usize) -> (String, String) {
    let (our, their) = both(&Raw::begin("large", bytes), ours, theirs).await;
    assert_eq!((our.status, their.status), (200, 200));
    (session(ours, &our), session(theirs, &their))
}

#[tokio::test]
async fn fake_gcs_server_and_ours_answer_alike_where_it_is_right() {
    let (fake, emulator) = (Fake::start().await, Emulator::fake_gcs_server().await);
    let (ours, theirs) = (&fake.url(), &emulator.url());
    objects_are_alike(ours, theirs).await;
    // Preconditions, with metadata.
    let create = Raw::multipart("c", b"1", None).with("&ifGenerationMatch=0");
    for status in [200, 412] {
        let (our, their) = both(&create, ours, theirs).await;
        assert_eq!((our.status, their.status), (status, status));
    }
    // Pages.
    for n in 0..5 {
        both(&Raw::media(&format!("p%2F{n}"), &vec![0; n]), ours, theirs).await;
    }
    for most in [1, 2, 4, 5, 6] {
        let (our, their) = (pages(ours, "p%2F", most).await, pages(theirs, "p%2F", most).await);
        assert_eq!(our, their);
        assert_eq!(our.len(), 5_usize.div_ceil(most));
    }
    // From the end of an object on there is nothing.
    let (our, their) = both(&range("c", "1-5"), ours, theirs).await;
    assert_eq!((our.status, their.status), (416, 416));
    // Parts, as long as nobody asks.
    let content = noise(STEP + 3);
    let (our, their) = begun(ours, theirs, content.len()).await;
    let first = Raw::part("0-262143/262147", &content[..STEP]);
    let (mine, its) = (first.send(&our).await, first.send(&their).await);
    assert_eq!(mine.progress(), its.progress());
    assert_eq!(mine.progress(), (308, Some("bytes=0-262143")));
    let last = Raw::part("262144-262146/262147", &content[STEP..]);
    let (mine, its) = (last.send(&our).await, last.send(&their).await);
    assert_eq!(mine.object(), its.object());
    assert_eq!(mine.object().1[2], Some(md5_base64(&content)));
    let (our, their) = begun(ours, theirs, 9).await;
    let cancel = Raw::new("DELETE", "").header("content-length", "0");
    assert_eq!((cancel.send(&our).await.status, cancel.send(&their).await.status), (499, 499));

    // Where it is wrong: the condition of the other uploads, digests, and the question how far one came.
    for wrong in [
        Raw::media("c", b"2").with("&ifGenerationMatch=0"),
        Raw::multipart("d", b"1", Some(&md5_base64(b"2"))),
    ] {
        let (our, their) = both(&wrong, ours, theirs).await;
        assert_ne!((our.status, their.status), (200, 200));
        assert_eq!(their.status, 200, "it has learned: {wrong:?}");
    }
    let (our, their) = begun(ours, theirs, 9).await;
    let ask = Raw::part("*/9", b"");
    assert_eq!((ask.send(&our).await.status, ask.send(&their).await.status), (308, 200));
}

#[tokio::test]
async fn gcp_storage_emulator_and_ours_answer_alike_where_it_is_right() {
    let (fake, emulator) = (Fake::start().await, Emulator::gcp_storage_emulator().await);
    let (ours, theirs) = (&fake.url(), &emulator.url());
    objects_are_alike(ours, theirs).await;
    // Digests in metadata, to the word.
    let right = Raw::multipart("d", b"1", Some(&md5_base64(b"1")));
    let (our, their) = both(&right, ours, theirs).await;
    assert_eq!(our.object(), their.object());
    let wrong = Raw::multipart("d", b"1", Some(&md5_base64(b"2")));
    let (our, their) = both(&wrong, ours, theirs).await;
    assert_eq!((our.status, their.status), (400, 400));
    assert_eq!(our.json()["error"]["message"], their.json()["error"]["message"]);
    let reason = |told: &Told| told.json()["error"]["errors"][0]["reason"].clone();
    assert_eq!(reason(&our), reason(&their));
    // Parts, and how far they came.
    let content = noise(STEP + 3);
    let (our, their) = begun(ours, theirs, content.len()).await;
    for raw in [Raw::part("0-262143/262147", &content[..STEP]), Raw::part("*/262147", b"")] {
        let (mine, its) = (raw.send(&our).await, raw.send(&their).await);
        assert_eq!(mine.progress(), its.progress());
        assert_eq!(mine.progress(), (308, Some("bytes=0-262143")));
    }
    let last = Raw::part("262144-262146/262147", &content[STEP..]);
    let (mine, its) = (last.send(&our).await, last.send(&their).await);
    assert_eq!(mine.object(), its.object());
    assert_eq!(mine.object().1[2], Some(md5_base64(&content)));

    // Where it is wrong: conditions, the digest of a header, pages, ranges beyond the end, and an upload that has nothing.
    for wrong in [
        Raw::media("d", b"2").with("&ifGenerationMatch=0"),
        Raw::multipart("d", b"2", None).with("&ifGenerationMatch=0"),
        Raw::media("e", b"1").with_hash(&md5_base64(b"2")),
    ] {
        let (our, their) = both(&wrong, ours, theirs).await;
        assert_ne!(our.status, 200);
        assert_eq!(their.status, 200, "it has learned: {wrong:?}");
    }
    assert_eq!((pages(ours, "", 1).await.len() > 1, pages(theirs, "", 1).await.len()), (true, 1));
    let (our, their) = both(&range("d", "1-5"), ours, theirs).await;
    assert_eq!((our.status, their.status), (416, 206));
    let (our, their) = begun(ours, theirs, 9).await;
    let ask = Raw::part("*/9", b"");
    assert_eq!(ask.send(&our).await.progress(), (308, None));
    assert_eq!(ask.send(&their).await.progress(), (308, Some("bytes=0-0")));
}
