//! What the keys owe each other, once each of them is well formed.

mod routes;
mod stores;

use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use ankusa_actors::dispatch::{DispatchConfig, ShareConfig};
use ankusa_actors::edge::{QuarantineConfig, RateLimitsConfig};
use ankusa_actors::model::gcra::Gcra;
use ankusa_actors::model::ids::{LIFECYCLE_SOURCE, is_name};
use ankusa_actors::model::network::Network;
use ankusa_actors::model::rate_limit::LimitError;
use ankusa_actors::ports::Clock;

use super::Config;
use super::error::{ConfigError, ConfigErrors};
use super::key::{child, element};
use crate::front::tls;
use crate::host::HostClock;
use crate::sources::{NAME, SourceRules, check_limit, check_spec};

/// The longest path of a unix socket, in bytes: `sun_path` without its closing zero.
const MAX_SOCKET_BYTES: usize = 107;
/// Shorter ones can be guessed.
const MIN_TOKEN_BYTES: usize = 16;
/// The least a limit on background writing may allow.
const MIN_RATE_BYTES_PER_S: u64 = 1 << 20;

/// # Errors
/// Every mistake.
pub(super) fn check(config: &Config) -> Result<(), ConfigErrors> {
    let mut errors = Vec::new();
    check_node(config, &mut errors);
    check_http(config, &mut errors);
    check_admin(config, &mut errors);
    check_tls(config, &mut errors);
    check_bounds_between_keys(config, &mut errors);
    check_limits(config, &mut errors);
    routes::check(config, &mut errors);
    stores::check(config, &mut errors);
    let clock: Arc<dyn Clock> = Arc::new(HostClock);
    let rules = SourceRules::new(config, &clock);
    for (id, source) in &config.sources {
        let key = child("sources", id);
        if id == LIFECYCLE_SOURCE {
            errors.push(ConfigError::at(&key, "this id is reserved"));
        } else if !is_name(id) {
            errors.push(ConfigError::at(&key, format!("a source id must be {NAME}")));
        }
        match &rules {
            Ok(rules) => rules.check(&key, source, &mut errors),
            // Without the guard nothing true can be said of what it lets through.
            Err(_) => check_spec(config.http.routing, &key, source, &mut errors),
        }
    }
    errors.extend(rules.err());
    ConfigErrors::none_of(errors)
}

fn check_node(config: &Config, errors: &mut Vec<ConfigError>) {
    if config.node.roles.is_empty() {
        errors.push(ConfigError::at("node.roles", "must name at least one role"));
    }
    if !is_name(&config.node.instance) {
        let got = format!("{:?}", config.node.instance);
        errors.push(ConfigError::must("node.instance", NAME, got));
        return;
    }
    if config.node.data_dir.as_os_str().is_empty() {
        errors.push(ConfigError::at("node.data_dir", "must not be empty"));
        return;
    }
    let socket = config.control_socket();
    let bytes = socket.as_os_str().as_bytes().len();
    if bytes > MAX_SOCKET_BYTES {
        let text = format!(
            "the path {} has {bytes} bytes, and a unix socket can have {MAX_SOCKET_BYTES}: name a shorter one",
            socket.display()
        );
        errors.push(ConfigError::at("control.socket", text));
    } else if bytes == 0 {
        errors.push(ConfigError::at("control.socket", "must not be empty; null for the default"));
    }
}

fn check_http(config: &Config, errors: &mut Vec<ConfigError>) {
    let prefix = &config.http.prefix;
    let segments_are_plain = prefix.trim_matches('/').split('/').all(is_plain_segment);
    if prefix != "/" && !(prefix.starts_with('/') && segments_are_plain) {
        let constraint = "/ or a path like /webhooks, of A-Z a-z 0-9 . _ ~ -";
        errors.push(ConfigError::must("http.prefix", constraint, format!("{prefix:?}")));
    }
    for (at, entry) in config.http.trusted_proxies.iter().enumerate() {
        if let Err(problem) = Network::parse(entry) {
            let key = element("http.trusted_proxies", at);
            errors.push(ConfigError::at(key, format!("{entry:?} {problem}")));
        }
    }
    let (http, admin) = (&config.http, &config.admin);
    if admin.enabled && http.port == admin.port && http.port != 0 {
        errors.push(ConfigError::must(
            "admin.port",
            "another than http.port",
            admin.port.to_string(),
        ));
    }
}

