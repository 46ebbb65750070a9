//! What is to be a route: how it is written, and when it is one.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::ip_rules::{IpRule, IpRuleFields, MAX_RULES, read_rules};
use super::path::PathPattern;

/// Bytes of the largest metadata, as compact JSON.
pub const MAX_METADATA_BYTES: usize = 16 << 10;
/// Methods of one route, and bytes of the longest.
const MAX_METHODS: usize = 16;
const MAX_METHOD_BYTES: usize = 16;
/// Bytes of the longest id.
const MAX_ID_BYTES: usize = 64;

/// What the API alone says of a route. Sent back, it is passed over.
const SHOWN_ONLY: [&str; 3] = ["inserted_at", "updated_at", "revision"];
const KNOWN: &str = "is not known here: id, path, methods, enabled, ip_rules, metadata are";

/// What is wrong, and with which field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {message}")]
pub struct Invalid {
    pub field: String,
    pub message: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

/// A route as it is written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteFields {
    #[serde(default)]
    pub id: Option<String>,
    pub path: String,
    #[serde(default = "post")]
    pub methods: Vec<String>,
    #[serde(default = "yes")]
    pub enabled: bool,
    #[serde(default)]
    pub ip_rules: Vec<IpRuleFields>,
    #[serde(default)]
    pub metadata: Map<String, Value>,
}

fn post() -> Vec<String> {
    vec!["POST".to_owned()]
}

const fn yes() -> bool {
    true
}

impl RouteFields {
    /// Reads the JSON of the API.
    ///
    /// # Errors
    /// The first field that is not what it must be.
    pub fn read(mut fields: Map<String, Value>) -> Result<Self, Invalid> {
        for name in SHOWN_ONLY {
            fields.shift_remove(name);
        }
        let id = match fields.shift_remove("id") {
            None | Some(Value::Null) => None,
            Some(Value::String(id)) => Some(id),
            Some(_) => return Err(Invalid::new("id", "must be a string")),
        };
        let path = match fields.shift_remove("path") {
            Some(Value::String(path)) => path,
            Some(_) => return Err(Invalid::new("path", "must be a string")),
            None => return Err(Invalid::new("path", "is required")),
        };
        let RoutePatch { enabled, methods, ip_rules, metadata } = optional(&mut fields)?;
        if let Some(unknown) = fields.keys().next() {
            return Err(Invalid::new(unknown, KNOWN));
        }
        Ok(Self {
            id,
            path,
            methods: methods.unwrap_or_else(post),
            enabled: enabled.unwrap_or(true),
            ip_rules: ip_rules.unwrap_or_default(),
            metadata: metadata.unwrap_or_default(),
        })
    }
}

/// What of a route can be changed without writing it anew.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutePatch {
    pub enabled: Option<bool>,
    pub methods: Option<Vec<String>>,
    pub ip_rules: Option<Vec<IpRuleFields>>,
    pub metadata: Option<Map<String, Value>>,
}

impl RoutePatch {
    /// Reads the JSON of the API.
    ///
    /// # Errors
    /// The first field that is not what it must be, or cannot be changed.
    pub fn read(mut fields: Map<String, Value>) -> Result<Self, Invalid> {
        let patch = optional(&mut fields)?;
        match fields.keys().next() {
            Some(name) if ["id", "path"].contains(&name.as_str()) => {
                Err(Invalid::new(name, "immutable; use PUT"))
            }
            Some(name) if SHOWN_ONLY.contains(&name.as_str()) => {
                Err(Invalid::new(name, "is the node's own"))
            }
            Some(name) => Err(Invalid::new(
                name,
                "is not known here: enabled, methods, ip_rules, metadata are",
            )),
            None => Ok(patch),
        }
    }
}

/// Takes the fields that need not be there.
fn optional(fields: &mut Map<String, Value>) -> Result<RoutePatch, Invalid> {
    let enabled = match fields.shift_remove("enabled") {
        None => None,
        Some(Value::Bool(enabled)) => Some(enabled),
        Some(_) => return Err(Invalid::new("enabled", "must be true or false")),
    };
    let methods = fields.shift_remove("methods").map(|value| read_methods(&value)).transpose()?;
    let ip_rules = fields.shift_remove("ip_rules");
    let ip_rules = ip_rules.map(|value| read_rules(&value, "ip_rules")).transpose()?;
    let metadata = match fields.shift_remove("metadata") {
        None => None,
        Some(Value::Object(metadata)) => Some(metadata),
        Some(_) => return Err(Invalid::new("metadata", "must be an object")),
    };
    Ok(RoutePatch { enabled, methods, ip_rules, metadata })
}

