//! Which lane a hook is in, for a sink that takes hooks in order.
//!
//! A lane is what must stay in order: everything of one source for one sink, or everything that agrees in a header or in
//! a value of the body. It is taken when the hook comes in and stored with the row, so that a changed configuration
//! never moves a row that waits.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use sha2::{Digest, Sha256};

use super::sink_spec::SinkSpecError;

/// What hooks must agree in to be delivered in order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OrderBy {
    /// Nothing more than source and tenant.
    Source,
    /// The value of this header. Hooks without it, or with an empty one, are in one lane.
    Header(String),
    /// The text, number or boolean this JSON pointer finds in the body. Hooks where it finds none are in one lane.
    Json(String),
}

/// As `{by: ...}` is written.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec<T> {
    by: T,
}

/// Reads `true`, `false` or `{by: ...}`.
///
/// # Errors
/// Anything else.
pub fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OrderBy>, D::Error> {
    deserializer.deserialize_any(SpecVisitor)
}

/// Writes `false` or `{by: ...}`.
///
/// # Errors
/// The serializer's.
pub fn serialize<S: serde::Serializer>(
    ordered: &Option<OrderBy>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match ordered {
        Some(by) => Spec { by }.serialize(serializer),
        None => false.serialize(serializer),
    }
}

struct SpecVisitor;

impl<'de> Visitor<'de> for SpecVisitor {
    type Value = Option<OrderBy>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(EXPECTED)
    }

    fn visit_bool<E>(self, ordered: bool) -> Result<Self::Value, E> {
        Ok(ordered.then_some(OrderBy::Source))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        Spec::deserialize(MapAccessDeserializer::new(map)).map(|Spec { by }| Some(by))
    }
}

/// Every way to write it.
pub const EXPECTED: &str =
    "true, false, {by: source}, {by: {header: NAME}} or {by: {json: /pointer}}";

impl OrderBy {
    /// Whether a hook can have a key by it.
    ///
    /// # Errors
    /// The key below the sink, and what is wrong.
    pub fn check(&self) -> Result<(), SinkSpecError> {
        match self {
            Self::Source => Ok(()),
            Self::Header(name) if is_header_name(name) => Ok(()),
            Self::Header(name) => Err(SinkSpecError::new(
                "ordered.by.header",
                format!("must be the name of a header, got {name:?}"),
            )),
            Self::Json(pointer) if tokens(pointer).is_some() => Ok(()),
            Self::Json(pointer) => Err(SinkSpecError::new(
                "ordered.by.json",
                format!(
                    "must be a JSON pointer as /customer/id, ~0 and ~1 for ~ and /, got {pointer:?}"
                ),
            )),
        }
    }

    /// What hooks of one lane agree in; empty where there is nothing.
    fn key<'h>(&self, headers: &'h [(Bytes, Bytes)], body: &[u8]) -> Cow<'h, [u8]> {
        match self {
            Self::Source => Cow::default(),
            Self::Header(name) => header(headers, name),
            Self::Json(pointer) => {
                let scalar = tokens(pointer).and_then(|tokens| scalar_at(body, &tokens));
                Cow::Owned(scalar.unwrap_or_default().into_bytes())
            }
        }
    }
}

/// What the sinks of one source are ordered by, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneRules(Vec<Option<OrderBy>>);

impl LaneRules {
    pub fn new(of_sinks: impl IntoIterator<Item = Option<OrderBy>>) -> Self {
        Self(of_sinks.into_iter().collect())
    }

    /// Whether any sink is ordered.
    pub fn any(&self) -> bool {
        self.0.iter().any(Option::is_some)
    }

    /// The lane of a hook for each sink, in the order of the sinks; empty where none is ordered.
    pub fn lanes(
        &self,
        source_id: &str,
        headers: &[(Bytes, Bytes)],
        body: &[u8],
    ) -> Vec<Option<u128>> {
        if !self.any() {
            return Vec::new();
        }
        let lane_of = |(sink, by): (u16, &Option<OrderBy>)| {
            by.as_ref().map(|by| lane(source_id, sink, &by.key(headers, body)))
        };
        (0..).zip(&self.0).map(lane_of).collect()
    }
}

/// The first 16 bytes of the SHA-256 of source id, 00, place of the sink, 00 and key: no two sinks share a lane.
pub fn lane(source_id: &str, sink: u16, key: &[u8]) -> u128 {
    let mut hash = Sha256::new();
    hash.update(source_id);
    hash.update([0]);
    hash.update(sink.to_be_bytes());
    hash.update([0]);
    hash.update(key);
    let digest = hash.finalize();
    digest.iter().take(16).fold(0, |lane, byte| lane << 8 | u128::from(*byte))
}

