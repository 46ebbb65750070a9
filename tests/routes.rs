//! The route guard of a running node: what it lets through, and how its routes are managed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod common;

use ankusa_sdk::{
    Access, ClientBuilder, DryRunReason, DryRunRequest, IpRule, IpRules, ListRoutesParams,
    RouteInput, RoutePatch, RoutesClient, RoutesError,
};
use common::node::demo;
use common::worker::{self, Worker};
use common::{Answer, Client, TestNode, request};
use serde_json::{Value, json};

async fn taking() -> Worker {
    Worker::start(worker::Answer::status(200)).await
}

/// A guarded node with the sources `demo` and `other`, and no routes but these.
async fn guarded(worker: &Worker, config: Value) -> TestNode {
    let mut sources = demo(worker);
    sources["other"] = sources["demo"].clone();
    let mut node = TestNode::new(json!({"sources": sources, "routes": {"enabled": true}}));
    node.configure(config);
    node.boot().await;
    node
}

/// Asks the listener of the routes.
async fn ask(
    node: &TestNode,
    method: &str,
    target: &str,
    headers: &[(&str, &str)],
    body: &str,
) -> Answer {
    Client::once(node.routes_port, method, target, headers, body).await
}

async fn tell(node: &TestNode, method: &str, target: &str, body: &Value) -> (u16, Value) {
    said(&ask(node, method, target, &[], &body.to_string()).await)
}

async fn get(node: &TestNode, target: &str) -> (u16, Value) {
    said(&ask(node, "GET", target, &[], "").await)
}

fn said(answer: &Answer) -> (u16, Value) {
    let body = if answer.body.is_empty() { Value::Null } else { answer.value() };
    (answer.status, body)
}

fn invalid(name: &str, field: &str, message: &str) -> (u16, Value) {
    (400, json!({"error": name, "field": field, "message": message}))
}

fn unknown() -> (u16, Value) {
    (404, json!({"error": "unknown_source"}))
}

async fn hook(node: &TestNode, target: &str) -> u16 {
    node.post(target, b"x").await.status
}

async fn counted(node: &TestNode, reason: &str) -> u64 {
    let metrics = node.admin("/metrics").await.text();
    let series =
        format!("ankusa_ingest_refused_total{{instance=\"default\",reason=\"{reason}\"}} ");
    let line = metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap();
    line.parse().unwrap()
}

#[tokio::test]
async fn everything_is_denied_that_no_route_takes_and_a_change_counts_at_once() {
    let worker = taking().await;
    let mut node = guarded(&worker, json!({})).await;
    assert_eq!(said(&node.post("/webhooks/demo", b"early").await), unknown());
    for open in ["/health", "/ready", "/openapi.json"] {
        assert_eq!(node.get(open).await.status, 200, "{open}");
    }
    assert_eq!(said(&node.get("/elsewhere").await), (404, json!({"error": "not_found"})));

    let route = json!({"id": "demo", "path": "/webhooks/demo", "metadata": {"team": "billing"}});
    let (status, mut made) = tell(&node, "POST", "/admin/routes", &route).await;
    for key in ["inserted_at", "updated_at"] {
        let at = made[key].take();
        assert!(at.as_str().unwrap().ends_with('Z') && at.as_str().unwrap().len() == 24, "{at}");
    }
    let expected = json!({
        "id": "demo", "path": "/webhooks/demo", "methods": ["POST"], "enabled": true, "ip_rules": [],
        "metadata": {"team": "billing"}, "revision": 1, "inserted_at": null, "updated_at": null,
    });
    assert_eq!((status, made), (201, expected));
    assert_eq!(hook(&node, "/webhooks/demo").await, 201);
    assert_eq!(hook(&node, "/webhooks/demo?x=1").await, 201);
    assert_eq!(said(&node.post("/webhooks/other", b"x").await), unknown());
    assert_eq!(said(&node.post("/webhooks/x/../demo", b"x").await), unknown());
    let put = node.ask(&request("PUT", "/webhooks/demo", &[], b"x")).await.unwrap();
    assert_eq!(said(&put), (404, json!({"error": "not_found"})));
    let reasons = [("no_route", 4), ("method", 1), ("ip_denied", 0), ("unknown_source", 0)];
    for (reason, count) in reasons {
        assert_eq!(counted(&node, reason).await, count, "{reason}");
    }

    let (status, patched) =
        tell(&node, "PATCH", "/admin/routes/demo", &json!({"enabled": false})).await;
    assert_eq!((status, &patched["revision"]), (200, &json!(2)));
    assert_eq!(hook(&node, "/webhooks/demo").await, 404);
    let all = json!({"path": "/webhooks/:source"});
    let (status, put) = tell(&node, "PUT", "/admin/routes/demo", &all).await;
    assert_eq!((status, &put["revision"], &put["metadata"]), (200, &json!(3), &json!({})));
    assert_eq!(
        (hook(&node, "/webhooks/demo").await, hook(&node, "/webhooks/other").await),
        (201, 201)
    );
    // A route lets through; what is behind it says what it always says.
    assert_eq!(said(&node.post("/webhooks/nobody", b"x").await), unknown());
    assert_eq!(counted(&node, "unknown_source").await, 1);

    assert_eq!(node.stop().await, Some(0));
    node.boot().await;
    assert_eq!(get(&node, "/health").await, (200, json!({"status": "ok", "routes": 1})));
    assert_eq!(get(&node, "/admin/routes/demo").await, (200, put));
    assert_eq!(hook(&node, "/webhooks/demo").await, 201);
    assert_eq!(
        said(&ask(&node, "DELETE", "/admin/routes/demo", &[], "").await),
        (204, Value::Null)
    );
    assert_eq!(hook(&node, "/webhooks/demo").await, 404);
    assert_eq!(get(&node, "/admin/routes/demo").await, (404, json!({"error": "not_found"})));
    node.kill();
    node.boot().await;
    assert_eq!(hook(&node, "/webhooks/demo").await, 404, "what is gone stays away");
}

