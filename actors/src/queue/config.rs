//! What the batchers, the Writer and the Syncer can be told: the config sections `batcher`, `tenants` and
//! `dedupe`.

use serde::{Deserialize, Serialize};

/// Section `batcher`: from an accepted request to a synced group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatcherConfig {
    /// Batchers that work side by side, > 0. One cannot keep two cores busy; many only contend for the one Writer.
    pub partitions: usize,
    /// Hooks in a batch, > 0. Small ones cost the Writer more messages a hook, large ones hold the first hook back.
    pub max_batch: usize,
    /// How long a batch that is not full waits for more, in milliseconds, >= 0. Every hook pays it at low load.
    pub max_delay_ms: u64,
    /// Hooks a partition holds, buffered and in flight, > 0. One more is answered 503 `overload`.
    pub max_queue: usize,
    /// The same bound in body bytes, > 0. It is memory: `partitions` times this can be held at once.
    pub max_queue_bytes: usize,
    /// Of the room in a partition that others leave, what one tenant may have, in percent, 1 to 100: one hook more of it is
    /// answered 429 `tenant_overload`. The rest is there at once for the next tenant; with 100 one tenant can take it all,
    /// as it can while no other has come.
    pub tenant_share_percent: u32,
    /// Bytes of one writer group, > 0. Also the bytes that may wait for the Writer: too few and groups stay small.
    pub group_commit_max_bytes: usize,
    /// Hooks of one writer group, > 0.
    pub group_commit_max_records: usize,
    /// The longest the Writer waits for a group to fill, in milliseconds, >= 0. Nothing waits at low load.
    pub group_commit_delay_ms: u64,
    /// A hook whose batch has not started committing by then is answered 503 and never stored, in milliseconds, > 0.
    /// Providers hang up after about five seconds: a longer deadline stores hooks that nobody waits for.
    pub start_deadline_ms: u64,
    /// Once the oldest unanswered group is older, new hooks are refused at once with 503 `overload`, in milliseconds,
    /// > 0. Below what a slow fsync takes it refuses hooks for nothing.
    pub stall_ms: u64,
    /// Groups applied ahead of the fsync that makes them durable, > 0. One stops the pipeline at every fsync; few are
    /// used up by small groups while a slow fsync runs, and what waits behind them misses the next fsync too. How much
    /// is unsynced at most is bounded by what the batchers hold.
    pub max_unsynced_groups: usize,
}

impl Default for BatcherConfig {
    fn default() -> Self {
        Self {
            partitions: 2,
            max_batch: 256,
            max_delay_ms: 0,
            max_queue: 10_000,
            max_queue_bytes: 256 << 20,
            tenant_share_percent: 87,
            group_commit_max_bytes: 4 << 20,
            group_commit_max_records: 4_096,
            group_commit_delay_ms: 1,
            start_deadline_ms: 2_000,
            stall_ms: 1_000,
            max_unsynced_groups: 128,
        }
    }
}

/// Section `tenants`: how many there may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantsConfig {
    /// Tenant ordinals this node gives out, > 0. The first hook of one more is answered 503 `tenant_limit`. Ordinals
    /// are never reused, and with `tenant_path` any URL can ask for one: without a limit anybody mints them.
    pub max: u32,
}

impl Default for TenantsConfig {
    fn default() -> Self {
        Self { max: 100_000 }
    }
}

/// Section `dedupe`: how many keys are remembered, and how those that are over are removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DedupeConfig {
    /// Keys of this node, > 0. A hook with one more is answered 503 `dedupe_quota`: it is never stored without its key. A
    /// key costs about 200 bytes of disk, and 2.5 bytes of the block cache for its filter.
    pub max_entries: u64,
    /// Keys of one tenant, > 0. Likewise.
    pub max_entries_per_tenant: u64,
    /// Wait between two looks at keys that have expired, in milliseconds, > 0. Until a key is removed it counts.
    pub sweep_interval_ms: u64,
    /// Keys that the Writer removes at a time, > 0. No hook is committed meanwhile: a thousand take it some milliseconds.
    pub sweep_chunk: usize,
}

impl Default for DedupeConfig {
    fn default() -> Self {
        Self {
            max_entries: 100_000_000,
            max_entries_per_tenant: 30_000_000,
            sweep_interval_ms: 10_000,
            sweep_chunk: 1_000,
        }
    }
}
