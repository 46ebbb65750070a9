//! The end of a hook: it goes with the last thing it owes ("Reclamation: a hook is deleted by its obligations").
//!
//! Obligations only ever clear. So a hook that is seen to owe nothing but what a batch clears can go in that very batch,
//! and one that is seen to owe something else is left to whoever clears that, who puts a marker and then looks.

use std::collections::{BTreeMap, BTreeSet};

use super::writing::Writing;
use crate::model::cf::Cf;
use crate::model::ids::Seq;
use crate::model::keys::{ArchiveKey, ClaimRefKey, ClearedKey, DeliveryKey, is_sentinel};
use crate::model::ops::Ops;
use crate::ports::{Direction, KvError, Scan};
use crate::store::StoreHandle;

/// Markers looked at in one batch.
const CHUNK: usize = 512;

/// Seqs no further apart than this are looked at in one scan.
const MAX_GAP: u64 = 16;

/// Rows read at a time.
const CHUNK_ROWS: usize = 1_024;

/// Markers that stand in the store, by hook.
pub(super) type Cleared = BTreeMap<Seq, BTreeSet<ClearedKey>>;

/// What hooks owed when they were looked at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Owed {
    archive: BTreeSet<Seq>,
    /// Of hooks that are not owed to the archive; of others nobody needs to know.
    rows: BTreeSet<DeliveryKey>,
    claim_refs: BTreeSet<Seq>,
    /// Markers that another process may have left.
    markers: Cleared,
}

impl Owed {
    pub(super) async fn look(store: &StoreHandle, seqs: &BTreeSet<Seq>) -> Result<Self, KvError> {
        let mut owed = Self { archive: with(store, seqs, archive_key).await?, ..Self::default() };
        let others: BTreeSet<Seq> = seqs.difference(&owed.archive).copied().collect();
        if others.is_empty() {
            return Ok(owed);
        }
        let (rows, claim_refs) =
            tokio::join!(rows_of(store, &others), with(store, &others, claim_ref_key));
        (owed.rows, owed.claim_refs) = (rows?, claim_refs?);
        Ok(owed)
    }

    /// Finds the markers of these hooks in the store too: until all have been swept, some may be of another process.
    pub(super) async fn find_markers(
        &mut self,
        store: &StoreHandle,
        seqs: impl IntoIterator<Item = &Seq>,
    ) -> Result<(), KvError> {
        for seq in seqs {
            let page = store.scan(scan(Cf::Index, ClearedKey::of_hook(*seq), CHUNK_ROWS)).await?;
            let markers = page.pairs.iter().filter_map(|(key, _)| ClearedKey::decode(key));
            self.markers.entry(*seq).or_default().extend(markers);
        }
        Ok(())
    }

    /// Whether it owes nothing but the rows in `going`.
    fn only(&self, seq: Seq, going: &BTreeSet<DeliveryKey>) -> bool {
        let every = DeliveryKey { seq, sink: 0 }..=DeliveryKey { seq, sink: u16::MAX };
        !self.archive.contains(&seq) && self.rows.range(every).all(|row| going.contains(row))
    }

    /// Deletes the hooks among `seqs` that owe nothing but the rows in `going`, which are deleted with them, and takes
    /// away every marker in `standing`. Answers the markers of `new`, which this batch puts, that stay.
    pub(super) fn clear(
        &self,
        seqs: &BTreeSet<Seq>,
        going: &BTreeSet<DeliveryKey>,
        standing: &Cleared,
        mut new: Cleared,
        ops: &mut Ops,
    ) -> Cleared {
        for seq in seqs {
            let left = self.markers.get(seq).into_iter().flatten();
            let standing: BTreeSet<ClearedKey> =
                standing.get(seq).into_iter().flatten().chain(left).copied().collect();
            if self.only(*seq, going) {
                let put = new.remove(seq).unwrap_or_default();
                let markers = standing.into_iter().chain(put);
                ops.reclaim(*seq, markers, self.claim_refs.contains(seq));
            } else {
                standing.into_iter().for_each(|marker| ops.unmark_cleared(marker));
            }
        }
        new
    }
}

fn archive_key(seq: Seq) -> Vec<u8> {
    ArchiveKey(seq).encode().to_vec()
}

fn claim_ref_key(seq: Seq) -> Vec<u8> {
    ClaimRefKey(seq).encode().to_vec()
}

/// Those of `seqs` whose key exists.
async fn with(
    store: &StoreHandle,
    seqs: &BTreeSet<Seq>,
    key: fn(Seq) -> Vec<u8>,
) -> Result<BTreeSet<Seq>, KvError> {
    let keys = seqs.iter().map(|seq| key(*seq)).collect();
    let found = store.multi_get(Cf::Index, keys).await?;
    Ok(seqs.iter().zip(found).filter(|(_, value)| value.is_some()).map(|(seq, _)| *seq).collect())
}

