//! Collects hooks and encodes them for the Writer.
//!
//! Everything that needs no seq happens here, in parallel over the partitions: the hook's value, its delivery rows, and a
//! look at its dedupe key, which the Writer completes by what it has changed since.
//! While one batch is handed over the next accumulates, so batches grow with the load and nothing waits at low load.
//!
//! * **Owns:** nothing that cannot be lost: a hook here is not acked, and its caller is answered by its guard.
//! * **Talks to:** the Writer (`commit`); the store (dedupe keys), and looks at its state.
//! * **Supervised by:** `front`, one_for_one: it refuses on its own while the core is down.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tracing::warn;

use super::admission::{Admission, Permit};
use super::config::BatcherConfig;
use super::inbox::Inbox;
use super::ledger::Ledger;
use super::recent_keys::KeyClaim;
use super::reply::{Refusal, Reply, Waiting, reply};
use super::writer_handle::{CommitEntry, WriterHandle};
use crate::model::cf::Cf;
use crate::model::delivery::PendingRow;
use crate::model::envelope::Envelope;
use crate::model::ids::DEFAULT_TENANT;
use crate::model::keys::{DedupeKey, Held};
use crate::model::ops::stored_size;
use crate::model::value_version::ValueVersion;
use crate::store::StoreHandle;
use crate::supervision::{Crash, Doorbell, Slot, told_to_crash};

/// How often a batch that waits for more is looked at, whether it is full.
const LOOK_EVERY: Duration = Duration::from_millis(1);

pub enum BatcherMsg {
    /// There are hooks in the inbox.
    Flush,
    /// Panic, for a drill.
    Crash,
}

impl Crash for BatcherMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

/// A verified hook and the modules of the sinks it is owed to, in the order of its source.
#[derive(Debug)]
pub struct NewHook {
    pub envelope: Envelope,
    pub sinks: Arc<[&'static str]>,
    /// The lane of the hook for each of `sinks`, in the same order; empty where none of them is ordered.
    pub lanes: Vec<Option<u128>>,
    /// How long its dedupe key lives, in milliseconds. Without it the envelope's key, if any, keeps nobody away.
    pub key_ttl_ms: Option<u64>,
}

#[derive(Debug)]
struct Buffered {
    hook: NewHook,
    reply: Reply,
    permit: Permit,
    deadline: Instant,
}

/// One partition, as the edge sees it.
#[derive(Clone)]
pub struct BatcherHandle {
    slot: Slot<BatcherMsg>,
    bell: Doorbell<BatcherMsg>,
    inbox: Inbox<Buffered>,
    admission: Arc<Admission>,
    tenant_share_percent: u32,
    ledger: Ledger,
    store: StoreHandle,
    start_deadline: Duration,
    stall: Duration,
}

impl BatcherHandle {
    pub fn new(config: &BatcherConfig, ledger: &Ledger, store: &StoreHandle) -> Self {
        let slot = Slot::default();
        Self {
            bell: Doorbell::new(&slot, || BatcherMsg::Flush),
            slot,
            inbox: Inbox::default(),
            admission: Admission::new(config.max_queue, config.max_queue_bytes),
            tenant_share_percent: config.tenant_share_percent,
            ledger: ledger.clone(),
            store: store.clone(),
            start_deadline: Duration::from_millis(config.start_deadline_ms),
            stall: Duration::from_millis(config.stall_ms),
        }
    }

    pub fn slot(&self) -> &Slot<BatcherMsg> {
        &self.slot
    }

    /// What is buffered and in flight here.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Queues a hook whose tenant has the share of the room that every tenant has: [`Self::submit_within`].
    ///
    /// # Errors
    /// Those.
    pub fn submit(&self, hook: NewHook) -> Result<(Waiting, Instant), Refusal> {
        self.submit_within(hook, None)
    }

    /// Queues a hook, or refuses it at once. Its tenant may have `share_percent` of the room that others leave, or else
    /// `batcher.tenant_share_percent`.
    ///
    /// # Errors
    /// `Overload` when the partition is full or the commit path stalls, so that a stall costs the requests already in
    /// flight and nobody else; `TenantOverload` when its tenant has had its share; `StoreUnavailable` while nobody can
    /// commit, or the disk has no room for new hooks.
    pub fn submit_within(
        &self,
        hook: NewHook,
        share_percent: Option<u32>,
    ) -> Result<(Waiting, Instant), Refusal> {
        if !self.slot.is_running() || !self.store.state().takes_hooks() {
            return Err(Refusal::StoreUnavailable);
        }
        let now = Instant::now();
        self.ledger.admits(now, self.stall)?;
        let share = share_percent.unwrap_or(self.tenant_share_percent);
        let (tenant, bytes) = (hook.envelope.tenant(), hook.envelope.body.len());
        let permit = self.admission.admit(tenant, bytes, share)?;
        let (reply, waiting) = reply();
        let deadline = now + self.start_deadline;
        self.inbox.push(Buffered { hook, reply, permit, deadline });
        self.bell.ring();
        Ok((waiting, deadline))
    }
}

#[derive(Clone)]
pub struct BatcherArgs {
    pub config: BatcherConfig,
    pub version: ValueVersion,
    pub handle: BatcherHandle,
    pub writer: WriterHandle,
}

/// Nothing is remembered between flushes.
pub struct BatcherState {
    args: BatcherArgs,
}

pub struct Batcher;

impl Actor for Batcher {
    type Msg = BatcherMsg;
    type State = BatcherState;
    type Arguments = BatcherArgs;

