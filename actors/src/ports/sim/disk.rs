//! A disk that outlives every database on it and can lose power.
//!
//! The database on it is one log over one durable image, as RocksDB's is: an apply appends to the log, a sync moves the
//! log it covers into the image, an open recovers the image and whatever is left of the log. A process that dies keeps
//! the log (the kernel has it); a power cut does not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::fault::{Effect, Fault, Faults, SimOp};
use super::room::Room;
use crate::model::batch::{Batch, Change};
use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::failure::FailureClass;
use crate::ports::{DiskRoom, KvError, Lane, Pair};

pub(super) type Family = BTreeMap<Vec<u8>, Vec<u8>>;

/// Every family's rows.
#[derive(Clone, Debug, Default)]
pub(super) struct Image {
    families: [Family; Cf::ALL.len()],
}

impl Image {
    pub(super) fn family(&self, cf: Cf) -> &Family {
        &self.families[cf.index()]
    }

    fn apply(&mut self, batch: &Batch) {
        for change in batch.changes() {
            match change {
                Change::Put { cf, key, value } => {
                    self.families[cf.index()].insert(key.to_vec(), value.to_vec());
                }
                Change::Delete { cf, key } => {
                    self.families[cf.index()].remove(key);
                }
                Change::Merge { cf, key, operand } => {
                    let family = &mut self.families[cf.index()];
                    let existing = family.get(key).map(Vec::as_slice);
                    let folded = counters::fold(existing, [operand]);
                    family.insert(key.to_vec(), folded.bytes);
                }
            }
        }
    }
}

/// Calls that reached the disk, those that failed included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SimCounts {
    pub opens: u64,
    pub probes: u64,
    pub applies: u64,
    pub syncs: u64,
    pub reads: u64,
}

#[derive(Debug, Default)]
struct State {
    /// What readers of the open database see.
    seen: Image,
    /// What a power cut leaves.
    durable: Image,
    /// The log past the durable image, oldest first.
    log: Vec<Batch>,
    /// Batches that were moved from the log into the durable image, ever.
    absorbed: u64,
    /// The log's oldest pages were dropped after a failed sync: nothing of it can become durable before a reopen.
    log_is_holed: bool,
    /// Who holds `LOCK`.
    open: Option<u64>,
    opened: u64,
    faults: Faults,
    slow: BTreeMap<SimOp, Duration>,
    counts: SimCounts,
    room: Room,
}

impl State {
    fn log_end(&self) -> u64 {
        self.absorbed + u64::try_from(self.log.len()).unwrap_or(u64::MAX)
    }

    /// Makes the log durable up to the absolute position `end`.
    fn absorb(&mut self, end: u64) {
        let count = usize::try_from(end.saturating_sub(self.absorbed)).unwrap_or(usize::MAX);
        for batch in self.log.drain(..count.min(self.log.len())) {
            self.durable.apply(&batch);
            self.absorbed += 1;
        }
    }

    fn lose_power(&mut self, kept_batches: u64) {
        if !self.log_is_holed {
            self.absorb(self.absorbed.saturating_add(kept_batches));
        }
        self.log.clear();
        self.log_is_holed = false;
        self.open = None;
        self.seen = self.durable.clone();
    }
}

/// The disk. Share it, and hand it to the next incarnation of whatever ran on it.
#[derive(Debug, Default)]
pub struct SimDisk {
    state: Mutex<State>,
}

impl SimDisk {
    pub fn empty() -> Arc<Self> {
        Arc::default()
    }

    /// Switches a fault on. Faults are met in the order they were switched on.
    pub fn fail(&self, fault: Fault) {
        self.state().faults.add(fault);
    }

    /// Nothing can be written until [`SimDisk::heal`]: applies, syncs, opens and probes fail, reads work.
    pub fn fail_writes(&self, class: FailureClass) {
        for op in [SimOp::Open, SimOp::Probe, SimOp::Apply, SimOp::Sync] {
            self.fail(Fault::refuse(op, class).until_healed());
        }
    }

    /// Switches every fault and delay off.
    pub fn heal(&self) {
        let mut state = self.state();
        state.faults.heal();
        state.slow.clear();
    }

    /// The disk has this much room from now on, the reserve not counted. A write that finds no room fails as on a full
    /// disk, and does nothing.
    pub fn resize(&self, free_bytes: u64, total_bytes: u64) {
        self.state().room.resize(free_bytes, total_bytes);
    }

    pub fn room(&self) -> DiskRoom {
        self.state().room.look()
    }

    /// Every `op` from now on takes this long; zero makes it quick again. Point reads never wait.
    pub fn slow(&self, op: SimOp, delay: Duration) {
        self.state().slow.insert(op, delay);
    }

    /// Everything not synced is gone and the database is no longer open: its handles answer `not_running`.
    pub fn cut_power(&self) {
        self.cut_power_keeping(0);
    }

    /// The same, but the kernel had written the oldest `batches` unsynced batches by itself.
    pub fn cut_power_keeping(&self, batches: u64) {
        self.state().lose_power(batches);
    }

    /// The process dies, the machine does not: the database is no longer open and nothing applied is lost.
    pub fn kill(&self) {
        self.state().open = None;
    }

    pub fn is_open(&self) -> bool {
        self.state().open.is_some()
    }

    pub fn counts(&self) -> SimCounts {
        self.state().counts
    }

    /// Batches a power cut would lose now.
    pub fn unsynced_batches(&self) -> usize {
        self.state().log.len()
    }

    /// What readers see, one family, in key order.
    pub fn rows(&self, cf: Cf) -> Vec<Pair> {
        pairs(self.state().seen.family(cf))
    }

