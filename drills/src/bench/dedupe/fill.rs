//! A store with very many dedupe keys: nearly all written as sorted table files with the options of their family, the
//! newest in batches through the store's adapter, so that its upper levels are not empty.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::ids::TenantOrd;
use ankusa_actors::model::keys::{DedupeValue, Held};
use ankusa_actors::model::ops::Ops;
use ankusa_actors::ports::{Engine, Kv, Lane};
use ankusa_node::rocks::{self, RocksEngine, RocksOptions};
use rocksdb::{Options, SstFileWriter};
use tokio::time::sleep;

use super::keys::{self, Keys, TENANT};
use crate::drill::{CannotInject, OrCannot};

/// The fewest keys.
pub(super) const LEAST: u64 = 10_000;

/// One key in so many is written in a batch.
const IN_BATCHES: u64 = 50;

/// Keys of such a batch.
const BATCH: usize = 4_096;

/// Bytes of a table file, as compaction would make them.
const TABLE_BYTES: u64 = 64 << 20;

/// Rows between two looks at the size of a file.
const LOOK_EVERY: u64 = 4_096;

/// Longest wait for compaction to come to rest.
const SETTLED_WITHIN: Duration = Duration::from_secs(300);

/// What there is now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    pub(super) in_tables: u64,
    pub(super) in_batches: u64,
    pub(super) tables: usize,
    pub(super) bytes: u64,
}

/// Makes the store in `path` with so many keys, all live.
pub(super) async fn fill(
    path: &Path,
    options: RocksOptions,
    count: u64,
) -> Result<Filled, CannotInject> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let keys = Keys::new(count, u64::try_from(now_ms).unwrap_or_default());
    let in_tables = count - count / IN_BATCHES;
    let engine = RocksEngine::new(path, options);
    close(&engine, engine.open().await.or_cannot("make the store")?).await;
    let files = tokio::task::spawn_blocking({
        let beside = path.with_extension("tables");
        move || tables(&beside, &options.of_family(Cf::Index), keys, in_tables)
    });
    let files = files.await.or_cannot("write the tables")??;
    rocks::ingest(path, &options, Cf::Index, files).or_cannot("take the tables in")?;
    let kv = engine.open().await.or_cannot("open the store")?;
    batches(kv.as_ref(), keys, in_tables..count).await?;
    settle(kv.as_ref()).await?;
    close(&engine, kv).await;
    let (tables, bytes) = size(path).or_cannot("see how large the store is")?;
    Ok(Filled { in_tables, in_batches: count - in_tables, tables, bytes })
}

pub(super) async fn close(engine: &RocksEngine, kv: Box<dyn Kv>) {
    engine.close(kv).await;
}

/// Both kinds of rows at once: each is as much work.
fn tables(
    beside: &Path,
    options: &Options,
    keys: Keys,
    in_tables: u64,
) -> Result<Vec<PathBuf>, CannotInject> {
    std::fs::create_dir_all(beside).or_cannot("make a folder for the tables")?;
    let by_time = move || {
        (0..in_tables).filter_map(move |nth| {
            let text = keys.text(keys.in_order(nth));
            Some((keys::entry(keys.expires_at_ms(nth), &text)?, Vec::new()))
        })
    };
    let by_key = move || {
        (0..keys.count()).filter_map(move |in_order| {
            let nth = keys.as_came(in_order);
            let text = keys.text(in_order);
            let key = keys::key(&text).filter(|_| nth < in_tables)?;
            Some((key.encode(), keys.value(nth).encode().to_vec()))
        })
    };
    std::thread::scope(|scope| {
        let entries = scope.spawn(move || write(beside, "e", options, sorted_in_time(by_time())));
        let mut files = write(beside, "u", options, by_key())?;
        let entries = entries.join().map_err(|_| CannotInject("write the tables".to_owned()))?;
        files.extend(entries?);
        Ok(files)
    })
}

