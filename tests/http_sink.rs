//! What a worker gets, what its answers come to, and where no delivery goes: the HTTP sink against real servers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "common/worker.rs"]
mod worker;

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use ankusa_actors::model::egress::{Egress, EgressConfig};
use ankusa_actors::model::envelope::{Envelope, VerificationStatus, VerificationTerm};
use ankusa_actors::model::forward::{self, ForwardPolicy};
use ankusa_actors::model::ids::HookId;
use ankusa_actors::model::sink_spec::{
    HttpSinkMethod, HttpSinkSpec, LogSinkSpec, SinkSecret, SinkSpec, SinkSpecError,
};
use ankusa_actors::model::standard_webhooks::Signer;
use ankusa_actors::ports::{Clock, Delivery, Outcome, Sink};
use ankusa_node::sinks::{self, HttpSink, Lookup, Outbound, check_url};
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use worker::{Answer, RawWorker, Seen, Then, Worker, nobody, same_port};

/// Sun, 06 Nov 1994 08:49:37.250 GMT: when everything here is sent.
const NOW_MS: u64 = 784_111_777_250;
const ID: &str = "01890eb6-ac96-7000-8000-000000000000";

struct At(u64);

impl Clock for At {
    fn now_ms(&self) -> u64 {
        self.0
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(At(NOW_MS))
}

/// Loopback over plain http, as for a worker on the same machine.
fn open() -> Egress {
    Egress::new(&EgressConfig { allow_http: true, allow_private: true, allow: vec![] }).unwrap()
}

fn only(allow: &[&str]) -> Egress {
    let allow = allow.iter().map(|entry| (*entry).into()).collect();
    Egress::new(&EgressConfig { allow_http: true, allow_private: false, allow }).unwrap()
}

fn hook() -> Envelope {
    Envelope {
        id: HookId::parse(ID).unwrap(),
        source_id: "github".into(),
        tenant_id: None,
        received_at_ms: 1_688_169_000_086,
        method: "POST".into(),
        path: "/in/github".into(),
        headers: vec![],
        content_type: None,
        body: Bytes::from_static(b"{}"),
        dedupe_key: None,
        verification: None,
    }
}

fn hook_with(change: impl FnOnce(&mut Envelope)) -> Envelope {
    let mut hook = hook();
    change(&mut hook);
    hook
}

fn delivery(envelope: Envelope) -> Delivery {
    let forwarded = forward::headers(&envelope, &ForwardPolicy::All);
    let tenant_id = envelope.tenant().to_owned();
    Delivery { envelope: Arc::new(envelope), tenant_id, attempt: 1, replay_id: None, forwarded }
}

fn unsigned(url: impl Into<String>) -> HttpSinkSpec {
    let mut spec = HttpSinkSpec::new(url);
    spec.allow_unsigned = true;
    spec
}

fn spec_with(url: impl Into<String>, change: impl FnOnce(&mut HttpSinkSpec)) -> HttpSinkSpec {
    let mut spec = unsigned(url);
    change(&mut spec);
    spec
}

fn outbound(egress: Egress) -> Outbound {
    Outbound::new(egress, clock())
}

fn sink(spec: &HttpSinkSpec) -> HttpSink {
    HttpSink::new(spec, &outbound(open())).unwrap()
}

fn refused(spec: &HttpSinkSpec, outbound: &Outbound) -> String {
    HttpSink::new(spec, outbound).err().unwrap().to_string()
}

/// Delivers to a worker that answers 200, and tells what it saw.
async fn seen(envelope: Envelope, change: impl FnOnce(&mut HttpSinkSpec)) -> Seen {
    let worker = Worker::start(Answer::status(200)).await;
    let outcome = sink(&spec_with(worker.url("/"), change)).deliver(&delivery(envelope)).await;
    assert_eq!(outcome, Outcome::Ok);
    worker.last()
}

fn text(headers: &[(String, Vec<u8>)]) -> Vec<(&str, &str)> {
    headers
        .iter()
        .map(|(name, value)| (name.as_str(), std::str::from_utf8(value).unwrap()))
        .collect()
}

mod request {
    use super::*;

