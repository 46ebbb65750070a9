//! A whole node under test: the real binary on a real disk and real sockets, a client that sees every byte, a worker.
// Every test program uses a part of it.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic
)]

pub mod http;
pub mod http2;
pub mod load;
pub mod node;
pub mod store;
pub mod tls;
pub mod worker;

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, sleep};

pub use http::{Answer, Client, Gone, request};
pub use node::{TestNode, Told};

/// Longer than anything here takes on a busy machine; reached only by what hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks at something that will come about.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Looks until there is something to see.
pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(since.elapsed() < PATIENCE, "waited in vain until {what}");
        sleep(LOOK_AGAIN).await;
    }
}

/// The end of something that must end.
pub async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    let done = tokio::time::timeout(PATIENCE, work).await;
    done.unwrap_or_else(|_| panic!("this took too long: {what}"))
}

/// Numbers that follow from a seed (splitmix64).
pub struct Chance(u64);

impl Chance {
    pub fn of(seed: u64) -> Self {
        Self(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.draw() % end
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.draw().to_le_bytes()[0]).collect()
    }

    /// In another order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            let other = self.below(at as u64 + 1);
            items.swap(at, usize::try_from(other).unwrap());
        }
    }
}
