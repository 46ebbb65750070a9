//! From a due key to something that can be attempted, or to the reason why it cannot.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::attempts::{Attempts, Job};
use super::canary;
use super::due::Due;
use super::lane_reads::lane_of_head;
use super::outcomes::{BREAKER_OPEN, Change, DeadLetter, Rules, Settled, cut};
use super::targets::{Targets, Unbound};
use crate::model::cf::Cf;
use crate::model::delivery::{DeliveryRow, DeliveryRowError, RowState};
use crate::model::envelope::{Envelope, EnvelopeError};
use crate::model::ids::Seq;
use crate::model::keys::{ClaimedKey, ClearedKey, HookKey, LaneKey};
use crate::model::ops::{Claimed, Ops};
use crate::ports::KvError;
use crate::store::StoreHandle;

/// The sink of a row that has none, in metrics.
const NO_SINK: &str = "none";

/// How long a row waits whose source cannot be read now, or whose sink is switched off, before it is looked at again.
const WAIT_MS: u64 = 30_000;

/// A due key with what it stands for.
pub(super) struct Loaded {
    due: Due,
    row: StoredRow,
    /// Whose head it is, if it is one.
    lane: Option<LaneKey>,
    /// Shared by the rows of one hook.
    hook: Option<Result<Arc<Envelope>, EnvelopeError>>,
}

/// A delivery row as it was found.
enum StoredRow {
    Missing,
    Read(DeliveryRow),
    Unreadable(Vec<u8>, DeliveryRowError),
}

impl StoredRow {
    fn of(row: Option<Vec<u8>>) -> Self {
        let Some(row) = row else { return Self::Missing };
        match DeliveryRow::decode(&row) {
            Ok(read) => Self::Read(read),
            Err(error) => Self::Unreadable(row, error),
        }
    }

    /// The lane of a row that is due as the head of one.
    async fn lane(&self, store: &StoreHandle, due: &Due) -> Result<Option<LaneKey>, KvError> {
        let (key, is_head) = (due.key, due.value.kind.is_lane_head());
        match self {
            Self::Read(DeliveryRow { lane: Some(lane), .. }) if is_head => {
                Ok(Some(LaneKey { tenant: key.tenant, lane: *lane }))
            }
            Self::Missing | Self::Unreadable(..) | Self::Read(_) if is_head => {
                let row = ClaimedKey { tenant: key.tenant, seq: key.seq, sink: key.sink };
                lane_of_head(store, row).await
            }
            Self::Missing | Self::Unreadable(..) | Self::Read(_) => Ok(None),
        }
    }
}

/// Reads the rows and the hooks. All of them are synced, so what is missing is missing for good.
pub(super) async fn load(store: &StoreHandle, dues: Vec<Due>) -> Result<Vec<Loaded>, KvError> {
    let mut hooks: BTreeMap<Seq, Option<Result<Arc<Envelope>, EnvelopeError>>> =
        dues.iter().map(|due| (due.key.seq, None)).collect();
    let rows = dues.iter().map(|due| due.key.row().encode().to_vec()).collect();
    let hook_keys = hooks.keys().map(|seq| HookKey(*seq).encode().to_vec()).collect();
    let (rows, values) =
        tokio::join!(store.multi_get(Cf::Deliveries, rows), store.multi_get(Cf::Hooks, hook_keys));
    let values = canary::misses(values, hooks.len())?;
    for (hook, value) in hooks.values_mut().zip(values) {
        *hook = value.map(|value| Envelope::decode_shared(&Bytes::from(value)).map(Arc::new));
    }
    let mut loaded = Vec::with_capacity(dues.len());
    for (due, row) in dues.into_iter().zip(rows?) {
        let (row, hook) = (StoredRow::of(row), hooks.get(&due.key.seq).cloned().flatten());
        let lane = row.lane(store, &due).await?;
        loaded.push(Loaded { due, row, lane, hook });
    }
    Ok(loaded)
}

/// What a claim comes to, once its batch is written.
#[derive(Default)]
pub(super) struct Claimable {
    pub(super) jobs: Vec<Job>,
    pub(super) dead: Vec<DeadLetter>,
    /// Heads of lanes that cannot be attempted: claimed, and to be written with what follows in their lanes.
    pub(super) settled: Vec<Settled>,
    /// When rows are due again that were written back at once.
    pub(super) parked_until_ms: Vec<u64>,
    /// Markers of rows whose hook is missing.
    pub(super) cleared: Vec<ClearedKey>,
    /// The last of the Writer's stamps among them, in Unix milliseconds.
    pub(super) stamp_ms: u64,
}

/// A row without a sink to be attempted at.
struct NoTarget {
    row: DeliveryRow,
    envelope: Arc<Envelope>,
    why: Unbound,
}

/// Decides about due rows and writes what follows.
pub(super) struct Claiming<'a> {
    pub(super) targets: &'a Targets,
    pub(super) rules: &'a Rules,
    pub(super) attempts: &'a Attempts,
    pub(super) now_ms: u64,
}

/// Whether its due time is the Writer's stamp.
fn is_as_committed(row: &DeliveryRow, due_ms: u64) -> bool {
    row.at_ms == due_ms && row.attempts == 0 && row.error.is_none() && row.replay.is_none()
}