/// Entries of one millisecond come in the order of their keys. They are few, and next to each other.
fn sorted_in_time(
    entries: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> impl Iterator<Item = (Vec<u8>, Vec<u8>)> {
    /// The tag and the time.
    const TIME_BYTES: usize = 9;
    let mut entries = entries.peekable();
    let mut moment: std::vec::IntoIter<(Vec<u8>, Vec<u8>)> = Vec::new().into_iter();
    std::iter::from_fn(move || {
        if let Some(entry) = moment.next() {
            return Some(entry);
        }
        let mut of_moment = vec![entries.next()?];
        let time = of_moment.first()?.0.get(..TIME_BYTES)?.to_vec();
        while let Some(entry) = entries.next_if(|(key, _)| key.starts_with(&time)) {
            of_moment.push(entry);
        }
        of_moment.sort_unstable();
        moment = of_moment.into_iter();
        moment.next()
    })
}

fn write(
    beside: &Path,
    name: &str,
    options: &Options,
    rows: impl Iterator<Item = (Vec<u8>, Vec<u8>)>,
) -> Result<Vec<PathBuf>, CannotInject> {
    const WHAT: &str = "write a table";
    let (mut files, mut writer, mut written) = (Vec::new(), None::<SstFileWriter<'_>>, 0_u64);
    for (key, value) in rows {
        let table = match writer.as_mut() {
            Some(table) => table,
            None => {
                let path = beside.join(format!("{name}-{:05}.sst", files.len()));
                let table = SstFileWriter::create(options);
                table.open(&path).or_cannot(WHAT)?;
                files.push(path);
                writer.insert(table)
            }
        };
        table.put(key, value).or_cannot(WHAT)?;
        written += 1;
        if written.is_multiple_of(LOOK_EVERY) && table.file_size() >= TABLE_BYTES {
            table.finish().or_cannot(WHAT)?;
            writer = None;
        }
    }
    if let Some(mut table) = writer {
        table.finish().or_cannot(WHAT)?;
    }
    Ok(files)
}

/// The newest keys, in the order they came, as the Writer takes them.
async fn batches(kv: &dyn Kv, keys: Keys, which: std::ops::Range<u64>) -> Result<(), CannotInject> {
    let mut ops = Ops::default();
    ops.new_tenant(TenantOrd::FIRST, TENANT, TenantOrd(TenantOrd::FIRST.0 + 1));
    kv.apply(ops.finish(), Lane::Commit).await.or_cannot("write the tenant")?;
    for from in which.clone().step_by(BATCH) {
        let mut ops = Ops::with_capacity(2 * BATCH, 256 * BATCH);
        for nth in from..(from + BATCH as u64).min(which.end) {
            take(&mut ops, &keys.text(keys.in_order(nth)), keys.value(nth));
        }
        kv.apply(ops.finish(), Lane::Commit).await.or_cannot("write keys")?;
    }
    kv.sync().await.or_cannot("sync the store")
}

/// A key that was free.
pub(super) fn take(ops: &mut Ops, text: &[u8], value: DedupeValue) {
    if let Some(key) = keys::key(text) {
        ops.take_key(TenantOrd::FIRST, key, value, Held::Nothing);
    }
}

/// Waits until nothing is flushed or compacted any more.
async fn settle(kv: &dyn Kv) -> Result<(), CannotInject> {
    let began = std::time::Instant::now();
    while began.elapsed() < SETTLED_WITHIN {
        sleep(Duration::from_millis(500)).await;
        let stats = kv.stats().await.or_cannot("look at the store")?;
        if stats.running_compactions + stats.running_flushes == 0 {
            return Ok(());
        }
    }
    Ok(())
}

/// How many tables, and their bytes.
fn size(path: &Path) -> std::io::Result<(usize, u64)> {
    let (mut tables, mut bytes) = (0, 0);
    for file in std::fs::read_dir(path)? {
        let file = file?;
        if file.path().extension().is_some_and(|kind| kind == "sst") {
            tables += 1;
            bytes += file.metadata()?.len();
        }
    }
    Ok((tables, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_one_moment_are_sorted_and_moments_stay_as_they_are() {
        let entry = |time: u8, key: u8| (vec![b'e', 0, 0, 0, 0, 0, 0, 0, time, key], Vec::new());
        let came = vec![entry(1, 3), entry(1, 1), entry(2, 9), entry(4, 5), entry(4, 2)];
        let sorted: Vec<_> =
            sorted_in_time(came.into_iter()).map(|(key, _)| key[8..].to_vec()).collect();
        assert_eq!(sorted, [[1, 1], [1, 3], [2, 9], [4, 2], [4, 5]]);
    }

    #[tokio::test]
    async fn a_filled_store_holds_every_key_and_its_expiry_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("store");
        let options = RocksOptions::default();
        let filled = fill(&path, options, 10_000).await.unwrap();
        assert_eq!((filled.in_tables, filled.in_batches), (9_800, 200));
        let engine = RocksEngine::new(&path, options);
        let kv = engine.open().await.unwrap();
        let scan = ankusa_actors::ports::Scan {
            cf: Cf::Index,
            range: Vec::new()..vec![0xff; 64],
            direction: ankusa_actors::ports::Direction::Forward,
            max_rows: usize::MAX,
            max_bytes: usize::MAX,
        };
        let rows = kv.scan(scan).await.unwrap().pairs;
        let dump = ankusa_actors::model::invariants::Dump::from_rows(
            rows.iter().map(|(key, value)| (Cf::Index, key, value)),
        );
        let is_of_keys = |violation: &ankusa_actors::model::invariants::Violation| {
            let told = format!("{violation:?}");
            told.starts_with("Key") || told.starts_with("Expiry") || told.starts_with("Unreadable")
        };
        let violations = ankusa_actors::model::invariants::check(&dump);
        assert!(!violations.iter().any(is_of_keys), "{violations:?}");
        let keys = rows.iter().filter(|(key, _)| key[0] == b'u').count();
        let entries = rows.iter().filter(|(key, _)| key[0] == b'e').count();
        assert_eq!((keys, entries), (10_000, 10_000));
        close(&engine, kv).await;
    }
}
