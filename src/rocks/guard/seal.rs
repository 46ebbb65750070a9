//! The seal: a file beside the manifest that says which manifest it is, what it held, and how far the seqs had come.
//!
//! RocksDB checks each record it reads, and nothing tells it that there were more: a manifest whose damage looks like its
//! end opens as an earlier database, at worst an empty one. The seal is what it is compared with.
//!
//! It lies in the database's own directory, under a name RocksDB does not know and leaves alone: it goes wherever the
//! store is copied or moved to, and a directory that holds a seal and no database is one that has lost it. It is lines of
//! text, each `name value`, for whoever has to decide what to do about a store that is refused.

use std::fmt::Write;
use std::fs::{self, File};
use std::io::{self, Read, Write as _};
use std::path::Path;

use ankusa_actors::model::cf::Cf;
use sha2::{Digest, Sha256};

pub(super) const NAME: &str = "SEAL";
const TEMPORARY: &str = "SEAL.tmp";
const FORMAT: &str = "ankusa-seal 1";

/// More than any seal has.
const MAX_BYTES: u64 = 1 << 20;

/// What was known of a store when it was sealed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seal {
    /// Its name, such as `MANIFEST-000012`.
    pub(super) manifest: String,
    /// How much of it is sealed: a database that is open appends to it.
    pub(super) manifest_bytes: u64,
    /// SHA-256 of so many bytes of it, in lowercase hexadecimal.
    pub(super) manifest_sha256: String,
    /// The seq the next hook gets. It never goes back.
    pub(super) next_seq: u64,
    /// There only when the store was closed cleanly, and gone before it is opened again.
    pub(super) closed: Option<Closed>,
}

/// What holds of a store that was closed cleanly, until it is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Closed {
    /// Rows of each family, in their order, counted up to [`counted_up_to`].
    pub(super) rows: [u64; Cf::ALL.len()],
    /// Number and bytes of each log file, all of it synced.
    pub(super) logs: Vec<(u64, u64)>,
}

/// A count costs a read of each row, and a close must not take long: it stops here. Families whose values lie in blob
/// files have theirs read with each row, so of them it is only known whether there are any.
pub(super) const fn counted_up_to(cf: Cf) -> u64 {
    match cf {
        Cf::Hooks | Cf::Quarantine => 1,
        Cf::Default
        | Cf::Deliveries
        | Cf::Index
        | Cf::Archive
        | Cf::Audit
        | Cf::Tenants
        | Cf::Counters => 1_000,
    }
}

impl Seal {
    /// Its bytes. The last line is the SHA-256 of those before it.
    pub(super) fn encode(&self) -> String {
        let Self { manifest, manifest_bytes, manifest_sha256, next_seq, closed } = self;
        let mut text = format!(
            "{FORMAT}\nmanifest {manifest}\nmanifest_bytes {manifest_bytes}\nmanifest_sha256 {manifest_sha256}\n\
             next_seq {next_seq}\n"
        );
        if let Some(Closed { rows, logs }) = closed {
            // Writing to a string cannot fail.
            for (cf, rows) in Cf::ALL.into_iter().zip(rows) {
                let _ = writeln!(text, "rows.{} {rows}", cf.name());
            }
            for (number, bytes) in logs {
                let _ = writeln!(text, "log.{number:06} {bytes}");
            }
            text.push_str("closed cleanly\n");
        }
        let sum = hex(&Sha256::digest(&text));
        let _ = writeln!(text, "sha256 {sum}");
        text
    }

    /// Reads what [`Seal::encode`] wrote, and nothing else. `None` is a damaged seal.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let seal = Self::parse(std::str::from_utf8(bytes).ok()?)?;
        // One seal has one form: whatever differs in a single bit is no seal.
        (seal.encode().as_bytes() == bytes).then_some(seal)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines().map(|line| line.split_once(' ').unwrap_or((line, "")));
        let mut value =
            |name: &str| lines.next().filter(|(got, _)| *got == name).map(|line| line.1);
        (value("ankusa-seal")? == "1").then_some(())?;
        let manifest = value("manifest")?.to_owned();
        let manifest_bytes = value("manifest_bytes")?.parse().ok()?;
        let manifest_sha256 = value("manifest_sha256")?.to_owned();
        let next_seq = value("next_seq")?.parse().ok()?;
        let mut closed = Closed::default();
        let mut is_closed = false;
        for (name, value) in lines {
            if let Some(family) = name.strip_prefix("rows.") {
                let cf = Cf::ALL.into_iter().find(|cf| cf.name() == family)?;
                *closed.rows.get_mut(cf.index())? = value.parse().ok()?;
            } else if let Some(number) = name.strip_prefix("log.") {
                closed.logs.push((number.parse().ok()?, value.parse().ok()?));
            } else if name == "closed" {
                is_closed = true;
            }
        }
        let closed = is_closed.then_some(closed);
        Some(Self { manifest, manifest_bytes, manifest_sha256, next_seq, closed })
    }
}

