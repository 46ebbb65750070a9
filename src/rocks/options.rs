//! Every RocksDB option the store sets, one a line, each with its reason ("RocksDB tuning and the index filters").
//!
//! What the durability promise rests on is fixed; what only trades memory for speed is in [`RocksOptions`]. Never to be
//! set, and held by a test against the options file RocksDB itself writes: pipelined writes (they deadlocked for
//! others), unordered writes (readers would see holes), manual WAL flush and `wal_bytes_per_sync` (an apply would no
//! longer reach the kernel before it is answered, or a sync would no longer cover it), a disabled WAL, recycled WAL
//! files (old records behind the tail), and skipping the flush at recovery (it is what makes a log whose fsync failed
//! durable again).

use ankusa_actors::model::cf::Cf;
use rocksdb::{
    BlockBasedOptions, Cache, ColumnFamilyDescriptor, DBCompactionStyle, DBCompressionType,
    DBRecoveryMode, Options,
};

use super::merge;

const MIB: u64 = 1 << 20;

/// All memtables of a store together, in bytes, whatever the families' own sizes add up to.
pub const MEMTABLES_MAX_BYTES: u64 = 256 << 20;

/// How often the rate limiter gives out bytes, in microseconds, and how seldom a compaction goes before a flush (one
/// time in so many): RocksDB's own defaults.
const RATE_REFILL_US: i64 = 100_000;
const RATE_FAIRNESS: i32 = 10;

/// A file in which so many of so many rows in a row delete something is compacted without waiting for others to pile up,
/// and so is one of which this part does.
const DELETIONS_WINDOW: usize = 8_192;
const DELETIONS_IN_WINDOW: usize = 4_096;
const DELETIONS_OF_FILE: f64 = 0.5;

/// Of the families of small rows: the level a flush is merged with, in bytes, and its files. Files double from level to
/// level, so that the largest stay few.
const SMALL_ROWS_LEVEL_BYTES: u64 = 16 * MIB;
const SMALL_ROWS_FILE_BYTES: u64 = 4 * MIB;
const SMALL_ROWS_FILE_GROWTH: i32 = 2;

/// Levels of a family: RocksDB's own default.
const LEVELS: usize = 7;

/// Memtable sizes, in bytes a family. Up to two of each exist at a time; all together stay under 256 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteBuffers([usize; Cf::ALL.len()]);

impl WriteBuffers {
    pub fn of_each(bytes: impl Fn(Cf) -> usize) -> Self {
        Self(Cf::ALL.map(bytes))
    }

    pub(super) fn largest_bytes(&self) -> usize {
        Cf::ALL.into_iter().map(|cf| self.of(cf)).max().unwrap_or(0)
    }

    const fn of(&self, cf: Cf) -> usize {
        self.0[cf.index()]
    }
}

impl Default for WriteBuffers {
    /// Of `hooks` 64 MiB: bigger means fewer, larger files and a longer replay at boot. What the others collect is small
    /// beside it.
    fn default() -> Self {
        Self::of_each(|cf| match cf {
            Cf::Hooks => 64 << 20,
            Cf::Index | Cf::Deliveries => 16 << 20,
            Cf::Default | Cf::Archive | Cf::Quarantine | Cf::Audit | Cf::Tenants | Cf::Counters => {
                4 << 20
            }
        })
    }
}

/// How files that have grown many become few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compaction {
    /// The least disk and the cheapest reads.
    Level,
    /// A fraction of the writing, for up to twice the disk while it works.
    Universal,
}

