//! Every preset and every handshake against a whole node, as its provider sends it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use common::http2::Http2Client;
use common::tls::{Authority, connect};
use common::worker::{self, Worker};
use common::{Answer, Client, TestNode, request};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha1::Sha1;
use sha2::Sha256;

const SECRET: &str = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
const FORGOTTEN: &str = "whsec_8CGq/11JvjhkgLmuLjiFOAJHIj4HRMYNvr3bb0Xjuvw=";
const URL: &str = "https://hooks.example/in";

/// How a request goes to the node.
#[derive(Clone, Copy, Debug)]
enum Sender {
    Http1,
    /// With prior knowledge. Names are in lower case on the wire, whatever the client was given.
    Http2,
}

const SENDERS: [Sender; 2] = [Sender::Http1, Sender::Http2];

impl Sender {
    async fn send(self, node: &TestNode, hook: &Hook, rename: fn(&str) -> String) -> Answer {
        let named = hook.headers.iter().map(|(name, value)| (rename(name), value.as_str()));
        let named: Vec<(String, &str)> = named.collect();
        let headers: Vec<(&str, &str)> =
            named.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        match self {
            Self::Http1 => {
                let asked = request("POST", &hook.target, &headers, &hook.body);
                node.ask(&asked).await.unwrap()
            }
            Self::Http2 => {
                let mut client = Http2Client::tcp(node.http_port).await;
                client.ask("POST", &hook.target, &headers, &hook.body).await.unwrap()
            }
        }
    }
}

const RENAMES: [fn(&str) -> String; 3] = [str::to_owned, str::to_uppercase, str::to_lowercase];

