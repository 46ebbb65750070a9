//! A fault of the disk at the Nth call of a kind, set on the recorder's control page.

use std::time::{Duration, Instant};

use ankusa_drills_replay::control::{FILTER_MAX_BYTES, Word};
use tokio::time::sleep;

use super::recorder::Recorder;
use crate::drill::CannotInject;

/// Wait between two looks whether it has come.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Which calls can fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Calls {
    Syncs,
    /// Writes, and whatever makes, moves or removes a name.
    Writes,
    Reads,
}

impl Calls {
    /// The word that counts down to the one that fails, and the word of what it says.
    #[must_use]
    pub fn words(self) -> (Word, Word) {
        match self {
            Self::Syncs => (Word::FailSync, Word::SyncErrno),
            Self::Writes => (Word::FailWrite, Word::WriteErrno),
            Self::Reads => (Word::FailRead, Word::ReadErrno),
        }
    }
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    pub calls: Calls,
    /// The first call that fails, from 1.
    pub nth: u64,
    pub errno: i32,
    /// Every later call fails too, until it is healed.
    pub sticky: bool,
    /// Bytes of a failing write that land before the rest fails; 0: none.
    pub short_bytes: u64,
    /// Only calls on paths that contain this; empty: on every path.
    pub filter: &'static str,
}

impl Fault {
    /// In words.
    #[must_use]
    pub fn place(&self) -> String {
        let Self { calls, nth, errno, sticky, short_bytes, filter } = self;
        let call = match calls {
            Calls::Syncs => "fsync",
            Calls::Writes => "write",
            Calls::Reads => "read",
        };
        let path = if filter.is_empty() { String::new() } else { format!(" of {filter}") };
        let lasts = if *sticky { " and every later one until healed" } else { "" };
        let short =
            if *short_bytes > 0 { format!(" after {short_bytes} bytes") } else { String::new() };
        let errno = std::io::Error::from_raw_os_error(*errno);
        format!("{call} {nth}{path}{lasts} failed{short}: {errno}")
    }
}

impl Recorder {
    /// Sets a fault. The recorded process meets it at its Nth call from now.
    ///
    /// # Errors
    /// When the control page cannot be written.
    pub fn arm(&self, fault: &Fault) -> Result<(), CannotInject> {
        let (countdown, errno) = fault.calls.words();
        let filter = fault.filter.as_bytes();
        let filter = filter.get(..FILTER_MAX_BYTES.min(filter.len())).unwrap_or_default();
        self.set_filter(filter)?;
        self.set(Word::FilterLength, u64::try_from(filter.len()).unwrap_or(0))?;
        self.set(errno, u64::try_from(fault.errno).unwrap_or(0))?;
        self.set(Word::Sticky, u64::from(fault.sticky))?;
        self.set(Word::ShortWrite, fault.short_bytes)?;
        self.set(countdown, fault.nth)
    }

    /// Takes it back.
    ///
    /// # Errors
    /// When the control page cannot be written.
    pub fn heal(&self) -> Result<(), CannotInject> {
        for word in
            [Word::FailSync, Word::FailWrite, Word::FailRead, Word::Sticky, Word::ShortWrite]
        {
            self.set(word, 0)?;
        }
        Ok(())
    }

    /// Whether it has come.
    ///
    /// # Errors
    /// When the control page cannot be read.
    pub fn has_fired(&self) -> Result<bool, CannotInject> {
        Ok(self.get(Word::SeenFaults)? > 0)
    }

    /// Waits until it has come, holds it for `hold`, and heals. Answers when it was healed.
    ///
    /// # Errors
    /// When the control page cannot be used.
    pub async fn heal_after(&self, hold: Duration) -> Result<Instant, CannotInject> {
        while !self.has_fired()? {
            sleep(LOOK_AGAIN).await;
        }
        sleep(hold).await;
        self.heal()?;
        Ok(Instant::now())
    }
}
