//! Object Storage, the metadata server and the federation endpoint as they are documented, and as strict: nothing is
//! answered whose signature does not verify.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing
)]

pub mod instance;
pub mod objects;
pub mod verify;

use std::future::Future;
use std::io::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::{Duration, UNIX_EPOCH};

use ankusa_actors::ports::{Blob, BlobEvent, BlobScope, Clock, Entropy, Event, Events};
use ankusa_node::blob::breaker::Breakers;
use ankusa_node::blob::oci::{OciSpec, open};
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::pool::Pools;
use ankusa_node::blob::transport::World;
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use objects::Objects;

pub const NAMESPACE: &str = "axnamespace";
pub const BUCKET: &str = "ankusa-segments";
pub const TENANCY: &str = "ocid1.tenancy.oc1..aaaatenancy";
pub const USER: &str = "ocid1.user.oc1..aaaauser";
pub const FINGERPRINT: &str = "20:3b:97:13:55:1c:5b:0d:d3:37:d8:50:4e:c5:3a:34";

/// When everything here happens, unless a clock is set: 2026-11-30T00:00:00Z.
pub const NOW_MS: u64 = 1_795_996_800_000;

/// A clock that is set.
pub struct SetClock(AtomicU64);

impl SetClock {
    pub fn new() -> Arc<Self> {
        Arc::new(Self(AtomicU64::new(NOW_MS)))
    }

    pub fn set(&self, now_ms: u64) {
        self.0.store(now_ms, Ordering::SeqCst);
    }
}

