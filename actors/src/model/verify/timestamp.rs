//! Reading the time at which a hook says it was signed.

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};

use super::descriptor::TimestampFormat;

/// Unix seconds of a timestamp as it was sent; none if it cannot be read. One too far off to be a number is the farthest
/// there is, which no window reaches.
pub(super) fn unix_s(text: &[u8], format: TimestampFormat) -> Option<i64> {
    match format {
        TimestampFormat::Seconds => leading_integer(text),
        TimestampFormat::Milliseconds => leading_integer(text).map(|ms| ms.div_euclid(1_000)),
        TimestampFormat::Rfc3339 => rfc3339_unix_s(text),
    }
}

/// The integer at the head of a text; what follows it is left alone, as documented: it is signed with the rest.
fn leading_integer(text: &[u8]) -> Option<i64> {
    let (sign, digits) = match text {
        [b'-', digits @ ..] => (-1, digits),
        [b'+', digits @ ..] => (1, digits),
        digits => (1, digits),
    };
    digits.first().filter(|byte| byte.is_ascii_digit())?;
    let digits = digits.iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number: i64, byte| {
        let digit = i64::from(byte - b'0');
        number.saturating_mul(10).saturating_add(sign * digit)
    }))
}

/// Unix seconds of `2021-03-25T05:09:27.123+01:00`. The fraction counts for nothing.
pub fn rfc3339_unix_s(text: &[u8]) -> Option<i64> {
    let mut text = Cursor(text);
    let (year, month, day) = (text.number(4, b"")?, text.number(2, b"-")?, text.number(2, b"-")?);
    let (hour, minute, second) =
        (text.number(2, b"Tt ")?, text.number(2, b":")?, text.number(2, b":")?);
    let is_valid = (1..=12).contains(&month)
        && (1..=31).contains(&day)
        && hour < 24
        && minute < 60
        && second <= 60;
    if !is_valid {
        return None;
    }
    if let [b'.', rest @ ..] = text.0 {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        text.0 = rest.get(digits..).filter(|_| digits > 0)?;
    }
    let offset_s = match text.0 {
        [b'Z' | b'z'] => 0,
        [sign @ (b'+' | b'-'), rest @ ..] => {
            let mut rest = Cursor(rest);
            let offset_s = rest.number(2, b"")? * 3_600 + rest.number(2, b":")? * 60;
            if !rest.0.is_empty() {
                return None;
            }
            if *sign == b'-' { -offset_s } else { offset_s }
        }
        _ => return None,
    };
    let days = days_since_epoch(year, month, day);
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second - offset_s)
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    /// A number of so many digits, after one of `before` unless that is empty.
    fn number(&mut self, digits: usize, before: &[u8]) -> Option<i64> {
        if !before.is_empty() {
            let (first, rest) = self.0.split_first()?;
            self.0 = Some(rest).filter(|_| before.contains(first))?;
        }
        let (number, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        number.iter().all(u8::is_ascii_digit).then_some(())?;
        leading_integer(number)
    }
}

/// Days from 1970-01-01 to a date of the Gregorian calendar, counted in years that begin in March.
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days_of_months = (153 * month + 2) / 5;
    year * 365 + leap_days + days_of_months + day - 1 - 719_468
}

/// The value of `key` in the JSON object `body`, as text: a whole number in decimal, or a string without escapes. None if
/// there is no such value, or if the body is no JSON; of several of that name the first counts.
pub(super) fn in_json(body: &[u8], key: &str) -> Option<String> {
    serde_json::Deserializer::from_slice(body).deserialize_map(FindKey(key)).ok()?
}

struct FindKey<'a>(&'a str);

impl<'de> Visitor<'de> for FindKey<'_> {
    type Value = Option<String>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = None;
        while let Some(is_wanted) = map.next_key_seed(IsKey(self.0))? {
            if is_wanted && found.is_none() {
                found = Some(map.next_value_seed(AsText)?);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(found.flatten())
    }
}

