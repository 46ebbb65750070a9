//! What the keys of the section `routes` owe each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ankusa_actors::model::network::Network;
use ankusa_actors::model::route::{DRY_RUN_ID, Invalid, IpRules, Route, RouteSet, RouteSpec};

use crate::config::Config;
use crate::config::error::ConfigError;
use crate::config::key::{child, element};

pub(super) fn check(config: &Config, errors: &mut Vec<ConfigError>) {
    let routes = &config.routes;
    for (at, entry) in routes.trusted_proxies.iter().enumerate() {
        if let Err(problem) = Network::parse(entry) {
            let key = element("routes.trusted_proxies", at);
            errors.push(ConfigError::at(key, format!("{entry:?} {problem}")));
        }
    }
    let rules = routes.ip_rules.clone();
    if let Err(Invalid { field, message }) = IpRules::new(rules.default, rules.rules) {
        errors.push(ConfigError::at(format!("routes.ip_rules.{field}"), message));
    }
    check_seed(config, errors);
    if routes.enabled {
        check_listener(config, errors);
    }
}

fn check_seed(config: &Config, errors: &mut Vec<ConfigError>) {
    let routes = &config.routes;
    let mut set = RouteSet::new(BTreeMap::new(), Arc::default());
    let mut ids = BTreeSet::new();
    for (at, fields) in routes.seed.iter().enumerate() {
        let key = element("routes.seed", at);
        let Some(id) = fields.id.clone() else {
            errors.push(ConfigError::at(child(&key, "id"), "is required"));
            continue;
        };
        let spec = match RouteSpec::new(fields.clone()) {
            Ok(spec) => spec,
            Err(Invalid { field, message }) => {
                errors.push(ConfigError::at(format!("{key}.{field}"), message));
                continue;
            }
        };
        if id == DRY_RUN_ID {
            errors.push(ConfigError::at(child(&key, "id"), "this id is reserved"));
        }
        if !ids.insert(id.clone()) {
            errors.push(ConfigError::at(child(&key, "id"), format!("{id:?} is there twice")));
            continue;
        }
        if let Some(other) = set.conflicting(&spec, &id) {
            let text = format!("takes a method of the same path as the route {:?}", other.id);
            errors.push(ConfigError::at(child(&key, "path"), text));
            continue;
        }
        set.insert_new(Route { id, spec, inserted_at_ms: 0, updated_at_ms: 0, revision: 1 });
    }
    if routes.seed.len() > routes.max_routes {
        let text = format!("has {} routes, over routes.max_routes", routes.seed.len());
        errors.push(ConfigError::at("routes.seed", text));
    }
}

fn check_listener(config: &Config, errors: &mut Vec<ConfigError>) {
    let (routes, http, admin) = (&config.routes.admin, &config.http, &config.admin);
    let is_taken = routes.port == http.port || (admin.enabled && routes.port == admin.port);
    if is_taken && routes.port != 0 {
        let constraint = "another than http.port and admin.port";
        errors.push(ConfigError::must("routes.admin.port", constraint, routes.port.to_string()));
    }
    if !routes.ip.is_loopback() && admin.tokens.is_empty() {
        let text = format!(
            "must name at least one token, because routes.admin.ip {} is not loopback",
            routes.ip
        );
        errors.push(ConfigError::at("admin.tokens", text));
    }
}