#[tokio::test]
async fn clients_are_denied_by_the_rules_and_a_dry_run_says_which() {
    let worker = taking().await;
    let config = json!({"routes": {
        "trusted_proxies": ["127.0.0.1"],
        "ip_rules": {"default": "allow", "rules": [{"action": "deny", "cidr": "198.51.100.0/24"}]},
        "seed": [{"id": "all", "path": "/webhooks/*"}, {"id": "own", "path": "/webhooks/other",
            "ip_rules": [{"action": "allow", "cidr": "192.0.2.0/24"}]}],
    }});
    let node = guarded(&worker, config).await;
    let from = async |target: &str, client: &str| {
        let headers: &[(&str, &str)] =
            if client.is_empty() { &[] } else { &[("x-forwarded-for", client)] };
        said(&node.ask(&request("POST", target, headers, b"x")).await.unwrap())
    };
    let forbidden = (403, json!({"error": "forbidden"}));
    assert_eq!(from("/webhooks/demo", "").await.0, 201);
    assert_eq!(from("/webhooks/demo", "203.0.113.1").await.0, 201);
    assert_eq!(from("/webhooks/demo", "198.51.100.7").await, forbidden);
    assert_eq!(from("/webhooks/demo", "somebody").await, forbidden);
    assert_eq!(from("/webhooks/other", "192.0.2.1").await.0, 201);
    assert_eq!(from("/webhooks/other", "203.0.113.1").await, forbidden);
    assert_eq!(counted(&node, "ip_denied").await, 3);

    let global = json!({"action": "deny", "cidr": "198.51.100.0/24", "scope": "global"});
    let own = json!({"action": "allow", "cidr": "192.0.2.0/24", "scope": "route"});
    let null = Value::Null;
    for (method, path, ip, decision, reason, id, rule) in [
        ("POST", "/webhooks/demo?a=b", "203.0.113.1", "allow", "matched", json!("all"), &null),
        ("POST", "/webhooks/demo", "198.51.100.7", "deny", "ip_denied", json!("all"), &global),
        ("POST", "/webhooks/other", "192.0.2.1", "allow", "matched", json!("own"), &own),
        ("POST", "/webhooks/other", "203.0.113.1", "deny", "ip_denied", json!("own"), &null),
        ("GET", "/webhooks/other", "192.0.2.1", "deny", "method", json!(null), &null),
        ("POST", "/elsewhere", "192.0.2.1", "deny", "no_route", json!(null), &null),
    ] {
        let question = json!({"method": method, "path": path, "ip": ip});
        let expected =
            json!({"decision": decision, "reason": reason, "route_id": id, "ip_rule": rule});
        assert_eq!(tell(&node, "POST", "/admin/routes/test", &question).await, (200, expected));
    }
    assert_eq!(counted(&node, "ip_denied").await, 3, "a dry run counts for nothing");

    let (status, rules) = get(&node, "/admin/ip-rules").await;
    let configured =
        json!({"default": "allow", "rules": [{"action": "deny", "cidr": "198.51.100.0/24"}]});
    assert_eq!((status, rules), (200, configured));
    let closed =
        json!({"default": "deny", "rules": [{"action": "allow", "cidr": "203.0.113.0/24"}]});
    assert_eq!(tell(&node, "PUT", "/admin/ip-rules", &closed).await, (200, closed.clone()));
    assert_eq!(from("/webhooks/demo", "").await, forbidden);
    assert_eq!(from("/webhooks/demo", "203.0.113.1").await.0, 201);
    assert_eq!(get(&node, "/admin/ip-rules").await, (200, closed));
}

