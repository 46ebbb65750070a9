//! Stores with a past: millions of rows, written with the node's own builders in batches far larger than its groups.

use std::path::Path;
use std::str::FromStr;

use ankusa_actors::model::delivery::{DeliveryRow, PendingRow, RowState};
use ankusa_actors::model::ids::{Seq, TenantOrd};
use ankusa_actors::model::keys::{ActiveKey, DueKey, DueKind, DueValue};
use ankusa_actors::model::ops::{Claimed, NewHook, Ops, stored_size};
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::node::Roles;
use ankusa_actors::ports::{Clock, Lane};
use ankusa_actors::store::StoreHandle;
use ankusa_node::host::HostClock;
use bytes::Bytes;

use super::node::{HANGING, MODULE, QUICK, Tree, envelope};
use crate::bench::requests::body;
use crate::drill::{CannotInject, OrCannot};

/// Hooks in one batch.
const BATCH: u64 = 4_096;

/// Rows the past is made of a second: so many are due in one second of the active index.
const ROWS_PER_SECOND: u64 = 10_000;

/// Bytes of a body. Smaller than a provider's, so that ten million fit; no figure here is of bodies.
const BODY_BYTES: usize = 256;

/// Of idle tenants: when what they have is due.
const AN_HOUR_MS: u64 = 3_600_000;

const VERSION: ValueVersion = ValueVersion::V0;

/// What a store holds before anything is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Past {
    Empty,
    /// Every row waits for its first attempt, all of one tenant, for a sink that hangs.
    Pending,
    /// Every row is dead.
    Dead,
    /// Every hook was delivered and is gone.
    Passed,
    /// A tenant a row, each with a retry in an hour.
    Tenants,
}

impl Past {
    const ALL: [Self; 5] = [Self::Empty, Self::Pending, Self::Dead, Self::Passed, Self::Tenants];

    pub(super) const fn word(self) -> &'static str {
        match self {
            Self::Empty => "empty",
            Self::Pending => "pending",
            Self::Dead => "dead",
            Self::Passed => "passed",
            Self::Tenants => "tenants",
        }
    }
}

impl FromStr for Past {
    type Err = CannotInject;

    fn from_str(word: &str) -> Result<Self, CannotInject> {
        let past = Self::ALL.into_iter().find(|past| past.word() == word);
        past.ok_or_else(|| CannotInject(format!("cannot make a store of {word}")))
    }
}

/// Makes the store in `directory` with so many rows.
pub(super) async fn fill(directory: &Path, past: Past, rows: u64) -> Result<(), CannotInject> {
    let roles = Roles { edge: false, dispatch: false, storage: false };
    let tree = Tree::start(directory, roles).await?;
    let mut filling = Filling::new(past, rows);
    filling.tenants(tree.store()).await?;
    while filling.next.0 <= rows && past != Past::Empty {
        filling.batch(tree.store()).await?;
    }
    tree.store().sync().await.or_cannot("sync the store")?;
    tree.stop().await
}

struct Filling {
    past: Past,
    rows: u64,
    next: Seq,
    now_ms: u64,
    body: Bytes,
}

/// A hook of the batch at hand.
struct Row {
    due: DueKey,
    value: DueValue,
    hook_id: String,
}

impl Filling {
    fn new(past: Past, rows: u64) -> Self {
        let body = Bytes::from(body(1)).slice(..BODY_BYTES);
        Self { past, rows, next: Seq::FIRST, now_ms: HostClock.now_ms(), body }
    }

    fn tenant(&self, seq: Seq) -> TenantOrd {
        match self.past {
            Past::Tenants => TenantOrd(u32::try_from(seq.0).unwrap_or(u32::MAX)),
            Past::Empty | Past::Pending | Past::Dead | Past::Passed => TenantOrd::FIRST,
        }
    }

    /// The ordinals of everybody there is.
    async fn tenants(&self, store: &StoreHandle) -> Result<(), CannotInject> {
        let count = match self.past {
            Past::Tenants => u32::try_from(self.rows).or_cannot("count the tenants")?,
            Past::Empty | Past::Pending | Past::Dead | Past::Passed => 1,
        };
        let mut ops = Ops::default();
        for ord in 1..=count {
            ops.new_tenant(TenantOrd(ord), &format!("idle-{ord}"), TenantOrd(ord + 1));
        }
        apply(store, ops).await
    }

    /// When a row came, evenly over the time before now.
    fn at_ms(&self, seq: Seq) -> u64 {
        let back = self.rows.saturating_sub(seq.0) * 1_000 / ROWS_PER_SECOND;
        self.now_ms.saturating_sub(back + 2_000)
    }

