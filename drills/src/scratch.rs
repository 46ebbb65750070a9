//! Where drills put their files.

use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::drill::{CannotInject, DrillOptions, OrCannot, Report, Verdict};

/// Overrides where scratch directories are made.
const VARIABLE: &str = "ANKUSA_DRILLS_SCRATCH";

/// A file system in memory, where there is one.
const MEMORY: &str = "/dev/shm";

/// A directory that is removed with everything in it when this is dropped. Its path has no symbolic link in it, as the
/// recorder needs it.
pub struct Scratch {
    directory: TempDir,
    path: PathBuf,
}

impl Scratch {
    /// On a real disk: for stores whose fsyncs are to cost something.
    ///
    /// # Errors
    /// When no directory can be made.
    pub fn on_disk() -> Result<Self, CannotInject> {
        Self::below(std::env::var_os(VARIABLE).map_or_else(std::env::temp_dir, PathBuf::from))
    }

    /// In memory where there is such a place, else on disk: for thousands of images.
    ///
    /// # Errors
    /// When no directory can be made.
    pub fn in_memory() -> Result<Self, CannotInject> {
        if std::env::var_os(VARIABLE).is_none()
            && let Ok(scratch) = Self::below(PathBuf::from(MEMORY))
        {
            return Ok(scratch);
        }
        Self::on_disk()
    }

    fn below(base: PathBuf) -> Result<Self, CannotInject> {
        let directory = tempfile::Builder::new()
            .prefix("drill-")
            .tempdir_in(&base)
            .or_cannot(format_args!("make a directory in {}", base.display()))?;
        let path = directory.path().canonicalize().or_cannot("resolve the scratch directory")?;
        Ok(Self { directory, path })
    }

    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory in it.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn subdirectory(&self, name: &str) -> Result<PathBuf, CannotInject> {
        let path = self.path.join(name);
        std::fs::create_dir_all(&path).or_cannot(format_args!("make {}", path.display()))?;
        Ok(path)
    }

    /// A directory of its own below this one, removed when the room is dropped.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn room(&self) -> Result<Self, CannotInject> {
        Self::below(self.path.clone())
    }

    /// Removes the directory, unless the drill found something and somebody wants to look at it: then the report says
    /// where it is.
    pub fn keep_evidence(self, options: &DrillOptions, report: &mut Report) {
        if options.keeps_evidence && report.verdict == Verdict::Violated {
            report.count("evidence", self.directory.keep().display().to_string());
        }
    }
}
