//! One folder, held open: everything below it is named by one part of a path at a time, so that no name leads elsewhere.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use ankusa_actors::ports::{BlobError, BlobKey};
use rustix::fs::{
    AtFlags, FileType, Mode, OFlags, Stat, fstat, fsync, mkdirat, open, openat, statat, unlinkat,
};
use rustix::io::Errno;

use super::object::Object;

pub(super) struct Folder(OwnedFd);

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file.
    Object,
    Folder,
    Link,
    /// A pipe, a socket, a device.
    Other,
}

impl Kind {
    pub(super) fn of(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::RegularFile {
            Self::Object
        } else if kind == FileType::Directory {
            Self::Folder
        } else if kind == FileType::Symlink {
            Self::Link
        } else {
            Self::Other
        }
    }
}

/// What is in a folder under a name.
pub(super) enum Found {
    Object(Object),
    Folder,
    Nothing,
}

impl Folder {
    /// # Errors
    /// `transport`: there is none, or none any more.
    pub(super) fn root(path: &Path) -> Result<Self, BlobError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = open(path, flags, Mode::empty());
        opened.map(Self).map_err(|errno| failed("open", &path.display().to_string(), errno))
    }

    pub(super) const fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// The same folder, open once more.
    pub(super) fn again(&self) -> Result<Self, BlobError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let opened = openat(&self.0, ".", flags, Mode::empty());
        opened.map(Self).map_err(|errno| failed("open", "a folder", errno))
    }

    /// A folder below this one, if there is one.
    ///
    /// # Errors
    /// It cannot be entered, or the way leads over a symbolic link.
    pub(super) fn below(self, path: &str) -> Result<Option<Self>, BlobError> {
        let mut folder = self;
        for part in path.split('/').filter(|part| !part.is_empty()) {
            match folder.enter(part, path)? {
                Ok(below) => folder = below,
                Err(Instead::Nothing | Instead::Object) => return Ok(None),
            }
        }
        Ok(Some(folder))
    }

    fn enter(&self, name: &str, path: &str) -> Result<Result<Self, Instead>, BlobError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => Ok(Ok(Self(fd))),
            Err(Errno::NOENT) => Ok(Err(Instead::Nothing)),
            Err(Errno::NOTDIR | Errno::LOOP) => match self.kind(name, path)? {
                Some(Kind::Link) => Err(is_a_link(path)),
                Some(Kind::Folder | Kind::Object | Kind::Other) => Ok(Err(Instead::Object)),
                None => Ok(Err(Instead::Nothing)),
            },
            Err(errno) => Err(failed("open", path, errno)),
        }
    }

    /// # Errors
    /// Something else is there, or it cannot be made.
    pub(super) fn enter_or_make(&self, name: &str, path: &str) -> Result<Self, BlobError> {
        let object = || {
            let why = format!("{path} is an object: there is none below it");
            Err(BlobError::Misconfigured(why))
        };
        match self.enter(name, path)? {
            Ok(below) => return Ok(below),
            Err(Instead::Object) => return object(),
            Err(Instead::Nothing) => {}
        }
        match mkdirat(&self.0, name, Mode::from_raw_mode(0o777)) {
            // Somebody else was quicker.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed("make", path, errno)),
        }
        match self.enter(name, path)? {
            Ok(below) => Ok(below),
            Err(Instead::Object) => object(),
            Err(Instead::Nothing) => Err(failed("open", path, Errno::NOENT)),
        }
    }

    /// # Errors
    /// It cannot be read, or it is neither a file nor a folder.
    pub(super) fn find(&self, name: &str, key: &BlobKey) -> Result<Found, BlobError> {
        // A pipe nobody writes to would hold an open that waits.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match openat(&self.0, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(Found::Nothing),
            Err(Errno::LOOP) => return Err(is_a_link(key.as_str())),
            Err(Errno::NXIO) => return Err(is_no_file(key)),
            Err(errno) => return Err(failed("open", key.as_str(), errno)),
        };
        let stat = fstat(&fd).map_err(|errno| failed("look at", key.as_str(), errno))?;
        match Kind::of(&stat) {
            Kind::Object => Ok(Found::Object(Object::new(fd, stat.st_size))),
            Kind::Folder => Ok(Found::Folder),
            Kind::Link | Kind::Other => Err(is_no_file(key)),
        }
    }

    /// # Errors
    /// What is there is no object, and no object can be put over it.
    pub(super) fn takes(&self, name: &str, key: &BlobKey) -> Result<(), BlobError> {
        match self.kind(name, key.as_str())? {
            None | Some(Kind::Object) => Ok(()),
            Some(Kind::Folder) => Err(is_a_folder(key)),
            Some(Kind::Link) => Err(is_a_link(key.as_str())),
            Some(Kind::Other) => Err(is_no_file(key)),
        }
    }

    /// Removes an object. A folder is none.
    pub(super) fn remove(&self, name: &str, key: &BlobKey) -> Result<(), BlobError> {
        match self.kind(name, key.as_str())? {
            None | Some(Kind::Folder) => return Ok(()),
            Some(Kind::Object | Kind::Link | Kind::Other) => self.takes(name, key)?,
        }
        match unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => self.sync(key.as_str()),
            Err(errno) => Err(failed("remove", key.as_str(), errno)),
        }
    }

    /// What there is under a name, links not followed.
    fn kind(&self, name: &str, path: &str) -> Result<Option<Kind>, BlobError> {
        match statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Kind::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(failed("look at", path, errno)),
        }
    }

    /// Has the names in it on the disk.
    pub(super) fn sync(&self, path: &str) -> Result<(), BlobError> {
        fsync(&self.0).map_err(|errno| failed("sync the folder of", path, errno))
    }

    pub(super) fn inode(&self) -> Result<u64, BlobError> {
        fstat(&self.0).map(|stat| stat.st_ino).map_err(|errno| failed("look at", "a folder", errno))
    }
}

