//! The quarantine pen, as the edge sees it: who may put a hook in, how much room there is, and the way to the process that
//! writes it.
//!
//! A source has a bucket of hooks that did not verify. A place in it is promised before anything is written, and taken only
//! once the hook is held: whoever is answered 503 has used nothing up. So with the room: it is set aside first.

mod places;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use ractor::rpc::CallResult;
use tokio::time::Instant;

pub(super) use self::places::Held;
pub use self::places::{PenSize, Promise};
use self::places::{SetAside, Shared};
use super::config::QuarantineConfig;
use super::quarantine::QuarantineMsg;
use crate::model::cf::Cf;
use crate::model::envelope::Envelope;
use crate::model::failure::FailureClass;
use crate::model::gcra::retry_after_s;
use crate::model::keys::{QuarantineKey, QuarantinePart, is_sentinel};
use crate::model::quarantine::{HeldFilter, HeldKey, StoredSummary, Summary, size_of};
use crate::model::value_version::ValueVersion;
use crate::ports::{Direction, KvError, Scan};
use crate::queue::{Inbox, Refusal, Waiting, reply};
use crate::store::StoreHandle;
use crate::supervision::{Doorbell, Slot};

/// Buckets from which on those that are full again are dropped.
const SWEEP_FROM: usize = 1_024;

/// Hooks that wait for the pen to be written, of all sources together.
const MAX_WAITING: usize = 1_000;

/// Summaries read, and hooks deleted, at a time.
const CHUNK_ROWS: usize = 500;

/// Why a hook is not put into the pen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PenRefusal {
    /// It would be over `quarantine.max_bytes`.
    Full,
    /// Nobody can write it now.
    Unavailable(Refusal),
}

/// Cheap to clone; survives restarts.
#[derive(Clone)]
pub struct QuarantineHandle {
    slot: Slot<QuarantineMsg>,
    bell: Doorbell<QuarantineMsg>,
    pub(super) inbox: Inbox<Held>,
    shared: Arc<Shared>,
    store: StoreHandle,
    version: ValueVersion,
    start_deadline: Duration,
}

impl QuarantineHandle {
    /// A limit that cannot be is one hook a second: the configuration has been checked.
    pub fn new(
        config: &QuarantineConfig,
        start_deadline: Duration,
        version: ValueVersion,
        store: &StoreHandle,
    ) -> Self {
        let slot = Slot::default();
        let shared = Shared {
            limit: config.limit(),
            max_bytes: config.max_bytes,
            buckets: Mutex::default(),
            room: Mutex::default(),
            is_blocked: AtomicBool::new(false),
            has_run: AtomicBool::new(false),
            since: Instant::now(),
        };
        Self {
            bell: Doorbell::new(&slot, || QuarantineMsg::Flush),
            slot,
            inbox: Inbox::default(),
            shared: Arc::new(shared),
            store: store.clone(),
            version,
            start_deadline,
        }
    }

    pub fn slot(&self) -> &Slot<QuarantineMsg> {
        &self.slot
    }

    /// What the pen holds; `None` while it is being counted.
    pub fn size(&self) -> Option<PenSize> {
        let room = self.shared.room();
        room.is_counted.then_some(room.held)
    }

    /// A place in the bucket of `source_id`, for a hook that did not verify and is to be held, or stored all the same.
    ///
    /// # Errors
    /// The bucket is empty: the whole seconds to wait, at least one.
    pub fn promise(&self, source_id: &str) -> Result<Promise, u32> {
        let (shared, now_ns) = (&self.shared, self.shared.now_ns());
        let mut buckets = shared.buckets();
        if !buckets.contains_key(source_id) && buckets.len() >= SWEEP_FROM {
            buckets.retain(|_, bucket| !bucket.is_idle(now_ns));
        }
        let bucket = match buckets.get_mut(source_id) {
            Some(bucket) => bucket,
            None => buckets.entry(source_id.to_owned()).or_default(),
        };
        bucket.promise(&shared.limit, now_ns).map_err(retry_after_s)?;
        let shared = Arc::clone(shared);
        Ok(Promise { shared, source_id: source_id.to_owned(), is_open: true })
    }

    /// Queues a hook for the pen, or refuses it at once. `Committed` is answered once it is durable there.
    ///
    /// # Errors
    /// See [`PenRefusal`]; nothing is used up then.
    pub fn submit(
        &self,
        envelope: &Envelope,
        reason: &'static str,
        promise: Promise,
    ) -> Result<(Waiting, Instant), PenRefusal> {
        let can_write = self.slot.is_running()
            && self.store.state().takes_hooks()
            && !self.shared.is_blocked.load(Ordering::Acquire);
        if !can_write {
            return Err(PenRefusal::Unavailable(Refusal::StoreUnavailable));
        }
        let summary = Summary {
            id: envelope.id.to_string(),
            source_id: envelope.source_id.clone(),
            tenant_id: envelope.tenant_id.clone(),
            received_at_ms: envelope.received_at_ms,
            reason,
        };
        let value = Bytes::from(envelope.encode(self.version));
        let (stored, bytes) = summary.encode(value.len());
        let room = self.set_aside(bytes)?;
        let (reply, waiting) = reply();
        let key = summary.key();
        self.inbox.push(Held { key, summary: stored, envelope: value, reply, promise, room });
        self.bell.ring();
        Ok((waiting, Instant::now() + self.start_deadline))
    }