    /// What a power cut would leave, one family, in key order.
    pub fn durable_rows(&self, cf: Cf) -> Vec<Pair> {
        pairs(self.state().durable.family(cf))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets other tasks run, as every call that leaves the runtime does, and then some if this call is slow.
    async fn pass(&self, op: SimOp) {
        let delay = self.state().slow.get(&op).copied().unwrap_or_default();
        if delay.is_zero() {
            tokio::task::yield_now().await;
        } else {
            tokio::time::sleep(delay).await;
        }
    }

    /// Recovers the database and takes `LOCK`. Answers the number of this open.
    pub(super) async fn open(&self) -> Result<u64, KvError> {
        self.pass(SimOp::Open).await;
        let mut state = self.state();
        state.counts.opens += 1;
        if state.open.is_some() {
            return Err(error(FailureClass::Busy, "open", "LOCK is held by another open"));
        }
        if let Some((class, _effect)) = state.faults.hit(SimOp::Open, None) {
            return Err(injected(class, "open"));
        }
        state.room.recover().map_err(|class| full(class, "open"))?;
        // Recovery writes what it found in the log into files of its own and syncs them.
        let end = state.log_end();
        state.absorb(end);
        state.log_is_holed = false;
        state.seen = state.durable.clone();
        state.faults.reopened();
        state.opened += 1;
        state.open = Some(state.opened);
        Ok(state.opened)
    }

    pub(super) fn release(&self, open: u64) {
        let mut state = self.state();
        if state.open == Some(open) {
            state.open = None;
        }
    }

    pub(super) async fn probe(&self) -> Result<(), KvError> {
        let hit = {
            let mut state = self.state();
            state.counts.probes += 1;
            let hit = state.faults.hit(SimOp::Probe, None);
            let injected = hit.map(|(class, _effect)| injected(class, "probe"));
            injected.or(state.room.probe().err().map(|class| full(class, "probe")))
        };
        self.pass(SimOp::Probe).await;
        hit.map_or(Ok(()), Err)
    }

    pub(super) fn set_reserve(&self, bytes: u64) -> Result<(), KvError> {
        self.state().room.set_reserve(bytes).map_err(|class| full(class, "reserve"))
    }

    /// Takes effect at once and answers later, so a caller that is gone by then has still written.
    pub(super) async fn apply(&self, open: u64, batch: Batch, lane: Lane) -> Result<(), KvError> {
        let hit = {
            let mut state = self.state();
            state.counts.applies += 1;
            must_be_open(&state, open, "apply")?;
            let hit = state.faults.hit(SimOp::Apply, Some(lane));
            let (logged, seen) = match hit.map(|(_class, effect)| effect) {
                None | Some(Effect::Landed) => (true, true),
                Some(Effect::Logged) => (true, false),
                Some(Effect::Nothing | Effect::PagesDropped | Effect::LandedThenDropped) => {
                    (false, false)
                }
            };
            if logged {
                state.room.log(&batch).map_err(|class| full(class, "apply"))?;
            }
            if seen {
                state.seen.apply(&batch);
            }
            if logged {
                state.log.push(batch);
            }
            hit
        };
        self.pass(SimOp::Apply).await;
        hit.map_or(Ok(()), |(class, _effect)| Err(injected(class, "apply")))
    }

    /// Covers what was applied before it began, not what was applied while it ran.
    pub(super) async fn sync(&self, open: u64) -> Result<(), KvError> {
        let (covers, hit) = {
            let mut state = self.state();
            state.counts.syncs += 1;
            must_be_open(&state, open, "sync")?;
            (state.log_end(), state.faults.hit(SimOp::Sync, None))
        };
        self.pass(SimOp::Sync).await;
        let mut state = self.state();
        must_be_open(&state, open, "sync")?;
        let (lands, drops_pages) = match hit.map(|(_class, effect)| effect) {
            None | Some(Effect::Landed) => (true, false),
            Some(Effect::LandedThenDropped) => (true, true),
            Some(Effect::PagesDropped) => (false, true),
            Some(Effect::Nothing | Effect::Logged) => (false, false),
        };
        let owed = state.absorbed < covers;
        if lands && !state.log_is_holed {
            state.absorb(covers);
        }
        if drops_pages && (lands || owed) {
            state.log_is_holed = true;
        }
        hit.map_or(Ok(()), |(class, _effect)| Err(injected(class, "sync")))
    }

    /// Waits as a slow read does. Point reads skip it.
    pub(super) async fn pass_read(&self) {
        self.pass(SimOp::Read).await;
    }

    pub(super) fn read<T>(
        &self,
        open: u64,
        op: &'static str,
        look: impl FnOnce(&Image) -> T,
    ) -> Result<T, KvError> {
        let mut state = self.state();
        state.counts.reads += 1;
        must_be_open(&state, open, op)?;
        match state.faults.hit(SimOp::Read, None) {
            Some((class, _effect)) => Err(injected(class, op)),
            None => Ok(look(&state.seen)),
        }
    }
}

fn pairs(family: &Family) -> Vec<Pair> {
    family.iter().map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn must_be_open(state: &State, open: u64, op: &'static str) -> Result<(), KvError> {
    if state.open == Some(open) {
        Ok(())
    } else {
        Err(error(FailureClass::NotRunning, op, "the database is not open any more"))
    }
}

fn injected(class: FailureClass, op: &'static str) -> KvError {
    error(class, op, "injected")
}

fn full(class: FailureClass, op: &'static str) -> KvError {
    error(class, op, "the disk is full")
}

fn error(class: FailureClass, op: &'static str, detail: &str) -> KvError {
    KvError { class, op, detail: detail.to_owned() }
}
