//! Processes of the bench: this very program under another command, its CPU time, and its end.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::drill::{CannotInject, OrCannot};
use crate::ports;

/// Ticks of a second in `/proc`: a constant of the kernel's interface, whatever its own clock runs at.
const TICKS_PER_SECOND: u64 = 100;

/// A child of the bench. It is killed when this is dropped, and ends by itself when the bench does.
pub(super) struct Process {
    what: String,
    child: Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts this program with other arguments and an empty environment, so that nothing outside decides how it runs.
    /// What it says on standard error goes into `log`; what it says on standard output is for [`Process::line`].
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn start(
        what: &str,
        arguments: impl IntoIterator<Item = String>,
        log: &Path,
    ) -> Result<Self, CannotInject> {
        let this = std::env::current_exe().or_cannot("find this program")?;
        let log = File::options().create(true).append(true).open(log);
        let log = log.or_cannot(format_args!("write the log of {what}"))?;
        let mut child = Command::new(this)
            .args(arguments)
            .env_clear()
            // Held until this is dropped: a floor ends when it is closed.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .or_cannot(format_args!("start {what}"))?;
        let said = child.stdout.take().map(BufReader::new);
        Ok(Self { what: what.to_owned(), child, said })
    }

    /// The next line it says, waited for as long as it lives.
    ///
    /// # Errors
    /// When it ends without one.
    pub(super) fn line(&mut self) -> Result<String, CannotInject> {
        let mut line = String::new();
        if let Some(said) = &mut self.said {
            said.read_line(&mut line).or_cannot(format_args!("hear from {}", self.what))?;
        }
        if line.is_empty() {
            return Err(CannotInject(format!("cannot hear from {}: it has ended", self.what)));
        }
        Ok(line.trim().to_owned())
    }

    /// Whether it still runs.
    pub(super) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// See [`cpu_of`].
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn cpu(&self) -> Result<Duration, CannotInject> {
        cpu_of(&self.child.id().to_string())
            .ok_or_else(|| CannotInject(format!("cannot read the CPU time of {}", self.what)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Nothing to do about a process that cannot be killed, and one that is gone is what we want.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// CPU time of a process so far, all threads, user and system, to 10 ms. `pid` may be `self`.
pub(super) fn cpu_of(pid: &str) -> Option<Duration> {
    ticks(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
        .map(|ticks| Duration::from_millis(ticks.saturating_mul(1_000 / TICKS_PER_SECOND)))
}

/// `utime` and `stime`, the 14th and 15th field. The second is a name in parentheses that may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let (user, system) = (fields.next()?.parse::<u64>().ok()?, fields.next()?.parse::<u64>().ok()?);
    Some(user + system)
}

/// A port nobody listens on. Somebody may take it before we do; then the node says so and does not come up.
///
/// # Errors
/// When there is none.
pub(super) fn free_port() -> Result<u16, CannotInject> {
    let [port] = ports::free()?;
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ticks_are_found_behind_any_name() {
        let stat = "7 (a) b (c) d) S 1 7 7 0 -1 4194304 190 0 0 0 31 11 0 0 20 0 1 0 9 1 2";
        assert_eq!(ticks(stat), Some(42));
        assert_eq!(ticks("7 (a) S 1"), None);
    }

    #[test]
    fn the_time_of_a_busy_process_passes() {
        // Ends, however slow the machine is; a clock that stands still or runs back would keep it here.
        let before = cpu_of("self").unwrap();
        while cpu_of("self").unwrap() <= before {}
    }
}
