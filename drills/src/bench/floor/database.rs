//! RocksDB under the node's own options, and one group of hooks as one batch: what any receiver with these promises must
//! write.
//!
//! For each hook its value, a delivery row, a due key, an archive obligation, a dedupe key and its entry in the expiry
//! index; for each group a look at its dedupe keys, an active marker, eight counter operands and two facts. Keys are as wide
//! and as ordered as the node's.

use std::path::Path;

use rocksdb::{
    Cache, ColumnFamily, ColumnFamilyDescriptor, DB, DBCompressionType, Env, MergeOperands,
    Options, WriteBatch, WriteOptions,
};

use super::FloorError;
use crate::bench::requests::{self, EVENT_DIGITS, EVENT_PREFIX, SOURCE};

/// Bytes of a hook's value.
pub(super) const VALUE_BYTES: usize = HEAD_BYTES + crate::bench::requests::BODY_BYTES;

/// What is kept of a hook beside its body.
pub(super) const HEAD_BYTES: usize = 76;

/// Bytes of a delivery row.
const ROW_BYTES: usize = 180;

/// The node's default, which no options file tells.
const BLOCK_CACHE_BYTES: usize = 64 << 20;

/// Memtable of the counters family, as the node has it.
const COUNTERS_BUFFER_BYTES: usize = 4 << 20;

/// Room for what a group writes once.
const GROUP_BYTES: usize = 1_024;

/// Bytes a hook adds to a batch beside its value and its row: four keys, two small values, four heads.
const KEYS_BYTES: usize = 8 + 10 + 23 + 5 + 9 + 8 + 2 * DEDUPE_BYTES + 8 + ID_BYTES + 6 * 16;

/// What a dedupe key is made of after its tag: tenant, source and event.
const DEDUPE_BYTES: usize =
    "default\0".len() + 2 + SOURCE.len() + EVENT_PREFIX.len() + EVENT_DIGITS;

/// The text of a hook's id, which its dedupe key names.
const ID_BYTES: usize = 36;

const TENANT: [u8; 4] = 1_u32.to_be_bytes();
const NODE: [u8; 4] = 0_u32.to_be_bytes();

/// An open database and the row every hook gets.
pub(super) struct Database {
    db: DB,
    unsynced: WriteOptions,
    row: [u8; ROW_BYTES],
}

impl Database {
    /// A new one in `path`, with the options of the store in `like`. The counters family is the exception: a merge
    /// operator is code, so it gets its options here, and an operator that adds.
    pub(super) fn open(path: &Path, like: &Path) -> Result<Self, FloorError> {
        let cache = Cache::new_lru_cache(BLOCK_CACHE_BYTES);
        let (mut options, families) = Options::load_latest(like, Env::new()?, false, cache)?;
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let families = families.into_iter().map(|family| match family.name() {
            "counters" => ColumnFamilyDescriptor::new("counters", counters()),
            _other => family,
        });
        let db = DB::open_cf_descriptors(&options, path, families)?;
        let mut unsynced = WriteOptions::default();
        unsynced.set_sync(false);
        Ok(Self { db, unsynced, row: [b'r'; ROW_BYTES] })
    }

