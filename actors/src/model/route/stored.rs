//! A route as it is kept: the row under `R:`, and the one of the global IP rules. Compact JSON, as it is written in the
//! API, with what the node adds.

use serde::{Deserialize, Serialize};

use super::Route;
use super::ip_rules::{Access, IpRuleFields, IpRules};
use super::spec::{RouteFields, RouteSpec, is_route_id};
use crate::model::keys::RouteKey;

/// The largest value that is read, in bytes.
const MAX_VALUE_BYTES: usize = 1 << 20;

/// Why a row is no route, or no rules.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredRouteError {
    #[error("a key that names no route")]
    Key,
    #[error("a value of {0} bytes, and at most {MAX_VALUE_BYTES} are read")]
    TooLarge(usize),
    #[error("its value cannot be read: {0}")]
    Value(String),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    route: RouteFields,
    inserted_at_ms: u64,
    updated_at_ms: u64,
    revision: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RulesRow {
    default: Access,
    rules: Vec<IpRuleFields>,
}

/// The value of a route's row.
pub fn encode(route: &Route) -> Vec<u8> {
    let Route { id: _, spec, inserted_at_ms, updated_at_ms, revision } = route;
    let row = Row {
        route: spec.to_fields(),
        inserted_at_ms: *inserted_at_ms,
        updated_at_ms: *updated_at_ms,
        revision: *revision,
    };
    // It has text keys and no floats of ours: it always is JSON.
    serde_json::to_vec(&row).unwrap_or_default()
}

/// # Errors
/// Why it is none.
pub fn decode(key: &[u8], value: &[u8]) -> Result<Route, StoredRouteError> {
    let id = RouteKey::decode(key).filter(|RouteKey(id)| is_route_id(id));
    let RouteKey(id) = id.ok_or(StoredRouteError::Key)?;
    let Row { route, inserted_at_ms, updated_at_ms, revision } = read(value)?;
    let spec = RouteSpec::new(route).map_err(|error| StoredRouteError::Value(error.to_string()))?;
    Ok(Route { id: id.to_owned(), spec, inserted_at_ms, updated_at_ms, revision })
}

/// The value of the row of the global rules.
pub fn encode_rules(rules: &IpRules) -> Vec<u8> {
    let IpRules { default, rules } = rules.clone();
    let rules = rules.into_iter().map(IpRuleFields::from).collect();
    serde_json::to_vec(&RulesRow { default, rules }).unwrap_or_default()
}

/// # Errors
/// Why they are none.
pub fn decode_rules(value: &[u8]) -> Result<IpRules, StoredRouteError> {
    let RulesRow { default, rules } = read(value)?;
    IpRules::new(default, rules).map_err(|error| StoredRouteError::Value(error.to_string()))
}

fn read<'a, T: Deserialize<'a>>(value: &'a [u8]) -> Result<T, StoredRouteError> {
    if value.len() > MAX_VALUE_BYTES {
        return Err(StoredRouteError::TooLarge(value.len()));
    }
    serde_json::from_slice(value).map_err(|error| StoredRouteError::Value(error.to_string()))
}
