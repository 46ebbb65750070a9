//! What is promised of the pen before anything is written: a place in the bucket of a source, and room. Both are guards that
//! give back what came to nothing.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::time::Instant;

use crate::model::gcra::{Bucket, Gcra};
use crate::model::quarantine::HeldKey;
use crate::queue::Reply;

/// What the pen holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PenSize {
    pub entries: u64,
    pub bytes: u64,
}

#[derive(Debug, Default)]
pub(super) struct Room {
    pub(super) held: PenSize,
    /// For hooks on their way.
    pub(super) set_aside_bytes: u64,
    pub(super) waiting: usize,
    /// What is held is known.
    pub(super) is_counted: bool,
}

pub(super) struct Shared {
    pub(super) limit: Gcra,
    pub(super) max_bytes: u64,
    pub(super) buckets: Mutex<BTreeMap<String, Bucket>>,
    pub(super) room: Mutex<Room>,
    /// A failure has been seen and what it left is not cleared away yet.
    pub(super) is_blocked: AtomicBool,
    /// An incarnation of the process has run here before.
    pub(super) has_run: AtomicBool,
    pub(super) since: Instant,
}

impl Shared {
    pub(super) fn room(&self) -> MutexGuard<'_, Room> {
        self.room.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn buckets(&self) -> MutexGuard<'_, BTreeMap<String, Bucket>> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A place in a source's bucket. Dropped, it was never taken.
pub struct Promise {
    pub(super) shared: Arc<Shared>,
    pub(super) source_id: String,
    pub(super) is_open: bool,
}

impl Promise {
    /// The hook is held, or stored.
    pub fn keep(mut self) {
        self.is_open = false;
        let now_ns = self.shared.now_ns();
        if let Some(bucket) = self.shared.buckets().get_mut(&self.source_id) {
            bucket.keep(&self.shared.limit, now_ns);
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        if self.is_open
            && let Some(bucket) = self.shared.buckets().get_mut(&self.source_id)
        {
            bucket.release();
        }
    }
}

/// Room for one hook. Dropped, it is there for others again.
pub(in crate::edge) struct SetAside {
    pub(super) shared: Arc<Shared>,
    pub(super) bytes: u64,
}

impl SetAside {
    /// The hook is held.
    fn fill(self) {
        let mut room = self.shared.room();
        room.held.entries += 1;
        room.held.bytes = room.held.bytes.saturating_add(self.bytes);
    }
}

impl Drop for SetAside {
    fn drop(&mut self) {
        let mut room = self.shared.room();
        room.set_aside_bytes = room.set_aside_bytes.saturating_sub(self.bytes);
        room.waiting = room.waiting.saturating_sub(1);
    }
}

/// A hook on its way into the pen.
pub(in crate::edge) struct Held {
    pub(in crate::edge) key: HeldKey,
    pub(in crate::edge) summary: Vec<u8>,
    pub(in crate::edge) envelope: Bytes,
    pub(in crate::edge) reply: Reply,
    pub(super) promise: Promise,
    pub(super) room: SetAside,
}

impl Held {
    /// It is durable. Its caller is to be answered with what this gives back.
    pub(in crate::edge) fn into_reply(self) -> Reply {
        self.room.fill();
        self.promise.keep();
        self.reply
    }
}
