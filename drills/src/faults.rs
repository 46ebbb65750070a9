//! Faults of the disk below one directory, switched on and off while the node runs: the recorder without a recording.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ankusa_drills_replay::control::{PAGE_BYTES, Word};

use crate::drill::{CannotInject, OrCannot};
use crate::recorded::recorder::find_library;

/// The switches.
#[derive(Debug)]
pub struct Faults {
    library: PathBuf,
    root: PathBuf,
    page: PathBuf,
}

impl Faults {
    /// For everything below `root`, which has no symbolic link in its path. The switches are in a file at `page`.
    ///
    /// # Errors
    /// When the library is not there, or the file cannot be made.
    pub fn new(root: &Path, page: PathBuf) -> Result<Self, CannotInject> {
        let file = File::create(&page).or_cannot("make the control page")?;
        file.set_len(PAGE_BYTES).or_cannot("make the control page")?;
        Ok(Self { library: find_library()?, root: root.to_owned(), page })
    }

    /// What puts a process under the switches.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        vec![
            ("LD_PRELOAD".into(), self.library.as_os_str().to_owned()),
            ("DRILL_ROOT".into(), self.root.as_os_str().to_owned()),
            ("DRILL_CTL".into(), self.page.as_os_str().to_owned()),
        ]
    }

    /// Sets a switch. The process sees it at once.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn set(&self, word: Word, value: u64) -> Result<(), CannotInject> {
        let page =
            File::options().write(true).open(&self.page).or_cannot("open the control page")?;
        page.write_all_at(&value.to_le_bytes(), word.offset()).or_cannot("write the control page")
    }

    /// What a word holds now: a switch, or what was counted.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub fn get(&self, word: Word) -> Result<u64, CannotInject> {
        let page = File::open(&self.page).or_cannot("open the control page")?;
        let mut value = [0; 8];
        page.read_exact_at(&mut value, word.offset()).or_cannot("read the control page")?;
        Ok(u64::from_le_bytes(value))
    }
}
