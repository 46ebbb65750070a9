//! What is being recorded: the files and descriptors below the root, and the log.

use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStringExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use ankusa_drills_replay::oplog::{Kind, encode};
use libc::{c_char, c_int};

use crate::raw::{self, Identity};

/// What an open descriptor stands for.
#[derive(Clone, Debug)]
pub(crate) enum Target {
    /// A file, under the path it was opened with.
    File {
        number: u32,
        appends: bool,
        path: Arc<[u8]>,
    },
    Directory {
        path: Arc<[u8]>,
    },
    Mark,
}

#[derive(Clone, Debug)]
struct Open {
    target: Target,
    identity: Option<Identity>,
}

/// Everything that changes. Whoever holds it is the only one to touch the disk below the root or the log: that is what
/// makes the log's order the order of effects.
#[derive(Default)]
pub(crate) struct Records {
    numbers: HashMap<Vec<u8>, u32>,
    open: HashMap<c_int, Open>,
    /// The file whose last write was cut short on purpose: the next is the one to fail.
    torn: Option<c_int>,
    last_number: u32,
    last_token: u64,
    scratch: Vec<u8>,
}

/// The recorder of this process.
pub(crate) struct Recorder {
    root: Vec<u8>,
    mark: Option<Vec<u8>>,
    log: Option<c_int>,
    /// Fsyncs are logged, not carried out.
    pub(crate) skips_syncs: bool,
    records: Mutex<Records>,
}

static RECORDER: OnceLock<Option<Recorder>> = OnceLock::new();

/// The recorder, unless `DRILL_ROOT` is unset.
pub(crate) fn recorder() -> Option<&'static Recorder> {
    RECORDER.get_or_init(Recorder::from_environment).as_ref()
}

/// The recorder if some earlier call already made it: for hooks that can run while it is being made.
pub(crate) fn recorder_if_made() -> Option<&'static Recorder> {
    RECORDER.get().and_then(Option::as_ref)
}

impl Recorder {
    fn from_environment() -> Option<Self> {
        let variable = |name| std::env::var_os(name).map(OsStringExt::into_vec);
        let log = variable("DRILL_LOG").and_then(|path| CString::new(path).ok()).map(|path| {
            let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
            // SAFETY: the path is a C string.
            unsafe { raw::openat(libc::AT_FDCWD, path.as_ptr(), flags, 0o644) }
        });
        if log.is_some_and(|fd| fd < 0) {
            raw::write_all(
                libc::STDERR_FILENO,
                b"drills shim: cannot open DRILL_LOG, nothing is recorded\n",
            );
        }
        Some(Self {
            root: variable("DRILL_ROOT")?,
            mark: variable("DRILL_MARK"),
            log: log.filter(|fd| *fd >= 0),
            skips_syncs: variable("DRILL_NOFSYNC").is_some(),
            records: Mutex::default(),
        })
    }

    /// Takes the one lock.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Records> {
        self.records.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Takes the one lock if nobody has it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, Records>> {
        self.records.try_lock().ok()
    }

    /// Whether the path is the root or below it.
    pub(crate) fn is_below_root(&self, path: &[u8]) -> bool {
        path.strip_prefix(self.root.as_slice())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    }

    pub(crate) fn is_mark(&self, path: &[u8]) -> bool {
        self.mark.as_deref() == Some(path)
    }

    /// Takes the lock and looks a descriptor up. Nothing when it is not one of ours.
    pub(crate) fn tracked(&self, fd: c_int) -> Option<(MutexGuard<'_, Records>, Target)> {
        let mut records = self.lock();
        let target = records.target(fd)?;
        Some((records, target))
    }

    /// The number of the file at a path that was there already. The log says when it is given one only now.
    pub(crate) fn existing(&self, records: &mut Records, path: &[u8]) -> u32 {
        let (number, is_new) = records.number_of(path);
        if is_new {
            self.log(records, Kind::Found, number, 0, path, b"");
        }
        number
    }

    /// Appends one record to the log.
    pub(crate) fn log(
        &self,
        records: &mut Records,
        kind: Kind,
        file: u32,
        number: u64,
        first: &[u8],
        second: &[u8],
    ) {
        let Some(log) = self.log else { return };
        records.scratch.clear();
        encode(&mut records.scratch, kind, file, number, first, second);
        if !raw::write_all(log, &records.scratch) {
            // A log with a hole would convict an innocent disk. The decoder refuses a record that is cut short.
            raw::write_all(
                libc::STDERR_FILENO,
                b"drills shim: the operation log cannot be written\n",
            );
        }
    }
}

