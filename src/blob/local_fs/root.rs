//! The folder of a store, made so that a power cut does not take it.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::Path;

use ankusa_actors::ports::BlobError;

use super::folder::failed;
use super::object::errno;

/// Makes `root` and every folder above it that is missing, each on the disk before the one below it.
///
/// # Errors
/// One of them cannot be made, or is no folder.
pub(super) fn make(root: &Path) -> Result<(), BlobError> {
    make_synced(root).map_err(|error| failed("make", &root.display().to_string(), errno(&error)))
}

fn make_synced(root: &Path) -> io::Result<()> {
    let root = std::path::absolute(root)?;
    let mut missing = Vec::new();
    for folder in root.ancestors() {
        match fs::metadata(folder) {
            Ok(found) if found.is_dir() => break,
            Ok(_file) => return Err(io::Error::from(rustix::io::Errno::NOTDIR)),
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push(folder),
            Err(error) => return Err(error),
        }
    }
    if missing.is_empty() {
        // Whoever made it may have died before its name was on the disk. Not all may read what is above.
        let _best = root.parent().map_or(Ok(()), sync);
    }
    for folder in missing.into_iter().rev() {
        match fs::create_dir(folder) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        folder.parent().map_or(Ok(()), sync)?;
    }
    Ok(())
}

fn sync(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
