//! What a failure is called. RocksDB tells its errors as text; this is the only place that reads it.

use std::io;

use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::KvError;

/// The store call `op` failed with `error`.
pub(super) fn kv_error(op: &'static str, error: rocksdb::Error) -> KvError {
    let detail = error.into_string();
    KvError { class: class_of(&detail), op, detail }
}

/// The store call `op` was not made, or its answer is not known: the database is closed or closing.
pub(super) fn not_running(op: &'static str, detail: &str) -> KvError {
    KvError { class: FailureClass::NotRunning, op, detail: detail.to_owned() }
}

/// The class of RocksDB's `text`, which is `<status code>: [<subcode>: ]<what was done>: <file>: <the system's words>`.
pub(super) fn class_of(text: &str) -> FailureClass {
    let says = |words: &str| text.contains(words);
    let (code, _rest) = text.split_once(": ").unwrap_or((text, ""));
    if says("No space left on device") || says("Disk quota exceeded") || says("Space limit reached")
    {
        return FailureClass::NoSpace;
    }
    if says("Read-only file system") {
        return FailureClass::ReadOnly;
    }
    match code {
        "Corruption" => FailureClass::Corruption,
        // Another open has the database: of this process, or of another one.
        "IO error" if says("lock hold by current process") || says("While lock file") => {
            FailureClass::Busy
        }
        "IO error" if says("timed out") => FailureClass::Timeout,
        "IO error" => FailureClass::IoError,
        "Resource busy" | "Operation failed. Try again." => FailureClass::Busy,
        "Operation timed out" => FailureClass::Timeout,
        "Shutdown in progress" => FailureClass::NotRunning,
        _other => FailureClass::Other,
    }
}

/// The class of an error the operating system gave us directly.
pub(super) fn class_of_io(error: &io::Error) -> FailureClass {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => FailureClass::NoSpace,
        Some(libc::EROFS) => FailureClass::ReadOnly,
        Some(libc::EBUSY | libc::EAGAIN) => FailureClass::Busy,
        Some(libc::ETIMEDOUT) => FailureClass::Timeout,
        _other => FailureClass::IoError,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_status_has_a_class() {
        let cases = [
            (
                "IO error: No space left on device: While appending to file: /d/000012.log: No space left on device",
                FailureClass::NoSpace,
            ),
            (
                "IO error: While appending to file: /d/000012.log: Disk quota exceeded",
                FailureClass::NoSpace,
            ),
            ("IO error: Space limit reached: Max allowed space was reached", FailureClass::NoSpace),
            (
                "IO error: While open a file for appending: /d/000012.log: Read-only file system",
                FailureClass::ReadOnly,
            ),
            ("IO error: While fdatasync: /d/000012.log: Input/output error", FailureClass::IoError),
            (
                "IO error: No such file or directory: While open a file: /d/7.sst: No such file or directory",
                FailureClass::IoError,
            ),
            (
                "IO error: while open a file for lock: /d/LOCK: Permission denied",
                FailureClass::IoError,
            ),
            ("IO error: Stale file handle", FailureClass::IoError),
            (
                "IO error: While fdatasync: /d/000012.log: Connection timed out",
                FailureClass::Timeout,
            ),
            (
                "IO error: lock hold by current process, acquire time 1 acquiring thread 2: /d/LOCK: No locks available",
                FailureClass::Busy,
            ),
            (
                "IO error: While lock file: /d/LOCK: Resource temporarily unavailable",
                FailureClass::Busy,
            ),
            (
                "Corruption: block checksum mismatch: stored = 1, computed = 2, type = 1 in /d/7.sst",
                FailureClass::Corruption,
            ),
            ("Corruption: Merge operator failed", FailureClass::Corruption),
            ("Resource busy: Timeout Acquiring Mutex", FailureClass::Busy),
            ("Operation failed. Try again.: Memtable is empty", FailureClass::Busy),
            ("Operation timed out: Timeout waiting to lock key", FailureClass::Timeout),
            ("Shutdown in progress: Database shutdown", FailureClass::NotRunning),
            ("Invalid argument: Column family not found: x", FailureClass::Other),
            ("Not implemented: Not supported operation in read only mode.", FailureClass::Other),
            ("Operation aborted", FailureClass::Other),
            ("", FailureClass::Other),
        ];
        let wrong: Vec<_> =
            cases.into_iter().filter(|(text, class)| class_of(text) != *class).collect();
        assert_eq!(wrong, []);
    }

    #[test]
    fn an_error_number_has_a_class() {
        let cases = [
            (libc::ENOSPC, FailureClass::NoSpace),
            (libc::EDQUOT, FailureClass::NoSpace),
            (libc::EROFS, FailureClass::ReadOnly),
            (libc::EBUSY, FailureClass::Busy),
            (libc::ETIMEDOUT, FailureClass::Timeout),
            (libc::EIO, FailureClass::IoError),
            (libc::EACCES, FailureClass::IoError),
        ];
        for (number, class) in cases {
            assert_eq!(class_of_io(&io::Error::from_raw_os_error(number)), class, "{number}");
        }
        assert_eq!(class_of_io(&io::Error::other("no number")), FailureClass::IoError);
    }
}
