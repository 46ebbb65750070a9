//! The published Rust client (the crate `ankusa`) against a running node: every call of it that the node serves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use ankusa_sdk::{
    AdminClient, AdminError, ClientBuilder, ListDeadLettersParams, ListQuarantinedParams,
    ReceiveError, ReceiveOptions, receive_delivery,
};
use common::worker::{self, Worker};
use common::{TestNode, until};
use serde_json::json;

const SECRET: &str = "whsec_c2VjcmV0IGZvciB0aGUgY2xpZW50cw==";

fn admin(node: &TestNode) -> AdminClient {
    AdminClient::new(format!("http://127.0.0.1:{}", node.admin_port)).unwrap()
}

#[tokio::test]
async fn what_the_admin_client_asks_is_answered_in_the_shapes_it_reads() {
    let worker = Worker::start(worker::Answer::status(410)).await;
    let sink = json!({"type": "http", "url": worker.url("/hooks"), "secret": SECRET});
    let node = TestNode::start(json!({"sources": {"demo": {"sinks": [sink]}}})).await;
    let admin = admin(&node);
    let health = admin.health().await.unwrap();
    assert_eq!((health.status.as_str(), health.instance.as_str()), ("ok", "default"));
    assert_eq!(health.roles, ["dispatch", "edge"]);
    assert!(admin.metrics().await.unwrap().contains("ankusa_ingest_requests_total"));
    let config = admin.config().await.unwrap();
    assert_eq!(config["sources"]["demo"]["sinks"][0]["secret"], "[REDACTED]");
    let none = admin.list_dead_letters(&ListDeadLettersParams::default()).await.unwrap();
    assert_eq!((none.total, none.entries.len()), (0, 0));

    let id = node.accepted(b"given up").await;
    let params = ListDeadLettersParams {
        source_id: Some("demo".to_owned()),
        since: Some(1_000),
        limit: Some(5),
    };
    let page = until("the dead letter is listed", async || {
        let page = admin.list_dead_letters(&params).await.unwrap();
        (!page.entries.is_empty()).then_some(page)
    })
    .await;
    let entry = &page.entries[0];
    assert_eq!((page.total, entry.id.as_str(), entry.size > 0), (1, id.as_str(), true));
    assert_eq!((entry.source_id.as_str(), entry.seq), ("demo", Some(1)));
    assert!(entry.reason.contains("410"), "{}", entry.reason);
    let later = ListDeadLettersParams { since: Some(entry.dead_lettered_at + 1), ..params };
    assert_eq!(admin.list_dead_letters(&later).await.unwrap().entries, []);
}

#[tokio::test]
async fn hooks_that_are_held_are_listed() {
    let source = json!({
        "verify": {"type": "github", "secret": "s"},
        "on_verify_failure": "quarantine",
        "sinks": [{"type": "log"}],
    });
    let node = TestNode::start(json!({"sources": {"held": source}})).await;
    assert_eq!(node.post("/webhooks/held", b"unsigned").await.status, 202);
    let params = ListQuarantinedParams { limit: Some(5) };
    let page = admin(&node).list_quarantined(&params).await.unwrap();
    let held: Vec<(&str, &str)> =
        page.entries.iter().map(|entry| (&*entry.source_id, &*entry.reason)).collect();
    assert_eq!(held, [("held", ":missing_signature")]);
}

#[tokio::test]
async fn what_is_refused_is_an_error_the_admin_client_knows() {
    let token = json!({"name": "r", "token": "reader-token-0123", "scopes": ["dlq:read"]});
    let node = TestNode::start(json!({
        "node": {"roles": ["edge"]},
        "sources": {"demo": {"sinks": [{"type": "log"}]}},
        "admin": {"tokens": [token]},
    }))
    .await;
    let url = format!("http://127.0.0.1:{}", node.admin_port);
    let known = ClientBuilder::new(url).header("authorization", "Bearer reader-token-0123");
    let known = known.admin().unwrap();
    match known.list_dead_letters(&ListDeadLettersParams::default()).await {
        Err(AdminError::RoleNotEnabled { role }) => assert_eq!(role.as_deref(), Some("dispatch")),
        other => panic!("{other:?}"),
    }
    let rejected = |refused: Result<_, AdminError>| match refused {
        Err(AdminError::Rejected { status, code, scope, .. }) => (status.as_u16(), code, scope),
        Err(other) => panic!("{other:?}"),
        Ok(()) => panic!("not refused"),
    };
    let forbidden = rejected(known.config().await.map(drop));
    let scope = Some("config:read".to_owned());
    assert_eq!(forbidden, (403, Some("forbidden".to_owned()), scope));
    let unauthorized = rejected(admin(&node).config().await.map(drop));
    assert_eq!(unauthorized, (401, Some("unauthorized".to_owned()), None));
}

#[tokio::test]
async fn a_delivery_is_one_that_the_client_takes_and_a_changed_one_is_not() {
    let worker = Worker::start(worker::Answer::status(200)).await;
    let sink = json!({"type": "http", "url": worker.url("/hooks"), "secret": SECRET});
    let node = TestNode::start(json!({"sources": {"demo": {"sinks": [sink]}}})).await;
    let id = node.accepted(b"{\"order\": 7}").await;
    node.drained().await;
    let seen = worker.last();
    let mut headers = http::HeaderMap::new();
    for (name, value) in &seen.headers {
        let name = http::HeaderName::from_bytes(name.as_bytes()).unwrap();
        headers.insert(name, http::HeaderValue::from_bytes(value).unwrap());
    }
    let options = ReceiveOptions { secrets: vec![SECRET.to_owned()], ..Default::default() };
    let received = receive_delivery(&headers, &seen.body, &options).unwrap();
    assert!(received.verified);
    assert_eq!((received.headers.id, received.headers.source), (id.as_str(), "demo"));
    assert_eq!(received.headers.idempotency_key, Some(id.as_str()));
    assert!(received.headers.received_at.is_some() && received.headers.body_sha256.is_some());
    let verification = received.headers.verification.as_ref().unwrap();
    assert_eq!((verification.status.as_str(), verification.is_trusted()), ("skipped", false));
    let changed = receive_delivery(&headers, b"{\"order\": 8}", &options);
    assert!(matches!(changed, Err(ReceiveError::Signature(_))), "{changed:?}");
}
