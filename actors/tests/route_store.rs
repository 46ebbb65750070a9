//! Routes of the guard: durable before they are seen, in force at once, and never taken for absent.
#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

mod common;

use std::sync::Arc;

use ankusa_actors::admin::{Admin, AdminError};
use ankusa_actors::edge::{Answer, RequestHead, RouteChange, RouteStoreError, RoutesSettings};
use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::keys::{META_ROUTE_RULES, RouteKey};
use ankusa_actors::model::network::Network;
use ankusa_actors::model::route::{self, IpRules, Route, RouteFields, RoutePatch, RouteSpec};
use ankusa_actors::node::Node;
use ankusa_actors::ports::Lane;
use ankusa_actors::ports::sim::{Fault, SimOp};
use bytes::Bytes;
use common::{Bench, EPOCH_MS, HTTP, open_source, secs};
use serde_json::{Value, json};

const CLIENT: &str = "192.0.2.1";

fn spec(value: Value) -> RouteSpec {
    RouteSpec::new(RouteFields::read(value.as_object().unwrap().clone()).unwrap()).unwrap()
}

fn rules(value: Value) -> IpRules {
    IpRules::read(value.as_object().unwrap().clone()).unwrap()
}

fn settings() -> RoutesSettings {
    RoutesSettings {
        max_routes: 3,
        log_sample: 1,
        ip_denied_status: 403,
        trusted_proxies: Arc::from([Network::parse("10.0.0.0/8").unwrap()]),
        rules: IpRules::default(),
        seed: Default::default(),
    }
}

fn bench(settings: RoutesSettings) -> Bench {
    let mut bench = Bench::default();
    bench.settings.routes = Some(settings);
    bench.sources = Arc::new(
        ["a", "b", "c"].map(|id| open_source(id, "default", &[HTTP])).into_iter().collect(),
    );
    bench
}

fn head(method: &str, path: &str, remote: &str, forwarded_for: &[&str]) -> RequestHead {
    let forwarded = forwarded_for.iter().map(|value| {
        (Bytes::from_static(b"X-Forwarded-For"), Bytes::copy_from_slice(value.as_bytes()))
    });
    RequestHead {
        method: method.to_owned(),
        path: path.to_owned(),
        query: None,
        headers: forwarded.collect(),
        content_length: Some(4),
        remote: Some(remote.parse().unwrap()),
        peer: None,
    }
}

#[test]
fn rows_are_the_golden_bytes() {
    let file: Value =
        serde_json::from_str(include_str!("../../tests/golden/route_rows.json")).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    for vector in file["routes"].as_array().unwrap() {
        let number = |key: &str| vector[key].as_u64().unwrap();
        let route = Route {
            id: vector["id"].as_str().unwrap().to_owned(),
            spec: spec(vector["spec"].clone()),
            inserted_at_ms: number("inserted_at_ms"),
            updated_at_ms: number("updated_at_ms"),
            revision: number("revision"),
        };
        let (key, value) = (RouteKey(&route.id).encode(), route::encode(&route));
        assert_eq!(hex(&key), vector["key"].as_str().unwrap());
        assert_eq!(String::from_utf8(value.clone()).unwrap(), vector["value"].as_str().unwrap());
        assert_eq!(route::decode(&key, &value), Ok(route));
    }
    let vector = &file["rules"];
    assert_eq!(hex(META_ROUTE_RULES), vector["key"].as_str().unwrap());
    let rules = rules(vector["spec"].clone());
    let value = route::encode_rules(&rules);
    assert_eq!(String::from_utf8(value.clone()).unwrap(), vector["value"].as_str().unwrap());
    assert_eq!(route::decode_rules(&value), Ok(rules));
}

/// What a hook from `CLIENT` would be told, or nothing if it would be read.
fn refusal(node: &Node, path: &str) -> Option<Answer> {
    node.handles().ingest.admit(&head("POST", path, CLIENT, &[])).err()
}