    fn set_aside(&self, bytes: u64) -> Result<SetAside, PenRefusal> {
        let mut room = self.shared.room();
        if !room.is_counted {
            return Err(PenRefusal::Unavailable(Refusal::StoreUnavailable));
        }
        if room.waiting >= MAX_WAITING {
            return Err(PenRefusal::Unavailable(Refusal::Overload));
        }
        let set_aside = room.set_aside_bytes.saturating_add(bytes);
        if room.held.bytes.saturating_add(set_aside) > self.shared.max_bytes {
            return Err(PenRefusal::Full);
        }
        (room.set_aside_bytes, room.waiting) = (set_aside, room.waiting + 1);
        drop(room);
        Ok(SetAside { shared: Arc::clone(&self.shared), bytes })
    }

    /// Deletes up to `limit` of the held hooks that `filter` takes, the oldest first, and answers how many they were and
    /// what they took. What it says is gone is gone for good.
    ///
    /// # Errors
    /// The store's; what was deleted until then is gone, or will be.
    pub async fn purge(&self, filter: &HeldFilter, limit: usize) -> Result<PenSize, KvError> {
        let (since, until) = (filter.since_ms.unwrap_or(0), filter.until_ms.unwrap_or(u64::MAX));
        let mut range = QuarantineKey::between(QuarantinePart::Summary, since, until);
        let mut gone = PenSize::default();
        let (mut left, mut more) = (limit, true);
        while more && left > 0 {
            let scan = Scan {
                cf: Cf::Quarantine,
                range: range.clone(),
                direction: Direction::Forward,
                max_rows: CHUNK_ROWS,
                max_bytes: usize::MAX,
            };
            let page = self.store.scan(scan).await?;
            more = page.more;
            if let Some((last, _)) = page.pairs.last() {
                range.start = [last.as_slice(), &[0]].concat();
            }
            let wanted = page.pairs.iter().filter_map(|(key, value)| wanted(filter, key, value));
            let keys: Vec<HeldKey> = wanted.take(left).collect();
            if !keys.is_empty() {
                left -= keys.len();
                let removed = self.remove(keys).await?;
                gone.entries += removed.entries;
                gone.bytes += removed.bytes;
            }
        }
        Ok(gone)
    }

    /// Counts what is held, and answers what had been taken for it before, and what it is. From now on that is its size.
    ///
    /// # Errors
    /// The store's, or `not_running`.
    pub async fn recount(&self) -> Result<(PenSize, PenSize), KvError> {
        let pen = self.slot.get().ok_or_else(ended)?;
        match pen.call(|reply| QuarantineMsg::Recount { reply }, None).await {
            Ok(CallResult::Success(counted)) => counted,
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => Err(ended()),
        }
    }

    async fn remove(&self, keys: Vec<HeldKey>) -> Result<PenSize, KvError> {
        let pen = self.slot.get().ok_or_else(ended)?;
        match pen.call(|reply| QuarantineMsg::Remove { keys, reply }, None).await {
            Ok(CallResult::Success(removed)) => removed,
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => Err(ended()),
        }
    }

    /// The process looks for work now. Answers whether another has done so here before.
    pub(super) fn starts(&self) -> bool {
        self.bell.answered();
        self.shared.has_run.swap(true, Ordering::AcqRel)
    }

    pub(super) fn awake(&self) {
        self.bell.answered();
    }

    pub(super) fn wake(&self) {
        self.bell.ring();
    }

    pub(super) fn block(&self, is_blocked: bool) {
        self.shared.is_blocked.store(is_blocked, Ordering::Release);
    }

    /// What is held is not known any more.
    pub(super) fn forget_size(&self) {
        self.shared.room().is_counted = false;
    }

    pub(super) fn set_size(&self, held: PenSize) {
        let mut room = self.shared.room();
        (room.held, room.is_counted) = (held, true);
    }

    pub(super) fn take_from_size(&self, gone: PenSize) {
        let mut room = self.shared.room();
        room.held.entries = room.held.entries.saturating_sub(gone.entries);
        room.held.bytes = room.held.bytes.saturating_sub(gone.bytes);
    }

    /// Gives up whatever waits: their guards answer them.
    pub(super) fn refuse_waiting(&self) {
        while !self.inbox.is_empty() {
            drop(self.inbox.take(MAX_WAITING));
        }
    }
}

fn ended() -> KvError {
    KvError {
        class: FailureClass::NotRunning,
        op: "quarantine",
        detail: "the quarantine is between incarnations".to_owned(),
    }
}

/// The key of a held hook that a filter takes.
fn wanted(filter: &HeldFilter, key: &[u8], value: &[u8]) -> Option<HeldKey> {
    if is_sentinel(Cf::Quarantine, key, value) {
        return None;
    }
    let key = QuarantineKey::decode(key)?;
    let takes = match StoredSummary::decode(value) {
        Ok(summary) => filter.takes(&summary),
        Err(_damage) => filter.is_by_time(),
    };
    takes.then(|| HeldKey { received_at_ms: key.received_at_ms, id: key.id.to_vec() })
}

/// What these summary rows take.
pub(super) fn size_of_rows<'a>(rows: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> PenSize {
    let real = rows.into_iter().filter(|(key, value)| !is_sentinel(Cf::Quarantine, key, value));
    real.fold(PenSize::default(), |size, (_, value)| PenSize {
        entries: size.entries + 1,
        bytes: size.bytes.saturating_add(size_of(value)),
    })
}
