//! Opening and closing the database.
//!
//! An open that fails leaves the directory as it was, but for RocksDB's own `LOG` and `LOCK`: nothing is ever deleted,
//! and a store that cannot be read is never treated as empty. Only the end of a log that a power cut left in pieces is
//! cut off, once a copy of everything has been put aside.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{DiskRoom, Engine, Kv, KvError, OpenError, OpenReport};
use async_trait::async_trait;
use rocksdb::DB;
use tokio::sync::oneshot;

use super::error::{class_of_io, not_running};
use super::guard::{self, CloseFacts, Refusal};
use super::kv::RocksKv;
use super::options::RocksOptions;
use super::{info_log, probe, room, stats};

const GIB: u64 = 1 << 30;

/// Opens the database in one directory.
pub struct RocksEngine {
    path: PathBuf,
    options: RocksOptions,
    /// Told what to seal the database with, and hung up on when the files of the last open are closed.
    closed: Mutex<Option<mpsc::Receiver<CloseFacts>>>,
    /// What was seen of the store when it was last opened.
    report: Mutex<OpenReport>,
    /// An open that was given up on and what was said of it.
    overdue: Mutex<Option<(JoinHandle<()>, OpenError)>>,
}

impl RocksEngine {
    /// The database lives in `path`, which is made at the first open.
    pub fn new(path: impl Into<PathBuf>, options: RocksOptions) -> Self {
        Self {
            path: path.into(),
            options,
            closed: Mutex::default(),
            report: Mutex::default(),
            overdue: Mutex::default(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// While an open that was given up on reads on, it holds `LOCK`: the next would only say that.
    fn still_overdue(&self) -> Option<OpenError> {
        let overdue = lock(&self.overdue);
        overdue.as_ref().filter(|(opener, _)| !opener.is_finished()).map(|(_, error)| error.clone())
    }

    fn refused(&self, class: FailureClass, detail: impl Into<String>) -> OpenError {
        OpenError { path: self.path.clone(), class, detail: detail.into() }
    }

    fn refused_by_io(&self, what: &str, error: &io::Error) -> OpenError {
        self.refused(class_of_io(error), format!("{what}: {error}"))
    }

    fn deadline(&self) -> Duration {
        if cfg!(feature = "canary-no-open-deadline") {
            // The broken build a drill must catch.
            return Duration::from_secs(u64::from(u32::MAX));
        }
        let replay_ms = stats::wal_bytes(&self.path).saturating_mul(1_000) / GIB;
        Duration::from_millis(self.options.open_deadline_ms.saturating_add(replay_ms))
    }
}

#[async_trait]
impl Engine for RocksEngine {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        if let Some(error) = self.still_overdue() {
            return Err(error);
        }
        let (told, opened) = oneshot::channel();
        let (path, options) = (self.path.clone(), self.options);
        // A thread of its own, not the blocking pool: one that reads for ever must not keep the process from ending.
        let opener = std::thread::Builder::new().name("ankusa-open".to_owned());
        let started = opener.spawn(move || {
            // Too late, it is dropped here and so closed again.
            let _ = told.send(open_blocking(&path, &options));
        });
        let opener =
            started.map_err(|error| self.refused_by_io("cannot start a thread", &error))?;
        let deadline = self.deadline();
        let (db, report) = match tokio::time::timeout(deadline, opened).await {
            Ok(Ok(Ok(opened))) => opened,
            Ok(Ok(Err((class, detail)))) => return Err(self.refused(class, detail)),
            Ok(Err(_)) => return Err(self.refused(FailureClass::Other, "opening it panicked")),
            Err(_) => {
                let error = self.refused(FailureClass::Corruption, overdue(deadline));
                *lock(&self.overdue) = Some((opener, error.clone()));
                return Err(error);
            }
        };
        let (closes, closed) = mpsc::channel();
        let kv = RocksKv::over(db, closes)
            .map_err(|error| self.refused_by_io("cannot start a thread", &error))?;
        *lock(&self.closed) = Some(closed);
        *lock(&self.report) = report;
        Ok(Box::new(kv))
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        let closed = lock(&self.closed).take();
        let path = self.path.clone();
        let closing = tokio::task::spawn_blocking(move || {
            drop(kv);
            let Some(closed) = closed else { return };
            // Sent by the last call into the database; the second is the hanging up, when the files are closed.
            let facts = closed.recv();
            let _ = closed.recv();
            if let Ok(facts) = facts {
                guard::after_close(&path, facts);
            }
        });
        let _ = closing.await;
    }

    fn last_open(&self) -> OpenReport {
        lock(&self.report).clone()
    }

    async fn probe_disk(&self) -> Result<(), KvError> {
        let path = self.path.clone();
        beside("probe", move || probe::write_synced(&path)).await
    }

    async fn room(&self) -> Result<DiskRoom, KvError> {
        let (path, memtable_bytes) =
            (self.path.clone(), self.options.write_buffers.largest_bytes());
        let memtable_bytes = u64::try_from(memtable_bytes).unwrap_or(u64::MAX);
        beside("room", move || room::look(&path, memtable_bytes)).await
    }

    async fn set_reserve(&self, bytes: u64) -> Result<(), KvError> {
        let path = self.path.clone();
        beside("reserve", move || room::set_reserve(&path, bytes)).await
    }
}

/// A call of the file system beside the database, off the runtime.
async fn beside<T: Send + 'static>(
    op: &'static str,
    call: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, KvError> {
    let called = tokio::task::spawn_blocking(call).await;
    let done = called.map_err(|_| not_running(op, "the blocking call did not finish"))?;
    done.map_err(|error| KvError { class: class_of_io(&error), op, detail: error.to_string() })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn overdue(deadline: Duration) -> String {
    format!(
        "no result within {} ms; a damaged file can keep the database reading for ever, and a very slow disk needs a \
         longer store.open_deadline_ms",
        deadline.as_millis()
    )
}

fn open_blocking(path: &Path, options: &RocksOptions) -> Result<(DB, OpenReport), Refusal> {
    let io_error = |error: io::Error| (class_of_io(&error), error.to_string());
    probe::create_synced(path).map_err(io_error)?;
    if let Some(orphan) = data_without_a_database(path).map_err(io_error)? {
        let detail = format!("CURRENT is missing, yet {orphan} is there: this is no new store");
        return Err((FailureClass::Corruption, detail));
    }
    refuse_if_open_elsewhere(path)?;
    let before = guard::before_open(path)?;
    let mut database = options.database();
    database.set_info_logger(info_log::logger(path));
    let opened = DB::open_cf_descriptors(&database, path, options.families());
    let db = opened.map_err(guard::refused)?;
    let report = guard::after_open(path, &db, before)?;
    Ok((db, report))
}

/// What is checked and put right before the database opens must not be that of a process that is writing it. RocksDB looks
/// for one too, but only once it opens.
fn refuse_if_open_elsewhere(path: &Path) -> Result<(), Refusal> {
    let lock = match fs::File::options().read(true).write(true).open(path.join("LOCK")) {
        Ok(lock) => lock,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err((class_of_io(&error), format!("LOCK: {error}"))),
    };
    // Given back with the file: RocksDB takes it itself. Nothing of this process has the database open.
    match rustix::fs::fcntl_lock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::ACCESS) => {
            Err((FailureClass::Busy, "another process has it open: it holds LOCK".to_owned()))
        }
        // A file system without locks: RocksDB will say so.
        Err(_) => Ok(()),
    }
}

/// A file that holds rows in a directory without the file that says which of them count. RocksDB would make a new, empty
/// database on top. A manifest alone is no such file: the first boot writes it before `CURRENT`.
fn data_without_a_database(path: &Path) -> io::Result<Option<String>> {
    if path.join("CURRENT").try_exists()? {
        return Ok(None);
    }
    for file in fs::read_dir(path)? {
        let name = file?.file_name();
        let kind = Path::new(&name).extension().and_then(|extension| extension.to_str());
        if matches!(kind, Some("sst" | "blob" | "log")) {
            return Ok(Some(name.to_string_lossy().into_owned()));
        }
    }
    Ok(None)
}
