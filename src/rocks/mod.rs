//! The local store's adapter: one RocksDB database, and the only place that names it.
//!
//! Where blocking work runs is decided here and nowhere else. The commit path has two threads of its own, one that
//! applies and one that syncs, so group N+1 is applied while group N is synced; everything else that may touch the disk
//! goes through the blocking pool; point reads run where they are asked for.

mod error;
mod guard;
mod info_log;
mod ingest;
mod kv;
mod merge;
mod open;
mod options;
mod probe;
mod room;
mod scrub;
mod stats;
mod threads;

pub use ingest::ingest;
pub use kv::RocksKv;
pub use open::RocksEngine;
pub use options::{Compaction, MEMTABLES_MAX_BYTES, RocksOptions, WriteBuffers};
pub use probe::create_synced;
