//! How much room a simulated disk has. As much as nobody uses up, until a test says otherwise.

use crate::model::batch::Batch;
use crate::model::failure::FailureClass;
use crate::ports::DiskRoom;

/// What the probe's small file takes while it is there.
const PROBE_BYTES: u64 = 4_096;

/// Free and total bytes, and the reserve file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    free: u64,
    total: u64,
    reserve: u64,
    memtable: u64,
    log: u64,
}

impl Default for Room {
    fn default() -> Self {
        Self { free: 1 << 40, total: 1 << 41, reserve: 0, memtable: 1 << 20, log: 0 }
    }
}

type Taken = Result<(), FailureClass>;

impl Room {
    pub(super) fn resize(&mut self, free: u64, total: u64) {
        (self.free, self.total) = (free, total);
    }

    pub(super) fn look(&self) -> DiskRoom {
        DiskRoom {
            free_bytes: self.free,
            total_bytes: self.total,
            reserve_bytes: self.reserve,
            wal_bytes: self.log,
            memtable_bytes: self.memtable,
        }
    }

    /// The log is this much longer, and it is there for good until a recovery has rewritten it.
    pub(super) fn log(&mut self, batch: &Batch) -> Taken {
        let bytes = u64::try_from(batch.bytes()).unwrap_or(u64::MAX);
        self.take(bytes)?;
        self.log += bytes;
        Ok(())
    }

    pub(super) fn probe(&self) -> Taken {
        if self.free < PROBE_BYTES { Err(FailureClass::NoSpace) } else { Ok(()) }
    }

    /// The log is written again, into tables, and then dropped.
    pub(super) fn recover(&mut self) -> Taken {
        if self.free < self.log {
            return Err(FailureClass::NoSpace);
        }
        self.log = 0;
        Ok(())
    }

    pub(super) fn set_reserve(&mut self, bytes: u64) -> Taken {
        self.free += std::mem::take(&mut self.reserve);
        self.take(bytes)?;
        self.reserve = bytes;
        Ok(())
    }

    fn take(&mut self, bytes: u64) -> Taken {
        self.free = self.free.checked_sub(bytes).ok_or(FailureClass::NoSpace)?;
        Ok(())
    }
}