    #[tokio::test]
    async fn every_header_is_sent_in_the_documented_order() {
        let worker = Worker::start(Answer::status(204)).await;
        let spec = spec_with(worker.url("/hooks?to=a%20b"), |spec| {
            spec.secret =
                Some(SinkSecret::List(vec!["a raw shared secret".into(), "whsec_AAEC".into()]));
            spec.headers = BTreeMap::from([("X-B".into(), "2".into()), ("X-A".into(), "1".into())]);
        });
        let envelope = hook_with(|hook| {
            let header = |name: &'static str, value: &'static str| (name.into(), value.into());
            hook.headers = vec![
                header("Host", "hooks.example"),
                header("User-Agent", "GitHub-Hookshot/1"),
                header("X-A", "theirs"),
                header("X-GitHub-Event", "push"),
                header("Content-Type", "application/json"),
                header("Webhook-Id", "theirs"),
                header("X-Ankusa-Id", "forged"),
                header("Authorization", "Bearer theirs"),
                header("x-github-event", "again"),
            ];
            hook.content_type = Some("application/json".into());
            hook.tenant_id = Some("acme".into());
            hook.dedupe_key = Some("evt:1".into());
            hook.verification = Some(verification(VerificationStatus::Failed, true).into());
        });
        let delivery = Delivery { replay_id: Some("job-1".into()), ..delivery(envelope) };

        assert_eq!(sink(&spec).deliver(&delivery).await, Outcome::Ok);

        let seen = worker.last();
        let signer = Signer::new(&["a raw shared secret", "whsec_AAEC"]).ok().unwrap();
        assert_eq!((seen.method.as_str(), seen.target.as_str()), ("POST", "/hooks?to=a%20b"));
        let expected = [
            ("user-agent", "GitHub-Hookshot/1"),
            ("x-github-event", "push, again"),
            ("x-ankusa-id", ID),
            ("x-ankusa-idempotency-key", "acme:github:evt:1"),
            ("x-ankusa-source", "github"),
            ("content-type", "application/json"),
            ("x-ankusa-tenant", "acme"),
            ("x-ankusa-dedupe-key", "evt:1"),
            ("x-ankusa-replay-id", "job-1"),
            ("x-ankusa-received-at", "1688169000086"),
            (
                "x-ankusa-body-sha256",
                "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            ),
            ("x-ankusa-verification", "failed"),
            ("x-ankusa-verification-flagged", "true"),
            ("webhook-id", ID),
            ("webhook-timestamp", "784111777"),
            ("webhook-signature", &signer.sign(ID, 784_111_777, b"{}")),
            ("x-a", "1"),
            ("x-b", "2"),
            ("accept", "*/*"),
            ("host", &worker.address.to_string()),
            ("content-length", "2"),
        ];
        assert_eq!(text(&seen.headers), expected);
        assert_eq!(seen.body, "{}");
    }

    #[tokio::test]
    async fn a_hook_that_says_nothing_has_the_headers_that_are_always_there() {
        let seen = seen(hook_with(|hook| hook.dedupe_key = Some(Bytes::new())), |_| {}).await;
        let host = seen.header("host").unwrap();
        let expected = [
            ("x-ankusa-id", ID),
            ("x-ankusa-idempotency-key", ID),
            ("x-ankusa-source", "github"),
            ("content-type", "application/octet-stream"),
            ("x-ankusa-received-at", "1688169000086"),
            (
                "x-ankusa-body-sha256",
                "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
            ),
            ("accept", "*/*"),
            ("host", &host),
            ("content-length", "2"),
        ];
        assert_eq!(text(&seen.headers), expected);
    }

    #[tokio::test]
    async fn the_verification_is_told_by_its_status() {
        for (status, flagged, expected) in [
            (VerificationStatus::Ok, false, (Some("ok"), None)),
            (VerificationStatus::Skipped, false, (Some("skipped"), None)),
            (VerificationStatus::Failed, true, (Some("failed"), Some("true"))),
        ] {
            let seen = seen(
                hook_with(|hook| hook.verification = Some(verification(status, flagged).into())),
                |_| {},
            );
            let seen = seen.await;
            let told = (
                seen.header("x-ankusa-verification"),
                seen.header("x-ankusa-verification-flagged"),
            );
            assert_eq!((told.0.as_deref(), told.1.as_deref()), expected);
        }
        let damaged =
            seen(hook_with(|hook| hook.verification = Some("damaged".into())), |_| {}).await;
        assert_eq!(damaged.header("x-ankusa-verification"), None);
    }

    fn verification(status: VerificationStatus, flagged: bool) -> Vec<u8> {
        let provider = Some("Elixir.Ankusa.Verifier.Hmac".into());
        VerificationTerm {
            status,
            provider,
            scheme: None,
            reason_text: Some("no_match".into()),
            flagged,
        }
        .encode()
    }

    #[tokio::test]
    async fn the_body_is_sent_byte_for_byte() {
        let everything: Vec<u8> = (0..=255).collect();
        for body in [
            Vec::new(),
            b"\0".to_vec(),
            b"a\0b\xff\xc3\x28\r\n\r\n".to_vec(),
            everything.repeat(8192),
        ] {
            let seen = seen(hook_with(|hook| hook.body = body.clone().into()), |_| {}).await;
            assert!(seen.body == body, "{} bytes", body.len());
            assert_eq!(seen.header("content-length"), Some(body.len().to_string()));
        }
    }

    #[tokio::test]
    async fn the_method_is_the_configured_one() {
        for (method, expected) in [
            (HttpSinkMethod::Post, "POST"),
            (HttpSinkMethod::Put, "PUT"),
            (HttpSinkMethod::Patch, "PATCH"),
        ] {
            assert_eq!(seen(hook(), |spec| spec.method = method).await.method, expected);
        }
    }

    #[tokio::test]
    async fn no_more_headers_are_forwarded_than_a_map_can_hold() {
        let many = (0..100_000).map(|n| (format!("x-{n}"), "v".into())).collect();
        let worker = RawWorker::start(b"HTTP/1.1 204 x\r\n\r\n", Then::Close).await;
        let sink = sink(&unsigned(format!("http://{}", worker.address)));
        let delivery = Delivery { forwarded: many, ..delivery(hook()) };
        assert_eq!(sink.deliver(&delivery).await, Outcome::Ok);
        let request = String::from_utf8(worker.requests().remove(0)).unwrap();
        assert!(request.contains("\r\nx-255: v\r\nx-ankusa-id: "), "{request}");
    }

    #[tokio::test]
    async fn credentials_in_the_url_become_an_authorization_header() {
        let credentials =
            |spec: &mut HttpSinkSpec| spec.url = spec.url.replace("//", "//us%40er:pass@");
        let seen_one = seen(hook(), credentials).await;
        assert_eq!(
            seen_one.header("authorization"),
            Some(format!("Basic {}", STANDARD.encode("us@er:pass")))
        );
        assert_eq!(seen_one.target, "/");
        let configured = seen(hook(), |spec| {
            credentials(spec);
            spec.headers = BTreeMap::from([("Authorization".into(), "Bearer ours".into())]);
        });
        assert_eq!(configured.await.header("authorization").as_deref(), Some("Bearer ours"));
    }

    #[tokio::test]
    async fn configured_headers_win_over_forwarded_ones_and_over_the_content_type() {
        let envelope = hook_with(|hook| {
            hook.headers =
                vec![("User-Agent".into(), "theirs".into()), ("X-Other".into(), "kept".into())];
            hook.content_type = Some("text/plain".into());
        });
        let seen = seen(envelope, |spec| {
            let ours = [
                ("USER-AGENT", "ours"),
                ("Content-Type", "application/cloudevents+json"),
                ("Host", "inner"),
            ];
            spec.headers = ours.map(|(name, value)| (name.into(), value.into())).into();
        });
        let seen = seen.await;
        let values = |name: &str| seen.headers.iter().filter(|(known, _)| known == name).count();
        for (name, value) in [
            ("user-agent", "ours"),
            ("content-type", "application/cloudevents+json"),
            ("host", "inner"),
            ("x-other", "kept"),
        ] {
            assert_eq!((seen.header(name).as_deref(), values(name)), (Some(value), 1), "{name}");
        }
    }

    #[tokio::test]
    async fn an_unsigned_delivery_forwards_the_providers_own_signature() {
        let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
        let envelope = hook_with(|hook| {
            hook.headers = names.map(|name| (name.into(), "theirs".into())).into()
        });
        let unsigned = seen(envelope.clone(), |_| {}).await;
        let signed = seen(envelope, |spec| spec.secret = Some(SinkSecret::one("ours"))).await;
        assert_eq!(names.map(|name| unsigned.header(name).unwrap()), ["theirs"; 3]);
        let signature = Signer::new(&["ours"]).ok().unwrap().sign(ID, 784_111_777, b"{}");
        assert_eq!(names.map(|name| signed.header(name).unwrap()), [ID, "784111777", &signature]);
    }

    #[tokio::test]
    async fn bytes_that_are_no_text_are_sent_as_they_are_and_what_http_forbids_is_not_sent() {
        let envelope = hook_with(|hook| {
            let header = |name: &'static [u8], value: &'static [u8]| (name.into(), value.into());
            hook.headers = vec![
                header(b"x-latin", b"J\xfcrgen"),
                header(b"x-utf8", b"caf\xc3\xa9"),
                header(b"x-latin", b"two"),
                header(b"x-smuggled", b"a\r\nx-ankusa-id: forged"),
                header(b"x-nul", b"a\0"),
                header(b"x bad", b"name"),
            ];
            hook.content_type = Some(Bytes::from_static(b"text/\xff"));
            hook.dedupe_key = Some(Bytes::from_static(b"\xfe1"));
        });
        let seen = seen(envelope, |_| {}).await;
        let value = |name: &str| {
            seen.headers.iter().find(|(known, _)| known == name).map(|(_, v)| v.as_slice())
        };
        assert_eq!(value("x-latin"), Some(&b"J\xfcrgen, two"[..]));
        assert_eq!(value("x-utf8"), Some("café".as_bytes()));
        assert_eq!(value("content-type"), Some(&b"text/\xff"[..]));
        assert_eq!(value("x-ankusa-dedupe-key"), Some(&b"\xfe1"[..]));
        assert_eq!(value("x-ankusa-idempotency-key"), Some(&b"default:github:\xfe1"[..]));
        assert_eq!([value("x-smuggled"), value("x-nul"), value("x bad")], [None; 3]);
        assert_eq!(value("x-ankusa-id"), Some(ID.as_bytes()));
    }

    #[tokio::test]
    async fn a_dedupe_key_that_no_header_can_hold_travels_as_its_digest() {
        let envelope = hook_with(|hook| {
            hook.dedupe_key = Some("a\nb".into());
            hook.content_type = Some("text/plain\r\nx: y".into());
        });
        let seen = seen(envelope, |_| {}).await;
        let digest = "sha256:7e18f737311b2dc3b2f269dd78396b0351f14fb66efa879f768cb23181883c78";
        assert_eq!(seen.header("x-ankusa-dedupe-key").as_deref(), Some(digest));
        assert_eq!(
            seen.header("x-ankusa-idempotency-key"),
            Some(format!("default:github:{digest}"))
        );
        assert_eq!(seen.header("content-type").as_deref(), Some("application/octet-stream"));
    }

    #[tokio::test]
    async fn a_fragment_is_never_sent() {
        assert_eq!(seen(hook(), |spec| spec.url.push_str("a?b#c")).await.target, "/a?b");
    }

    #[test]
    fn signatures_are_those_of_the_golden_file() {
        let golden = include_str!("golden/standard_webhooks.json");
        let golden: Vec<serde_json::Value> = serde_json::from_str(golden).unwrap();
        assert_eq!(golden.len(), 4);
        for vector in golden {
            let field = |name: &str| vector[name].as_str().unwrap().to_owned();
            let body = STANDARD.decode(field("body_base64")).unwrap();
            let signer = Signer::new(&[field("secret")]).ok().unwrap();
            let signature = signer.sign(&field("id"), vector["timestamp"].as_u64().unwrap(), &body);
            assert_eq!(signature, field("signature"));
        }
    }
}

mod answer {
    use super::*;

