//! Hooks that move bytes.

use ankusa_drills_replay::control::Word;
use ankusa_drills_replay::oplog::Kind;
use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};

use crate::control;
use crate::raw;
use crate::recorder::{Target, recorder, recorder_if_made};

/// A write to `fd`, at `offset` or, without one, where the descriptor stands.
///
/// # Safety
/// `buffer` is valid for reads of `length` bytes.
unsafe fn write_hooked(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: Option<off_t>,
) -> ssize_t {
    let write = |length| match offset {
        // SAFETY: `length` below is at most the caller's.
        Some(offset) => unsafe { raw::pwrite(fd, buffer, length, offset) },
        // SAFETY: as above.
        None => unsafe { raw::write(fd, buffer, length) },
    };
    let Some(recorder) = recorder() else { return write(length) };
    let Some((mut records, target)) = recorder.tracked(fd) else { return write(length) };
    let landed = |written: ssize_t| {
        let count = usize::try_from(written).unwrap_or(0).min(length);
        // SAFETY: the kernel has just read this many bytes from there on the caller's promise.
        unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), count) }
    };
    let (number, appends, path) = match target {
        Target::File { number, appends, path } => (number, appends, path),
        Target::Directory { .. } => return write(length),
        Target::Mark => {
            let written = write(length);
            if written > 0 {
                recorder.log(&mut records, Kind::Mark, 0, 0, landed(written), b"");
            }
            return written;
        }
    };
    if control::disk_is_dead() {
        return -1;
    }
    control::count(Word::SeenWrites);
    if records.mends(fd) {
        raw::set_errno(control::errno_in(Word::WriteErrno));
        return -1;
    }
    let fails = control::fires(Word::FailWrite, &path);
    let wanted = if fails {
        usize::try_from(control::value(Word::ShortWrite)).unwrap_or(0).min(length)
    } else {
        length
    };
    if fails && wanted == 0 {
        raw::set_errno(control::errno_in(Word::WriteErrno));
        return -1;
    }
    let start = match offset {
        Some(offset) => offset,
        None => raw::lseek(fd, 0, if appends { libc::SEEK_END } else { libc::SEEK_CUR }),
    };
    let written = write(wanted);
    if written > 0 {
        let start = u64::try_from(start).unwrap_or(0);
        recorder.log(&mut records, Kind::Write, number, start, landed(written), b"");
    }
    if fails && written >= 0 {
        // The first bytes landed; the caller's retry of the rest is the call that gets the errno.
        control::set(Word::ShortWrite, 0);
        records.tears(fd);
    }
    written
}

/// # Safety
/// As write(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise, as in every hook of this file.
    unsafe { write_hooked(fd, buffer, length, None) }
}

/// # Safety
/// As pwrite(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { write_hooked(fd, buffer, length, Some(offset)) }
}

/// # Safety
/// As pwrite(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { write_hooked(fd, buffer, length, Some(offset)) }
}

/// Whether a descriptor is one of ours.
fn is_tracked(fd: c_int) -> bool {
    recorder().is_some_and(|recorder| recorder.tracked(fd).is_some())
}

/// # Safety
/// As writev(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    if !is_tracked(fd) {
        // SAFETY: the caller's promise.
        return unsafe { raw::writev(fd, vector, count) };
    }
    // SAFETY: the caller's promise; the gathered bytes are ours.
    unsafe {
        let gathered = gather(vector, count);
        write_hooked(fd, gathered.as_ptr().cast(), gathered.len(), None)
    }
}

/// # Safety
/// As pwritev(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // One write of the gathered bytes is a legal pwritev, whoever the file belongs to.
    // SAFETY: the caller's promise; the gathered bytes are ours.
    unsafe {
        let gathered = gather(vector, count);
        write_hooked(fd, gathered.as_ptr().cast(), gathered.len(), Some(offset))
    }
}

/// # Safety
/// As pwritev(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64(
    fd: c_int,
    vector: *const iovec,
    count: c_int,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pwritev(fd, vector, count, offset) }
}

