//! The ports in memory: a disk with a power cord, a clock that stands still, chance from a seed.
//!
//! The adapters of the real node and these pass the same [`super::contract`]; what a test shows on the one therefore
//! holds on the other. Nothing here knows why it is asked: faults are switched on from outside, by the test.

mod blob;
mod disk;
mod fault;
mod host;
mod journal;
mod room;
mod sink;
mod store;
#[cfg(test)]
mod tests;

pub use blob::{BlobFault, SimBlob};
pub use disk::{SimCounts, SimDisk};
pub use fault::{Fault, SimOp};
pub use host::{SimClock, SimEntropy};
pub use journal::JournalEvents;
pub use sink::SimSink;
pub use store::{SimEngine, SimKv};
