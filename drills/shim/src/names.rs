//! Hooks that change names: rename, link, unlink, mkdir, rmdir.

use ankusa_drills_replay::control::Word;
use ankusa_drills_replay::oplog::Kind;
use libc::{AT_FDCWD, c_char, c_int, c_uint, mode_t};

use crate::control;
use crate::raw;
use crate::recorder::{Records, absolute, recorder};

/// A change of one or two absolute paths, not carried out yet.
struct Renaming {
    kind: Kind,
    first: Vec<u8>,
    second: Vec<u8>,
}

impl Renaming {
    /// # Safety
    /// `path` is a C string.
    unsafe fn of_one(kind: Kind, directory: c_int, path: *const c_char) -> Self {
        // SAFETY: the caller's promise.
        Self { kind, first: unsafe { absolute(directory, path) }, second: Vec::new() }
    }

    /// # Safety
    /// Both paths are C strings.
    unsafe fn of_two(
        kind: Kind,
        from_dir: c_int,
        from: *const c_char,
        to_dir: c_int,
        to: *const c_char,
    ) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self { kind, first: absolute(from_dir, from), second: absolute(to_dir, to) } }
    }

    /// Carries the change out, and logs it if it happened below the root.
    fn carry_out(self, call: impl FnOnce() -> c_int) -> c_int {
        let Some(recorder) = recorder() else { return call() };
        if !recorder.is_below_root(&self.first) && !recorder.is_below_root(&self.second) {
            return call();
        }
        if control::disk_is_dead() {
            return -1;
        }
        if self.fails() {
            raw::set_errno(control::errno_in(Word::WriteErrno));
            return -1;
        }
        let mut records = recorder.lock();
        let result = call();
        if result == 0 {
            recorder.log(&mut records, self.kind, 0, 0, &self.first, &self.second);
            self.note(&mut records);
        }
        result
    }

    /// Whether this is the change to fail. What gives space back does not fail on a full disk, and is not counted there.
    fn fails(&self) -> bool {
        let frees = matches!(self.kind, Kind::Unlink | Kind::RemoveDir);
        if frees && control::is_full_disk() {
            return false;
        }
        let paths = [self.first.as_slice(), b" ", self.second.as_slice()].concat();
        control::fires(Word::FailWrite, &paths)
    }

    fn note(&self, records: &mut Records) {
        match self.kind {
            Kind::Rename => records.renamed(&self.first, &self.second),
            Kind::Link => records.linked(&self.first, &self.second),
            Kind::Unlink => records.unlinked(&self.first),
            Kind::MakeDir
            | Kind::RemoveDir
            | Kind::Create
            | Kind::Found
            | Kind::Write
            | Kind::Truncate
            | Kind::Extend
            | Kind::SyncBegin
            | Kind::SyncEnd
            | Kind::DirSyncEnd
            | Kind::SyncFailed
            | Kind::Mark => {}
        }
    }
}

/// # Safety
/// As rename(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise, as in every hook of this file.
    unsafe { renameat2(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// # Safety
/// As rename(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { renameat2(from_dir, from, to_dir, to, 0) }
}

/// # Safety
/// As rename(2). An exchange of two names is recorded as a rename, which it is not: nothing drilled makes one.
#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        Renaming::of_two(Kind::Rename, from_dir, from, to_dir, to)
            .carry_out(|| raw::renameat(from_dir, from, to_dir, to, flags))
    }
}

/// # Safety
/// As link(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { linkat(AT_FDCWD, from, AT_FDCWD, to, 0) }
}

/// # Safety
/// As link(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        Renaming::of_two(Kind::Link, from_dir, from, to_dir, to)
            .carry_out(|| raw::linkat(from_dir, from, to_dir, to, flags))
    }
}

/// # Safety
/// As unlink(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlinkat(AT_FDCWD, path, 0) }
}

/// # Safety
/// As unlink(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
    let kind = if flags & libc::AT_REMOVEDIR == 0 { Kind::Unlink } else { Kind::RemoveDir };
    // SAFETY: the caller's promise.
    unsafe {
        Renaming::of_one(kind, directory, path).carry_out(|| raw::unlinkat(directory, path, flags))
    }
}

/// # Safety
/// As rmdir(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { unlinkat(AT_FDCWD, path, libc::AT_REMOVEDIR) }
}

/// # Safety
/// As remove(3).
#[unsafe(no_mangle)]
unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        let result = unlink(path);
        if result != 0 && raw::errno() == libc::EISDIR { rmdir(path) } else { result }
    }
}

/// # Safety
/// As mkdir(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { mkdirat(AT_FDCWD, path, mode) }
}

/// # Safety
/// As mkdir(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(directory: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe {
        Renaming::of_one(Kind::MakeDir, directory, path)
            .carry_out(|| raw::mkdirat(directory, path, mode))
    }
}
