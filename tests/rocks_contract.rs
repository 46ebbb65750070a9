//! The store's contract over real RocksDB, and what only real files can show: torn tails, damage, effective settings.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{
    Direction, DiskRoom, Engine, Kv, KvError, Lane, OpenError, Page, Scan, contract,
};
use ankusa_node::rocks::{Compaction, RocksEngine, RocksOptions, WriteBuffers};
use async_trait::async_trait;
use tempfile::TempDir;

/// A store in a directory of its own.
struct Store {
    engine: RocksEngine,
    dir: TempDir,
}

impl Store {
    fn new() -> Self {
        Self::with(RocksOptions::default())
    }

    fn with(options: RocksOptions) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self { engine: RocksEngine::new(dir.path().join("node/store"), options), dir }
    }

    /// The same files, opened with other options.
    fn reopened_with(self, options: RocksOptions) -> Self {
        let engine = RocksEngine::new(self.engine.path(), options);
        Self { engine, dir: self.dir }
    }

    async fn refused(&self) -> OpenError {
        match self.engine.open().await {
            Ok(_kv) => panic!("the store opened"),
            Err(refused) => refused,
        }
    }

    /// Its files of one kind, oldest first.
    fn files(&self, is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
        let paths = fs::read_dir(self.engine.path()).unwrap().map(|file| file.unwrap().path());
        let mut files: Vec<_> =
            paths.filter(|path| is(path.file_name().unwrap().to_str().unwrap())).collect();
        files.sort();
        files
    }

    fn wal(&self) -> PathBuf {
        self.files(|name| name.ends_with(".log")).pop().unwrap()
    }

    /// All there is, but for what RocksDB writes about itself.
    fn contents(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let files = self.files(|name| !name.starts_with("LOG") && name != "LOCK");
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }
}

#[async_trait]
impl Engine for Store {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        self.engine.open().await
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        self.engine.close(kv).await;
    }

    async fn probe_disk(&self) -> Result<(), KvError> {
        self.engine.probe_disk().await
    }

    async fn room(&self) -> Result<DiskRoom, KvError> {
        self.engine.room().await
    }

    async fn set_reserve(&self, bytes: u64) -> Result<(), KvError> {
        self.engine.set_reserve(bytes).await
    }
}

fn put(key: &str, value: &[u8]) -> Batch {
    let mut batch = Batch::default();
    batch.put(Cf::Hooks, key.as_bytes(), value);
    batch
}

fn all_hooks() -> Scan {
    Scan {
        cf: Cf::Hooks,
        range: Vec::new()..vec![0xff],
        direction: Direction::Forward,
        max_rows: usize::MAX,
        max_bytes: usize::MAX,
    }
}

async fn keys(kv: &dyn Kv) -> Vec<String> {
    let Page { pairs, more } = kv.scan(all_hooks()).await.unwrap();
    assert!(!more);
    pairs.into_iter().map(|(key, _)| String::from_utf8(key).unwrap()).collect()
}

fn flip(path: &Path, at: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[at] ^= 0x10;
    fs::write(path, bytes).unwrap();
}

/// A closed store whose log holds one record for each of these keys.
async fn store_of(keys: &[&str]) -> Store {
    let store = Store::new();
    let kv = store.open().await.unwrap();
    for key in keys {
        kv.apply(put(key, &[b'v'; 100]), Lane::Commit).await.unwrap();
        kv.sync().await.unwrap();
    }
    store.close(kv).await;
    store
}

/// The same, killed: nobody has said that it is closed.
async fn killed_store_of(keys: &[&str]) -> Store {
    let store = Store::new();
    let kv = store.open().await.unwrap();
    for key in keys {
        kv.apply(put(key, &[b'v'; 100]), Lane::Commit).await.unwrap();
        kv.sync().await.unwrap();
    }
    drop(kv);
    store
}