async fn change(node: &Node, change: RouteChange) -> Result<Option<Arc<Route>>, RouteStoreError> {
    node.handles().routes.change(change).await
}

async fn put(node: &Node, id: &str, value: Value) -> Result<u64, RouteStoreError> {
    let spec = Box::new(spec(value));
    let put = change(node, RouteChange::Put { id: id.to_owned(), spec }).await?;
    Ok(put.unwrap().revision)
}

async fn create(node: &Node, id: Option<&str>, value: Value) -> Result<String, RouteStoreError> {
    let (id, spec) = (id.map(str::to_owned), Box::new(spec(value)));
    Ok(change(node, RouteChange::Create { id, spec }).await?.unwrap().id.clone())
}

async fn delete(node: &Node, id: &str) -> Result<(), RouteStoreError> {
    change(node, RouteChange::Delete { id: id.to_owned() }).await.map(drop)
}

/// Ids, paths and revisions of the rows that a power cut would leave.
fn durable(bench: &Bench) -> Vec<(String, String, u64)> {
    let rows = bench.disk.durable_rows(Cf::Default).into_iter();
    rows.filter(|(key, value)| key.starts_with(b"R:") && !value.is_empty())
        .map(|(key, value)| {
            let route = route::decode(&key, &value).unwrap();
            (route.id, route.spec.path.as_str().to_owned(), route.revision)
        })
        .collect()
}

fn row(id: &str, path: &str, revision: u64) -> (String, String, u64) {
    (id.to_owned(), path.to_owned(), revision)
}