impl Claiming<'_> {
    pub(super) fn claim(&self, loaded: Loaded, ops: &mut Ops, into: &mut Claimable) {
        let Loaded { due, row, lane, hook } = loaded;
        if matches!(row, StoredRow::Missing) && lane.is_none() {
            ops.drop_due(&due.key, due.value);
            return;
        }
        let claimed = ops.claim(&due.key, due.value);
        let is_head = lane.is_some();
        let job = match (row, hook) {
            (StoredRow::Missing, _) => Err(Change::NoRow),
            (_, None) => Err(Change::NoHook),
            (StoredRow::Read(row), Some(Ok(envelope))) => {
                if is_as_committed(&row, due.key.at_ms) {
                    into.stamp_ms = into.stamp_ms.max(row.at_ms);
                }
                self.bind(claimed, lane, row, envelope)
                    .map_err(|no_target| self.unbound(*no_target, is_head))
            }
            (StoredRow::Read(row), Some(Err(error))) => {
                Err(Change::Dead(self.unreadable_hook(row, &error)))
            }
            (StoredRow::Unreadable(row, error), Some(hook)) => {
                Err(Change::Dead(self.unreadable_row(row, hook.ok(), &error)))
            }
        };
        match job {
            Ok(job) => match self.attempts.parked_until(&job.target) {
                None => into.jobs.push(job),
                Some(until_ms) => self.park(job, until_ms, ops, into),
            },
            Err(change @ Change::Park { .. }) => {
                let settled = Settled { claimed, lane, change };
                settled.write(ops);
                into.parked_until_ms.extend(settled.due_ms());
            }
            Err(change) if lane.is_some() => into.settled.push(Settled { claimed, lane, change }),
            Err(change) => {
                let settled = Settled { claimed, lane, change };
                into.cleared.extend(settled.write(ops));
                if let Change::Dead(dead) = settled.change {
                    into.dead.push(dead);
                }
            }
        }
    }

    /// A row that can be attempted right now, as if it were claimed.
    pub(super) fn ready(&self, loaded: Loaded) -> Option<Job> {
        let Loaded { due, row, lane, hook } = loaded;
        let (StoredRow::Read(row), Some(Ok(envelope))) = (row, hook) else { return None };
        let (key, size) = (due.key, due.value.size);
        let claimed = Claimed { tenant: key.tenant, seq: key.seq, sink: key.sink, size };
        let job = self.bind(claimed, lane, row, envelope).ok()?;
        self.attempts.parked_until(&job.target).is_none().then_some(job)
    }

    fn bind(
        &self,
        claimed: Claimed,
        lane: Option<LaneKey>,
        row: DeliveryRow,
        envelope: Arc<Envelope>,
    ) -> Result<Job, Box<NoTarget>> {
        match self.targets.bind(&envelope.source_id, claimed.sink, row.module.as_deref()) {
            Ok(target) => {
                let target = Arc::clone(target);
                Ok(Job { claimed, ticket: 0, lane, row, envelope, target })
            }
            Err(why) => Err(Box::new(NoTarget { row, envelope, why })),
        }
    }

    /// What becomes of a row without a target.
    fn unbound(&self, no_target: NoTarget, is_head: bool) -> Change {
        let NoTarget { row, envelope, why } = no_target;
        match why {
            Unbound::Waits(why) => {
                let until_ms = self.now_ms.saturating_add(WAIT_MS);
                self.rules.park(row, is_head, until_ms, why)
            }
            Unbound::Gone(reason) => {
                let (source_id, hook_id) = (envelope.source_id.clone(), envelope.id.to_string());
                Change::Dead(self.dead(row, source_id, hook_id, reason))
            }
        }
    }

    /// A claimed row that waits for an attempt, after its source was changed.
    ///
    /// # Errors
    /// What becomes of it, if it has no sink to be attempted at any more.
    pub(super) fn rebind(&self, job: Job) -> Result<Job, Box<Settled>> {
        let Job { claimed, ticket, lane, row, envelope, target: _ } = job;
        match self.bind(claimed, lane, row, envelope) {
            Ok(job) => Ok(Job { ticket, ..job }),
            Err(no_target) => {
                let change = self.unbound(*no_target, lane.is_some());
                Err(Box::new(Settled { claimed, lane, change }))
            }
        }
    }

    fn park(&self, job: Job, until_ms: u64, ops: &mut Ops, into: &mut Claimable) {
        let Job { claimed, lane, row, .. } = job;
        let change = self.rules.park(row, lane.is_some(), until_ms, BREAKER_OPEN);
        let settled = Settled { claimed, lane, change };
        settled.write(ops);
        into.parked_until_ms.extend(settled.due_ms());
    }

    fn unreadable_hook(&self, row: DeliveryRow, error: &EnvelopeError) -> DeadLetter {
        let source_id = row.source_id.clone().unwrap_or_default();
        self.dead(row, source_id, String::new(), format!("{}: {error}", error.as_str()))
    }

    fn dead(
        &self,
        row: DeliveryRow,
        source_id: String,
        hook_id: String,
        reason: String,
    ) -> DeadLetter {
        let (at_ms, reason) = (self.now_ms, cut(reason));
        let error = Some(reason.clone());
        let row = DeliveryRow { state: RowState::Dead, at_ms, error, ..row };
        let row = row.encode(self.rules.version);
        DeadLetter { row, at_ms, source_id, hook_id, sink: NO_SINK, reason }
    }

    /// The row stays as it is, for a release that can read it; the reason is told from it again.
    fn unreadable_row(
        &self,
        row: Vec<u8>,
        hook: Option<Arc<Envelope>>,
        error: &DeliveryRowError,
    ) -> DeadLetter {
        let (source_id, hook_id) = hook.map_or_else(Default::default, |envelope| {
            (envelope.source_id.clone(), envelope.id.to_string())
        });
        let reason = format!("{}: {error}", error.as_str());
        DeadLetter { row, at_ms: self.now_ms, source_id, hook_id, sink: NO_SINK, reason }
    }
}
