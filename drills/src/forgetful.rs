//! The file system that forgets (`ankusa-drills-fs`), in a process of its own: this is both ends of the pipe to it.

use std::io::{self, BufRead, Write};
use std::path::{Path, PathBuf};

use ankusa_drills_fs::mount::Mounted;

use crate::drill::{CannotInject, OrCannot};
use crate::keeper::{Keeper, MOUNTED, Rights};

/// The hidden command under which the binary is the file system.
pub const COMMAND: &str = "forgetful";

/// The words of the pipe.
const CUT: &str = "cut";
const ON: &str = "on";

/// The file system: mounts itself, then does as it is told until its standard input ends.
///
/// # Errors
/// When it cannot mount, or is not heard.
pub fn run(at: &Path) -> io::Result<()> {
    let owner = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    let mounted = Mounted::at(at, owner)?;
    let mut output = io::stdout().lock();
    writeln!(output, "{MOUNTED}")?;
    for line in io::stdin().lock().lines() {
        let line = line?;
        match line.split_once(' ').map(|(word, seed)| (word, seed.parse())) {
            Some((CUT, Ok(seed))) => {
                let cut = mounted.cut(seed);
                writeln!(output, "{} {}", cut.syncs, cut.forgotten)?;
            }
            Some(_) | None if line == ON => {
                mounted.power_on();
                writeln!(output, "{ON}")?;
            }
            Some(_) | None => writeln!(output, "?")?,
        }
    }
    Ok(())
}

/// What a cut found and forgot.
#[derive(Clone, Copy, Debug)]
pub struct Cut {
    /// Fsyncs since the mount.
    pub syncs: u64,
    /// Writes that were forgotten.
    pub forgotten: u64,
}

/// The other end.
pub struct Forgetful {
    keeper: Keeper,
    path: PathBuf,
}

impl Forgetful {
    /// Mounts one over the directory `at`.
    ///
    /// # Errors
    /// When there is no `/dev/fuse`, or no right to mount.
    pub fn mount(at: &Path) -> Result<Self, CannotInject> {
        let this = std::env::current_exe().or_cannot("find this program")?;
        let words = [this.into_os_string(), COMMAND.into(), at.into()];
        let keeper = Keeper::start(Rights::Anybodys, &words)?;
        Ok(Self { path: keeper.path(at), keeper })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The power goes: every call fails from here on, and what was not fsynced is forgotten.
    ///
    /// # Errors
    /// When the file system is gone.
    pub fn cut(&mut self, seed: u64) -> Result<Cut, CannotInject> {
        let said = self.keeper.ask(&format!("{CUT} {seed}"))?;
        let numbers = said.split_once(' ').and_then(|(syncs, forgotten)| {
            Some(Cut { syncs: syncs.parse().ok()?, forgotten: forgotten.parse().ok()? })
        });
        numbers.ok_or_else(|| CannotInject(format!("cut the power: the file system said {said:?}")))
    }

    /// The power is back.
    ///
    /// # Errors
    /// When the file system is gone.
    pub fn power_on(&mut self) -> Result<(), CannotInject> {
        match self.keeper.ask(ON)?.as_str() {
            ON => Ok(()),
            said => Err(CannotInject(format!("turn the power on: the file system said {said:?}"))),
        }
    }
}
