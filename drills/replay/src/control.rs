//! The control page: one 4 KiB file, mapped by the recorder and written by the drill while the process runs.
//!
//! It is an array of little-endian `u64` words. A word that counts down ([`Word::FailSync`], [`Word::FailWrite`],
//! [`Word::FailRead`], [`Word::FlipRead`]) fires when it goes from 1 to 0: `N` means "the Nth call from now". The
//! recorder itself counts what it saw in the words from 16 on. From byte 2048 on lies the filter: which paths are meant.

/// Bytes of the page.
pub const PAGE_BYTES: u64 = 4096;

/// A word of the page. The number is its index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Word {
    /// Every fsync first sleeps this long, in microseconds.
    SyncDelayUs = 1,
    /// Counts fsyncs down to the one that fails.
    FailSync = 2,
    /// The errno of a failed fsync.
    SyncErrno = 3,
    /// Counts writes, creates, renames, links and unlinks down to the one that fails.
    FailWrite = 4,
    /// The errno of a failed write.
    WriteErrno = 5,
    /// Bytes of the failing write that still land; the caller's retry of the rest then gets the errno.
    ShortWrite = 6,
    /// Counts reads down to the one that fails.
    FailRead = 7,
    /// The errno of a failed read.
    ReadErrno = 8,
    /// Counts reads down to the one that comes back with one bit flipped.
    FlipRead = 9,
    /// 1: every call answers EIO. 0: the disk is alive (again).
    Dead = 10,
    /// 1: a fault, once it fired, fires for every later call too.
    Sticky = 11,
    /// Bytes of the filter. 0: faults are for every path.
    FilterLength = 12,
    /// What the wall clock is ahead by, in milliseconds: an `i64` in the word's bits.
    WallShiftMs = 15,
    /// Fsyncs seen.
    SeenSyncs = 16,
    /// Writes seen.
    SeenWrites = 17,
    /// Reads seen.
    SeenReads = 18,
    /// Faults fired.
    SeenFaults = 19,
}

impl Word {
    /// Where the word starts in the page, in bytes.
    #[must_use]
    pub const fn offset(self) -> u64 {
        // A word's index is a small constant, written above.
        (self as u64) * 8
    }
}

/// Where the filter starts in the page: a part of a path. Faults are for calls on paths that contain it, and only those are
/// counted down. A path is the one the file was opened under, or either one of a rename.
pub const FILTER_OFFSET: u64 = 2048;

/// The longest filter, in bytes.
pub const FILTER_MAX_BYTES: usize = 64;
