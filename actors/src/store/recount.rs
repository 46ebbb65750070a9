//! The counters against the rows: after a stop that was not clean, before anybody writes; and whenever an operator asks,
//! of a store that is written meanwhile or of one that no node has open.
//!
//! Counters move in the batch of the rows they count, so a crash leaves both or neither, and a miscount means that
//! something else went wrong. Counters are derived: the rows win. Each repair is logged and counted.
//!
//! Rows and counters are read at one moment. So a counter is wrong by the same amount whatever commits meanwhile, and a
//! repair adds that amount: a put would undo every move since. Adding it twice would be wrong, so nobody tries again
//! what may have landed: a new count says what is still missing.
//!
//! A row of the index costs a read and its share of a look-up: 20,000 of them take a quarter of a second of an unoptimized
//! build on two cores, so a million would take 13 s. So that a boot stays short, a store past a bound is not recounted
//! there, and says so. Memory is that of a page of rows and of the counters themselves.

use std::collections::BTreeSet;

use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::model::cf::Cf;
use crate::model::counters;
use crate::model::delivery::DeliveryRow;
use crate::model::failure::FailureClass;
use crate::model::invariants::{self, Counts, Dump, Miscount};
use crate::model::keys::{CounterKey, DeliveryKey, HookKey, TenantNameKey};
use crate::model::ops::Ops;
use crate::ports::{Direction, Event, Events, Kv, KvError, Lane, Look, Moment, Pair, Scan};

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

/// What a count of all rows came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recounted {
    /// Rows of the index.
    pub rows: u64,
    /// The counters that are not what their rows say, in the order of their keys.
    pub wrong: Vec<Miscount>,
}

/// Counts, compares, and puts right what is wrong.
///
/// # Errors
/// A row cannot be read, or the repair cannot be made durable.
pub(super) async fn at_boot(kv: &dyn Kv, events: &dyn Events) -> Result<Recount, KvError> {
    let stats = kv.stats().await?;
    if stats.hooks.max(stats.deliveries) > RECOUNT_ROWS_MAX {
        return Ok(skipped());
    }
    let counted = undisturbed(kv, |moment| count(moment, Some(RECOUNT_ROWS_MAX), || true));
    let Some(Recounted { rows, wrong }) = counted.await? else { return Ok(skipped()) };
    if wrong.is_empty() {
        return Ok(Recount::Right { rows });
    }
    let counters = put_right(kv, &wrong).await?;
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

/// Runs `look` over one moment of the store and answers what it does.
pub(super) async fn at_one_moment<T: Send + 'static>(
    kv: &dyn Kv,
    look: impl FnOnce(&dyn Moment) -> Result<T, KvError> + Send + 'static,
) -> Result<T, KvError> {
    let (look, answer) = telling(look);
    kv.at_one_moment(look).await?;
    answer.await.map_err(|_| gone("the look did not come to its end"))
}

/// The same while nobody else has the store: before it lets anybody in, or without a node.
pub(super) async fn undisturbed<T: Send + 'static>(
    kv: &dyn Kv,
    look: impl FnOnce(&dyn Moment) -> Result<T, KvError> + Send + 'static,
) -> Result<T, KvError> {
    let (look, answer) = telling(look);
    kv.undisturbed(look).await?;
    answer.await.map_err(|_| gone("the look did not come to its end"))
}

fn telling<T: Send + 'static>(
    look: impl FnOnce(&dyn Moment) -> Result<T, KvError> + Send + 'static,
) -> (Look, oneshot::Receiver<T>) {
    let (told, answer) = oneshot::channel();
    let look = move |moment: &dyn Moment| {
        let _ = told.send(look(moment)?);
        Ok(())
    };
    (Box::new(look), answer)
}

fn gone(why: &str) -> KvError {
    KvError { class: FailureClass::NotRunning, op: "recount", detail: why.to_owned() }
}

/// The batch that makes `wrong` right, from whatever moment they were counted at.
pub(super) fn corrections(wrong: &[Miscount]) -> Ops {
    let mut ops = Ops::default();
    for (n, miscount) in wrong.iter().enumerate() {
        if n < TOLD {
            let Miscount { key, stored, recounted } = *miscount;
            let (tenant, field) = (key.tenant.0, key.field.as_str());
            warn!(tenant, field, stored, recounted, "a counter was not what its rows say");
        }
        ops.correct_counter(miscount);
    }
    ops
}