#[tokio::test]
async fn rocksdb_keeps_the_contract() {
    contract::holds_for(Store::new).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rocksdb_keeps_the_contract_on_more_than_one_thread() {
    contract::holds_for(Store::new).await;
}

#[tokio::test]
async fn a_handle_that_is_only_dropped_keeps_what_was_synced() {
    let store = Store::new();
    for round in 0..5 {
        let kv = store.open().await.unwrap();
        assert_eq!(keys(&*kv).await.len(), round);
        kv.apply(put(&round.to_string(), b"v"), Lane::Commit).await.unwrap();
        kv.sync().await.unwrap();
        drop(kv);
    }
}

#[tokio::test]
async fn a_close_waits_for_the_calls_that_nobody_waits_for_any_more() {
    let store = Store::new();
    let kv = store.open().await.unwrap();
    let mut batch = Batch::default();
    for n in 0_u32..50_000 {
        batch.put(Cf::Hooks, &n.to_be_bytes(), b"v");
    }
    kv.apply(batch, Lane::Commit).await.unwrap();
    store.close(kv).await;
    for _ in 0..10 {
        let kv = store.open().await.expect("no earlier call holds the files");
        let _ = tokio::time::timeout(Duration::ZERO, kv.scan(all_hooks())).await;
        let _ =
            tokio::time::timeout(Duration::ZERO, kv.apply(put("a", b"v"), Lane::Background)).await;
        let _ = tokio::time::timeout(Duration::ZERO, kv.sync()).await;
        store.close(kv).await;
    }
}

#[tokio::test]
async fn a_torn_last_write_is_dropped_and_nothing_before_it() {
    for torn_bytes in [1, 60, 120] {
        let store = killed_store_of(&["a", "b", "c"]).await;
        let wal = fs::OpenOptions::new().write(true).open(store.wal()).unwrap();
        wal.set_len(wal.metadata().unwrap().len() - torn_bytes).unwrap();
        let kv = store.open().await.unwrap();
        assert_eq!(keys(&*kv).await, ["a", "b"], "{torn_bytes} bytes are missing");
        kv.apply(put("d", b"v"), Lane::Commit).await.unwrap();
        store.close(kv).await;
        assert_eq!(keys(&*store.open().await.unwrap()).await, ["a", "b", "d"]);
    }
}

#[tokio::test]
async fn damage_before_the_tail_refuses_the_open_and_touches_nothing() {
    let store = store_of(&["a", "b", "c"]).await;
    flip(&store.wal(), 50);
    let before = store.contents();
    for _ in 0..2 {
        let refused = store.refused().await;
        assert_eq!(
            (&*refused.path, refused.class),
            (store.engine.path(), FailureClass::Corruption)
        );
        let text = refused.to_string();
        assert!(text.contains(store.engine.path().to_str().unwrap()), "{text}");
        assert!(store.contents() == before);
    }
    flip(&store.wal(), 50);
    assert_eq!(keys(&*store.open().await.unwrap()).await, ["a", "b", "c"]);
}

#[tokio::test]
async fn rows_without_a_database_are_not_an_empty_store() {
    let store = store_of(&["a"]).await;
    let current = store.engine.path().join("CURRENT");
    let aside = store.dir.path().join("CURRENT");
    fs::rename(&current, &aside).unwrap();
    let before = store.contents();
    let refused = store.refused().await;
    assert_eq!(refused.class, FailureClass::Corruption);
    assert!(refused.detail.starts_with("CURRENT is missing, yet 0000"), "{refused}");
    assert!(store.contents() == before);
    fs::rename(&aside, &current).unwrap();
    assert_eq!(keys(&*store.open().await.unwrap()).await, ["a"]);
}

#[tokio::test]
async fn a_first_boot_that_died_before_the_database_was_named_is_made_again() {
    let store = store_of(&[]).await;
    for made_later in ["CURRENT", "SEAL"] {
        fs::remove_file(store.engine.path().join(made_later)).unwrap();
    }
    fs::remove_file(store.wal()).unwrap();
    let kv = store.open().await.unwrap();
    assert_eq!(keys(&*kv).await, Vec::<String>::new());
}

#[tokio::test]
async fn damage_in_a_table_is_an_error_and_never_a_shorter_page() {
    let store = store_of(&["a", "b", "c"]).await;
    // Recovery writes the log out as tables.
    let kv = store.open().await.unwrap();
    store.close(kv).await;
    let table = store.files(|name| name.ends_with(".sst")).pop().unwrap();
    flip(&table, 10);
    let kv = store.open().await.unwrap();
    let class = |error: KvError| (error.class, error.op);
    assert_eq!(kv.scan(all_hooks()).await.map_err(class), Err((FailureClass::Corruption, "scan")));
    let reverse = Scan { direction: Direction::Reverse, ..all_hooks() };
    assert_eq!(kv.scan(reverse).await.map_err(class), Err((FailureClass::Corruption, "scan")));
    assert_eq!(kv.get(Cf::Hooks, b"a").map_err(class), Err((FailureClass::Corruption, "get")));
    let asked = ["a", "b", "c", "d", "e"].map(|key| key.as_bytes().to_vec()).to_vec();
    let found = kv.multi_get(Cf::Hooks, asked).await;
    assert_eq!(found.map_err(class), Err((FailureClass::Corruption, "multi_get")));
}

#[tokio::test]
async fn a_store_that_cannot_be_made_says_where_and_why() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let engine = RocksEngine::new(file.join("store"), RocksOptions::default());
    let Err(refused) = engine.open().await else { panic!("the store opened") };
    let text =
        format!("cannot open the store at {0}/store: {0} is not a directory", file.display());
    assert_eq!((refused.class, refused.to_string()), (FailureClass::IoError, text));
    let error = engine.probe_disk().await.unwrap_err();
    assert_eq!((error.class, error.op), (FailureClass::IoError, "probe"));
}