    async fn outcome(answer: Answer) -> Outcome {
        let worker = Worker::start(answer).await;
        sink(&unsigned(worker.url("/"))).deliver(&delivery(hook())).await
    }

    #[tokio::test]
    async fn every_status_comes_to_what_the_table_says() {
        let permanent = |status: u16| Outcome::Permanent(format!("worker answered {status}"));
        let retry = |status: u16| Outcome::Retry(format!("worker answered {status}"));
        let redirect = |status: u16| {
            Outcome::Retry(format!("worker answered {status}, and redirects are not followed"))
        };
        let later = |status: u16| Outcome::RetryAfter {
            ms: 7_000,
            reason: format!("worker answered {status}"),
        };
        let same = |status: u16, both: fn(u16) -> Outcome| (status, both(status), both(status));
        for (status, outcome_alone, outcome_with_retry_after) in [
            same(200, |_| Outcome::Ok),
            same(201, |_| Outcome::Ok),
            same(202, |_| Outcome::Ok),
            same(204, |_| Outcome::Ok),
            same(299, |_| Outcome::Ok),
            (300, redirect(300), redirect(300)),
            (301, redirect(301), redirect(301)),
            (302, redirect(302), redirect(302)),
            (304, redirect(304), redirect(304)),
            (308, redirect(308), redirect(308)),
            (400, permanent(400), permanent(400)),
            (401, permanent(401), permanent(401)),
            (402, retry(402), retry(402)),
            (403, permanent(403), permanent(403)),
            (404, permanent(404), permanent(404)),
            (405, retry(405), retry(405)),
            (408, retry(408), later(408)),
            (409, retry(409), retry(409)),
            (410, permanent(410), permanent(410)),
            (413, permanent(413), permanent(413)),
            (422, permanent(422), permanent(422)),
            (425, retry(425), retry(425)),
            (429, retry(429), later(429)),
            (500, retry(500), later(500)),
            (503, retry(503), later(503)),
            (599, retry(599), later(599)),
            (600, retry(600), retry(600)),
        ] {
            assert_eq!(outcome(Answer::status(status)).await, outcome_alone, "{status}");
            let with = Answer::status(status).header("retry-after", "7");
            assert_eq!(outcome(with).await, outcome_with_retry_after, "{status} with retry-after");
        }
    }