impl Clock for SetClock {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Never waits before another attempt.
struct NoChance;

impl Entropy for NoChance {
    fn bits(&self) -> u128 {
        0
    }
}

/// Counts the attempts that were made again.
#[derive(Default)]
pub struct Retries(AtomicU64);

impl Retries {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Events for Retries {
    fn emit(&self, event: &Event<'_>) {
        if matches!(event, Event::Blob(BlobEvent::Retried { .. })) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// A key pair as its owner has it.
pub struct TestKey {
    pub public: Vec<u8>,
    pub pkcs8: String,
    pub pkcs1: String,
}

impl TestKey {
    fn new() -> Self {
        let pair = KeyPair::generate(KeySize::Rsa2048).unwrap();
        let pkcs8: Pkcs8V1Der<'_> = pair.as_der().unwrap();
        let public: PublicKeyX509Der<'_> = pair.public_key().as_der().unwrap();
        // Within the other there is the one, after a version, an algorithm and two headers.
        let pkcs1 = pem("RSA PRIVATE KEY", &pkcs8.as_ref()[26..]);
        Self { public: public.as_ref().to_vec(), pkcs8: pem("PRIVATE KEY", pkcs8.as_ref()), pkcs1 }
    }
}

/// The user's, and somebody else's: made once, for it takes a while.
pub static KEY: LazyLock<TestKey> = LazyLock::new(TestKey::new);
pub static OTHER_KEY: LazyLock<TestKey> = LazyLock::new(TestKey::new);

pub fn pem(label: &str, der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines: Vec<&str> =
        text.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).unwrap()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// What answers requests. `Err`: the connection is closed unanswered.
pub trait Answers: Send + Sync + 'static {
    fn answer(
        self: Arc<Self>,
        request: Request<Bytes>,
    ) -> impl Future<Output = Result<Response<Full<Bytes>>, Error>> + Send;
}

/// One that listens on a free port until it is dropped.
pub struct Listening {
    pub url: String,
    task: JoinHandle<()>,
}

impl Drop for Listening {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Listening {
    pub async fn new<A: Answers>(answers: impl FnOnce(String) -> Arc<A>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let answers = answers(address.clone());
        let task = tokio::spawn(async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let answers = Arc::clone(&answers);
                connections.spawn(async move {
                    let service = service_fn(|request| serve(Arc::clone(&answers), request));
                    let io = TokioIo::new(stream);
                    let served = hyper::server::conn::http1::Builder::new();
                    // Closed by the client, or on purpose.
                    let _ = served.serve_connection(io, service).await;
                });
            }
        });
        Self { url: format!("http://{address}"), task }
    }
}

async fn serve<A: Answers>(
    answers: Arc<A>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Error> {
    let (parts, body) = request.into_parts();
    let Ok(body) = body.collect().await else {
        return Ok(refused(StatusCode::BAD_REQUEST, "IncompleteBody"));
    };
    answers.answer(Request::from_parts(parts, body.to_bytes())).await
}

/// `{code, message}`, where the message is the code in other words.
pub fn refused(status: StatusCode, code: &str) -> Response<Full<Bytes>> {
    let said = json!({ "code": code, "message": format!("{code} it is") });
    let mut response = Response::new(Full::new(Bytes::from(said.to_string())));
    *response.status_mut() = status;
    response
}

pub fn dated(mut response: Response<Full<Bytes>>, clock: &dyn Clock) -> Response<Full<Bytes>> {
    let date = UNIX_EPOCH + Duration::from_millis(clock.now_ms());
    let date = httpdate::fmt_http_date(date).parse().unwrap();
    response.headers_mut().insert("date", date);
    response
}

/// Object Storage with one bucket, and a store that talks to it.
pub struct Scene {
    pub objects: Arc<Objects>,
    pub listening: Listening,
    pub clock: Arc<SetClock>,
    pub retries: Arc<Retries>,
    pub world: World,
}

impl Scene {
    pub async fn new() -> Self {
        let (clock, retries) = (SetClock::new(), Arc::new(Retries::default()));
        let world = World {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            entropy: Arc::new(NoChance),
            events: Arc::clone(&retries) as Arc<dyn Events>,
            pools: Arc::new(Pools::default()),
            breakers: Arc::new(Breakers::default()),
        };
        let kept = Mutex::new(None);
        let listening = Listening::new(|address| {
            let objects = Arc::new(Objects::new(address));
            *kept.lock().unwrap() = Some(Arc::clone(&objects));
            objects
        })
        .await;
        let objects = kept.into_inner().unwrap().unwrap();
        objects.trust(&format!("{TENANCY}/{USER}/{FINGERPRINT}"), &KEY.public);
        Self { objects, listening, clock, retries, world }
    }

    /// With the user's key.
    pub fn spec(&self) -> OciSpec {
        OciSpec {
            namespace: NAMESPACE.to_owned(),
            bucket: BUCKET.to_owned(),
            endpoint: Some(self.listening.url.clone()),
            tenancy_ocid: Some(TENANCY.to_owned()),
            user_ocid: Some(USER.to_owned()),
            key_fingerprint: Some(FINGERPRINT.to_owned()),
            private_key: Some(KEY.pkcs8.clone()),
            // A test breaks what it breaks on purpose.
            transport: TransportOptions { breaker_failures: 0, ..TransportOptions::default() },
            ..OciSpec::default()
        }
    }

    pub fn store(&self) -> Arc<dyn Blob> {
        self.store_of(&self.spec())
    }

    /// One whose objects beyond 256 KiB are cut into parts of that size.
    pub fn store_in_parts(&self) -> Arc<dyn Blob> {
        self.store_of(&self.spec_in_parts())
    }

    pub fn spec_in_parts(&self) -> OciSpec {
        let mut spec = self.spec();
        spec.transport.multipart_threshold_bytes = PART_BYTES as u64;
        spec.transport.multipart_part_bytes = PART_BYTES as u64;
        spec
    }

    pub fn store_of(&self, spec: &OciSpec) -> Arc<dyn Blob> {
        open(spec, BlobScope::Segments, &self.world).unwrap()
    }
}

pub const PART_BYTES: usize = 256 << 10;

/// So many parts, no two alike, and a byte.
pub fn parts(count: usize) -> Bytes {
    let mut bytes = Vec::new();
    for part in 0..count {
        bytes.resize(bytes.len() + PART_BYTES, u8::try_from(part + 1).unwrap());
    }
    bytes.push(0);
    bytes.into()
}

pub fn field<'a>(value: &'a Value, name: &str) -> &'a str {
    value[name].as_str().unwrap_or_default()
}
