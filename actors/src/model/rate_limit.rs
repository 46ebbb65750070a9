//! What limits of hooks are written as: in the configuration, over the API and in the store, always the same mapping.

use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::gcra::{Gcra, MAX_FILL_NS, Rate};

/// The most hooks a second, and hooks in a burst, that a limit can name.
pub const MAX_HOOKS: u64 = 1_000_000_000;
/// The most body bytes a second.
pub const MAX_BYTES_RATE: u64 = 1_000_000_000;
/// The most body bytes in a burst.
pub const MAX_BYTES_BURST: u64 = 1 << 40;

/// Hooks and body bytes that may come: each a rate a second and a burst, of which either none is given or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimit {
    /// Hooks a second, more than 0 and at most [`MAX_HOOKS`]; fractions down to a millionth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Hooks at once, 1 to [`MAX_HOOKS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub burst: Option<u64>,
    /// Body bytes a second, 1 to [`MAX_BYTES_RATE`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_rate: Option<u64>,
    /// Body bytes at once, at least the largest body there may be and at most [`MAX_BYTES_BURST`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_burst: Option<u64>,
}

/// A tenant's own: the limit and its share of the batchers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TenantLimit {
    #[serde(flatten)]
    pub limit: RateLimit,
    /// Of the room in the batchers that others leave, what this tenant may have, in percent, 1 to 100; `None` for
    /// `batcher.tenant_share_percent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub overload_share_percent: Option<u32>,
}

/// What a limit comes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub hooks: Option<Gcra>,
    pub bytes: Option<Gcra>,
}

impl Limits {
    pub const fn is_none(&self) -> bool {
        self.hooks.is_none() && self.bytes.is_none()
    }
}

impl RateLimit {
    pub const fn is_none(&self) -> bool {
        let Self { rate, burst, bytes_rate, bytes_burst } = self;
        rate.is_none() && burst.is_none() && bytes_rate.is_none() && bytes_burst.is_none()
    }

    /// The limits it stands for. A largest body of `max_body_bytes` must be able to pass a bucket that is full, or it
    /// would be refused for ever with an answer that promises otherwise.
    ///
    /// # Errors
    /// The field that is wrong and what is wrong with it, as it goes on after the field's name in a sentence.
    pub fn limits(&self, max_body_bytes: u64) -> Result<Limits, LimitError> {
        let Self { rate, burst, bytes_rate, bytes_burst } = *self;
        let hooks = match (rate, burst) {
            (Some(rate), Some(burst)) => Some(hooks(rate, burst)?),
            (None, None) => None,
            (None, Some(_)) => return Err(LimitError::new("rate", "is required with burst")),
            (Some(_), None) => return Err(LimitError::new("burst", "is required with rate")),
        };
        let bytes = match (bytes_rate, bytes_burst) {
            (Some(rate), Some(burst)) => Some(bytes(rate, burst, max_body_bytes)?),
            (None, None) => None,
            (None, Some(_)) => {
                return Err(LimitError::new("bytes_rate", "is required with bytes_burst"));
            }
            (Some(_), None) => {
                return Err(LimitError::new("bytes_burst", "is required with bytes_rate"));
            }
        };
        Ok(Limits { hooks, bytes })
    }
}

fn hooks(rate: Rate, burst: u64) -> Result<Gcra, LimitError> {
    if Rate::whole(MAX_HOOKS).is_none_or(|most| rate > most) {
        return Err(LimitError::new("rate", format!("must be <= {MAX_HOOKS}")));
    }
    whole("burst", burst, 1, MAX_HOOKS)?;
    Gcra::of_ones(rate, burst).ok_or_else(|| slow("burst"))
}

fn bytes(rate: u64, burst: u64, max_body_bytes: u64) -> Result<Gcra, LimitError> {
    whole("bytes_rate", rate, 1, MAX_BYTES_RATE)?;
    whole("bytes_burst", burst, 1, MAX_BYTES_BURST)?;
    if burst < max_body_bytes {
        let text = format!("must be >= http.max_body_bytes ({max_body_bytes}), got {burst}");
        return Err(LimitError::new("bytes_burst", text));
    }
    let rate = Rate::whole(rate).ok_or_else(|| slow("bytes_rate"))?;
    Gcra::of_many(rate, burst).ok_or_else(|| slow("bytes_burst"))
}

fn whole(field: &'static str, got: u64, min: u64, max: u64) -> Result<(), LimitError> {
    if (min..=max).contains(&got) {
        return Ok(());
    }
    Err(LimitError::new(field, format!("must be {min} to {max}, got {got}")))
}

fn slow(field: &'static str) -> LimitError {
    let days = MAX_FILL_NS / 86_400_000_000_000;
    LimitError::new(field, format!("takes longer than {days} days to come back at this rate"))
}

impl TenantLimit {
    const FIELDS: [&str; 5] =
        ["rate", "burst", "bytes_rate", "bytes_burst", "overload_share_percent"];

    pub const fn is_none(&self) -> bool {
        self.limit.is_none() && self.overload_share_percent.is_none()
    }

    /// Reads a stored row: fields this release does not know are passed over, as a newer one may have written them.
    pub fn stored(value: &[u8]) -> Option<Self> {
        let serde_json::Value::Object(mut fields) = serde_json::from_slice(value).ok()? else {
            return None;
        };
        fields.retain(|name, _| Self::FIELDS.contains(&name.as_str()));
        serde_json::from_value(fields.into()).ok()
    }

    /// See [`RateLimit::limits`].
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn limits(&self, max_body_bytes: u64) -> Result<Limits, LimitError> {
        if let Some(percent) = self.overload_share_percent {
            whole("overload_share_percent", u64::from(percent), 1, 100)?;
        }
        self.limit.limits(max_body_bytes)
    }
}

