//! The counters against the rows, after a stop that was not clean and before anybody writes.
//!
//! Counters move in the batch of the rows they count, so a crash leaves both or neither, and a miscount means that
//! something else went wrong. Counters are derived: the rows win. Each repair is logged and counted.
//!
//! A row of the index costs a read and its share of a look-up: 20,000 of them take a quarter of a second of an unoptimized
//! build on two cores, so a million would take 13 s. So that a boot stays short, a store past a bound is not recounted
//! here, and says so. Memory is that of a page of rows and of the counters themselves.

use std::collections::BTreeMap;

use tracing::{info, warn};

use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::invariants::{self, Counts, Dump, Miscount};
use crate::model::keys::{CounterKey, TenantNameKey};
use crate::model::ops::Ops;
use crate::ports::{Direction, Event, Events, Kv, KvError, Lane, Pair, Scan};

/// More rows of hooks, deliveries or index are not counted at a boot.
pub const RECOUNT_ROWS_MAX: u64 = 50_000;

/// Rows read at a time.
const PAGE_ROWS: usize = 1_000;
const PAGE_BYTES: usize = 1 << 20;

/// Miscounts that are logged one by one.
const TOLD: usize = 20;

/// What a boot found out about its counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recount {
    /// The store had been closed cleanly.
    #[default]
    NotNeeded,
    /// Of so many rows of the index, every counter was right.
    Right { rows: u64 },
    /// So many counters were wrong, and say now what their rows say.
    Repaired { rows: u64, counters: u64 },
    /// There were more rows than a boot counts: the counters are as they were found.
    Skipped,
}

/// Counts, compares, and puts right what is wrong.
///
/// # Errors
/// A row cannot be read, or the repair cannot be made durable.
pub(super) async fn recount(kv: &dyn Kv, events: &dyn Events) -> Result<Recount, KvError> {
    let stats = kv.stats().await?;
    if stats.hooks.max(stats.deliveries) > RECOUNT_ROWS_MAX {
        return Ok(skipped());
    }
    let Some((counts, rows)) = count(kv).await? else { return Ok(skipped()) };
    let wrong = counts.miscounts(stored(kv).await?);
    if wrong.is_empty() {
        return Ok(Recount::Right { rows });
    }
    let mut ops = Ops::default();
    for (n, Miscount { key, stored, recounted }) in wrong.iter().enumerate() {
        if n < TOLD {
            let (tenant, field) = (key.tenant.0, key.field.as_str());
            warn!(tenant, field, stored, recounted, "a counter was not what its rows say");
        }
        ops.put_counter(*key, *recounted);
    }
    kv.apply(ops.finish(), Lane::Background).await?;
    kv.sync().await?;
    let counters = u64::try_from(wrong.len()).unwrap_or(u64::MAX);
    warn!(counters, rows, "counters were put right after a stop that was not clean");
    events.emit(&Event::CountersRepaired { counters });
    Ok(Recount::Repaired { rows, counters })
}

fn skipped() -> Recount {
    info!(
        rows_max = RECOUNT_ROWS_MAX,
        "the stop was not clean, and there are too many rows to recount at a boot: the counters are taken as they are"
    );
    Recount::Skipped
}

/// What the index says, and of how many rows; `None` past the bound.
async fn count(kv: &dyn Kv) -> Result<Option<(Counts, u64)>, KvError> {
    let mut counts = Counts::default();
    let mut names = BTreeMap::new();
    let (mut from, mut rows) = (Vec::new(), 0_u64);
    loop {
        let page = kv.scan(page(Cf::Index, from)).await?;
        rows += u64::try_from(page.pairs.len()).unwrap_or(u64::MAX);
        if rows > RECOUNT_ROWS_MAX {
            return Ok(None);
        }
        counts.add_all(count_page(kv, &page.pairs, &mut names).await?);
        match page.pairs.last().filter(|_| page.more) {
            Some((last, _)) => from = after(last),
            None => return Ok(Some((counts, rows))),
        }
    }
}

async fn count_page(
    kv: &dyn Kv,
    index: &[Pair],
    names: &mut BTreeMap<String, Option<Vec<u8>>>,
) -> Result<Counts, KvError> {
    let keys: Vec<Vec<u8>> = index
        .iter()
        .filter_map(|(key, _)| invariants::row_of(key))
        .map(|row| row.encode().to_vec())
        .collect();
    let found = kv.multi_get(Cf::Deliveries, keys.clone()).await?;
    let rows = keys.iter().zip(&found).filter_map(|(key, row)| Some((key, row.as_ref()?)));
    for tenant in index.iter().filter_map(|(key, _)| invariants::named_tenant(key)) {
        if !names.contains_key(tenant) {
            let ord = kv.get(Cf::Tenants, &TenantNameKey(tenant).encode())?;
            names.insert(tenant.to_owned(), ord);
        }
    }
    let named: Vec<(Vec<u8>, &Vec<u8>)> = names
        .iter()
        .filter_map(|(name, ord)| Some((TenantNameKey(name).encode(), ord.as_ref()?)))
        .collect();
    let index = index.iter().map(|(key, value)| (Cf::Index, key, value));
    let rows = rows.map(|(key, value)| (Cf::Deliveries, key, value));
    let named = named.iter().map(|(key, value)| (Cf::Tenants, key, *value));
    Ok(invariants::recount(&Dump::from_rows(index.chain(rows).chain(named))))
}

/// Every counter that this release knows; `None` where it says no number.
async fn stored(kv: &dyn Kv) -> Result<Vec<(CounterKey, Option<i64>)>, KvError> {
    let mut stored = Vec::new();
    let mut from = Vec::new();
    loop {
        let page = kv.scan(page(Cf::Counters, from)).await?;
        let read = |(key, value): &Pair| Some((CounterKey::decode(key)?, counters::read(value)));
        stored.extend(page.pairs.iter().filter_map(read));
        match page.pairs.last().filter(|_| page.more) {
            Some((last, _)) => from = after(last),
            None => return Ok(stored),
        }
    }
}

fn page(cf: Cf, from: Vec<u8>) -> Scan {
    let range = from..vec![0xff; 64];
    let direction = Direction::Forward;
    Scan { cf, range, direction, max_rows: PAGE_ROWS, max_bytes: PAGE_BYTES }
}

fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}