/// Limits that let nothing pass, or not the largest body.
fn check_limits(config: &Config, errors: &mut Vec<ConfigError>) {
    let RateLimitsConfig { default, tenants, client_ip, node } = &config.rate_limits;
    let max_body_bytes = config.http.max_body_bytes as u64;
    for (key, limit) in [("default", default), ("client_ip", client_ip), ("node", node)] {
        if let Some(limit) = limit {
            check_limit(format!("rate_limits.{key}"), limit.limits(max_body_bytes), errors);
        }
    }
    for (tenant, limit) in tenants {
        let key = child("rate_limits.tenants", tenant);
        if !is_name(tenant) {
            errors.push(ConfigError::at(&key, format!("a tenant must be {NAME}")));
        }
        match limit.limits(max_body_bytes) {
            Ok(_) if limit.is_none() => {
                let text = "must have rate and burst, bytes_rate and bytes_burst, or overload_share_percent";
                errors.push(ConfigError::at(&key, text));
            }
            Ok(_) => {}
            Err(LimitError { field, text }) => {
                errors.push(ConfigError::at(child(&key, field), text));
            }
        }
    }
    let QuarantineConfig { burst, rate, .. } = config.quarantine;
    if Gcra::of_ones(rate, burst).is_none() {
        let text = "takes longer than 366 days to come back at quarantine.rate";
        errors.push(ConfigError::at("quarantine.burst", text));
    }
}

fn is_plain_segment(segment: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'~' | b'-');
    !segment.is_empty() && segment != "." && segment != ".." && segment.bytes().all(plain)
}

fn check_admin(config: &Config, errors: &mut Vec<ConfigError>) {
    let admin = &config.admin;
    if admin.enabled && !admin.ip.is_loopback() && admin.tokens.is_empty() {
        let text =
            format!("must name at least one token, because admin.ip {} is not loopback", admin.ip);
        errors.push(ConfigError::at("admin.tokens", text));
    }
    let mut names = BTreeSet::new();
    for (at, token) in admin.tokens.iter().enumerate() {
        let key = element("admin.tokens", at);
        if token.name.is_empty() {
            errors.push(ConfigError::at(child(&key, "name"), "must not be empty"));
        } else if !names.insert(&token.name) {
            let text = format!("{:?} is the name of two tokens", token.name);
            errors.push(ConfigError::at(child(&key, "name"), text));
        }
        if token.token.reveal().len() < MIN_TOKEN_BYTES {
            let text = format!("must be at least {MIN_TOKEN_BYTES} bytes long");
            errors.push(ConfigError::at(child(&key, "token"), text));
        }
        if token.scopes.is_empty() {
            errors.push(ConfigError::at(child(&key, "scopes"), "must name at least one scope"));
        }
        for (scope_at, scope) in
            token.scopes.iter().enumerate().filter(|(_, scope)| !is_scope(scope))
        {
            let key = element(&child(&key, "scopes"), scope_at);
            let constraint = "* or <resource>:read, <resource>:write or <resource>:*";
            errors.push(ConfigError::must(key, constraint, format!("{scope:?}")));
        }
    }
}

/// Reads the files as the node will: a pair that does not fit is told here.
fn check_tls(config: &Config, errors: &mut Vec<ConfigError>) {
    for (section, tls) in [("http", &config.http.tls), ("admin", &config.admin.tls)] {
        if let Err(error) = tls::load(tls) {
            let key = format!("{section}.tls.{}", error.key);
            errors.push(ConfigError::at(key, error.problem));
        }
    }
}

