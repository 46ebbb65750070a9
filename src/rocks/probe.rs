//! Plain files beside RocksDB's: whether the disk takes writes, and directories that are there after a power cut.
//!
//! All of it through `std::fs`, so that the drills' recorder sees every call.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// A name RocksDB does not know and leaves alone. In the database's own directory, because that may be a mount point and
/// its parent on another disk.
const PROBE: &str = "PROBE";
const PROBE_TEMPORARY: &str = "PROBE.tmp";

/// Writes a small file into `store`, syncs it and its directory, and takes it away again.
pub(super) fn write_synced(store: &Path) -> io::Result<()> {
    create_synced(store)?;
    let (temporary, file) = (store.join(PROBE_TEMPORARY), store.join(PROBE));
    let written = write_and_rename(&temporary, &file, store);
    // Whatever stands in the way of the one error that counts is not worth another.
    let _ = fs::remove_file(&temporary);
    let _ = fs::remove_file(&file);
    written
}

fn write_and_rename(temporary: &Path, file: &Path, store: &Path) -> io::Result<()> {
    let mut probe = File::create(temporary)?;
    // A block, so that it cannot hide in the inode.
    probe.write_all(&[0x5a; 4_096])?;
    probe.sync_all()?;
    fs::rename(temporary, file)?;
    sync_directory(store)
}

/// Makes `directory` and its missing parents, each entry on the disk before anything is put in it: RocksDB syncs its
/// own directory, nobody else the ones above it. The entry of one that is there already is synced too: whoever made it
/// may not have, and with it everything below would be gone.
///
/// # Errors
/// What the file system said.
pub fn create_synced(directory: &Path) -> io::Result<()> {
    let parent = match directory.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _other => Path::new("."),
    };
    if directory.is_dir() {
        // A folder above that may not be read was not made by this node either.
        return match sync_directory(parent) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
            synced => synced,
        };
    }
    create_synced(parent)?;
    if let Err(error) = fs::create_dir(directory) {
        if error.kind() != io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        if !directory.is_dir() {
            let what = format!("{} is not a directory", directory.display());
            return Err(io::Error::new(io::ErrorKind::NotADirectory, what));
        }
    }
    sync_directory(parent)
}

pub(super) fn sync_directory(directory: &Path) -> io::Result<()> {
    // A build that breaks this on purpose, for a drill to catch. Never in a release.
    if cfg!(feature = "canary-no-dir-fsync") {
        return Ok(());
    }
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_leaves_nothing_behind() {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("data/node/store");
        write_synced(&store).unwrap();
        write_synced(&store).unwrap();
        assert_eq!(fs::read_dir(&store).unwrap().count(), 0);
    }

    #[test]
    fn a_place_that_cannot_be_a_directory_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, b"").unwrap();
        let text = format!("{} is not a directory", file.display());
        assert_eq!(create_synced(&file).unwrap_err().to_string(), text);
        assert_eq!(create_synced(&file.join("node/store")).unwrap_err().to_string(), text);
        assert_eq!(write_synced(&file.join("store")).unwrap_err().to_string(), text);
    }
}
