//! What the node tells about itself: log lines and metrics.

pub mod logs;
pub mod metrics;