    #[tokio::test]
    async fn retry_after_may_be_a_date_and_the_first_one_counts() {
        let wait =
            |retry_after: &str| outcome(Answer::status(503).header("retry-after", retry_after));
        let reason = || "worker answered 503".to_owned();
        let in_a_second = Outcome::RetryAfter { ms: 750, reason: reason() };
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:38 GMT").await, in_a_second);
        assert_eq!(wait("Sun, 06 Nov 1994 08:49:37 GMT").await, Outcome::Retry(reason()));
        assert_eq!(wait("tomorrow").await, Outcome::Retry(reason()));
        let twice = Answer::status(503).header("retry-after", "1").header("retry-after", "2");
        assert_eq!(outcome(twice).await, Outcome::RetryAfter { ms: 1_000, reason: reason() });
    }

    #[tokio::test]
    async fn a_redirect_is_not_followed() {
        let elsewhere = Worker::start(Answer::status(200)).await;
        for status in [301, 302, 303, 307, 308] {
            let answer = Answer::status(status).header("location", elsewhere.url("/stolen"));
            let reason = format!("worker answered {status}, and redirects are not followed");
            assert_eq!(outcome(answer).await, Outcome::Retry(reason));
        }
        assert_eq!(elsewhere.connections(), 0);
    }

    #[tokio::test]
    async fn compressed_answers_and_cookies_are_nothing_to_us() {
        let answer = Answer::status(200)
            .header("content-encoding", "gzip")
            .header("set-cookie", "a=b")
            .body(&b"this is no gzip"[..]);
        let worker = Worker::start(answer).await;
        let sink = sink(&unsigned(worker.url("/")));
        for _ in 0..2 {
            assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Ok);
        }
        let seen = worker.last();
        assert_eq!(
            (seen.connection, seen.header("cookie"), seen.header("accept-encoding")),
            (1, None, None)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_worker_that_says_nothing_is_given_up_after_the_timeout() {
        let worker = RawWorker::start(b"", Then::Hang).await;
        let outcome =
            sink(&unsigned(format!("http://{}", worker.address))).deliver(&delivery(hook())).await;
        assert_eq!(
            outcome,
            Outcome::Retry(format!("no answer from {} within 5000 ms", worker.address))
        );
    }

    #[tokio::test]
    async fn the_timeout_is_the_specs() {
        let worker = RawWorker::start(b"HTTP/1.1 200", Then::Hang).await;
        let spec = spec_with(format!("http://{}", worker.address), |spec| spec.timeout_ms = 20);
        let outcome = sink(&spec).deliver(&delivery(hook())).await;
        assert_eq!(
            outcome,
            Outcome::Retry(format!("no answer from {} within 20 ms", worker.address))
        );
    }

    #[tokio::test]
    async fn a_status_stands_though_the_rest_of_the_answer_never_comes() {
        for then in [Then::Close, Then::Reset] {
            let worker =
                RawWorker::start(b"HTTP/1.1 503 x\r\ncontent-length: 10\r\n\r\nhalf", then).await;
            let outcome = sink(&unsigned(format!("http://{}", worker.address)))
                .deliver(&delivery(hook()))
                .await;
            assert_eq!(outcome, Outcome::Retry("worker answered 503".into()), "{then:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_stands_though_the_rest_of_the_answer_stalls() {
        let worker =
            RawWorker::start(b"HTTP/1.1 200 x\r\ncontent-length: 10\r\n\r\nhalf", Then::Hang).await;
        let outcome =
            sink(&unsigned(format!("http://{}", worker.address))).deliver(&delivery(hook())).await;
        assert_eq!(outcome, Outcome::Ok);
    }

    #[tokio::test]
    async fn an_answer_without_end_is_cut() {
        let chunk: &[u8] = b"HTTP/1.1 200 x\r\ncontent-type: text/plain\r\n\r\nand on and on";
        let worker = RawWorker::start(chunk, Then::Repeat).await;
        let spec =
            spec_with(format!("http://{}", worker.address), |spec| spec.timeout_ms = 600_000);
        let sink = sink(&spec);
        for delivered in 1..=2 {
            assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Ok);
            // Each on a connection of its own.
            assert_eq!(worker.requests().len(), delivered);
        }
    }

    #[tokio::test]
    async fn a_connection_is_used_again_when_an_answer_was_read_to_its_end() {
        for (max_response_bytes, body_bytes, connections) in [
            (65_536, 0, 1),
            (65_536, 65_536, 1),
            (65_536, 32 << 20, 3),
            (0, 0, 1),
            (0, 32 << 20, 3),
        ] {
            let worker = Worker::start(Answer::status(200).body(vec![b'x'; body_bytes])).await;
            let sink = sink(&spec_with(worker.url("/"), |spec| {
                spec.max_response_bytes = max_response_bytes
            }));
            for _ in 0..3 {
                assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Ok);
            }
            assert_eq!(
                worker.connections(),
                connections,
                "{body_bytes} of {max_response_bytes} bytes"
            );
        }
    }

    #[tokio::test]
    async fn a_connection_the_worker_closes_is_not_used_again() {
        let worker = Worker::start(Answer::status(200).header("connection", "close")).await;
        let sink = sink(&unsigned(worker.url("/")));
        for _ in 0..3 {
            assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Ok);
        }
        assert_eq!(worker.connections(), 3);
    }
}

mod transport {
    use super::*;

