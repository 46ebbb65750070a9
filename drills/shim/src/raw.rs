//! The system calls behind the hooks, made directly: going through libc's functions would come back to the hooks.
//!
//! Every function has the contract of the manual page of the same name (section 2), errno included.

use libc::{c_int, c_long, c_void, iovec, mode_t, off_t, size_t, ssize_t};

fn int(result: c_long) -> c_int {
    c_int::try_from(result).unwrap_or(-1)
}

fn size(result: c_long) -> ssize_t {
    ssize_t::try_from(result).unwrap_or(-1)
}

/// The calling thread's errno.
pub(crate) fn errno() -> c_int {
    // SAFETY: libc answers a valid pointer to this thread's errno for as long as the thread lives.
    unsafe { *libc::__errno_location() }
}

/// Sets the calling thread's errno.
pub(crate) fn set_errno(errno: c_int) {
    // SAFETY: as in `errno`.
    unsafe { *libc::__errno_location() = errno }
}

/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn openat(
    directory: c_int,
    path: *const libc::c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the arguments are openat's, in its order.
    int(unsafe { libc::syscall(libc::SYS_openat, directory, path, flags, mode) })
}

/// # Safety
/// `time` is valid for a write of a timespec.
pub(crate) unsafe fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    // SAFETY: the arguments are clock_gettime's.
    int(unsafe { libc::syscall(libc::SYS_clock_gettime, clock, time) })
}

pub(crate) fn close(fd: c_int) -> c_int {
    // SAFETY: no memory is involved.
    int(unsafe { libc::syscall(libc::SYS_close, fd) })
}

pub(crate) fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: no memory is involved.
    int(unsafe { libc::syscall(libc::SYS_dup3, old, new, flags) })
}

pub(crate) fn dup(old: c_int) -> c_int {
    // SAFETY: no memory is involved.
    int(unsafe { libc::syscall(libc::SYS_dup, old) })
}

/// # Safety
/// `argument` is what `command` wants: a number, or a pointer valid for it.
pub(crate) unsafe fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    // SAFETY: the arguments are fcntl's; a number travels in the pointer's register.
    int(unsafe { libc::syscall(libc::SYS_fcntl, fd, command, argument) })
}

/// # Safety
/// `buffer` is valid for reads of `length` bytes.
pub(crate) unsafe fn write(fd: c_int, buffer: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the arguments are write's.
    size(unsafe { libc::syscall(libc::SYS_write, fd, buffer, length) })
}

/// # Safety
/// `buffer` is valid for reads of `length` bytes.
pub(crate) unsafe fn pwrite(
    fd: c_int,
    buffer: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the arguments are pwrite64's; off_t is 64 bits on every target with these call numbers.
    size(unsafe { libc::syscall(libc::SYS_pwrite64, fd, buffer, length, offset) })
}

/// # Safety
/// `vector` is valid for `count` entries, each valid for reads of its length.
pub(crate) unsafe fn writev(fd: c_int, vector: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the arguments are writev's.
    size(unsafe { libc::syscall(libc::SYS_writev, fd, vector, count) })
}

/// # Safety
/// `buffer` is valid for writes of `length` bytes.
pub(crate) unsafe fn read(fd: c_int, buffer: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the arguments are read's.
    size(unsafe { libc::syscall(libc::SYS_read, fd, buffer, length) })
}

/// # Safety
/// `buffer` is valid for writes of `length` bytes.
pub(crate) unsafe fn pread(
    fd: c_int,
    buffer: *mut c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the arguments are pread64's.
    size(unsafe { libc::syscall(libc::SYS_pread64, fd, buffer, length, offset) })
}

pub(crate) fn lseek(fd: c_int, offset: off_t, whence: c_int) -> off_t {
    // SAFETY: no memory is involved.
    unsafe { libc::syscall(libc::SYS_lseek, fd, offset, whence) }
}

pub(crate) fn fsync(fd: c_int) -> c_int {
    // SAFETY: no memory is involved.
    int(unsafe { libc::syscall(libc::SYS_fsync, fd) })
}

pub(crate) fn fdatasync(fd: c_int) -> c_int {
    // SAFETY: no memory is involved.
    int(unsafe { libc::syscall(libc::SYS_fdatasync, fd) })
}

pub(crate) fn ftruncate(fd: c_int, length: off_t) -> c_int {
    // SAFETY: no memory is involved.
    int(unsafe { libc::syscall(libc::SYS_ftruncate, fd, length) })
}