#[tokio::test]
async fn the_statistics_see_the_log_grow() {
    let store = Store::new();
    let kv = store.open().await.unwrap();
    let before = kv.stats().await.unwrap();
    kv.apply(put("a", &[0; 100_000]), Lane::Commit).await.unwrap();
    let after = kv.stats().await.unwrap();
    assert!(after.wal_bytes >= before.wal_bytes + 100_000, "{before:?} then {after:?}");
    assert_eq!(after.disk_bytes - before.disk_bytes, after.wal_bytes - before.wal_bytes);
}

/// The settings RocksDB says it runs with: section, then option.
fn effective(store: &Store) -> BTreeMap<String, BTreeMap<String, String>> {
    let text = fs::read_to_string(store.files(|name| name.starts_with("OPTIONS")).pop().unwrap());
    let mut sections = BTreeMap::<_, BTreeMap<_, _>>::new();
    let mut section = String::new();
    for line in text.unwrap().lines() {
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']').to_owned();
        } else if let Some((option, value)) = line.split_once('=') {
            let options = sections.entry(section.clone()).or_default();
            options.insert(option.trim().to_owned(), value.to_owned());
        }
    }
    sections
}

fn check(
    sections: &BTreeMap<String, BTreeMap<String, String>>,
    section: &str,
    wanted: &[(&str, &str)],
) {
    let options = &sections[section];
    let found: Vec<_> =
        wanted.iter().map(|(option, _)| (*option, options[*option].as_str())).collect();
    assert_eq!(found, wanted, "{section}");
}

const FIXED: &[(&str, &str)] = &[
    ("paranoid_checks", "true"),
    ("wal_recovery_mode", "kTolerateCorruptedTailRecords"),
    ("max_total_wal_size", "536870912"),
    ("db_write_buffer_size", "268435456"),
    ("keep_log_file_num", "5"),
    ("max_log_file_size", "16777216"),
    // Never to be set: the promise rests on it, or it went wrong for others.
    ("enable_pipelined_write", "false"),
    ("unordered_write", "false"),
    ("two_write_queues", "false"),
    ("manual_wal_flush", "false"),
    ("wal_bytes_per_sync", "0"),
    ("recycle_log_file_num", "0"),
    ("avoid_flush_during_recovery", "false"),
    ("best_efforts_recovery", "false"),
    ("track_and_verify_wals_in_manifest", "false"),
    ("wal_compression", "kNoCompression"),
    ("use_fsync", "false"),
    ("allow_mmap_writes", "false"),
];

fn family(cf: Cf) -> String {
    format!("CFOptions \"{}\"", cf.name())
}

fn tables(cf: Cf) -> String {
    format!("TableOptions/BlockBasedTable \"{}\"", cf.name())
}