#[tokio::test]
async fn what_cannot_be_is_refused_with_its_field_and_changes_nothing() {
    let worker = taking().await;
    let node = guarded(&worker, json!({"routes": {"max_routes": 2}})).await;
    let a = json!({"id": "a", "path": "/a"});
    assert_eq!(tell(&node, "POST", "/admin/routes", &a).await.0, 201);
    let duplicate = (409, json!({"error": "duplicate_route", "conflicting_id": "a"}));
    assert_eq!(tell(&node, "POST", "/admin/routes", &a).await, duplicate);
    assert_eq!(tell(&node, "PUT", "/admin/routes/b", &json!({"path": "/%61"})).await, duplicate);
    let (status, made) = tell(&node, "POST", "/admin/routes", &json!({"path": "/b"})).await;
    assert_eq!((status, made["id"].as_str().unwrap().len()), (201, 26));
    let full = (409, json!({"error": "too_many_routes", "max_routes": 2}));
    assert_eq!(tell(&node, "POST", "/admin/routes", &json!({"path": "/c"})).await, full);
    assert_eq!(tell(&node, "PUT", "/admin/routes/c", &json!({"path": "/c"})).await, full);

    for (method, target, body, answer) in [
        (
            "POST",
            "/admin/routes",
            json!({"path": "a"}),
            invalid("invalid_route", "path", "must begin with /"),
        ),
        (
            "POST",
            "/admin/routes",
            json!({"path": "/x", "id": "test"}),
            invalid("invalid_route", "id", "this id is reserved"),
        ),
        (
            "PUT",
            "/admin/routes/A%2Fb",
            json!({"path": "/x"}),
            invalid(
                "invalid_route",
                "id",
                "must be 1 to 64 of a-z 0-9 _ -, with a letter or a digit at both ends",
            ),
        ),
        (
            "PATCH",
            "/admin/routes/a",
            json!({"path": "/x"}),
            invalid("invalid_route", "path", "immutable; use PUT"),
        ),
        (
            "PATCH",
            "/admin/routes/a",
            json!({"methods": []}),
            invalid("invalid_route", "methods", "must have 1 to 16 methods"),
        ),
        ("PATCH", "/admin/routes/z", json!({}), (404, json!({"error": "not_found"}))),
        ("DELETE", "/admin/routes/a%2Fb%20c%25", json!({}), (404, json!({"error": "not_found"}))),
        (
            "PUT",
            "/admin/ip-rules",
            json!({"rules": []}),
            invalid("invalid_ip_rules", "default", "is required: allow or deny"),
        ),
        (
            "POST",
            "/admin/routes/test",
            json!({"method": "POST", "path": "/a", "ip": "x"}),
            invalid("invalid_request", "ip", "must be an IPv4 or IPv6 address"),
        ),
        (
            "POST",
            "/admin/routes",
            json!([]),
            (400, json!({"error": "invalid_body", "message": "body must be a JSON object"})),
        ),
        ("POST", "/admin/elsewhere", json!({}), (404, json!({"error": "not_found"}))),
    ] {
        assert_eq!(tell(&node, method, target, &body).await, answer, "{method} {target} {body}");
    }
    for (query, field) in [
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("enabled=yes", "enabled"),
        ("cursor=A", "cursor"),
        ("x=1", "x"),
    ] {
        let refused = (400, json!({"error": "invalid_query", "field": field}));
        assert_eq!(get(&node, &format!("/admin/routes?{query}")).await, refused);
    }
    let large = format!("{{\"path\": \"/{}\"}}", "x".repeat(65_536));
    let refused = ask(&node, "POST", "/admin/routes", &[], &large).await;
    assert_eq!(said(&refused), (413, json!({"error": "payload_too_large", "limit": 65_536})));
    assert_eq!(get(&node, "/health").await, (200, json!({"status": "ok", "routes": 2})));
}