/// A request as a provider sends it.
#[derive(Clone, Debug)]
struct Hook {
    target: String,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

fn hmac_sha256(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hmac_sha1(key: &[u8], text: &[u8]) -> Vec<u8> {
    let mut mac = Hmac::<Sha1>::new_from_slice(key).unwrap();
    mac.update(text);
    mac.finalize().into_bytes().to_vec()
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn b64(bytes: impl AsRef<[u8]>) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn now_ms() -> u64 {
    u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap()
}

/// The key whose seed is this byte.
fn ed25519(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn gzip(body: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut encoder, body).unwrap();
    encoder.finish().unwrap()
}

struct Providers {
    ecdsa: EcdsaKeyPair,
}

const PRESETS: [&str; 19] = [
    "adyen",
    "discord",
    "github",
    "hubspot",
    "intercom",
    "linear",
    "meta",
    "paddle",
    "sendgrid",
    "shopify",
    "slack",
    "square",
    "standard_webhooks",
    "stream",
    "stripe",
    "svix",
    "twilio",
    "twitter",
    "zendesk",
];

impl Providers {
    fn new() -> Self {
        let generated = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING);
        Self { ecdsa: generated.unwrap() }
    }

    /// The `verify` block of a source: the second of two keys is the one hooks are signed with.
    fn block(&self, preset: &str) -> Value {
        match preset {
            "adyen" => json!({"type": preset, "secret": ["00ff", hex(SECRET)]}),
            "discord" => {
                let keys = [ed25519(1), ed25519(2)].map(|key| hex(key.public_key()));
                json!({"type": preset, "public_key": keys})
            }
            "sendgrid" => {
                let other = Self::new().ecdsa;
                let keys = [&other, &self.ecdsa].map(|key| b64(key.public_key()));
                json!({"type": preset, "public_key": keys})
            }
            "hubspot" | "square" | "twilio" => {
                json!({"type": preset, "secret": [FORGOTTEN, SECRET], "url": URL})
            }
            _ => json!({"type": preset, "secret": [FORGOTTEN, SECRET]}),
        }
    }

    /// A hook signed at `at_ms`, with a mark in its body.
    fn hook(&self, preset: &str, mark: &str, at_ms: u64) -> Hook {
        let key = SECRET.as_bytes();
        let ts = (at_ms / 1_000).to_string();
        let mut target = format!("/webhooks/{preset}");
        let mut body = json!({"mark": mark, "webhookTimestamp": at_ms}).to_string().into_bytes();
        let over = |parts: &[&[u8]]| hmac_sha256(key, &parts.concat());
        let standard = |names: [&'static str; 3], body: &[u8]| {
            let [id, timestamp, signature] = names;
            let secret = BASE64_STANDARD.decode(&SECRET["whsec_".len()..]).unwrap();
            let signed = [b"msg_1.", ts.as_bytes(), b".", body].concat();
            let digest = b64(hmac_sha256(&secret, &signed));
            vec![
                (id, "msg_1".to_owned()),
                (timestamp, ts.clone()),
                (signature, format!("v1,AAAA v1,{digest}")),
            ]
        };
        let headers = match preset {
            "adyen" => vec![("HmacSignature", b64(over(&[&body])))],
            "discord" => {
                let signature = ed25519(2).sign(&[ts.as_bytes(), &body].concat());
                vec![("X-Signature-Ed25519", hex(signature)), ("X-Signature-Timestamp", ts)]
            }
            "github" | "meta" => {
                vec![("X-Hub-Signature-256", format!("sha256={}", hex(over(&[&body]))))]
            }
            "hubspot" => {
                target.push_str("?to=a%40b");
                let (url, ts) = (format!("{URL}?to=a@b"), at_ms.to_string());
                let digest = over(&[b"POST", url.as_bytes(), &body, ts.as_bytes()]);
                vec![("X-HubSpot-Signature-v3", b64(digest)), ("X-HubSpot-Request-Timestamp", ts)]
            }
            "intercom" => {
                vec![("X-Hub-Signature", format!("sha1={}", hex(hmac_sha1(key, &body))))]
            }
            "linear" => vec![("Linear-Signature", hex(over(&[&body])))],
            "paddle" => {
                let digest = hex(over(&[ts.as_bytes(), b":", &body]));
                vec![("Paddle-Signature", format!("ts={ts};h1=00;h1={digest}"))]
            }
            "sendgrid" => {
                let signed = [ts.as_bytes(), &body].concat();
                let signature = self.ecdsa.sign(&SystemRandom::new(), &signed).unwrap();
                vec![
                    ("X-Twilio-Email-Event-Webhook-Signature", b64(signature)),
                    ("X-Twilio-Email-Event-Webhook-Timestamp", ts),
                ]
            }
            "shopify" => vec![("X-Shopify-Hmac-SHA256", b64(over(&[&body])))],
            "slack" => {
                let digest = hex(over(&[b"v0:", ts.as_bytes(), b":", &body]));
                vec![
                    ("X-Slack-Signature", format!("v0={digest}")),
                    ("X-Slack-Request-Timestamp", ts),
                ]
            }
            "square" => {
                vec![("x-square-hmacsha256-signature", b64(over(&[URL.as_bytes(), &body])))]
            }
            "standard_webhooks" => {
                standard(["webhook-id", "webhook-timestamp", "webhook-signature"], &body)
            }
            "stream" => {
                let signature = hex(over(&[&body]));
                body = gzip(&body);
                vec![("X-Signature", signature), ("Content-Encoding", "gzip".to_owned())]
            }
            "stripe" => {
                let digest = hex(over(&[ts.as_bytes(), b".", &body]));
                vec![("Stripe-Signature", format!("t={ts},v1={digest},v0=00"))]
            }
            "svix" => standard(["svix-id", "svix-timestamp", "svix-signature"], &body),
            "twilio" => {
                target.push_str("?foo=1");
                body = format!("To=%2B1&From=me+too&Mark={mark}").into_bytes();
                let signed = format!("{URL}?foo=1Frommeto oMark{mark}To+1");
                let signed = signed.replace("meto o", "me too");
                let form = "application/x-www-form-urlencoded; charset=UTF-8".to_owned();
                let signature = b64(hmac_sha1(key, signed.as_bytes()));
                vec![("X-Twilio-Signature", signature), ("Content-Type", form)]
            }
            "twitter" => {
                let signature = format!("sha256={}", b64(over(&[&body])));
                vec![("x-twitter-webhooks-signature", signature)]
            }
            "zendesk" => {
                // Any offset is as good as none.
                let ts = rfc3339(at_ms / 1_000);
                let digest = b64(over(&[ts.as_bytes(), &body]));
                vec![
                    ("X-Zendesk-Webhook-Signature", digest),
                    ("X-Zendesk-Webhook-Signature-Timestamp", ts),
                ]
            }
            other => panic!("no such preset: {other}"),
        };
        Hook { target, headers, body }
    }
}

/// In Universal Time, as `date` writes it.
fn rfc3339(unix_s: u64) -> String {
    let told = std::process::Command::new("date")
        .args(["-u", "-d", &format!("@{unix_s}"), "+%Y-%m-%dT%H:%M:%SZ"])
        .output()
        .unwrap();
    String::from_utf8(told.stdout).unwrap().trim().to_owned()
}

fn sources(providers: &Providers, sink: &Value) -> Value {
    let source = |preset: &str| json!({"verify": providers.block(preset), "sinks": [sink]});
    PRESETS.iter().map(|preset| ((*preset).to_owned(), source(preset))).collect()
}

fn refused(reason: &str) -> Answer {
    let body = format!(r#"{{"error":"verification_failed","reason":":{reason}"}}"#);
    Answer::json(401, &body, &[])
}

#[tokio::test]
async fn every_preset_takes_what_its_provider_sends_in_any_case_and_delivers_it() {
    let worker = Worker::start(worker::Answer::status(200)).await;
    let providers = Providers::new();
    let sources = sources(&providers, &common::node::sink(&worker));
    let node = TestNode::start(json!({"sources": sources})).await;
    let mut sent = Vec::new();
    for sender in SENDERS {
        for (at, rename) in RENAMES.into_iter().enumerate() {
            for preset in PRESETS {
                let hook = providers.hook(preset, &format!("{preset} {at}"), now_ms());
                let answer = sender.send(&node, &hook, rename).await;
                assert_eq!(answer.status, 201, "{preset} {sender:?}: {answer:?}");
                sent.push((answer.id(), preset.to_owned(), hook.body));
            }
        }
    }
    node.drained().await;
    let mut seen: Vec<_> = worker
        .seen()
        .into_iter()
        .map(|seen| {
            assert_eq!(seen.header("x-ankusa-verification"), Some("ok".to_owned()));
            let header = |name| seen.header(name).unwrap();
            (header("x-ankusa-id"), header("x-ankusa-source"), seen.body.to_vec())
        })
        .collect();
    seen.sort();
    sent.sort();
    assert_eq!(seen, sent);
}

#[tokio::test]
async fn every_preset_refuses_what_is_missing_old_or_of_another() {
    let worker = Worker::start(worker::Answer::status(503)).await;
    let providers = Providers::new();
    let sources = sources(&providers, &common::node::sink(&worker));
    let node = TestNode::start(json!({"sources": sources})).await;
    for sender in SENDERS {
        for preset in PRESETS {
            let good = providers.hook(preset, "good", now_ms());
            let send = async |hook: &Hook| sender.send(&node, hook, str::to_owned).await.sorted();
            for at in 0..good.headers.len() {
                let mut less = good.clone();
                let (name, _) = less.headers.remove(at);
                let reason =
                    if name == "Content-Encoding" { "no_match" } else { "missing_signature" };
                assert_eq!(send(&less).await, refused(reason), "{preset} without {name}");
            }
            let changed = providers.hook(preset, "evil", now_ms()).body;
            let forged = Hook { body: changed, ..good.clone() };
            assert_eq!(send(&forged).await, refused("no_match"), "{preset}");
            let is_dated = [
                "discord",
                "hubspot",
                "linear",
                "paddle",
                "sendgrid",
                "slack",
                "standard_webhooks",
                "stripe",
                "svix",
                "zendesk",
            ]
            .contains(&preset);
            let old = send(&providers.hook(preset, "old", now_ms() - 400_000)).await;
            if is_dated {
                assert_eq!(old, refused("timestamp_out_of_tolerance"), "{preset}");
            } else {
                assert_eq!(old.status, 201, "{preset}");
            }
        }
    }
    let undated = 9;
    let hooks = node.hooks().await;
    assert_eq!(hooks.len(), undated * SENDERS.len());
}

#[tokio::test]
async fn a_compression_bomb_is_refused_for_what_it_is() {
    let worker = Worker::start(worker::Answer::status(503)).await;
    let providers = Providers::new();
    let config = json!({
        "http": {"max_body_bytes": 100_000},
        "sources": {"stream": {
            "verify": providers.block("stream"), "sinks": [common::node::sink(&worker)],
        }},
    });
    let node = TestNode::start(config).await;
    let bomb = vec![b' '; 32 << 20];
    let mut hook = providers.hook("stream", "bomb", now_ms());
    hook.headers[0].1 = hex(hmac_sha256(SECRET.as_bytes(), &bomb));
    hook.body = gzip(&bomb);
    assert!(hook.body.len() < 100_000);
    let answer = Sender::Http1.send(&node, &hook, str::to_owned).await.sorted();
    assert_eq!(answer, refused("inflated_body_too_large"));
    hook.body = b"no gzip".to_vec();
    let answer = Sender::Http1.send(&node, &hook, str::to_owned).await.sorted();
    assert_eq!(answer, refused("malformed_body"));
    assert_eq!(node.hooks().await, Vec::<Value>::new());
}

/// What a provider hears that is its own: never taken by a browser for more than it is.
fn said(status: u16, content_type: &str, body: &str, more: &[(&str, &str)]) -> Answer {
    let mut answer = Answer::json(status, body, more);
    answer.headers.retain(|(name, _)| name != "content-type");
    answer.headers.push(("content-type".to_owned(), content_type.to_owned()));
    answer.headers.push(("x-content-type-options".to_owned(), "nosniff".to_owned()));
    answer.sorted()
}

const TEXT: &str = "text/plain; charset=utf-8";

#[tokio::test]
async fn every_handshake_is_answered_and_nothing_is_stored() {
    let worker = Worker::start(worker::Answer::status(503)).await;
    let providers = Providers::new();
    let with = |preset: &str, handshake: Value| {
        let sinks = [common::node::sink(&worker)];
        json!({"verify": providers.block(preset), "handshake": handshake, "sinks": sinks})
    };
    let graph =
        json!({"handshake": {"type": "microsoft_graph"}, "sinks": [common::node::sink(&worker)]});
    let node = TestNode::start(json!({"sources": {
        "slack": with("slack", json!({"type": "slack"})),
        "discord": with("discord", json!({"type": "discord"})),
        "meta": with("meta", json!({"type": "meta", "verify_token": ["new", "my token"]})),
        "twitter": with("twitter", json!({"type": "twitter_crc"})),
        "graph": graph,
        "github": {"verify": providers.block("github"), "sinks": [common::node::sink(&worker)]},
    }}))
    .await;
    let get = async |target: &str| node.get(target).await.sorted();
    let asked = "/webhooks/meta?hub.mode=subscribe&hub.challenge=1158201444&hub.verify_token=";
    assert_eq!(get(&format!("{asked}my+token")).await, said(200, TEXT, "1158201444", &[]));
    let forbidden = Answer::json(403, r#"{"error":"handshake_forbidden"}"#, &[]);
    assert_eq!(get(&format!("{asked}my")).await, forbidden);
    let invalid = Answer::json(400, r#"{"error":"invalid_handshake"}"#, &[]);
    assert_eq!(get("/webhooks/meta").await, invalid);

    let token = b64(hmac_sha256(FORGOTTEN.as_bytes(), b"abc-1"));
    let body = format!(r#"{{"response_token":"sha256={token}"}}"#);
    let answer = get("/webhooks/twitter?crc_token=abc-1&nonce=x").await;
    assert_eq!(answer, said(200, "application/json", &body, &[]));

    let asked = request("POST", "/webhooks/graph?validationToken=Validation%3A%20a", &[], b"x");
    let answer = node.ask(&asked).await.unwrap().sorted();
    assert_eq!(answer, said(200, TEXT, "Validation: a", &[]));

    let ts = (now_ms() / 1_000).to_string();
    let body = br#"{"type":"url_verification","challenge":"3eZbrw1aBm2rZgRNFdxV"}"#;
    let digest = hmac_sha256(SECRET.as_bytes(), &[b"v0:", ts.as_bytes(), b":", body].concat());
    let signature = format!("v0={}", hex(digest));
    let headers = [("x-slack-signature", signature.as_str()), ("x-slack-request-timestamp", &ts)];
    let answer = node.ask(&request("POST", "/webhooks/slack", &headers, body)).await.unwrap();
    assert_eq!(answer.sorted(), said(200, TEXT, "3eZbrw1aBm2rZgRNFdxV", &[]));
    let answer = node.ask(&request("POST", "/webhooks/slack", &[], body)).await.unwrap();
    assert_eq!(answer.sorted(), refused("missing_signature"));

    let body = br#"{"version":1,"application_id":"1","type":0}"#;
    let signature = hex(ed25519(2).sign(&[ts.as_bytes(), body].concat()));
    let headers = [("x-signature-ed25519", signature.as_str()), ("x-signature-timestamp", &ts)];
    let answer = node.ask(&request("POST", "/webhooks/discord", &headers, body)).await.unwrap();
    assert_eq!((answer.status, answer.text()), (204, String::new()));

    let not_found = Answer::json(404, r#"{"error":"not_found"}"#, &[]);
    for target in ["/webhooks/github?crc_token=a", "/webhooks/slack", "/webhooks/nobody"] {
        assert_eq!(get(target).await, not_found, "{target}");
    }
    assert_eq!(node.hooks().await, Vec::<Value>::new());
    assert_eq!(node.status().await["next_seq"], 1);
}

#[tokio::test]
async fn a_source_knows_its_client_by_the_certificate_of_the_connection() {
    let worker = Worker::start(worker::Answer::status(503)).await;
    let (authority, clients) = (Authority::new("authority"), Authority::new("clients"));
    let own = authority.sign("node");
    let known = json!({
        "verify": {"type": "mtls", "peers": ["cn:nobody", "cn:sender"]},
        "sinks": [common::node::sink(&worker)],
    });
    let mut node = TestNode::new(json!({"sources": {"known": known}}));
    let tls = json!({
        "cert_file": node.file("node.pem", &own.certificate),
        "key_file": node.file("node.key", &own.key),
        "client_ca_file": node.file("clients.pem", &clients.pem),
    });
    node.configure(json!({"http": {"tls": tls}}));
    node.boot().await;
    let (sender, other) = (clients.sign("sender"), clients.sign("other"));
    // What a header says of certificates is worth nothing.
    let lies =
        [("x-forwarded-client-cert", "Subject=CN=sender"), ("x-ssl-client-s-dn", "CN=sender")];
    for (pair, reason) in
        [(None, Some("missing_signature")), (Some(&other), Some("no_match")), (Some(&sender), None)]
    {
        let asked = request("POST", "/webhooks/known", &lies, b"x");
        let client = authority.client(pair, &[]);
        let mut http1 = Client::try_tls(node.http_port, client).await.unwrap();
        let stream = connect(node.http_port, authority.client(pair, &["h2"])).await.unwrap();
        let mut http2 = Http2Client::over(stream).await;
        let by_http2 = http2.ask("POST", "/webhooks/known", &lies, b"x").await.unwrap();
        for answer in [http1.ask(&asked).await.unwrap(), by_http2] {
            match reason {
                Some(reason) => assert_eq!(answer.sorted(), refused(reason)),
                None => assert_eq!(answer.status, 201),
            }
        }
    }
    assert_eq!(node.hooks().await.len(), SENDERS.len());
}

#[tokio::test]
async fn a_source_says_what_it_was_told_to_when_a_hook_was_taken() {
    let worker = Worker::start(worker::Answer::status(200)).await;
    let told =
        |response: Value| json!({"response": response, "sinks": [common::node::sink(&worker)]});
    let node = TestNode::start(json!({"sources": {
        "xml": told(json!({"status": 202, "body": "<Response/>", "content_type": "text/xml"})),
        "text": told(json!({"body": "[accepted]"})),
        "empty": told(json!({"status": 204})),
    }}))
    .await;
    let durable = [("ankusa-durability", "fsync")];
    let answer = node.post("/webhooks/xml", b"1").await.sorted();
    assert_eq!(answer, said(202, "text/xml", "<Response/>", &durable));
    let answer = node.post("/webhooks/text", b"2").await.sorted();
    assert_eq!(answer, said(200, TEXT, "[accepted]", &durable));
    let answer = node.post("/webhooks/empty", b"3").await;
    assert_eq!((answer.status, answer.text()), (204, String::new()));
    assert_eq!(answer.header("ankusa-durability"), Some("fsync"));
    node.drained().await;
    let mut bodies: Vec<_> = worker.seen().into_iter().map(|seen| seen.body).collect();
    bodies.sort();
    assert_eq!(bodies, ["1", "2", "3"]);
}

#[tokio::test]
async fn a_source_of_the_api_is_held_to_the_same_and_works_at_once() {
    let node = TestNode::start(json!({"source_store": {"type": "persistent"}})).await;
    let sources = "/v1/tenants/acme/sources";
    let tell = async |keys: Value| {
        let mut spec = json!({"name": "asked", "sinks": [{"type": "log"}]});
        spec.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
        let mut client = Client::tcp(node.admin_port).await;
        let body = spec.to_string();
        client.ask(&request("POST", sources, &[], body.as_bytes())).await.unwrap()
    };
    for (keys, message) in [
        (
            json!({"verify": {"type": "discord", "public_key": ["00"]}}),
            "verify.public_key[0]: must be an Ed25519 public key",
        ),
        (json!({"verify": {"type": "adyen", "secret": "no hex"}}), "verify.secret: must be hex"),
        (
            json!({"verify": {"type": "bearer", "secret": ["a", ""]}}),
            "verify.secret[1]: must not be empty",
        ),
        (
            json!({"verify": {"type": "square", "secret": "a"}}),
            "verify.url: is required with type square: the URL is signed",
        ),
        (json!({"handshake": {"type": "slack"}}), "handshake.type: slack needs verify.type slack"),
        (
            json!({"response": {"status": 204, "body": "a"}}),
            "response.body: must be empty with status 204",
        ),
    ] {
        let answer = tell(keys).await;
        let expected = json!({"error": "invalid_source", "message": message});
        assert_eq!((answer.status, answer.value()), (400, expected));
    }
    let asked = "/webhooks/acme.asked?hub.mode=subscribe&hub.challenge=7&hub.verify_token=t";
    assert_eq!(node.get(asked).await.status, 404);
    let created = tell(json!({"handshake": {"type": "meta", "verify_token": "t"}})).await;
    assert_eq!(created.status, 201);
    let shown = json!({"type": "meta", "verify_token": "[REDACTED]"});
    assert_eq!(created.value()["handshake"], shown);
    assert_eq!(node.get(asked).await.sorted(), said(200, TEXT, "7", &[]));
}
