//! A small file system in memory that a drill can fill, for whoever may make a user namespace or is root.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::drill::{CannotInject, OrCannot};
use crate::keeper::{Keeper, Rights};

/// What the keeper runs: it mounts, says so, and lives as long as its standard input.
const MOUNT: &str =
    r#"mount -t tmpfs -o "size=$1,mode=0700" tmpfs "$0" && echo mounted && exec cat"#;

/// Wait between two looks whether there is room to fill again.
const TOP_UP_EVERY: Duration = Duration::from_millis(5);

/// The file system.
pub struct TinyDisk {
    path: PathBuf,
    _keeper: Keeper,
}

impl TinyDisk {
    /// Mounts one of `mib` MiB over the directory `at`.
    ///
    /// # Errors
    /// When neither a user namespace nor root makes that possible.
    pub fn mount(at: &Path, mib: u64) -> Result<Self, CannotInject> {
        let size = format!("{mib}m");
        let words = ["sh".into(), "-c".into(), MOUNT.into(), at.into(), size.into()];
        let keeper = Keeper::start(Rights::Anybodys, &words)?;
        Ok(Self { path: keeper.path(at), _keeper: keeper })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Fills it up, and keeps it full.
    ///
    /// # Errors
    /// When there can be no file.
    pub fn fill(&self) -> Result<Filler, CannotInject> {
        let path = self.path.join("filler");
        let file = File::create(&path).or_cannot("fill the disk")?;
        let filling = Arc::new(AtomicBool::new(true));
        let full = Arc::new(AtomicBool::new(false));
        let (goes_on, was_full) = (Arc::clone(&filling), Arc::clone(&full));
        let thread = std::thread::spawn(move || fill(file, &goes_on, &was_full));
        Ok(Filler { path, filling, full, thread: Some(thread) })
    }
}

fn fill(mut file: File, goes_on: &AtomicBool, was_full: &AtomicBool) {
    let zeros = vec![0_u8; 1 << 20];
    while goes_on.load(Ordering::SeqCst) {
        for piece in [1 << 20, 1 << 16, 1 << 12] {
            while goes_on.load(Ordering::SeqCst)
                && file.write_all(zeros.get(..piece).unwrap_or_default()).is_ok()
            {}
        }
        was_full.store(true, Ordering::SeqCst);
        std::thread::sleep(TOP_UP_EVERY);
    }
}

/// What fills the disk. Dropped, it gives the room back.
pub struct Filler {
    path: PathBuf,
    filling: Arc<AtomicBool>,
    full: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Filler {
    /// Whether there was no room left once.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.full.load(Ordering::SeqCst)
    }

    /// Gives the room back.
    ///
    /// # Errors
    /// When it cannot.
    pub fn free(mut self) -> Result<(), CannotInject> {
        self.stop();
        std::fs::remove_file(&self.path).or_cannot("free the disk")
    }

    fn stop(&mut self) {
        self.filling.store(false, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            // It does not panic.
            let _ = thread.join();
        }
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        self.stop();
        let _ = std::fs::remove_file(&self.path);
    }
}
