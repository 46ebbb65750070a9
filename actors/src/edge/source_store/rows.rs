//! Reads what the store holds of sources.

use std::collections::BTreeMap;
use std::ops::Range;

use tracing::warn;

use crate::model::cf::Cf;
use crate::model::keys::{SourceKey, SourceRevisionKey, is_sentinel, read_tolerant};
use crate::model::source::SourceSpec;
use crate::model::stored_source::{self, SourceName};
use crate::ports::{Direction, KvError, Scan};
use crate::store::StoreHandle;

/// Rows read at a time.
const PAGE_ROWS: usize = 500;
/// Bytes read at a time, and one row.
const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
pub(super) struct Rows {
    pub(super) specs: BTreeMap<SourceName, SourceSpec>,
    /// Names whose specs cannot be read, and why.
    pub(super) unreadable: BTreeMap<SourceName, String>,
    pub(super) revisions: BTreeMap<SourceName, u64>,
}

pub(super) async fn read(store: &StoreHandle) -> Result<Rows, KvError> {
    let mut rows = Rows::default();
    each(store, SourceRevisionKey::all(), |key, value| {
        let of = SourceRevisionKey::decode(key)
            .and_then(|key| SourceName::new(key.tenant, key.name))
            .zip(read_tolerant(value));
        match of {
            Some((name, revision)) => drop(rows.revisions.insert(name, revision)),
            None => warn!(key = %key.escape_ascii(), "a revision of a source cannot be read"),
        }
    })
    .await?;
    each(store, SourceKey::all(), |key, value| match stored_source::decode(key, value) {
        Ok((name, spec)) => drop(rows.specs.insert(name, spec)),
        Err(error) => {
            let name = SourceKey::decode(key).and_then(|key| SourceName::new(key.tenant, key.name));
            match name {
                Some(name) => drop(rows.unreadable.insert(name, error.to_string())),
                // No hook can be for it.
                None => warn!(key = %key.escape_ascii(), %error, "a stored source is passed over"),
            }
        }
    })
    .await?;
    Ok(rows)
}

async fn each(
    store: &StoreHandle,
    range: Range<Vec<u8>>,
    mut take: impl FnMut(&[u8], &[u8]),
) -> Result<(), KvError> {
    let mut range = range;
    loop {
        let scan = Scan {
            cf: Cf::Default,
            range: range.clone(),
            direction: Direction::Forward,
            max_rows: PAGE_ROWS,
            max_bytes: PAGE_BYTES,
        };
        let page = store.scan(scan).await?;
        let real = page.pairs.iter().filter(|(key, value)| !is_sentinel(Cf::Default, key, value));
        real.for_each(|(key, value)| take(key, value));
        match page.pairs.last() {
            Some((last, _)) if page.more => range.start = [last.as_slice(), &[0]].concat(),
            Some(_) | None => return Ok(()),
        }
    }
}
