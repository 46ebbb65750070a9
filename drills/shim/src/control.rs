//! The control page, mapped once: which faults to inject, and counters of what was seen.

use std::ffi::CString;
use std::os::unix::ffi::OsStringExt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ankusa_drills_replay::control::{FILTER_MAX_BYTES, FILTER_OFFSET, PAGE_BYTES, Word};
use libc::{EIO, c_int};

use crate::raw;

/// The mapped page. Null when there is none.
struct Page(*const AtomicU64);

// SAFETY: the page is shared memory that is never unmapped and is only accessed through atomics.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

static PAGE: OnceLock<Page> = OnceLock::new();

fn page() -> &'static Page {
    PAGE.get_or_init(|| Page(map_page().unwrap_or(std::ptr::null())))
}

fn map_page() -> Option<*const AtomicU64> {
    let path = CString::new(std::env::var_os("DRILL_CTL")?.into_vec()).ok()?;
    // SAFETY: the path is a C string.
    let fd = unsafe {
        raw::openat(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC,
            0o644,
        )
    };
    if fd < 0 {
        return None;
    }
    raw::ftruncate(fd, libc::off_t::try_from(PAGE_BYTES).ok()?);
    let length = usize::try_from(PAGE_BYTES).ok()?;
    // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
    let address = unsafe {
        raw::mmap(
            std::ptr::null_mut(),
            length,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd,
            0,
        )
    };
    raw::close(fd);
    (address != libc::MAP_FAILED).then_some(address.cast_const().cast())
}

/// The word, if there is a page.
fn word(word: Word) -> Option<&'static AtomicU64> {
    let Page(base) = page();
    if base.is_null() {
        return None;
    }
    // SAFETY: the page holds 512 aligned words and every `Word` is below that; it lives for the rest of the process.
    Some(unsafe { &*base.add(word as usize) })
}

/// The value of a word; 0 without a page.
pub(crate) fn value(of: Word) -> u64 {
    word(of).map_or(0, |word| word.load(Ordering::Relaxed))
}

/// Whether there is a page at all.
pub(crate) fn is_present() -> bool {
    !page().0.is_null()
}

pub(crate) fn set(which: Word, value: u64) {
    if let Some(word) = word(which) {
        word.store(value, Ordering::SeqCst);
    }
}

/// Counts something seen.
pub(crate) fn count(what: Word) {
    if let Some(word) = word(what) {
        word.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether faults are for this path.
fn is_meant(path: &[u8]) -> bool {
    let Page(base) = page();
    let length = usize::try_from(value(Word::FilterLength)).unwrap_or(0).min(FILTER_MAX_BYTES);
    if length == 0 || base.is_null() {
        return true;
    }
    let Ok(first) = usize::try_from(FILTER_OFFSET / 8) else { return true };
    let mut filter = Vec::with_capacity(FILTER_MAX_BYTES);
    for word in first..first + FILTER_MAX_BYTES / 8 {
        // SAFETY: the filter's words end below the page's 512; the page lives for the rest of the process.
        let word = unsafe { &*base.add(word) }.load(Ordering::Relaxed);
        filter.extend_from_slice(&word.to_le_bytes());
    }
    filter.truncate(length);
    path.windows(length).any(|part| part == filter)
}

/// Counts a fault down, if it is for this path. Answers whether this call is the one to fail.
pub(crate) fn fires(countdown: Word, path: &[u8]) -> bool {
    let Some(word) = word(countdown) else { return false };
    if word.load(Ordering::Relaxed) == 0 || !is_meant(path) {
        return false;
    }
    loop {
        let left = word.load(Ordering::Relaxed);
        if left == 0 {
            return false;
        }
        let stays = left == 1 && value(Word::Sticky) == 1;
        if stays
            || word.compare_exchange(left, left - 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
        {
            if left == 1 {
                count(Word::SeenFaults);
            }
            return left == 1;
        }
    }
}

/// Whether a call that takes no space may fail as well: a full disk still gives space back.
pub(crate) fn is_full_disk() -> bool {
    [libc::ENOSPC, libc::EDQUOT].contains(&errno_in(Word::WriteErrno))
}

/// Whether the disk is dead; if so, errno already says EIO.
pub(crate) fn disk_is_dead() -> bool {
    let dead = value(Word::Dead) == 1;
    if dead {
        raw::set_errno(EIO);
    }
    dead
}

/// The errno a word holds.
pub(crate) fn errno_in(word: Word) -> c_int {
    c_int::try_from(value(word)).unwrap_or(EIO)
}

/// Waits as long as a slow disk would before it syncs.
pub(crate) fn delay_sync() {
    let delay_us = value(Word::SyncDelayUs);
    if delay_us > 0 {
        std::thread::sleep(Duration::from_micros(delay_us));
    }
}
