//! Delivery: claims due rows, attempts them, writes the outcomes.

mod config;
mod handle;

pub use config::{DispatchConfig, RetryConfig};
pub use handle::DispatchHandle;

use crate::supervision::Crash;

pub enum DispatchMsg {
    /// There may be rows to claim.
    Wake,
    /// Panic, for a drill.
    Crash,
}

impl Crash for DispatchMsg {
    fn crash() -> Self {
        Self::Crash
    }
}
