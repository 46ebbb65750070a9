//! An open database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::{io, path::Path};

use ankusa_actors::model::batch::{Batch, Change};
use ankusa_actors::model::cf::Cf;
use ankusa_actors::ports::{
    Direction, Kv, KvError, Lane, Look, Moment, Page, Scan, StoreStats, Verified,
};
use async_trait::async_trait;
use rocksdb::{
    ColumnFamily, DB, DBPinnableSlice, DBRawIterator, ReadOptions, ReadTier, Snapshot, WriteBatch,
    WriteOptions,
};

use super::error::{kv_error, not_running};
use super::guard::{self, CloseFacts};
use super::threads::Worker;
use super::{scrub, stats};

/// Keys that are looked for in memory where they are asked for, at about a microsecond each: a group of fresh dedupe keys
/// costs no hand-over. More of them, and those that memory does not know, go to the blocking pool, 32 us away.
const INLINE_KEYS_MAX: usize = 128;

/// A row's head in a write batch: its tag, its family, two lengths.
const ROW_HEAD_BYTES: usize = 16;

/// RocksDB behind the store's port. Dropping it closes it, once the last call into it has returned.
pub struct RocksKv {
    commit: Worker<Batch>,
    sync: Worker<()>,
    database: Arc<Database>,
}

impl RocksKv {
    /// Starts the threads of the commit path. `closes` is told what to seal the database with, if all of it is on the
    /// disk, and hung up on once the files are closed.
    pub(super) fn over(db: DB, closes: mpsc::Sender<CloseFacts>) -> io::Result<Self> {
        let database = Arc::new(Database {
            db,
            reading: ReadOptions::default(),
            reading_memory: reading_memory(),
            writing: unsynced(),
            closing: AtomicBool::new(false),
            write_failed: AtomicBool::new(false),
            closes,
        });
        let applies = Arc::clone(&database);
        let syncs = Arc::clone(&database);
        Ok(Self {
            commit: Worker::one_by_one("ankusa-commit", "apply", move |batch| {
                applies.apply(&batch)
            })?,
            sync: Worker::all_at_once("ankusa-sync", "sync", move || syncs.sync())?,
            database,
        })
    }

    pub fn path(&self) -> &Path {
        self.database.db.path()
    }

    async fn multi_get_off_the_runtime(
        &self,
        cf: Cf,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        self.off_the_runtime("multi_get", move |database| {
            database.multi_get(cf, &keys, &database.reading)
        })
        .await
    }

    /// Runs `call` where it may wait for the disk.
    async fn off_the_runtime<T: Send + 'static>(
        &self,
        op: &'static str,
        call: impl FnOnce(&Database) -> Result<T, KvError> + Send + 'static,
    ) -> Result<T, KvError> {
        let database = Arc::clone(&self.database);
        match tokio::task::spawn_blocking(move || call(&database)).await {
            Ok(answer) => answer,
            Err(_) => Err(not_running(op, "the blocking call did not finish")),
        }
    }
}

impl Drop for RocksKv {
    fn drop(&mut self) {
        self.database.closing.store(true, Ordering::Relaxed);
        // Before the threads are joined: a write that waits for a flush is let go by this, and by nothing else.
        self.database.db.cancel_all_background_work(true);
    }
}

#[async_trait]
impl Kv for RocksKv {
    async fn apply(&self, batch: Batch, lane: Lane) -> Result<(), KvError> {
        match lane {
            Lane::Commit => self.commit.ask(batch).await,
            Lane::Background => {
                self.off_the_runtime("apply", move |database| database.apply(&batch)).await
            }
        }
    }