    async fn batch(&mut self, store: &StoreHandle) -> Result<(), CannotInject> {
        let end = (self.next.0 + BATCH).min(self.rows + 1);
        let mut ops = Ops::with_capacity(20_000, 4 << 20);
        let rows: Vec<Row> =
            (self.next.0..end).map(|seq| self.commit(Seq(seq), &mut ops)).collect();
        self.next = Seq(end);
        ops.set_next_seq(self.next);
        apply(store, ops).await?;
        match self.past {
            Past::Empty | Past::Pending => Ok(()),
            Past::Dead => self.die(store, &rows).await,
            Past::Passed => self.pass(store, &rows).await,
            Past::Tenants => self.retry(store, &rows).await,
        }
    }

    fn commit(&self, seq: Seq, ops: &mut Ops) -> Row {
        let (tenant, at_ms) = (self.tenant(seq), self.at_ms(seq));
        let source = match self.past {
            Past::Pending => HANGING,
            Past::Empty | Past::Dead | Past::Passed | Past::Tenants => QUICK,
        };
        let envelope = envelope(seq.0, at_ms, source, "idle-1", self.body.clone());
        let hook_id = envelope.id.to_string();
        let value = Bytes::from(envelope.encode(VERSION));
        let size = stored_size(&value);
        let row = PendingRow::new(MODULE, source, size, VERSION);
        ops.commit_hook(NewHook { seq, tenant, at_ms, value, rows: &[(0, row)], archive: false });
        let due = DueKey { tenant, at_ms, seq, sink: 0 };
        Row { due, value: DueValue { size, kind: DueKind::First }, hook_id }
    }

    async fn claim(&self, store: &StoreHandle, rows: &[Row]) -> Result<Vec<Claimed>, CannotInject> {
        let mut ops = Ops::with_capacity(20_000, 1 << 20);
        let claimed = rows.iter().map(|row| ops.claim(&row.due, row.value)).collect();
        apply(store, ops).await?;
        Ok(claimed)
    }

    async fn die(&self, store: &StoreHandle, rows: &[Row]) -> Result<(), CannotInject> {
        let claimed = self.claim(store, rows).await?;
        let mut ops = Ops::with_capacity(20_000, 4 << 20);
        for (claimed, row) in claimed.iter().zip(rows) {
            let at_ms = row.due.at_ms;
            let dead = DeliveryRow {
                state: RowState::Dead,
                attempts: 84,
                error: Some("HTTP 500".to_owned()),
                ..DeliveryRow::pending(MODULE, QUICK, claimed.size, at_ms)
            };
            ops.dead(claimed, &dead.encode(VERSION), at_ms, QUICK, &row.hook_id);
        }
        unmark(rows, &mut ops);
        apply(store, ops).await
    }

    async fn pass(&self, store: &StoreHandle, rows: &[Row]) -> Result<(), CannotInject> {
        let claimed = self.claim(store, rows).await?;
        let mut ops = Ops::with_capacity(20_000, 1 << 20);
        for claimed in &claimed {
            let marker = ops.delivered(claimed);
            ops.reclaim(claimed.seq, [marker], false);
        }
        unmark(rows, &mut ops);
        apply(store, ops).await
    }

    async fn retry(&self, store: &StoreHandle, rows: &[Row]) -> Result<(), CannotInject> {
        let claimed = self.claim(store, rows).await?;
        let mut ops = Ops::with_capacity(20_000, 4 << 20);
        let at_ms = self.now_ms + AN_HOUR_MS;
        for claimed in &claimed {
            let row = DeliveryRow {
                attempts: 9,
                error: Some("HTTP 500".to_owned()),
                ..DeliveryRow::pending(MODULE, QUICK, claimed.size, at_ms)
            };
            ops.retry(claimed, &row.encode(VERSION), at_ms);
        }
        unmark(rows, &mut ops);
        apply(store, ops).await
    }
}

/// Removes the markers of rows that are not due any more, as dispatch does.
fn unmark(rows: &[Row], ops: &mut Ops) {
    let mut markers: Vec<ActiveKey> = rows.iter().map(|row| row.due.active()).collect();
    markers.dedup();
    markers.into_iter().for_each(|marker| ops.unmark_active(marker));
}

async fn apply(store: &StoreHandle, ops: Ops) -> Result<(), CannotInject> {
    store.apply(ops.finish(), Lane::Background).await.or_cannot("write rows")
}
