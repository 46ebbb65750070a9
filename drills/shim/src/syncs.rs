//! Hooks that sync, and that set the length of a file.

use std::sync::Arc;

use ankusa_drills_replay::control::Word;
use ankusa_drills_replay::oplog::Kind;
use libc::{c_char, c_int, c_uint, off_t};

use crate::control;
use crate::raw;
use crate::recorder::{Target, absolute, recorder};

fn sync_hooked(fd: c_int, sync: fn(c_int) -> c_int) -> c_int {
    let Some(recorder) = recorder() else { return sync(fd) };
    let Some((records, target)) = recorder.tracked(fd) else { return sync(fd) };
    // Others go on writing while a sync runs: that is the point of having a beginning and an end.
    drop(records);
    let (number, directory, meant) = match target {
        Target::File { number, path, .. } => (number, None, path),
        Target::Directory { path } => (0, Some(Arc::clone(&path)), path),
        Target::Mark => return sync(fd),
    };
    if control::disk_is_dead() {
        return -1;
    }
    control::count(Word::SeenSyncs);
    control::delay_sync();
    let path = directory.as_deref().unwrap_or_default();
    let mut records = recorder.lock();
    let token = records.next_token();
    recorder.log(&mut records, Kind::SyncBegin, number, token, path, b"");
    drop(records);

    let fails = control::fires(Word::FailSync, &meant);
    let result = match (fails, recorder.skips_syncs) {
        (true, _) => -1,
        (false, true) => 0,
        (false, false) => sync(fd),
    };
    let errno = if fails { control::errno_in(Word::SyncErrno) } else { raw::errno() };
    let kind = match (result, &directory) {
        (0, None) => Kind::SyncEnd,
        (0, Some(_)) => Kind::DirSyncEnd,
        _ => Kind::SyncFailed,
    };
    recorder.log(&mut recorder.lock(), kind, number, token, path, b"");
    if result != 0 {
        raw::set_errno(errno);
    }
    result
}

/// As fsync(2).
#[unsafe(no_mangle)]
extern "C" fn fsync(fd: c_int) -> c_int {
    sync_hooked(fd, raw::fsync)
}

/// As fdatasync(2).
#[unsafe(no_mangle)]
extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync_hooked(fd, raw::fdatasync)
}

/// As sync_file_range(2), which promises nothing and so may do nothing.
#[unsafe(no_mangle)]
extern "C" fn sync_file_range(_: c_int, _: off_t, _: off_t, _: c_uint) -> c_int {
    0
}

/// Carries out `resize` on a descriptor and logs it as `kind` with the length it leads to.
fn resize_hooked(
    fd: c_int,
    kind: Option<Kind>,
    length: off_t,
    resize: impl FnOnce() -> c_int,
) -> c_int {
    let Some(recorder) = recorder() else { return resize() };
    let Some((mut records, Target::File { number, path, .. })) = recorder.tracked(fd) else {
        return resize();
    };
    if control::disk_is_dead() {
        return -1;
    }
    // Space is taken by fallocate alone: a file is cut to a length for nothing.
    if kind != Some(Kind::Truncate) && control::fires(Word::FailWrite, &path) {
        raw::set_errno(control::errno_in(Word::WriteErrno));
        return -1;
    }
    let result = resize();
    if let (0, Some(kind)) = (result, kind) {
        recorder.log(&mut records, kind, number, u64::try_from(length).unwrap_or(0), b"", b"");
    }
    result
}

/// As ftruncate(2).
#[unsafe(no_mangle)]
extern "C" fn ftruncate(fd: c_int, length: off_t) -> c_int {
    resize_hooked(fd, Some(Kind::Truncate), length, || raw::ftruncate(fd, length))
}

/// As ftruncate(2).
#[unsafe(no_mangle)]
extern "C" fn ftruncate64(fd: c_int, length: off_t) -> c_int {
    ftruncate(fd, length)
}

/// # Safety
/// As truncate(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn truncate(path: *const c_char, length: off_t) -> c_int {
    // SAFETY: the caller's promise, here and below.
    let truncate = || unsafe { raw::truncate(path, length) };
    let Some(recorder) = recorder() else { return truncate() };
    // SAFETY: see above.
    let absolute = unsafe { absolute(libc::AT_FDCWD, path) };
    if !recorder.is_below_root(&absolute) {
        return truncate();
    }
    if control::disk_is_dead() {
        return -1;
    }
    let mut records = recorder.lock();
    let result = truncate();
    if result == 0 {
        let number = recorder.existing(&mut records, &absolute);
        recorder.log(
            &mut records,
            Kind::Truncate,
            number,
            u64::try_from(length).unwrap_or(0),
            b"",
            b"",
        );
    }
    result
}

/// # Safety
/// As truncate(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn truncate64(path: *const c_char, length: off_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { truncate(path, length) }
}

/// As fallocate(2). Space without size (RocksDB's way) is not a change anyone could see after a cut.
#[unsafe(no_mangle)]
extern "C" fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    let kind = (mode & libc::FALLOC_FL_KEEP_SIZE == 0).then_some(Kind::Extend);
    resize_hooked(fd, kind, offset.saturating_add(length), || {
        raw::fallocate(fd, mode, offset, length)
    })
}

/// As fallocate(2).
#[unsafe(no_mangle)]
extern "C" fn fallocate64(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    fallocate(fd, mode, offset, length)
}

/// As posix_fallocate(3): answers the errno instead of setting it.
#[unsafe(no_mangle)]
extern "C" fn posix_fallocate(fd: c_int, offset: off_t, length: off_t) -> c_int {
    let before = raw::errno();
    let result = fallocate(fd, 0, offset, length);
    let errno = if result == 0 { 0 } else { raw::errno() };
    raw::set_errno(before);
    errno
}

/// As posix_fallocate(3).
#[unsafe(no_mangle)]
extern "C" fn posix_fallocate64(fd: c_int, offset: off_t, length: off_t) -> c_int {
    posix_fallocate(fd, offset, length)
}
