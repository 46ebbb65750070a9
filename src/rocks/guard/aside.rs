//! Keeping what is about to be cut off.
//!
//! The directory is linked file by file into a folder of its own in it, `cut-<Unix milliseconds>`: another database to
//! open, and nothing copied. Files are then shortened by putting a shorter one in their place, so what is linked keeps
//! its bytes. Links keep files on the disk that the database has deleted since; the folders are nobody's, and whoever
//! has looked at one may remove it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The newest folders stay, so many.
const KEPT: usize = 2;

const PREFIX: &str = "cut-";
const TEMPORARY: &str = "CUT.tmp";

/// Links every file of `store` into a new folder, on the disk when this returns. Answers the folder.
pub(super) fn keep(store: &Path) -> io::Result<PathBuf> {
    let folder = new_folder(store)?;
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_nothing_to_keep = name.to_str().is_some_and(|name| {
            name == "LOCK" || name == "LOG" || name.starts_with("LOG.") || name.ends_with(".tmp")
        });
        if is_nothing_to_keep || !entry.file_type()?.is_file() {
            continue;
        }
        let to = folder.join(&name);
        // Not every file system has links.
        fs::hard_link(entry.path(), &to)
            .or_else(|_| fs::copy(entry.path(), &to).and_then(|_| File::open(&to)?.sync_all()))?;
    }
    File::open(&folder)?.sync_all()?;
    File::open(store)?.sync_all()?;
    forget_all_but_the_newest(store)?;
    Ok(folder)
}

fn new_folder(store: &Path) -> io::Result<PathBuf> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    for stamp in now.. {
        let folder = store.join(format!("{PREFIX}{stamp:013}"));
        match fs::create_dir(&folder) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| folder),
        }
    }
    Err(io::Error::other("no name is free"))
}

fn forget_all_but_the_newest(store: &Path) -> io::Result<()> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(store)? {
        let entry = entry?;
        let stamp = entry
            .file_name()
            .to_str()
            .and_then(|name| name.strip_prefix(PREFIX)?.parse::<u128>().ok());
        if let Some(stamp) = stamp.filter(|_| entry.path().is_dir()) {
            folders.push((stamp, entry.path()));
        }
    }
    folders.sort();
    let old = folders.len().saturating_sub(KEPT);
    folders.into_iter().take(old).try_for_each(|(_, folder)| fs::remove_dir_all(folder))
}

/// Puts a file of the first `len` bytes of `path` in its place: before a power cut or after it, never in between.
pub(super) fn shorten(path: &Path, len: u64) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let temporary = folder.join(TEMPORARY);
    let mut shorter = File::create(&temporary)?;
    io::copy(&mut File::open(path)?.take(len), &mut shorter)?;
    shorter.sync_all()?;
    drop(shorter);
    fs::rename(&temporary, path)?;
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_stays_as_it_was_and_only_the_newest_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("000009.log");
        for name in ["CURRENT", "LOCK", "LOG", "LOG.old.1", "SEAL.tmp"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let mut folders = Vec::new();
        for round in 0..4_u8 {
            fs::write(&file, [round; 10]).unwrap();
            folders.push(keep(dir.path()).unwrap());
            shorten(&file, 4).unwrap();
            assert_eq!(fs::read(&file).unwrap(), [round; 4]);
            assert_eq!(fs::read(folders.last().unwrap().join("000009.log")).unwrap(), [round; 10]);
        }
        let mut kept: Vec<_> =
            fs::read_dir(&folders[3]).unwrap().map(|e| e.unwrap().file_name()).collect();
        kept.sort();
        assert_eq!(kept, ["000009.log", "CURRENT"]);
        let there: Vec<bool> = folders.iter().map(|folder| folder.exists()).collect();
        assert_eq!(there, [false, false, true, true]);
    }
}
