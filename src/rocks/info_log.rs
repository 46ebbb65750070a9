//! What RocksDB says of itself: every line into the bounded file `LOG` beside the database, and what is wrong into our own
//! log, where a stall, a failed flush or damage is looked for.
//!
//! RocksDB would write the file by itself, and then tell nobody. On a full disk the file loses lines; our log does not.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rocksdb::{InfoLogger, LogLevel};
use tracing::{error, warn};

const FILE: &str = "LOG";
/// What was in it before: of the open before, or once it had grown too long.
const FILE_BEFORE: &str = "LOG.old";

/// How long one file may grow, in bytes: two of them exist.
const FILE_MAX_BYTES: u64 = 16 << 20;

/// Lines are collected so long and so many before they are written out, unless something is wrong.
const COLLECT_FOR: Duration = Duration::from_secs(1);
const COLLECT_BYTES: usize = 64 << 10;

/// Lines told in our log in a window; a stalled database repeats itself by the second.
const TOLD_MAX: u32 = 20;
const TOLD_WINDOW: Duration = Duration::from_secs(60);

/// Takes the lines of a database in `store`, which exists.
pub(super) fn logger(store: &Path) -> InfoLogger {
    let lines = Mutex::new(Lines::begin(store, FILE_MAX_BYTES));
    // Called from C: nothing in it may panic.
    InfoLogger::new_callback_logger(LogLevel::Info, move |level, line| {
        lines.lock().unwrap_or_else(PoisonError::into_inner).take(level, line);
    })
}

struct Lines {
    store: PathBuf,
    max_bytes: u64,
    /// `None` when it could not be made: the lines go nowhere then.
    file: Option<BufWriter<File>>,
    bytes: u64,
    written_out: Instant,
    told: Told,
}

impl Lines {
    fn begin(store: &Path, max_bytes: u64) -> Self {
        Self {
            store: store.to_owned(),
            max_bytes,
            file: new_file(store),
            bytes: 0,
            written_out: Instant::now(),
            told: Told::default(),
        }
    }

    fn take(&mut self, level: LogLevel, line: &str) {
        let line = line.trim_end();
        let is_wrong = match level {
            LogLevel::Debug | LogLevel::Info | LogLevel::Header => false,
            LogLevel::Warn | LogLevel::Error | LogLevel::Fatal => true,
        };
        if is_wrong && let Some(unsaid) = self.told.admit(Instant::now()) {
            if unsaid > 0 {
                warn!(lines = unsaid, "rocksdb said more than is repeated here: see its LOG");
            }
            match level {
                LogLevel::Error | LogLevel::Fatal => error!("rocksdb: {line}"),
                LogLevel::Debug | LogLevel::Info | LogLevel::Warn | LogLevel::Header => {
                    warn!("rocksdb: {line}");
                }
            }
        }
        self.write(level, line, is_wrong);
    }

    fn write(&mut self, level: LogLevel, line: &str, at_once: bool) {
        if self.bytes >= self.max_bytes {
            self.file = new_file(&self.store);
            self.bytes = 0;
        }
        let Some(file) = &mut self.file else { return };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let (s, us) = (now.as_secs(), now.subsec_micros());
        let entry = format!("{s}.{us:06} {level:?} {line}\n");
        // A line that is lost is no reason to do anything else.
        let _ = file.write_all(entry.as_bytes());
        self.bytes += u64::try_from(entry.len()).unwrap_or(u64::MAX);
        if at_once || self.written_out.elapsed() >= COLLECT_FOR {
            let _ = file.flush();
            self.written_out = Instant::now();
        }
    }
}

fn new_file(store: &Path) -> Option<BufWriter<File>> {
    let path = store.join(FILE);
    let _ = fs::rename(&path, store.join(FILE_BEFORE));
    File::create(&path).ok().map(|file| BufWriter::with_capacity(COLLECT_BYTES, file))
}

/// How many lines were told in this window, and how many were not.
#[derive(Debug, Default)]
struct Told {
    window: Option<Instant>,
    told: u32,
    unsaid: u64,
}

impl Told {
    /// Whether a line is told now, and how many were kept back before it.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.window.is_none_or(|began| now.duration_since(began) >= TOLD_WINDOW) {
            (self.window, self.told) = (Some(now), 0);
        }
        if self.told >= TOLD_MAX {
            self.unsaid += 1;
            return None;
        }
        self.told += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing_subscriber::fmt;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn text(store: &Path, name: &str) -> String {
        fs::read_to_string(store.join(name)).unwrap()
    }

    #[derive(Clone, Default)]
    struct Heard(Arc<Mutex<Vec<u8>>>);

    impl Write for Heard {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What our log says while `work` is done, without the times.
    fn heard(work: impl FnOnce()) -> Vec<String> {
        let heard = Heard::default();
        let writer = heard.clone();
        let layer =
            fmt::layer().with_writer(move || writer.clone()).with_ansi(false).without_time();
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
        let bytes = heard.0.lock().unwrap().clone();
        let lines = String::from_utf8(bytes).unwrap();
        lines
            .lines()
            .map(|line| line.trim().replace("ankusa_node::rocks::info_log: ", ""))
            .collect()
    }

    #[test]
    fn what_is_wrong_is_told_in_our_log_and_everything_in_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let told = heard(|| {
            let mut lines = Lines::begin(dir.path(), 1 << 20);
            lines.take(LogLevel::Info, "[default] Level summary");
            lines.take(LogLevel::Warn, "[hooks] Stalling writes because of 20 level-0 files\n");
            lines.take(LogLevel::Error, "Background IO error IO error: No space left on device");
        });
        let expected = [
            "WARN rocksdb: [hooks] Stalling writes because of 20 level-0 files",
            "ERROR rocksdb: Background IO error IO error: No space left on device",
        ];
        assert_eq!(told, expected);
        let file = text(dir.path(), FILE);
        let words: Vec<_> = file.lines().map(|line| line.split_once(' ').unwrap().1).collect();
        assert_eq!(
            words,
            [
                "Info [default] Level summary",
                "Warn [hooks] Stalling writes because of 20 level-0 files",
                "Error Background IO error IO error: No space left on device",
            ]
        );
    }

    #[test]
    fn the_files_are_two_and_bounded() {
        let dir = tempfile::tempdir().unwrap();
        let mut lines = Lines::begin(dir.path(), 1_000);
        for ix in 0..500 {
            lines.take(LogLevel::Info, &format!("line {ix}"));
        }
        drop(lines);
        let sizes = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().metadata().unwrap());
        let sizes: Vec<_> = sizes.map(|file| file.len()).collect();
        assert!(sizes.len() == 2 && sizes.iter().all(|bytes| *bytes < 1_100), "{sizes:?}");
        assert!(text(dir.path(), FILE).ends_with("line 499\n"));
        drop(Lines::begin(dir.path(), 1_000));
        assert!(text(dir.path(), FILE_BEFORE).ends_with("line 499\n"), "of the open before");
    }

    #[test]
    fn a_database_that_repeats_itself_is_cut_short_and_that_is_told() {
        let (mut told, began) = (Told::default(), Instant::now());
        let admitted: Vec<_> = (0..25).map(|_| told.admit(began)).collect();
        assert_eq!(admitted, [vec![Some(0); 20], vec![None; 5]].concat());
        assert_eq!(told.admit(began + Duration::from_secs(59)), None);
        assert_eq!(told.admit(began + Duration::from_secs(60)), Some(6));
        assert_eq!(told.admit(began + Duration::from_secs(60)), Some(0));
    }
}
