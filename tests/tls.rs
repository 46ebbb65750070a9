//! TLS on the listeners: what is spoken, who may connect, and certificates that change while the node runs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::path::Path;

use common::http2::Http2Client;
use common::tls::{Authority, Pair, connect};
use common::worker::{self, Worker};
use common::{Client, Gone, TestNode, in_time, request, until};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// A node that is not started yet, with `pair` on this listener; `more` goes over the section `tls`.
fn prepared(worker: &Worker, listener: &str, pair: &Pair, more: Value) -> TestNode {
    let mut node = TestNode::new(json!({"sources": common::node::demo(worker)}));
    let mut tls = json!({
        "cert_file": node.file("node.pem", &pair.certificate),
        "key_file": node.file("node.key", &pair.key),
        "reload_interval_ms": 20,
    });
    common::node::merge(&mut tls, more);
    node.configure(json!({listener: {"tls": tls}}));
    node
}

fn hook() -> Vec<u8> {
    request("POST", "/webhooks/demo", &[], b"hook")
}

/// What the metrics say behind this.
async fn metric(node: &TestNode, series: &str) -> Option<u64> {
    let text = node.control("GET", "/metrics").await.unwrap().text();
    let line = text.lines().find_map(|line| line.strip_prefix(series));
    line.map(|value| value.trim().parse().unwrap())
}

async fn failures(node: &TestNode, reason: &str) -> u64 {
    let labels = format!(r#"{{instance="default",listener="ingest",reason="{reason}"}}"#);
    metric(node, &format!("ankusa_tls_handshake_failures_total{labels}")).await.unwrap()
}

#[tokio::test]
async fn hooks_arrive_over_both_protocols_and_plain_ones_do_not() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    let mut node = prepared(&worker, "http", &authority.sign("node"), json!({}));
    node.boot().await;
    for alpn in [&[][..], &["http/1.1"]] {
        let client = authority.client(None, alpn);
        let mut client = Client::try_tls(node.http_port, client).await.unwrap();
        assert_eq!(client.ask(&hook()).await.unwrap().status, 201);
        assert_eq!(client.ask(&hook()).await.unwrap().status, 201);
    }
    let mut healthcheck = node.command();
    healthcheck.args(["healthcheck", "--config"]).arg(node.config_file());
    assert_eq!(common::node::run(healthcheck).await.code, Some(0));
    let stream = connect(node.http_port, authority.client(None, &["h2", "http/1.1"])).await;
    let stream = stream.unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let mut client = Http2Client::over(stream).await;
    assert_eq!(client.post("/webhooks/demo", b"hook").await.unwrap().status, 201);
    let mut plain = node.client().await;
    plain.send(&hook()).await.unwrap();
    let said = plain.rest().await;
    assert!(!said.starts_with(b"HTTP"), "{said:?}");
    assert_eq!(failures(&node, "protocol").await, 1);
    // Who trusts somebody else is not sent anything to.
    let stranger = Authority::new("another").client(None, &[]);
    assert!(Client::try_tls(node.http_port, stranger).await.is_err());
    node.drained().await;
    assert_eq!(worker.seen().len(), 5);
    assert_eq!(node.stop().await, Some(0));
}

#[tokio::test]
async fn without_http2_it_is_not_offered() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    let mut node = prepared(&worker, "http", &authority.sign("node"), json!({}));
    node.configure(json!({"http": {"http2": {"enabled": false}}}));
    node.boot().await;
    let stream = connect(node.http_port, authority.client(None, &["h2", "http/1.1"])).await;
    assert_eq!(stream.unwrap().get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let only = connect(node.http_port, authority.client(None, &["h2"])).await;
    assert!(only.is_err());
}

