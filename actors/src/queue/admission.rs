//! The bound in front of a mailbox that has none: a permit is taken before anything is queued and travels with it.

use crate::sync::Arc;
use crate::sync::atomic::{AtomicUsize, Ordering};

/// One batcher partition's room, in records and in body bytes, buffered and in flight.
#[derive(Debug)]
pub struct Admission {
    max_records: usize,
    max_bytes: usize,
    records: AtomicUsize,
    bytes: AtomicUsize,
}

/// Room for one hook; given back when dropped.
#[derive(Debug)]
pub struct Permit {
    room: Arc<Admission>,
    bytes: usize,
}

impl Admission {
    pub fn new(max_records: usize, max_bytes: usize) -> Arc<Self> {
        let (records, bytes) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { max_records, max_bytes, records, bytes })
    }

    /// Room for one hook of `bytes`, or `None` at once when there is none. A single hook larger than the whole bound
    /// is let in alone: its body was already held to `http.max_body_bytes`.
    pub fn admit(self: &Arc<Self>, bytes: usize) -> Option<Permit> {
        let records_before = self.records.fetch_add(1, Ordering::AcqRel);
        let bytes_before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        // From here on dropping the permit gives back what was taken.
        let permit = Permit { room: Arc::clone(self), bytes };
        let fits = records_before < self.max_records
            && (records_before == 0 || bytes_before.saturating_add(bytes) <= self.max_bytes);
        fits.then_some(permit)
    }

    /// Hooks admitted and not yet answered.
    pub fn records(&self) -> usize {
        self.records.load(Ordering::Acquire)
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Acquire)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.room.records.fetch_sub(1, Ordering::AcqRel);
        self.room.bytes.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_at_once_and_takes_again_when_room_is_given_back() {
        let room = Admission::new(2, 100);
        let first = room.admit(60);
        assert!(first.is_some());
        assert!(room.admit(41).is_none(), "too many bytes");
        let second = room.admit(40);
        assert!(second.is_some());
        assert!(room.admit(0).is_none(), "too many records");
        drop(first);
        assert!(room.admit(60).is_some());
        drop(second);
        assert_eq!((room.records(), room.bytes()), (0, 0));
    }

    #[test]
    fn a_hook_larger_than_the_bound_goes_alone() {
        let room = Admission::new(2, 100);
        let large = room.admit(500);
        assert!(large.is_some());
        assert!(room.admit(1).is_none());
    }
}