/// What may be tuned. Read at every open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RocksOptions {
    /// Memory for blocks read back, shared by all families, in bytes; default 64 MiB. The filters of 10^8 dedupe keys
    /// alone are 250 MB: too small, and every commit reads them from the disk.
    pub block_cache_bytes: usize,
    /// Bloom filter of `index` and `deliveries`, in bits a key, 0 to 64; default 10, one look-up in a hundred goes to
    /// the disk for nothing. 0 means plain tables. Files written before a change keep what they have.
    pub bloom_bits_per_key: u32,
    /// Table files kept open; default 1024. Too few and reads reopen files; the process needs as many descriptors and
    /// 256 more.
    pub max_open_files: u32,
    pub write_buffers: WriteBuffers,
    /// Default level: hooks die young, and what level compaction writes again is mostly keys, not bodies.
    pub compaction: Compaction,
    /// Bytes a second that flushes and compactions may write together; default 0, no limit. On a disk that is shared, a
    /// burst of theirs is what fsyncs of the log wait for.
    pub rate_limit_bytes_per_s: u64,
    /// Flushes and compactions at once, at least 1; default 4. Too few and writes stall, too many and they starve the
    /// commit path.
    pub max_background_jobs: u32,
    /// How long an open may go on without a result, in milliseconds, a second for each GiB of write-ahead log added;
    /// default 120000. Too short refuses a slow disk; there must be an end because a damaged file can keep RocksDB
    /// reading for ever.
    pub open_deadline_ms: u64,
}

impl Default for RocksOptions {
    fn default() -> Self {
        Self {
            block_cache_bytes: 64 << 20,
            bloom_bits_per_key: 10,
            max_open_files: 1_024,
            write_buffers: WriteBuffers::default(),
            compaction: Compaction::Level,
            rate_limit_bytes_per_s: 0,
            max_background_jobs: 4,
            open_deadline_ms: 120_000,
        }
    }
}

/// What the filter of a memtable takes, of the memtable's size: about sixteen bits a key, for keys of a hundred bytes.
const MEMTABLE_FILTER_RATIO: f64 = 0.02;

impl RocksOptions {
    pub(super) fn database(&self) -> Options {
        let signed = |count: u32| i32::try_from(count).unwrap_or(i32::MAX);
        let mut options = Options::default();
        // The first boot makes the database. `open` first makes sure that it is the first.
        options.create_if_missing(true);
        // A process killed during the first boot may have made some of the families.
        options.create_missing_column_families(true);
        // Damage is an error the moment it is read, never data.
        options.set_paranoid_checks(true);
        // A torn last write is dropped; damage before it refuses to open.
        options.set_wal_recovery_mode(DBRecoveryMode::TolerateCorruptedTailRecords);
        // One cold family would otherwise pin the log of all the others for ever; also bounds the replay at boot.
        options.set_max_total_wal_size(512 * MIB);
        // What the families' own sizes add up to is not what a machine was planned for.
        options
            .set_db_write_buffer_size(usize::try_from(MEMTABLES_MAX_BYTES).unwrap_or(usize::MAX));
        // Flushes must not wait behind compactions, or writes stall.
        options.set_max_background_jobs(signed(self.max_background_jobs));
        if self.rate_limit_bytes_per_s > 0 {
            let rate = i64::try_from(self.rate_limit_bytes_per_s).unwrap_or(i64::MAX);
            options.set_ratelimiter(rate, RATE_REFILL_US, RATE_FAIRNESS);
        }
        // Descriptors are shared with the sockets.
        options.set_max_open_files(signed(self.max_open_files));
        // RocksDB's log is written by `info_log`. Should it ever write one by itself: at most five files ...
        options.set_keep_log_file_num(5);
        // ... of 16 MiB, or an idle node collects hundreds of megabytes.
        options.set_max_log_file_size(16 << 20);
        options
    }

    /// Those of one family, for whoever writes a file of it beside the database.
    pub fn of_family(&self, cf: Cf) -> Options {
        self.family(cf, &Cache::new_lru_cache(self.block_cache_bytes))
    }

    pub(super) fn families(&self) -> Vec<ColumnFamilyDescriptor> {
        // One cache for all families: memory is bounded once.
        let cache = Cache::new_lru_cache(self.block_cache_bytes);
        let descriptor = |cf: Cf| ColumnFamilyDescriptor::new(cf.name(), self.family(cf, &cache));
        Cf::ALL.into_iter().map(descriptor).collect()
    }

