//! Where the node listens and what a connection may cost: the config sections `http` and `admin`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

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
    /// Connections at once, > 0. Further ones wait in the kernel's backlog.
    pub max_connections: usize,
    /// Bytes of all bodies that are being received, at least `max_body_bytes`. One more is 503 `overload`.
    pub max_body_memory_bytes: usize,
    /// Headers of one request, 1 to 1000.
    pub max_headers: usize,
    /// Bytes of one request's head, 8192 to 1048576.
    pub max_header_bytes: usize,
    /// Networks whose word on the client's address counts: what they put into X-Forwarded-For. Default none.
    pub trusted_proxies: Vec<String>,
    pub http2: Http2Config,
    pub tls: TlsConfig,
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
            max_body_memory_bytes: 256 << 20,
            max_headers: 100,
            max_header_bytes: 65_536,
            trusted_proxies: Vec::new(),
            http2: Http2Config::default(),
            tls: TlsConfig::default(),
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

/// Section `http.http2`: HTTP/2 on the ingest port, and what one connection may ask for there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Http2Config {
    /// Whether it is spoken: with prior knowledge, and over TLS when the client chooses it.
    pub enabled: bool,
    /// Requests at once, > 0. One more is refused by the protocol; the client waits.
    pub max_streams: u32,
    /// Bytes of one body that may arrive before they are asked for, 65535 to 16777216.
    pub stream_window_bytes: u32,
    /// The same of all bodies of one connection, 65535 to 16777216.
    pub connection_window_bytes: u32,
    /// Bytes of one frame, 16384 to 16777215.
    pub max_frame_bytes: u32,
    /// Requests that a client may take back before their answer, > 0. With one more the connection is closed.
    pub max_resets: usize,
}

impl Default for Http2Config {
    fn default() -> Self {
        Self {
            enabled: true,
            max_streams: 100,
            stream_window_bytes: 131_072,
            connection_window_bytes: 262_144,
            max_frame_bytes: 16_384,
            max_resets: 100,
        }
    }
}

/// Section `http.tls` or `admin.tls`: TLS 1.2 and 1.3 on that listener.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The chain of certificates in PEM, the own one first. Without it the listener speaks plain HTTP.
    pub cert_file: Option<PathBuf>,
    /// The private key in PEM.
    pub key_file: Option<PathBuf>,
    /// The authorities in PEM that may have signed a client's certificate. Without them no client is asked for one.
    pub client_ca_file: Option<PathBuf>,
    pub client_auth: ClientAuth,
    /// From the connect to the end of the handshake, in milliseconds, > 0. Slower ones are cut off.
    pub handshake_timeout_ms: u64,
    /// Between two looks at the files, in milliseconds, > 0.
    pub reload_interval_ms: u64,
}

/// Whether a client may connect without a certificate, where authorities are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// It may, and then is nobody.
    Optional,
    Required,
}

impl Default for TlsConfig {
    fn default() -> Self {
        Self {
            cert_file: None,
            key_file: None,
            client_ca_file: None,
            client_auth: ClientAuth::Optional,
            handshake_timeout_ms: 10_000,
            reload_interval_ms: 10_000,
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
    pub tls: TlsConfig,
}

impl Default for AdminConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            port: 4002,
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            gauge_interval_ms: 15_000,
            tokens: Vec::new(),
            tls: TlsConfig { client_auth: ClientAuth::Required, ..TlsConfig::default() },
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
