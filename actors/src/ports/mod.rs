//! What the node needs from the world. `src/` implements these for real, `sim` in memory.

mod clock;
#[cfg(feature = "sim")]
pub mod contract;
mod entropy;
mod events;
mod kv;
#[cfg(feature = "sim")]
pub mod sim;
mod sink;

pub use clock::Clock;
pub use entropy::Entropy;
pub use events::{
    DeliveryResult, Event, Events, IngestOutcome, QuarantineDeletion, RefusedReason, ReopenResult,
};
pub use kv::{
    Damaged, Direction, DiskRoom, Engine, Kv, KvError, Lane, Look, Moment, OpenError, OpenReport,
    Page, Pair, Scan, StoreCut, StoreStats, Verified,
};
pub use sink::{Delivery, Outcome, Sink};
