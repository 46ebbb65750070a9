//! The floors: what the same work costs when it is written as directly as it can be, without a node around it.
//!
//! Each runs as a process of its own, so that its CPU time is told apart from the load generator's, and ends when its
//! standard input does. None uses a line of the node's: they make their own keys and ids, and the database's options they
//! read from a store the node has made.

mod check;
mod database;
mod end_to_end;
pub(super) mod fsync;
mod http;
mod server;
mod store;

use std::error::Error;
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

pub(super) use store::Spent;

/// The hidden command under which the binary is a floor.
pub const COMMAND: &str = "bench-floor";

/// Which floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Floor {
    /// hyper, HMAC, UUIDv7, 201.
    Http,
    /// A writer and a syncer over RocksDB.
    Store,
    /// Both: 201 after the fsync.
    EndToEnd,
}

impl Floor {
    const ALL: [Self; 3] = [Self::Http, Self::Store, Self::EndToEnd];

    const fn word(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Store => "store",
            Self::EndToEnd => "end-to-end",
        }
    }

    /// What [`run`] is to be called with. `like` is a store of the node's, whose options are taken; the floor's own goes
    /// into `directory`. The times are of [`Floor::Store`] alone: the others serve until they are ended.
    pub(super) fn arguments(
        self,
        directory: &Path,
        like: &Path,
        warm_up: Duration,
        measured: Duration,
    ) -> Vec<String> {
        let path = |path: &Path| path.display().to_string();
        let millis = |time: Duration| time.as_millis().to_string();
        let [command, word] = [COMMAND, self.word()].map(str::to_owned);
        vec![command, word, path(directory), path(like), millis(warm_up), millis(measured)]
    }
}

/// Why a floor ended.
type FloorError = Box<dyn Error + Send + Sync>;

/// The whole process: the arguments of [`Floor::arguments`] behind the command.
#[must_use]
pub fn run(arguments: &[String]) -> ExitCode {
    match serve(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{COMMAND}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve(arguments: &[String]) -> Result<(), FloorError> {
    let [word, directory, like, warm_up, measured] = arguments else {
        return Err("a floor has a name, two directories and two times".into());
    };
    let floor = Floor::ALL.into_iter().find(|floor| floor.word() == word);
    let (directory, like) = (Path::new(directory), Path::new(like));
    end_with_standard_input();
    match floor.ok_or("there is no such floor")? {
        Floor::Http => http::serve(),
        Floor::Store => {
            let millis = |text: &str| text.parse().map(Duration::from_millis);
            store::measure(directory, like, millis(warm_up)?, millis(measured)?)
        }
        Floor::EndToEnd => end_to_end::serve(directory, like),
    }
}

/// Whoever started this holds the other end, and lets go of it at the latest when it is killed.
fn end_with_standard_input() {
    std::thread::spawn(|| {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
}

/// A line for whoever started this.
fn say(line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}")?;
    out.flush()
}
