use proptest::prelude::*;
use serde_json::{Value, from_value, json, to_value};

use super::*;

fn spec(value: Value) -> Result<DedupeSpec, String> {
    from_value(value).map_err(|error| error.to_string())
}

fn rule(value: Value) -> DedupeRule {
    spec(value).unwrap().build().unwrap()
}

fn headers(all: &[(&'static str, &'static str)]) -> Vec<(Bytes, Bytes)> {
    all.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect()
}

fn key(value: Value, all: &[(&'static str, &'static str)], body: &str) -> Option<String> {
    let key = rule(value).key(&headers(all), body.as_bytes())?;
    Some(String::from_utf8(key.to_vec()).unwrap())
}

fn at(path: &str, body: &str) -> Option<String> {
    JsonPath::parse(path).unwrap().find(body.as_bytes())
}

#[test]
fn a_preset_is_a_word_or_a_mapping_and_is_remembered_for_three_days() {
    for preset in DedupePreset::ALL {
        let by = DedupeBy::Preset(preset);
        let expected = DedupeSpec { by, ttl_seconds: 259_200 };
        assert_eq!(spec(json!(preset.as_str())), Ok(expected.clone()));
        assert_eq!(spec(json!({"preset": preset.as_str()})), Ok(expected));
    }
    assert_eq!(rule(json!("stripe")).ttl_ms(), 259_200_000);
    assert_eq!(rule(json!({"header": "x-id", "ttl_seconds": 1})).ttl_ms(), 1_000);
}

#[test]
fn a_mapping_has_exactly_one_place_and_is_written_as_it_was_read() {
    for written in [
        json!({"preset": "svix", "ttl_seconds": 7}),
        json!({"header": "X-Id", "ttl_seconds": 259_200}),
        json!({"json": "a.b", "ttl_seconds": 60}),
    ] {
        assert_eq!(to_value(spec(written.clone()).unwrap()).unwrap(), written);
    }
    for wrong in [
        json!({}),
        json!({"ttl_seconds": 5}),
        json!({"header": "x", "json": "a"}),
        json!({"preset": "github", "json": "a"}),
        json!({"preset": "unheard_of"}),
        json!("unheard_of"),
        json!({"header": "x", "ttl": 5}),
        json!(true),
    ] {
        assert!(spec(wrong.clone()).is_err(), "{wrong}");
    }
}

#[test]
fn what_no_key_can_be_found_by_is_refused_by_its_key() {
    let refused = |value| spec(value).unwrap().build().unwrap_err().to_string();
    assert_eq!(
        refused(json!({"header": "x", "ttl_seconds": 0})),
        "ttl_seconds must be 1 to 31622400, got 0"
    );
    assert_eq!(
        refused(json!({"header": "x", "ttl_seconds": 31_622_401})),
        "ttl_seconds must be 1 to 31622400, got 31622401"
    );
    assert_eq!(
        refused(json!({"header": "a b"})),
        "header must be the name of a header, got \"a b\""
    );
    assert_eq!(refused(json!({"header": ""})), "header must be the name of a header, got \"\"");
    for path in ["", ".", "a.", ".a", "a..b"] {
        let expected = format!("json must be {PATH_EXPECTED}, got {path:?}");
        assert_eq!(refused(json!({"json": path})), expected);
    }
    let (steps, bytes) = (["a"; 33].join("."), "a".repeat(257));
    assert!(JsonPath::parse(&steps).is_none() && JsonPath::parse(&steps[2..]).is_some());
    assert!(JsonPath::parse(&bytes).is_none() && JsonPath::parse(&bytes[1..]).is_some());
}

#[test]
fn every_preset_knows_where_its_provider_puts_the_key() {
    for (preset, header) in [
        ("github", "X-GitHub-Delivery"),
        ("standard_webhooks", "webhook-id"),
        ("svix", "Svix-Id"),
        ("shopify", "X-Shopify-Webhook-Id"),
    ] {
        let found = key(json!(preset), &[("x-other", "no"), (header, "evt-1")], "{}");
        assert_eq!(found.as_deref(), Some("evt-1"), "{preset}");
    }
    let body = r#"{"object":"event","id":"evt_1"}"#;
    assert_eq!(key(json!("stripe"), &[("id", "no")], body).as_deref(), Some("evt_1"));
}

#[test]
fn of_a_repeated_header_the_first_value_counts_and_an_empty_one_is_none() {
    let by_header = || json!({"header": "X-Id"});
    let both = [("x-id", "first"), ("X-ID", "second")];
    assert_eq!(key(by_header(), &both, "").as_deref(), Some("first"));
    assert_eq!(key(by_header(), &[("x-id", ""), ("x-id", "second")], ""), None);
    assert_eq!(key(by_header(), &[("x-idd", "first")], ""), None);
}

#[test]
fn a_key_of_more_than_200_bytes_is_its_digest() {
    let by_header = rule(json!({"header": "x-id"}));
    let key = |length: usize| {
        let headers = [(Bytes::from("x-id"), Bytes::from("k".repeat(length)))];
        by_header.key(&headers, b"").unwrap()
    };
    assert_eq!(key(200), Bytes::from("k".repeat(200)));
    let digest = format!("sha256:{}", sha256_hex("k".repeat(201).as_bytes()));
    assert_eq!(key(201), Bytes::from(digest));
}

