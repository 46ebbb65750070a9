//! A file that is an object, open: what is renamed over it meanwhile is another.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use ankusa_actors::ports::{BlobError, BlobKey};
use bytes::Bytes;
use rustix::io::Errno;

use super::folder::failed;

pub(super) struct Object {
    file: File,
    bytes: u64,
}

impl Object {
    /// A size the system answers is none below zero.
    pub(super) fn new(fd: OwnedFd, size: i64) -> Self {
        Self { file: fd.into(), bytes: u64::try_from(size).unwrap_or(0) }
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Those of `length` bytes from `offset` on that there are.
    pub(super) fn read(&self, offset: u64, length: u64, key: &BlobKey) -> Result<Bytes, BlobError> {
        let there = self.bytes.saturating_sub(offset).min(length);
        let mut read = vec![0; usize::try_from(there).unwrap_or(usize::MAX)];
        match self.file.read_exact_at(&mut read, offset) {
            Ok(()) => Ok(read.into()),
            Err(error) => Err(self.failed(key, &error)),
        }
    }

    /// Whether `pieces` are what it holds from `offset` on.
    pub(super) fn holds(&self, offset: u64, pieces: &[Bytes]) -> Result<bool, BlobError> {
        let mut at = offset;
        for piece in pieces {
            let mut found = vec![0; piece.len()];
            match self.file.read_exact_at(&mut found, at) {
                Ok(()) if found == *piece => {}
                Ok(()) => return Ok(false),
                Err(error) if error.raw_os_error().is_none() => return Ok(false),
                Err(error) => return Err(failed("read", "what is there", errno(&error))),
            }
            at += u64::try_from(piece.len()).unwrap_or(u64::MAX);
        }
        Ok(true)
    }

    pub(super) fn sync(&self, key: &BlobKey) -> Result<(), BlobError> {
        self.file.sync_all().map_err(|error| failed("sync", key.as_str(), errno(&error)))
    }

    fn failed(&self, key: &BlobKey, error: &std::io::Error) -> BlobError {
        if error.raw_os_error().is_none() {
            let why = format!("{key} had {} bytes and has fewer now", self.bytes);
            return BlobError::Integrity(why);
        }
        failed("read", key.as_str(), errno(error))
    }
}

/// What the system said, of an error that it gave.
pub(super) fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}