#[tokio::test]
async fn routes_are_listed_by_their_ids_a_page_at_a_time() {
    let worker = taking().await;
    let seed: Vec<Value> = (0..5)
        .map(|at| json!({"id": format!("r{at}"), "path": format!("/p{at}"), "enabled": at != 2}))
        .collect();
    let node = guarded(&worker, json!({"routes": {"seed": seed}})).await;
    let page = async |query: &str| {
        let (status, page) = get(&node, &format!("/admin/routes{query}")).await;
        assert_eq!(status, 200, "{page}");
        let ids = page["routes"].as_array().unwrap().iter();
        let ids: Vec<String> = ids.map(|route| route["id"].as_str().unwrap().to_owned()).collect();
        (ids.join(" "), page["next_cursor"].as_str().map(str::to_owned))
    };
    let of = |ids: &str, next: Option<&str>| (ids.to_owned(), next.map(str::to_owned));
    assert_eq!(page("").await, of("r0 r1 r2 r3 r4", None));
    assert_eq!(page("?limit=2").await, of("r0 r1", Some("r1")));
    assert_eq!(page("?limit=2&cursor=r1").await, of("r2 r3", Some("r3")));
    assert_eq!(page("?limit=2&cursor=r3").await, of("r4", None));
    assert_eq!(page("?limit=4&enabled=true").await, of("r0 r1 r3 r4", None));
    assert_eq!(page("?enabled=false").await, of("r2", None));
    assert_eq!(page("?cursor=r4").await, of("", None));
}