/// Whether a key is the wanted one, without a copy of it.
struct IsKey<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for IsKey<'_> {
    type Value = bool;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<bool, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for IsKey<'_> {
    type Value = bool;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<bool, E> {
        Ok(key == self.0)
    }
}

/// A number or a string as text; of anything else there is none.
struct AsText;

impl<'de> DeserializeSeed<'de> for AsText {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, value: D) -> Result<Self::Value, D::Error> {
        let value = <serde_json::Value as serde::Deserialize>::deserialize(value)?;
        Ok(match value {
            serde_json::Value::String(text) => Some(text),
            serde_json::Value::Number(number) => number.as_i64().map(|number| number.to_string()),
            serde_json::Value::Null
            | serde_json::Value::Bool(_)
            | serde_json::Value::Array(_)
            | serde_json::Value::Object(_) => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_read_in_each_format() {
        use TimestampFormat::{Milliseconds, Rfc3339, Seconds};
        let table: [(&str, TimestampFormat, Option<i64>); 27] = [
            ("1688169000", Seconds, Some(1_688_169_000)),
            ("1688169000.9 more", Seconds, Some(1_688_169_000)),
            ("-5", Seconds, Some(-5)),
            ("+5", Seconds, Some(5)),
            ("", Seconds, None),
            ("-", Seconds, None),
            ("x1", Seconds, None),
            ("99999999999999999999", Seconds, Some(i64::MAX)),
            ("1688169000999", Milliseconds, Some(1_688_169_000)),
            ("-1", Milliseconds, Some(-1)),
            ("1970-01-01T00:00:00Z", Rfc3339, Some(0)),
            ("2021-03-25T05:09:27Z", Rfc3339, Some(1_616_648_967)),
            ("2021-03-25t05:09:27.123456789z", Rfc3339, Some(1_616_648_967)),
            ("2021-03-25 06:09:27+01:00", Rfc3339, Some(1_616_648_967)),
            ("2021-03-25T00:09:27-05:00", Rfc3339, Some(1_616_648_967)),
            ("2000-02-29T23:59:60Z", Rfc3339, Some(951_868_800)),
            ("2100-03-01T00:00:00Z", Rfc3339, Some(4_107_542_400)),
            ("1969-12-31T23:59:59Z", Rfc3339, Some(-1)),
            ("2021-13-01T00:00:00Z", Rfc3339, None),
            ("2021-01-00T00:00:00Z", Rfc3339, None),
            ("2021-01-01T24:00:00Z", Rfc3339, None),
            ("2021-01-01T00:00:00", Rfc3339, None),
            ("2021-01-01T00:00:00.Z", Rfc3339, None),
            ("2021-01-01T00:00:00+01", Rfc3339, None),
            ("2021-01-01T00:00:00+01:00x", Rfc3339, None),
            ("+021-01-01T00:00:00Z", Rfc3339, None),
            ("2021-01", Rfc3339, None),
        ];
        for (text, format, expected) in table {
            assert_eq!(unix_s(text.as_bytes(), format), expected, "{text}");
        }
    }

    #[test]
    fn a_timestamp_in_a_body_is_found_at_its_top_alone() {
        for (body, expected) in [
            (r#"{"a":{"ts":1},"ts":1688169000000,"ts":2}"#, Some("1688169000000")),
            (r#"{"t\u0073":"12"}"#, Some("12")),
            (r#"{"ts":-3}"#, Some("-3")),
            (r#"{"ts":1.5}"#, None),
            (r#"{"ts":null,"ts":1}"#, None),
            (r#"{"TS":1}"#, None),
            (r#"[{"ts":1}]"#, None),
            (r#"{"ts":1"#, None),
            ("", None),
        ] {
            assert_eq!(in_json(body.as_bytes(), "ts").as_deref(), expected, "{body}");
        }
    }
}