    async fn outcome(scheme: &str, says: &'static [u8], then: Then) -> (String, Outcome) {
        let worker = RawWorker::start(says, then).await;
        let outcome = sink(&unsigned(format!("{scheme}://{}", worker.address)))
            .deliver(&delivery(hook()))
            .await;
        (worker.address.to_string(), outcome)
    }

    #[tokio::test]
    async fn a_refused_connection_is_tried_again() {
        let nobody = nobody();
        let address = nobody.address;
        for scheme in ["http", "https"] {
            let outcome =
                sink(&unsigned(format!("{scheme}://{address}"))).deliver(&delivery(hook())).await;
            assert_eq!(outcome, Outcome::Retry(format!("connection refused by {address}")));
        }
    }

    #[tokio::test]
    async fn a_connection_that_ends_without_an_answer_is_tried_again() {
        let (address, closed) = outcome("http", b"", Then::Close).await;
        assert_eq!(
            closed,
            Outcome::Retry(format!("{address} closed the connection without an answer"))
        );
        let (address, cut) = outcome("http", b"HTTP/1.1 200 x\r\ncontent-", Then::Close).await;
        assert_eq!(
            cut,
            Outcome::Retry(format!("{address} closed the connection without an answer"))
        );
        let (address, reset) = outcome("http", b"", Then::Reset).await;
        assert_eq!(reset, Outcome::Retry(format!("connection reset by {address}")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_does_not_open_is_given_up_before_a_long_timeout() {
        let worker = RawWorker::start(b"", Then::Hang).await;
        let spec =
            spec_with(format!("https://{}", worker.address), |spec| spec.timeout_ms = 600_000);
        let outcome = sink(&spec).deliver(&delivery(hook())).await;
        assert_eq!(outcome, Outcome::Retry(format!("connection to {} timed out", worker.address)));
    }

    #[tokio::test]
    async fn what_is_no_http_is_tried_again() {
        let (address, outcome) = outcome("http", b"220 mail.example ESMTP\r\n", Then::Close).await;
        let reason = format!(
            "{address} answered something that is not HTTP/1.1: invalid HTTP version parsed"
        );
        assert_eq!(outcome, Outcome::Retry(reason));
    }

    #[tokio::test]
    async fn a_tls_failure_is_tried_again() {
        let alert = b"\x15\x03\x03\x00\x02\x02\x28";
        let (address, refused) = outcome("https", alert, Then::Close).await;
        let reason = format!("TLS with {address} failed: received fatal alert: HandshakeFailure");
        assert_eq!(refused, Outcome::Retry(reason));
        let (address, plain) =
            outcome("https", b"HTTP/1.1 400 Bad Request\r\n\r\n", Then::Close).await;
        let reason = format!(
            "TLS with {address} failed: received corrupt message of type InvalidContentType"
        );
        assert_eq!(plain, Outcome::Retry(reason));
        let (address, silent) = outcome("https", b"", Then::Close).await;
        assert_eq!(silent, Outcome::Retry(format!("TLS with {address} failed: tls handshake eof")));
        let (address, reset) = outcome("https", b"", Then::Reset).await;
        assert_eq!(reset, Outcome::Retry(format!("connection reset by {address}")));
    }

    #[tokio::test]
    async fn a_name_that_does_not_resolve_is_tried_again() {
        let answers = vec![Err("no such host is known"), Ok(vec![])];
        let (sink, _) = resolving("http://worker.example:81", open(), answers);
        let reasons =
            [sink.deliver(&delivery(hook())).await, sink.deliver(&delivery(hook())).await];
        let expected = [
            "cannot resolve worker.example: no such host is known",
            "cannot resolve worker.example: it has no address",
        ];
        assert_eq!(reasons, expected.map(|reason| Outcome::Retry(reason.into())));
    }

    #[tokio::test]
    async fn the_environment_names_no_proxy() {
        // In a process of its own, whose environment points to a proxy that is not there.
        let nobody = nobody();
        let nobody = format!("http://{}", nobody.address);
        let mut itself = tokio::process::Command::new(std::env::current_exe().unwrap());
        itself.args(["--exact", "request::a_fragment_is_never_sent"]);
        for name in
            ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"]
        {
            itself.env(name, &nobody);
        }
        itself.env_remove("no_proxy").env_remove("NO_PROXY");
        let output = itself.output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
    }
}

mod egress {
    use super::*;

    const FIRST: &str = "127.0.0.2";
    const SECOND: &str = "127.0.0.1";

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn no_way_of_writing_an_inner_address_gets_through() {
        let denied = [
            // The plain forms.
            "127.0.0.1",
            "127.1.2.3",
            "0.0.0.0",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.1.1",
            "169.254.169.254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.1",
            "198.51.100.1",
            "203.0.113.1",
            "240.0.0.1",
            // Decimal, octal, hex, short, mixed, with a dot at the end, percent-encoded, full width.
            "2130706433",
            "0x7f000001",
            "017700000001",
            "0177.0.0.1",
            "0x7f.0.0.1",
            "127.1",
            "127.0.1",
            "0",
            "0x0",
            "0x7f.1",
            "0x7F.0x0.0x0.0x1",
            "127.0.0.1.",
            "2852039166",
            "0xa9fea9fe",
            "0251.0376.0251.0376",
            "169.254.43518",
            "%31%32%37.0.0.1",
            "127%2e0%2e0%2e1",
            "１２７.０.０.１",
            "①②⑦.⓪.⓪.①",
            "127。0。0。1",
            // IPv6, and IPv4 inside it.
            "[::]",
            "[::1]",
            "[0:0:0:0:0:0:0:1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "[::ffff:169.254.169.254]",
            "[::127.0.0.1]",
            "[::ffff:0:127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "[64:ff9b::a9fe:a9fe]",
            "[64:ff9b:1::7f00:1]",
            "[2002:7f00:1::]",
            "[2002:a9fe:a9fe::1]",
            "[2001::5601:5601]",
            "[fe80::1]",
            "[fc00::1]",
            "[fd00:ec2::254]",
            "[fd20:ce::254]",
            "[fec0::1]",
            "[ff02::1]",
            "[2001:db8::1]",
            "[3fff::1]",
            "[2606:4700::5efe:10.0.0.1]",
            // Names that are this machine by definition.
            "localhost",
            "LOCALHOST",
            "localhost.",
            "a.localhost",
            "loc%61lhost",
            "ｌocalhost",
        ];
        let outbound = outbound(Egress::default());
        for host in denied {
            for url in [
                format!("https://{host}/x"),
                format!("https://{host}:8443"),
                format!("https://u:p@{host}"),
            ] {
                let refused = refused(&unsigned(&url), &outbound);
                assert!(refused.starts_with("url: egress denied: "), "{url}: {refused}");
            }
        }
        for host in [
            "worker.example",
            "8.8.8.8",
            "134744072",
            "[2606:4700::1111]",
            "[::ffff:8.8.8.8]",
            "127.0.0.1.nip.io",
        ] {
            assert_eq!(
                check_url(&Egress::default(), &format!("https://{host}").parse().unwrap()),
                Ok(()),
                "{host}"
            );
        }
    }

    #[test]
    fn a_url_that_is_denied_is_refused_with_the_way_out() {
        let closed = outbound(Egress::default());
        let spec = |url: &str| unsigned(url);
        assert_eq!(
            refused(&spec("http://worker.example"), &closed),
            "url: egress denied: plain http, unless egress.allow_http is true"
        );
        assert_eq!(
            refused(&spec("https://0xa9fea9fe/latest"), &closed),
            "url: egress denied: 169.254.169.254 (cloud metadata), unless egress.allow names it"
        );
        assert_eq!(
            refused(&spec("https://localhost"), &closed),
            "url: egress denied: 127.0.0.1 (loopback), unless egress.allow names it"
        );
        for (url, egress) in [
            ("http://10.0.0.1", open()),
            ("http://localhost", open()),
            ("http://localhost", only(&["127.0.0.1"])),
            ("http://localhost", only(&["::1"])),
            ("http://169.254.169.254", only(&["169.254.169.254"])),
        ] {
            assert!(HttpSink::new(&spec(url), &outbound(egress)).is_ok(), "{url}");
        }
    }

    #[tokio::test]
    async fn a_backlog_whose_url_is_denied_by_now_fails_for_good() {
        let worker = Worker::start(Answer::status(200)).await;
        let sink = HttpSink::for_backlog(&unsigned(worker.url("/")), &outbound(only(&[]))).unwrap();
        let denied = "egress denied: 127.0.0.1 (loopback), unless egress.allow names it";
        assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Permanent(denied.into()));
        assert_eq!(worker.connections(), 0);
        let permitted =
            HttpSink::for_backlog(&unsigned(worker.url("/")), &outbound(open())).unwrap();
        assert_eq!(permitted.deliver(&delivery(hook())).await, Outcome::Ok);
    }

    #[tokio::test]
    async fn the_address_that_was_checked_is_the_one_connected_to() {
        let (first, second) = same_port(ip(FIRST), ip(SECOND)).await;
        let answer = Answer::status(200).header("connection", "close");
        let (public, private) =
            (Worker::listen(first, answer.clone()), Worker::listen(second, answer));
        let url = format!("http://worker.example:{}/", public.address.port());
        let answers = vec![Ok(vec![ip(FIRST)]), Ok(vec![ip(SECOND)])];
        let (sink, lookups) = resolving(&url, only(&[FIRST]), answers);

        let outcomes =
            [sink.deliver(&delivery(hook())).await, sink.deliver(&delivery(hook())).await];

        let denied = format!("egress denied: worker.example resolves only to {SECOND} (loopback)");
        assert_eq!(outcomes, [Outcome::Ok, Outcome::Retry(denied)]);
        // One look a connection: nobody asked again between the check and the connection.
        assert_eq!(*lookups.asked.lock().unwrap(), ["worker.example", "worker.example"]);
        assert_eq!((public.connections(), private.connections()), (1, 0));
    }

    #[tokio::test]
    async fn of_mixed_answers_only_the_permitted_are_used() {
        let (first, second) = same_port(ip(FIRST), ip(SECOND)).await;
        let answer = Answer::status(200).header("connection", "close");
        let (public, private) =
            (Worker::listen(first, answer.clone()), Worker::listen(second, answer));
        let url = format!("http://worker.example:{}/", public.address.port());
        let mixed =
            [SECOND, "10.0.0.1", FIRST, "::ffff:127.0.0.1", "169.254.169.254"].map(ip).to_vec();
        let (sink, _) = resolving(&url, only(&[FIRST]), vec![Ok(mixed.clone()), Ok(mixed)]);
        for _ in 0..2 {
            assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Ok);
        }
        assert_eq!((public.connections(), private.connections()), (2, 0));
    }

    #[tokio::test]
    async fn a_name_without_a_permitted_address_is_tried_again_since_the_dns_can_be_put_right() {
        let many = ["10.0.0.1", "::1", "169.254.169.254", "fd00::1", "0.0.0.0"].map(ip).to_vec();
        let (sink, _) = resolving("http://metadata.google.internal", only(&[]), vec![Ok(many)]);
        let reason = "egress denied: metadata.google.internal resolves only to 10.0.0.1 (private), ::1 (loopback), \
                      169.254.169.254 (cloud metadata) and 2 more";
        assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Retry(reason.into()));
    }

