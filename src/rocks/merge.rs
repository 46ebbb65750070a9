//! The merge operator of the counters family: the model's fold, in the shape RocksDB calls it.

use ankusa_actors::model::counters::{self, Folded, OPERATOR_NAME};
use rocksdb::{MergeOperands, Options};
use tracing::warn;

/// Installs it. RocksDB records the name, so it is the documented system's.
pub(super) fn install(options: &mut Options) {
    options.set_merge_operator(OPERATOR_NAME, full, partial);
}

/// Never `None`: a merge that fails makes its key unreadable.
fn full(key: &[u8], existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    Some(told(key, counters::fold(existing, operands)))
}

fn partial(key: &[u8], _existing: Option<&[u8]>, operands: &MergeOperands) -> Option<Vec<u8>> {
    Some(told(key, counters::fold_operands(operands)))
}

fn told(key: &[u8], Folded { bytes, unreadable }: Folded) -> Vec<u8> {
    if unreadable > 0 {
        warn!(?key, unreadable, "a counter held bytes that are no number; they count as 0");
    }
    bytes
}