    /// Applies the hooks of one group, the first under `first`, without a sync.
    pub(super) fn apply<'v>(
        &self,
        first: u64,
        at_ms: u64,
        values: impl ExactSizeIterator<Item = &'v [u8]>,
    ) -> Result<(), FloorError> {
        let family = |name: &str| self.db.cf_handle(name).ok_or("a family is not open");
        let (hooks, deliveries) = (family("hooks")?, family("deliveries")?);
        let (index, facts) = (family("index")?, family("default")?);
        let count = values.len();
        let mut batch = WriteBatch::with_capacity_bytes(
            GROUP_BYTES + count * (VALUE_BYTES + ROW_BYTES + KEYS_BYTES),
        );
        let events: Vec<_> = (first..).take(count).map(dedupe).collect();
        let asked = events.iter().map(|event| key::<{ 1 + DEDUPE_BYTES }>(&[b"u", event]));
        let known = self.db.batched_multi_get_cf(index, &asked.collect::<Vec<_>>(), false);
        let known = known.into_iter().filter(|known| !matches!(known, Ok(None))).count();
        if known > 0 {
            return Err("an event is known already, or cannot be looked up".into());
        }
        let (mut seq, mut bytes) = (first, 0_i64);
        for (value, event) in values.zip(&events) {
            let size = u32::try_from(value.len())?.to_be_bytes();
            batch.put_cf(hooks, seq.to_be_bytes(), value);
            batch.put_cf(deliveries, key::<10>(&[&seq.to_be_bytes(), &[0, 0]]), self.row);
            let due =
                key::<23>(&[b"D", &TENANT, &at_ms.to_be_bytes(), &seq.to_be_bytes(), &[0, 0]]);
            batch.put_cf(index, due, key::<5>(&[&size, &[0]]));
            let owed = key::<9>(&[b"a", &seq.to_be_bytes()]);
            batch.put_cf(index, owed, key::<8>(&[&size, &TENANT]));
            let expires = at_ms.to_be_bytes();
            let original = key::<{ 8 + ID_BYTES }>(&[&expires, &[b'i'; ID_BYTES]]);
            batch.put_cf(index, key::<{ 1 + DEDUPE_BYTES }>(&[b"u", event]), original);
            batch.put_cf(index, key::<{ 9 + DEDUPE_BYTES }>(&[b"e", &expires, event]), []);
            bytes += i64::try_from(value.len())?;
            seq += 1;
        }
        let active = key::<13>(&[b"A", &(at_ms / 1000).to_be_bytes(), &TENANT]);
        batch.put_cf(index, active, []);
        count_group(&mut batch, family("counters")?, i64::try_from(count)?, bytes);
        batch.put_cf(facts, b"m:next_seq", seq.to_be_bytes());
        batch.put_cf(facts, b"m:synced_through", first.saturating_sub(1).to_be_bytes());
        Ok(self.db.write_opt(batch, &self.unsynced)?)
    }

    /// Makes everything applied so far durable.
    pub(super) fn sync(&self) -> Result<(), FloorError> {
        Ok(self.db.flush_wal(true)?)
    }
}

/// What the dedupe key of this event is made of.
fn dedupe(event: u64) -> [u8; DEDUPE_BYTES] {
    let source = u16::try_from(SOURCE.len()).unwrap_or_default().to_be_bytes();
    let event = requests::event(event);
    key(&[b"default\0", &source, SOURCE.as_bytes(), EVENT_PREFIX.as_bytes(), &event])
}

/// Pending rows, their bytes, archive obligations and dedupe keys, of the tenant and of the node.
fn count_group(batch: &mut WriteBatch, counters: &ColumnFamily, hooks: i64, bytes: i64) {
    for owner in [NODE, TENANT] {
        for (field, delta) in [(1, hooks), (5, bytes), (6, hooks), (7, hooks)] {
            let counter = key::<5>(&[&owner, &[field]]);
            batch.merge_cf(counters, counter, delta.to_be_bytes());
        }
    }
}

/// The parts, one after the other. They are `N` bytes.
fn key<const N: usize>(parts: &[&[u8]]) -> [u8; N] {
    let mut bytes = [0; N];
    let mut places = bytes.iter_mut();
    for (to, from) in places.by_ref().zip(parts.iter().copied().flatten()) {
        *to = *from;
    }
    debug_assert!(places.next().is_none(), "the parts fill the key");
    bytes
}

fn counters() -> Options {
    let mut options = Options::default();
    options.set_write_buffer_size(COUNTERS_BUFFER_BYTES);
    options.set_compression_type(DBCompressionType::None);
    options.set_merge_operator_associative("add", sum);
    options
}

fn sum(_: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    let number = |bytes: &[u8]| bytes.try_into().map_or(0, i64::from_be_bytes);
    let start = existing.map_or(0, number);
    Some(operands.iter().map(number).fold(start, i64::wrapping_add).to_be_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_parts_in_order() {
        assert_eq!(key::<5>(&[b"D", &TENANT]), [b'D', 0, 0, 0, 1]);
    }

    #[test]
    fn a_group_is_written_whole_and_counted_once() {
        let dir = tempfile::tempdir().unwrap();
        let (like, path) = (dir.path().join("like"), dir.path().join("store"));
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let names = ["default", "hooks", "deliveries", "index", "counters"];
        drop(DB::open_cf(&options, &like, names).unwrap());
        let database = Database::open(&path, &like).unwrap();
        let value = [7; VALUE_BYTES];
        for first in [1, 3] {
            database.apply(first, 1_000, [value.as_slice(); 2].into_iter()).unwrap();
        }
        database.sync().unwrap();
        let rows = |family: &str| {
            let family = database.db.cf_handle(family).unwrap();
            database.db.iterator_cf(family, rocksdb::IteratorMode::Start).count()
        };
        assert_eq!(names.map(rows), [2, 4, 4, 4 + 4 + 1 + 4 + 4, 8]);
        let counters = database.db.cf_handle("counters").unwrap();
        let bytes = database.db.get_cf(counters, [0, 0, 0, 1, 5]).unwrap().unwrap();
        assert_eq!(bytes, 4_400_i64.to_be_bytes());
    }
}
