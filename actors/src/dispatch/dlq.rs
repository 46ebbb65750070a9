//! Dead letters, as a person reads them. Reads only: whoever asks runs it, dispatch is not involved.
//!
//! A page is read newest first, from the node's order of dying or from a tenant's, and its cursor is the last row it has
//! looked at: rows that die later are before it and rows that go leave no gap, so whoever follows the cursors meets
//! every row that stays once. A page looks at so many rows and no more. With a filter that few pass it can come back
//! short, or empty, and still say where to go on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use bytes::Bytes;

use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::counters::Field;
use crate::model::delivery::DeliveryRow;
use crate::model::envelope::Envelope;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{
    CounterKey, DeadByTenantKey, DeadKey, DeadValue, HookKey, TenantKey, TenantNameKey, is_sentinel,
};
use crate::model::reason::ReasonClass;
use crate::ports::{Direction, KvError, Pair, Scan};
use crate::store::StoreHandle;

/// Dead rows read at a time, so that no call holds the store for long.
const CHUNK: usize = 512;

/// Dead rows looked at for one page.
const MAX_LOOKED: usize = 8_192;

/// Entries whose hooks are in memory at a time.
const CHUNK_ENTRIES: usize = 16;

/// Which dead letters are asked for: those that are all of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadFilter {
    pub source_id: Option<String>,
    pub tenant_id: Option<String>,
    /// Given up then or later, in Unix milliseconds.
    pub since_ms: Option<u64>,
    /// Given up then or before, in Unix milliseconds.
    pub until_ms: Option<u64>,
    pub class: Option<ReasonClass>,
}

/// Behind which row a page goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadCursor(DeadKey);

impl fmt::Display for DeadCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DeadKey { at_ms, seq, sink } = self.0;
        write!(f, "{at_ms}.{}.{sink}", seq.0)
    }
}

/// It is not one that a page answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no cursor of the dead letters")]
pub struct NoDeadCursor;

impl FromStr for DeadCursor {
    type Err = NoDeadCursor;

    fn from_str(text: &str) -> Result<Self, NoDeadCursor> {
        let mut parts = text.split('.');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let cursor = (|| {
            let (at_ms, seq, sink) = (number()?, Seq(number()?), number()?);
            Some(Self(DeadKey { at_ms, seq, sink: u16::try_from(sink).ok()? }))
        })();
        // One cursor has one form.
        cursor.filter(|cursor| cursor.to_string() == text).ok_or(NoDeadCursor)
    }
}

/// A page of dead letters, newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetters {
    /// All there are on this node, or of the tenant that was asked for, whatever else was.
    pub total: u64,
    pub entries: Vec<DeadEntry>,
    /// Where the next page begins; `None` after the last.
    pub next: Option<DeadCursor>,
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

/// Up to `limit` of the dead letters that were asked for, behind `after`.
///
/// # Errors
/// The store's.
pub async fn dead(
    store: &StoreHandle,
    filter: &DeadFilter,
    after: Option<DeadCursor>,
    limit: usize,
) -> Result<DeadLetters, KvError> {
    let tenant = match &filter.tenant_id {
        None => None,
        Some(id) => {
            let stored = store.get(Cf::Tenants, &TenantNameKey(id).encode())?;
            // Nothing has come for a tenant without an ordinal.
            let Some(tenant) = stored.as_deref().and_then(TenantNameKey::read_value) else {
                return Ok(DeadLetters::default());
            };
            Some(tenant)
        }
    };
    let key = CounterKey { tenant: tenant.unwrap_or(TenantOrd::NODE), field: Field::Dead };
    let total = store.get(Cf::Counters, &key.encode())?;
    let total = total.and_then(|total| counters::read(&total)).unwrap_or(0);
    let (found, next) = Search { store, filter, tenant }.page(after, limit).await?;
    let mut entries = Vec::with_capacity(found.len());
    for chunk in found.chunks(CHUNK_ENTRIES) {
        entries.extend(read(store, chunk).await?);
    }
    Ok(DeadLetters { total: u64::try_from(total).unwrap_or(0), entries, next })
}

/// What the index says of one.
#[derive(Clone)]
struct Found {
    key: DeadKey,
    source_id: String,
    hook_id: String,
    tenant: Option<TenantOrd>,
}

impl Found {
    /// A value that cannot be read, or is missing, is a dead letter all the same.
    fn new(key: DeadKey, value: Option<&[u8]>, tenant: Option<TenantOrd>) -> Self {
        let value = value.and_then(DeadValue::decode);
        let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
        Self {
            key,
            source_id: text(value.map(|value| value.source_id)),
            hook_id: text(value.map(|value| value.hook_id)),
            tenant: tenant.or_else(|| value.and_then(|value| value.tenant)),
        }
    }
}