/// # Safety
/// `vector` is valid for `count` entries, each valid for reads of its length.
unsafe fn gather(vector: *const iovec, count: c_int) -> Vec<u8> {
    let mut gathered = Vec::new();
    for index in 0..usize::try_from(count).unwrap_or(0) {
        // SAFETY: the caller's promise, for the entry and for what it points at. An empty entry may point nowhere.
        unsafe {
            let entry = *vector.add(index);
            if entry.iov_len > 0 {
                gathered.extend_from_slice(std::slice::from_raw_parts(
                    entry.iov_base.cast::<u8>(),
                    entry.iov_len,
                ));
            }
        }
    }
    gathered
}

/// A read that has happened: counted, and perhaps spoilt.
///
/// # Safety
/// `buffer` holds `got` bytes, if that is not negative, and may be written to.
unsafe fn read_hooked(fd: c_int, buffer: *mut c_void, got: ssize_t) -> ssize_t {
    let Some(length) = usize::try_from(got).ok().filter(|length| *length > 0) else { return got };
    let Some(recorder) = recorder() else { return got };
    if !control::is_present() {
        return got;
    }
    let Some((records, Target::File { path, .. })) = recorder.tracked(fd) else { return got };
    drop(records);
    if control::disk_is_dead() {
        return -1;
    }
    control::count(Word::SeenReads);
    if control::fires(Word::FailRead, &path) {
        raw::set_errno(control::errno_in(Word::ReadErrno));
        return -1;
    }
    if control::fires(Word::FlipRead, &path) {
        // SAFETY: half of `length` is below it.
        unsafe { *buffer.cast::<u8>().add(length / 2) ^= 1 }
    }
    got
}

/// # Safety
/// As read(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the caller's promise; what read answered is what it filled.
    unsafe { read_hooked(fd, buffer, raw::read(fd, buffer, length)) }
}

/// # Safety
/// As pread(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn pread(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise; what pread answered is what it filled.
    unsafe { read_hooked(fd, buffer, raw::pread(fd, buffer, length, offset)) }
}

/// # Safety
/// As pread(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn pread64(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the caller's promise.
    unsafe { pread(fd, buffer, length, offset) }
}

/// Refuses to copy inside the kernel, where we would not see the bytes: callers fall back to reading and writing.
fn no_kernel_copy() -> ssize_t {
    raw::set_errno(libc::ENOSYS);
    -1
}

/// As copy_file_range(2) on a kernel that has none.
#[unsafe(no_mangle)]
extern "C" fn copy_file_range(
    _: c_int,
    _: *mut off_t,
    _: c_int,
    _: *mut off_t,
    _: size_t,
    _: c_uint,
) -> ssize_t {
    no_kernel_copy()
}

/// As sendfile(2) on a kernel that cannot do it for these files.
#[unsafe(no_mangle)]
extern "C" fn sendfile(_: c_int, _: c_int, _: *mut off_t, _: size_t) -> ssize_t {
    no_kernel_copy()
}

/// As sendfile(2) on a kernel that cannot do it for these files.
#[unsafe(no_mangle)]
extern "C" fn sendfile64(_: c_int, _: c_int, _: *mut off_t, _: size_t) -> ssize_t {
    no_kernel_copy()
}

/// As splice(2) on a kernel that has none.
#[unsafe(no_mangle)]
extern "C" fn splice(
    _: c_int,
    _: *mut off_t,
    _: c_int,
    _: *mut off_t,
    _: size_t,
    _: c_uint,
) -> ssize_t {
    no_kernel_copy()
}

/// # Safety
/// As mmap(2).
#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let writes_through =
        fd >= 0 && protection & libc::PROT_WRITE != 0 && flags & libc::MAP_SHARED != 0;
    // An allocator may come here from inside the recorder: never wait for its lock.
    if writes_through
        && recorder_if_made()
            .and_then(|recorder| recorder.try_lock())
            .is_some_and(|mut records| records.target(fd).is_some())
    {
        raw::write_all(
            libc::STDERR_FILENO,
            b"drills shim: WARNING: a shared writable mapping escapes the recorder\n",
        );
    }
    // SAFETY: the caller's promise.
    unsafe { raw::mmap(address, length, protection, flags, fd, offset) }
}
