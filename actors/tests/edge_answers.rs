//! What one provider hears at the edge and no other: handshakes, fixed answers, and who its client is.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::Arc;

use ankusa_actors::edge::{Answer, Ingest, RequestHead};
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::envelope::{Envelope, VerificationStatus, VerificationTerm};
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::peer_identity::PeerIdentity;
use ankusa_actors::model::source::{Protocol, SourceSpec};
use ankusa_actors::node::Node;
use ankusa_actors::sources::Source;
use bytes::Bytes;
use common::{Bench, EPOCH_MS, HTTP, open_source};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

const SECRET: &str = "it is a secret";

fn source(id: &str, tenant: &str, spec: Value) -> Source {
    let spec: SourceSpec = serde_json::from_value(spec).unwrap();
    let on_verify_failure = spec.on_verify_failure;
    let Protocol { verifier, answers } = spec.protocol().unwrap();
    Source { verifier, answers, on_verify_failure, ..open_source(id, tenant, &[HTTP]) }
}

fn bench() -> Bench {
    let slack =
        json!({"verify": {"type": "slack", "secret": SECRET}, "handshake": {"type": "slack"}});
    let mut flagging = slack.clone();
    flagging["on_verify_failure"] = json!("accept_flag");
    let twitter = json!({"verify": {"type": "twitter", "secret": SECRET}, "handshake": {"type": "twitter_crc"}});
    let mut bench = Bench::default();
    bench.sources = Arc::new(
        [
            source("slack", "default", slack),
            source("flagging", "default", flagging),
            source("twitter", "default", twitter.clone()),
            source("owned", "acme", twitter),
            source("graph", "default", json!({"handshake": {"type": "microsoft_graph"}})),
            source("fixed", "default", json!({"response": {"status": 204}})),
            source("known", "default", json!({"verify": {"type": "mtls", "peers": "cn:sender"}})),
            source("inflating", "default", json!({"verify": {"type": "stream", "secret": SECRET}})),
        ]
        .into_iter()
        .collect(),
    );
    bench
}

fn head(source: &str, query: Option<&str>) -> RequestHead {
    RequestHead {
        method: "POST".to_owned(),
        path: format!("/webhooks/{source}"),
        query: query.map(str::to_owned),
        headers: Vec::new(),
        content_length: None,
        remote: None,
        peer: None,
    }
}

fn with(mut head: RequestHead, headers: &[(&str, &str)]) -> RequestHead {
    let owned = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    head.headers.extend(headers.iter().map(|(name, value)| (owned(name), owned(value))));
    head
}

async fn post(ingest: &Ingest, head: RequestHead, body: impl Into<Bytes>) -> Answer {
    match ingest.admit(&head) {
        Ok(admitted) => ingest.accept(admitted, head, body.into()).await,
        Err(answer) => answer,
    }
}

