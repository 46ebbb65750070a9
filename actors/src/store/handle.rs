//! The door to the database: who may use it, and how it is taken away from them.
//!
//! The open database is not in the Store's state: it must outlive a crash of that process, and a reopen must wait for
//! every call in flight. So it hangs here, in a slot made with the tree; each call borrows it as a [`Lease`], and a
//! close takes it out, waits until the last lease is back, and only then lets the engine close it. RocksDB allows one
//! open per path, so that order is what makes a reopen possible at all.

use std::sync::{OnceLock, PoisonError};

use ractor::rpc::CallResult;
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use super::recount::{self, Recounted};
use super::room::RoomLimits;
use super::{Recount, StoreMsg};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::model::invariants::Miscount;
use crate::ports::{DiskRoom, Kv, KvError, Lane, Page, Scan, StoreCut, StoreStats, Verified};
use crate::supervision::Slot;
use crate::sync::{Arc, Mutex, MutexGuard, others_may_run};

/// What anyone may know of the store without asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreState {
    /// Opens so far. A call that failed in one generation has its answer in the next.
    pub generation: u64,
    pub open: bool,
    /// Why the last failed write failed, until the store has been reopened.
    pub failing: Option<FailureClass>,
    /// When `open` last changed.
    pub since: Option<Instant>,
    /// Whether there is room for new hooks.
    pub accepting: bool,
    /// What failed last, whether or not it still matters.
    pub last_failure: Option<StoreFailure>,
    /// When it is closed and opened again, if nothing comes in between.
    pub next_attempt: Option<Instant>,
    /// The disk when it was last looked at; `None` before the first look.
    pub room: Option<DiskRoom>,
    /// The limits on this disk.
    pub limits: RoomLimits,
}

/// One call of the store that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreFailure {
    pub class: FailureClass,
    /// What was being done: `apply`, `sync`, `open`, `probe` ...
    pub op: &'static str,
    pub at: Instant,
}

impl StoreState {
    const CLOSED: Self = Self {
        generation: 0,
        open: false,
        failing: None,
        since: None,
        accepting: true,
        last_failure: None,
        next_attempt: None,
        room: None,
        limits: RoomLimits { reserve_bytes: 0, min_free_bytes: 0, resume_free_bytes: 0 },
    };

    /// Whether a hook that comes now is worth queueing.
    pub fn takes_hooks(&self) -> bool {
        self.open && self.accepting
    }

    fn failed(&mut self, class: FailureClass, op: &'static str) {
        self.last_failure = Some(StoreFailure { class, op, at: Instant::now() });
        // Until a look says that there is room again, and then with something to spare.
        if class == FailureClass::NoSpace {
            self.accepting = false;
        }
    }
}

/// What the last open found, for whoever asks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpenNotes {
    /// The store had been closed cleanly before.
    pub closed_cleanly: bool,
    /// What was last cut off the end of its log; later opens that cut nothing leave it standing.
    pub cut: Option<StoreCut>,
    pub recount: Recount,
}

/// Tells the closer that it was the last to hold the database.
struct Token(Option<oneshot::Sender<()>>);

impl Drop for Token {
    fn drop(&mut self) {
        if let Some(gone) = self.0.take() {
            let _ = gone.send(());
            others_may_run();
        }
    }
}

/// The database, for the length of one call. Fields drop in order: the handle first, then the token.
pub struct Lease {
    kv: Arc<Box<dyn Kv>>,
    sync_failure: Arc<OnceLock<KvError>>,
    _token: Arc<Token>,
    generation: u64,
}