#[tokio::test]
async fn the_effective_settings_are_the_documented_ones() {
    let store = store_of(&[]).await;
    let found = effective(&store);
    check(&found, "DBOptions", FIXED);
    check(&found, "DBOptions", &[("max_background_jobs", "4"), ("max_open_files", "1024")]);
    for cf in Cf::ALL {
        let write_buffer = match cf {
            Cf::Hooks => "67108864",
            Cf::Index | Cf::Deliveries => "16777216",
            Cf::Default | Cf::Archive | Cf::Quarantine | Cf::Audit | Cf::Tenants | Cf::Counters => {
                "4194304"
            }
        };
        let merge = if cf == Cf::Counters { "ErlangMergeOperator" } else { "nullptr" };
        let same: [(&str, &str); 5] = [
            ("write_buffer_size", write_buffer),
            ("merge_operator", merge),
            ("prefix_extractor", "nullptr"),
            ("comparator", "leveldb.BytewiseComparator"),
            ("compaction_style", "kCompactionStyleLevel"),
        ];
        check(&found, &family(cf), &same);
        let in_blobs = matches!(cf, Cf::Hooks | Cf::Quarantine);
        let bodies: &[_] = if in_blobs {
            &[
                ("compression_per_level", "kLZ4Compression:kZSTD:kZSTD:kZSTD:kZSTD:kZSTD:kZSTD"),
                ("enable_blob_files", "true"),
                ("min_blob_size", "4096"),
                ("blob_file_size", "67108864"),
                ("blob_compression_type", "kZSTD"),
                ("enable_blob_garbage_collection", "true"),
            ]
        } else {
            &[("compression", "kNoCompression"), ("enable_blob_files", "false")]
        };
        check(&found, &family(cf), bodies);
        let filtered = matches!(cf, Cf::Index | Cf::Deliveries);
        let [level, file, growth] =
            if filtered { ["16777216", "4194304", "2"] } else { ["268435456", "67108864", "1"] };
        let levels = [
            ("max_bytes_for_level_base", level),
            ("target_file_size_base", file),
            ("target_file_size_multiplier", growth),
        ];
        check(&found, &family(cf), &levels);
        let [ratio, whole_keys] =
            if cf == Cf::Index { ["0.020000", "true"] } else { ["0.000000", "false"] };
        let memtable = [
            ("memtable_prefix_bloom_size_ratio", ratio),
            ("memtable_whole_key_filtering", whole_keys),
        ];
        check(&found, &family(cf), &memtable);
        let filter: &[_] = if filtered {
            &[
                ("filter_policy", "bloomfilter"),
                ("whole_key_filtering", "true"),
                ("cache_index_and_filter_blocks", "true"),
                ("no_block_cache", "false"),
            ]
        } else {
            &[
                ("filter_policy", "nullptr"),
                ("cache_index_and_filter_blocks", "false"),
                ("no_block_cache", "false"),
            ]
        };
        check(&found, &tables(cf), filter);
    }
}

/// Of many tables some are open. What has not been opened or read yet is no answer.
#[tokio::test]
async fn a_key_that_is_not_there_is_not_there_whichever_tables_are_open() {
    const FAMILIES: [Cf; 7] = [
        Cf::Hooks,
        Cf::Index,
        Cf::Deliveries,
        Cf::Default,
        Cf::Archive,
        Cf::Quarantine,
        Cf::Tenants,
    ];
    let store = Store::with(RocksOptions { max_open_files: 20, ..RocksOptions::default() });
    for round in [b'1', b'2', b'3'] {
        let kv = store.open().await.unwrap();
        let mut rows = Batch::default();
        for cf in FAMILIES {
            [b'a', b'z'].iter().for_each(|key| rows.put(cf, &[*key, round], &[round; 44]));
        }
        kv.apply(rows, Lane::Commit).await.unwrap();
        store.close(kv).await;
    }
    let kv = store.open().await.unwrap();
    assert!(store.files(|name| name.ends_with(".sst")).len() > 16);
    for cf in FAMILIES {
        for absent in ["b1", "b2", "y3"] {
            let found = kv.multi_get(cf, vec![absent.into()]).await.unwrap();
            assert_eq!(found, [None], "{cf:?} {absent}");
        }
        let keys = ["a1", "b1", "z2", "b2", "b3"].map(|key| key.as_bytes().to_vec());
        let found = kv.multi_get(cf, keys.to_vec()).await.unwrap();
        let there = [Some(vec![b'1'; 44]), None, Some(vec![b'2'; 44]), None, None];
        assert_eq!(found, there, "{cf:?}");
    }
    store.close(kv).await;
}

/// Rows that were never in memory, and an empty one, between keys that are not there.
#[tokio::test]
async fn what_memory_does_not_know_is_read() {
    let store = Store::new();
    let kv = store.open().await.unwrap();
    let mut rows = Batch::default();
    rows.put(Cf::Index, b"a", b"1");
    rows.put(Cf::Index, b"c", b"");
    rows.put(Cf::Index, b"e", b"3");
    kv.apply(rows, Lane::Commit).await.unwrap();
    store.close(kv).await;

    let kv = store.open().await.unwrap();
    for _ in 0..2 {
        let keys = ["a", "b", "c", "d", "e", "f"].map(|key| key.as_bytes().to_vec());
        let found = kv.multi_get(Cf::Index, keys.to_vec()).await.unwrap();
        let there = [Some(b"1".to_vec()), None, Some(Vec::new()), None, Some(b"3".to_vec()), None];
        assert_eq!(found, there);
    }
    store.close(kv).await;
}

