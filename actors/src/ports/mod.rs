//! What the node needs from the world. `src/` implements these for real, `sim` in memory.

mod blob;
mod blob_body;
mod blob_key;
mod clock;
#[cfg(feature = "sim")]
pub mod contract;
mod entropy;
mod events;
mod kv;
#[cfg(feature = "sim")]
pub mod sim;
mod sink;

pub use blob::{
    Blob, BlobAdvice, BlobBody, BlobEntry, BlobError, BlobKey, BlobKeyError, BlobScope, BlobSource,
    BlobStores, BlobVerb, GET_MAX_BYTES, is_range_asked,
};
pub use blob_key::{BLOB_KEY_MAX_BYTES, BLOB_KEY_PART_MAX_BYTES, is_unfinished};
pub use clock::Clock;
pub use entropy::Entropy;
pub use events::{
    BlobEvent, DeliveryResult, Event, Events, IngestOutcome, QuarantineDeletion, RefusedReason,
    ReopenResult,
};
pub use kv::{
    Damaged, Direction, DiskRoom, Engine, Kv, KvError, Lane, Look, Moment, OpenError, OpenReport,
    Page, Pair, Scan, StoreCut, StoreStats, Verified,
};
pub use sink::{Delivery, Outcome, Sink};