fn is_scope(scope: &str) -> bool {
    let is_resource =
        |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    match scope.split_once(':') {
        Some((resource, "read" | "write" | "*")) => is_resource(resource),
        Some(_) => false,
        None => scope == "*",
    }
}

/// Bounds that are another key.
fn check_bounds_between_keys(config: &Config, errors: &mut Vec<ConfigError>) {
    let (batcher, dispatch, store) = (&config.batcher, &config.dispatch, &config.store);
    let mut at_least = |key: &str, got: u64, other: &str, floor: u64| {
        if got < floor {
            errors.push(ConfigError::must(key, format!(">= {other} ({floor})"), got.to_string()));
        }
    };
    at_least(
        "dispatch.breaker_max_open_ms",
        dispatch.breaker_max_open_ms,
        "dispatch.breaker_open_ms",
        dispatch.breaker_open_ms,
    );
    at_least(
        "dispatch.retry.max_ms",
        dispatch.retry.max_ms,
        "dispatch.retry.base_ms",
        dispatch.retry.base_ms,
    );
    at_least(
        "store.reopen_max_backoff_ms",
        store.reopen_max_backoff_ms,
        "store.reopen_backoff_ms",
        store.reopen_backoff_ms,
    );
    at_least(
        "store.resume_free_bytes",
        store.resume_free_bytes,
        "store.min_free_bytes",
        store.min_free_bytes,
    );
    // Else the largest body is refused for ever, as `overload`, which providers retry.
    at_least(
        "batcher.max_queue_bytes",
        batcher.max_queue_bytes as u64,
        "http.max_body_bytes",
        config.http.max_body_bytes as u64,
    );
    at_least(
        "http.max_body_memory_bytes",
        config.http.max_body_memory_bytes as u64,
        "http.max_body_bytes",
        config.http.max_body_bytes as u64,
    );
    // A body could never use its own window.
    at_least(
        "http.http2.connection_window_bytes",
        config.http.http2.connection_window_bytes.into(),
        "http.http2.stream_window_bytes",
        config.http.http2.stream_window_bytes.into(),
    );
    let rate = config.queue.rocksdb.rate_limit_bytes_per_s;
    // Slower than that, flushes never catch up and every write stops.
    if (1..MIN_RATE_BYTES_PER_S).contains(&rate) {
        let constraint = format!("0 or >= {MIN_RATE_BYTES_PER_S}");
        let key = "queue.rocksdb.rate_limit_bytes_per_s";
        errors.push(ConfigError::must(key, constraint, rate.to_string()));
    }
    if let Some(slots) = dispatch.sink_concurrency.filter(|slots| *slots > dispatch.concurrency) {
        let constraint = format!("<= dispatch.concurrency ({})", dispatch.concurrency);
        errors.push(ConfigError::must("dispatch.sink_concurrency", constraint, slots.to_string()));
    }
    check_shares(dispatch, errors);
}

/// No tenant can be given what there is not, nor be one that cannot exist.
fn check_shares(dispatch: &DispatchConfig, errors: &mut Vec<ConfigError>) {
    let ShareConfig { max_inflight, weights, .. } = &dispatch.tenants;
    if let Some(rows) = max_inflight.filter(|rows| *rows > dispatch.max_inflight) {
        let constraint = format!("<= dispatch.max_inflight ({})", dispatch.max_inflight);
        let key = "dispatch.tenants.max_inflight";
        errors.push(ConfigError::must(key, constraint, rows.to_string()));
    }
    for tenant in weights.keys().filter(|tenant| !is_name(tenant)) {
        let key = child("dispatch.tenants.weights", tenant);
        errors.push(ConfigError::at(key, format!("a tenant must be {NAME}")));
    }
}
