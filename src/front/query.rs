//! Query strings of the admin API: fields that are known, each at most once, and what they say. A field that is misspelled
//! is refused and not passed over: a list would be longer than was asked for, and a purge would take more.

use std::collections::BTreeMap;
use std::str::FromStr;

use axum::http::StatusCode;
use axum::response::Response;
use serde_json::json;
use url::form_urlencoded;

use super::routes::refuse;

/// A field that is not known, said twice, or does not say what it must.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InvalidFilter(pub(super) String);

impl From<InvalidFilter> for Response {
    fn from(InvalidFilter(field): InvalidFilter) -> Self {
        refuse(StatusCode::BAD_REQUEST, &json!({"error": "invalid_filter", "field": field}))
    }
}

/// The fields of a query string.
#[derive(Debug)]
pub(super) struct Fields(BTreeMap<String, String>);

impl Fields {
    /// Reads `query`, in which there may be those of `names`.
    pub(super) fn read(query: Option<&str>, names: &[&str]) -> Result<Self, InvalidFilter> {
        let mut fields = BTreeMap::new();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let is_known = names.contains(&name.as_ref());
            if !is_known || fields.insert(name.to_string(), value.into_owned()).is_some() {
                return Err(InvalidFilter(name.into_owned()));
            }
        }
        Ok(Self(fields))
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What `parse` makes of the field, if it is there.
    pub(super) fn parsed<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, InvalidFilter> {
        let invalid = || InvalidFilter(name.to_owned());
        self.text(name).map(|text| parse(text).ok_or_else(invalid)).transpose()
    }

    /// The same where the text says it all.
    pub(super) fn read_as<T: FromStr>(&self, name: &str) -> Result<Option<T>, InvalidFilter> {
        self.parsed(name, |text| text.parse().ok())
    }

    /// How many rows are asked for: `otherwise` if it is not said, and no fewer than none and no more than `most`.
    pub(super) fn limit(&self, otherwise: usize, most: usize) -> Result<usize, InvalidFilter> {
        let asked: Option<i64> = self.read_as("limit")?;
        let clamped = |limit: i64| usize::try_from(limit.max(0)).unwrap_or(most).min(most);
        Ok(asked.map_or(otherwise, clamped))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(query: &str) -> Result<Fields, InvalidFilter> {
        Fields::read(Some(query), &["a", "limit"])
    }

    #[test]
    fn fields_are_read_once_each_and_no_others() {
        let fields = read("a=x%20y&limit=7").unwrap();
        assert_eq!((fields.text("a"), fields.read_as::<u64>("limit")), (Some("x y"), Ok(Some(7))));
        assert_eq!(Fields::read(None, &["a"]).unwrap().text("a"), None);
        for (query, field) in [("b=1", "b"), ("a=1&a=2", "a"), ("a=1&limit=1&A=1", "A"), ("=", "")]
        {
            assert_eq!(read(query).unwrap_err(), InvalidFilter(field.to_owned()), "{query}");
        }
    }

    #[test]
    fn what_a_field_says_must_make_sense() {
        let fields = read("a=7x").unwrap();
        assert_eq!(fields.read_as::<u64>("a"), Err(InvalidFilter("a".to_owned())));
        assert_eq!(fields.parsed("a", |text| Some(text.len())), Ok(Some(2)));
        for (query, limit) in [("", 100), ("limit=-1", 0), ("limit=5", 5), ("limit=5000", 1_000)] {
            assert_eq!(read(query).unwrap().limit(100, 1_000), Ok(limit), "{query}");
        }
    }
}
