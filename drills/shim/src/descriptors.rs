//! Hooks that make, copy and close descriptors.

use ankusa_drills_replay::control::Word;
use ankusa_drills_replay::oplog::Kind;
use libc::{AT_FDCWD, c_char, c_int, c_void, mode_t};

use crate::control;
use crate::raw;
use crate::recorder::{Target, absolute, recorder};

/// # Safety
/// `path` is a C string.
unsafe fn open_hooked(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise, here and in every use of `path` below.
    let open = || unsafe { raw::openat(directory, path, flags, mode) };
    let Some(recorder) = recorder() else { return open() };
    // SAFETY: see above.
    let absolute = unsafe { absolute(directory, path) };
    if recorder.is_mark(&absolute) {
        let mut records = recorder.lock();
        let fd = open();
        if fd >= 0 {
            records.opened(fd, Target::Mark);
        }
        return fd;
    }
    if !recorder.is_below_root(&absolute) {
        return open();
    }
    if control::disk_is_dead() {
        return -1;
    }
    let mut records = recorder.lock();
    // SAFETY: see above.
    let existed = unsafe { raw::exists(directory, path) };
    let creates = !existed && flags & libc::O_CREAT != 0;
    if creates && control::fires(Word::FailWrite, &absolute) {
        raw::set_errno(control::errno_in(Word::WriteErrno));
        return -1;
    }
    let fd = open();
    if fd < 0 {
        return fd;
    }
    if raw::identity(fd).is_some_and(|identity| identity.is_directory) {
        records.opened(fd, Target::Directory { path: absolute.into() });
        return fd;
    }
    let number = if creates {
        let (number, _) = records.number_of(&absolute);
        recorder.log(&mut records, Kind::Create, number, 0, &absolute, b"");
        number
    } else {
        recorder.existing(&mut records, &absolute)
    };
    if !creates && flags & libc::O_TRUNC != 0 {
        recorder.log(&mut records, Kind::Truncate, number, 0, b"", b"");
    }
    let (appends, path) = (flags & libc::O_APPEND != 0, absolute.into());
    records.opened(fd, Target::File { number, appends, path });
    fd
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise, as in every hook of this file. Without O_CREAT `mode` is whatever was in the
    // register, and the kernel ignores it.
    unsafe { open_hooked(AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_hooked(AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn openat(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_hooked(directory, path, flags, mode) }
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_hooked(directory, path, flags, mode) }
}

/// # Safety
/// As open(2); what a fortified build calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_hooked(AT_FDCWD, path, flags, 0) }
}

/// # Safety
/// As open(2); what a fortified build calls.
#[unsafe(no_mangle)]
unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_hooked(AT_FDCWD, path, flags, 0) }
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_hooked(AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// # Safety
/// As open(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_hooked(AT_FDCWD, path, libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC, mode) }
}

/// As close(2).
#[unsafe(no_mangle)]
extern "C" fn close(fd: c_int) -> c_int {
    // Forgotten before it is closed: the number may be someone else's the moment it is free.
    if let Some(recorder) = recorder() {
        recorder.lock().closed(fd);
    }
    raw::close(fd)
}

fn duplicate(old: c_int, duplicate: impl FnOnce() -> c_int) -> c_int {
    let Some(recorder) = recorder() else { return duplicate() };
    let mut records = recorder.lock();
    let new = duplicate();
    if new >= 0 {
        records.duplicated(old, new);
    }
    new
}

/// As dup(2).
#[unsafe(no_mangle)]
extern "C" fn dup(old: c_int) -> c_int {
    duplicate(old, || raw::dup(old))
}

/// As dup2(2).
#[unsafe(no_mangle)]
extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // dup3 refuses equal descriptors; dup2 answers them, if they are open.
    if old == new {
        // SAFETY: F_GETFD takes no argument.
        let open = unsafe { raw::fcntl(old, libc::F_GETFD, std::ptr::null_mut()) } >= 0;
        return if open { new } else { -1 };
    }
    duplicate(old, || raw::dup3(old, new, 0))
}

/// As dup3(2).
#[unsafe(no_mangle)]
extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    duplicate(old, || raw::dup3(old, new, flags))
}

/// # Safety
/// As fcntl(2). The variadic argument travels in the register of the third, whatever its type.
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let call = || unsafe { raw::fcntl(fd, command, argument) };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicate(fd, call),
        _ => call(),
    }
}

/// # Safety
/// As fcntl(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { fcntl(fd, command, argument) }
}
