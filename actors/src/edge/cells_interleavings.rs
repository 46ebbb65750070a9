//! Hooks that are charged to several buckets at once, in thousands of orders.
#![allow(clippy::unwrap_used)]

use shuttle::{check_random, thread};

use super::*;
use crate::model::gcra::Rate;

const ORDERS: usize = 3_000;
const NOW: u64 = 1 << 40;

fn limits(burst: u64) -> Limits {
    Limits { hooks: Gcra::of_ones(Rate::whole(1).unwrap(), burst), bytes: None }
}

fn taken(cell: &Cell) -> u64 {
    cell.hooks.load(Ordering::Acquire).saturating_sub(NOW) / 1_000_000_000
}

/// Three at once want one of two from each of two buckets, in whatever order these are asked.
#[test]
fn no_more_pass_than_each_bucket_holds_and_what_is_denied_leaves_no_trace() {
    check_random(
        || {
            let cells = Arc::new([Cell::default(), Cell::default()]);
            let all: Vec<_> = (0..3)
                .map(|ix| {
                    let cells = Arc::clone(&cells);
                    thread::spawn(move || {
                        let [one, two] = &*cells;
                        let mut asked = [(one, limits(2)), (two, limits(2))];
                        asked.rotate_left(ix % 2);
                        take_all(asked, 0, || NOW).is_ok()
                    })
                })
                .collect();
            let passed = all.into_iter().filter(|_| true).map(|one| one.join().unwrap());
            let passed = passed.filter(|passed| *passed).count() as u64;
            assert!(passed <= 2);
            assert_eq!([taken(&cells[0]), taken(&cells[1])], [passed; 2]);
        },
        ORDERS,
    );
}

/// A bucket is never dropped while somebody is about to take from it.
#[test]
fn a_bucket_that_is_being_taken_from_is_not_swept_away() {
    check_random(
        || {
            let cells = Arc::new(Cells::new(1));
            let charge = |cells: &Cells| {
                let cell = cells.of(b"acme", NOW);
                take_all([(&*cell, limits(1))], 0, || NOW).is_ok()
            };
            let others = Arc::clone(&cells);
            let sweeps = thread::spawn(move || {
                // All keys of one shard, which holds one.
                for ix in 0_u8..32 {
                    drop(others.of(&[ix], NOW));
                }
            });
            let theirs = Arc::clone(&cells);
            let other = thread::spawn(move || charge(&theirs));
            let passed = [charge(&cells), other.join().unwrap()];
            sweeps.join().unwrap();
            // One in its own bucket, and one where both found no room at different times.
            assert!(passed.iter().any(|passed| *passed));
        },
        ORDERS / 10,
    );
}
