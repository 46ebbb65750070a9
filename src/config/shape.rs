//! Holds a tree of values against the schema: unknown keys, wrong types, numbers out of bounds.

use ankusa_actors::model::dedupe::{self, DedupePreset, MAX_TTL_SECONDS};
use ankusa_actors::model::gcra::Rate;
use ankusa_actors::model::ordering;
use figment::Figment;
use figment::value::{Dict, Num, Value};

use super::error::ConfigError;
use super::key::{child, element};
use super::schema::{self, Kind, Place};

/// Where a dedupe key can be.
const PLACES: [&str; 3] = ["preset", "header", "json"];

/// Checks the whole tree and answers it with texts turned into the numbers and booleans they stand for, as references
/// and variables only make texts. `figment` knows where each value came from.
pub(super) fn shaped(root: Value, figment: &Figment, errors: &mut Vec<ConfigError>) -> Value {
    let mut shaper = Shaper { figment, errors };
    shaper.value(root, "", "").unwrap_or_else(|| Value::from(Dict::new()))
}

/// Checks one source, as the API is told it.
pub(crate) fn shaped_source(source: &serde_json::Value, errors: &mut Vec<ConfigError>) {
    match Value::serialize(source) {
        Ok(source) => {
            let mut shaper = Shaper { figment: &Figment::new(), errors };
            drop(shaper.value(source, "", "sources.*"));
        }
        Err(error) => errors.push(ConfigError::at("body", error.to_string())),
    }
}

struct Shaper<'a> {
    figment: &'a Figment,
    errors: &'a mut Vec<ConfigError>,
}

