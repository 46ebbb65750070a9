//! How hooks are kept: the config sections `wal` and `queue`.

use serde::{Deserialize, Serialize};

use ankusa_actors::model::cf::Cf;
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
    /// Memory the family `hooks` collects before it is written out, in bytes, >= 65536. Two of them can exist a family.
    /// The families `index` and `deliveries` take a quarter of it, each other one a sixteenth, unless `write_buffers`
    /// says otherwise.
    pub write_buffer_bytes: usize,
    pub write_buffers: WriteBuffersConfig,
    pub compaction_style: CompactionStyle,
    /// Bytes a second that flushes and compactions may write together, 1048576 or more; 0 for as many as they can.
    pub rate_limit_bytes_per_s: u64,
    /// Flushes and compactions at once, > 0.
    pub max_background_jobs: u32,
}

/// `queue.rocksdb.compaction_style`: how files that have grown many become few.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactionStyle {
    /// Level by level: the least disk and the cheapest reads.
    #[default]
    Level,
    /// Whole runs at a time: a fraction of the writing, for up to twice the disk while it works.
    Universal,
}

/// Section `queue.rocksdb.write_buffers`: memtables of single families, in bytes, >= 65536; `None` for the share of
/// `write_buffer_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WriteBuffersConfig {
    pub default_bytes: Option<usize>,
    pub hooks_bytes: Option<usize>,
    pub deliveries_bytes: Option<usize>,
    pub index_bytes: Option<usize>,
    pub archive_bytes: Option<usize>,
    pub quarantine_bytes: Option<usize>,
    pub audit_bytes: Option<usize>,
    pub tenants_bytes: Option<usize>,
    pub counters_bytes: Option<usize>,
}

impl RocksdbConfig {
    /// The smallest memtable RocksDB works with.
    pub const MIN_WRITE_BUFFER_BYTES: usize = 65_536;

    /// The memtable of a family, in bytes.
    pub fn write_buffer_of(&self, cf: Cf) -> usize {
        let own = &self.write_buffers;
        let whole = self.write_buffer_bytes;
        let (set, share) = match cf {
            Cf::Hooks => (own.hooks_bytes, whole),
            Cf::Index => (own.index_bytes, whole / 4),
            Cf::Deliveries => (own.deliveries_bytes, whole / 4),
            Cf::Default => (own.default_bytes, whole / 16),
            Cf::Archive => (own.archive_bytes, whole / 16),
            Cf::Quarantine => (own.quarantine_bytes, whole / 16),
            Cf::Audit => (own.audit_bytes, whole / 16),
            Cf::Tenants => (own.tenants_bytes, whole / 16),
            Cf::Counters => (own.counters_bytes, whole / 16),
        };
        set.unwrap_or(share.max(Self::MIN_WRITE_BUFFER_BYTES))
    }
}

impl Default for RocksdbConfig {
    fn default() -> Self {
        Self {
            block_cache_bytes: 64 << 20,
            bloom_bits_per_key: 10,
            max_open_files: 1_024,
            write_buffer_bytes: 64 << 20,
            write_buffers: WriteBuffersConfig::default(),
            compaction_style: CompactionStyle::Level,
            rate_limit_bytes_per_s: 0,
            max_background_jobs: 4,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_takes_its_share_of_the_buffer_unless_it_has_one_of_its_own() {
        let mut config = RocksdbConfig { write_buffer_bytes: 32 << 20, ..RocksdbConfig::default() };
        let of = |config: &RocksdbConfig| Cf::ALL.map(|cf| (cf.name(), config.write_buffer_of(cf)));
        let shares = of(&config);
        let share = |name| shares.iter().find(|(family, _)| *family == name).unwrap().1;
        assert_eq!(
            (share("hooks"), share("index"), share("deliveries")),
            (32 << 20, 8 << 20, 8 << 20)
        );
        assert_eq!(
            (share("default"), share("counters"), share("audit")),
            (2 << 20, 2 << 20, 2 << 20)
        );
        config.write_buffer_bytes = RocksdbConfig::MIN_WRITE_BUFFER_BYTES;
        assert!(of(&config).iter().all(|(_, bytes)| *bytes == 65_536), "{:?}", of(&config));
        let each = Some(3 << 20);
        config.write_buffers = WriteBuffersConfig {
            default_bytes: each,
            hooks_bytes: each,
            deliveries_bytes: each,
            index_bytes: each,
            archive_bytes: each,
            quarantine_bytes: each,
            audit_bytes: each,
            tenants_bytes: each,
            counters_bytes: each,
        };
        assert!(of(&config).iter().all(|(_, bytes)| *bytes == 3 << 20), "{:?}", of(&config));
    }
}