    async fn sync(&self) -> Result<(), KvError> {
        self.sync.ask(()).await
    }

    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.database.get(cf, key)
    }

    async fn multi_get(&self, cf: Cf, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        if keys.len() > INLINE_KEYS_MAX {
            return self.multi_get_off_the_runtime(cf, keys).await;
        }
        let mut rows = self.database.known_in_memory(cf, &keys)?;
        let unknown = keys.into_iter().zip(&rows).filter(|(_, row)| row.is_none());
        let unknown = unknown.map(|(key, _)| key).collect::<Vec<_>>();
        if !unknown.is_empty() {
            let read = self.multi_get_off_the_runtime(cf, unknown).await?;
            for (row, read) in rows.iter_mut().filter(|row| row.is_none()).zip(read) {
                *row = Some(read);
            }
        }
        Ok(rows.into_iter().map(Option::flatten).collect())
    }

    async fn scan(&self, scan: Scan) -> Result<Page, KvError> {
        self.off_the_runtime("scan", move |database| database.scan(scan, ReadOptions::default()))
            .await
    }

    async fn at_one_moment(&self, look: Look) -> Result<(), KvError> {
        self.off_the_runtime("snapshot", move |database| {
            look(&AtMoment { database, snapshot: Some(database.db.snapshot()) })
        })
        .await
    }

    /// When a snapshot is released, RocksDB writes every file anew whose rows it had kept apart. A boot must not: a block
    /// that is damaged would be met by that, and then all writes fail; a read that meets it fails alone.
    async fn undisturbed(&self, look: Look) -> Result<(), KvError> {
        self.off_the_runtime("look", move |database| look(&AtMoment { database, snapshot: None }))
            .await
    }

    async fn stats(&self) -> Result<StoreStats, KvError> {
        self.off_the_runtime("stats", |database| stats::read(&database.db)).await
    }

    async fn verify(&self, cf: Cf, from: Vec<u8>, max_bytes: u64) -> Result<Verified, KvError> {
        self.off_the_runtime("verify", move |database| {
            scrub::read(&database.db, cf, from, max_bytes)
        })
        .await
    }
}

/// What was in the database when the snapshot was taken, which holds for all families at once; without one, what is.
struct AtMoment<'a> {
    database: &'a Database,
    snapshot: Option<Snapshot<'a>>,
}

impl AtMoment<'_> {
    fn reading(&self) -> ReadOptions {
        let mut reading = ReadOptions::default();
        if let Some(snapshot) = &self.snapshot {
            reading.set_snapshot(snapshot);
        }
        // Whoever looks at a moment reads all of it, once: what others read stays in the cache.
        reading.fill_cache(false);
        reading
    }
}

impl Moment for AtMoment<'_> {
    fn scan(&self, scan: Scan) -> Result<Page, KvError> {
        self.database.scan(scan, self.reading())
    }

    fn multi_get(&self, cf: Cf, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        self.database.multi_get(cf, keys, &self.reading())
    }
}

/// What the threads and the blocking calls share. The last of them closes the files.
struct Database {
    db: DB,
    reading: ReadOptions,
    /// Stays away from the disk.
    reading_memory: ReadOptions,
    writing: WriteOptions,
    /// Long reads give up.
    closing: AtomicBool,
    /// From here on nobody knows what is on the disk.
    write_failed: AtomicBool,
    /// After `db`, so that it is dropped after it.
    closes: mpsc::Sender<CloseFacts>,
}

impl Drop for Database {
    /// The threads have ended, and every write that was handed over has been made.
    fn drop(&mut self) {
        if self.write_failed.load(Ordering::Relaxed) {
            return;
        }
        if let Some(facts) = guard::facts_for_closing(&self.db) {
            // Nobody may be waiting.
            let _ = self.closes.send(facts);
        }
    }
}

fn reading_memory() -> ReadOptions {
    let mut options = ReadOptions::default();
    options.set_read_tier(ReadTier::BlockCache);
    options
}

/// Into the log and the memtables, and no further: durability is the sync's.
fn unsynced() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(false);
    // The rows of a batch come in key order, mostly: each is looked for next to the last one, not from the top.
    options.set_memtable_insert_hint_per_batch(true);
    options
}

impl Database {
    fn apply(&self, batch: &Batch) -> Result<(), KvError> {
        let families = self.families("apply")?;
        let bytes = batch.bytes() + batch.len() * ROW_HEAD_BYTES;
        let mut rows = WriteBatch::with_capacity_bytes(bytes);
        for change in batch.changes() {
            match change {
                Change::Put { cf, key, value } => rows.put_cf(families[cf.index()], key, value),
                Change::Delete { cf, key } => rows.delete_cf(families[cf.index()], key),
                Change::Merge { cf, key, operand } => {
                    rows.merge_cf(families[cf.index()], key, operand);
                }
            }
        }
        self.db.write_opt(rows, &self.writing).map_err(|error| self.failed("apply", error))
    }

    fn sync(&self) -> Result<(), KvError> {
        self.db.flush_wal(true).map_err(|error| self.failed("sync", error))
    }

