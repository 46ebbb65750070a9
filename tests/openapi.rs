//! The OpenAPI documents against what the routers know of themselves and what a running node answers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use std::collections::BTreeSet;

use ankusa_node::config::schema::{KEYS, Kind};
use ankusa_node::front::table::Endpoint;
use ankusa_node::front::{ingest, routes, routes_admin};
use common::node::TestNode;
use common::{Client, request};
use serde_json::{Value, json};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

/// Every method and status of a document, by path.
fn documented(document: &Value) -> BTreeSet<(String, String, Vec<u16>)> {
    let mut found = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let responses = operation["responses"].as_object().unwrap();
            let statuses: BTreeSet<u16> = responses
                .keys()
                .flat_map(|status| match status.strip_suffix("XX") {
                    Some(class) => {
                        let class: u16 = class.parse().unwrap();
                        class * 100..(class + 1) * 100
                    }
                    None => status.parse().unwrap()..status.parse::<u16>().unwrap() + 1,
                })
                .collect();
            let statuses = statuses.into_iter().collect();
            found.insert((path.clone(), method.to_uppercase(), statuses));
        }
    }
    found
}

fn known(endpoints: Vec<Endpoint>) -> BTreeSet<(String, String, Vec<u16>)> {
    let known = |endpoint: Endpoint| {
        (endpoint.path.to_owned(), endpoint.method.to_owned(), endpoint.statuses)
    };
    endpoints.into_iter().map(known).collect()
}

fn read(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// Every place that a reference in a document leads to.
fn references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(to)) = fields.get("$ref") {
                found.insert(to.clone());
            }
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| references(value, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn a_document_has_every_route_method_and_status_that_its_router_has_and_no_other() {
    for (name, text, endpoints) in [
        ("ingest", ingest::OPENAPI, ingest::ingest_endpoints()),
        ("admin", routes::OPENAPI, routes::admin_endpoints()),
        ("routes", routes_admin::OPENAPI, routes_admin::routes_endpoints()),
    ] {
        let document = read(text);
        assert_eq!(document["openapi"], "3.1.0", "{name}");
        assert_eq!(document["info"]["version"], env!("CARGO_PKG_VERSION"), "{name}");
        assert_eq!(documented(&document), known(endpoints), "{name}");
    }
}

#[test]
fn the_words_a_source_may_say_are_those_of_the_configuration() {
    let document = read(routes::OPENAPI);
    let spec = &document["components"]["schemas"]["SourceSpec"]["properties"];
    for (key, words) in [
        ("sources.*.verify.type", &spec["verify"]["properties"]["type"]["enum"]),
        ("sources.*.on_verify_failure", &spec["on_verify_failure"]["enum"]),
    ] {
        let known = KEYS.iter().find(|(known, _)| *known == key).map(|(_, kind)| *kind);
        let Some(Kind::Word(known)) = known else { panic!("{key} takes no words") };
        assert_eq!(*words, json!(known), "{key}");
    }
}

#[test]
fn every_reference_of_a_document_leads_somewhere_and_every_schema_is_used() {
    for text in [ingest::OPENAPI, routes::OPENAPI, routes_admin::OPENAPI] {
        let document = read(text);
        let mut found = BTreeSet::new();
        references(&document, &mut found);
        let schemas = document["components"]["schemas"].as_object().unwrap();
        let named: BTreeSet<String> =
            schemas.keys().map(|name| format!("#/components/schemas/{name}")).collect();
        assert_eq!(found, named);
        let operations = document["paths"].as_object().unwrap().values().flat_map(|methods| {
            let methods = methods.as_object().unwrap().values();
            methods.map(|operation| operation["operationId"].as_str().unwrap().to_owned())
        });
        let ids: Vec<String> = operations.collect();
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    }
}

/// Whether a port knows a path and method, whatever it thinks of the request.
async fn is_routed(port: u16, method: &str, target: &str) -> bool {
    let mut client = Client::tcp(port).await;
    client.send(&request(method, target, &[], b"")).await.unwrap();
    let answer = client.answer_to(method).await.unwrap();
    answer.body != br#"{"error":"not_found"}"#
}

#[tokio::test]
async fn a_node_serves_its_documents_and_knows_the_methods_they_name_and_no_others() {
    // One that is asked by GET before it is sent hooks.
    let asked =
        json!({"handshake": {"type": "meta", "verify_token": "t"}, "sinks": [{"type": "log"}]});
    let every = json!({"id": "every", "path": "/*", "methods": ["POST", "GET"]});
    let config = json!({
        "source_store": {"type": "persistent"},
        "sources": {"asked": asked},
        "routes": {"enabled": true, "seed": [every, {"id": "orders", "path": "/orders"}]},
    });
    let node = TestNode::start(config).await;
    let admin = node.admin("/openapi.json").await.value();
    assert_eq!(admin, read(routes::OPENAPI));
    let mut ingest = read(ingest::OPENAPI);
    let catch = "/webhooks/{tenant_id}/{source_id}";
    ingest["paths"].as_object_mut().unwrap().remove(catch).unwrap();
    assert_eq!(node.get("/openapi.json").await.value(), ingest);

    let guard = Client::once(node.routes_port, "GET", "/openapi.json", &[], "").await.value();
    assert_eq!(guard, read(routes_admin::OPENAPI));

    let documents = [(node.admin_port, admin), (node.http_port, ingest), (node.routes_port, guard)];
    for (port, document) in documents {
        for (path, methods) in document["paths"].as_object().unwrap() {
            let target = path.replace("{tenant}", "acme").replace("{name}", "orders");
            let target = target.replace("{source_id}", "asked").replace("{id}", "orders");
            for method in METHODS {
                let named = methods.get(method.to_lowercase()).is_some();
                // Whatever is sent to the ingest port may be a hook, and only a source that asks for it answers a GET.
                let asks = method == "GET" && path.contains('{');
                if port != node.http_port || (named && !asks) {
                    assert_eq!(is_routed(port, method, &target).await, named, "{method} {path}");
                }
            }
        }
    }
}

#[tokio::test]
async fn the_document_of_the_ingest_port_names_the_catch_urls_of_the_node() {
    let config = json!({"http": {"routing": "tenant_path", "prefix": "/in/hooks"}});
    let node = TestNode::start(config).await;
    let document = node.get("/openapi.json").await.value();
    let paths: Vec<&str> =
        document["paths"].as_object().unwrap().keys().map(String::as_str).collect();
    let expected = ["/health", "/ready", "/openapi.json", "/in/hooks/{tenant_id}/{source_id}"];
    assert_eq!(paths, expected);
}

#[tokio::test]
async fn nobody_is_asked_for_a_token_to_read_the_document() {
    let token = json!({"name": "r", "token": "reader-token-0123", "scopes": ["dlq:read"]});
    let node = TestNode::start(json!({"admin": {"tokens": [token]}})).await;
    assert_eq!(node.admin("/openapi.json").await.status, 200);
    assert_eq!(node.admin("/v1/config").await.status, 401);
}