    fn family(&self, cf: Cf, cache: &Cache) -> Options {
        let mut options = Options::default();
        options.set_write_buffer_size(self.write_buffers.of(cf));
        options.set_compaction_style(match self.compaction {
            Compaction::Level => DBCompactionStyle::Level,
            Compaction::Universal => DBCompactionStyle::Universal,
        });
        match cf {
            Cf::Hooks | Cf::Quarantine => keep_bodies_in_blobs(&mut options),
            Cf::Counters => {
                // Rows are a few bytes and often rewritten.
                options.set_compression_type(DBCompressionType::None);
                // Counters are moved blindly; nobody reads one to write it.
                merge::install(&mut options);
            }
            Cf::Default | Cf::Deliveries | Cf::Index | Cf::Archive | Cf::Audit | Cf::Tenants => {
                // Rows are small and short-lived: they are gone before compression pays.
                options.set_compression_type(DBCompressionType::None);
            }
        }
        if matches!(cf, Cf::Index | Cf::Deliveries) {
            // A flush spans every kind of row there is, so it is merged with all of the level below it: with RocksDB's own
            // 256 MiB, and files of 64, that was a backlog of ten million rows, again and again. A small level takes the
            // flush, and its small files go on to where they belong.
            options.set_max_bytes_for_level_base(SMALL_ROWS_LEVEL_BYTES);
            options.set_target_file_size_base(SMALL_ROWS_FILE_BYTES);
            options.set_target_file_size_multiplier(SMALL_ROWS_FILE_GROWTH);
        }
        if cf == Cf::Index {
            // The dedupe keys of every batch, which are mostly not there, are looked for in it: without a filter that is a
            // walk down the memtable for each.
            options.set_memtable_prefix_bloom_ratio(MEMTABLE_FILTER_RATIO);
            options.set_memtable_whole_key_filtering(true);
        }
        if cf == Cf::Deliveries {
            // It is scanned where rows were just deleted, and a scan steps over a deleted row as over any other. A flush of
            // a queue that keeps up holds little else: it goes down a level at once, where it vanishes.
            // Not for `index`: such a file is read again at every open, and a damaged one would then fail the first writes
            // of a node that could have come up and told of it.
            options.add_compact_on_deletion_collector_factory(
                DELETIONS_WINDOW,
                DELETIONS_IN_WINDOW,
                DELETIONS_OF_FILE,
            );
        }
        options.set_block_based_table_factory(&self.tables(cf, cache));
        options
    }

    fn tables(&self, cf: Cf, cache: &Cache) -> BlockBasedOptions {
        let mut tables = BlockBasedOptions::default();
        tables.set_block_cache(cache);
        let is_read_by_point = matches!(cf, Cf::Index | Cf::Deliveries);
        if is_read_by_point && self.bloom_bits_per_key > 0 {
            // Every commit asks for a batch of dedupe keys that are mostly not there.
            tables.set_bloom_filter(f64::from(self.bloom_bits_per_key), false);
            // The whole key, and no prefix extractor: these families are also scanned in key order.
            tables.set_whole_key_filtering(true);
            // Filters and index blocks count against the one cache instead of growing beside it.
            tables.set_cache_index_and_filter_blocks(true);
        }
        tables
    }
}

/// Bodies are written once, read once or twice and deleted: compaction should move their keys, not them.
fn keep_bodies_in_blobs(options: &mut Options) {
    // Most hooks are delivered and deleted before their file leaves level 0: it is written fast, and what stays is
    // compressed well once it moves down. Envelopes are text, mostly.
    let mut by_level = [DBCompressionType::Zstd; LEVELS];
    by_level[0] = DBCompressionType::Lz4;
    options.set_compression_per_level(&by_level);
    options.set_enable_blob_files(true);
    // Smaller ones are cheaper beside their key.
    options.set_min_blob_size(4_096);
    // A file is freed as a whole: small enough that one old hook does not keep much.
    options.set_blob_file_size(64 * MIB);
    options.set_blob_compression_type(DBCompressionType::Zstd);
    // Without it a blob file lives until the last hook in it is gone.
    options.set_enable_blob_gc(true);
}
