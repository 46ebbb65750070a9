//! The operation log: what the recorder writes and everyone else reads.
//!
//! A log is records back to back, in the order in which the operations took effect. All integers are little endian.
//!
//! 1. `u8` kind
//! 2. `u32` file: the recorder's number of the file (not a descriptor); 0 for directories and for operations on names
//! 3. `u64` number: offset of a write, new length of a truncate or extend, token of a sync
//! 4. `u32` length of the first field, `u32` length of the second
//! 5. the first field, then the second (paths, or the bytes of a write or mark)
//!
//! A file keeps its number through renames and links, and a path that is unlinked and made again gets a new one.

/// Bytes of a record before its two fields.
pub const HEADER_BYTES: usize = 21;

/// The `u8` a record starts with. A number once given is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    Create = 1,
    Write = 2,
    Truncate = 3,
    SyncBegin = 4,
    SyncEnd = 5,
    Rename = 6,
    Unlink = 7,
    Link = 8,
    MakeDir = 9,
    RemoveDir = 10,
    DirSyncEnd = 11,
    Mark = 12,
    Extend = 13,
    SyncFailed = 15,
    Found = 16,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        let kind = match byte {
            1 => Self::Create,
            2 => Self::Write,
            3 => Self::Truncate,
            4 => Self::SyncBegin,
            5 => Self::SyncEnd,
            6 => Self::Rename,
            7 => Self::Unlink,
            8 => Self::Link,
            9 => Self::MakeDir,
            10 => Self::RemoveDir,
            11 => Self::DirSyncEnd,
            12 => Self::Mark,
            13 => Self::Extend,
            15 => Self::SyncFailed,
            16 => Self::Found,
            _ => return None,
        };
        Some(kind)
    }
}

/// One operation, as it took effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op<'a> {
    /// A path that was not there names a new, empty file.
    Create {
        file: u32,
        path: &'a str,
    },
    /// A file that was there before the recording began is used for the first time: `file` is its number from here on.
    Found {
        file: u32,
        path: &'a str,
    },
    /// Bytes reached the page cache.
    Write {
        file: u32,
        offset: u64,
        bytes: &'a [u8],
    },
    /// The file was cut, or grown with zeros, to exactly this length.
    Truncate {
        file: u32,
        length: u64,
    },
    /// The file is at least this long, with zeros where nothing was written.
    Extend {
        file: u32,
        length: u64,
    },
    /// An fsync of a file (or, with file 0, of a directory) was asked for. `token` pairs it with its end.
    SyncBegin {
        file: u32,
        token: u64,
    },
    /// The fsync of a file returned success.
    SyncEnd {
        file: u32,
        token: u64,
    },
    /// The fsync of a directory returned success.
    DirSyncEnd {
        path: &'a str,
        token: u64,
    },
    /// The fsync returned an error.
    SyncFailed {
        file: u32,
        token: u64,
    },
    Rename {
        from: &'a str,
        to: &'a str,
    },
    Link {
        from: &'a str,
        to: &'a str,
    },
    Unlink {
        path: &'a str,
    },
    MakeDir {
        path: &'a str,
    },
    RemoveDir {
        path: &'a str,
    },
    /// Not a disk operation: a line of a ledger, ordered with them.
    Mark {
        bytes: &'a [u8],
    },
}

/// Why a log cannot be read. Offsets are bytes from the start of the log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpLogError {
    #[error("the log ends inside the record at byte {offset}")]
    Truncated { offset: usize },
    #[error("the record at byte {offset} has the unknown kind {kind}")]
    UnknownKind { offset: usize, kind: u8 },
    #[error("the record at byte {offset} names a path that is not UTF-8")]
    PathNotUtf8 { offset: usize },
}

