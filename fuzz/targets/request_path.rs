//! Bytes on a connection, through the HTTP parser with the node's settings, to the verdict: no panic, an answer from the
//! documented set, and no request that the node's own reading of the bytes did not see begin where the parser saw it.
#![no_main]
#![allow(dead_code)]

use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ankusa_actors::edge::{
    Answer, BodyFailure, Ingest, IngestConfig, LimitsHandle, QuarantineConfig, QuarantineHandle,
    RequestHead, Routing,
};
use ankusa_actors::model::forward::ForwardPolicy;
use ankusa_actors::model::rate_limit::Limits;
use ankusa_actors::model::source::OnVerifyFailure;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::model::verify::VerifySpec;
use ankusa_actors::ports::sim::{JournalEvents, SimClock, SimEntropy};
use ankusa_actors::sources::{Answers, LaneRules, Source, Sources, Switches};
use ankusa_actors::store::StoreHandle;
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use libfuzzer_sys::fuzz_target;
use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
use tokio::runtime::{Builder, Runtime};

#[path = "../../src/front/framing.rs"]
mod framing;

use framing::Framing;

const MAX_BODY_BYTES: usize = 256;
const MAX_HEAD_BYTES: usize = 8_192;

static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().build().unwrap());

static INGEST: LazyLock<Arc<Ingest>> = LazyLock::new(|| Arc::new(ingest()));

fn source(id: &str, verify: &str) -> Source {
    let spec: VerifySpec = serde_json::from_str(verify).unwrap();
    let verifier = spec.build().unwrap();
    Source {
        id: id.to_owned(),
        tenant: "default".to_owned(),
        passed: verifier.passed(),
        verifier,
        answers: Answers::default(),
        on_verify_failure: OnVerifyFailure::Reject,
        sinks: Vec::new(),
        modules: Arc::from([]),
        lanes: LaneRules::default(),
        dedupe: None,
        forward: ForwardPolicy::default(),
        trust_url_tenant: false,
        rate_limit: Limits::default(),
        switches: Switches::default(),
    }
}

/// Without batchers behind it: what passes every check is `store_unavailable`.
fn ingest() -> Ingest {
    let sources: Sources = [
        source("open", r#"{"type":"none"}"#),
        source("github", r#"{"type":"github","secret":"key"}"#),
        source("stripe", r#"{"type":"stripe","secret":"key"}"#),
        source("slack", r#"{"type":"slack","secret":"key"}"#),
        source("svix", r#"{"type":"svix","secret":"whsec_a2V5"}"#),
        source("std", r#"{"type":"standard_webhooks","secret":"whsec_a2V5"}"#),
    ]
    .into_iter()
    .collect();
    Ingest {
        config: IngestConfig {
            routing: Routing::Path,
            prefix: "/w".to_owned(),
            max_body_bytes: MAX_BODY_BYTES,
            trusted_proxies: Arc::default(),
        },
        guard: None,
        sources: Arc::new(sources).into(),
        batchers: Arc::from([]),
        limits: LimitsHandle::default(),
        quarantine: QuarantineHandle::new(
            &QuarantineConfig::default(),
            Duration::from_secs(2),
            ValueVersion::V0,
            &StoreHandle::default(),
        ),
        clock: Arc::new(SimClock::at(1_700_000_000_000)),
        entropy: Arc::new(SimEntropy::seeded(7)),
        events: Arc::<JournalEvents>::default(),
        turn: AtomicUsize::new(0),
    }
}

async fn read(mut body: Incoming) -> Result<Bytes, BodyFailure> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| BodyFailure::Disconnected)?;
        let Ok(data) = frame.into_data() else { continue };
        if whole.len() + data.len() > MAX_BODY_BYTES {
            return Err(BodyFailure::TooLarge);
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.into())
}

async fn answer(request: Request<Incoming>, is_ambiguous: bool) -> Answer {
    let (parts, body) = request.into_parts();
    if is_ambiguous {
        return INGEST.body_failed(BodyFailure::Ambiguous);
    }
    let length = parts.headers.get(CONTENT_LENGTH);
    let copied = |bytes: &[u8]| Bytes::copy_from_slice(bytes);
    let head = RequestHead {
        method: parts.method.as_str().to_owned(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (copied(name.as_str().as_bytes()), copied(value.as_bytes())))
            .collect(),
        content_length: length.and_then(|value| value.to_str().ok()?.parse().ok()),
        remote: None,
        peer: None,
    };
    let admitted = match INGEST.admit(&head) {
        Ok(admitted) => admitted,
        Err(refused) => return refused,
    };
    match read(body).await {
        Ok(body) => INGEST.accept(admitted, head, body).await,
        Err(failure) => INGEST.body_failed(failure),
    }
}

fn response(answer: Answer, closes: bool) -> Response<Full<Bytes>> {
    let Answer::Send { status, body, .. } = answer else { panic!("closed unanswered") };
    assert!([400, 401, 404, 413, 503].contains(&status), "{status} {body}");
    let told: serde_json::Value = serde_json::from_str(&body).unwrap();
    assert!(told["error"].is_string());
    let mut response = Response::new(Full::from(body));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
    if closes || status == 413 || status == 400 {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

async fn serve(bytes: &[u8]) {
    let mut framing = Framing::new();
    framing.see(bytes);
    let (heads, ambiguous) = (framing.heads(), framing.first_ambiguous());
    let asked = AtomicU64::new(0);
    let service = service_fn(|request: Request<Incoming>| {
        let number = asked.fetch_add(1, Ordering::Relaxed);
        // Where the parser finds a request, one was seen; and nothing is read behind one that was refused for its head.
        assert!(number < heads || ambiguous == Some(number), "{number} of {heads}, {ambiguous:?}");
        async move {
            let is_ambiguous = ambiguous == Some(number);
            Ok::<_, Infallible>(response(answer(request, is_ambiguous).await, is_ambiguous))
        }
    });
    let (mut client, server) = duplex(1 << 20);
    client.write_all(bytes).await.unwrap();
    client.shutdown().await.unwrap();
    let served = http1::Builder::new()
        .max_headers(20)
        .max_buf_size(MAX_HEAD_BYTES)
        .max_header_size(MAX_HEAD_BYTES)
        .half_close(true)
        .serve_connection(TokioIo::new(server), service);
    let _ = served.await;
    let mut said = Vec::new();
    let _ = client.read_to_end(&mut said).await;
    assert!(said.is_empty() || said.starts_with(b"HTTP/1."));
}

fuzz_target!(|bytes: &[u8]| RUNTIME.block_on(serve(bytes)));