impl Lease {
    pub fn kv(&self) -> &dyn Kv {
        self.kv.as_ref().as_ref()
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Once an fsync has failed, whoever asked for it, none of this open is believed any more: the kernel may have marked
    /// the unwritten pages clean, and a later fsync then answers ok and covers nothing of them.
    async fn sync(&self) -> Result<(), KvError> {
        if self.sync_failure.get().is_none()
            && let Err(error) = self.kv().sync().await
        {
            let _ = self.sync_failure.set(error);
        }
        self.sync_failure.get().map_or(Ok(()), |error| Err(error.clone()))
    }
}

struct Opened {
    kv: Arc<Box<dyn Kv>>,
    /// The first failed fsync.
    sync_failure: Arc<OnceLock<KvError>>,
    token: Arc<Token>,
    gone: oneshot::Receiver<()>,
}

/// Made by the tree; outlives every incarnation of the Store.
pub(super) struct Door {
    opened: Mutex<Option<Opened>>,
    notes: Mutex<OpenNotes>,
    state: watch::Sender<StoreState>,
}

impl Door {
    fn opened(&self) -> MutexGuard<'_, Option<Opened>> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets callers in to a freshly opened database.
    pub(super) fn put(&self, kv: Box<dyn Kv>, notes: OpenNotes) {
        let mut last = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let cut = notes.cut.or_else(|| last.cut.take());
        *last = OpenNotes { cut, ..notes };
        drop(last);
        let (sender, gone) = oneshot::channel();
        let token = Arc::new(Token(Some(sender)));
        // Both under one lock: a lease never carries the generation of another database.
        let mut opened = self.opened();
        *opened = Some(Opened { kv: Arc::new(kv), sync_failure: Arc::default(), token, gone });
        self.state.send_modify(|state| {
            state.generation += 1;
            state.open = true;
            state.failing = None;
            state.since = Some(Instant::now());
        });
    }

    /// Turns callers away and answers the database once nobody uses it; `None` if there was none.
    pub(super) async fn take(&self) -> Option<Box<dyn Kv>> {
        let Opened { kv, sync_failure: _, token, gone } = self.opened().take()?;
        self.state.send_modify(|state| {
            state.open = false;
            state.since = Some(Instant::now());
        });
        drop(token);
        let _ = gone.await;
        Arc::into_inner(kv)
    }

    /// The store does not take writes, for the reason that `op` failed with.
    pub(super) fn failing(&self, class: FailureClass, op: &'static str) {
        self.state.send_modify(|state| {
            state.failing = Some(class);
            state.failed(class, op);
        });
    }

    /// `op` failed, which says nothing of the store's writes.
    pub(super) fn failed(&self, class: FailureClass, op: &'static str) {
        self.state.send_modify(|state| state.failed(class, op));
    }

    /// It has never been open, and from now on that is a fault.
    pub(super) fn stays_closed(&self) {
        self.state.send_modify(|state| {
            state.since.get_or_insert(Instant::now());
        });
    }

    pub(super) fn next_attempt(&self, at: Option<Instant>) {
        self.state.send_modify(|state| state.next_attempt = at);
    }

    pub(super) fn room(&self, room: DiskRoom, limits: RoomLimits) {
        self.state.send_modify(|state| (state.room, state.limits) = (Some(room), limits));
    }

    pub(super) fn accepting(&self, accepting: bool) {
        self.state.send_modify(|state| state.accepting = accepting);
    }

    /// Before the Store gets to know of it: whoever tries again at once sees that it has to wait for the reopen. What
    /// failed first stays the reason: RocksDB answers later writes to the same file with an error that does not know it.
    pub(super) fn write_failed(&self, class: FailureClass, op: &'static str, generation: u64) {
        self.state.send_modify(|state| {
            if state.open && state.generation == generation {
                state.failing.get_or_insert(class);
                state.failed(class, op);
            }
        });
    }

    pub(super) fn state(&self) -> StoreState {
        *self.state.borrow()
    }
}

/// How every other process uses the store. Cheap to clone, survives reopens and restarts.
#[derive(Clone)]
pub struct StoreHandle {
    pub(super) door: Arc<Door>,
    slot: Slot<StoreMsg>,
}

impl Default for StoreHandle {
    fn default() -> Self {
        let door = Door {
            opened: Mutex::new(None),
            notes: Mutex::default(),
            state: watch::channel(StoreState::CLOSED).0,
        };
        Self { door: Arc::new(door), slot: Slot::default() }
    }
}

impl StoreHandle {
    pub fn slot(&self) -> &Slot<StoreMsg> {
        &self.slot
    }

    pub fn state(&self) -> StoreState {
        self.door.state()
    }