/// Appends one record to `out`. The two fields are whatever `kind` needs: paths, or bytes.
///
/// A field longer than `u32::MAX` cannot be written down; it is cut there, which no caller comes near (Linux moves at
/// most 2 GiB in one write).
pub fn encode(out: &mut Vec<u8>, kind: Kind, file: u32, number: u64, first: &[u8], second: &[u8]) {
    let field_len = |field: &[u8]| u32::try_from(field.len()).unwrap_or(u32::MAX);
    let (first_len, second_len) = (field_len(first), field_len(second));
    out.push(kind as u8);
    out.extend_from_slice(&file.to_le_bytes());
    out.extend_from_slice(&number.to_le_bytes());
    out.extend_from_slice(&first_len.to_le_bytes());
    out.extend_from_slice(&second_len.to_le_bytes());
    out.extend(first.iter().take(first_len as usize));
    out.extend(second.iter().take(second_len as usize));
}

/// Reads a whole log.
///
/// # Errors
/// When a record is cut short, of an unknown kind, or names a path that is not UTF-8. Nothing is skipped: a log that
/// cannot be read in full proves nothing.
pub fn decode(log: &[u8]) -> Result<Vec<Op<'_>>, OpLogError> {
    let mut ops = Vec::new();
    let mut offset = 0;
    while offset < log.len() {
        let (op, length) = decode_one(log, offset)?;
        ops.push(op);
        offset += length;
    }
    Ok(ops)
}

/// Reads the record at `offset`. Answers it and its length in bytes.
fn decode_one(log: &[u8], offset: usize) -> Result<(Op<'_>, usize), OpLogError> {
    let truncated = OpLogError::Truncated { offset };
    let rest = log.get(offset..).unwrap_or_default();
    let (header, fields) = rest.split_at_checked(HEADER_BYTES).ok_or(truncated.clone())?;
    let (kind_byte, header) = header.split_first().ok_or(truncated.clone())?;
    let (file, header) = header.split_first_chunk::<4>().ok_or(truncated.clone())?;
    let (number, header) = header.split_first_chunk::<8>().ok_or(truncated.clone())?;
    let (first_len, header) = header.split_first_chunk::<4>().ok_or(truncated.clone())?;
    let second_len = header.first_chunk::<4>().ok_or(truncated.clone())?;
    let (first_len, second_len) = (field_len(*first_len), field_len(*second_len));
    let (first, fields) = fields.split_at_checked(first_len).ok_or(truncated.clone())?;
    let second = fields.get(..second_len).ok_or(truncated)?;

    let kind =
        Kind::from_byte(*kind_byte).ok_or(OpLogError::UnknownKind { offset, kind: *kind_byte })?;
    let path = |field| std::str::from_utf8(field).map_err(|_| OpLogError::PathNotUtf8 { offset });
    let (file, number) = (u32::from_le_bytes(*file), u64::from_le_bytes(*number));
    let op = match kind {
        Kind::Create => Op::Create { file, path: path(first)? },
        Kind::Found => Op::Found { file, path: path(first)? },
        Kind::Write => Op::Write { file, offset: number, bytes: first },
        Kind::Truncate => Op::Truncate { file, length: number },
        Kind::Extend => Op::Extend { file, length: number },
        Kind::SyncBegin => Op::SyncBegin { file, token: number },
        Kind::SyncEnd => Op::SyncEnd { file, token: number },
        Kind::DirSyncEnd => Op::DirSyncEnd { path: path(first)?, token: number },
        Kind::SyncFailed => Op::SyncFailed { file, token: number },
        Kind::Rename => Op::Rename { from: path(first)?, to: path(second)? },
        Kind::Link => Op::Link { from: path(first)?, to: path(second)? },
        Kind::Unlink => Op::Unlink { path: path(first)? },
        Kind::MakeDir => Op::MakeDir { path: path(first)? },
        Kind::RemoveDir => Op::RemoveDir { path: path(first)? },
        Kind::Mark => Op::Mark { bytes: first },
    };
    Ok((op, HEADER_BYTES + first_len + second_len))
}

