//! What keeps a node sound while it runs: nothing here is on the way of a hook.

pub mod dedupe_sweeper;
pub mod quarantine_reaper;
mod recount_handle;
pub mod recounter;
mod scrub_handle;
pub mod scrubber;

pub use recount_handle::{RecountHandle, RecountReport};
pub use scrub_handle::{Finding, LastScrub, ScrubHandle, ScrubSnapshot};
