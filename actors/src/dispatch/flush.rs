//! Outcomes on their way to the store.
//!
//! They stay here until their batch is known to be written: while the store is closed or failing they wait, their rows
//! stay claimed, and claiming stops once there is no room for more.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::canary;
use super::held::Held;
use super::lanes::{HandedOver, Handover, Lanes};
use super::outcomes::{BATCH, Settled};
use super::reclaim::{Cleared, Owed};
use super::writing::Writing;
use crate::model::cf::Cf;
use crate::model::ids::Seq;
use crate::model::keys::{ClearedKey, DeliveryKey};
use crate::model::ops::Ops;
use crate::ports::KvError;
use crate::store::StoreHandle;

/// How long an outcome waits for others to share its batch.
const MAX_WAIT: Duration = Duration::from_millis(10);

/// What is settled and not yet written, oldest first.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    settled: VecDeque<Settled>,
    /// Markers this process put: their hooks are looked at in the next batch.
    cleared: Cleared,
    /// When the next batch is written at the latest.
    deadline: Option<Instant>,
    /// Markers of another process may stand that no sweep has come to.
    unswept: bool,
}

impl Outcomes {
    pub(super) fn extend(&mut self, settled: impl IntoIterator<Item = Settled>) {
        self.settled.extend(settled);
    }

    /// Rows whose hook was found missing left these.
    pub(super) fn look_at(&mut self, markers: impl IntoIterator<Item = ClearedKey>) {
        for marker in markers {
            self.cleared.entry(marker.seq).or_default().insert(marker);
        }
    }

    pub(super) fn set_unswept(&mut self, unswept: bool) {
        self.unswept = unswept;
    }

    /// What these hooks owe.
    pub(super) async fn owed(
        &self,
        store: &StoreHandle,
        seqs: &BTreeSet<Seq>,
    ) -> Result<Owed, KvError> {
        let mut owed = Owed::look(store, seqs).await?;
        if self.unswept {
            owed.find_markers(store, seqs).await?;
        }
        Ok(owed)
    }

    /// Those of these hooks.
    pub(super) fn markers_of(&self, seqs: &BTreeSet<Seq>) -> Cleared {
        let of_these = self.cleared.iter().filter(|(seq, _)| seqs.contains(seq));
        of_these.map(|(seq, markers)| (*seq, markers.clone())).collect()
    }

    /// Another batch has taken them away.
    pub(super) fn forget_markers(&mut self, seqs: &BTreeSet<Seq>) {
        self.cleared.retain(|seq, _| !seqs.contains(seq));
    }

    /// Outcomes that are not written yet.
    pub(super) fn settled(&self) -> usize {
        self.settled.len()
    }

    /// Whether a lane waits for one of them.
    pub(super) fn is_urgent(&self) -> bool {
        self.settled.iter().any(|settled| settled.lane.is_some())
    }

    /// Whether to write now, with `done` more outcomes at hand. From the first on there is a deadline.
    pub(super) fn is_due(&mut self, done: usize, now: Instant) -> bool {
        if self.settled.is_empty() && self.cleared.is_empty() && done == 0 {
            self.deadline = None;
            return false;
        }
        let deadline = *self.deadline.get_or_insert(now + MAX_WAIT);
        now >= deadline || self.settled.len() + done >= BATCH || self.is_urgent()
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Writes one batch, and with each head of a lane that ends in it the next. Answers what was written, and who is next.
    ///
    /// # Errors
    /// Nothing is forgotten: it is to be written again once the store has shown whether it was.
    pub(super) async fn write(
        &mut self,
        writing: &mut Writing,
        held: &mut Held,
        lanes: &mut Lanes,
        handover: &Handover<'_>,
    ) -> Result<(Vec<Settled>, HandedOver), KvError> {
        let count = self.settled.len().min(BATCH);
        let mut ops = Ops::with_capacity(count * 6 + 16, count * 256 + 1_024);
        let (mut going, mut new) = (BTreeSet::<DeliveryKey>::new(), Cleared::new());
        for settled in self.settled.iter().take(count).filter(|_| !canary::deletes_before_send()) {
            if let Some(marker) = settled.write(&mut ops) {
                going.insert(settled.claimed.row());
                new.entry(marker.seq).or_default().insert(marker);
            }
        }
        let ending = self.settled.iter().take(count);
        let ending = ending.filter(|settled| settled.lane.is_some() && settled.ends_the_row());
        let ending: Vec<&Settled> = ending.collect();
        let mut next = lanes.hand_over(writing.store(), &ending, held, handover, &mut ops).await?;
        let seqs: BTreeSet<Seq> = new.keys().chain(self.cleared.keys()).copied().collect();
        if !seqs.is_empty() {
            let owed = self.owed(writing.store(), &seqs).await?;
            new = owed.clear(&seqs, &going, &self.cleared, new, &mut ops);
        }
        writing.apply(ops.finish()).await?;
        self.cleared = new;
        self.deadline = (!self.cleared.is_empty()).then(|| Instant::now() + MAX_WAIT);
        let written: Vec<Settled> = self.settled.drain(..count).collect();
        let now = Instant::now();
        for settled in &written {
            if settled.was_attempted() {
                held.finished(settled.claimed.tenant, now);
            }
            held.remove(&settled.claimed);
        }
        next.jobs.iter_mut().for_each(|job| job.ticket = held.insert(&job.claimed));
        Ok((written, next))
    }

    /// Forgets what a batch that was said to have failed has written after all: its rows are claimed no more. Answers
    /// that.
    pub(super) async fn forget_written(
        &mut self,
        store: &StoreHandle,
        held: &mut Held,
    ) -> Result<Vec<Settled>, KvError> {
        let keys = self.settled.iter().map(|settled| settled.claimed.key().encode().to_vec());
        let claims = store.multi_get(Cf::Index, keys.collect()).await?;
        let (mut written, mut left) = (Vec::new(), VecDeque::new());
        for (settled, claim) in std::mem::take(&mut self.settled).into_iter().zip(claims) {
            if claim.is_some() {
                left.push_back(settled);
            } else {
                written.push(settled);
            }
        }
        self.settled = left;
        for settled in &written {
            let claimed = &settled.claimed;
            held.remove(claimed);
            if settled.clears() {
                self.look_at([ClearedKey::delivery(claimed.seq, claimed.sink)]);
            }
        }
        Ok(written)
    }
}
