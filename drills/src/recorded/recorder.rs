//! The recorder's side of a drill: where it logs, what it is told, and the library that is loaded.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ankusa_drills_replay::control::{FILTER_OFFSET, PAGE_BYTES, Word};

use crate::drill::{CannotInject, OrCannot};
use crate::scratch::Scratch;

/// The library's file name, as cargo makes it.
const LIBRARY: &str = "libankusa_drills_shim.so";

/// Overrides where the library is looked for.
const VARIABLE: &str = "ANKUSA_DRILLS_SHIM";

/// One recording: an empty root, a log, a mark file and a control page.
#[derive(Debug)]
pub struct Recorder {
    library: PathBuf,
    root: PathBuf,
    log: PathBuf,
    mark: PathBuf,
    page: PathBuf,
}

impl Recorder {
    /// Prepares a recording in a scratch directory.
    ///
    /// # Errors
    /// When the library is not there, or the files cannot be made.
    pub fn new(scratch: &Scratch) -> Result<Self, CannotInject> {
        let root = scratch.subdirectory("root")?;
        let [log, mark, page] = ["oplog", "mark", "page"].map(|name| scratch.path().join(name));
        let file = File::create(&page).or_cannot("make the control page")?;
        file.set_len(PAGE_BYTES).or_cannot("make the control page")?;
        Ok(Self { library: find_library()?, root, log, mark, page })
    }

    /// The directory that is recorded.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The operation log.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The file whose writes become marks.
    #[must_use]
    pub fn mark(&self) -> &Path {
        &self.mark
    }

    /// What makes a process be recorded. Its fsyncs are logged and not carried out: the cut is modelled, and a drill on a
    /// machine whose disk is busy takes as long as any other.
    #[must_use]
    pub fn environment(&self) -> Vec<(OsString, OsString)> {
        let path = |path: &Path| path.as_os_str().to_owned();
        vec![
            ("LD_PRELOAD".into(), path(&self.library)),
            ("DRILL_ROOT".into(), path(&self.root)),
            ("DRILL_LOG".into(), path(&self.log)),
            ("DRILL_MARK".into(), path(&self.mark)),
            ("DRILL_CTL".into(), path(&self.page)),
            ("DRILL_NOFSYNC".into(), "1".into()),
        ]
    }

    /// Sets a word of the control page. The recorded process sees it at once.
    ///
    /// # Errors
    /// When the page cannot be written.
    pub fn set(&self, word: Word, value: u64) -> Result<(), CannotInject> {
        let page =
            File::options().write(true).open(&self.page).or_cannot("open the control page")?;
        page.write_all_at(&value.to_le_bytes(), word.offset()).or_cannot("write the control page")
    }

    /// Sets the filter's bytes.
    pub(super) fn set_filter(&self, filter: &[u8]) -> Result<(), CannotInject> {
        let page =
            File::options().write(true).open(&self.page).or_cannot("open the control page")?;
        page.write_all_at(filter, FILTER_OFFSET).or_cannot("write the control page")
    }

    /// What a word of the control page holds now: a fault, or what was counted.
    ///
    /// # Errors
    /// When the page cannot be read.
    pub fn get(&self, word: Word) -> Result<u64, CannotInject> {
        let page = File::open(&self.page).or_cannot("open the control page")?;
        let mut value = [0; 8];
        page.read_exact_at(&mut value, word.offset()).or_cannot("read the control page")?;
        Ok(u64::from_le_bytes(value))
    }

    /// What makes a process meet faults, without being recorded.
    #[must_use]
    pub fn environment_of_faults(&self) -> Vec<(OsString, OsString)> {
        let mut environment = self.environment();
        environment.retain(|(name, _)| name != "DRILL_LOG" && name != "DRILL_MARK");
        environment
    }

    /// The whole log.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read_log(&self) -> Result<Vec<u8>, CannotInject> {
        std::fs::read(&self.log).or_cannot("read the operation log")
    }
}

/// The library: where the variable says, or beside this program, or where cargo puts what a program depends on.
pub(crate) fn find_library() -> Result<PathBuf, CannotInject> {
    if let Some(path) = std::env::var_os(VARIABLE) {
        return PathBuf::from(path)
            .canonicalize()
            .or_cannot(format_args!("find the recorder that {VARIABLE} names"));
    }
    let this = std::env::current_exe().or_cannot("find this program")?;
    let directory = this.parent().unwrap_or(Path::new("."));
    [directory.join(LIBRARY), directory.join("deps").join(LIBRARY)].into_iter().find(|path| path.exists()).ok_or_else(|| {
        CannotInject(format!("cannot find {LIBRARY} beside {}: build it with `cargo build -p ankusa-drills-shim`, or set {VARIABLE}", this.display()))
    })
}