impl<'de> Deserialize<'de> for TenantLimit {
    /// By hand: serde cannot refuse unknown fields of a mapping that is flattened.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            rate: Option<Rate>,
            burst: Option<u64>,
            bytes_rate: Option<u64>,
            bytes_burst: Option<u64>,
            overload_share_percent: Option<u32>,
        }
        let Fields { rate, burst, bytes_rate, bytes_burst, overload_share_percent } =
            Fields::deserialize(deserializer)?;
        let limit = RateLimit { rate, burst, bytes_rate, bytes_burst };
        Ok(Self { limit, overload_share_percent })
    }
}

/// A field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {text}")]
pub struct LimitError {
    pub field: &'static str,
    pub text: String,
}

impl LimitError {
    fn new(field: &'static str, text: impl Into<String>) -> Self {
        Self { field, text: text.into() }
    }
}

impl Serialize for Rate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_whole() {
            Some(whole) => serializer.serialize_u64(whole),
            None => serializer.serialize_f64(self.as_f64()),
        }
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;
        impl Visitor<'_> for Number {
            type Value = Rate;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number of at least a millionth")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<Rate, E> {
                Rate::whole(number).ok_or_else(|| E::custom(format!("a rate cannot be {number}")))
            }

            fn visit_i64<E: Error>(self, number: i64) -> Result<Rate, E> {
                let whole = u64::try_from(number).ok().and_then(Rate::whole);
                whole.ok_or_else(|| E::custom(format!("a rate cannot be {number}")))
            }

            fn visit_f64<E: Error>(self, number: f64) -> Result<Rate, E> {
                Rate::from_f64(number)
                    .ok_or_else(|| E::custom(format!("a rate cannot be {number}")))
            }
        }
        deserializer.deserialize_any(Number)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json, to_value};

    use super::*;

    fn refusal(limit: serde_json::Value) -> String {
        let limit: TenantLimit = from_value(limit).unwrap();
        limit.limits(1_000).unwrap_err().to_string()
    }

    #[test]
    fn every_field_is_read_and_written_as_it_was() {
        let all = json!({"rate": 0.5, "burst": 2, "bytes_rate": 3, "bytes_burst": 4000,
            "overload_share_percent": 50});
        let read: TenantLimit = from_value(all.clone()).unwrap();
        assert_eq!(to_value(read).unwrap(), all);
        let documented: TenantLimit = from_value(json!({"rate": 50, "burst": 100})).unwrap();
        assert_eq!(serde_json::to_string(&documented).unwrap(), r#"{"rate":50,"burst":100}"#);
        assert_eq!(to_value(TenantLimit::default()).unwrap(), json!({}));
        let error = from_value::<TenantLimit>(json!({"rte": 1})).unwrap_err().to_string();
        assert!(error.starts_with("unknown field `rte`"), "{error}");
    }

    #[test]
    fn a_stored_row_may_hold_what_this_release_does_not_know_and_must_be_a_limit() {
        let newer = br#"{"rate":2.5,"burst":7,"fleet":true}"#;
        let read = TenantLimit::stored(newer).unwrap();
        assert_eq!(to_value(read).unwrap(), json!({"rate": 2.5, "burst": 7}));
        for damaged in [&b""[..], b"[]", b"{", br#"{"rate":"x"}"#, br#"{"burst":-1}"#, b"\xff"] {
            assert_eq!(TenantLimit::stored(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn a_limit_comes_to_what_it_says() {
        let limit: RateLimit = from_value(json!({"rate": 2, "burst": 3})).unwrap();
        let hooks = Gcra::of_ones(Rate::whole(2).unwrap(), 3);
        assert_eq!(limit.limits(1_000), Ok(Limits { hooks, bytes: None }));
        let limit: RateLimit = from_value(json!({"bytes_rate": 2, "bytes_burst": 1000})).unwrap();
        let bytes = Gcra::of_many(Rate::whole(2).unwrap(), 1_000);
        assert_eq!(limit.limits(1_000), Ok(Limits { hooks: None, bytes }));
        assert_eq!(RateLimit::default().limits(1_000), Ok(Limits::default()));
        assert!(Limits::default().is_none() && RateLimit::default().is_none());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_field() {
        let table = [
            (json!({"rate": 1}), "burst is required with rate"),
            (json!({"burst": 1}), "rate is required with burst"),
            (json!({"bytes_rate": 1}), "bytes_burst is required with bytes_rate"),
            (json!({"bytes_burst": 1}), "bytes_rate is required with bytes_burst"),
            (json!({"rate": 1, "burst": 0}), "burst must be 1 to 1000000000, got 0"),
            (json!({"rate": 1_000_000_001, "burst": 1}), "rate must be <= 1000000000"),
            (
                json!({"rate": 0.000001, "burst": 1000}),
                "burst takes longer than 366 days to come back at this rate",
            ),
            (
                json!({"bytes_rate": 1, "bytes_burst": 999}),
                "bytes_burst must be >= http.max_body_bytes (1000), got 999",
            ),
            (
                json!({"bytes_rate": 0, "bytes_burst": 1000}),
                "bytes_rate must be 1 to 1000000000, got 0",
            ),
            (
                json!({"overload_share_percent": 101}),
                "overload_share_percent must be 1 to 100, got 101",
            ),
            (
                json!({"overload_share_percent": 0}),
                "overload_share_percent must be 1 to 100, got 0",
            ),
        ];
        for (limit, expected) in table {
            assert_eq!(refusal(limit), expected);
        }
        for rate in [json!(0), json!(-1), json!(0.0), json!("1"), json!(1e300)] {
            assert!(from_value::<RateLimit>(json!({"rate": rate, "burst": 1})).is_err(), "{rate}");
        }
    }
}
