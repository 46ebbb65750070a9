//! The start of a hook against the end of its caller's patience, in thousands of orders.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use shuttle::{check_random, thread};

use super::*;

const ORDERS: usize = 3_000;

impl Waiting {
    /// The answer that has been given.
    pub(in crate::queue) fn answered(mut self) -> CommitAnswer {
        self.receiver.try_recv().expect("an answer")
    }
}

#[test]
fn a_hook_is_started_or_given_up_and_never_both() {
    check_random(
        || {
            let (reply, waiting) = reply();
            let starts = thread::spawn(move || reply.start());
            let given_up = settle(&waiting.state, GIVEN_UP);
            assert_ne!(starts.join().unwrap(), given_up);
        },
        ORDERS,
    );
}