/// A thousand rows of this round, put and perhaps deleted again, between those of the others.
fn thousand(round: u32, deleted: bool) -> Batch {
    let mut rows = Batch::default();
    let keys: Vec<_> =
        (0..1_000_u32).map(|row| [row.to_be_bytes(), round.to_be_bytes()].concat()).collect();
    keys.iter().for_each(|key| rows.put(Cf::Deliveries, key, &[7; 100]));
    keys.iter().filter(|_| deleted).for_each(|key| rows.delete(Cf::Deliveries, key));
    rows
}

/// RocksDB does not write this setting down, so what it does is looked at: above rows that stay, no flush that is full of
/// deletions stays, be it the only one.
#[tokio::test]
async fn a_table_of_deliveries_that_only_deletes_does_not_stay() {
    let small = WriteBuffers::of_each(|_| 1 << 20);
    let store = Store::with(RocksOptions { write_buffers: small, ..RocksOptions::default() });
    let kv = store.open().await.unwrap();
    for round in 0..60 {
        kv.apply(thousand(round, false), Lane::Commit).await.unwrap();
    }
    store.close(kv).await;
    let kv = store.open().await.unwrap();
    let tables = || store.files(|name| name.ends_with(".sst")).len();
    let below = tables();
    for round in 60..150 {
        kv.apply(thousand(round, true), Lane::Commit).await.unwrap();
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    while tables() > below {
        assert!(tokio::time::Instant::now() < deadline, "{} of {below}", tables());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    store.close(kv).await;
}

#[tokio::test]
async fn what_may_be_tuned_takes_effect_at_the_next_open_and_the_rest_stays() {
    let tuned = RocksOptions {
        bloom_bits_per_key: 0,
        max_open_files: 64,
        max_background_jobs: 2,
        write_buffers: WriteBuffers::of_each(|cf| (cf.index() + 1) << 20),
        compaction: Compaction::Universal,
        rate_limit_bytes_per_s: 3 << 20,
        block_cache_bytes: 7 << 20,
        ..RocksOptions::default()
    };
    let store = store_of(&["a"]).await.reopened_with(tuned);
    let kv = store.open().await.unwrap();
    assert_eq!(keys(&*kv).await, ["a"]);
    store.close(kv).await;
    let found = effective(&store);
    check(&found, "DBOptions", FIXED);
    check(&found, "DBOptions", &[("max_background_jobs", "2"), ("max_open_files", "64")]);
    let plain = [("filter_policy", "nullptr"), ("cache_index_and_filter_blocks", "false")];
    for cf in Cf::ALL {
        let write_buffer = ((cf.index() + 1) << 20).to_string();
        let changed = [
            ("write_buffer_size", write_buffer.as_str()),
            ("compaction_style", "kCompactionStyleUniversal"),
        ];
        check(&found, &family(cf), &changed);
        check(&found, &tables(cf), &plain);
    }
    // The options file knows neither of these; RocksDB's own log does.
    let said = fs::read_to_string(store.files(|name| name == "LOG").pop().unwrap()).unwrap();
    assert!(!said.contains("Options.rate_limiter: (nil)"), "no rate limiter");
    let caches: Vec<_> = said.lines().filter_map(|line| line.split_once("capacity : ")).collect();
    assert!(
        !caches.is_empty() && caches.iter().all(|(_, bytes)| *bytes == "7340032"),
        "{caches:?}"
    );
}

#[tokio::test]
async fn what_the_database_says_of_itself_is_in_two_files_however_often_it_is_opened() {
    let mut store = store_of(&["a"]).await;
    for _ in 0..4 {
        store = store.reopened_with(RocksOptions::default());
        let kv = store.open().await.unwrap();
        store.close(kv).await;
    }
    let logs = store.files(|name| name.starts_with("LOG"));
    let names: Vec<_> =
        logs.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["LOG", "LOG.old"]);
    for log in &logs {
        let said = fs::read_to_string(log).unwrap();
        assert!(said.contains("RocksDB version") && said.contains("Shutdown complete"), "{said}");
    }
}
