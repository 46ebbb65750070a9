//! Reading rows to see whether they can be read.

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{Damaged, KvError, Verified};
use rocksdb::{DB, ReadOptions};

use super::error::{class_of, kv_error};
use super::kv::family;

/// Reads on from `from` until `max_bytes` of keys and values have been read, or a block is damaged.
pub(super) fn read(db: &DB, cf: Cf, from: Vec<u8>, max_bytes: u64) -> Result<Verified, KvError> {
    let family = family(db, cf, "verify")?;
    let mut reading = ReadOptions::default();
    reading.set_verify_checksums(true);
    // What is only looked at once must not push out what is read all the time.
    reading.fill_cache(false);
    let mut rows = db.raw_iterator_cf_opt(family, reading);
    rows.seek(&from);
    let mut verified = Verified::default();
    let mut last = from;
    while let Some((key, value)) = rows.item() {
        verified.rows += 1;
        verified.bytes += u64::try_from(key.len() + value.len()).unwrap_or(u64::MAX);
        key.clone_into(&mut last);
        if verified.bytes >= max_bytes {
            verified.next = Some(after(&last));
            return Ok(verified);
        }
        rows.next();
    }
    let Err(error) = rows.status() else { return Ok(verified) };
    let detail = error.as_ref().to_owned();
    if class_of(&detail) != FailureClass::Corruption {
        return Err(kv_error("verify", error));
    }
    let file = named_file(&detail);
    verified.next = end_of_damage(db, cf, &last, file.as_deref());
    verified.damage = Some(Damaged { file, detail });
    Ok(verified)
}

fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The file that RocksDB's words end with, or go on behind.
fn named_file(detail: &str) -> Option<String> {
    let is_file = |word: &&str| word.ends_with(".sst") || word.ends_with(".blob");
    let path = detail.split_whitespace().rev().find(is_file)?;
    path.rsplit('/').next().map(str::to_owned)
}

/// Behind the damaged table, or behind the nearest end of any table where that says nothing; `None` where no table goes
/// on behind `last`.
fn end_of_damage(db: &DB, cf: Cf, last: &[u8], file: Option<&str>) -> Option<Vec<u8>> {
    let files = db.live_files().ok()?;
    let of_family = files.into_iter().filter(|found| found.column_family_name == cf.name());
    let ends: Vec<(String, Vec<u8>)> = of_family
        .filter_map(|found| Some((found.name, found.end_key?)))
        .filter(|(_, end)| end.as_slice() >= last)
        .collect();
    let named = |name: &str| file.is_some_and(|file| name.trim_start_matches('/') == file);
    let its = ends.iter().find(|(name, _)| named(name));
    its.or_else(|| ends.iter().min_by(|a, b| a.1.cmp(&b.1))).map(|(_, end)| after(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_found_in_rocksdb_s_words() {
        let detail = "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 4  in /d/x/000012.sst offset 0 size 57";
        assert_eq!(named_file(detail).as_deref(), Some("000012.sst"));
        assert_eq!(named_file("Corruption: bad entry in block"), None);
    }
}