impl Shaper<'_> {
    /// `None` leaves the key out: it is wrong, or an empty section.
    fn value(&mut self, value: Value, key: &str, pattern: &str) -> Option<Value> {
        match schema::place(pattern) {
            Place::Leaf(kind) => self.leaf(value, key, pattern, kind),
            Place::Section => self.fields(value, key, |name| join(pattern, name)),
            Place::Map => self.fields(value, key, |_any| join(pattern, "*")),
            Place::List => self.list(value, key, &format!("{pattern}[]")),
            Place::Unknown => {
                let section = pattern.rsplit_once('.').map_or("", |(section, _)| section);
                let known = schema::names_in(section).join(", ");
                self.errors.push(ConfigError::at(key, format!("unknown key; known here: {known}")));
                None
            }
            Place::Later => {
                self.errors.push(ConfigError::at(key, "not in this release"));
                None
            }
            Place::Meaningless(why) => {
                self.errors.push(ConfigError::at(key, why));
                None
            }
        }
    }

    fn fields(
        &mut self,
        value: Value,
        key: &str,
        pattern_of: impl Fn(&str) -> String,
    ) -> Option<Value> {
        // A section with everything in it commented out.
        if is_null(&value) {
            return None;
        }
        let Value::Dict(tag, dict) = value else {
            return self.must(key, "a mapping", &value, false);
        };
        let mut shaped = Dict::new();
        for (name, value) in dict {
            if let Some(value) = self.value(value, &child(key, &name), &pattern_of(&name)) {
                shaped.insert(name, value);
            }
        }
        Some(Value::Dict(tag, shaped))
    }

    fn list(&mut self, value: Value, key: &str, pattern: &str) -> Option<Value> {
        if is_null(&value) {
            return None;
        }
        let Value::Array(tag, values) = value else {
            return self.must(key, "a list", &value, false);
        };
        let mut shaped = Vec::with_capacity(values.len());
        for (at, value) in values.into_iter().enumerate() {
            shaped.extend(self.value(value, &element(key, at), pattern));
        }
        Some(Value::Array(tag, shaped))
    }

    fn leaf(&mut self, value: Value, key: &str, pattern: &str, kind: Kind) -> Option<Value> {
        match kind {
            Kind::Flag => self.flag(value, key),
            Kind::Whole { min, max } => self.whole(value, key, min, max),
            Kind::WholeOrNull { .. } | Kind::TextOrNull | Kind::FlagOrNull | Kind::SecretOrNull
                if is_null(&value) =>
            {
                Some(value)
            }
            Kind::FlagOrNull => self.flag(value, key),
            Kind::WholeOrNull { min, max } => self.whole(value, key, min, max),
            Kind::Port => self.port(value, key),
            Kind::Text | Kind::TextOrNull => self.text(value, key, false),
            Kind::Secret | Kind::SecretOrNull => self.text(value, key, true),
            Kind::Secrets => self.secrets(value, key),
            Kind::Word(words) => self.word(value, key, pattern, words),
            Kind::Ip => match value.as_str().map(str::parse::<std::net::IpAddr>) {
                Some(Ok(_)) => Some(value),
                _ => self.must(key, "an IPv4 or IPv6 literal", &value, false),
            },
            Kind::Object if matches!(value, Value::Dict(..)) => Some(value),
            Kind::Object => self.must(key, "a mapping", &value, false),
            Kind::Ordered => self.ordered(value, key),
            Kind::Dedupe => self.dedupe(value, key),
            Kind::Rate { max } => self.rate(value, key, max),
            Kind::Limit | Kind::TenantLimit if is_null(&value) => Some(value),
            Kind::Limit => self.limit(value, key, schema::LIMIT_FIELDS.len() - 1),
            Kind::TenantLimit => self.limit(value, key, schema::LIMIT_FIELDS.len()),
        }
    }

    fn ordered(&mut self, value: Value, key: &str) -> Option<Value> {
        match (value.to_bool(), value.as_str(), &value) {
            (Some(_), _, _) => Some(value),
            (None, Some("true"), _) => Some(Value::from(true)),
            (None, Some("false"), _) => Some(Value::from(false)),
            (None, _, Value::Dict(_, spec)) if is_ordered_by(spec) => Some(value),
            (None, _, _) => self.must(key, ordering::EXPECTED, &value, false),
        }
    }

    fn dedupe(&mut self, value: Value, key: &str) -> Option<Value> {
        let presets = DedupePreset::ALL.map(DedupePreset::as_str);
        let Value::Dict(tag, dict) = value else {
            let is_preset = value.as_str().is_some_and(|word| presets.contains(&word));
            return if is_preset {
                Some(value)
            } else {
                self.must(key, dedupe::EXPECTED, &value, false)
            };
        };
        let places = dict.keys().filter(|name| PLACES.contains(&name.as_str())).count();
        let mut shaped = Dict::new();
        for (name, value) in dict {
            let below = child(key, &name);
            let value = match name.as_str() {
                "ttl_seconds" => self.whole(value, &below, 1, MAX_TTL_SECONDS),
                "preset" if value.as_str().is_none_or(|word| !presets.contains(&word)) => {
                    let constraint = format!("one of {}", presets.join(", "));
                    self.must(&below, &constraint, &value, false)
                }
                name if PLACES.contains(&name) => self.text(value, &below, false),
                _unknown => {
                    let known = "unknown key; known here: preset, header, json, ttl_seconds";
                    self.errors.push(ConfigError::at(below, known));
                    None
                }
            };
            shaped.extend(value.map(|value| (name, value)));
        }
        if places != 1 {
            let text = format!("must have exactly one of {}, got {places}", PLACES.join(", "));
            self.errors.push(ConfigError::at(key, text));
        }
        Some(Value::Dict(tag, shaped))
    }

    fn flag(&mut self, value: Value, key: &str) -> Option<Value> {
        match (value.to_bool(), value.as_str()) {
            (Some(_), _) => Some(value),
            (None, Some("true")) => Some(Value::from(true)),
            (None, Some("false")) => Some(Value::from(false)),
            (None, _) => self.must(key, "true or false", &value, false),
        }
    }

    fn whole(&mut self, value: Value, key: &str, min: u64, max: u64) -> Option<Value> {
        let above = if min == 1 { "> 0".to_owned() } else { format!(">= {min}") };
        match number(&value) {
            Some(n) if n < i128::from(min) => self.must(key, &above, &value, false),
            Some(n) if n > i128::from(max) => self.must(key, &format!("<= {max}"), &value, false),
            Some(n) => u64::try_from(n).ok().map(Value::from),
            None => self.must(key, &format!("a whole number {above}"), &value, false),
        }
    }

    fn rate(&mut self, value: Value, key: &str, max: u64) -> Option<Value> {
        let written = match &value {
            Value::String(_, text) => text.parse().ok(),
            Value::Num(_, number) => match (number.to_f64(), whole(number)) {
                (Some(float), _) => Some(float),
                (None, whole) => whole.map(|whole| whole as f64),
            },
            Value::Bool(..)
            | Value::Char(..)
            | Value::Empty(..)
            | Value::Dict(..)
            | Value::Array(..) => number(&value).map(|whole| whole as f64),
        };
        match written {
            Some(rate) if rate <= 0.0 => self.must(key, "> 0", &value, false),
            Some(rate) if rate > max as f64 => self.must(key, &format!("<= {max}"), &value, false),
            Some(rate) if Rate::from_f64(rate).is_some() => Some(Value::from(rate)),
            Some(_) | None => self.must(key, "a number >= 0.000001", &value, false),
        }
    }

    /// A mapping of the first `known` fields of a limit.
    fn limit(&mut self, value: Value, key: &str, known: usize) -> Option<Value> {
        let fields = schema::LIMIT_FIELDS.get(..known).unwrap_or(schema::LIMIT_FIELDS);
        let Value::Dict(tag, dict) = value else {
            return self.must(key, "a mapping of rate and burst", &value, false);
        };
        let mut shaped = Dict::new();
        for (name, value) in dict {
            let below = child(key, &name);
            let Some((_, kind)) = fields.iter().find(|(field, _)| *field == name) else {
                let names: Vec<&str> = fields.iter().map(|(field, _)| *field).collect();
                let text = format!("unknown key; known here: {}", names.join(", "));
                self.errors.push(ConfigError::at(below, text));
                continue;
            };
            if let Some(value) = self.leaf(value, &below, &below, *kind) {
                shaped.insert(name, value);
            }
        }
        Some(Value::Dict(tag, shaped))
    }

    fn port(&mut self, value: Value, key: &str) -> Option<Value> {
        match number(&value).map(u16::try_from) {
            Some(Ok(port)) => Some(Value::from(port)),
            Some(Err(_)) | None => self.must(key, "in 0..65535", &value, false),
        }
    }

    fn secrets(&mut self, value: Value, key: &str) -> Option<Value> {
        let Value::Array(tag, values) = value else { return self.text(value, key, true) };
        let mut shaped = Vec::with_capacity(values.len());
        for (at, value) in values.into_iter().enumerate() {
            shaped.extend(self.text(value, &element(key, at), true));
        }
        Some(Value::Array(tag, shaped))
    }

    fn text(&mut self, value: Value, key: &str, is_secret: bool) -> Option<Value> {
        if value.as_str().is_some() {
            return Some(value);
        }
        self.must(key, "a string", &value, is_secret)
    }

    fn word(
        &mut self,
        value: Value,
        key: &str,
        pattern: &str,
        words: &'static [&'static str],
    ) -> Option<Value> {
        let all = words.join(", ");
        match value.as_str() {
            Some(word) if words.contains(&word) => Some(value),
            Some(word) if schema::is_later_word(pattern, word) => {
                let text = format!("{word} is not in this release, only: {all}");
                self.errors.push(ConfigError::at(key, text));
                None
            }
            Some(_) | None => {
                let constraint = if words.len() == 1 { all } else { format!("one of {all}") };
                self.must(key, &constraint, &value, false)
            }
        }
    }

    fn must(&mut self, key: &str, constraint: &str, got: &Value, is_secret: bool) -> Option<Value> {
        let mut shown = if is_secret { kind_of(got).to_owned() } else { show(got) };
        if let Some(variable) = self.variable(got) {
            shown.push_str(&format!(" (from {variable})"));
        }
        self.errors.push(ConfigError::must(key, constraint, shown));
        None
    }

    /// The environment variable `value` was overridden by.
    fn variable(&self, value: &Value) -> Option<String> {
        let metadata = self.figment.get_metadata(value.tag())?;
        (metadata.name != super::FILE && metadata.name != super::DEFAULTS)
            .then(|| metadata.name.to_string())
    }
}