/// What lies in a store's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    Nothing,
    Damaged,
    Sealed(Seal),
}

pub(super) fn read(store: &Path) -> io::Result<Found> {
    let file = match File::open(store.join(NAME)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Nothing),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(Seal::decode(&bytes).map_or(Found::Damaged, Found::Sealed))
}

/// Puts a seal in the place of the one that is there: at no moment, and after no power cut, is there a part of one.
pub(super) fn write(store: &Path, seal: &Seal) -> io::Result<()> {
    let temporary = store.join(TEMPORARY);
    let mut file = File::create(&temporary)?;
    file.write_all(seal.encode().as_bytes())?;
    file.sync_all()?;
    drop(file);
    fs::rename(&temporary, store.join(NAME))?;
    File::open(store)?.sync_all()
}

/// SHA-256 of the first `len` bytes of a file, and how many there were. They are on the disk once this returns, or a power
/// cut could take back what is sealed.
pub(super) fn sealed_prefix(path: &Path, len: Option<u64>) -> io::Result<(u64, String)> {
    let file = File::open(path)?;
    let mut sha = Sha256::new();
    let bytes = io::copy(&mut (&file).take(len.unwrap_or(u64::MAX)), &mut Hasher(&mut sha))?;
    if len.is_none() {
        file.sync_all()?;
    }
    Ok((bytes, hex(&sha.finalize())))
}

struct Hasher<'a>(&'a mut Sha256);

impl io::Write for Hasher<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open() -> Seal {
        Seal {
            manifest: "MANIFEST-000012".to_owned(),
            manifest_bytes: 1_334,
            manifest_sha256: hex(&Sha256::digest(b"a manifest")),
            next_seq: 1_501,
            closed: None,
        }
    }

    fn closed() -> Seal {
        let rows = [5, 1, 1_000, 1_000, 0, 0, 0, 4, 12];
        Seal { closed: Some(Closed { rows, logs: vec![(9, 70_000), (13, 0)] }), ..open() }
    }

    #[test]
    fn the_bytes_of_a_seal_are_these_for_ever() {
        let golden = include_str!("../../../tests/golden/seals.txt");
        assert_eq!(format!("{}\n{}", open().encode(), closed().encode()), golden);
    }

    #[test]
    fn a_seal_is_read_back_and_with_any_bit_flipped_or_any_end_missing_it_is_none() {
        for seal in [open(), closed()] {
            let bytes = seal.encode().into_bytes();
            assert_eq!(Seal::decode(&bytes), Some(seal));
            for bit in 0..bytes.len() * 8 {
                let mut flipped = bytes.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(Seal::decode(&flipped), None, "bit {bit}");
            }
            for len in 0..bytes.len() {
                assert_eq!(Seal::decode(&bytes[..len]), None, "{len} bytes");
            }
            assert_eq!(Seal::decode(&[&bytes[..], b"more 1\n"].concat()), None);
        }
    }

    #[test]
    fn a_seal_takes_the_place_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(read(dir.path()).unwrap(), Found::Nothing);
        write(dir.path(), &open()).unwrap();
        write(dir.path(), &closed()).unwrap();
        assert_eq!(read(dir.path()).unwrap(), Found::Sealed(closed()));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        fs::write(dir.path().join(NAME), b"").unwrap();
        assert_eq!(read(dir.path()).unwrap(), Found::Damaged);
    }

    #[test]
    fn a_prefix_is_as_long_as_asked_or_as_long_as_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, b"abcdef").unwrap();
        let sum = |bytes: &[u8]| hex(&Sha256::digest(bytes));
        assert_eq!(sealed_prefix(&path, None).unwrap(), (6, sum(b"abcdef")));
        assert_eq!(sealed_prefix(&path, Some(3)).unwrap(), (3, sum(b"abc")));
        assert_eq!(sealed_prefix(&path, Some(9)).unwrap(), (6, sum(b"abcdef")));
    }
}