/// What is in the place of a folder.
enum Instead {
    Nothing,
    Object,
}

/// The error of the contract, see the table of the module.
pub(super) fn failed(doing: &str, path: &str, errno: Errno) -> BlobError {
    let told = format!("cannot {doing} {path}: {}", io::Error::from(errno));
    match errno {
        Errno::ACCESS | Errno::PERM => BlobError::Forbidden(told),
        Errno::ROFS
        | Errno::ISDIR
        | Errno::NOTDIR
        | Errno::LOOP
        | Errno::NAMETOOLONG
        | Errno::FBIG
        | Errno::INVAL => BlobError::Misconfigured(told),
        _the_disks => BlobError::Transport(told),
    }
}

pub(super) fn is_a_folder(key: &BlobKey) -> BlobError {
    BlobError::Misconfigured(format!("{key} is a folder: there are objects below it"))
}

fn is_a_link(path: &str) -> BlobError {
    BlobError::Misconfigured(format!(
        "{path} is or leads over a symbolic link, which is not followed"
    ))
}

fn is_no_file(key: &BlobKey) -> BlobError {
    BlobError::Misconfigured(format!("{key} is not a file"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_answers_is_one_of_the_contracts_errors() {
        let words = [
            (Errno::ACCESS, "forbidden"),
            (Errno::PERM, "forbidden"),
            (Errno::ROFS, "misconfigured"),
            (Errno::ISDIR, "misconfigured"),
            (Errno::NOTDIR, "misconfigured"),
            (Errno::LOOP, "misconfigured"),
            (Errno::NAMETOOLONG, "misconfigured"),
            (Errno::FBIG, "misconfigured"),
            (Errno::NOSPC, "transport"),
            (Errno::DQUOT, "transport"),
            (Errno::IO, "transport"),
            (Errno::MFILE, "transport"),
            (Errno::STALE, "transport"),
        ];
        for (errno, word) in words {
            assert_eq!(failed("open", "k", errno).as_str(), word, "{errno}");
        }
        let told = "transport: cannot write a/b: No space left on device (os error 28)";
        assert_eq!(failed("write", "a/b", Errno::NOSPC).to_string(), told);
    }
}
