use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::model::keys::{RateLimitKey, RouteKey};

fn object(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn spec(value: Value) -> RouteSpec {
    RouteSpec::new(RouteFields::read(object(value)).unwrap()).unwrap()
}

fn route(id: &str, value: Value) -> Route {
    let spec = spec(value);
    Route { id: id.to_owned(), spec, inserted_at_ms: 1, updated_at_ms: 2, revision: 3 }
}

fn set(routes: &[(&str, Value)], rules: Value) -> RouteSet {
    let routes =
        routes.iter().map(|(id, value)| ((*id).to_owned(), Arc::new(route(id, value.clone()))));
    let rules = IpRules::read(object(rules)).unwrap();
    RouteSet::new(routes.collect(), Arc::new(rules))
}

fn open(routes: &[(&str, Value)]) -> RouteSet {
    set(routes, json!({"default": "allow", "rules": []}))
}

/// Decision, reason and route, as `reason:id`.
fn asked(set: &RouteSet, method: &str, path: &str, ip: &str) -> String {
    let decision = set.decide(method, path, Some(ip.parse().unwrap()));
    let id = decision.route.map_or("-", |route| route.id.as_str());
    format!("{}:{id}", decision.reason.as_str())
}

fn refused(value: Value) -> (String, String) {
    let read = RouteFields::read(object(value)).and_then(RouteSpec::new);
    let Invalid { field, message } = read.unwrap_err();
    (field, message)
}

#[test]
fn a_route_takes_its_path_and_its_methods_and_nothing_else() {
    let set = open(&[
        ("demo", json!({"path": "/webhooks/demo"})),
        ("both", json!({"path": "/webhooks/both", "methods": ["GET", "POST"]})),
        ("off", json!({"path": "/webhooks/off", "enabled": false})),
    ]);
    for (method, path, expected) in [
        ("POST", "/webhooks/demo", "matched:demo"),
        ("GET", "/webhooks/demo", "method:-"),
        ("post", "/webhooks/demo", "method:-"),
        ("GET", "/webhooks/both", "matched:both"),
        ("POST", "/webhooks/off", "no_route:-"),
        ("POST", "/webhooks/Demo", "no_route:-"),
        ("POST", "/webhooks", "no_route:-"),
        ("POST", "/webhooks/demo/more", "no_route:-"),
        ("POST", "/webhooks/d%65mo", "matched:demo"),
        ("POST", "/webhooks/demo/", "no_route:-"),
        ("POST", "//webhooks/demo", "no_route:-"),
        ("POST", "/webhooks/./demo", "no_route:-"),
        ("POST", "/webhooks/x/../demo", "no_route:-"),
        ("POST", "/webhooks/x/%2e%2E/demo", "no_route:-"),
        ("POST", "/webhooks%2Fdemo", "no_route:-"),
        ("POST", "/webhooks%2fdemo", "no_route:-"),
        ("POST", "/webhooks/demo%", "no_route:-"),
        ("POST", "/webhooks/demo%0", "no_route:-"),
        ("POST", "/webhooks/demo%00", "no_route:-"),
        ("POST", "/webhooks/%ff", "no_route:-"),
        ("POST", "webhooks/demo", "no_route:-"),
        ("POST", "*", "no_route:-"),
        ("POST", "/", "no_route:-"),
        ("POST", "", "no_route:-"),
    ] {
        assert_eq!(asked(&set, method, path, "192.0.2.1"), expected, "{method} {path}");
    }
}

#[test]
fn the_route_that_says_the_most_counts_of_those_that_take_the_method() {
    let set = open(&[
        ("literal", json!({"path": "/a/b"})),
        ("param", json!({"path": "/a/:x"})),
        ("rest", json!({"path": "/a/*", "methods": ["POST", "PUT"]})),
        ("deep", json!({"path": "/:x/b/c"})),
        ("star", json!({"path": "/a/%2A"})),
        ("colon", json!({"path": "/a/%3Ax", "methods": ["PUT"]})),
    ]);
    for (method, path, expected) in [
        ("POST", "/a/b", "matched:literal"),
        ("PUT", "/a/b", "matched:rest"),
        ("POST", "/a/c", "matched:param"),
        ("POST", "/a/c/d", "matched:rest"),
        ("POST", "/a/b/c", "matched:rest"),
        ("POST", "/z/b/c", "matched:deep"),
        ("DELETE", "/a/b", "method:-"),
        ("POST", "/a", "no_route:-"),
        ("POST", "/a/*", "matched:star"),
        ("PUT", "/a/:x", "matched:colon"),
        ("PUT", "/z/b/c", "method:-"),
    ] {
        assert_eq!(asked(&set, method, path, "192.0.2.1"), expected, "{method} {path}");
    }
}

#[test]
fn a_global_denial_wins_and_the_rules_of_a_route_stand_instead_of_the_rest() {
    let rules = json!({"default": "deny", "rules": [
        {"action": "allow", "cidr": "10.9.0.0/16"},
        {"action": "deny", "cidr": "10.0.0.0/8"},
        {"action": "allow", "cidr": "192.0.2.0/24"},
    ]});
    let own = json!([
        {"action": "deny", "cidr": "203.0.113.9"},
        {"action": "allow", "cidr": "203.0.113.0/24"},
        {"action": "allow", "cidr": "10.0.0.0/8"},
        {"action": "allow", "cidr": "2001:db8::/32"},
    ]);
    let set = set(
        &[("plain", json!({"path": "/plain"})), ("own", json!({"path": "/own", "ip_rules": own}))],
        rules,
    );
    let rule = |action: &str, cidr: &str, scope: &str| json!({"action": action, "cidr": cidr, "scope": scope});
    for (path, ip, decision, deciding) in [
        ("/plain", "192.0.2.7", "allow", rule("allow", "192.0.2.0/24", "global")),
        ("/plain", "198.51.100.1", "deny", Value::Null),
        ("/plain", "10.1.1.1", "deny", rule("deny", "10.0.0.0/8", "global")),
        ("/plain", "10.9.1.1", "allow", rule("allow", "10.9.0.0/16", "global")),
        ("/plain", "::ffff:10.9.1.1", "allow", rule("allow", "10.9.0.0/16", "global")),
        ("/own", "10.1.1.1", "deny", rule("deny", "10.0.0.0/8", "global")),
        ("/own", "10.9.1.1", "allow", rule("allow", "10.0.0.0/8", "route")),
        ("/own", "203.0.113.9", "deny", rule("deny", "203.0.113.9", "route")),
        ("/own", "203.0.113.8", "allow", rule("allow", "203.0.113.0/24", "route")),
        ("/own", "192.0.2.7", "deny", Value::Null),
        ("/own", "2001:db8::1", "allow", rule("allow", "2001:db8::/32", "route")),
        ("/own", "2001:db9::1", "deny", Value::Null),
    ] {
        let told = set.decide("POST", path, Some(ip.parse().unwrap())).to_json();
        let reason = if decision == "allow" { "matched" } else { "ip_denied" };
        let id = path.trim_start_matches('/');
        let expected = json!({
            "decision": decision, "reason": reason, "route_id": id, "ip_rule": deciding,
        });
        assert_eq!(told, expected, "{path} {ip}");
    }
    let nobody = set.decide("POST", "/own", None);
    assert_eq!((nobody.reason, nobody.ip_rule), (Reason::IpDenied, None));
    let nowhere = set.decide("POST", "/nowhere", Some("10.1.1.1".parse().unwrap()));
    let expected =
        json!({"decision": "deny", "reason": "no_route", "route_id": null, "ip_rule": null});
    assert_eq!(nowhere.to_json(), expected);
}

#[test]
fn two_enabled_routes_cannot_take_one_method_of_one_path() {
    let set = open(&[
        ("one", json!({"path": "/a/:x", "methods": ["POST", "PUT"]})),
        ("rest", json!({"path": "/a/*"})),
        ("off", json!({"path": "/off", "enabled": false})),
    ]);
    for (value, of) in [
        (json!({"path": "/a/:other"}), Some("one")),
        (json!({"path": "/%61/:y", "methods": ["GET", "PUT"]}), Some("one")),
        (json!({"path": "/a/:x", "methods": ["GET"]}), None),
        (json!({"path": "/a/:x", "enabled": false}), None),
        (json!({"path": "/a/b"}), None),
        (json!({"path": "/a/*"}), Some("rest")),
        (json!({"path": "/a"}), None),
        (json!({"path": "/off"}), None),
    ] {
        let found = set.conflicting(&spec(value.clone()), "new").map(|route| route.id.as_str());
        assert_eq!(found, of, "{value}");
        assert!(of.is_none_or(|of| set.conflicting(&spec(value.clone()), of).is_none()), "{value}");
    }
    assert_eq!(asked(&set.without("one"), "PUT", "/a/b", "192.0.2.1"), "method:-");
    let turned = set.with(route("one", json!({"path": "/b"})));
    assert_eq!(asked(&turned, "POST", "/b", "192.0.2.1"), "matched:one");
    assert_eq!(asked(&turned, "PUT", "/a/b", "192.0.2.1"), "method:-");
}

#[test]
fn what_is_no_route_is_told_with_its_field() {
    let path = |path: &str| json!({"path": path});
    let long = format!("/{}", "x".repeat(MAX_PATH_BYTES));
    for (value, field, message) in [
        (json!({}), "path", "is required"),
        (json!({"path": 7}), "path", "must be a string"),
        (path("a"), "path", "must begin with /"),
        (path("/"), "path", "must have no empty segment"),
        (path("/a//b"), "path", "must have no empty segment"),
        (path("/a/"), "path", "must have no empty segment"),
        (path("/a?b"), "path", "must have no query and no fragment"),
        (path("/a b"), "path", "must be visible ASCII: escape everything else with %"),
        (path("/a/.."), "path", "cannot have the segment \"..\": %2F, . and .. are no segments"),
        (path("/%2e"), "path", "cannot have the segment \"%2e\": %2F, . and .. are no segments"),
        (
            path("/a%2Fb"),
            "path",
            "cannot have the segment \"a%2Fb\": %2F, . and .. are no segments",
        ),
        (path("/*/a"), "path", "can have * only as its last segment"),
        (path("/a*"), "path", "can have * only as a whole segment: write %2A for the star"),
        (path("/:"), "path", "has no parameter name in \":\": letters, digits and _"),
        (path("/:1"), "path", "has no parameter name in \":1\": letters, digits and _"),
        (path("/:x/:x"), "path", "names the parameter \"x\" twice"),
        (path(&long), "path", "must have at most 1024 bytes"),
        (path(&"/a".repeat(33)), "path", "must have at most 32 segments"),
        (
            json!({"path": "/a", "id": "A"}),
            "id",
            "must be 1 to 64 of a-z 0-9 _ -, with a letter or a digit at both ends",
        ),
        (json!({"path": "/a", "id": 1}), "id", "must be a string"),
        (json!({"path": "/a", "methods": []}), "methods", "must have 1 to 16 methods"),
        (
            json!({"path": "/a", "methods": ["post"]}),
            "methods[0]",
            "must be 1 to 16 of A-Z, as POST",
        ),
        (json!({"path": "/a", "methods": ["POST", "POST"]}), "methods[1]", "is there twice"),
        (json!({"path": "/a", "methods": "POST"}), "methods", "must be a list"),
        (json!({"path": "/a", "enabled": "yes"}), "enabled", "must be true or false"),
        (json!({"path": "/a", "metadata": []}), "metadata", "must be an object"),
        (
            json!({"path": "/a", "metadata": {"x": "y".repeat(MAX_METADATA_BYTES)}}),
            "metadata",
            "must have at most 16384 bytes as JSON",
        ),
        (
            json!({"path": "/a", "ip_rules": [{"action": "allow"}]}),
            "ip_rules[0].cidr",
            "must be a string",
        ),
        (
            json!({"path": "/a", "ip_rules": [{"cidr": "10.0.0.0/8"}]}),
            "ip_rules[0].action",
            "must be allow or deny",
        ),
        (
            json!({"path": "/a", "ip_rules": [{"action": "deny", "cidr": "::ffff:10.0.0.0/104"}]}),
            "ip_rules[0].cidr",
            "\"::ffff:10.0.0.0/104\" must be written as IPv4",
        ),
        (
            json!({"path": "/a", "ip_rules": [{"action": "deny", "cidr": "10.0.0.1/8"}]}),
            "ip_rules[0].cidr",
            "\"10.0.0.1/8\" has bits set after its prefix",
        ),
        (
            json!({"path": "/a", "ip_rules": [{"action": "deny", "cidr": "1.2.3.4", "x": 1}]}),
            "ip_rules[0].x",
            "is not known here: action and cidr are",
        ),
        (
            json!({"path": "/a", "colour": 1}),
            "colour",
            "is not known here: id, path, methods, enabled, ip_rules, metadata are",
        ),
    ] {
        assert_eq!(refused(value), (field.to_owned(), message.to_owned()));
    }
    let many: Vec<Value> =
        (0..=MAX_RULES).map(|_| json!({"action": "deny", "cidr": "1.2.3.4"})).collect();
    let (field, message) = refused(json!({"path": "/a", "ip_rules": many}));
    assert_eq!((field.as_str(), message.as_str()), ("ip_rules", "must have at most 256 rules"));
    for (patch, field, message) in [
        (json!({"path": "/b"}), "path", "immutable; use PUT"),
        (json!({"id": "b"}), "id", "immutable; use PUT"),
        (json!({"revision": 2}), "revision", "is the node's own"),
    ] {
        let error = RoutePatch::read(object(patch)).unwrap_err();
        assert_eq!((error.field.as_str(), error.message.as_str()), (field, message));
    }
    for (rules, field) in [
        (json!({"rules": []}), "default"),
        (json!({"default": "allow"}), "rules"),
        (json!({"default": "allow", "rules": [{"action": "allow", "cidr": "x"}]}), "rules[0].cidr"),
        (json!({"default": "allow", "rules": [], "more": 1}), "more"),
    ] {
        assert_eq!(IpRules::read(object(rules)).unwrap_err().field, field);
    }
}

#[test]
fn a_route_is_shown_with_all_it_says_and_taken_back_as_it_was_shown() {
    let full = json!({
        "id": "r1", "path": "/in/:t/*", "methods": ["POST", "GET"], "enabled": false,
        "ip_rules": [{"action": "allow", "cidr": "fd12::/48"}], "metadata": {"team": [1, {"a": null}]},
        "revision": 3, "inserted_at": "1970-01-01T00:00:00.001Z", "updated_at": "1970-01-01T00:00:00.002Z",
    });
    let route = route("r1", full.clone());
    assert_eq!(route.to_json(), full);
    let bare = super::tests::route("r2", json!({"path": "/a"})).to_json();
    assert_eq!(bare["methods"], json!(["POST"]));
    assert_eq!(
        (&bare["enabled"], &bare["ip_rules"], &bare["metadata"]),
        (&json!(true), &json!([]), &json!({}))
    );
}

#[test]
fn a_row_is_read_as_it_was_written_and_what_is_none_says_why() {
    let written = route(
        "r1",
        json!({"path": "/in/:t/*", "ip_rules": [{"action": "deny", "cidr": "10.0.0.0/8"}], "metadata": {"a": 1}}),
    );
    let (key, value) = (RouteKey("r1").encode(), encode(&written));
    assert_eq!(decode(&key, &value), Ok(written));
    let said = |key: &[u8], value: &[u8]| decode(key, value).unwrap_err().to_string();
    assert_eq!(said(&RateLimitKey("r1").encode(), &value), "a key that names no route");
    assert_eq!(said(&RouteKey("R 1").encode(), &value), "a key that names no route");
    assert_eq!(
        said(&key, &vec![b' '; (1 << 20) + 1]),
        "a value of 1048577 bytes, and at most 1048576 are read"
    );
    assert!(said(&key, b"{}").starts_with("its value cannot be read: missing field"));
    let damaged = String::from_utf8(value).unwrap().replace("/in/", "in/");
    assert_eq!(said(&key, damaged.as_bytes()), "its value cannot be read: path: must begin with /");
    let rules = json!({"default": "deny", "rules": [{"action": "allow", "cidr": "1.2.3.4"}]});
    let rules = IpRules::read(object(rules)).unwrap();
    assert_eq!(decode_rules(&encode_rules(&rules)), Ok(rules));
    assert!(decode_rules(b"[]").is_err());
}

#[test]
fn an_id_that_is_made_sorts_by_its_time() {
    assert_eq!(new_id(0, 0), "0".repeat(26));
    assert_eq!(new_id((1 << 48) - 1, u128::MAX), "7".to_owned() + &"z".repeat(25));
    assert!(new_id(1, 0) > new_id(0, u128::MAX));
    assert!(is_route_id(&new_id(1_796_000_000_000, 0xdead_beef)));
    for (id, is) in
        [("a", true), ("0-_9", true), ("", false), ("-a", false), ("a_", false), ("a.b", false)]
    {
        assert_eq!(is_route_id(id), is, "{id}");
    }
    assert!(is_route_id(&"a".repeat(64)) && !is_route_id(&"a".repeat(65)));
}

#[test]
fn ten_thousand_routes_are_found_by_their_segments() {
    let mut set = RouteSet::default();
    for at in 0..10_000 {
        set.insert_new(route(
            &format!("r{at}"),
            json!({"path": format!("/hooks/t{}/s{at}", at % 100)}),
        ));
    }
    for at in [0, 99, 5_000, 9_999] {
        let path = format!("/hooks/t{}/s{at}", at % 100);
        assert_eq!(asked(&set, "POST", &path, "192.0.2.1"), format!("matched:r{at}"));
        let wrong = format!("/hooks/t{}/s{at}", (at + 1) % 100);
        assert_eq!(asked(&set, "POST", &wrong, "192.0.2.1"), "no_route:-");
    }
}

/// The same question, answered by looking at every route in turn.
fn slowly(routes: &BTreeMap<String, Route>, method: &str, path: &str) -> (Option<String>, bool) {
    let Some(given) = segments(path) else { return (None, false) };
    // Of a segment: how well it fits, if it does. The first difference decides.
    let fit = |pattern: &str| -> Option<Vec<u8>> {
        let parts: Vec<&str> = pattern[1..].split('/').collect();
        let is_rest = parts.last() == Some(&"*");
        let fixed = parts.len() - usize::from(is_rest);
        if given.len() < parts.len() || (!is_rest && given.len() != parts.len()) {
            return None;
        }
        let mut ranks = Vec::new();
        for (part, given) in parts.iter().take(fixed).zip(&given) {
            ranks.push(match part.strip_prefix(':') {
                Some(_) => 1,
                None if part == given => 0,
                None => return None,
            });
        }
        if is_rest {
            ranks.push(2);
        }
        Some(ranks)
    };
    let fitting: Vec<(Vec<u8>, &Route)> =
        routes.values().filter_map(|route| Some((fit(route.spec.path.as_str())?, route))).collect();
    let best = fitting.iter().filter(|(_, route)| route.spec.methods.iter().any(|m| m == method));
    let best = best.min_by(|a, b| a.0.cmp(&b.0));
    (best.map(|(_, route)| route.id.clone()), !fitting.is_empty())
}

fn pattern() -> impl Strategy<Value = String> {
    let part = prop_oneof![Just("a"), Just("b"), Just("c"), Just(":x")];
    (prop::collection::vec(part, 1..4), any::<bool>()).prop_map(|(parts, is_rest)| {
        let parts: Vec<String> = parts
            .into_iter()
            .enumerate()
            .map(|(at, part)| if part == ":x" { format!(":x{at}") } else { part.to_owned() })
            .collect();
        format!("/{}{}", parts.join("/"), if is_rest { "/*" } else { "" })
    })
}

proptest! {
    #[test]
    fn the_index_finds_what_looking_at_every_route_finds(
        patterns in prop::collection::vec((pattern(), any::<bool>()), 0..12),
        parts in prop::collection::vec(prop_oneof![Just("a"), Just("b"), Just("d")], 1..5),
        is_post in any::<bool>(),
    ) {
        let mut set = RouteSet::default();
        let mut routes = BTreeMap::new();
        for (at, (path, is_post)) in patterns.into_iter().enumerate() {
            let method = if is_post { "POST" } else { "PUT" };
            let made = route(&format!("r{at}"), json!({"path": path, "methods": [method]}));
            if set.conflicting(&made.spec, &made.id).is_none() {
                set.insert_new(made.clone());
                routes.insert(made.id.clone(), made);
            }
        }
        let (path, method) = (format!("/{}", parts.join("/")), if is_post { "POST" } else { "PUT" });
        let decision = set.decide(method, &path, Some("192.0.2.1".parse().unwrap()));
        let found = decision.route.map(|route| route.id.clone());
        let knows_path = decision.reason != Reason::NoRoute;
        prop_assert_eq!((found, knows_path), slowly(&routes, method, &path));
    }

    /// However a path is escaped, it is the same path, and one that could leave its folder is none.
    #[test]
    fn escapes_change_nothing(path in "(/[a-c.]{1,3}){1,4}", escape in any::<u64>()) {
        let escaped: String = path.bytes().enumerate().map(|(at, byte)| {
            let keep = byte == b'/' || (escape >> at) & 1 == 0;
            if keep { char::from(byte).to_string() } else { format!("%{byte:02x}") }
        }).collect();
        prop_assert_eq!(segments(&escaped), segments(&path));
        let leaves = path.split('/').any(|part| matches!(part, "." | ".."));
        prop_assert_eq!(segments(&path).is_none(), leaves);
    }

    #[test]
    fn any_bytes_are_a_path_or_none_and_a_pattern_or_none(text in ".{0,40}") {
        let path = segments(&text);
        if let Ok(pattern) = PathPattern::parse(&text) {
            prop_assert_eq!(pattern.as_str(), text.as_str());
        }
        if let Some(path) = path {
            prop_assert!(path.iter().all(|part| !part.contains('/') && !matches!(part.as_ref(), "" | "." | "..")));
        }
    }

    #[test]
    fn any_bytes_are_a_row_or_none(key in prop::collection::vec(any::<u8>(), 0..12), value in prop::collection::vec(any::<u8>(), 0..64)) {
        let key = [RouteKey::PREFIX, &key].concat();
        prop_assert!(decode(&key, &value).is_err());
        prop_assert!(decode_rules(&value).is_err());
    }
}
