//! A store's rows, read from its files: without the node, without its operators, and without writing a byte.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ankusa_drills_check::{Dump, Family, Row, merge};
use rocksdb::{ColumnFamilyDescriptor, DB, DBRecoveryMode, IteratorMode, MergeOperands, Options};
use thiserror::Error;

/// Why a store cannot be read.
#[derive(Debug, Error)]
pub enum CannotRead {
    /// What the node would be told too.
    #[error("the database refuses to open: {0}")]
    Refused(rocksdb::Error),
    #[error("the database breaks while it is read: {0}")]
    Broken(rocksdb::Error),
    #[error("{family} has the key {key} of {bytes} bytes, which is no number")]
    NoNumber { family: &'static str, key: &'static str, bytes: usize },
}

/// Reads stores. What RocksDB wants to log goes to a directory of its own.
#[derive(Clone, Debug)]
pub struct Reader {
    logs: PathBuf,
}

impl Reader {
    /// A reader whose RocksDB logs go to `logs`, which must exist.
    #[must_use]
    pub fn new(logs: &Path) -> Self {
        Self { logs: logs.to_owned() }
    }

    /// Every row of the store at `path`. A directory without a `CURRENT` file holds no database yet: a store in which
    /// nothing was ever written.
    ///
    /// # Errors
    /// When the database refuses to open or breaks while it is read.
    pub fn dump(&self, path: &Path) -> Result<Dump, CannotRead> {
        // The documented mode: what it refuses, a node refuses, or has to show that nothing acked lies behind it.
        self.read(path, DBRecoveryMode::TolerateCorruptedTailRecords)
    }

    /// Every row of a store whose log is damaged, up to the damage: what is left when nothing acked lies behind it.
    ///
    /// # Errors
    /// As [`Self::dump`].
    pub fn dump_to_damage(&self, path: &Path) -> Result<Dump, CannotRead> {
        self.read(path, DBRecoveryMode::PointInTime)
    }

    fn read(&self, path: &Path, mode: DBRecoveryMode) -> Result<Dump, CannotRead> {
        if !path.join("CURRENT").exists() {
            return Ok(Dump::default());
        }
        let options = self.options(mode);
        let there: BTreeSet<String> =
            DB::list_cf(&options, path).map_err(CannotRead::Refused)?.into_iter().collect();
        let families = there
            .iter()
            .map(|name| ColumnFamilyDescriptor::new(name, self.family_options(name, mode)));
        let database = DB::open_cf_descriptors_read_only(&options, path, families, false)
            .map_err(CannotRead::Refused)?;
        let mut rows = Vec::new();
        for family in Family::ALL {
            // A cut may come between the creation of two families.
            let Some(handle) = database.cf_handle(family.name()) else { continue };
            for row in database.iterator_cf(handle, IteratorMode::Start) {
                let (key, value) = row.map_err(CannotRead::Broken)?;
                rows.push(Row { family, key: key.into_vec(), value: value.into_vec() });
            }
        }
        let synced_through = number(&rows, "m:synced_through")?.unwrap_or(0);
        let next_seq = number(&rows, "m:next_seq")?.unwrap_or(1);
        Ok(Dump { rows, synced_through, next_seq })
    }

    fn options(&self, mode: DBRecoveryMode) -> Options {
        let mut options = Options::default();
        options.set_paranoid_checks(true);
        options.set_wal_recovery_mode(mode);
        options.set_db_log_dir(&self.logs);
        options.set_keep_log_file_num(1);
        options
    }

    fn family_options(&self, name: &str, mode: DBRecoveryMode) -> Options {
        let mut options = self.options(mode);
        if name == Family::Counters.name() {
            // No partial merges: the whole chain is folded at once, when it is read.
            options.set_merge_operator(merge::OPERATOR_NAME, fold, |_, _, _| None);
        }
        options
    }
}

fn fold(_key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    merge::fold(existing, operands.iter())
}

/// The number under a key of the default family.
fn number(rows: &[Row], key: &'static str) -> Result<Option<u64>, CannotRead> {
    let Some(row) =
        rows.iter().find(|row| row.family == Family::Default && row.key == key.as_bytes())
    else {
        return Ok(None);
    };
    match row.value.as_slice().try_into() {
        Ok(bytes) => Ok(Some(u64::from_be_bytes(bytes))),
        Err(_) => Err(CannotRead::NoNumber { family: "default", key, bytes: row.value.len() }),
    }
}