    #[tokio::test]
    async fn a_redirect_into_the_inside_leads_nowhere() {
        let inside = Worker::start(Answer::status(200)).await;
        let (listener, _) = same_port(ip(FIRST), ip(SECOND)).await;
        let outside =
            Worker::listen(listener, Answer::status(307).header("location", inside.url("/")));
        let sink = HttpSink::new(&unsigned(outside.url("/")), &outbound(only(&[FIRST]))).unwrap();
        let reason = "worker answered 307, and redirects are not followed";
        assert_eq!(sink.deliver(&delivery(hook())).await, Outcome::Retry(reason.into()));
        assert_eq!((outside.connections(), inside.connections()), (1, 0));
    }
}

mod spec {
    use super::*;

    fn error(change: impl FnOnce(&mut HttpSinkSpec)) -> SinkSpecError {
        HttpSink::new(&spec_with("https://worker.example", change), &outbound(Egress::default()))
            .err()
            .unwrap()
    }

    #[test]
    fn a_url_nobody_can_deliver_to_is_refused() {
        for (url, problem) in [
            ("worker.example/hooks", "is not a URL: relative URL without a base"),
            ("https://", "is not a URL: empty host"),
            ("https://a b", "is not a URL: invalid international domain name"),
            ("https://1.2.3.4.5", "is not a URL: invalid IPv4 address"),
            ("https://worker:99999", "is not a URL: invalid port number"),
            ("https://[fe80::1%25eth0]", "is not a URL: invalid IPv6 address"),
            ("ftp://worker.example", "has the scheme ftp: only https and http are delivered to"),
            ("file:///etc/passwd", "has the scheme file: only https and http are delivered to"),
            ("", "is not a URL: relative URL without a base"),
            (&format!("https://w/{}", "a".repeat(65_536)), "cannot be sent: uri too long"),
        ] {
            assert_eq!(
                error(|spec| spec.url = url.into()),
                SinkSpecError::new("url", problem),
                "{url}"
            );
        }
    }