#[tokio::test(start_paused = true)]
async fn a_change_is_durable_and_in_force_when_it_is_answered_and_outlives_a_power_cut() {
    let bench = bench(settings());
    let node = bench.start().await;
    assert_eq!(refusal(&node, "/webhooks/a"), Some(Answer::unknown_source()));
    assert_eq!(put(&node, "one", json!({"path": "/webhooks/a"})).await, Ok(1));
    assert_eq!(durable(&bench), [row("one", "/webhooks/a", 1)]);
    assert_eq!(refusal(&node, "/webhooks/a"), None);
    assert_eq!(refusal(&node, "/webhooks/b"), Some(Answer::unknown_source()));
    assert_eq!(put(&node, "one", json!({"path": "/webhooks/:any"})).await, Ok(2));
    assert_eq!(refusal(&node, "/webhooks/b"), None);
    let deny = rules(json!({"default": "deny", "rules": []}));
    assert_eq!(change(&node, RouteChange::Rules(deny.clone())).await, Ok(None));
    assert_eq!(refusal(&node, "/webhooks/b"), Some(Answer::ip_denied()));
    bench.disk.cut_power();

    let node = bench.start().await;
    assert_eq!(refusal(&node, "/webhooks/b"), Some(Answer::ip_denied()));
    assert_eq!(**node.handles().routes.table().now().set.rules(), deny);
    assert_eq!(delete(&node, "one").await, Ok(()));
    assert_eq!(durable(&bench), []);
    assert_eq!(refusal(&node, "/webhooks/b"), Some(Answer::unknown_source()));
    assert_eq!(put(&node, "one", json!({"path": "/webhooks/a"})).await, Ok(1), "it begins anew");
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_of_a_route_is_when_it_was_made_and_how_often_it_changed() {
    let bench = bench(settings());
    let node = bench.start().await;
    let id = create(&node, None, json!({"path": "/webhooks/a"})).await.unwrap();
    assert!(route::is_route_id(&id) && id.len() == 26, "{id}");
    assert!(id.starts_with(&route::new_id(EPOCH_MS, 0)[..10]), "{id}");
    bench.clock.step_ms(5);
    let patch = RoutePatch { enabled: Some(false), ..RoutePatch::default() };
    let patched = change(&node, RouteChange::Patch { id: id.clone(), patch }).await.unwrap();
    let patched = patched.unwrap();
    assert_eq!((patched.inserted_at_ms, patched.updated_at_ms), (EPOCH_MS, EPOCH_MS + 5));
    assert_eq!((patched.revision, patched.spec.enabled), (2, false));
    assert_eq!(refusal(&node, "/webhooks/a"), Some(Answer::unknown_source()));
    let replaced = RouteChange::Put { id, spec: Box::new(spec(json!({"path": "/webhooks/a"}))) };
    let replaced = change(&node, replaced).await.unwrap().unwrap();
    assert_eq!((replaced.inserted_at_ms, replaced.revision), (EPOCH_MS, 3));
    assert_eq!(refusal(&node, "/webhooks/a"), None);
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_done_changes_nothing_and_says_why() {
    let bench = bench(settings());
    let node = bench.start().await;
    let (a, b) = (json!({"path": "/webhooks/a"}), json!({"path": "/webhooks/b"}));
    assert_eq!(delete(&node, "x").await, Err(RouteStoreError::NotFound));
    let patch = || RoutePatch { methods: Some(Vec::new()), ..RoutePatch::default() };
    let none = change(&node, RouteChange::Patch { id: "x".to_owned(), patch: patch() }).await;
    assert_eq!(none, Err(RouteStoreError::NotFound));
    put(&node, "a", a.clone()).await.unwrap();
    let duplicate = |id: &str| RouteStoreError::Duplicate { conflicting_id: id.to_owned() };
    assert_eq!(create(&node, None, a.clone()).await, Err(duplicate("a")));
    assert_eq!(create(&node, Some("a"), b.clone()).await, Err(duplicate("a")));
    assert_eq!(put(&node, "b", b).await, Ok(1));
    assert_eq!(put(&node, "b", a).await, Err(duplicate("a")));
    let off = json!({"path": "/webhooks/a", "enabled": false});
    assert_eq!(create(&node, Some("off"), off).await, Ok("off".to_owned()));
    let on = RoutePatch { enabled: Some(true), ..RoutePatch::default() };
    let on = change(&node, RouteChange::Patch { id: "off".to_owned(), patch: on }).await;
    assert_eq!(on, Err(duplicate("a")));
    let full = Err(RouteStoreError::TooMany { max_routes: 3 });
    assert_eq!(create(&node, None, json!({"path": "/x"})).await, full);
    match change(&node, RouteChange::Patch { id: "a".to_owned(), patch: patch() }).await {
        Err(RouteStoreError::Invalid(invalid)) => assert_eq!(invalid.field, "methods"),
        other => panic!("{other:?}"),
    }
    let expected =
        [row("a", "/webhooks/a", 1), row("b", "/webhooks/b", 1), row("off", "/webhooks/a", 1)];
    assert_eq!(durable(&bench), expected);
}

#[tokio::test(start_paused = true)]
async fn the_guard_is_asked_first_and_counts_by_what_it_denies_for() {
    let bench = bench(settings());
    let node = bench.start().await;
    let own = json!([{"action": "deny", "cidr": "198.51.100.0/24"}, {"action": "allow", "cidr": "0.0.0.0/0"}]);
    put(&node, "one", json!({"path": "/webhooks/a", "ip_rules": own})).await.unwrap();
    bench.events.take();
    let ingest = &node.handles().ingest;
    let refused = |reason: &str| vec![format!("IngestRefused {{ reason: {reason} }}")];
    for (method, path, remote, forwarded, answer, reason) in [
        ("POST", "/webhooks/a", CLIENT, &[][..], None, None),
        ("POST", "/webhooks/b", CLIENT, &[], Some(Answer::unknown_source()), Some("NoRoute")),
        ("POST", "/webhooks//a", CLIENT, &[], Some(Answer::unknown_source()), Some("NoRoute")),
        ("PUT", "/webhooks/a", CLIENT, &[], Some(Answer::not_found()), Some("RouteMethod")),
        ("GET", "/webhooks/a", CLIENT, &[], Some(Answer::not_found()), Some("RouteMethod")),
        ("POST", "/webhooks/a", "198.51.100.9", &[], Some(Answer::ip_denied()), Some("IpDenied")),
        // What a stranger says of itself does not count, and what a proxy says does.
        ("POST", "/webhooks/a", CLIENT, &["198.51.100.9"], None, None),
        ("POST", "/webhooks/a", "10.0.0.1", &["198.51.100.9, 192.0.2.9"], None, None),
        (
            "POST",
            "/webhooks/a",
            "10.0.0.1",
            &["192.0.2.9", "198.51.100.9"],
            Some(Answer::ip_denied()),
            Some("IpDenied"),
        ),
        (
            "POST",
            "/webhooks/a",
            "10.0.0.1",
            &["unknown"],
            Some(Answer::ip_denied()),
            Some("IpDenied"),
        ),
    ] {
        let head = head(method, path, remote, forwarded);
        let got = if method == "GET" { Some(ingest.get(&head)) } else { ingest.admit(&head).err() };
        assert_eq!(got, answer, "{head:?}");
        assert_eq!(bench.events.take(), reason.map(refused).unwrap_or_default(), "{head:?}");
    }
    let mut huge = head("POST", "/webhooks/b", CLIENT, &[]);
    huge.content_length = Some(u64::MAX);
    assert_eq!(ingest.admit(&huge).err(), Some(Answer::unknown_source()), "before the length");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_denied_hears_nothing_else_with_404() {
    let deny = rules(json!({"default": "deny", "rules": []}));
    let bench = bench(RoutesSettings { ip_denied_status: 404, rules: deny, ..settings() });
    let node = bench.start().await;
    put(&node, "one", json!({"path": "/webhooks/a"})).await.unwrap();
    assert_eq!(refusal(&node, "/webhooks/a"), Some(Answer::unknown_source()));
}

#[tokio::test(start_paused = true)]
async fn the_seed_is_sown_where_there_is_no_such_route_and_once_a_start() {
    let seed = [
        ("a", json!({"path": "/webhooks/a"})),
        ("again", json!({"path": "/webhooks/a"})),
        ("b", json!({"path": "/webhooks/b"})),
    ];
    let seed = seed.map(|(id, value)| (id.to_owned(), spec(value))).into_iter().collect();
    let bench = bench(RoutesSettings { seed, ..settings() });
    let node = bench.start().await;
    assert_eq!(durable(&bench), [row("a", "/webhooks/a", 1), row("b", "/webhooks/b", 1)]);
    assert_eq!((refusal(&node, "/webhooks/a"), refusal(&node, "/webhooks/b")), (None, None));
    put(&node, "a", json!({"path": "/webhooks/c"})).await.unwrap();
    delete(&node, "b").await.unwrap();
    assert!(node.handles().board.crash("route_store"));
    secs(5).await;
    assert_eq!(put(&node, "c", json!({"path": "/webhooks/x"})).await, Ok(1), "it runs again");
    assert_eq!(durable(&bench), [row("a", "/webhooks/c", 2), row("c", "/webhooks/x", 1)]);
    bench.disk.cut_power();

    let _node = bench.start().await;
    let expected =
        [row("a", "/webhooks/c", 2), row("again", "/webhooks/a", 1), row("c", "/webhooks/x", 1)];
    assert_eq!(durable(&bench), expected, "what was changed stays, and there is room for one");
}

#[tokio::test(start_paused = true)]
async fn rows_that_cannot_be_read_make_a_denial_unavailable_and_writing_them_mends_it() {
    let bench = bench(settings());
    let node = bench.start().await;
    put(&node, "a", json!({"path": "/webhooks/a"})).await.unwrap();
    put(&node, "b", json!({"path": "/webhooks/b"})).await.unwrap();
    let mut batch = Batch::default();
    batch.put(Cf::Default, &RouteKey("b").encode(), b"{");
    node.handles().store.apply_synced(batch, Lane::Background).await.unwrap();
    bench.disk.cut_power();

    let node = bench.start().await;
    let unavailable = Some(Answer::unavailable("store_unavailable"));
    assert_eq!(refusal(&node, "/webhooks/a"), None);
    assert_eq!(refusal(&node, "/webhooks/b"), unavailable);
    let made = create(&node, Some("b"), json!({"path": "/webhooks/c"})).await;
    assert_eq!(made, Err(RouteStoreError::Duplicate { conflicting_id: "b".to_owned() }));
    let patch = RouteChange::Patch { id: "b".to_owned(), patch: RoutePatch::default() };
    let patched = change(&node, patch).await;
    assert!(matches!(patched, Err(RouteStoreError::Unreadable { .. })), "{patched:?}");
    assert_eq!(put(&node, "b", json!({"path": "/webhooks/c"})).await, Ok(1));
    assert_eq!(refusal(&node, "/webhooks/b"), Some(Answer::unknown_source()));
    assert_eq!(refusal(&node, "/webhooks/c"), None);

    let mut batch = Batch::default();
    batch.put(Cf::Default, META_ROUTE_RULES, b"{");
    node.handles().store.apply_synced(batch, Lane::Background).await.unwrap();
    bench.disk.cut_power();
    let node = bench.start().await;
    assert_eq!(refusal(&node, "/webhooks/a"), unavailable, "nobody knows who may");
    change(&node, RouteChange::Rules(IpRules::default())).await.unwrap();
    assert_eq!(refusal(&node, "/webhooks/a"), None);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_fails_is_answered_unavailable_and_the_truth_is_read_again() {
    let faults = [
        Fault::refuse(SimOp::Apply, FailureClass::NoSpace).on(Lane::Background),
        Fault::refuse(SimOp::Sync, FailureClass::IoError),
        Fault::sync_landed(FailureClass::IoError),
        Fault::apply_landed(FailureClass::IoError).on(Lane::Background),
    ];
    for fault in faults {
        let bench = bench(settings());
        let node = bench.start().await;
        put(&node, "a", json!({"path": "/webhooks/a"})).await.unwrap();
        bench.disk.fail(fault);
        let failed = put(&node, "a", json!({"path": "/webhooks/b"})).await;
        assert!(matches!(failed, Err(RouteStoreError::Unavailable(_))), "{failed:?}");
        assert_eq!(refusal(&node, "/webhooks/a"), None, "it goes on as it was");
        secs(120).await;
        // Whichever it was, what is in force is what a power cut would leave.
        let now = node.handles().routes.table().now();
        let seen = now.set.routes().get("a").unwrap();
        let path = if seen.revision == 2 { "/webhooks/b" } else { "/webhooks/a" };
        assert_eq!(durable(&bench), [row("a", path, seen.revision)]);
        assert_eq!(refusal(&node, path), None);
        let again = put(&node, "a", json!({"path": "/webhooks/c"})).await;
        assert_eq!(again, Ok(seen.revision + 1));
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_guard_every_request_is_let_through_and_there_are_no_routes() {
    let mut bench = bench(settings());
    let admin = |node: &Node, bench: &Bench| {
        Admin::new(node.handles().clone(), bench.settings.clone(), "0")
    };
    bench.settings.routes = None;
    let node = bench.start().await;
    assert_eq!(refusal(&node, "/webhooks/a"), None);
    assert_eq!(admin(&node, &bench).routes().err(), Some(AdminError::RoutesDisabled));
    let ended = RouteStoreError::Unavailable("the route store is not running".to_owned());
    assert_eq!(delete(&node, "a").await, Err(ended));
    bench.settings.routes = Some(settings());
    assert!(admin(&node, &bench).routes().is_ok());
    bench.settings.roles.edge = false;
    let role = AdminError::RoleNotEnabled("edge");
    assert_eq!(admin(&node, &bench).routes().err(), Some(role));
}
