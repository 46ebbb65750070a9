//! Rows that were written into table files in order, taken into a database that nobody has open: a hundred million of them
//! in minutes. For what has to be large before it is measured.

use std::path::{Path, PathBuf};

use ankusa_actors::model::cf::Cf;
use rocksdb::{DB, IngestExternalFileOptions};

use super::guard;
use super::options::RocksOptions;

/// Moves files, written with [`RocksOptions::of_family`] of the same options, into the database in `path`.
///
/// # Errors
/// The database cannot be opened, or the files are not what they are said to be.
pub fn ingest(
    path: &Path,
    options: &RocksOptions,
    cf: Cf,
    files: Vec<PathBuf>,
) -> Result<(), rocksdb::Error> {
    // It says what the database was closed with, and that is about to change.
    guard::unseal(path);
    let db = DB::open_cf_descriptors(&options.database(), path, options.families())?;
    let mut moving = IngestExternalFileOptions::default();
    moving.set_move_files(true);
    match db.cf_handle(cf.name()) {
        Some(family) => db.ingest_external_file_cf_opts(family, &moving, files),
        None => Ok(()),
    }
}
