//! How much is delivered at once and how a failing sink is treated: the config section `dispatch`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::page::Percents;
use crate::model::retry::{RETRY_AFTER_MAX_MS, RetryPolicy};

/// How many attempts may have left a place and still run, for each place. They cost a connection and a hook in memory.
const STALLED_A_SLOT: usize = 8;

/// Section `dispatch`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchConfig {
    /// Delivery rows claimed by one scan, > 0.
    pub batch: usize,
    /// Attempts running at once on this node, > 0. One that takes longer than a second leaves its place to another.
    pub concurrency: usize,
    /// Attempts that have left their places and still run, `null` for eight times `concurrency`, else > 0. Where those of
    /// others have, a sink may have `tenants.start_percent` of what they leave, else `tenants.share_percent`. Past it they
    /// keep their places.
    pub max_stalled: Option<usize>,
    /// Claimed rows not finished yet, > 0. Claiming stops there until something finishes.
    pub max_inflight: usize,
    /// The same bound in bytes of hook, > 0. It is memory.
    pub max_inflight_bytes: usize,
    /// An attempt that takes longer is cut off and counted as failed, in milliseconds, > 0. The sink may still finish
    /// it. A stop waits this long for what runs.
    pub attempt_timeout_ms: u64,
    /// Attempts at once to one sink of one source, `null` for as many as `concurrency`, else 1 to `concurrency`. A sink
    /// never has more than its tenant's share of what others leave.
    pub sink_concurrency: Option<usize>,
    /// Failures in a row, permanent ones aside, after which a sink is left alone for a while, >= 0; 0 never does.
    pub breaker_failures: u32,
    /// How long, the first time, in milliseconds, > 0. It doubles each time the next probe fails.
    pub breaker_open_ms: u64,
    /// The longest, in milliseconds, >= `breaker_open_ms`. A sink that is well again is noticed this late.
    pub breaker_max_open_ms: u64,
    pub retry: RetryConfig,
    pub tenants: ShareConfig,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self {
            batch: 128,
            concurrency: 32,
            max_stalled: None,
            max_inflight: 4_096,
            max_inflight_bytes: 128 << 20,
            attempt_timeout_ms: 30_000,
            sink_concurrency: None,
            breaker_failures: 5,
            breaker_open_ms: 30_000,
            breaker_max_open_ms: 300_000,
            retry: RetryConfig::default(),
            tenants: ShareConfig::default(),
        }
    }
}

impl DispatchConfig {
    /// Attempts that may go on beside `concurrency` of them.
    pub(super) fn stalled(&self) -> usize {
        self.max_stalled.unwrap_or_else(|| self.concurrency.saturating_mul(STALLED_A_SLOT)).max(1)
    }

    /// The longest a row can be made to wait, in milliseconds: by its backoff, its receiver, or the breaker of its sink.
    pub(super) fn longest_wait_ms(&self) -> u64 {
        self.retry.max_ms.max(self.breaker_max_open_ms).max(RETRY_AFTER_MAX_MS)
    }
}

/// Section `dispatch.retry`: the wait before attempt n + 1 is `min(base_ms * 2^(n - 1), max_ms)`, and with `jitter` a
/// random half to whole of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RetryConfig {
    /// The first wait, in milliseconds, > 0.
    pub base_ms: u64,
    /// The longest wait, in milliseconds, >= `base_ms`.
    pub max_ms: u64,
    /// Attempts before the row is dead, > 0. The defaults spread them over three to six hours.
    pub max_attempts: u32,
    /// Spreads retries of hooks that failed together.
    pub jitter: bool,
}

impl Default for RetryConfig {
    fn default() -> Self {
        Self { base_ms: 100, max_ms: 300_000, max_attempts: 84, jitter: true }
    }
}

impl From<RetryConfig> for RetryPolicy {
    fn from(config: RetryConfig) -> Self {
        let RetryConfig { base_ms, max_ms, max_attempts, jitter } = config;
        Self { base_ms, max_ms, max_attempts, jitter }
    }
}

/// Section `dispatch.tenants`: how tenants share what dispatch has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ShareConfig {
    /// Of the claimed rows, their bytes and the attempts at once that others leave, what one tenant may have, in percent, 1
    /// to 100. The rest is there for the next one at once; at 100 a tenant whose sink hangs can have everything.
    pub share_percent: u32,
    /// The same for a tenant, or a sink, that has finished nothing lately while others hold something, in percent, 1 to
    /// 100, but never more than `share_percent`. It has the whole share as soon as it gets on. Many that hang at once
    /// leave the more the smaller it is.
    pub start_percent: u32,
    /// Claimed rows of one tenant not finished, `null` for its share alone, else > 0.
    pub max_inflight: Option<usize>,
    /// By what a claim is split among tenants with rows due, 1 to 100: twice the weight, twice the rows. The same
    /// way tenants take turns at a sink they share.
    pub default_weight: u32,
    /// The weights of tenants that have another one, by their ids, 1 to 100 each.
    pub weights: BTreeMap<String, u32>,
}

impl ShareConfig {
    pub(super) fn percents(&self) -> Percents {
        let Self { share_percent: share, start_percent: start, .. } = *self;
        Percents { share, start: start.min(share) }
    }
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self {
            share_percent: 87,
            start_percent: 12,
            max_inflight: None,
            default_weight: 1,
            weights: BTreeMap::new(),
        }
    }
}
