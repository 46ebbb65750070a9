//! Where the node listens and what a connection may cost: the config sections `http` and `admin`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize, Serializer};

use ankusa_actors::edge::{IngestConfig, Routing};
use ankusa_actors::model::network::Network;

/// Section `http`: the listener hooks arrive on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// 0 to 65535; 0 lets the kernel choose.
    pub port: u16,
    /// An IPv4 or IPv6 literal.
    pub ip: IpAddr,
    /// The largest body, in bytes, > 0 and at most `batcher.max_queue_bytes`. One byte more is answered 413.
    pub max_body_bytes: usize,
    pub routing: Routing,
    /// What every catch URL starts with; `/` for nothing.
    pub prefix: String,
    /// From the first byte of a request to the last of its headers, in milliseconds, > 0. Slower ones are cut off.
    pub header_timeout_ms: u64,
    /// From the headers to the end of the body, in milliseconds, > 0. After it the answer is 400 `body_read_failed`.
    pub body_timeout_ms: u64,
    /// A connection with no request on it is closed after this, in milliseconds, > 0. Shorter than a load balancer's
    /// own idle timeout, it makes the balancer send into closed connections.
    pub idle_timeout_ms: u64,
    /// Connections at once, > 0. Further ones wait in the kernel's backlog. Each can hold a body in memory.
    pub max_connections: usize,
    /// Headers of one request, 1 to 1000.
    pub max_headers: usize,
    /// Bytes of one request's head, 8192 to 1048576.
    pub max_header_bytes: usize,
    /// Networks whose word on the client's address counts: what they put into X-Forwarded-For. Default none.
    pub trusted_proxies: Vec<String>,
}

impl Default for HttpConfig {
    fn default() -> Self {
        Self {
            port: 4000,
            ip: IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            max_body_bytes: 8_000_000,
            routing: Routing::Path,
            prefix: "/webhooks".to_owned(),
            header_timeout_ms: 10_000,
            body_timeout_ms: 30_000,
            idle_timeout_ms: 75_000,
            max_connections: 10_000,
            max_headers: 100,
            max_header_bytes: 65_536,
            trusted_proxies: Vec::new(),
        }
    }
}

impl HttpConfig {
    /// What decides about a request.
    pub fn ingest(&self) -> IngestConfig {
        IngestConfig {
            routing: self.routing,
            prefix: self.prefix.trim_end_matches('/').to_owned(),
            max_body_bytes: self.max_body_bytes,
            // They have been checked.
            trusted_proxies: self
                .trusted_proxies
                .iter()
                .filter_map(|entry| Network::parse(entry).ok())
                .collect(),
        }
    }
}

/// Section `admin`: health, metrics and views of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdminConfig {
    /// Off, there is no scraping; the control socket still answers.
    pub enabled: bool,
    /// 0 to 65535, another than `http.port`; 0 lets the kernel choose.
    pub port: u16,
    /// An IPv4 or IPv6 literal. Beyond loopback it needs `tokens`.
    pub ip: IpAddr,
    /// How often the state gauges are sampled, in milliseconds, > 0.
    pub gauge_interval_ms: u64,
    /// Who may ask. Empty: whoever reaches the port, which is then on loopback.
    pub tokens: Vec<TokenConfig>,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            port: 4002,
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            gauge_interval_ms: 15_000,
            tokens: Vec::new(),
        }
    }
}

/// An element of `admin.tokens`: one bearer token and what it may do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    /// For the logs; one token a name.
    pub name: String,
    /// At least 16 bytes.
    pub token: Secret,
    /// `<resource>:read`, `<resource>:write`, `<resource>:*` or `*`. At least one.
    pub scopes: Vec<String>,
}

/// A text that neither `Debug` nor `Serialize` tells.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(super::redact::REDACTED)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(super::redact::REDACTED)
    }
}
