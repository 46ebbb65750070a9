//! Incarnations that follow each other against callers who look for one, in thousands of orders.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shuttle::{check_random, thread};

use super::*;
use crate::sync::atomic::{AtomicBool, Ordering};

const ORDERS: usize = 3_000;

const INCARNATIONS: usize = 3;

/// An actor as far as a slot is concerned: who it is, and whether it has ended.
struct Incarnation {
    number: usize,
    ended: Arc<AtomicBool>,
}

/// Everything a caller gets by looking so often.
fn look(current: &Current<Incarnation>, times: usize) -> Vec<usize> {
    let running =
        |actor: &Incarnation| (!actor.ended.load(Ordering::Acquire)).then_some(actor.number);
    (0..times).filter_map(|_| current.with(running)).collect()
}

#[test]
fn a_caller_never_gets_an_earlier_incarnation_than_before_nor_one_whose_end_it_knows_of() {
    check_random(
        || {
            let current = Current(Arc::new(Mutex::new(None)));
            let known_ended = Arc::new(Mutex::new(0));
            let supervisor = {
                let (current, known) = (Current(Arc::clone(&current.0)), Arc::clone(&known_ended));
                thread::spawn(move || {
                    for number in 1..=INCARNATIONS {
                        let ended = Arc::new(AtomicBool::new(false));
                        current.publish(Incarnation { number, ended: Arc::clone(&ended) });
                        if number < INCARNATIONS {
                            ended.store(true, Ordering::Release);
                            *known.lock().unwrap() = number;
                        }
                    }
                })
            };
            let callers = [1, 2].map(|_| {
                let (current, known) = (Current(Arc::clone(&current.0)), Arc::clone(&known_ended));
                thread::spawn(move || {
                    let mut last = 0;
                    for _ in 0..4 {
                        let ended = *known.lock().unwrap();
                        for number in look(&current, 1) {
                            assert!(number >= last && number > ended, "{last} {ended} {number}");
                            last = number;
                        }
                    }
                })
            });
            callers.into_iter().for_each(|caller| caller.join().unwrap());
            supervisor.join().unwrap();
            assert_eq!(look(&current, 1), [INCARNATIONS], "the last one is found");
        },
        ORDERS,
    );
}
