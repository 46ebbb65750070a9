//! What every HTTP adapter can be told, with its defaults ("Conditional writes, retries, checksums, multipart, pools").

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The transport of one store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransportOptions {
    /// From the call to its answer, in milliseconds, > 0: attempts, waits, parts and token refreshes.
    pub op_deadline_ms: u64,
    /// One attempt that carries at most 1 MiB, in milliseconds, > 0.
    pub timeout_ms: u64,
    /// One attempt that carries more, in milliseconds, > 0.
    pub upload_timeout_ms: u64,
    /// Attempts after the first, 0 to 100.
    pub retries: u32,
    /// Failures in a row that open the breaker; 0 for no breaker.
    pub breaker_failures: u32,
    /// The p99 of the last 100 small requests that opens it, in milliseconds, > 0.
    pub breaker_slow_ms: u64,
    /// How long it stays open before one request is let through, in milliseconds, > 0.
    pub breaker_open_ms: u64,
    /// A put of more bytes is cut into parts; at least a part.
    pub multipart_threshold_bytes: u64,
    /// The size of a part, in bytes: 5 MiB or more and a multiple of 256 KiB.
    pub multipart_part_bytes: u64,
    /// Connections to the endpoint are `pool_size` times `pool_count`, each > 0.
    pub pool_size: u32,
    pub pool_count: u32,
    /// How long an attempt waits for one of them, in milliseconds, > 0.
    pub pool_timeout: u64,
    /// PEM certificates the server's must descend from; `None` for the system's.
    pub cacertfile: Option<PathBuf>,
}

impl Default for TransportOptions {
    fn default() -> Self {
        Self {
            op_deadline_ms: 120_000,
            timeout_ms: 10_000,
            upload_timeout_ms: 60_000,
            retries: 2,
            breaker_failures: 5,
            breaker_slow_ms: 5_000,
            breaker_open_ms: 30_000,
            multipart_threshold_bytes: 8 << 20,
            multipart_part_bytes: 8 << 20,
            pool_size: 32,
            pool_count: 1,
            pool_timeout: 5_000,
            cacertfile: None,
        }
    }
}

/// Requests that carry more have `upload_timeout_ms`, and say nothing about how slow the store is.
pub const SMALL_MAX_BYTES: u64 = 1 << 20;

impl TransportOptions {
    /// How long one attempt may take that carries `bytes`, there or back.
    pub const fn timeout(&self, bytes: u64) -> Duration {
        Duration::from_millis(if bytes > SMALL_MAX_BYTES {
            self.upload_timeout_ms
        } else {
            self.timeout_ms
        })
    }

    pub const fn op_deadline(&self) -> Duration {
        Duration::from_millis(self.op_deadline_ms)
    }
}

/// Section `sse`: server-side encryption asked for with every put.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Sse {
    /// The provider's own key. Only S3 is asked for it: the others encrypt at rest whether asked or not. With braces, so
    /// that a key that is named here all the same is refused, and not dropped.
    Aes256 {},
    /// A key of the customer's.
    Kms { key_id: String },
}
