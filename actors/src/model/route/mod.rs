//! The route guard's rules: which requests may reach ingest at all. Everything that no route takes is denied.
//!
//! A [`Route`] takes methods of paths, from clients that the IP rules let through. [`RouteSet`] is all of them at one
//! moment, indexed by segment, so that a request costs its own length whatever the number of routes.

mod ip_rules;
mod path;
mod set;
mod spec;
mod stored;
mod utc;

use std::net::IpAddr;

use serde_json::{Map, Value, json};

pub use ip_rules::{Access, IpRule, IpRuleFields, IpRules, MAX_GLOBAL_RULES, MAX_RULES};
pub use path::{MAX_PATH_BYTES, MAX_SEGMENTS, PathPattern, segments};
pub use set::{Decision, MatchedRule, Reason, RouteSet, Scope};
pub use spec::{Invalid, MAX_METADATA_BYTES, RouteFields, RoutePatch, RouteSpec, is_route_id};
pub use stored::{StoredRouteError, decode, decode_rules, encode, encode_rules};

/// No route has this id: its address is that of the dry run.
pub const DRY_RUN_ID: &str = "test";

/// One route, as it is kept.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    pub id: String,
    pub spec: RouteSpec,
    pub inserted_at_ms: u64,
    pub updated_at_ms: u64,
    /// Counts its changes, from 1. A route that was deleted begins anew.
    pub revision: u64,
}

impl Route {
    /// As the API shows it.
    pub fn to_json(&self) -> Value {
        let RouteSpec { path, methods, enabled, ip_rules, metadata } = &self.spec;
        json!({
            "id": self.id,
            "path": path.as_str(),
            "methods": methods,
            "enabled": enabled,
            "ip_rules": ip_rules,
            "metadata": metadata,
            "revision": self.revision,
            "inserted_at": utc::text(self.inserted_at_ms),
            "updated_at": utc::text(self.updated_at_ms),
        })
    }
}

/// The id of a route that was given none: 26 characters that sort by the time they were made, from 80 bits of chance.
pub fn new_id(now_ms: u64, bits: u128) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let value = (u128::from(now_ms) << 80) | (bits & ((1 << 80) - 1));
    let digit = |at: u32| {
        let digit = usize::try_from((value >> (5 * at)) & 31).unwrap_or(0);
        DIGITS.get(digit).map_or('0', |digit| char::from(*digit))
    };
    (0..26).rev().map(digit).collect()
}

/// Reads routes and a request out of any JSON and decides: no input may do more than be refused. For a fuzzer.
///
/// # Errors
/// What of it makes no route, or no question.
pub fn decide_on(input: &Value) -> Result<Value, Invalid> {
    let list = |key: &str| input.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    let mut set = RouteSet::default();
    for (at, route) in list("routes").iter().enumerate() {
        let fields = route.as_object().cloned().unwrap_or_default();
        let spec = RouteSpec::new(RouteFields::read(fields)?)?;
        let id = format!("r{at}");
        if set.conflicting(&spec, &id).is_none() {
            let route = Route { id, spec, inserted_at_ms: 0, updated_at_ms: 0, revision: 1 };
            set = set.with(route);
        }
    }
    if let Some(rules) = input.get("ip_rules") {
        set = set.with_rules(IpRules::read(rules.as_object().cloned().unwrap_or_default())?);
    }
    let asked = input.as_object().into_iter().flatten();
    let asked = asked.filter(|(name, _)| !["routes", "ip_rules"].contains(&name.as_str()));
    let asked = asked.map(|(name, value)| (name.clone(), value.clone())).collect();
    let (method, path, ip) = question(&asked)?;
    Ok(set.decide(&method, &path, Some(ip)).to_json())
}

/// Reads `{method, path, ip}`.
///
/// # Errors
/// The field that is missing, or is none.
pub fn question(fields: &Map<String, Value>) -> Result<(String, String, IpAddr), Invalid> {
    let text = |name: &str| {
        let value = fields.get(name).and_then(Value::as_str).map(str::to_owned);
        value.ok_or_else(|| Invalid::new(name, "must be a string"))
    };
    let (method, path, ip) = (text("method")?, text("path")?, text("ip")?);
    let known = ["method", "path", "ip"];
    if let Some(name) = fields.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(Invalid::new(name, "is not known here: method, path, ip are"));
    }
    let ip = ip.parse().map_err(|_| Invalid::new("ip", "must be an IPv4 or IPv6 address"))?;
    Ok((method, path, ip))
}

#[cfg(test)]
mod tests;