    #[test]
    fn a_header_that_cannot_be_sent_is_named() {
        let one = |name: &str, value: &str| {
            let headers =
                BTreeMap::from([("ok".into(), "fine: ü".into()), (name.into(), value.into())]);
            error(|spec| spec.headers = headers).to_string()
        };
        assert_eq!(one("a b", "c"), "headers.a b: is not a header name");
        assert_eq!(one("x", "a\nb"), "headers.x: has a value with a control character");
        assert_eq!(one("OK", "again"), "headers.ok: is set twice, in different case");
        for name in [
            "Content-Length",
            "transfer-encoding",
            "Connection",
            "TE",
            "upgrade",
            "expect",
            "keep-alive",
        ] {
            assert_eq!(
                one(name, "1"),
                format!("headers.{name}: cannot be set: it says how the message is framed")
            );
        }
        for name in
            ["X-Ankusa-Id", "x-ankusa-new", "Webhook-Id", "webhook-timestamp", "webhook-signature"]
        {
            assert_eq!(
                one(name, "1"),
                format!("headers.{name}: cannot be set: the node sets it itself")
            );
        }
    }

    #[test]
    fn what_the_model_refuses_is_refused() {
        assert_eq!(error(|spec| spec.timeout_ms = 0).key, "timeout_ms");
        assert_eq!(error(|spec| spec.max_response_bytes = usize::MAX).key, "max_response_bytes");
        assert_eq!(error(|spec| spec.allow_unsigned = false).key, "secret");
        let secrets = SinkSecret::List(vec!["good".into(), "whsec_!!!".into()]);
        assert_eq!(error(|spec| spec.secret = Some(secrets)).key, "secret[1]");
    }

