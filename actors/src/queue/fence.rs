//! Takes back groups that were applied and never answered, so that they can be refused.
//!
//! After a failed apply or fsync, and after a crash between apply and answer, a group may be in the store or not, but
//! never in part: what is there is deleted with everything it counted, in a synced batch, and only then is anybody told.
//! The rows themselves say what to delete, so the same code serves a Writer that knows nothing of its predecessor.

use super::canary;
use crate::model::cf::Cf;
use crate::model::delivery::DeliveryRow;
use crate::model::envelope::Envelope;
use crate::model::failure::FailureClass;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{
    ArchiveKey, DedupeKey, DeliveryKey, Held, HookKey, TenantNameKey, is_sentinel,
};
use crate::model::ops::{FencedHook, FencedRow, Ops, stored_size};
use crate::ports::{Direction, KvError, Lane, Scan};
use crate::store::StoreHandle;

/// Hooks deleted in one batch.
const CHUNK_HOOKS: usize = 512;

/// Bytes of hook values read at a time.
const CHUNK_BYTES: usize = 16 << 20;

/// Rows of one hook read at a time: a sink index has 16 bits.
const MAX_ROWS: usize = 1 << 16;

/// An error of RocksDB is latched until it is reopened, and only a reopened store can be trusted to show what is on the
/// disk: recovery writes what it found into synced files.
///
/// # Errors
/// `not_running` until then: try again.
pub(super) fn wait_for_reopen(
    store: &StoreHandle,
    after_generation: Option<u64>,
) -> Result<(), KvError> {
    let state = store.state();
    let reopened = after_generation.is_none_or(|failed| state.generation > failed)
        || cfg!(feature = "canary-no-reopen-after-eio");
    if reopened && state.open && state.failing.is_none() {
        return Ok(());
    }
    let class = state.failing.unwrap_or(FailureClass::NotRunning);
    Err(KvError { class, op: "fence", detail: "the store has not been reopened yet".to_owned() })
}

/// Deletes whatever the store holds of these seqs, durably.
pub(super) async fn delete(
    store: &StoreHandle,
    spans: &[(Seq, Seq)],
    synced_through: Seq,
) -> Result<(), KvError> {
    if !spans.is_empty() {
        // Batches land in the order they were handed over. One that a killed predecessor left on its way has landed
        // once this has, and cannot show up behind the fence.
        let mut barrier = Ops::default();
        barrier.set_synced_through(synced_through);
        store.apply(barrier.finish(), Lane::Commit).await?;
    }
    for &(first, last) in spans {
        while delete_chunk(store, first, last).await? {}
    }
    canary::sync_fence(store).await
}

/// True when there may be more.
async fn delete_chunk(store: &StoreHandle, first: Seq, last: Seq) -> Result<bool, KvError> {
    let hooks = store
        .scan(Scan {
            cf: Cf::Hooks,
            range: HookKey::between(first, last.plus(1)),
            direction: Direction::Forward,
            max_rows: CHUNK_HOOKS,
            max_bytes: CHUNK_BYTES,
        })
        .await?;
    let mut ops = Ops::default();
    for (key, value) in &hooks.pairs {
        if is_sentinel(Cf::Hooks, key, value) {
            continue;
        }
        let HookKey(seq) =
            HookKey::decode(key).ok_or_else(|| corrupt("a key of the hooks family"))?;
        fence_hook(store, seq, value, &mut ops).await?;
    }
    let batch = ops.finish();
    if !batch.is_empty() {
        store.apply(batch, Lane::Commit).await?;
    }
    Ok(hooks.more)
}

async fn fence_hook(
    store: &StoreHandle,
    seq: Seq,
    value: &[u8],
    ops: &mut Ops,
) -> Result<(), KvError> {
    let envelope = Envelope::decode(value).map_err(|error| corrupt(&error.to_string()))?;
    let tenant = ordinal(store, envelope.tenant())?;
    let rows = store
        .scan(Scan {
            cf: Cf::Deliveries,
            range: DeliveryKey::of_hook(seq),
            direction: Direction::Forward,
            max_rows: MAX_ROWS,
            max_bytes: usize::MAX,
        })
        .await?;
    let mut owed = Vec::with_capacity(rows.pairs.len());
    for (key, row) in &rows.pairs {
        let key =
            DeliveryKey::decode(key).ok_or_else(|| corrupt("a key of the deliveries family"))?;
        let row = DeliveryRow::decode(row).map_err(|error| corrupt(&error.to_string()))?;
        owed.push(FencedRow { sink: key.sink, at_ms: row.at_ms, lane: row.lane });
    }
    let archive = store.get(Cf::Index, &ArchiveKey(seq).encode())?.is_some();
    let size = stored_size(value);
    ops.fence_hook(&FencedHook { seq, tenant, size, rows: &owed, archive });
    give_up_key(store, &envelope, tenant, ops)
}

/// The key that a hook holds goes with it: its retry is new.
fn give_up_key(
    store: &StoreHandle,
    envelope: &Envelope,
    tenant: TenantOrd,
    ops: &mut Ops,
) -> Result<(), KvError> {
    let key = envelope.dedupe_key.as_deref();
    let key = key.and_then(|key| DedupeKey::new(envelope.tenant(), &envelope.source_id, key));
    let Some(key) = key else { return Ok(()) };
    let value = store.get(Cf::Index, &key.encode())?;
    if let Held::By(value) = Held::read(value.as_deref())
        && value.original == envelope.id
    {
        ops.end_key(Some(tenant), key, value.expires_at_ms);
    }
    Ok(())
}

fn ordinal(store: &StoreHandle, tenant: &str) -> Result<TenantOrd, KvError> {
    let ord = store.get(Cf::Tenants, &TenantNameKey(tenant).encode())?;
    ord.as_deref()
        .and_then(TenantNameKey::read_value)
        .ok_or_else(|| corrupt("the ordinal of a committed hook's tenant"))
}

fn corrupt(what: &str) -> KvError {
    let detail = format!("cannot read {what}");
    KvError { class: FailureClass::Corruption, op: "fence", detail }
}
