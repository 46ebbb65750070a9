//! A process with mounts of its own.
//!
//! What it mounts is reached through its root in `/proc`: nobody else has to enter anything, no other process sees a mount,
//! and when the process ends, which it does when the drill does, all of it is gone.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::drill::{CannotInject, OrCannot};

/// Whose rights the process has over its mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// A user namespace's, or root's where there are none.
    Anybodys,
    /// Root's: devices are mounted by nobody else.
    Roots,
}

/// What the process says once it has mounted.
pub const MOUNTED: &str = "mounted";

/// The process. It is ended when this is dropped.
pub struct Keeper {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Keeper {
    /// Runs a program that says [`MOUNTED`] once it has, and lives as long as its standard input.
    ///
    /// # Errors
    /// When the rights or the mount are not to be had.
    pub fn start(rights: Rights, words: &[OsString]) -> Result<Self, CannotInject> {
        let is_root = rustix::process::geteuid().is_root();
        match rights {
            Rights::Roots => Self::start_in(&["-m"], words),
            Rights::Anybodys => Self::start_in(&["-U", "-r", "-m"], words)
                .or_else(|error| if is_root { Self::start_in(&["-m"], words) } else { Err(error) }),
        }
    }

    fn start_in(namespaces: &[&str], words: &[OsString]) -> Result<Self, CannotInject> {
        let mut child = Command::new("unshare")
            .args(namespaces)
            .arg("--")
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .or_cannot("run unshare")?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(CannotInject("talk to unshare".to_owned()));
        };
        let mut keeper = Self { child, input, output: BufReader::new(output) };
        if keeper.hear()? == MOUNTED {
            return Ok(keeper);
        }
        let mut why = String::new();
        if let Some(mut errors) = keeper.child.stderr.take() {
            // What cannot be read is not told.
            let _ = std::io::Read::read_to_string(&mut errors, &mut why);
        }
        Err(CannotInject(format!("mount in a namespace of its own: {}", why.trim())))
    }

    /// A path as the process sees it, for everybody else.
    #[must_use]
    pub fn path(&self, inside: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.child.id()));
        root.join(inside.strip_prefix("/").unwrap_or(inside))
    }

    /// Tells the process a line and answers the line it says to that.
    ///
    /// # Errors
    /// When it is gone.
    pub fn ask(&mut self, line: &str) -> Result<String, CannotInject> {
        writeln!(self.input, "{line}").or_cannot("tell the keeper of the mounts something")?;
        self.hear()
    }

    fn hear(&mut self) -> Result<String, CannotInject> {
        let mut said = String::new();
        self.output.read_line(&mut said).or_cannot("hear the keeper of the mounts")?;
        Ok(said.trim().to_owned())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Whether it is gone already does not matter.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