/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn truncate(path: *const libc::c_char, length: off_t) -> c_int {
    // SAFETY: the arguments are truncate's.
    int(unsafe { libc::syscall(libc::SYS_truncate, path, length) })
}

pub(crate) fn fallocate(fd: c_int, mode: c_int, offset: off_t, length: off_t) -> c_int {
    // SAFETY: no memory is involved.
    int(unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, offset, length) })
}

/// # Safety
/// Both paths are C strings.
pub(crate) unsafe fn renameat(
    from_dir: c_int,
    from: *const libc::c_char,
    to_dir: c_int,
    to: *const libc::c_char,
    flags: libc::c_uint,
) -> c_int {
    // SAFETY: the arguments are renameat2's.
    int(unsafe { libc::syscall(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) })
}

/// # Safety
/// Both paths are C strings.
pub(crate) unsafe fn linkat(
    from_dir: c_int,
    from: *const libc::c_char,
    to_dir: c_int,
    to: *const libc::c_char,
    flags: c_int,
) -> c_int {
    // SAFETY: the arguments are linkat's.
    int(unsafe { libc::syscall(libc::SYS_linkat, from_dir, from, to_dir, to, flags) })
}

/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn unlinkat(directory: c_int, path: *const libc::c_char, flags: c_int) -> c_int {
    // SAFETY: the arguments are unlinkat's.
    int(unsafe { libc::syscall(libc::SYS_unlinkat, directory, path, flags) })
}

/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn mkdirat(directory: c_int, path: *const libc::c_char, mode: mode_t) -> c_int {
    // SAFETY: the arguments are mkdirat's.
    int(unsafe { libc::syscall(libc::SYS_mkdirat, directory, path, mode) })
}

/// # Safety
/// As for mmap: a fixed address must be the caller's to map over.
pub(crate) unsafe fn mmap(
    address: *mut c_void,
    length: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the arguments are mmap's.
    let result =
        unsafe { libc::syscall(libc::SYS_mmap, address, length, protection, flags, fd, offset) };
    // An address, or -1, which is MAP_FAILED.
    std::ptr::with_exposed_provenance_mut(result.cast_unsigned().try_into().unwrap_or(usize::MAX))
}

/// Which file a descriptor is, and whether it is a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) is_directory: bool,
}

/// The identity of an open descriptor.
pub(crate) fn identity(fd: c_int) -> Option<Identity> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills a `struct stat`, which on these targets is libc's.
    let result = unsafe { libc::syscall(libc::SYS_fstat, fd, status.as_mut_ptr()) };
    // SAFETY: all zeros is a valid `struct stat`, and the kernel wrote nothing else than one.
    (result == 0).then(|| identity_of(&unsafe { status.assume_init() }))
}

/// Whether a path names something.
///
/// # Safety
/// `path` is a C string.
pub(crate) unsafe fn exists(directory: c_int, path: *const libc::c_char) -> bool {
    let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: as in `identity`; the path is the caller's promise.
    unsafe { libc::syscall(libc::SYS_newfstatat, directory, path, status.as_mut_ptr(), 0) == 0 }
}

fn identity_of(status: &libc::stat) -> Identity {
    Identity {
        device: status.st_dev,
        inode: status.st_ino,
        is_directory: status.st_mode & libc::S_IFMT == libc::S_IFDIR,
    }
}

/// What a symbolic link (one of `/proc/self`) points at, or nothing when it cannot be read.
pub(crate) fn read_link(path: &std::ffi::CStr) -> Vec<u8> {
    let mut target = vec![0_u8; 4096];
    // SAFETY: the buffer is valid for writes of its length, and the kernel writes at most that.
    let length = unsafe {
        libc::syscall(
            libc::SYS_readlinkat,
            libc::AT_FDCWD,
            path.as_ptr(),
            target.as_mut_ptr(),
            target.len(),
        )
    };
    target.truncate(usize::try_from(length).unwrap_or(0));
    target
}

/// Writes all of `bytes`. Answers whether it could.
pub(crate) fn write_all(fd: c_int, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        // SAFETY: the slice is valid for reads of its length.
        let written = unsafe { write(fd, bytes.as_ptr().cast(), bytes.len()) };
        let Some(rest) = usize::try_from(written)
            .ok()
            .filter(|count| *count > 0)
            .and_then(|count| bytes.get(count..))
        else {
            return false;
        };
        bytes = rest;
    }
    true
}