fn read_methods(value: &Value) -> Result<Vec<String>, Invalid> {
    let list = value.as_array().ok_or_else(|| Invalid::new("methods", "must be a list"))?;
    let method = |(at, value): (usize, &Value)| {
        let method = value.as_str().map(str::to_owned);
        method.ok_or_else(|| Invalid::new(format!("methods[{at}]"), "must be a string"))
    };
    list.iter().enumerate().map(method).collect()
}

/// What a route says, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteSpec {
    pub path: PathPattern,
    /// At least one, none twice.
    pub methods: Vec<String>,
    /// One that is not takes nothing.
    pub enabled: bool,
    /// Instead of the global list where there are any.
    pub ip_rules: Vec<IpRule>,
    /// The operator's own.
    pub metadata: Map<String, Value>,
}

impl RouteSpec {
    /// # Errors
    /// The first field that makes it no route.
    pub fn new(fields: RouteFields) -> Result<Self, Invalid> {
        let RouteFields { id, path, methods, enabled, ip_rules, metadata } = fields;
        if id.as_deref().is_some_and(|id| !is_route_id(id)) {
            let message = "must be 1 to 64 of a-z 0-9 _ -, with a letter or a digit at both ends";
            return Err(Invalid::new("id", message));
        }
        let path = PathPattern::parse(&path).map_err(|problem| Invalid::new("path", problem))?;
        check_methods(&methods)?;
        check_metadata(&metadata)?;
        let ip_rules = IpRule::all(ip_rules, "ip_rules", MAX_RULES)?;
        Ok(Self { path, methods, enabled, ip_rules, metadata })
    }

    /// What it says after a change.
    ///
    /// # Errors
    /// The first field that cannot be so.
    pub fn patched(&self, patch: RoutePatch) -> Result<Self, Invalid> {
        let RoutePatch { enabled, methods, ip_rules, metadata } = patch;
        let mut spec = self.clone();
        spec.enabled = enabled.unwrap_or(spec.enabled);
        if let Some(methods) = methods {
            check_methods(&methods)?;
            spec.methods = methods;
        }
        if let Some(ip_rules) = ip_rules {
            spec.ip_rules = IpRule::all(ip_rules, "ip_rules", MAX_RULES)?;
        }
        if let Some(metadata) = metadata {
            check_metadata(&metadata)?;
            spec.metadata = metadata;
        }
        Ok(spec)
    }

    /// The same, as it is written.
    pub fn to_fields(&self) -> RouteFields {
        RouteFields {
            id: None,
            path: self.path.as_str().to_owned(),
            methods: self.methods.clone(),
            enabled: self.enabled,
            ip_rules: self.ip_rules.iter().cloned().map(IpRuleFields::from).collect(),
            metadata: self.metadata.clone(),
        }
    }
}

fn check_methods(methods: &[String]) -> Result<(), Invalid> {
    if methods.is_empty() || methods.len() > MAX_METHODS {
        return Err(Invalid::new("methods", format!("must have 1 to {MAX_METHODS} methods")));
    }
    for (at, method) in methods.iter().enumerate() {
        let place = || format!("methods[{at}]");
        let is_word = method.bytes().all(|byte| byte.is_ascii_uppercase());
        if method.is_empty() || method.len() > MAX_METHOD_BYTES || !is_word {
            let message = format!("must be 1 to {MAX_METHOD_BYTES} of A-Z, as POST");
            return Err(Invalid::new(place(), message));
        }
        if methods.iter().take(at).any(|before| before == method) {
            return Err(Invalid::new(place(), "is there twice"));
        }
    }
    Ok(())
}

fn check_metadata(metadata: &Map<String, Value>) -> Result<(), Invalid> {
    let bytes = serde_json::to_vec(metadata).map_or(usize::MAX, |text| text.len());
    if bytes > MAX_METADATA_BYTES {
        let message = format!("must have at most {MAX_METADATA_BYTES} bytes as JSON");
        return Err(Invalid::new("metadata", message));
    }
    Ok(())
}

/// `^[a-z0-9](?:[a-z0-9_-]{0,62}[a-z0-9])?$`
pub fn is_route_id(id: &str) -> bool {
    let is_end = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let bytes = id.as_bytes();
    bytes.len() <= MAX_ID_BYTES
        && bytes.first().is_some_and(is_end)
        && bytes.last().is_some_and(is_end)
        && bytes.iter().all(|byte| is_end(byte) || matches!(byte, b'_' | b'-'))
}
