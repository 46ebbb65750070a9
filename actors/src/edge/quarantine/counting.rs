//! Counts what the pen holds, page after page of its summaries.

use super::super::pen::{PenSize, size_of_rows};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::keys::{QuarantineKey, QuarantinePart};
use crate::ports::{Direction, KvError, Lane, Scan};
use crate::store::StoreHandle;

/// Summaries counted at a time.
const PAGE_ROWS: usize = 1_000;

/// A count under way.
pub(super) struct Counting {
    from: Vec<u8>,
    so_far: PenSize,
    /// A predecessor may have left a batch on its way: one behind it has to land first.
    needs_barrier: bool,
}

impl Counting {
    pub(super) fn begin(needs_barrier: bool) -> Self {
        let from = QuarantineKey::between(QuarantinePart::Summary, 0, u64::MAX).start;
        Self { from, so_far: PenSize::default(), needs_barrier }
    }

    /// Counts a page; after the last one, answers what is held.
    pub(super) async fn page(&mut self, store: &StoreHandle) -> Result<Option<PenSize>, KvError> {
        if self.needs_barrier {
            let mut barrier = Batch::default();
            barrier.delete(Cf::Quarantine, &[QuarantinePart::Body.tag()]);
            store.apply(barrier, Lane::Commit).await?;
            self.needs_barrier = false;
        }
        let end = QuarantineKey::between(QuarantinePart::Summary, 0, u64::MAX).end;
        let scan = Scan {
            cf: Cf::Quarantine,
            range: self.from.clone()..end,
            direction: Direction::Forward,
            max_rows: PAGE_ROWS,
            max_bytes: usize::MAX,
        };
        let page = store.scan(scan).await?;
        let rows = page.pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        let seen = size_of_rows(rows);
        self.so_far.entries += seen.entries;
        self.so_far.bytes = self.so_far.bytes.saturating_add(seen.bytes);
        let Some((last, _)) = page.pairs.last().filter(|_| page.more) else {
            return Ok(Some(self.so_far));
        };
        self.from = [last.as_slice(), &[0]].concat();
        Ok(None)
    }
}
