//! Changes that land together or not at all.
//!
//! Keys and small values live in one arena, so a group of hundreds of rows is a handful of allocations; a hook's value
//! is shared, never copied, until RocksDB takes it.

use std::ops::Range;

use bytes::Bytes;

use super::cf::Cf;

#[derive(Clone, Debug)]
enum Value {
    Inline(Range<usize>),
    Shared(Bytes),
}

#[derive(Clone, Debug)]
enum Op {
    Put { cf: Cf, key: Range<usize>, value: Value },
    Delete { cf: Cf, key: Range<usize> },
    Merge { cf: Cf, key: Range<usize>, operand: Range<usize> },
}

/// One change, as an adapter applies it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    Put {
        cf: Cf,
        key: &'a [u8],
        value: &'a [u8],
    },
    Delete {
        cf: Cf,
        key: &'a [u8],
    },
    /// An operand for the family's merge operator; only the counters have one.
    Merge {
        cf: Cf,
        key: &'a [u8],
        operand: &'a [u8],
    },
}

/// An atomic batch, applied in the order it was written.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    arena: Vec<u8>,
    ops: Vec<Op>,
    shared_bytes: usize,
}

impl Batch {
    pub fn with_capacity(ops: usize, bytes: usize) -> Self {
        Self { arena: Vec::with_capacity(bytes), ops: Vec::with_capacity(ops), shared_bytes: 0 }
    }

    pub fn put(&mut self, cf: Cf, key: &[u8], value: &[u8]) {
        let (key, value) = (self.keep(key), self.keep(value));
        self.ops.push(Op::Put { cf, key, value: Value::Inline(value) });
    }

    /// A put whose value is already encoded and shared.
    pub fn put_shared(&mut self, cf: Cf, key: &[u8], value: Bytes) {
        let key = self.keep(key);
        self.shared_bytes += value.len();
        self.ops.push(Op::Put { cf, key, value: Value::Shared(value) });
    }

    /// A put whose value `write` appends in place, to save a copy.
    pub(in crate::model) fn put_written(
        &mut self,
        cf: Cf,
        key: &[u8],
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let key = self.keep(key);
        let start = self.arena.len();
        write(&mut self.arena);
        let value = start..self.arena.len();
        self.ops.push(Op::Put { cf, key, value: Value::Inline(value) });
    }

    pub fn delete(&mut self, cf: Cf, key: &[u8]) {
        let key = self.keep(key);
        self.ops.push(Op::Delete { cf, key });
    }

    /// Counters move only through the op builders of [`super::ops`].
    pub(in crate::model) fn merge(&mut self, cf: Cf, key: &[u8], operand: &[u8]) {
        let (key, operand) = (self.keep(key), self.keep(operand));
        self.ops.push(Op::Merge { cf, key, operand });
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.arena.len();
        self.arena.extend_from_slice(bytes);
        start..self.arena.len()
    }

    /// For the broken build a drill must catch: the hooks in a batch of their own, before everything else.
    pub(crate) fn split_off_hooks(self) -> [Self; 2] {
        let is_hook = |op: &Op| matches!(op, Op::Put { cf: Cf::Hooks, .. });
        let (hooks, others) = self.ops.into_iter().partition(is_hook);
        let half = |ops| Self { arena: self.arena.clone(), ops, shared_bytes: self.shared_bytes };
        [half(hooks), half(others)]
    }

    pub fn is_empty(&self) -> bool {
        self.ops.is_empty()
    }

    pub fn len(&self) -> usize {
        self.ops.len()
    }

    /// Bytes of all keys and values.
    pub fn bytes(&self) -> usize {
        self.arena.len() + self.shared_bytes
    }

    pub fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        // The ranges were made by `keep` on this very arena, which only grows.
        let at = |range: &Range<usize>| self.arena.get(range.clone()).unwrap_or_default();
        self.ops.iter().map(move |op| match op {
            Op::Put { cf, key, value: Value::Inline(value) } => {
                Change::Put { cf: *cf, key: at(key), value: at(value) }
            }
            Op::Put { cf, key, value: Value::Shared(value) } => {
                Change::Put { cf: *cf, key: at(key), value }
            }
            Op::Delete { cf, key } => Change::Delete { cf: *cf, key: at(key) },
            Op::Merge { cf, key, operand } => {
                Change::Merge { cf: *cf, key: at(key), operand: at(operand) }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_come_back_in_the_order_they_were_written() {
        let mut batch = Batch::default();
        batch.put(Cf::Default, b"k", b"v");
        batch.put_shared(Cf::Hooks, b"h", Bytes::from_static(b"hook"));
        batch.merge(Cf::Counters, b"c", b"1");
        batch.put_written(Cf::Deliveries, b"r", |out| out.extend_from_slice(b"row"));
        batch.delete(Cf::Index, b"d");
        let changes: Vec<_> = batch.changes().collect();
        assert_eq!(
            changes,
            [
                Change::Put { cf: Cf::Default, key: b"k", value: b"v" },
                Change::Put { cf: Cf::Hooks, key: b"h", value: b"hook" },
                Change::Merge { cf: Cf::Counters, key: b"c", operand: b"1" },
                Change::Put { cf: Cf::Deliveries, key: b"r", value: b"row" },
                Change::Delete { cf: Cf::Index, key: b"d" },
            ]
        );
        assert_eq!(batch.bytes(), 1 + 1 + 1 + 4 + 1 + 1 + 1 + 3 + 1);
    }
}
