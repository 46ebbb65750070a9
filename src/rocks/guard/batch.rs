//! A record of the write-ahead log: one write batch, read far enough to find what it says about seqs.

use ankusa_actors::model::keys::{META_NEXT_SEQ, META_SYNCED_THROUGH, read_u64};

use super::bytes::Bytes;

/// What one batch says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct BatchFacts {
    /// RocksDB's own number of its first change, and how many there are.
    pub(super) sequence: u64,
    pub(super) changes: u32,
    /// The seq after the last hook of a group.
    pub(super) next_seq: Option<u64>,
    /// The last seq that was on the disk when the batch was built.
    pub(super) synced_through: Option<u64>,
}

/// Reads `record`; `None` if it is too short to be a batch. What cannot be read behind the head says nothing.
pub(super) fn read(record: &[u8]) -> Option<BatchFacts> {
    let mut bytes = Bytes(record);
    let sequence = u64::from_le_bytes(bytes.array()?);
    let changes = u32::from_le_bytes(bytes.array()?);
    let mut facts = BatchFacts { sequence, changes, ..BatchFacts::default() };
    while !bytes.is_empty() {
        if change(&mut bytes, &mut facts).is_none() {
            break;
        }
    }
    Some(facts)
}

/// One change: its tag, its family unless it is the default one, and one or two slices.
fn change(bytes: &mut Bytes<'_>, facts: &mut BatchFacts) -> Option<()> {
    let tag = bytes.u8()?;
    if matches!(tag, 0x04 | 0x05 | 0x06 | 0x08 | 0x0e | 0x10 | 0x17 | 0x19) {
        bytes.varint()?;
    }
    match tag {
        // A put into the default family.
        0x01 => {
            let (key, value) = (bytes.slice()?, bytes.slice()?);
            if key == META_NEXT_SEQ {
                facts.next_seq = read_u64(value);
            } else if key == META_SYNCED_THROUGH {
                facts.synced_through = read_u64(value);
            }
        }
        // Puts, merges, ranges, blob references: a key and a value.
        0x02 | 0x05 | 0x06 | 0x0e | 0x0f | 0x10 | 0x11 | 0x16 | 0x17 | 0x18 | 0x19 => {
            bytes.slice()?;
            bytes.slice()?;
        }
        // Deletes and remarks: one slice.
        0x00 | 0x03 | 0x04 | 0x07 | 0x08 => {
            bytes.slice()?;
        }
        // A mark without anything.
        0x0d => {}
        // Transactions, which the store has none of.
        _other => return None,
    }
    Some(())
}

#[cfg(test)]
pub(super) mod tests {
    use rocksdb::WriteBatch;

    use super::*;

    /// The record of a group: `next_seq` and `synced_through` among rows.
    pub(in crate::rocks::guard) fn group(sequence: u64, next_seq: u64, synced: u64) -> Vec<u8> {
        let mut batch = WriteBatch::default();
        batch.put(b"a row", vec![b'v'; 100]);
        batch.put(META_NEXT_SEQ, next_seq.to_be_bytes());
        batch.put(META_SYNCED_THROUGH, synced.to_be_bytes());
        batch.delete(b"another row");
        record(sequence, &batch)
    }

    /// The record of a batch that says nothing about seqs.
    pub(in crate::rocks::guard) fn other(sequence: u64) -> Vec<u8> {
        let mut batch = WriteBatch::default();
        batch.merge(b"a counter", b"1");
        record(sequence, &batch)
    }

    fn record(sequence: u64, batch: &WriteBatch) -> Vec<u8> {
        let mut bytes = batch.data().to_vec();
        bytes[..8].copy_from_slice(&sequence.to_le_bytes());
        bytes
    }

    #[test]
    fn a_group_says_how_far_the_log_was_synced() {
        let facts = read(&group(77, 12, 9)).unwrap();
        let expected =
            BatchFacts { sequence: 77, changes: 4, next_seq: Some(12), synced_through: Some(9) };
        assert_eq!(facts, expected);
        let facts = read(&other(78)).unwrap();
        assert_eq!(facts, BatchFacts { sequence: 78, changes: 1, ..BatchFacts::default() });
    }

    #[test]
    fn a_batch_that_ends_early_says_what_was_read_and_never_panics() {
        let whole = group(1, 12, 9);
        for len in 0..whole.len() {
            let facts = read(&whole[..len]);
            assert_eq!(facts.is_some(), len >= 12, "{len} bytes");
        }
        for byte in 12..whole.len() {
            for bit in 0..8 {
                let mut flipped = whole.clone();
                flipped[byte] ^= 1 << bit;
                assert!(read(&flipped).is_some());
            }
        }
    }
}