#[tokio::test]
async fn the_admin_port_asks_for_certificates_where_it_knows_authorities() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    let clients = Authority::new("clients");
    let mut node = prepared(&worker, "admin", &authority.sign("node"), json!({}));
    let bundle = node.file("clients.pem", &clients.pem);
    node.configure(json!({"admin": {"tls": {"client_ca_file": bundle}}}));
    node.boot().await;
    let health = request("GET", "/health", &[], b"");
    let known = authority.client(Some(&clients.sign("scraper")), &[]);
    let mut client = Client::try_tls(node.admin_port, known).await.unwrap();
    assert_eq!(client.ask(&health).await.unwrap().status, 200);
    for pair in [None, Some(&authority.sign("scraper"))] {
        // With TLS 1.3 a client learns only afterwards that it was refused.
        let refused = match Client::try_tls(node.admin_port, authority.client(pair, &[])).await {
            Ok(mut client) => client.ask(&health).await.map(|answer| answer.status),
            Err(_) => Err(Gone),
        };
        assert_eq!(refused, Err(Gone));
    }
    // Hooks arrive without any of it.
    assert_eq!(node.accepted(b"plain").await.len(), 36);
}

#[tokio::test]
async fn where_certificates_are_optional_a_bad_one_is_worse_than_none() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    let clients = Authority::new("clients");
    let mut node = prepared(&worker, "http", &authority.sign("node"), json!({}));
    let bundle = node.file("clients.pem", &clients.pem);
    node.configure(json!({"http": {"tls": {"client_ca_file": bundle}}}));
    node.boot().await;
    for pair in [None, Some(&clients.sign("sender"))] {
        let client = authority.client(pair, &[]);
        let mut client = Client::try_tls(node.http_port, client).await.unwrap();
        assert_eq!(client.ask(&hook()).await.unwrap().status, 201);
    }
    let stranger = authority.client(Some(&Authority::new("strangers").sign("sender")), &[]);
    let refused = match Client::try_tls(node.http_port, stranger).await {
        Ok(mut client) => client.ask(&hook()).await.map(|answer| answer.status),
        Err(_) => Err(Gone),
    };
    assert_eq!(refused, Err(Gone));
    assert_eq!(failures(&node, "client_certificate").await, 1);
    assert_eq!(node.status().await["next_seq"], 3);
}

#[tokio::test]
async fn a_handshake_that_does_not_come_to_its_end_gives_its_place_back() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    // Long enough for a handshake on a machine that has much else to do.
    let more = json!({"handshake_timeout_ms": 3_000});
    let mut node = prepared(&worker, "http", &authority.sign("node"), more);
    node.configure(json!({"http": {"max_connections": 2}}));
    node.boot().await;
    let silent = node.client().await;
    let mut begun = node.client().await;
    begun.send(b"\x16\x03\x01\x02").await.unwrap();
    assert_eq!(silent.rest().await, b"");
    assert_eq!(begun.rest().await, b"");
    assert_eq!(failures(&node, "timeout").await, 2);
    drop(node.client().await);
    until("the one that went away is counted", async || {
        (failures(&node, "closed").await == 1).then_some(())
    })
    .await;
    let mut client = Client::try_tls(node.http_port, authority.client(None, &[])).await.unwrap();
    assert_eq!(client.ask(&hook()).await.unwrap().status, 201);
}

