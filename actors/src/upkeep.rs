//! What keeps a node sound while it runs: nothing here is on the way of a hook.

mod scrub_handle;
pub mod scrubber;

pub use scrub_handle::{Finding, LastScrub, ScrubHandle, ScrubSnapshot};