/// Durably. Answers how many.
pub(super) async fn put_right(kv: &dyn Kv, wrong: &[Miscount]) -> Result<u64, KvError> {
    kv.apply(corrections(wrong).finish(), Lane::Background).await?;
    kv.sync().await?;
    Ok(u64::try_from(wrong.len()).unwrap_or(u64::MAX))
}

/// What the index says, against what the counters say; `None` past `rows_max`. Asks after each page whether to go on.
///
/// # Errors
/// A row cannot be read, or it was not to go on.
pub(super) fn count(
    moment: &dyn Moment,
    rows_max: Option<u64>,
    go_on: impl Fn() -> bool,
) -> Result<Option<Recounted>, KvError> {
    let mut counts = Counts::default();
    let (mut from, mut rows) = (Vec::new(), 0_u64);
    loop {
        if !go_on() {
            return Err(gone("the store is being closed"));
        }
        let page = moment.scan(page(Cf::Index, from))?;
        rows += u64::try_from(page.pairs.len()).unwrap_or(u64::MAX);
        if rows_max.is_some_and(|max| rows > max) {
            return Ok(None);
        }
        counts.add_all(count_page(moment, &page.pairs)?);
        match page.pairs.last().filter(|_| page.more) {
            Some((last, _)) => from = after(last),
            None => break,
        }
    }
    let wrong = counts.miscounts(stored(moment)?);
    Ok(Some(Recounted { rows, wrong }))
}

fn count_page(moment: &dyn Moment, index: &[Pair]) -> Result<Counts, KvError> {
    let keys: Vec<DeliveryKey> =
        index.iter().filter_map(|(key, _)| invariants::row_of(key)).collect();
    let encoded: Vec<Vec<u8>> = keys.iter().map(|key| key.encode().to_vec()).collect();
    let found = moment.multi_get(Cf::Deliveries, &encoded)?;
    let hooks = hooks_of_unreadable(moment, &keys, &found)?;
    let names: BTreeSet<&str> =
        index.iter().filter_map(|(key, _)| invariants::named_tenant(key)).collect();
    let names: Vec<Vec<u8>> = names.into_iter().map(|name| TenantNameKey(name).encode()).collect();
    let ords = moment.multi_get(Cf::Tenants, &names)?;
    let there = |cf, keys: &[Vec<u8>], values: Vec<Option<Vec<u8>>>| {
        let pairs = keys.iter().cloned().zip(values);
        pairs.filter_map(|(key, value)| Some((cf, key, value?))).collect::<Vec<_>>()
    };
    let index = index.iter().map(|(key, value)| (Cf::Index, key.clone(), value.clone()));
    let rows = there(Cf::Deliveries, &encoded, found);
    let names = there(Cf::Tenants, &names, ords);
    let hooks = hooks.into_iter().map(|(key, value)| (Cf::Hooks, key, value));
    let all = index.chain(rows).chain(names).chain(hooks);
    Ok(invariants::recount(&Dump::from_rows(all)))
}

/// A row that cannot be read stands for the bytes of its hook. There are few of them, and hooks are large.
fn hooks_of_unreadable(
    moment: &dyn Moment,
    keys: &[DeliveryKey],
    rows: &[Option<Vec<u8>>],
) -> Result<Vec<Pair>, KvError> {
    let mut hooks = Vec::new();
    for (key, row) in keys.iter().zip(rows) {
        if row.as_ref().is_some_and(|row| DeliveryRow::decode(row).is_err()) {
            let key = HookKey(key.seq).encode().to_vec();
            let found = moment.multi_get(Cf::Hooks, std::slice::from_ref(&key))?;
            hooks.extend(found.into_iter().flatten().map(|hook| (key.clone(), hook)));
        }
    }
    Ok(hooks)
}

/// Every counter that this release knows; `None` where it says no number.
fn stored(moment: &dyn Moment) -> Result<Vec<(CounterKey, Option<i128>)>, KvError> {
    let mut stored = Vec::new();
    let mut from = Vec::new();
    loop {
        let page = moment.scan(page(Cf::Counters, from))?;
        let read = |(key, value): &Pair| Some((CounterKey::decode(key)?, counters::number(value)));
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
