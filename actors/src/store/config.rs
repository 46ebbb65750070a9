//! When the store is opened, given up and opened again: the config section `store`.

use serde::{Deserialize, Serialize};

/// Section `store`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreConfig {
    /// An open with no result by then is a failed open, in milliseconds, > 0; a second is added for each GiB of log
    /// found on the disk. RocksDB replays its log here: too short a deadline refuses to boot after a crash under load,
    /// too long a one hides an open that spins for ever.
    pub open_deadline_ms: u64,
    /// The least time between two closes-and-reopens after failed writes, in milliseconds, > 0.
    pub reopen_min_interval_ms: u64,
    /// Wait before the second try of a reopen that failed, in milliseconds, > 0. It doubles with every failure.
    pub reopen_backoff_ms: u64,
    /// The longest of those waits, in milliseconds, >= `reopen_backoff_ms`. A disk with room again is noticed this late.
    pub reopen_max_backoff_ms: u64,
    /// How long a failed group's requests wait for the delete that makes their 503 true, in milliseconds, > 0. After
    /// it their connections are closed unanswered, and the provider must treat the hook as unknown.
    pub fence_deadline_ms: u64,
    /// How much of the store the background scrub reads in a second, in bytes of keys and values; 0 turns it off. Slow
    /// finds rot late, fast takes the disk from whoever delivers.
    pub scrub_bytes_per_s: u64,
    /// From the end of a scrub to the beginning of the next, in milliseconds, > 0.
    pub scrub_interval_ms: u64,
    /// The length of the file that is given up when a full disk would not let the store recover, in bytes; 0 for none.
    /// Cut to an eighth of the disk. Shorter than the log a crash leaves, it does not help.
    pub reserve_bytes: u64,
    /// With less free beyond the reserve, new hooks are refused with 503 `store_unavailable`, in bytes, >= 0. Cut to a
    /// sixteenth of the disk. It is what deliveries, flushes and compactions go on with.
    pub min_free_bytes: u64,
    /// With as much free again, hooks are taken again, in bytes, >= `min_free_bytes`. Cut to an eighth of the disk. Close
    /// to `min_free_bytes`, a disk at its limit goes back and forth.
    pub resume_free_bytes: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            open_deadline_ms: 120_000,
            reopen_min_interval_ms: 5_000,
            reopen_backoff_ms: 5_000,
            reopen_max_backoff_ms: 60_000,
            fence_deadline_ms: 10_000,
            scrub_bytes_per_s: 8 << 20,
            scrub_interval_ms: 604_800_000,
            reserve_bytes: 64 << 20,
            min_free_bytes: 64 << 20,
            resume_free_bytes: 128 << 20,
        }
    }
}
