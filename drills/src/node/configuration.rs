//! What a drilled node is started with.

use std::ffi::OsStr;
use std::path::Path;

use serde_json::{Value, json};

use crate::load::{HOLDING, KEY_HEADER, LANE_HEADER, ORDERED_SOURCE, PREFIX, SECRET, SOURCES};

/// Base of the retry delays, in milliseconds: a drill does not wait for a sink as long as a node in production.
const RETRY_BASE_MS: u64 = 20;

/// How long a sink that failed some times in a row is left alone, at first and at most, in milliseconds: likewise.
const BREAKER_OPEN_MS: u64 = 200;
const BREAKER_MAX_OPEN_MS: u64 = 1_000;

/// The pen takes whatever a load forges.
const HELD_AT_ONCE: u64 = 1_000_000;

/// Hooks of the tenant of one source a second, and at once: less than the load sends, so that some are refused, each of
/// which must be nowhere.
const LIMITED_PER_S: u64 = 100;
const LIMITED_BURST: u64 = 50;

/// Limits that the load meets and that it does not: for drills that judge what was refused.
#[must_use]
pub fn limits() -> Value {
    let [_, limited, _] = SOURCES;
    json!({"rate_limits": {
        "node": {"rate": 100_000, "burst": 100_000},
        "tenants": {limited.tenant: {"rate": LIMITED_PER_S, "burst": LIMITED_BURST}},
    }})
}

/// The sources of the load, delivering to `sink_url`; one of them in order, where there are `lanes`.
pub(super) fn configuration(
    data_dir: &Path,
    http_port: u16,
    admin_port: u16,
    sink_url: &str,
    lanes: bool,
) -> Value {
    let sources: serde_json::Map<String, Value> = SOURCES
        .iter()
        .map(|source| {
            let ordered = if lanes && source.id == ORDERED_SOURCE {
                json!({"by": {"header": LANE_HEADER}})
            } else {
                json!(false)
            };
            let mut spec = json!({
                "tenant": source.tenant,
                "verify": {"type": "github", "secret": SECRET},
                "sinks": [{
                    "type": "http",
                    "url": sink_url,
                    "allow_unsigned": true,
                    "ordered": ordered,
                }],
            });
            if source.dedupes {
                spec["dedupe"] = json!({"header": KEY_HEADER});
            }
            (source.id.to_owned(), spec)
        })
        .collect();
    let mut sources = sources;
    sources.insert(
        HOLDING.id.to_owned(),
        json!({
            "tenant": HOLDING.tenant,
            "verify": {"type": "github", "secret": SECRET},
            "on_verify_failure": "quarantine",
            "sinks": [{"type": "http", "url": sink_url, "allow_unsigned": true}],
        }),
    );
    json!({
        "node": {"data_dir": data_dir},
        "http": {"port": http_port, "routing": "path", "prefix": PREFIX},
        "admin": {"port": admin_port},
        "control": {"allow_crash": true},
        "egress": {"allow_private": true, "allow_http": true},
        "dispatch": {
            "retry": {"base_ms": RETRY_BASE_MS},
            "breaker_open_ms": BREAKER_OPEN_MS,
            "breaker_max_open_ms": BREAKER_MAX_OPEN_MS,
        },
        "quarantine": {"burst": HELD_AT_ONCE, "rate": HELD_AT_ONCE},
        "sources": sources,
    })
}

/// Whether a variable of the environment would be taken for a part of the configuration.
pub(super) fn is_configuration(variable: &OsStr) -> bool {
    variable == "PORT" || variable.as_encoded_bytes().starts_with(b"ANKUSA_")
}