/// A length of a 32-bit field. On a machine whose addresses are smaller it saturates and reads as a truncated record.
fn field_len(bytes: [u8; 4]) -> usize {
    usize::try_from(u32::from_le_bytes(bytes)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every_kind() -> Vec<u8> {
        let mut log = Vec::new();
        encode(&mut log, Kind::Create, 1, 0, b"/r/a", b"");
        encode(&mut log, Kind::Write, 1, 7, b"hello", b"");
        encode(&mut log, Kind::Truncate, 1, 3, b"", b"");
        encode(&mut log, Kind::Extend, 1, 4096, b"", b"");
        encode(&mut log, Kind::SyncBegin, 1, 11, b"", b"");
        encode(&mut log, Kind::SyncEnd, 1, 11, b"", b"");
        encode(&mut log, Kind::SyncFailed, 1, 12, b"", b"");
        encode(&mut log, Kind::DirSyncEnd, 0, 13, b"/r", b"");
        encode(&mut log, Kind::Rename, 0, 0, b"/r/a", b"/r/b");
        encode(&mut log, Kind::Link, 0, 0, b"/r/b", b"/r/c");
        encode(&mut log, Kind::Unlink, 0, 0, b"/r/c", b"");
        encode(&mut log, Kind::MakeDir, 0, 0, b"/r/d", b"");
        encode(&mut log, Kind::RemoveDir, 0, 0, b"/r/d", b"");
        encode(&mut log, Kind::Mark, 0, 0, b"A 1\n", b"");
        encode(&mut log, Kind::Found, 2, 0, b"/r/old", b"");
        log
    }

    #[test]
    fn what_is_written_is_read() {
        let log = every_kind();
        assert_eq!(
            decode(&log),
            Ok(vec![
                Op::Create { file: 1, path: "/r/a" },
                Op::Write { file: 1, offset: 7, bytes: b"hello" },
                Op::Truncate { file: 1, length: 3 },
                Op::Extend { file: 1, length: 4096 },
                Op::SyncBegin { file: 1, token: 11 },
                Op::SyncEnd { file: 1, token: 11 },
                Op::SyncFailed { file: 1, token: 12 },
                Op::DirSyncEnd { path: "/r", token: 13 },
                Op::Rename { from: "/r/a", to: "/r/b" },
                Op::Link { from: "/r/b", to: "/r/c" },
                Op::Unlink { path: "/r/c" },
                Op::MakeDir { path: "/r/d" },
                Op::RemoveDir { path: "/r/d" },
                Op::Mark { bytes: b"A 1\n" },
                Op::Found { file: 2, path: "/r/old" },
            ])
        );
    }

    #[test]
    fn a_log_cut_anywhere_inside_a_record_is_refused() {
        let mut log = Vec::new();
        encode(&mut log, Kind::Rename, 0, 0, b"/r/a", b"/r/b");
        for length in 1..log.len() {
            assert_eq!(
                decode(&log[..length]),
                Err(OpLogError::Truncated { offset: 0 }),
                "{length} bytes"
            );
        }
        assert_eq!(decode(b""), Ok(vec![]));
    }

    #[test]
    fn a_length_that_lies_is_refused_without_an_allocation() {
        let mut log = Vec::new();
        encode(&mut log, Kind::Write, 1, 0, b"abc", b"");
        log[13..17].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(decode(&log), Err(OpLogError::Truncated { offset: 0 }));
    }

    #[test]
    fn an_unknown_kind_and_a_path_of_bytes_are_named_with_their_offset() {
        let mut log = Vec::new();
        encode(&mut log, Kind::Unlink, 0, 0, b"/r", b"");
        let second = log.len();
        encode(&mut log, Kind::Unlink, 0, 0, b"/\xff", b"");
        assert_eq!(decode(&log), Err(OpLogError::PathNotUtf8 { offset: second }));
        log[second] = 14;
        assert_eq!(decode(&log), Err(OpLogError::UnknownKind { offset: second, kind: 14 }));
    }
}