fn is_header_name(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// Repeats joined, as a sink is told them.
fn header<'h>(headers: &'h [(Bytes, Bytes)], name: &str) -> Cow<'h, [u8]> {
    let mut found = headers.iter().filter(|(key, _)| key.eq_ignore_ascii_case(name.as_bytes()));
    let mut joined = found.next().map_or(Cow::default(), |(_, value)| Cow::Borrowed(&**value));
    for (_, value) in found {
        let joined = joined.to_mut();
        joined.extend_from_slice(b", ");
        joined.extend_from_slice(value);
    }
    joined
}

/// The steps of a JSON pointer (RFC 6901); `None` if it is none.
fn tokens(pointer: &str) -> Option<Vec<String>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer.strip_prefix('/')?.split('/').map(token).collect()
}

fn token(escaped: &str) -> Option<String> {
    let mut parts = escaped.split('~');
    let mut token = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (c, rest) = match part.split_at_checked(1)? {
            ("0", rest) => ('~', rest),
            ("1", rest) => ('/', rest),
            (_, _) => return None,
        };
        token.push(c);
        token.push_str(rest);
    }
    Some(token)
}

/// The text, number or boolean there, as JSON writes it. Nothing else of the body is kept in memory.
fn scalar_at(body: &[u8], tokens: &[String]) -> Option<String> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let found = At(tokens).deserialize(&mut json).ok()?;
    json.end().ok()?;
    found
}

/// Looks for what is at the end of these steps.
struct At<'t>(&'t [String]);

impl<'de> DeserializeSeed<'de> for At<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl At<'_> {
    fn scalar<E: Error>(&self, scalar: impl Serialize) -> Result<Option<String>, E> {
        if self.0.is_empty() {
            serde_json::to_string(&scalar).map(Some).map_err(E::custom)
        } else {
            Ok(None)
        }
    }
}

impl<'de> Visitor<'de> for At<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        self.scalar(value)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    /// Of two values with one name the last one counts, as for most readers of JSON.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(name) = map.next_key::<Cow<'_, str>>()? {
            match self.0.split_first() {
                Some((wanted, rest)) if **wanted == *name => {
                    found = map.next_value_seed(At(rest))?
                }
                Some(_) | None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        let wanted = self.0.split_first().and_then(|(index, rest)| Some((place(index)?, rest)));
        let mut found = None;
        for at in 0.. {
            let is_there = match wanted {
                Some((wanted, rest)) if wanted == at => {
                    let value = seq.next_element_seed(At(rest))?;
                    found = value.clone().flatten();
                    value.is_some()
                }
                Some(_) | None => seq.next_element::<IgnoredAny>()?.is_some(),
            };
            if !is_there {
                break;
            }
        }
        Ok(found)
    }
}

