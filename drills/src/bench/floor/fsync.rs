//! The disk's floor: 4 KiB behind the last, and an `fdatasync`. Everything durable costs at least that.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use super::super::histogram::Histogram;

/// Bytes appended before each sync: the smallest the file system writes.
const BLOCK_BYTES: usize = 4_096;

/// Appends and syncs one block after the other for as long as it is told.
///
/// # Errors
/// When the file cannot be written or synced.
pub(in crate::bench) fn measure(directory: &Path, lasting: Duration) -> io::Result<Histogram> {
    let path = directory.join("fsync");
    let mut file = File::create(&path)?;
    let block = [0x5a; BLOCK_BYTES];
    let mut times = Histogram::default();
    let begun = Instant::now();
    while begun.elapsed() < lasting {
        let started = Instant::now();
        file.write_all(&block)?;
        file.sync_data()?;
        times.record(started.elapsed());
    }
    drop(file);
    std::fs::remove_file(&path)?;
    Ok(times)
}
