//! The local store, as seen from inside: ordered bytes, atomic batches, and an explicit line between applied and durable.

use std::ops::Range;
use std::path::PathBuf;

use async_trait::async_trait;

use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;

/// A store call that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("store {op} failed ({class}): {detail}", class = class.as_str())]
pub struct KvError {
    pub class: FailureClass,
    /// What was being done: `apply`, `sync`, `get`, `scan` ...
    pub op: &'static str,
    pub detail: String,
}

/// Who is asking: the commit path has a thread of its own, everybody else shares the blocking pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Commit,
    Background,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Forward,
    Reverse,
}

/// A bounded look at one family. A range that ends before it starts is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub cf: Cf,
    /// Start inclusive, end exclusive, whatever the direction.
    pub range: Range<Vec<u8>>,
    pub direction: Direction,
    /// At most this many rows; with 0 none, and `more` says whether there are any.
    pub max_rows: usize,
    /// Stops after the row whose key and value bytes, added to those before it, reach this. The first row is answered
    /// whatever its size.
    pub max_bytes: usize,
}

pub type Pair = (Vec<u8>, Vec<u8>);

/// What a scan saw. An error on the way is an error, never a shorter page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub pairs: Vec<Pair>,
    /// Whether the range holds rows past the last one answered: a bound stopped the scan, not the end of the range.
    pub more: bool,
}

/// Damage that a scrub met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damaged {
    /// The file, where the database says which.
    pub file: Option<String>,
    pub detail: String,
}

/// What a scrub read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub rows: u64,
    /// Of keys and values.
    pub bytes: u64,
    /// Where to go on, behind what was read and behind the damage; `None` at the end of the family.
    pub next: Option<Vec<u8>>,
    pub damage: Option<Damaged>,
}

/// Sizes for the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Estimated rows of the hooks family.
    pub hooks: u64,
    /// Estimated rows of the deliveries family.
    pub deliveries: u64,
    /// Everything the database keeps on the disk: tables, blobs and the write-ahead log.
    pub disk_bytes: u64,
    /// The write-ahead log's part of it.
    pub wal_bytes: u64,
    /// Whether the database is holding every write back until it has caught up.
    pub write_stopped: bool,
    /// The rate it slows writes down to, in bytes a second; 0 while it does not.
    pub delayed_write_bytes_per_s: u64,
    /// Failed flushes and compactions since the open.
    pub background_errors: u64,
    /// How long ago the oldest write-ahead log still kept was begun, in milliseconds; 0 when there is none. One cold
    /// family can pin it.
    pub wal_oldest_age_ms: u64,
    /// What compaction has to rewrite to catch up, estimated, in bytes.
    pub pending_compaction_bytes: u64,
    pub running_compactions: u64,
    pub running_flushes: u64,
}

/// How much room the disk of the database has, and what a recovery would have to write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskRoom {
    /// What this process may still write, the reserve not counted.
    pub free_bytes: u64,
    pub total_bytes: u64,
    /// The size of the reserve file; 0 when there is none.
    pub reserve_bytes: u64,
    /// The write-ahead log on the disk: the next open may have to write all of it again, into tables.
    pub wal_bytes: u64,
    /// One memtable of the largest family, full.
    pub memtable_bytes: u64,
}

/// The store as it was at one moment, whatever has been written since. Its reads wait for the disk where they are made.
pub trait Moment {
    /// As [`Kv::scan`].
    fn scan(&self, scan: Scan) -> Result<Page, KvError>;

    /// As [`Kv::multi_get`].
    fn multi_get(&self, cf: Cf, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, KvError>;
}

/// What is done with a [`Moment`].
pub type Look = Box<dyn FnOnce(&dyn Moment) -> Result<(), KvError> + Send>;

/// An open database. Dropping it closes it, sooner or later; [`Engine::close`] says when it is done.
#[async_trait]
pub trait Kv: Send + Sync + 'static {
    /// Applies `batch` whole: readers see it, a power cut may still lose it. Batches of [`Lane::Commit`] land
    /// in the order they were handed over, and a batch that was handed over lands although its caller is gone.
    ///
    /// # Errors
    /// The batch may or may not have reached the log, and may show up after the next open: whoever cares must fence.
    async fn apply(&self, batch: Batch, lane: Lane) -> Result<(), KvError>;

