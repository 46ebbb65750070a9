//! The manifest: which files make up the database. RocksDB takes much of the damage in it for the end of the file, and
//! then opens an earlier, emptier database without a word.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::bytes::Bytes;
use super::log::{Damage, LogReader, Piece};

/// Tags from here on carry a length, so that readers can pass over those they do not know.
const IGNORABLE: u64 = 1 << 13;

/// What a manifest says, up to its damage or its end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Manifest {
    pub(super) bytes: u64,
    pub(super) damage: Option<Damage>,
    /// Records behind the damage that are whole.
    pub(super) whole_behind: u64,
    /// By family, the number of the oldest log with rows of it that are in no table.
    families: BTreeMap<u64, u64>,
    min_log: u64,
    /// RocksDB's number of the last change when the last record was written.
    pub(super) last_sequence: u64,
}

impl Manifest {
    /// The oldest log that counts: RocksDB passes over those before it.
    pub(super) fn first_log(&self) -> u64 {
        self.min_log.max(self.families.values().copied().min().unwrap_or(0))
    }

    /// The newest log that some family has been written past.
    pub(super) fn written_past(&self) -> u64 {
        self.families.values().copied().max().unwrap_or(0)
    }
}

/// The manifest that `CURRENT` of `store` names; `None` without a `CURRENT`.
pub(super) fn current(store: &Path) -> io::Result<Option<String>> {
    let text = match fs::read_to_string(store.join("CURRENT")) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => String::new(),
        Err(error) => return Err(error),
    };
    let name = text.strip_suffix('\n').filter(|name| number(name).is_some());
    Ok(Some(name.unwrap_or_default().to_owned()))
}

/// The number in a manifest's name.
pub(super) fn number(name: &str) -> Option<u64> {
    let digits = name.strip_prefix("MANIFEST-")?;
    let is_plain = digits.len() >= 6 && digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| is_plain)
}

pub(super) fn read(path: &PathBuf) -> io::Result<Manifest> {
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut manifest = Manifest { bytes, ..Manifest::default() };
    let mut reader = LogReader::new(io::BufReader::new(file), bytes);
    while let Some(piece) = reader.next()? {
        match piece {
            Piece::Damage(damage) => {
                manifest.damage.get_or_insert(damage);
            }
            Piece::Record { .. } if manifest.damage.is_some() => manifest.whole_behind += 1,
            Piece::Record { start, bytes, .. } => {
                if edit(&bytes, &mut manifest).is_none() {
                    let why = "a record that is no version edit";
                    manifest.damage = Some(Damage { at: start, cut_short: false, why });
                }
            }
        }
    }
    Ok(manifest)
}

/// One version edit. `None` if it cannot be read to its end; then none of it counts.
fn edit(record: &[u8], manifest: &mut Manifest) -> Option<()> {
    let mut bytes = Bytes(record);
    let mut family = 0;
    let (mut log, mut dropped, mut added) = (None, false, false);
    let (mut min_log, mut last_sequence) = (None, None);
    while !bytes.is_empty() {
        match bytes.varint()? {
            2 => log = Some(bytes.varint()?),
            4 => last_sequence = Some(bytes.varint()?),
            10 => min_log = Some(bytes.varint()?),
            200 => family = bytes.varint()?,
            201 => {
                bytes.slice()?;
                added = true;
            }
            202 => dropped = true,
            other => pass_over(other, &mut bytes)?,
        }
    }
    if added {
        manifest.families.insert(family, 0);
    }
    if let Some(log) = log {
        manifest.families.insert(family, log);
    }
    if dropped {
        manifest.families.remove(&family);
    }
    manifest.min_log = manifest.min_log.max(min_log.unwrap_or(0));
    manifest.last_sequence = manifest.last_sequence.max(last_sequence.unwrap_or(0));
    Some(())
}

/// A field that says nothing we ask for.
fn pass_over(tag: u64, bytes: &mut Bytes<'_>) -> Option<()> {
    match tag {
        // Numbers of files and families, the place in an atomic group.
        3 | 9 | 203 | 300 => {
            bytes.varint()?;
        }
        // The comparator's name.
        1 => {
            bytes.slice()?;
        }
        // A compaction's cursor: level and key.
        5 => {
            bytes.varint()?;
            bytes.slice()?;
        }
        // A file that is gone: level and number.
        6 => {
            bytes.varint()?;
            bytes.varint()?;
        }
        // A new table: level, number, size, first and last key, first and last sequence, and fields of its own.
        103 => {
            for _ in 0..3 {
                bytes.varint()?;
            }
            bytes.slice()?;
            bytes.slice()?;
            bytes.varint()?;
            bytes.varint()?;
            fields_until(1, bytes)?;
        }
        // A new blob file: number, blobs, bytes, the checksum's method and value, and fields of its own.
        400 => {
            for _ in 0..3 {
                bytes.varint()?;
            }
            bytes.slice()?;
            bytes.slice()?;
            fields_until(0, bytes)?;
        }
        // Blobs that are no longer needed: number, blobs, bytes, and fields of its own.
        401 => {
            for _ in 0..3 {
                bytes.varint()?;
            }
            fields_until(0, bytes)?;
        }
        later if later & IGNORABLE != 0 => {
            bytes.slice()?;
        }
        _unknown => return None,
    }
    Some(())
}