/// The certificate that new connections are shown.
async fn shown(node: &TestNode, authority: &Authority) -> Vec<u8> {
    let stream = connect(node.http_port, authority.client(None, &[])).await.unwrap();
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

fn der(pair: &Pair) -> Vec<u8> {
    CertificateDer::from_pem_slice(pair.certificate.as_bytes()).unwrap().to_vec()
}

#[tokio::test]
async fn a_new_certificate_is_taken_and_a_bad_one_is_not_while_connections_stay() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    let (old, new) = (authority.sign("old"), authority.sign("new"));
    let mut node = prepared(&worker, "http", &old, json!({}));
    node.boot().await;
    let reloads = |result: &str| {
        format!(
            r#"ankusa_tls_reloads_total{{instance="default",listener="ingest",result="{result}"}}"#
        )
    };
    let expiry =
        r#"ankusa_tls_certificate_expiry_timestamp_seconds{instance="default",listener="ingest"}"#;
    // The year 4096: what such certificates say that say nothing.
    assert_eq!(metric(&node, expiry).await, Some(67_090_118_400));
    let mut kept = Client::try_tls(node.http_port, authority.client(None, &[])).await.unwrap();
    assert_eq!(kept.ask(&hook()).await.unwrap().status, 201);
    assert_eq!(shown(&node, &authority).await, der(&old));

    // One file comes before the other: for a moment they do not fit.
    node.file("node.pem", &new.certificate);
    until("the misfit is counted", async || {
        (metric(&node, &reloads("error")).await >= Some(1)).then_some(())
    })
    .await;
    assert_eq!(shown(&node, &authority).await, der(&old));
    assert!(node.log().contains("is not the key of the certificate"), "{}", node.log());
    node.file("node.key", &new.key);
    until("the new one is shown", async || {
        (shown(&node, &authority).await == der(&new)).then_some(())
    })
    .await;
    assert_eq!(metric(&node, &reloads("ok")).await, Some(1));

    // A file that is gone changes nothing, and is told once.
    std::fs::remove_file(node.path("node.key")).unwrap();
    until("the missing file is counted", async || {
        (metric(&node, &reloads("error")).await >= Some(2)).then_some(())
    })
    .await;
    assert_eq!(shown(&node, &authority).await, der(&new));
    assert_eq!(kept.ask(&hook()).await.unwrap().status, 201);
    assert_eq!(metric(&node, &reloads("error")).await, Some(2));
}

#[tokio::test]
async fn a_pair_that_cannot_be_used_refuses_the_boot_at_its_key() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    let (pair, other) = (authority.sign("node"), authority.sign("other"));
    let node = prepared(&worker, "http", &pair, json!({}));
    let other_key = node.file("other.key", &other.key);
    let nothing = node.file("nothing.pem", "nothing");
    let (absent, certificate) = (node.path("absent.pem"), node.path("node.pem"));
    let table: [(Value, &str, String); 9] = [
        (json!({"key_file": null}), "key_file", "is required with cert_file".into()),
        (json!({"cert_file": null}), "cert_file", "is required with key_file".into()),
        (
            json!({"cert_file": null, "key_file": null, "client_ca_file": certificate}),
            "cert_file",
            "is required with client_ca_file".into(),
        ),
        (json!({"cert_file": absent}), "cert_file", cannot_be_read(&absent)),
        (json!({"key_file": absent}), "key_file", cannot_be_read(&absent)),
        (json!({"client_ca_file": absent}), "client_ca_file", cannot_be_read(&absent)),
        (json!({"cert_file": nothing}), "cert_file", "holds no certificate in PEM".into()),
        (json!({"key_file": nothing}), "key_file", "holds no private key: no items found".into()),
        (
            json!({"key_file": other_key}),
            "key_file",
            "is not the key of the certificate in cert_file".into(),
        ),
    ];
    for listener in ["http", "admin"] {
        for (over, key, problem) in &table {
            let mut node = prepared(&worker, listener, &pair, json!({}));
            node.configure(json!({listener: {"tls": over}}));
            let mut command = node.command();
            command.args(["check-config", "--config"]).arg(node.config_file());
            let told = common::node::run(command).await;
            let line = format!("{listener}.tls.{key}: {problem}");
            assert_eq!(told.code, Some(78), "{told:?}");
            assert!(told.err.contains(&line), "{line}: {}", told.err);
        }
    }
}

fn cannot_be_read(path: &Path) -> String {
    format!("{} cannot be read: No such file or directory", path.display())
}

/// A stop lets requests under way end, over TLS too, and does not wait for handshakes.
#[tokio::test]
async fn a_stop_answers_what_was_asked_and_says_goodbye() {
    let (worker, authority) = (taking().await, Authority::new("authority"));
    let mut node = prepared(&worker, "http", &authority.sign("node"), json!({}));
    node.boot().await;
    let _never_ends = node.client().await;
    let mut idle = connect(node.http_port, authority.client(None, &[])).await.unwrap();
    assert_eq!(node.stop().await, Some(0));
    let mut rest = Vec::new();
    // Without the goodbye of TLS this is an error.
    in_time("the end", idle.read_to_end(&mut rest)).await.unwrap();
    assert_eq!(rest, b"");
}