impl Records {
    /// The number of the file at a path, and whether it is given one only now.
    pub(crate) fn number_of(&mut self, path: &[u8]) -> (u32, bool) {
        if let Some(number) = self.numbers.get(path) {
            return (*number, false);
        }
        self.last_number += 1;
        self.numbers.insert(path.to_vec(), self.last_number);
        (self.last_number, true)
    }

    /// A token that pairs the beginning of a sync with its end.
    pub(crate) fn next_token(&mut self) -> u64 {
        self.last_token += 1;
        self.last_token
    }

    pub(crate) fn opened(&mut self, fd: c_int, target: Target) {
        self.open.insert(fd, Open { target, identity: raw::identity(fd) });
    }

    pub(crate) fn closed(&mut self, fd: c_int) {
        self.open.remove(&fd);
        self.mends(fd);
    }

    /// A write to it was cut short.
    pub(crate) fn tears(&mut self, fd: c_int) {
        self.torn = Some(fd);
    }

    /// Whether its last write was cut short. Asked once, it is not any more.
    pub(crate) fn mends(&mut self, fd: c_int) -> bool {
        let torn = self.torn == Some(fd);
        if torn {
            self.torn = None;
        }
        torn
    }

    /// `new` is now another descriptor of what `old` is.
    pub(crate) fn duplicated(&mut self, old: c_int, new: c_int) {
        match self.open.get(&old).cloned() {
            Some(open) => self.open.insert(new, open),
            None => self.open.remove(&new),
        };
    }

    /// What a descriptor stands for. A number that libc closed behind our back (`fclose`) and that now is something
    /// else is found out and forgotten.
    pub(crate) fn target(&mut self, fd: c_int) -> Option<Target> {
        let open = self.open.get(&fd)?;
        if open.identity != raw::identity(fd) {
            self.open.remove(&fd);
            return None;
        }
        Some(open.target.clone())
    }

    /// A path, and whatever is below it, has moved.
    pub(crate) fn renamed(&mut self, from: &[u8], to: &[u8]) {
        let moved = |path: &[u8]| -> Option<Vec<u8>> {
            let rest =
                path.strip_prefix(from).filter(|rest| rest.is_empty() || rest.starts_with(b"/"))?;
            Some([to, rest].concat())
        };
        let numbers = std::mem::take(&mut self.numbers);
        // What the new name named before is gone; it must not win over what moves there.
        self.numbers = numbers
            .into_iter()
            .filter(|(path, _)| path != to)
            .map(|(path, number)| (moved(&path).unwrap_or(path), number))
            .collect();
        for open in self.open.values_mut() {
            if let Target::Directory { path } = &mut open.target
                && let Some(moved) = moved(path)
            {
                *path = moved.into();
            }
        }
    }

    /// A file without a number is found under either name when it is used.
    pub(crate) fn linked(&mut self, from: &[u8], to: &[u8]) {
        if let Some(number) = self.numbers.get(from).copied() {
            self.numbers.insert(to.to_vec(), number);
        }
    }

    pub(crate) fn unlinked(&mut self, path: &[u8]) {
        self.numbers.remove(path);
    }
}

/// The absolute form of a path argument: from the root, without doubled slashes or one at the end. `.` and `..` stay.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn absolute(directory: c_int, path: *const c_char) -> Vec<u8> {
    // SAFETY: the caller's promise; the string is copied before this returns.
    let given = unsafe { CStr::from_ptr(path) }.to_bytes();
    let mut joined = Vec::new();
    if !given.starts_with(b"/") {
        joined = if directory == libc::AT_FDCWD {
            raw::read_link(c"/proc/self/cwd")
        } else {
            CString::new(format!("/proc/self/fd/{directory}"))
                .map(|link| raw::read_link(&link))
                .unwrap_or_default()
        };
        joined.push(b'/');
    }
    joined.extend_from_slice(given);
    let mut absolute: Vec<u8> = Vec::with_capacity(joined.len());
    for byte in joined {
        if byte != b'/' || absolute.last() != Some(&b'/') {
            absolute.push(byte);
        }
    }
    if absolute.len() > 1 && absolute.last() == Some(&b'/') {
        absolute.pop();
    }
    absolute
}