#[test]
fn a_text_is_taken_as_it_is_and_a_whole_number_in_decimal() {
    assert_eq!(at("id", r#"{"id":"evt_1"}"#).as_deref(), Some("evt_1"));
    assert_eq!(at("id", r#" { "id" : "a\u0041\n\"" } "#).as_deref(), Some("aA\n\""));
    assert_eq!(at("id", r#"{"id":"007"}"#).as_deref(), Some("007"));
    for (number, expected) in [
        ("0", "0"),
        ("-0", "0"),
        ("7", "7"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("36893488147419103232", "36893488147419103232"),
    ] {
        let found = at("id", &format!(r#"{{"id":{number}}}"#));
        assert_eq!(found.as_deref(), Some(expected), "{number}");
    }
    for other in ["\"\"", "1.0", "1e3", "-1E+2", "true", "null", "{}", "[1]", "{\"id\":1}"] {
        assert_eq!(at("id", &format!(r#"{{"id":{other}}}"#)), None, "{other}");
    }
}

#[test]
fn a_path_leads_through_objects_and_nothing_else() {
    let body = r#"{"a":{"x":[{"c":9}],"b":{"c":"found","d":1}},"b":{"c":"no"},"a.b.c":"no"}"#;
    assert_eq!(at("a.b.c", body).as_deref(), Some("found"));
    for nowhere in ["a", "a.b", "a.b.c.d", "a.x.c", "a.x.0.c", "c", "A.b.c"] {
        assert_eq!(at(nowhere, body), None, "{nowhere}");
    }
    for body in ["[]", "[{\"a\":1}]", "\"a\"", "1", "null", "true", "1.5", "-1"] {
        assert_eq!(at("a", body), None, "{body}");
    }
}

#[test]
fn of_two_members_with_one_name_the_last_one_counts() {
    assert_eq!(at("a.b", r#"{"a":{"b":1},"a":{"b":2}}"#).as_deref(), Some("2"));
    assert_eq!(at("a.b", r#"{"a":{"b":1,"b":2}}"#).as_deref(), Some("2"));
    assert_eq!(at("a.b", r#"{"a":{"b":1},"a":{"c":2}}"#), None);
    assert_eq!(at("a.b", r#"{"a":{"b":1},"a":7}"#), None);
}

#[test]
fn a_body_that_is_not_one_json_value_has_no_key() {
    for body in [
        "",
        "{",
        r#"{"a":1"#,
        r#"{"a":1}}"#,
        r#"{"a":1} {"a":1}"#,
        r#"{"a":01}"#,
        r#"{"a":1,}"#,
        "\u{feff}{\"a\":1}",
        r#"{"a":"\ud800"}"#,
    ] {
        assert_eq!(at("a", body), None, "{body}");
    }
    let broken: &[u8] = b"{\"a\":\"\xff\"}";
    assert_eq!(JsonPath::parse("a").unwrap().find(broken), None);
    // What is wrong only in a text that nobody asked for does not matter.
    let elsewhere: &[u8] = b"{\"\xff\":\"\xff\",\"a\":1}";
    assert_eq!(JsonPath::parse("a").unwrap().find(elsewhere).as_deref(), Some("1"));
}

#[test]
fn a_body_nested_deeper_than_any_stack_is_walked_without_one() {
    let deep = format!(r#"{{"x":{}{},"a":1}}"#, "[".repeat(200_000), "]".repeat(200_000));
    assert_eq!(at("a", &deep).as_deref(), Some("1"));
}

/// JSON with few names, so that paths often lead somewhere.
fn arb_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,6}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[abc]", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// The same by way of the whole tree.
fn by_tree(path: &str, json: &Value) -> Option<String> {
    let end = path.split('.').try_fold(json, |at, name| at.as_object()?.get(name))?;
    let text = match end {
        Value::String(text) => text.clone(),
        Value::Number(number) if !number.is_f64() => number.to_string(),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            return None;
        }
    };
    Some(text).filter(|text| !text.is_empty())
}

proptest! {
    #[test]
    fn the_walk_finds_what_the_whole_tree_has(
        json in arb_json(),
        path in "[abc](\\.[abc]){0,3}",
        pretty: bool,
    ) {
        let text = if pretty { serde_json::to_vec_pretty(&json) } else { serde_json::to_vec(&json) };
        let found = JsonPath::parse(&path).unwrap().find(&text.unwrap());
        prop_assert_eq!(found, by_tree(&path, &json));
    }

    #[test]
    fn any_bytes_have_a_key_or_none(
        body: Vec<u8>,
        path in "[a.\"]{0,8}",
    ) {
        if let Some(path) = JsonPath::parse(&path) {
            path.find(&body);
        }
    }

    #[test]
    fn a_key_is_never_empty_nor_longer_than_200_bytes(value in ".{0,300}") {
        let body = json!({"id": value}).to_string();
        let key = rule(json!("stripe")).key(&[], body.as_bytes());
        prop_assert_eq!(key.is_none(), value.is_empty());
        prop_assert!(key.is_none_or(|key| (1..=MAX_KEY_BYTES).contains(&key.len())));
    }
}
