//! The commit path: Batcher, Writer, Syncer, and what they share.

mod admission;
pub mod batcher;
mod canary;
mod config;
mod fence;
mod group;
mod inbox;
mod joined;
mod key_quota;
mod ledger;
mod mark;
mod recent_keys;
mod reply;
pub mod syncer;
mod tenants;
#[cfg(all(test, feature = "sim"))]
mod tests;
pub mod writer;
mod writer_handle;

pub use admission::Admission;
pub use batcher::{BatcherHandle, NewHook};
pub use config::{BatcherConfig, DedupeConfig, TenantsConfig};
pub(crate) use inbox::Inbox;
pub use joined::{Joined, JoinedLanes};
pub use ledger::Ledger;
pub use mark::SyncedMark;
pub(crate) use reply::reply;
pub use reply::{CommitAnswer, Refusal, Reply, Waiting};
pub use syncer::SyncerHandle;
pub use writer_handle::{Ended, ExpiredKey, WriterHandle};