struct Search<'a> {
    store: &'a StoreHandle,
    filter: &'a DeadFilter,
    /// Whose order is read; `None` for the node's.
    tenant: Option<TenantOrd>,
}

impl Search<'_> {
    /// Up to `limit` rows, and where to go on if there are rows behind the last one looked at.
    async fn page(
        &self,
        mut after: Option<DeadCursor>,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<DeadCursor>), KvError> {
        let (mut found, mut looked) = (Vec::new(), 0);
        if limit == 0 {
            return Ok((found, after));
        }
        let mut range = self.range(after);
        while looked < MAX_LOOKED {
            let want = if self.is_selective() { CHUNK } else { CHUNK.min(limit - found.len()) };
            let page = self.store.scan(newest_first(range.clone(), want)).await?;
            looked += page.pairs.len();
            let rows = self.decode(&page.pairs).await?;
            let takes = self.takes(&rows).await?;
            let mut left = rows.len();
            for (row, taken) in rows.into_iter().zip(takes) {
                if found.len() == limit {
                    break;
                }
                (left, after) = (left - 1, Some(DeadCursor(row.key)));
                found.extend(taken.then_some(row));
            }
            match page.pairs.last() {
                _ if left > 0 => break,
                Some((last, _)) if page.more => range.end.clone_from(last),
                Some(_) | None => return Ok((found, None)),
            }
            if found.len() == limit {
                break;
            }
        }
        Ok((found, after))
    }

    /// Rows can be looked at that are not taken.
    fn is_selective(&self) -> bool {
        self.filter.source_id.is_some() || self.filter.class.is_some()
    }

    /// The rows behind `after` that died when they were to.
    fn range(&self, after: Option<DeadCursor>) -> Range<Vec<u8>> {
        let from_ms = self.filter.since_ms.unwrap_or(0);
        let until_ms = self.filter.until_ms.unwrap_or(u64::MAX);
        let mut range = match self.tenant {
            None => DeadKey::died_between(from_ms, until_ms),
            Some(tenant) => DeadByTenantKey::died_between(tenant, from_ms, until_ms),
        };
        if let Some(DeadCursor(key)) = after {
            let behind = match self.tenant {
                None => key.encode().to_vec(),
                Some(tenant) => key.by_tenant(tenant).encode().to_vec(),
            };
            range.end = range.end.min(behind);
        }
        range
    }

    /// In a tenant's order the keys say nothing but when.
    async fn decode(&self, pairs: &[Pair]) -> Result<Vec<Found>, KvError> {
        let Some(tenant) = self.tenant else {
            let real = pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Index, key, value));
            let found = real.filter_map(|(key, value)| {
                Some(Found::new(DeadKey::decode(key)?, Some(value), None))
            });
            return Ok(found.collect());
        };
        let keys: Vec<DeadKey> = pairs
            .iter()
            .filter_map(|(key, _)| DeadByTenantKey::decode(key).map(DeadByTenantKey::dead))
            .collect();
        let encoded = keys.iter().map(|key| key.encode().to_vec()).collect();
        let values = self.store.multi_get(Cf::Index, encoded).await?;
        let found = keys.into_iter().zip(values);
        Ok(found.map(|(key, value)| Found::new(key, value.as_deref(), Some(tenant))).collect())
    }

    async fn takes(&self, rows: &[Found]) -> Result<Vec<bool>, KvError> {
        let DeadFilter { source_id, class, tenant_id: _, since_ms: _, until_ms: _ } = self.filter;
        let of_source =
            |row: &Found| source_id.as_ref().is_none_or(|source_id| *source_id == row.source_id);
        let mut takes: Vec<bool> = rows.iter().map(of_source).collect();
        let Some(class) = class else { return Ok(takes) };
        let asked = rows.iter().zip(&takes).filter(|(_, takes)| **takes);
        let keys = asked.map(|(row, _)| row.key.row().encode().to_vec()).collect();
        let mut stored = self.store.multi_get(Cf::Deliveries, keys).await?.into_iter();
        for takes in takes.iter_mut().filter(|takes| **takes) {
            let row = stored.next().flatten();
            *takes = ReasonClass::of(&reason(row)) == *class;
        }
        Ok(takes)
    }
}

fn newest_first(range: Range<Vec<u8>>, max_rows: usize) -> Scan {
    let direction = Direction::Reverse;
    Scan { cf: Cf::Index, range, direction, max_rows, max_bytes: usize::MAX }
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
    let mut entries = Vec::with_capacity(found.len());
    for ((dead, row), hook) in found.iter().zip(rows?).zip(hooks?) {
        // It may have gone since the index was read.
        if row.is_none() && store.get(Cf::Index, &dead.key.encode())?.is_none() {
            continue;
        }
        let name = dead.tenant.and_then(|tenant| names.get(&tenant)).cloned().flatten();
        entries.push(entry(dead, row, hook, name));
    }
    Ok(entries)
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