/// `{by: source}`, `{by: {header: NAME}}` or `{by: {json: POINTER}}`.
fn is_ordered_by(spec: &Dict) -> bool {
    let is_key = |(name, value): (&String, &Value)| {
        matches!(name.as_str(), "header" | "json") && value.as_str().is_some()
    };
    let is_by = |by: &Value| match by.as_dict() {
        Some(key) => key.len() == 1 && key.iter().all(is_key),
        None => by.as_str() == Some("source"),
    };
    spec.len() == 1 && spec.get("by").is_some_and(is_by)
}

fn join(pattern: &str, name: &str) -> String {
    if pattern.is_empty() { name.to_owned() } else { format!("{pattern}.{name}") }
}

fn is_null(value: &Value) -> bool {
    matches!(value, Value::Empty(..))
}

/// A whole number, or a text that is one.
fn number(value: &Value) -> Option<i128> {
    match value {
        Value::Num(_, number) => whole(number),
        Value::String(_, text) => text.parse().ok(),
        Value::Char(_, c) => c.to_digit(10).map(i128::from),
        Value::Bool(..) | Value::Empty(..) | Value::Dict(..) | Value::Array(..) => None,
    }
}

fn whole(number: &Num) -> Option<i128> {
    // What YAML cannot hold as a whole number it makes a float: those are past every bound.
    const PAST_EVERY_BOUND: f64 = 9e18;
    if let Some(float) = number.to_f64() {
        let bound = if float > 0.0 { i128::MAX } else { i128::MIN };
        return (float.abs() > PAST_EVERY_BOUND).then_some(bound);
    }
    let unsigned = || number.to_u128().map(|number| i128::try_from(number).unwrap_or(i128::MAX));
    number.to_i128().or_else(unsigned)
}

/// A value as a message shows it.
fn show(value: &Value) -> String {
    match value {
        Value::String(_, text) => format!("{text:?}"),
        Value::Char(_, c) => format!("{:?}", c.to_string()),
        Value::Bool(_, flag) => flag.to_string(),
        Value::Num(_, number) => match (number.to_f64(), whole(number)) {
            (Some(float), _) => float.to_string(),
            (None, Some(whole)) => whole.to_string(),
            (None, None) => kind_of(value).to_owned(),
        },
        Value::Empty(..) | Value::Dict(..) | Value::Array(..) => kind_of(value).to_owned(),
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(..) | Value::Char(..) => "a string",
        Value::Bool(..) => "a boolean",
        Value::Num(..) => "a number",
        Value::Empty(..) => "null",
        Value::Dict(..) => "a mapping",
        Value::Array(..) => "a list",
    }
}