#[tokio::test]
async fn whoever_manages_routes_needs_a_token_where_there_are_some() {
    let worker = taking().await;
    let token = |name: &str, scope: &str| json!({"name": name, "token": format!("{name}-token-0123456"), "scopes": [scope]});
    let tokens =
        [token("reader", "routes:read"), token("writer", "routes:*"), token("other", "dlq:read")];
    let node = guarded(&worker, json!({"admin": {"tokens": tokens}})).await;
    let status = async |name: &str, method: &str, target: &str, body: &str| {
        let bearer = format!("Bearer {name}-token-0123456");
        ask(&node, method, target, &[("authorization", &bearer)], body).await.status
    };
    let question = r#"{"method": "POST", "path": "/a", "ip": "::1"}"#;
    for (method, target, body, reader, writer) in [
        ("GET", "/admin/routes", "", 200, 200),
        ("POST", "/admin/routes/test", question, 200, 200),
        ("POST", "/admin/routes", r#"{"path": "/a"}"#, 403, 201),
        ("PUT", "/admin/routes/b", r#"{"path": "/b"}"#, 403, 200),
        ("DELETE", "/admin/routes/b", "", 403, 204),
        ("PUT", "/admin/ip-rules", r#"{"default": "allow", "rules": []}"#, 403, 200),
        ("GET", "/admin/ip-rules", "", 200, 200),
    ] {
        assert_eq!(status("reader", method, target, body).await, reader, "{method} {target}");
        assert_eq!(status("writer", method, target, body).await, writer, "{method} {target}");
        assert_eq!(status("other", method, target, body).await, 403, "{method} {target}");
        assert_eq!(status("nobody", method, target, body).await, 401, "{method} {target}");
    }
    assert_eq!(ask(&node, "GET", "/admin/routes", &[], "").await.status, 401);
    for open in ["/health", "/openapi.json"] {
        assert_eq!(ask(&node, "GET", open, &[], "").await.status, 200);
    }
}

#[tokio::test]
async fn ctl_shows_changes_and_tries_routes() {
    let worker = taking().await;
    let node = guarded(&worker, json!({})).await;
    let file = node.path("route.yml");
    std::fs::write(&file, "path: /webhooks/demo\nip_rules: [{action: allow, cidr: 127.0.0.0/8}]\n")
        .unwrap();
    let file = file.to_str().unwrap();
    let put = node.ctl(&["--json", "routes", "put", "demo", file]).await;
    assert_eq!((put.code, put.value()["revision"].as_u64()), (Some(0), Some(1)), "{put:?}");
    assert_eq!(hook(&node, "/webhooks/demo").await, 201);
    let listed = node.ctl(&["routes", "list"]).await;
    assert_eq!(listed.code, Some(0), "{listed:?}");
    for text in ["demo", "/webhooks/demo", "POST", "true"] {
        assert!(listed.out.contains(text), "{listed:?}");
    }
    let got = node.ctl(&["--json", "routes", "get", "demo"]).await;
    assert_eq!(got.value(), put.value());
    let allowed =
        node.ctl(&["--json", "routes", "test", "POST", "/webhooks/demo", "127.0.0.1"]).await;
    assert_eq!((allowed.code, &allowed.value()["reason"]), (Some(0), &json!("matched")));
    let denied =
        node.ctl(&["--json", "routes", "test", "POST", "/webhooks/demo", "192.0.2.1"]).await;
    assert_eq!((denied.code, &denied.value()["reason"]), (Some(1), &json!("ip_denied")));
    let gone = node.ctl(&["routes", "delete", "demo"]).await;
    assert_eq!((gone.code, hook(&node, "/webhooks/demo").await), (Some(0), 404), "{gone:?}");
    let again = node.ctl(&["routes", "delete", "demo"]).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.err.contains("not_found"), "{again:?}");
}

#[tokio::test]
async fn a_node_without_a_guard_has_no_routes_and_no_listener_of_them() {
    let worker = taking().await;
    let node = TestNode::demo(&worker).await;
    node.accepted(b"x").await;
    assert!(Client::try_tcp(node.routes_port).await.is_err());
    let refused = node.control("GET", "/admin/routes").await.unwrap();
    let body = json!({"error": "routes_disabled", "message": "routes.enabled is false"});
    assert_eq!(said(&refused), (409, body));
    let told = node.ctl(&["routes", "list"]).await;
    assert_eq!(told.code, Some(1));
    assert!(told.err.contains("routes_disabled"), "{told:?}");
}

#[tokio::test]
async fn the_published_rust_client_manages_routes() {
    let worker = taking().await;
    let node = guarded(&worker, json!({})).await;
    let routes: RoutesClient =
        ClientBuilder::new(format!("http://127.0.0.1:{}", node.routes_port)).routes().unwrap();
    let health = routes.health().await.unwrap();
    assert_eq!((health.status.as_str(), health.routes), ("ok", 0));
    let input = RouteInput { path: "/webhooks/demo".to_owned(), ..RouteInput::default() };
    let made = routes.create_route(&input).await.unwrap();
    assert_eq!(
        (made.methods.join(","), made.enabled, made.revision),
        ("POST".to_owned(), true, Some(1))
    );
    assert_eq!(hook(&node, "/webhooks/demo").await, 201);
    assert_eq!(routes.get_route(&made.id).await.unwrap(), made);
    match routes.create_route(&input).await {
        Err(RoutesError::Rejected(rejected)) => {
            assert_eq!(rejected.code.as_deref(), Some("duplicate_route"));
            assert_eq!(rejected.conflicting_id, Some(made.id.clone()));
        }
        other => panic!("{other:?}"),
    }
    let allow = IpRule { action: Access::Allow, cidr: "192.0.2.0/24".to_owned() };
    let patch = RoutePatch { ip_rules: Some(vec![allow.clone()]), ..RoutePatch::default() };
    let patched = routes.update_route(&made.id, &patch).await.unwrap();
    assert_eq!((patched.ip_rules, patched.revision), (vec![allow], Some(2)));
    let question = DryRunRequest {
        method: "POST".to_owned(),
        path: "/webhooks/demo".to_owned(),
        ip: "127.0.0.1".to_owned(),
    };
    let tried = routes.test_route(&question).await.unwrap();
    assert_eq!((tried.decision, tried.reason), (Access::Deny, DryRunReason::IpDenied));
    assert_eq!((tried.route_id, tried.ip_rule), (Some(made.id.clone()), None));
    let replaced =
        routes.replace_route("other", &RouteInput { path: "/x".to_owned(), ..input }).await;
    assert_eq!(replaced.unwrap().id, "other");
    let page = ListRoutesParams { limit: Some(1), ..ListRoutesParams::default() };
    let page = routes.list_routes(&page).await.unwrap();
    assert_eq!((page.routes.len(), page.next_cursor), (1, Some(made.id.clone())));
    let deny = IpRule { action: Access::Deny, cidr: "2001:db8::/32".to_owned() };
    let rules = IpRules { default: Access::Allow, rules: vec![deny] };
    assert_eq!(routes.put_ip_rules(&rules).await.unwrap(), rules);
    assert_eq!(routes.get_ip_rules().await.unwrap(), rules);
    routes.delete_route(&made.id).await.unwrap();
    assert!(matches!(routes.delete_route("a/b c%").await, Err(RoutesError::NotFound)));
    assert_eq!(hook(&node, "/webhooks/demo").await, 404);
}
