//! A small file system in memory that a drill can fill, for whoever may make a user namespace or is root.
//!
//! It is mounted in the namespace of a process of its own, the keeper, and reached through that process's root in `/proc`:
//! nobody else has to enter anything, no other process sees a mount, and with the keeper, which ends when the drill does,
//! the file system is gone.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::drill::{CannotInject, OrCannot};

/// What the keeper runs: it mounts, says so, and lives as long as its standard input.
const KEEPER: &str =
    r#"mount -t tmpfs -o "size=$1,mode=0700" tmpfs "$0" && echo mounted && exec cat"#;

/// Wait between two looks whether there is room to fill again.
const TOP_UP_EVERY: Duration = Duration::from_millis(5);

/// The file system.
pub struct TinyDisk {
    keeper: Child,
    path: PathBuf,
}

impl TinyDisk {
    /// Mounts one of `mib` MiB over the directory `at`.
    ///
    /// # Errors
    /// When neither a user namespace nor root makes that possible.
    pub fn mount(at: &Path, mib: u64) -> Result<Self, CannotInject> {
        let in_user_namespace = Self::mount_by(&["-U", "-r", "-m"], at, mib);
        if in_user_namespace.is_err() && rustix::process::geteuid().is_root() {
            return Self::mount_by(&["-m"], at, mib);
        }
        in_user_namespace
    }

    fn mount_by(namespaces: &[&str], at: &Path, mib: u64) -> Result<Self, CannotInject> {
        let mut keeper = Command::new("unshare")
            .args(namespaces)
            .args(["sh", "-c", KEEPER])
            .arg(at)
            .arg(format!("{mib}m"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .or_cannot("run unshare")?;
        let mut said = String::new();
        if let Some(output) = keeper.stdout.take() {
            BufReader::new(output).read_line(&mut said).or_cannot("hear of the mount")?;
        }
        if said.trim() != "mounted" {
            let failed = keeper.wait_with_output().or_cannot("hear of the mount")?;
            let why = String::from_utf8_lossy(&failed.stderr).trim().to_owned();
            return Err(CannotInject(format!(
                "mount a file system in memory in a namespace: {why}; it takes user namespaces, or root"
            )));
        }
        let root = PathBuf::from(format!("/proc/{}/root", keeper.id()));
        let below = at.strip_prefix("/").unwrap_or(at);
        Ok(Self { path: root.join(below), keeper })
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

impl Drop for TinyDisk {
    fn drop(&mut self) {
        // It ends with its input; whether it is gone already does not matter.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
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