fn hmac(parts: &[&[u8]]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(SECRET.as_bytes()).unwrap();
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn slack_signed(source: &str, body: &str) -> RequestHead {
    let ts = (EPOCH_MS / 1_000).to_string();
    let digest = hex(&hmac(&[b"v0:", ts.as_bytes(), b":", body.as_bytes()]));
    let signature = format!("v0={digest}");
    with(
        head(source, None),
        &[("x-slack-signature", &signature), ("x-slack-request-timestamp", &ts)],
    )
}

fn text(body: &str) -> Answer {
    Answer::Said {
        status: 200,
        content_type: Bytes::from_static(b"text/plain; charset=utf-8"),
        body: Bytes::copy_from_slice(body.as_bytes()),
        durable: false,
    }
}

fn stored(bench: &Bench) -> Vec<Envelope> {
    let rows = bench.disk.durable_rows(Cf::Hooks);
    rows.iter().map(|(_, value)| Envelope::decode(value).unwrap()).collect()
}

const CHALLENGE: &str = r#"{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV"}"#;

async fn started() -> (Bench, Node) {
    let bench = bench();
    let node = bench.start().await;
    (bench, node)
}

#[tokio::test(start_paused = true)]
async fn a_signed_handshake_is_answered_if_it_verifies_and_never_stored() {
    let (bench, node) = started().await;
    let ingest = &node.handles().ingest;
    bench.events.take();
    let answer = post(ingest, slack_signed("slack", CHALLENGE), CHALLENGE).await;
    assert_eq!(answer, text("3eZbrw1aBm2rZgRNFdxV"));
    let told = "IngestAnswered { source_id: \"slack\", outcome: Handshake, took: 0ns }";
    assert_eq!(bench.events.take(), [told]);
    let answer = post(ingest, head("slack", None), CHALLENGE).await;
    assert_eq!(answer, Answer::verification_failed(":missing_signature"));
    assert_eq!(stored(&bench), []);
    // A hook is a hook.
    let hook = r#"{"type":"event_callback"}"#;
    let answer = post(ingest, slack_signed("slack", hook), hook).await;
    assert_eq!(stored(&bench).len(), 1);
    assert_eq!(answer, Answer::accepted(stored(&bench).remove(0).id));
}

#[tokio::test(start_paused = true)]
async fn a_forged_handshake_is_no_more_than_a_flagged_hook() {
    let (bench, node) = started().await;
    let answer = post(&node.handles().ingest, head("flagging", None), CHALLENGE).await;
    let stored = stored(&bench).remove(0);
    assert_eq!(answer, Answer::accepted(stored.id));
    let term = VerificationTerm::decode(stored.verification.as_ref().unwrap()).unwrap();
    assert_eq!((term.status, term.flagged), (VerificationStatus::Failed, true));
}

#[tokio::test(start_paused = true)]
async fn a_handshake_by_query_is_answered_before_the_body_is_read() {
    let (bench, node) = started().await;
    let ingest = &node.handles().ingest;
    bench.events.take();
    let admitted = |source: &str, query| ingest.admit(&head(source, query)).map(|_admitted| ());
    assert_eq!(admitted("graph", Some("validationToken=a%20b")), Err(text("a b")));
    let refused =
        Answer::handshake(Err(ankusa_actors::model::handshake::HandshakeRefusal::Malformed));
    assert_eq!(admitted("graph", Some("validationToken=%0a")), Err(refused));
    let told = |outcome: &str| {
        format!("IngestAnswered {{ source_id: \"graph\", outcome: {outcome}, took: 0ns }}")
    };
    assert_eq!(bench.events.take(), [told("Handshake"), told("Rejected")]);
    assert_eq!(admitted("graph", Some("a=b")), Ok(()));
    assert_eq!(admitted("fixed", Some("validationToken=a")), Ok(()));
    let bad = with(head("graph", Some("validationToken=a")), &[("x", "\u{7f}")]);
    assert_eq!(ingest.admit(&bad).err(), Some(Answer::invalid_header(b"x")));
}

#[tokio::test(start_paused = true)]
async fn a_get_is_answered_only_for_a_source_that_is_asked_that_way() {
    let (bench, node) = started().await;
    let ingest = &node.handles().ingest;
    let query = Some("crc_token=abc");
    let token = "sha256=";
    let Answer::Said { status: 200, body, durable: false, .. } =
        ingest.get(&head("twitter", query))
    else {
        panic!("not answered")
    };
    assert!(std::str::from_utf8(&body).unwrap().contains(token));
    for source in ["slack", "graph", "fixed", "nobody", "twitter/more", ""] {
        assert_eq!(ingest.get(&head(source, query)), Answer::not_found(), "{source}");
    }
    assert_eq!(stored(&bench), []);
}

#[tokio::test(start_paused = true)]
async fn what_a_handshake_may_have_signed_is_no_hook() {
    let (bench, node) = started().await;
    let ingest = &node.handles().ingest;
    let signed = |body: &str| {
        let digest = hmac(&[body.as_bytes()]);
        let signature = base64::Engine::encode(&base64::prelude::BASE64_STANDARD, digest);
        with(
            head("twitter", None),
            &[("x-twitter-webhooks-signature", &format!("sha256={signature}"))],
        )
    };
    bench.events.take();
    let answer = post(ingest, signed("12345"), "12345").await;
    assert_eq!(answer, Answer::verification_failed(":no_match"));
    assert!(bench.events.take()[0].starts_with("VerifyFailed { source_id: \"twitter\""));
    let answer = post(ingest, signed("{}"), "{}").await;
    assert_eq!(answer, Answer::accepted(stored(&bench).remove(0).id));
}

#[tokio::test(start_paused = true)]
async fn a_fixed_answer_is_for_hooks_that_were_taken() {
    let (bench, node) = started().await;
    let ingest = &node.handles().ingest;
    let taken = Answer::Said {
        status: 204,
        content_type: Bytes::from_static(b"text/plain; charset=utf-8"),
        body: Bytes::new(),
        durable: true,
    };
    assert_eq!(post(ingest, head("fixed", None), "a").await, taken);
    assert_eq!(stored(&bench).len(), 1);
    bench.disk.fail_writes(FailureClass::NoSpace);
    // Nobody knows what became of it, and nothing is said.
    assert_eq!(post(ingest, head("fixed", None), "b").await, Answer::CloseUnanswered);
}

#[tokio::test(start_paused = true)]
async fn a_client_is_let_in_by_the_certificate_of_its_connection() {
    let (bench, node) = started().await;
    let ingest = &node.handles().ingest;
    let peer = |name: &str| {
        Some(Arc::new(PeerIdentity {
            subject: format!("CN={name}"),
            common_names: vec![name.to_owned()],
            dns_names: Vec::new(),
            emails: Vec::new(),
            uris: Vec::new(),
            ips: Vec::new(),
            certificate_sha256: [0; 32],
            public_key_sha256: [0; 32],
        }))
    };
    for (peer, reason) in [(None, ":missing_signature"), (peer("other"), ":no_match")] {
        let head = RequestHead { peer, ..head("known", None) };
        assert_eq!(post(ingest, head, "a").await, Answer::verification_failed(reason));
    }
    let head = RequestHead { peer: peer("sender"), ..head("known", None) };
    let answer = post(ingest, head, "a").await;
    assert_eq!(answer, Answer::accepted(stored(&bench).remove(0).id));
}

#[tokio::test(start_paused = true)]
async fn a_body_signed_before_compression_is_stored_as_it_came_and_inflated_no_further_than_a_body_may_be()
 {
    let (bench, node) = started().await;
    let ingest = &node.handles().ingest;
    let limit = ingest.config.max_body_bytes;
    let compressed = |body: &[u8]| {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        std::io::Write::write_all(&mut encoder, body).unwrap();
        encoder.finish().unwrap()
    };
    let signed = |body: &[u8]| {
        let signature = hex(&hmac(&[body]));
        with(head("inflating", None), &[("x-signature", &signature), ("content-encoding", "gzip")])
    };
    let bomb = vec![b' '; limit + 1];
    let answer = post(ingest, signed(&bomb), compressed(&bomb)).await;
    assert_eq!(answer, Answer::verification_failed(":inflated_body_too_large"));
    let sent = compressed(&bomb[1..]);
    let answer = post(ingest, signed(&bomb[1..]), sent.clone()).await;
    let stored = stored(&bench).remove(0);
    assert_eq!(answer, Answer::accepted(stored.id));
    assert_eq!(stored.body, sent);
}