fn fields_until(end: u64, bytes: &mut Bytes<'_>) -> Option<()> {
    while bytes.varint()? != end {
        bytes.slice()?;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use rocksdb::{ColumnFamilyDescriptor, DB, Options};

    use super::super::log::tests::file_of;
    use super::*;

    fn of(records: &[&[u8]]) -> Manifest {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("MANIFEST-000001");
        fs::write(&path, file_of(records)).unwrap();
        read(&path).unwrap()
    }

    #[test]
    fn a_name_is_a_manifest_s_or_none() {
        assert_eq!(number("MANIFEST-000012"), Some(12));
        assert_eq!(number("MANIFEST-1234567"), Some(1_234_567));
        for name in ["MANIFEST-12", "MANIFEST-00001x", "MANIFEST-+00001", "LANIFEST-000012", ""] {
            assert_eq!(number(name), None, "{name}");
        }
    }

    #[test]
    fn the_logs_that_count_are_those_no_family_has_been_written_past() {
        let first = [1, 1, b'c', 2, 7, 3, 9, 4, 50].as_slice();
        // A family by its number, its name, and its own log.
        let added = [200, 1, 3, 201, 1, 1, b'x'].as_slice();
        let later = [200, 1, 3, 2, 12, 4, 90].as_slice();
        assert_eq!(of(&[first]).first_log(), 7);
        let manifest = of(&[first, added]);
        assert_eq!((manifest.first_log(), manifest.written_past()), (0, 7));
        let manifest = of(&[first, added, later]);
        assert_eq!((manifest.first_log(), manifest.written_past()), (7, 12));
        assert_eq!((manifest.last_sequence, manifest.damage), (90, None));
        assert_eq!(of(&[first, added, later, &[10, 9]]).first_log(), 9);
        assert_eq!(of(&[first, added, later, &[200, 1, 3, 202, 1]]).first_log(), 7);
    }

    #[test]
    fn an_edit_that_cannot_be_read_is_damage() {
        let first = [2, 7].as_slice();
        for bad in [&[2][..], &[77, 1], &[1, 200], &[103, 0, 1, 2]] {
            let manifest = of(&[first, bad, first]);
            let why = "a record that is no version edit";
            let at = file_of(&[first]).len() as u64;
            assert_eq!(manifest.damage, Some(Damage { at, cut_short: false, why }), "{bad:?}");
            assert_eq!(manifest.whole_behind, 1);
        }
        // One that readers may pass over.
        assert_eq!(of(&[&[0xff, 0x7f, 2, 1, 2]]).damage, None);
    }

    #[test]
    fn what_rocksdb_writes_is_read_to_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = Options::default();
        options.create_if_missing(true);
        options.create_missing_column_families(true);
        let family = |name: &str| {
            let mut options = Options::default();
            options.set_enable_blob_files(true);
            options.set_min_blob_size(10);
            options.set_enable_blob_gc(true);
            options.set_blob_gc_age_cutoff(1.0);
            ColumnFamilyDescriptor::new(name, options)
        };
        let db = DB::open_cf_descriptors(&options, dir.path(), [family("default"), family("x")]);
        let db = db.unwrap();
        let x = db.cf_handle("x").unwrap();
        for round in 0..4_u8 {
            for key in 0..100_u8 {
                db.put([key], [round; 50]).unwrap();
                db.put_cf(x, [key], [round; 50]).unwrap();
            }
            db.flush().unwrap();
            db.flush_cf(x).unwrap();
        }
        db.compact_range(None::<&[u8]>, None::<&[u8]>);
        db.put([1], [1]).unwrap();
        let name = current(dir.path()).unwrap().unwrap();
        let manifest = read(&dir.path().join(name)).unwrap();
        assert_eq!((manifest.damage, manifest.whole_behind), (None, 0));
        assert_eq!(manifest.families.len(), 2);
        let logs = super::super::wal::files(dir.path()).unwrap();
        let newest = logs.last().unwrap().number;
        assert!(manifest.first_log() <= newest && manifest.written_past() <= newest);
        assert!(manifest.last_sequence > 0);
        drop(db);
        assert_eq!(current(&dir.path().join("nothing")).unwrap(), None);
    }
}
