//! What ingest needs to know of the config section `http`, and the sections `rate_limits` and `quarantine`.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::model::gcra::{Gcra, Rate};
use crate::model::network::Network;
use crate::model::rate_limit::{RateLimit, TenantLimit};

/// How a catch URL names its source: `http.routing`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// `POST <prefix>/<source_id>`.
    #[default]
    Path,
    /// `POST <prefix>/<tenant_id>/<source_id>`; the tenant of the URL wins.
    TenantPath,
}

/// The part of section `http` that decides about a request, not about a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngestConfig {
    pub routing: Routing,
    /// `http.prefix` with a leading and without a trailing slash; empty for none.
    pub prefix: String,
    /// `http.max_body_bytes`: one byte more is answered 413.
    pub max_body_bytes: usize,
    /// `http.trusted_proxies`: whose word on the client's address counts.
    pub trusted_proxies: Arc<[Network]>,
}

/// Section `rate_limits`: how much verified traffic is taken. Whatever is over is answered 429 and stored nowhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RateLimitsConfig {
    /// Of every tenant that has none of its own; `null` for no limit.
    pub default: Option<RateLimit>,
    /// Of single tenants, by their ids.
    pub tenants: BTreeMap<String, TenantLimit>,
    /// Of each client address, of IPv6 each /64; `null` for no limit.
    pub client_ip: Option<RateLimit>,
    /// Of all that this node takes; `null` for no limit.
    pub node: Option<RateLimit>,
}

/// Section `quarantine`: how many hooks that did not verify are kept, and for how long.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QuarantineConfig {
    /// Hooks of one source at once that are held, or stored although they did not verify, > 0. One more is answered 429
    /// `quarantine_rate_limited`.
    pub burst: u64,
    /// How many of those come back a second, > 0.
    pub rate: Rate,
    /// Bytes the pen holds, of all sources together, > 0. A hook that would be over is answered 503 `quarantine_full`; none
    /// that is held makes room for it.
    pub max_bytes: u64,
    /// Days after which a held hook is deleted, > 0; `null` keeps it for ever.
    pub retention_days: Option<u64>,
}

impl QuarantineConfig {
    /// The bucket of each source. One that cannot be is a hook a second: the configuration has been checked.
    pub(super) fn limit(&self) -> Gcra {
        let least = || Gcra::of_ones(Rate::MIN, 1);
        let limit = Gcra::of_ones(self.rate, self.burst).or_else(least);
        limit.unwrap_or(Gcra::CLOSED)
    }
}

impl Default for QuarantineConfig {
    fn default() -> Self {
        let rate = Rate::whole(20).unwrap_or(Rate::MIN);
        Self { burst: 100, rate, max_bytes: 1 << 30, retention_days: Some(30) }
    }
}