/// A place in a list: digits without a leading zero.
fn place(token: &str) -> Option<usize> {
    let is_plain = token == "0" || !token.starts_with(['0', '+']);
    token.parse().ok().filter(|_| is_plain)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(spec: Value) -> Result<Option<OrderBy>, String> {
        deserialize(spec).map_err(|error| error.to_string())
    }

    fn headers(all: &[(&'static str, &'static str)]) -> Vec<(Bytes, Bytes)> {
        all.iter().map(|(name, value)| (Bytes::from(*name), Bytes::from(*value))).collect()
    }

    fn json_key(pointer: &str, body: &str) -> String {
        let key = OrderBy::Json(pointer.to_owned()).key(&[], body.as_bytes()).into_owned();
        String::from_utf8(key).unwrap()
    }

    #[test]
    fn it_is_written_as_a_flag_or_with_what_it_goes_by() {
        let header = OrderBy::Header("x-order".to_owned());
        let json = OrderBy::Json("/order/id".to_owned());
        assert_eq!(read(json!(false)), Ok(None));
        assert_eq!(read(json!(true)), Ok(Some(OrderBy::Source)));
        for (spec, by) in [
            (json!({"by": "source"}), OrderBy::Source),
            (json!({"by": {"header": "x-order"}}), header),
            (json!({"by": {"json": "/order/id"}}), json),
        ] {
            assert_eq!(read(spec.clone()), Ok(Some(by.clone())));
            assert_eq!(serialize(&Some(by), serde_json::value::Serializer).unwrap(), spec);
        }
        assert_eq!(serialize(&None, serde_json::value::Serializer).unwrap(), json!(false));
    }

    #[test]
    fn anything_else_is_refused() {
        for (spec, why) in [
            (json!("yes"), format!("invalid type: string \"yes\", expected {EXPECTED}")),
            (json!(null), format!("invalid type: null, expected {EXPECTED}")),
            (json!({}), "missing field `by`".to_owned()),
            (json!({"by": "source", "x": 1}), "unknown field `x`, expected `by`".to_owned()),
            (
                json!({"by": "tenant"}),
                "unknown variant `tenant`, expected one of `source`, `header`, `json`".to_owned(),
            ),
        ] {
            assert_eq!(read(spec), Err(why));
        }
    }

    #[test]
    fn a_header_needs_a_name_and_a_pointer_its_form() {
        let header = |name: &str| OrderBy::Header(name.to_owned()).check();
        let json = |pointer: &str| OrderBy::Json(pointer.to_owned()).check();
        assert_eq!(header("X-Order-Id"), Ok(()));
        for name in ["", "x order", "x:"] {
            assert_eq!(header(name).unwrap_err().key, "ordered.by.header", "{name}");
        }
        for pointer in ["", "/", "/a/0", "/a~1b/~0"] {
            assert_eq!(json(pointer), Ok(()), "{pointer}");
        }
        for pointer in ["a", "a/b", "/~", "/~2", "/a~"] {
            assert_eq!(json(pointer).unwrap_err().key, "ordered.by.json", "{pointer}");
        }
        assert_eq!(OrderBy::Source.check(), Ok(()));
    }

    #[test]
    fn a_header_is_found_whatever_its_case_and_repeats_are_joined() {
        let key = |all: &[(&'static str, &'static str)]| {
            OrderBy::Header("x-order".to_owned()).key(&headers(all), b"").into_owned()
        };
        assert_eq!(key(&[("a", "1"), ("X-Order", "7")]), b"7");
        assert_eq!(key(&[("x-order", "7"), ("X-ORDER", "8")]), b"7, 8");
        assert_eq!(key(&[("a", "1")]), b"");
    }

    #[test]
    fn a_pointer_finds_texts_numbers_and_booleans_as_json_writes_them() {
        let body = r#"{"a": {"b/c": [1, "x\u0041", true, null, {}, 1.50, -3]}, "~": 7, "": "e"}"#;
        for (pointer, key) in [
            ("/a/b~1c/0", "1"),
            ("/a/b~1c/1", r#""xA""#),
            ("/a/b~1c/2", "true"),
            ("/a/b~1c/3", ""),
            ("/a/b~1c/4", ""),
            ("/a/b~1c/5", "1.5"),
            ("/a/b~1c/6", "-3"),
            ("/a/b~1c/7", ""),
            ("/a/b~1c/01", ""),
            ("/a/b~1c/-", ""),
            ("/a", ""),
            ("/~0", "7"),
            ("/", r#""e""#),
            ("", ""),
            ("/a/b~1c/0/x", ""),
        ] {
            assert_eq!(json_key(pointer, body), key, "{pointer}");
        }
        assert_eq!(json_key("", "12"), "12");
        assert_eq!(json_key("/a", r#"{"a": 1, "a": 2}"#), "2");
    }

    #[test]
    fn what_is_no_json_has_no_value() {
        for body in ["", "{", r#"{"a": 1"#, r#"{"a": 1} x"#, "\u{ff}"] {
            assert_eq!(json_key("/a", body), "", "{body}");
        }
        let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(json_key("/0", &deep), "");
    }

    #[test]
    fn no_two_sinks_and_no_two_keys_share_a_lane() {
        let rules = LaneRules::new([
            Some(OrderBy::Source),
            None,
            Some(OrderBy::Source),
            Some(OrderBy::Header("k".to_owned())),
        ]);
        let lanes = |value| rules.lanes("src", &headers(&[("k", value)]), b"");
        let (one, other) = (lanes("1"), lanes("2"));
        assert_eq!(
            one,
            [
                Some(lane("src", 0, b"")),
                None,
                Some(lane("src", 2, b"")),
                Some(lane("src", 3, b"1")),
            ]
        );
        assert_eq!(one[..3], other[..3]);
        assert_ne!(one[0], one[2]);
        assert_ne!(one[3], other[3]);
        assert_eq!(rules.lanes("src", &[], b"")[3], Some(lane("src", 3, b"")));
        assert!(rules.any());
        let none = LaneRules::new([None, None]);
        assert_eq!((none.any(), none.lanes("src", &[], b"")), (false, vec![]));
    }

    #[test]
    fn a_lane_is_half_a_sha256() {
        // printf 'src\0\0\2\0key' | sha256sum
        assert_eq!(lane("src", 2, b"key"), 0xd9c4_7c91_33a3_38ba_b2b4_d410_08d4_8cec);
    }
}
