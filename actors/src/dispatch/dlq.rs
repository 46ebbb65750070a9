//! Dead letters, as a person reads them. Reads only: whoever asks runs it, dispatch is not involved.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use bytes::Bytes;

use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::counters::Field;
use crate::model::delivery::DeliveryRow;
use crate::model::envelope::Envelope;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{CounterKey, DeadKey, DeadValue, HookKey, TenantKey, is_sentinel};
use crate::ports::{Direction, KvError, Pair, Scan};
use crate::store::StoreHandle;

/// Dead rows read at a time, so that no call holds the store for long.
const CHUNK: usize = 512;

/// Entries whose hooks are in memory at a time.
const CHUNK_ENTRIES: usize = 16;

/// Which dead letters are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    pub source_id: Option<String>,
    /// Given up then or later, in Unix milliseconds.
    pub since_ms: Option<u64>,
}

/// Some dead letters, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetters {
    /// All there are on this node, whatever was asked for.
    pub total: u64,
    pub entries: Vec<DeadEntry>,
}

/// One dead letter, without its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadEntry {
    /// Empty where the hook cannot be read.
    pub id: String,
    /// Empty where neither hook nor row says it.
    pub source_id: String,
    pub tenant_id: String,
    pub seq: Seq,
    /// Unix milliseconds; `None` where the hook cannot be read.
    pub received_at_ms: Option<u64>,
    /// When it was given up, in Unix milliseconds.
    pub dead_lettered_at_ms: u64,
    /// Bytes of the body, or of the stored hook where that cannot be read.
    pub size: u64,
    pub content_type: Option<Bytes>,
    /// Why.
    pub reason: String,
}

/// Up to `limit` of the dead letters that were asked for.
///
/// # Errors
/// The store's.
pub async fn dead(
    store: &StoreHandle,
    filter: &DeadFilter,
    limit: usize,
) -> Result<DeadLetters, KvError> {
    let key = CounterKey { tenant: TenantOrd::NODE, field: Field::Dead }.encode();
    let total = store.get(Cf::Counters, &key)?;
    let total = total.and_then(|total| counters::read(&total)).unwrap_or(0);
    let found = find(store, filter, limit).await?;
    let mut entries = Vec::with_capacity(found.len());
    for chunk in found.chunks(CHUNK_ENTRIES) {
        entries.extend(read(store, chunk).await?);
    }
    Ok(DeadLetters { total: u64::try_from(total).unwrap_or(0), entries })
}

/// What the index says of one.
struct Found {
    key: DeadKey,
    source_id: String,
    hook_id: String,
    tenant: Option<TenantOrd>,
}

async fn find(
    store: &StoreHandle,
    filter: &DeadFilter,
    limit: usize,
) -> Result<Vec<Found>, KvError> {
    let mut range = filter.since_ms.map_or_else(DeadKey::all, DeadKey::since);
    let mut found = Vec::new();
    while found.len() < limit {
        let page = store.scan(newest_first(&range)).await?;
        let wanted = page.pairs.iter().filter_map(decode).filter(|dead| filter.takes(dead));
        found.extend(wanted.take(limit - found.len()));
        match page.pairs.last() {
            Some((last, _)) if page.more => range.end.clone_from(last),
            Some(_) | None => break,
        }
    }
    Ok(found)
}

fn newest_first(range: &Range<Vec<u8>>) -> Scan {
    Scan {
        cf: Cf::Index,
        range: range.clone(),
        direction: Direction::Reverse,
        max_rows: CHUNK,
        max_bytes: usize::MAX,
    }
}

fn decode((key, value): &Pair) -> Option<Found> {
    if is_sentinel(Cf::Index, key, value) {
        return None;
    }
    let key = DeadKey::decode(key)?;
    // A value that cannot be read is a dead letter all the same.
    let value = DeadValue::decode(value);
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    Some(Found {
        key,
        source_id: text(value.map(|value| value.source_id)),
        hook_id: text(value.map(|value| value.hook_id)),
        tenant: value.and_then(|value| value.tenant),
    })
}

impl DeadFilter {
    fn takes(&self, dead: &Found) -> bool {
        self.source_id.as_ref().is_none_or(|source_id| *source_id == dead.source_id)
    }
}

async fn read(store: &StoreHandle, found: &[Found]) -> Result<Vec<DeadEntry>, KvError> {
    let rows = found.iter().map(|dead| dead.key.row().encode().to_vec()).collect();
    let hooks = found.iter().map(|dead| HookKey(dead.key.seq).encode().to_vec()).collect();
    let (rows, hooks) =
        tokio::join!(store.multi_get(Cf::Deliveries, rows), store.multi_get(Cf::Hooks, hooks));
    let mut names = BTreeMap::new();
    for tenant in found.iter().filter_map(|dead| dead.tenant) {
        if let Entry::Vacant(name) = names.entry(tenant) {
            name.insert(store.get(Cf::Tenants, &TenantKey(tenant).encode())?);
        }
    }
    let entries = found.iter().zip(rows?).zip(hooks?).map(|((dead, row), hook)| {
        let name = dead.tenant.and_then(|tenant| names.get(&tenant)).cloned().flatten();
        entry(dead, row, hook, name)
    });
    Ok(entries.collect())
}

fn entry(
    dead: &Found,
    row: Option<Vec<u8>>,
    hook: Option<Vec<u8>>,
    tenant: Option<Vec<u8>>,
) -> DeadEntry {
    let stored_size = hook.as_ref().map_or(0, Vec::len);
    let envelope = hook.and_then(|hook| Envelope::decode_shared(&Bytes::from(hook)).ok());
    let tenant = tenant.map(|tenant| String::from_utf8_lossy(&tenant).into_owned());
    let size = envelope.as_ref().map_or(stored_size, |envelope| envelope.body.len());
    DeadEntry {
        id: dead.hook_id.clone(),
        source_id: dead.source_id.clone(),
        tenant_id: match &envelope {
            Some(envelope) => envelope.tenant().to_owned(),
            None => tenant.unwrap_or_default(),
        },
        seq: dead.key.seq,
        received_at_ms: envelope.as_ref().map(|envelope| envelope.received_at_ms),
        dead_lettered_at_ms: dead.key.at_ms,
        size: u64::try_from(size).unwrap_or(u64::MAX),
        content_type: envelope.and_then(|envelope| envelope.content_type),
        reason: reason(row),
    }
}

fn reason(row: Option<Vec<u8>>) -> String {
    match row.map(|row| DeliveryRow::decode(&row)) {
        Some(Ok(row)) => row.error.unwrap_or_default(),
        Some(Err(error)) => format!("{}: {error}", error.as_str()),
        None => "its row is missing".to_owned(),
    }
}
