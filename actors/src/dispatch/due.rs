//! The rows one tenant has due.

use super::reclaim::{after, scan};
use crate::model::cf::Cf;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{DueKey, DueValue};
use crate::ports::KvError;
use crate::store::StoreHandle;

/// Scans for one turn of one tenant. More than one is needed only where rows are in the way that are not synced yet.
const MAX_SCANS: usize = 8;

/// Rows read at least: a tenant's share can be a single row.
const MIN_ROWS: usize = 16;

/// A due row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Due {
    pub(super) key: DueKey,
    pub(super) value: DueValue,
}

impl Due {
    /// Of its hook.
    fn bytes(&self) -> usize {
        usize::try_from(self.value.size).unwrap_or(usize::MAX)
    }
}

/// Up to when rows are looked at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Until {
    /// Rows due later are left.
    pub(super) now_ms: u64,
    /// Nothing external looks past it: a row whose hook is not synced is left where it is.
    pub(super) mark: Seq,
}

/// What a tenant may take in one turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Share {
    pub(super) rows: usize,
    /// Bytes of the hooks. The row that goes beyond is the last one taken.
    pub(super) bytes: usize,
}

/// One tenant in one claim.
#[derive(Debug)]
pub(super) struct TenantScan {
    pub(super) tenant: TenantOrd,
    /// Where its rows are looked for, and where to go on in the next turn.
    start: Vec<u8>,
    from_ms: u64,
    /// Nothing due before it was left when it was looked at last.
    reached_ms: u64,
    /// It has had a turn.
    looked: bool,
    pub(super) taken: Vec<Due>,
    /// Bytes of the hooks of what was taken.
    pub(super) taken_bytes: usize,
    /// When the first row is due that was not synced.
    unsynced_ms: Option<u64>,
    /// When the first row is due that was beyond its share.
    beyond_ms: Option<u64>,
    /// When the next row is due, as far as that is this second.
    pub(super) next_ms: Option<u64>,
}

impl TenantScan {
    /// Looks at rows due at `from_ms` or later; nothing due before `reached_ms` was left the last time.
    pub(super) fn new(tenant: TenantOrd, from_ms: u64, reached_ms: u64) -> Self {
        Self {
            tenant,
            start: DueKey::due_between(tenant, from_ms, from_ms).start,
            from_ms,
            reached_ms,
            looked: false,
            taken: Vec::new(),
            taken_bytes: 0,
            unsynced_ms: None,
            beyond_ms: None,
            next_ms: None,
        }
    }

    /// It may take nothing: what else it has due, if anything, is left.
    pub(super) fn pass_over(&mut self) {
        self.beyond_ms.get_or_insert(self.reached_ms);
    }

    /// Takes up to a share of what is due, oldest first. Answers how many rows.
    pub(super) async fn take(
        &mut self,
        store: &StoreHandle,
        until: Until,
        share: Share,
    ) -> Result<usize, KvError> {
        // To the end of this second, so as to see when the next one is due.
        let end_ms = (until.now_ms / 1_000).saturating_mul(1_000).saturating_add(999);
        let end = DueKey::due_between(self.tenant, end_ms, end_ms).end;
        let (mut rows, mut bytes) = (0_usize, 0_usize);
        (self.looked, self.beyond_ms) = (true, None);
        for _ in 0..MAX_SCANS {
            let want = share.rows.saturating_add(1).max(MIN_ROWS);
            let page = store.scan(scan(Cf::Index, self.start.clone()..end.clone(), want)).await?;
            for (key, value) in &page.pairs {
                // A key that cannot be read stays where it is: reading the whole store finds it.
                let Some(due) = due(key, value) else { continue };
                if due.key.at_ms > until.now_ms {
                    self.next_ms = Some(due.key.at_ms);
                    return Ok(rows);
                }
                if due.key.seq > until.mark {
                    self.unsynced_ms.get_or_insert(due.key.at_ms);
                } else if rows >= share.rows || bytes >= share.bytes {
                    self.beyond_ms = Some(due.key.at_ms);
                    return Ok(rows);
                } else {
                    rows += 1;
                    bytes = bytes.saturating_add(due.bytes());
                    self.taken_bytes = self.taken_bytes.saturating_add(due.bytes());
                    self.taken.push(due);
                }
                self.start = after(key);
            }
            if !page.more {
                return Ok(rows);
            }
        }
        self.beyond_ms = self.unsynced_ms;
        Ok(rows)
    }

    /// Whether it has more than its share.
    pub(super) fn has_more(&self) -> bool {
        self.beyond_ms.is_some()
    }

    /// When the first row is due that was left although it is due now.
    pub(super) fn left_ms(&self) -> Option<u64> {
        self.unsynced_ms.into_iter().chain(self.beyond_ms).min()
    }

    /// The due time from which the next claim has to look, if that is known better now: nothing due before it is left.
    pub(super) fn reached_ms(&self) -> Option<u64> {
        let reached_ms = self.left_ms().or_else(|| self.taken.last().map(|due| due.key.at_ms));
        reached_ms.filter(|_| self.looked)
    }

    /// Whether nothing it looked at in a second was left there.
    pub(super) fn emptied(&self, second: u64) -> bool {
        self.left_ms().is_none_or(|left_ms| left_ms / 1_000 > second)
    }

    /// Whether it looked from the start of this second on.
    pub(super) fn covers(&self, second: u64) -> bool {
        self.looked && self.from_ms <= second.saturating_mul(1_000)
    }
}

fn due(key: &[u8], value: &[u8]) -> Option<Due> {
    Some(Due { key: DueKey::decode(key)?, value: DueValue::decode(value)? })
}