    /// Makes everything applied before this call survive a power cut: one fsync of the write-ahead log.
    ///
    /// # Errors
    /// Nothing can be said of any batch since the last sync that returned, not even after a later one returns: only an
    /// open settles it.
    async fn sync(&self) -> Result<(), KvError>;

    /// A point read. Cheap enough to run inline.
    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError>;

    /// Point reads of one family, answered in the order asked.
    async fn multi_get(&self, cf: Cf, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, KvError>;

    async fn scan(&self, scan: Scan) -> Result<Page, KvError>;

    /// Runs `look`, where it may wait for the disk, over all families as they are at one moment: of each batch all or
    /// nothing. Rows that are deleted meanwhile keep their room until it is done, and a close waits for its next read,
    /// which fails.
    ///
    /// # Errors
    /// Those of `look`; or it was not run to its end.
    async fn at_one_moment(&self, look: Look) -> Result<(), KvError>;

    /// [`at_one_moment`](Kv::at_one_moment) for a caller that knows that nobody writes until it is done: nothing is held,
    /// so nothing has to be let go of afterwards.
    ///
    /// # Errors
    /// Those of `at_one_moment`.
    async fn undisturbed(&self, look: Look) -> Result<(), KvError> {
        self.at_one_moment(look).await
    }

    async fn stats(&self) -> Result<StoreStats, KvError>;

    /// Reads the rows of `cf` from `from` on and drops them again, each block checked and none kept in memory; stops
    /// after the row that makes it `max_bytes`, or at damage.
    ///
    /// # Errors
    /// It cannot be read at all. Damage is none of these.
    async fn verify(&self, cf: Cf, from: Vec<u8>, max_bytes: u64) -> Result<Verified, KvError>;
}

/// A database that did not open. The directory is left as it was.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot open the store at {path}: {detail}", path = path.display())]
pub struct OpenError {
    pub path: PathBuf,
    pub class: FailureClass,
    pub detail: String,
}

/// What an open took off the end of the write-ahead log: a power cut had left it in pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreCut {
    /// The file whose end it was; later files are gone with it.
    pub file: String,
    /// What the file ends at now.
    pub at_byte: u64,
    /// What was cut off, later files included.
    pub bytes: u64,
    /// Whole records among it. None was known to be on the disk.
    pub records: u64,
    pub why: String,
    /// A folder with everything as it was.
    pub kept_in: PathBuf,
}

/// What was seen of a store when it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenReport {
    /// It had been closed with all of it on the disk, and nobody has touched it since.
    pub closed_cleanly: bool,
    pub cut: Option<StoreCut>,
}

/// Opens and closes the database. There is one open at a time.
#[async_trait]
pub trait Engine: Send + Sync + 'static {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError>;

    /// Returns once the files are closed and another open can succeed.
    async fn close(&self, kv: Box<dyn Kv>);

    /// What was seen of the store by the last open that succeeded. An engine that does not look has seen nothing.
    fn last_open(&self) -> OpenReport {
        OpenReport::default()
    }

    /// A synced write of a small file beside the database: whether the disk takes writes at all.
    async fn probe_disk(&self) -> Result<(), KvError>;

    /// How much room there is. Works whether the database is open or closed.
    async fn room(&self) -> Result<DiskRoom, KvError>;

    /// Makes the reserve file beside the database, `bytes` long and on the disk; 0 takes it away. One of another size is
    /// made anew.
    ///
    /// # Errors
    /// There is no reserve then.
    async fn set_reserve(&self, bytes: u64) -> Result<(), KvError>;
}