async fn rows_of(
    store: &StoreHandle,
    seqs: &BTreeSet<Seq>,
) -> Result<BTreeSet<DeliveryKey>, KvError> {
    let mut rows = BTreeSet::new();
    for (first, last) in runs(seqs) {
        let mut range = DeliveryKey::between(first, last.plus(1));
        loop {
            let page = store.scan(scan(Cf::Deliveries, range.clone(), CHUNK_ROWS)).await?;
            rows.extend(page.pairs.iter().filter_map(|(key, _)| DeliveryKey::decode(key)));
            match page.pairs.last() {
                Some((last, _)) if page.more => range.start = after(last),
                Some(_) | None => break,
            }
        }
    }
    Ok(rows)
}

/// The seqs as few spans, none of which holds a large gap. Hooks are delivered about in the order they came, so a batch
/// is one span or a handful.
fn runs(seqs: &BTreeSet<Seq>) -> Vec<(Seq, Seq)> {
    let mut runs: Vec<(Seq, Seq)> = Vec::new();
    for seq in seqs {
        match runs.last_mut() {
            Some((_, last)) if seq.0 - last.0 <= MAX_GAP => *last = *seq,
            Some(_) | None => runs.push((*seq, *seq)),
        }
    }
    runs
}

/// Looks at every marker that stands: some are left by a crash between the batch that cleared something and the look.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// Where to go on; `None` when no sweep is under way.
    from: Option<Vec<u8>>,
}

impl Sweep {
    /// From the beginning.
    pub(super) fn begin(&mut self) {
        self.from = Some(ClearedKey::all().start);
    }

    pub(super) fn is_under_way(&self) -> bool {
        self.from.is_some()
    }

    /// One chunk.
    pub(super) async fn step(&mut self, writing: &mut Writing) -> Result<(), KvError> {
        let Some(from) = self.from.clone() else { return Ok(()) };
        let store = writing.store();
        let page = store.scan(scan(Cf::Index, from..ClearedKey::all().end, CHUNK)).await?;
        let mut standing = Cleared::new();
        for (key, value) in &page.pairs {
            let marker = ClearedKey::decode(key).filter(|_| !is_sentinel(Cf::Index, key, value));
            if let Some(marker) = marker {
                standing.entry(marker.seq).or_default().insert(marker);
            }
        }
        let seqs: BTreeSet<Seq> = standing.keys().copied().collect();
        if !seqs.is_empty() {
            let mut owed = Owed::look(store, &seqs).await?;
            // Some of those of the last may be on the next page.
            owed.find_markers(store, seqs.last()).await?;
            let mut ops = Ops::default();
            owed.clear(&seqs, &BTreeSet::new(), &standing, Cleared::new(), &mut ops);
            writing.apply(ops.finish()).await?;
        }
        self.from = page.pairs.last().filter(|_| page.more).map(|(last, _)| after(last));
        Ok(())
    }
}

/// Up to `max_rows` rows, oldest key first.
pub(super) fn scan(cf: Cf, range: std::ops::Range<Vec<u8>>, max_rows: usize) -> Scan {
    Scan { cf, range, direction: Direction::Forward, max_rows, max_bytes: usize::MAX }
}

/// The smallest key above `key`.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seqs_close_together_are_one_span() {
        let spans = |seqs: &[u64]| {
            let seqs = seqs.iter().copied().map(Seq).collect();
            runs(&seqs).into_iter().map(|(first, last)| (first.0, last.0)).collect::<Vec<_>>()
        };
        assert_eq!(spans(&[]), []);
        assert_eq!(spans(&[7]), [(7, 7)]);
        assert_eq!(spans(&[1, 2, 18, 35, 36]), [(1, 18), (35, 36)]);
    }

    #[test]
    fn a_hook_goes_with_its_last_row_and_stays_while_it_owes_another_or_the_archive() {
        let row = |seq, sink| DeliveryKey { seq: Seq(seq), sink };
        let owed = Owed {
            archive: BTreeSet::from([Seq(3)]),
            rows: BTreeSet::from([row(1, 0), row(1, 1), row(2, 0), row(2, 7)]),
            claim_refs: BTreeSet::new(),
            markers: Cleared::new(),
        };
        let going = BTreeSet::from([row(1, 0), row(1, 1), row(2, 0), row(3, 0)]);
        assert_eq!([1, 2, 3, 4].map(|seq| owed.only(Seq(seq), &going)), [true, false, false, true]);
    }
}
