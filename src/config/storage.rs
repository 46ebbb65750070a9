//! How hooks are kept: the config sections `wal` and `queue`.

use serde::{Deserialize, Serialize};

use ankusa_actors::model::value_version::ValueVersion;

/// `wal.type`: what makes an accepted hook durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WalType {
    /// The local store, synced.
    #[default]
    Disk,
}

/// Section `wal`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WalConfig {
    #[serde(rename = "type")]
    pub kind: WalType,
}

/// Section `queue`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueueConfig {
    /// How new hook values and delivery rows are encoded, 0 or 1. Both are read. 1 cannot be read by a release older
    /// than the one that introduced it: the first hook written so is the rollback boundary.
    pub value_version: u8,
    pub rocksdb: RocksdbConfig,
}

impl QueueConfig {
    pub const fn value_version(&self) -> ValueVersion {
        match self.value_version {
            0 => ValueVersion::V0,
            _one => ValueVersion::V1,
        }
    }
}

/// Section `queue.rocksdb`: read at every open and reopen of the store.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RocksdbConfig {
    /// Memory for blocks read back, in bytes, > 0, shared by all families.
    pub block_cache_bytes: usize,
    /// Bloom filter of the families `index` and `deliveries`, in bits a key, 0 to 64; 0 for none. Ten cost about
    /// 1.25 bytes a key and leave one look-up in a hundred to the disk.
    pub bloom_bits_per_key: u32,
    /// Table files kept open, 64 to 1000000. The process must be allowed that many descriptors and its sockets.
    pub max_open_files: u32,
    /// Memory a family collects before it is written out, in bytes, >= 65536. Two of them can exist a family.
    pub write_buffer_bytes: usize,
    /// Flushes and compactions at once, > 0.
    pub max_background_jobs: u32,
}

impl Default for RocksdbConfig {
    fn default() -> Self {
        Self {
            block_cache_bytes: 64 << 20,
            bloom_bits_per_key: 10,
            max_open_files: 1_024,
            write_buffer_bytes: 64 << 20,
            max_background_jobs: 4,
        }
    }
}
