//! Damaged bytes must not cost more memory than their own length can justify: this test counts every allocation.

// Counting needs an allocator, and an allocator is unsafe by its nature.
#![allow(unsafe_code, clippy::unwrap_used, clippy::expect_used)]

mod terms;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use ankusa_actors::model::delivery::DeliveryRow;
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::etf::{Reader, Term};

use self::terms::{counted, versioned};

/// Bytes of memory for each byte of input, at most: a one-byte term in a growing vector of trees, while it moves.
const FACTOR: usize = 100;

/// For inputs of a few bytes: the first room of a container, times the deepest nesting.
const BASE: usize = 64 * 1024;

struct Counting;

thread_local! {
    static NOW: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

fn count(taken: usize, given: usize) {
    // Gone only while the thread ends, when nobody is measuring.
    let _ = NOW.try_with(|now| {
        now.set(now.get().saturating_add(taken).saturating_sub(given));
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(now.get())));
    });
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(0, layout.size());
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // While it moves, both are there.
        count(size, 0);
        let moved = unsafe { System.realloc(pointer, layout, size) };
        count(0, layout.size());
        moved
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The most memory in use while `work` ran, beyond what was in use before.
fn peak(work: impl FnOnce()) -> usize {
    let before = NOW.get();
    PEAK.set(before);
    work();
    PEAK.get() - before
}

fn read_everything(value: &[u8]) {
    drop(Term::decode(value));
    drop(Envelope::decode(value));
    drop(DeliveryRow::decode(value));
    drop(Reader::versioned(value).map(|mut reader| reader.skip()));
}

/// `inner` behind `first` in 60 containers that each claim as many items as can be.
fn claims(tag: u8, first: &[u8], inner: &[u8]) -> Vec<u8> {
    (0..60).fold(inner.to_vec(), |inner, _| {
        let claim = inner.len() / 2;
        counted(tag, claim, &[first, &inner].concat())
    })
}

#[test]
fn what_damage_claims_is_not_allocated() {
    let nothing = vec![106; 200_000];
    let inputs = [
        claims(108, &[], &nothing),
        claims(105, &[], &nothing),
        // In the key of each map, and in its value.
        claims(116, &[], &nothing),
        claims(116, &[106], &nothing),
        // Whole, as costly as a byte can be.
        counted(108, nothing.len(), &[&nothing[..], &[106]].concat()),
        counted(105, nothing.len(), &nothing),
        counted(116, nothing.len() / 2, &nothing),
        counted(108, 1, &[106]).repeat(30_000),
        [104, 0].repeat(100_000),
        counted(105, 50_000, &[104, 1, 97, 1].repeat(50_000)),
    ];
    for term in inputs {
        let value = versioned(&term);
        let used = peak(|| read_everything(&value));
        let allowed = BASE + FACTOR * value.len();
        assert!(used <= allowed, "{used} bytes of memory for {} bytes", value.len());
    }
    for tag in [105, 108, 109, 111, 116] {
        let value = versioned(&counted(tag, usize::try_from(u32::MAX).unwrap(), &[97; 20]));
        let used = peak(|| read_everything(&value));
        assert!(used < BASE, "{used} bytes of memory for a claim of 4 GiB");
    }
}
