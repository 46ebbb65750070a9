//! Sizes and states of an open database, for the gauges.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use ankusa_actors::model::cf::Cf;
use ankusa_actors::ports::{KvError, StoreStats};
use rocksdb::DB;

use super::error::kv_error;
use super::kv::family;

pub(super) fn read(db: &DB) -> Result<StoreStats, KvError> {
    let (mut tables_bytes, mut pending_compaction_bytes) = (0_u64, 0_u64);
    for cf in Cf::ALL {
        tables_bytes += property(db, cf, "rocksdb.total-sst-files-size")?;
        tables_bytes += property(db, cf, "rocksdb.total-blob-file-size")?;
        pending_compaction_bytes += property(db, cf, "rocksdb.estimate-pending-compaction-bytes")?;
    }
    let wal_bytes = wal_bytes(db.path());
    // These are the database's, whichever family is asked.
    let of_all = |name| property(db, Cf::Default, name);
    Ok(StoreStats {
        hooks: property(db, Cf::Hooks, "rocksdb.estimate-num-keys")?,
        deliveries: property(db, Cf::Deliveries, "rocksdb.estimate-num-keys")?,
        disk_bytes: tables_bytes + wal_bytes,
        wal_bytes,
        write_stopped: of_all("rocksdb.is-write-stopped")? > 0,
        delayed_write_bytes_per_s: of_all("rocksdb.actual-delayed-write-rate")?,
        background_errors: of_all("rocksdb.background-errors")?,
        wal_oldest_age_ms: wal_oldest_age_ms(db.path(), SystemTime::now()),
        pending_compaction_bytes,
        running_compactions: of_all("rocksdb.num-running-compactions")?,
        running_flushes: of_all("rocksdb.num-running-flushes")?,
    })
}

/// 0 for a property RocksDB does not know, as of a family without blobs.
fn property(db: &DB, cf: Cf, name: &str) -> Result<u64, KvError> {
    let value = db.property_int_value_cf(family(db, cf, "stats")?, name);
    Ok(value.map_err(|error| kv_error("stats", error))?.unwrap_or(0))
}

/// Whether this is a write-ahead log, by its name.
pub(super) fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "log")
}

fn logs(store: &Path) -> impl Iterator<Item = fs::Metadata> {
    let files = fs::read_dir(store).into_iter().flatten().flatten();
    // A file that goes away while we look counts as gone.
    files.filter(|file| is_log(&file.path())).filter_map(|file| file.metadata().ok())
}

/// Bytes of the write-ahead log under `store`.
pub(super) fn wal_bytes(store: &Path) -> u64 {
    logs(store).map(|log| log.len()).sum()
}

/// How long before `now` the oldest log was begun. Where the file system does not remember that, when it was last
/// written to, which is no earlier.
fn wal_oldest_age_ms(store: &Path, now: SystemTime) -> u64 {
    let begun = logs(store).filter_map(|log| log.created().or_else(|_| log.modified()).ok()).min();
    // A clock that was set back makes no age.
    let age = begun.map_or(Duration::ZERO, |at| now.duration_since(at).unwrap_or_default());
    u64::try_from(age.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_log_has_an_age_and_no_other_file_has() {
        let dir = tempfile::tempdir().unwrap();
        let in_an_hour = SystemTime::now() + Duration::from_secs(3_600);
        fs::write(dir.path().join("LOG"), b"").unwrap();
        assert_eq!(wal_oldest_age_ms(dir.path(), in_an_hour), 0);
        fs::write(dir.path().join("000004.log"), b"12345").unwrap();
        fs::write(dir.path().join("000009.log"), b"678").unwrap();
        let age_ms = wal_oldest_age_ms(dir.path(), in_an_hour);
        // The file system's clock is coarser than ours.
        assert!((3_590_000..=3_610_000).contains(&age_ms), "{age_ms}");
        assert_eq!(wal_oldest_age_ms(dir.path(), SystemTime::UNIX_EPOCH), 0);
        assert_eq!(wal_bytes(dir.path()), 8);
    }
}