    fn failed(&self, op: &'static str, error: rocksdb::Error) -> KvError {
        self.write_failed.store(true, Ordering::Relaxed);
        kv_error(op, error)
    }

    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        let family = family(&self.db, cf, "get")?;
        let found = self.db.get_pinned_cf_opt(family, key, &self.reading);
        owned(found).map_err(|error| kv_error("get", error))
    }

    fn multi_get(
        &self,
        cf: Cf,
        keys: &[Vec<u8>],
        reading: &ReadOptions,
    ) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        let family = family(&self.db, cf, "multi_get")?;
        let found = self.db.batched_multi_get_cf_opt(family, keys, false, reading);
        let answers = found.into_iter().map(owned).collect::<Result<_, _>>();
        answers.map_err(|error| kv_error("multi_get", error))
    }

    /// What memory knows of each key: its row, that it has none, or nothing.
    ///
    /// Key by key: a `Get` that would need the disk (for a table that is not open, a block that is not in the cache) is an
    /// error. `MultiGet` reads some of the blocks all the same and answers an empty value, as if it were one, for keys that
    /// may or may not be in others.
    fn known_in_memory(
        &self,
        cf: Cf,
        keys: &[Vec<u8>],
    ) -> Result<Vec<Option<Option<Vec<u8>>>>, KvError> {
        let family = family(&self.db, cf, "multi_get")?;
        let look = |key: &Vec<u8>| {
            // Is there more to an error, the read in full meets it again.
            let found = self.db.get_pinned_cf_opt(family, key, &self.reading_memory).ok()?;
            Some(found.map(|row| row.to_vec()))
        };
        Ok(keys.iter().map(look).collect())
    }

    fn scan(&self, scan: Scan, mut reading: ReadOptions) -> Result<Page, KvError> {
        let Scan { cf, range, direction, max_rows, max_bytes } = scan;
        if range.start >= range.end {
            return Ok(Page::default());
        }
        let family = family(&self.db, cf, "scan")?;
        // Both bounds keep the iterator out of deleted rows beyond the range, which it would step over one by one.
        reading.set_iterate_lower_bound(range.start);
        reading.set_iterate_upper_bound(range.end);
        let mut rows = self.db.raw_iterator_cf_opt(family, reading);
        match direction {
            Direction::Forward => rows.seek_to_first(),
            Direction::Reverse => rows.seek_to_last(),
        }
        let page = self.fill(&mut rows, direction, max_rows, max_bytes)?;
        // An iterator that met damage only looks as if it had reached the end.
        rows.status().map_err(|error| kv_error("scan", error))?;
        Ok(page)
    }

    fn fill(
        &self,
        rows: &mut DBRawIterator<'_>,
        direction: Direction,
        max_rows: usize,
        max_bytes: usize,
    ) -> Result<Page, KvError> {
        let mut page = Page::default();
        let mut bytes = 0;
        while let Some((key, value)) = rows.item() {
            let full = !page.pairs.is_empty() && bytes >= max_bytes;
            if full || page.pairs.len() >= max_rows {
                page.more = true;
                break;
            }
            if self.closing.load(Ordering::Relaxed) {
                return Err(not_running("scan", "the database is closing"));
            }
            bytes += key.len() + value.len();
            page.pairs.push((key.to_vec(), value.to_vec()));
            match direction {
                Direction::Forward => rows.next(),
                Direction::Reverse => rows.prev(),
            }
        }
        Ok(page)
    }

    /// All handles at once: a look-up by name a row would cost more than writing it.
    fn families(&self, op: &'static str) -> Result<[&ColumnFamily; Cf::ALL.len()], KvError> {
        let mut handles = [family(&self.db, Cf::Default, op)?; Cf::ALL.len()];
        for cf in Cf::ALL {
            handles[cf.index()] = family(&self.db, cf, op)?;
        }
        Ok(handles)
    }
}

/// Every family was opened with the database, so this finds it.
pub(super) fn family<'a>(
    db: &'a DB,
    cf: Cf,
    op: &'static str,
) -> Result<&'a ColumnFamily, KvError> {
    db.cf_handle(cf.name()).ok_or_else(|| not_running(op, "a family is not open"))
}

fn owned(
    found: Result<Option<DBPinnableSlice<'_>>, rocksdb::Error>,
) -> Result<Option<Vec<u8>>, rocksdb::Error> {
    Ok(found?.map(|value| value.to_vec()))
}
