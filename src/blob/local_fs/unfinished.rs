//! A write that is not in its place yet. Dropped before, it leaves nothing.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};

use ankusa_actors::ports::{BlobError, BlobKey};
use bytes::Bytes;
use rustix::fs::{
    AtFlags, FlockOperation, Mode, OFlags, RenameFlags, flock, fstat, linkat, openat, renameat,
    renameat_with, statat, unlinkat,
};
use rustix::io::Errno;

use super::folder::{Folder, failed, is_a_folder};
use super::object::errno;

/// How many names are tried. Each is taken only by another process of the same number, in another container.
const NAMES_MAX: u32 = 100;

/// Bytes of one call. For a call of megabytes, file systems with large folios look for as much memory in one piece, which
/// took ten times as long as the copy (ext4 of Linux 6.18: 200 ms for 16 MiB in one call, 20 ms in 64).
const WRITE_BYTES: usize = 256 << 10;

pub(super) struct Unfinished {
    folder: Folder,
    /// `<name>.tmp.<number>`
    beside: String,
    name: String,
    key: BlobKey,
    file: File,
    in_place: bool,
}

/// How a file is put where nothing is, best first.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A rename that replaces nothing.
    Rename,
    /// A second name of the file, which another name is in the way of.
    Link,
    /// A look, and a rename. Whoever comes in between is lost.
    Look,
}

impl Way {
    const ALL: [Self; 3] = [Self::Rename, Self::Link, Self::Look];
}

impl Unfinished {
    /// # Errors
    /// There cannot be another file.
    pub(super) fn new(folder: Folder, name: &str, key: &BlobKey) -> Result<Self, BlobError> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        for _name in 0..NAMES_MAX {
            let beside = format!("{name}.tmp.{}", number());
            match openat(folder.fd(), &beside, flags, Mode::from_raw_mode(0o666)) {
                Ok(fd) => {
                    let file = File::from(fd);
                    if is_taken(&file) {
                        continue;
                    }
                    let (name, key) = (name.to_owned(), key.clone());
                    return Ok(Self { folder, beside, name, key, file, in_place: false });
                }
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(failed("make a file beside", key.as_str(), errno)),
            }
        }
        Err(failed("make a file beside", key.as_str(), Errno::EXIST))
    }

    /// With these bytes at its end.
    pub(super) fn with(mut self, pieces: &[Bytes]) -> Result<Self, BlobError> {
        for bytes in pieces.iter().flat_map(|piece| piece.chunks(WRITE_BYTES)) {
            let written = self.file.write_all(bytes);
            written.map_err(|error| failed("write", self.key.as_str(), errno(&error)))?;
        }
        Ok(self)
    }

    /// Over what is in its place.
    pub(super) fn replace(mut self) -> Result<(), BlobError> {
        self.sync()?;
        let dir = self.folder.fd();
        match renameat(dir, &self.beside, dir, &self.name) {
            Ok(()) => self.in_place = true,
            Err(Errno::ISDIR) => return Err(is_a_folder(&self.key)),
            Err(errno) => return Err(failed("rename to", self.key.as_str(), errno)),
        }
        self.folder.sync(self.key.as_str())
    }

    /// Unless something is in its place: answers whether it is there now.
    pub(super) fn create(self) -> Result<bool, BlobError> {
        self.sync()?;
        for way in Way::ALL {
            match self.take(way) {
                Ok(false) => return Ok(false),
                Ok(true) => return self.settled(),
                // The file system cannot do that.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP | Errno::PERM | Errno::MLINK) => {}
                Err(errno) => return Err(failed("rename to", self.key.as_str(), errno)),
            }
        }
        Err(failed("rename to", self.key.as_str(), Errno::PERM))
    }

    fn settled(mut self) -> Result<bool, BlobError> {
        self.in_place = true;
        self.folder.sync(self.key.as_str())?;
        Ok(true)
    }

    fn take(&self, way: Way) -> Result<bool, Errno> {
        let (dir, from, to) = (self.folder.fd(), &self.beside, &self.name);
        let taken = match way {
            Way::Rename => renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE),
            Way::Link => linkat(dir, from, dir, to, AtFlags::empty()).map(|()| {
                // The other name is hidden, and swept one day, if it cannot go now.
                let _swept_later = unlinkat(dir, from, AtFlags::empty());
            }),
            Way::Look => match statat(dir, to, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(_there) => Err(Errno::EXIST),
                Err(Errno::NOENT) => renameat(dir, from, dir, to),
                Err(errno) => Err(errno),
            },
        };
        match taken {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(errno) => Err(errno),
        }
    }

    fn sync(&self) -> Result<(), BlobError> {
        self.file.sync_all().map_err(|error| failed("sync", self.key.as_str(), errno(&error)))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.in_place {
            // If it cannot go now it is hidden, and swept when a store is opened here.
            let _swept_later = unlinkat(self.folder.fd(), &self.beside, AtFlags::empty());
        }
    }
}

/// Says that somebody writes to a new file. Answers whether a store that was opened in this moment took it for a dead
/// one's: it removes it then, with the lock in its hand.
fn is_taken(file: &File) -> bool {
    // Where there are no locks nothing can be locked by those who sweep, either.
    let is_locked = flock(file, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
    is_locked || fstat(file).is_ok_and(|stat| stat.st_nlink == 0)
}

/// One that no other write of this host has now.
fn number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed) & u64::from(u32::MAX);
    u64::from(std::process::id()) << 32 | next
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::fs;

    use super::*;

    fn names(dir: &std::path::Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn every_way_takes_an_empty_place_and_no_other() {
        for way in Way::ALL {
            let dir = tempfile::tempdir().unwrap();
            let begin = |bytes: &'static [u8]| {
                let key = BlobKey::new("k").unwrap();
                let file = Unfinished::new(Folder::root(dir.path()).unwrap(), "k", &key).unwrap();
                file.with(&[Bytes::from_static(bytes)]).unwrap()
            };
            let mut first = begin(b"first");
            assert_eq!(first.take(way), Ok(true), "{way:?}");
            first.in_place = true;
            assert_eq!(names(dir.path()), ["k"], "{way:?}");
            let second = begin(b"second");
            assert_eq!(second.take(way), Ok(false), "{way:?}");
            assert_eq!(names(dir.path()), ["k".to_owned(), second.beside.clone()], "{way:?}");
            drop(second);
            assert_eq!(names(dir.path()), ["k"], "{way:?}");
            assert_eq!(fs::read(dir.path().join("k")).unwrap(), b"first", "{way:?}");
        }
    }

    #[test]
    fn the_longest_name_has_room_for_its_number() {
        let longest = "n".repeat(ankusa_actors::ports::BLOB_KEY_PART_MAX_BYTES);
        assert!(format!("{longest}.tmp.{}", u64::MAX).len() <= 255);
        assert!(ankusa_actors::ports::is_unfinished(&format!("k.tmp.{}", number())));
    }
}