    pub fn notes(&self) -> OpenNotes {
        self.door.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Borrows the database for one call. Keep it short: a reopen waits for it.
    ///
    /// # Errors
    /// `not_running` while the store is closed.
    pub fn lease(&self) -> Result<Lease, KvError> {
        let opened = self.door.opened();
        let Some(opened) = opened.as_ref() else {
            return Err(KvError {
                class: FailureClass::NotRunning,
                op: "lease",
                detail: "the store is closed".to_owned(),
            });
        };
        Ok(Lease {
            kv: Arc::clone(&opened.kv),
            sync_failure: Arc::clone(&opened.sync_failure),
            _token: Arc::clone(&opened.token),
            generation: self.door.state().generation,
        })
    }

    /// Applies a batch; a failure is told to the Store before it is answered.
    pub async fn apply(&self, batch: Batch, lane: Lane) -> Result<(), KvError> {
        let lease = self.lease()?;
        let applied = lease.kv().apply(batch, lane).await;
        self.tell(lease.generation, applied)
    }

    /// One fsync of the log; a failure is told to the Store before it is answered.
    pub async fn sync(&self) -> Result<(), KvError> {
        let lease = self.lease()?;
        let synced = lease.sync().await;
        self.tell(lease.generation, synced)
    }

    /// Applies a batch and makes it durable, both in one open of the store: an fsync after a reopen says nothing of what
    /// was applied before it.
    pub async fn apply_synced(&self, batch: Batch, lane: Lane) -> Result<(), KvError> {
        let lease = self.lease()?;
        let mut written = lease.kv().apply(batch, lane).await;
        if written.is_ok() {
            written = lease.sync().await;
        }
        self.tell(lease.generation, written)
    }

    pub fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.lease()?.kv().get(cf, key)
    }

    pub async fn multi_get(
        &self,
        cf: Cf,
        keys: Vec<Vec<u8>>,
    ) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        self.lease()?.kv().multi_get(cf, keys).await
    }

    pub async fn scan(&self, scan: Scan) -> Result<Page, KvError> {
        self.lease()?.kv().scan(scan).await
    }

    pub async fn stats(&self) -> Result<StoreStats, KvError> {
        self.lease()?.kv().stats().await
    }

    /// Reads rows only to see whether they can be read: [`crate::ports::Kv::verify`].
    pub async fn verify(&self, cf: Cf, from: Vec<u8>, max_bytes: u64) -> Result<Verified, KvError> {
        self.lease()?.kv().verify(cf, from, max_bytes).await
    }

    /// Counts every row against the counters, both as they are at one moment. Takes as long as it takes to read the index
    /// and to look up each row it names, and gives up, with `not_running`, once the store is to be closed.
    pub async fn recount(&self) -> Result<Recounted, KvError> {
        let lease = self.lease()?;
        let (door, generation) = (Arc::clone(&self.door), lease.generation);
        let go_on = move || {
            let state = door.state();
            state.open && state.generation == generation
        };
        let counted =
            recount::at_one_moment(lease.kv(), |moment| recount::count(moment, None, go_on));
        Ok(counted.await?.unwrap_or_default())
    }

    /// Makes counters right that were counted wrong, durably, whatever has moved them since. Once: an error says that it
    /// may have happened, and only another count says whether it did.
    pub async fn correct(&self, wrong: &[Miscount]) -> Result<(), KvError> {
        self.apply_synced(recount::corrections(wrong).finish(), Lane::Background).await
    }

    /// A probe found the store so slow that it counts as failing. A reopen would have to wait for the same disk.
    pub(super) fn probe_timed_out(&self) {
        self.door.failed(FailureClass::Timeout, "probe");
        self.slot.cast(StoreMsg::ProbeTimedOut);
    }

    /// Closes and reopens now, for an operator.
    ///
    /// # Errors
    /// Why the store is not open after it.
    pub async fn reopen(&self) -> Result<(), String> {
        let store = self.slot.get().ok_or("the store is between incarnations")?;
        match store.call(StoreMsg::Reopen, None).await {
            Ok(CallResult::Success(reopened)) => reopened,
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => {
                Err("the store process ended".to_owned())
            }
        }
    }

    fn tell(&self, generation: u64, result: Result<(), KvError>) -> Result<(), KvError> {
        if let Err(error) = &result {
            let class = error.class;
            self.door.write_failed(class, error.op, generation);
            self.slot.cast(StoreMsg::WriteFailed { class, op: error.op, generation });
        }
        result
    }
}

#[cfg(all(test, feature = "shuttle"))]
#[path = "handle_interleavings.rs"]
mod interleavings;
