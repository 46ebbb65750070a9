//! Walks through all folders: for what is stored, and for what was left unfinished.

use std::sync::Weak;

use ankusa_actors::ports::{BlobEntry, BlobError, is_unfinished};
use rustix::fs::{
    AtFlags, Dir, FlockOperation, Mode, OFlags, Stat, flock, openat, statat, unlinkat,
};
use rustix::io::Errno;
use tokio::time::Instant;

use super::folder::{Folder, Kind, failed};
use super::{Place, in_time};

/// What a file system keeps at its top for itself, unreadable to most.
const LOST_AND_FOUND: &str = "lost+found";

/// Every object whose key begins with `prefix`, in the order of the keys' bytes.
pub(super) fn list(
    root: &Folder,
    prefix: &str,
    deadline: Option<Instant>,
) -> Result<Vec<BlobEntry>, BlobError> {
    let mut found = Vec::new();
    // Of folders, those on the way to the prefix, and all below it.
    let leads_there = |path: &str| match path.len().checked_sub(prefix.len()) {
        Some(_at_least_as_long) => path.starts_with(prefix),
        None => prefix.strip_prefix(path).is_some_and(|rest| rest.starts_with('/')),
    };
    let mut walk = Walk::from(root);
    while let Some(folder) = walk.next_folder()? {
        in_time(deadline)?;
        folder.each(|name, path, stat| {
            match Kind::of(&stat) {
                Kind::Folder if leads_there(&path) => walk.ahead.push(path),
                Kind::Object if path.starts_with(prefix) && !is_unfinished(name) => {
                    let bytes = u64::try_from(stat.st_size).unwrap_or(0);
                    found.push(BlobEntry { key: path, bytes });
                }
                // Of another prefix; or no object of anybody's.
                Kind::Folder | Kind::Object | Kind::Link | Kind::Other => {}
            }
            Ok(())
        })?;
    }
    found.sort_unstable_by(|one, two| one.key.cmp(&two.key));
    Ok(found)
}

/// Removes the files that were left unfinished and that nobody writes to. Answers how many; ends early when there is
/// no `place` any more.
pub(super) fn sweep(root: &Folder, place: &Weak<Place>) -> Result<u64, BlobError> {
    let mut swept = 0;
    let mut walk = Walk::from(root);
    while let Some(folder) = walk.next_folder()? {
        if place.strong_count() == 0 {
            break;
        }
        folder.each(|name, path, stat| {
            match Kind::of(&stat) {
                Kind::Folder => walk.ahead.push(path),
                Kind::Object if is_unfinished(name) => {
                    swept += u64::from(remove_left(&folder.folder, name, &path)?);
                }
                Kind::Object | Kind::Link | Kind::Other => {}
            }
            Ok(())
        })?;
    }
    Ok(swept)
}

/// Removes a file that nobody has locked. Answers whether it did.
fn remove_left(folder: &Folder, name: &str, path: &str) -> Result<bool, BlobError> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(folder.fd(), name, flags, Mode::empty()) {
        Ok(file) => file,
        // Done by now.
        Err(Errno::NOENT) => return Ok(false),
        Err(errno) => return Err(failed("open", path, errno)),
    };
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        return Ok(false);
    }
    match unlinkat(folder.fd(), name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(errno) => Err(failed("remove", path, errno)),
    }
}

/// A walk through the folders below one, which holds one of them open at a time.
struct Walk<'a> {
    root: &'a Folder,
    /// The paths of those that were seen and not entered.
    ahead: Vec<String>,
}

/// One of them.
struct Visited {
    folder: Folder,
    path: String,
}

impl<'a> Walk<'a> {
    fn from(root: &'a Folder) -> Self {
        Self { root, ahead: vec![String::new()] }
    }

    fn next_folder(&mut self) -> Result<Option<Visited>, BlobError> {
        while let Some(path) = self.ahead.pop() {
            match self.root.again()?.below(&path) {
                Ok(Some(folder)) => return Ok(Some(Visited { folder, path })),
                // Gone meanwhile.
                Ok(None) => {}
                Err(BlobError::Forbidden(_)) if path == LOST_AND_FOUND => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

impl Visited {
    /// Shows what is in it: the name, the path and what it is. A name that is no text is no key's.
    fn each(
        &self,
        mut show: impl FnMut(&str, String, Stat) -> Result<(), BlobError>,
    ) -> Result<(), BlobError> {
        let failed = |doing, errno| failed(doing, &self.path, errno);
        let entries = Dir::read_from(self.folder.fd()).map_err(|errno| failed("read", errno))?;
        for entry in entries {
            let entry = entry.map_err(|errno| failed("read", errno))?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            let stat = match statat(self.folder.fd(), name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Gone meanwhile, or renamed: an unfinished one.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(failed("look at", errno)),
            };
            let path = match self.path.as_str() {
                "" => name.to_owned(),
                above => format!("{above}/{name}"),
            };
            show(name, path, stat)?;
        }
        Ok(())
    }
}
