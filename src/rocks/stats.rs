//! Sizes and states of an open database, for the gauges.

use std::fs;
use std::path::Path;

use ankusa_actors::model::cf::Cf;
use ankusa_actors::ports::{KvError, StoreStats};
use rocksdb::DB;

use super::error::kv_error;
use super::kv::family;

pub(super) fn read(db: &DB) -> Result<StoreStats, KvError> {
    let mut tables_bytes = 0_u64;
    for cf in Cf::ALL {
        tables_bytes += property(db, cf, "rocksdb.total-sst-files-size")?;
        tables_bytes += property(db, cf, "rocksdb.total-blob-file-size")?;
    }
    let wal_bytes = wal_bytes(db.path());
    Ok(StoreStats {
        hooks: property(db, Cf::Hooks, "rocksdb.estimate-num-keys")?,
        deliveries: property(db, Cf::Deliveries, "rocksdb.estimate-num-keys")?,
        disk_bytes: tables_bytes + wal_bytes,
        wal_bytes,
        write_stopped: property(db, Cf::Default, "rocksdb.is-write-stopped")? > 0,
        delayed_write_bytes_per_s: property(db, Cf::Default, "rocksdb.actual-delayed-write-rate")?,
        background_errors: property(db, Cf::Default, "rocksdb.background-errors")?,
    })
}

/// 0 for a property RocksDB does not know, as of a family without blobs.
fn property(db: &DB, cf: Cf, name: &str) -> Result<u64, KvError> {
    let value = db.property_int_value_cf(family(db, cf, "stats")?, name);
    Ok(value.map_err(|error| kv_error("stats", error))?.unwrap_or(0))
}

/// Bytes of the write-ahead log under `store`. A file that goes away while we look counts as gone.
pub(super) fn wal_bytes(store: &Path) -> u64 {
    let Ok(files) = fs::read_dir(store) else { return 0 };
    let is_log = |path: &Path| path.extension().is_some_and(|extension| extension == "log");
    files
        .flatten()
        .filter(|file| is_log(&file.path()))
        .filter_map(|file| file.metadata().ok())
        .map(|metadata| metadata.len())
        .sum()
}