    #[test]
    fn a_spec_is_built_into_the_sink_it_names() {
        let outbound = outbound(Egress::default());
        let kind = |spec: &SinkSpec| {
            sinks::build(spec, &outbound).map(|sink| sink.kind()).map_err(|e| e.key)
        };
        assert_eq!(kind(&SinkSpec::Log(LogSinkSpec::default())), Ok("log"));
        assert_eq!(kind(&SinkSpec::Http(unsigned("https://worker.example"))), Ok("http"));
        assert_eq!(kind(&SinkSpec::Http(unsigned("https://10.0.0.1"))), Err("url".into()));
    }

    #[test]
    fn the_sink_is_known_by_the_documented_module() {
        let sink = sink(&unsigned("https://worker.example"));
        assert_eq!((sink.module(), sink.kind()), ("Elixir.Ankusa.Sink.Http", "http"));
    }
}

/// A resolver with a script.
#[derive(Default)]
struct Scripted {
    answers: Mutex<Vec<Result<Vec<IpAddr>, &'static str>>>,
    asked: Mutex<Vec<String>>,
}

#[async_trait]
impl Lookup for Scripted {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        self.asked.lock().unwrap().push(host.into());
        self.answers.lock().unwrap().remove(0).map_err(io::Error::other)
    }
}

fn resolving(
    url: &str,
    egress: Egress,
    answers: Vec<Result<Vec<IpAddr>, &'static str>>,
) -> (HttpSink, Arc<Scripted>) {
    let lookup = Arc::new(Scripted { answers: Mutex::new(answers), asked: Mutex::default() });
    let outbound = Outbound::with_lookup(egress, clock(), Arc::clone(&lookup) as Arc<dyn Lookup>);
    (HttpSink::new(&unsigned(url), &outbound).unwrap(), lookup)
}
