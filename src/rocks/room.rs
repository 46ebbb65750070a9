//! How much room the disk of the database has, and the file that is given up when it has too little.
//!
//! The reserve lies in the database's own directory, under a name that RocksDB does not know and leaves alone: that
//! directory may be a mount point, and its parent on another disk.

use std::fs::{self, File};
use std::io::{self, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use ankusa_actors::ports::DiskRoom;
use rustix::fs::{FallocateFlags, fallocate, statvfs};
use rustix::io::Errno;

use super::probe::sync_directory;

const RESERVE: &str = "reserve";
/// The name of one that is not whole yet.
const RESERVE_TEMPORARY: &str = "reserve.tmp";

/// The unit of a file's `blocks`.
const BLOCK_BYTES: u64 = 512;

/// Bytes written at a time where the file system cannot set room aside.
const CHUNK_BYTES: usize = 1 << 20;

/// Looks at the disk of `store`, or of the folder it will be made in.
///
/// # Errors
/// What the file system said.
pub(super) fn look(store: &Path, memtable_bytes: u64) -> io::Result<DiskRoom> {
    let existing = store.ancestors().find(|path| path.is_dir()).unwrap_or(Path::new("."));
    let disk = statvfs(existing)?;
    let bytes = |blocks: u64| blocks.saturating_mul(disk.f_frsize);
    let Logs { length_bytes, set_aside_bytes } = logs(store);
    Ok(DiskRoom {
        free_bytes: bytes(disk.f_bavail).saturating_add(set_aside_bytes),
        total_bytes: bytes(disk.f_blocks),
        reserve_bytes: fs::metadata(store.join(RESERVE)).map_or(0, |file| file.len()),
        wal_bytes: length_bytes,
        memtable_bytes,
    })
}

struct Logs {
    length_bytes: u64,
    /// Room that RocksDB has set aside for a log and not used: writes find it, and nobody else does.
    set_aside_bytes: u64,
}

fn logs(store: &Path) -> Logs {
    let mut logs = Logs { length_bytes: 0, set_aside_bytes: 0 };
    let files = fs::read_dir(store).into_iter().flatten().flatten();
    for file in files.filter(|file| super::stats::is_log(&file.path())) {
        // One that goes away while we look counts as gone.
        let Ok(metadata) = file.metadata() else { continue };
        let on_disk_bytes = metadata.blocks().saturating_mul(BLOCK_BYTES);
        logs.length_bytes += metadata.len();
        logs.set_aside_bytes += on_disk_bytes.saturating_sub(metadata.len());
    }
    logs
}

/// Makes the reserve anew, `bytes` long, whole and on the disk; 0 takes it away.
///
/// # Errors
/// What the file system said. There is no reserve then, and no part of one.
pub(super) fn set_reserve(store: &Path, bytes: u64) -> io::Result<()> {
    let (file, temporary) = (store.join(RESERVE), store.join(RESERVE_TEMPORARY));
    remove(&temporary)?;
    remove(&file)?;
    if bytes == 0 {
        return sync_directory(store);
    }
    let made = make(&temporary, bytes).and_then(|()| fs::rename(&temporary, &file));
    if made.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    made.and_then(|()| sync_directory(store))
}

fn make(path: &PathBuf, bytes: u64) -> io::Result<()> {
    let mut file = File::create(path)?;
    match fallocate(&file, FallocateFlags::empty(), 0, bytes) {
        Ok(()) => {}
        // Holes are no reserve: every block is written.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => fill(&mut file, bytes)?,
        Err(error) => return Err(error.into()),
    }
    file.sync_all()
}

fn fill(file: &mut File, bytes: u64) -> io::Result<()> {
    let chunk = vec![0x5a; CHUNK_BYTES];
    while let left @ 1.. = bytes.saturating_sub(file.stream_position()?) {
        let length = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
        file.write_all(chunk.get(..length).unwrap_or(&chunk))?;
    }
    Ok(())
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _gone => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reserve_is_whole_on_the_disk_and_goes_away_whole() {
        let dir = tempfile::tempdir().unwrap();
        let reserve = |bytes| {
            set_reserve(dir.path(), bytes).unwrap();
            look(dir.path(), 7).unwrap().reserve_bytes
        };
        assert_eq!([reserve(3 << 20), reserve(1 << 20)], [3 << 20, 1 << 20]);
        let metadata = fs::metadata(dir.path().join("reserve")).unwrap();
        assert!(metadata.blocks() * BLOCK_BYTES >= 1 << 20, "no hole");
        assert_eq!([reserve(0), reserve(0)], [0, 0]);
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_system_that_cannot_set_room_aside_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        let bytes = (2 << 20) + 5;
        fill(&mut File::create(&path).unwrap(), bytes).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), bytes);
    }

    #[test]
    fn a_reserve_that_does_not_fit_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        set_reserve(dir.path(), 1 << 20).unwrap();
        assert!(set_reserve(dir.path(), 1 << 60).is_err());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn room_set_aside_for_a_log_is_free_and_its_length_is_what_a_recovery_reads() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = File::create(dir.path().join("000004.log")).unwrap();
        log.write_all(&[1; 5_000]).unwrap();
        fs::write(dir.path().join("LOG"), [1; 9]).unwrap();
        let before = logs(dir.path()).set_aside_bytes;
        fallocate(&log, FallocateFlags::KEEP_SIZE, 0, 4 << 20).unwrap();
        let Logs { length_bytes, set_aside_bytes } = logs(dir.path());
        assert_eq!(length_bytes, 5_000);
        assert!(before < 64 << 10 && set_aside_bytes > 4_000_000, "{before} {set_aside_bytes}");
    }

    #[test]
    fn the_disk_of_a_store_that_is_not_there_yet_is_that_of_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let room = look(&dir.path().join("default/store"), 7).unwrap();
        assert!(room.total_bytes > 0 && room.free_bytes <= room.total_bytes);
        assert_eq!((room.reserve_bytes, room.wal_bytes, room.memtable_bytes), (0, 0, 7));
    }
}
