//! The way to the Writer: a queue bounded in bytes, and one wake-up for whatever is in it.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, timeout_at};

use super::admission::Permit;
use super::config::BatcherConfig;
use super::inbox::Inbox;
use super::recent_keys::{KeyClaim, KeyEpoch};
use super::reply::Reply;
use super::writer::WriterMsg;
use crate::model::delivery::PendingRow;
use crate::model::failure::FailureClass;
use crate::model::keys::Held;
use crate::supervision::{Doorbell, Slot};

/// One hook, ready but for its seq and its due time.
#[derive(Debug)]
pub struct CommitEntry {
    pub tenant: Cow<'static, str>,
    pub value: Bytes,
    /// Sink and row, in the order of its source.
    pub rows: Vec<(u16, PendingRow)>,
    /// The dedupe key of a hook that has one.
    pub key: Option<Box<KeyClaim>>,
    pub reply: Reply,
    pub permit: Permit,
    /// Not to be started after this.
    pub deadline: Instant,
}

impl CommitEntry {
    fn bytes(&self) -> usize {
        self.value.len()
    }
}

#[derive(Debug)]
pub(super) struct CommitBatch {
    pub(super) entries: Vec<CommitEntry>,
    pub(super) bytes: usize,
    /// Room in the Writer's queue, given back when the group is applied.
    pub(super) room: OwnedSemaphorePermit,
}

/// An entry of the expiry index whose time has come, and what was found under its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpiredKey {
    /// The entry, as the store has it.
    pub entry: Vec<u8>,
    /// The key it is for, as the store has it; `None` where the entry cannot be read.
    pub key: Option<Bytes>,
    pub expires_at_ms: u64,
    pub held: Held,
}

/// What became of expired keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// False: they were read too long ago, and nothing was done.
    pub looked: bool,
    /// Keys that are gone with their entry.
    pub keys: u64,
    /// Entries that stood for no key any more.
    pub entries: u64,
    /// Keys and entries that could not be read, and are gone.
    pub unreadable: u64,
}

#[derive(Debug)]
pub(super) struct ExpiredKeys {
    pub(super) keys: Vec<ExpiredKey>,
    /// See [`KeyClaim::seen`].
    pub(super) seen: u64,
    pub(super) reply: oneshot::Sender<Ended>,
}

/// How the batchers reach the Writer.
#[derive(Clone)]
pub struct WriterHandle {
    slot: Slot<WriterMsg>,
    bell: Doorbell<WriterMsg>,
    inbox: Inbox<CommitBatch>,
    expired: Inbox<ExpiredKeys>,
    key_epoch: KeyEpoch,
    room: Arc<Semaphore>,
    room_bytes: u32,
    standing: Arc<Mutex<Standing>>,
}

/// How the Writer stands with the store, over all of its incarnations.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// It has read its state once.
    has_read: bool,
    /// Why it does not commit: what its last attempt to fence, or to read its state, failed with.
    blocked: Option<FailureClass>,
}

impl WriterHandle {
    pub fn new(config: &BatcherConfig) -> Self {
        let slot = Slot::default();
        // One group in hand and one queued behind it.
        let room_bytes =
            config.group_commit_max_bytes.saturating_mul(2).min(Semaphore::MAX_PERMITS);
        Self {
            bell: Doorbell::new(&slot, || WriterMsg::Commit),
            slot,
            inbox: Inbox::default(),
            expired: Inbox::default(),
            key_epoch: KeyEpoch::default(),
            room: Arc::new(Semaphore::new(room_bytes)),
            room_bytes: u32::try_from(room_bytes).unwrap_or(u32::MAX),
            standing: Arc::default(),
        }
    }

    /// Why no hook can be committed, though the store may well take writes: the Writer cannot read its state, or cannot
    /// fence.
    pub fn blocked(&self) -> Option<FailureClass> {
        self.standing().blocked
    }

    pub(super) fn has_read(&self) -> bool {
        self.standing().has_read
    }

    pub(super) fn commits_again(&self) {
        *self.standing() = Standing { has_read: true, blocked: None };
    }

    pub(super) fn is_blocked(&self, class: FailureClass) {
        self.standing().blocked = Some(class);
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn slot(&self) -> &Slot<WriterMsg> {
        &self.slot
    }

    /// Hands a batch over once there is room for it. Every caller in it is answered whatever happens: entries that find
    /// no room or no Writer in time are dropped, and their guards refuse them.
    pub async fn commit(&self, entries: Vec<CommitEntry>) {
        let Some(deadline) = entries.iter().map(|entry| entry.deadline).max() else { return };
        let bytes = entries.iter().map(CommitEntry::bytes).sum::<usize>();
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.room_bytes);
        let room = Arc::clone(&self.room).acquire_many_owned(wanted);
        let Ok(Ok(room)) = timeout_at(deadline, room).await else { return };
        if !self.slot.is_running() {
            return;
        }
        self.inbox.push(CommitBatch { entries, bytes, room });
        self.bell.ring();
    }

    /// The epoch a look at dedupe keys belongs to that begins now.
    pub fn look_at_keys(&self) -> u64 {
        self.key_epoch.get()
    }

    pub(super) fn key_epoch(&self) -> &KeyEpoch {
        &self.key_epoch
    }

    /// Has the Writer end these keys, which were looked up in the epoch `seen`. Answers once the store has taken it;
    /// `None` where nobody can: try again later.
    pub async fn end_expired(&self, keys: Vec<ExpiredKey>, seen: u64) -> Option<Ended> {
        if !self.slot.is_running() {
            return None;
        }
        let (reply, ended) = oneshot::channel();
        self.expired.push(ExpiredKeys { keys, seen, reply });
        self.bell.ring();
        ended.await.ok()
    }

    pub(super) fn take_expired(&self) -> Option<ExpiredKeys> {
        self.expired.pop_if(|_| true)
    }

    /// The Writer is about to look at what waits.
    pub(super) fn awake(&self) {
        self.bell.answered();
    }

    /// The next batch, if `fits` says that it may be taken.
    pub(super) fn take_if(&self, fits: impl FnOnce(&CommitBatch) -> bool) -> Option<CommitBatch> {
        self.inbox.pop_if(fits)
    }

    /// Drops what waits: never started, its guards refuse it.
    pub(super) fn refuse_waiting(&self) {
        drop(self.inbox.take(usize::MAX));
        drop(self.expired.take(usize::MAX));
    }

    /// There is room for another group.
    pub(super) fn wake(&self) {
        if !self.inbox.is_empty() || !self.expired.is_empty() {
            self.bell.ring();
        }
    }

    /// An fsync failed in this generation of the store.
    pub(super) fn fence(&self, after_generation: u64) {
        self.slot.cast(WriterMsg::Fence { after_generation: Some(after_generation) });
    }
}
