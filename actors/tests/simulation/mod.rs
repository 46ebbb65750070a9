//! A whole node, lived through a plan on a simulated disk, and judged.
//!
//! Every answer is judged at the moment it is given, every delivery at the moment it is made, and the rows after each
//! power cut and at the end. The disk, the clock and chance outlive the node, as they do in the world.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods
)]

mod draw;
mod judge;
mod pen;
pub mod plan;
mod shrink;
mod world;

pub use plan::Plan;
pub use shrink::shrink;
pub use world::Plugged;

/// How one run went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Story {
    /// Everything that could be seen, in order, with the milliseconds since the start.
    pub journal: Vec<String>,
    /// What is left on the disk.
    pub rows: Vec<String>,
    /// What must never happen and did.
    pub violations: Vec<String>,
    pub committed: usize,
    pub delivered: usize,
    pub held: usize,
    pub power_cuts: usize,
}

impl Story {
    /// FNV-1a over the journal and the rows: one number to compare runs by.
    pub fn digest(&self) -> u64 {
        let lines = self.journal.iter().chain(&self.rows);
        let bytes = lines.flat_map(|line| line.bytes().chain([b'\n']));
        bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// Lives through `plan`, on virtual time.
pub fn run(plan: &Plan) -> Story {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(world::live(plan))
}