    async fn pre_start(
        &self,
        _: ActorRef<BatcherMsg>,
        args: BatcherArgs,
    ) -> Result<BatcherState, ActorProcessingErr> {
        // What a predecessor left behind is its callers' to give up: each has its own deadline.
        args.handle.bell.answered();
        Ok(BatcherState { args })
    }

    async fn post_start(
        &self,
        _: ActorRef<BatcherMsg>,
        state: &mut BatcherState,
    ) -> Result<(), ActorProcessingErr> {
        state.flush().await;
        Ok(())
    }

    async fn handle(
        &self,
        _: ActorRef<BatcherMsg>,
        message: BatcherMsg,
        state: &mut BatcherState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            BatcherMsg::Flush => state.flush().await,
            BatcherMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl BatcherState {
    /// Hands over batch after batch until the inbox is empty.
    async fn flush(&self) {
        let BatcherArgs { config, version, handle, writer } = &self.args;
        // Behind the connections that are ready to run: what they bring makes this batch larger. With none it costs nothing.
        yield_now().await;
        handle.bell.answered();
        let until = Instant::now() + Duration::from_millis(config.max_delay_ms);
        while handle.inbox.len() < config.max_batch && Instant::now() < until {
            sleep_until(until.min(Instant::now() + LOOK_EVERY)).await;
        }
        loop {
            let hooks = handle.inbox.take(config.max_batch);
            if hooks.is_empty() {
                return;
            }
            let mut entries: Vec<CommitEntry> =
                hooks.into_iter().map(|hook| encode(hook, *version)).collect();
            look_at_keys(&mut entries, &handle.store, writer).await;
            writer.commit(entries).await;
        }
    }
}

/// Reads what is held under the keys of a batch, all at once. A hook whose key cannot be read is dropped, and its guard
/// refuses it: it is never stored without.
async fn look_at_keys(entries: &mut Vec<CommitEntry>, store: &StoreHandle, writer: &WriterHandle) {
    let claims: Vec<&mut KeyClaim> =
        entries.iter_mut().filter_map(|entry| entry.key.as_deref_mut()).collect();
    if claims.is_empty() {
        return;
    }
    let seen = writer.look_at_keys();
    let wanted = claims.iter().map(|claim| claim.key.to_vec()).collect();
    match store.multi_get(Cf::Index, wanted).await {
        Ok(found) => {
            for (claim, found) in claims.into_iter().zip(found) {
                claim.held = Held::read(found.as_deref());
                claim.seen = seen;
            }
        }
        Err(error) => {
            warn!(%error, "dedupe keys cannot be read; their hooks are refused");
            entries.retain(|entry| entry.key.is_none());
        }
    }
}

fn encode(buffered: Buffered, version: ValueVersion) -> CommitEntry {
    let Buffered { hook, reply, permit, deadline } = buffered;
    let NewHook { mut envelope, sinks, lanes, key_ttl_ms } = hook;
    let value = Bytes::from(envelope.encode(version));
    let size = stored_size(&value);
    let row = |(sink, module): (u16, &&'static str)| {
        let lane = lanes.get(usize::from(sink)).copied().flatten();
        (sink, PendingRow::in_lane(lane, module, &envelope.source_id, size, version))
    };
    let rows = (0..).zip(sinks.iter()).map(row).collect();
    let key = key_ttl_ms.and_then(|ttl_ms| claim(&envelope, ttl_ms));
    let tenant = envelope.tenant_id.take().map_or(Cow::Borrowed(DEFAULT_TENANT), Cow::Owned);
    CommitEntry { tenant, value, rows, key, reply, permit, deadline }
}

/// The claim of a hook that has a key. Nothing is known yet of who holds it.
fn claim(envelope: &Envelope, ttl_ms: u64) -> Option<Box<KeyClaim>> {
    let key = envelope.dedupe_key.as_deref()?;
    let key = DedupeKey::new(envelope.tenant(), &envelope.source_id, key)?;
    let (key, hook) = (Bytes::from(key.encode()), envelope.id);
    Some(Box::new(KeyClaim { key, hook, ttl_ms, held: Held::Nothing, seen: 0 }))
}
