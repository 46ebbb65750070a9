//! One text or whole number out of a JSON body, without building the rest of it.

use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Steps of the longest path. The walk is as deep as the path, whatever the body is.
const MAX_STEPS: usize = 32;

/// Bytes of the longest path.
const MAX_PATH_BYTES: usize = 256;

/// Every path there is.
pub const PATH_EXPECTED: &str =
    "names of objects with dots between them as data.object.id, at most 32 and 256 bytes";

/// A way through the objects of a JSON body. A name with a dot in it cannot be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonPath(Vec<String>);

impl JsonPath {
    /// Reads `a.b.c`; `None` where a name is empty, or there is too much of it.
    pub fn parse(path: &str) -> Option<Self> {
        if path.len() > MAX_PATH_BYTES {
            return None;
        }
        let steps: Vec<String> = path.split('.').map(str::to_owned).collect();
        let is_path = steps.len() <= MAX_STEPS && steps.iter().all(|step| !step.is_empty());
        is_path.then_some(Self(steps))
    }

    pub(super) fn of<const N: usize>(steps: [&str; N]) -> Self {
        Self(steps.map(str::to_owned).to_vec())
    }

    /// What is at its end: a text as it is, a whole number in decimal whatever its size, and nothing for anything else or
    /// for the empty text.
    ///
    /// The body has to be one JSON value and nothing behind it. Of two members of an object with one name the last one
    /// counts, as for most readers of JSON, even where it leads nowhere. Arrays are not entered. Any bytes may be given.
    pub fn find(&self, body: &[u8]) -> Option<String> {
        let mut json = serde_json::Deserializer::from_slice(body);
        let found = Walk(&self.0).deserialize(&mut json).ok()?;
        json.end().ok()?;
        scalar(found?.get())
    }
}

/// `raw` is one JSON value.
fn scalar(raw: &str) -> Option<String> {
    let text = match raw.as_bytes().first()? {
        b'"' => serde_json::from_str(raw).ok()?,
        b'-' | b'0'..=b'9' if raw.bytes().skip(1).all(|byte| byte.is_ascii_digit()) => {
            // It is the number 0.
            if raw == "-0" { "0".to_owned() } else { raw.to_owned() }
        }
        _other => return None,
    };
    (!text.is_empty()).then_some(text)
}

/// Looks for what is at the end of these steps.
struct Walk<'p>(&'p [String]);

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        if self.0.is_empty() {
            return <&RawValue>::deserialize(json).map(Some);
        }
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<&'de RawValue>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_str<E: Error>(self, _: &str) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        let Some((wanted, rest)) = self.0.split_first() else { return Ok(None) };
        while let Some(is_wanted) = map.next_key_seed(Name(wanted))? {
            if is_wanted {
                found = map.next_value_seed(Walk(rest))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(None)
    }
}

/// Whether a member has this name. Names that are no text at all are of no interest either.
struct Name<'p>(&'p str);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<bool, D::Error> {
        json.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a name")
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<bool, E> {
        Ok(name == self.0.as_bytes())
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<bool, E> {
        Ok(name == self.0)
    }
}
