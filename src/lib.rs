//! Ankusa node: a self-hosted webhook receiver that never answers 2xx for a hook it could still lose.
//!
//! This package is what the node touches: configuration, disk, network, clock. What it decides is in `ankusa-actors`.

pub mod config;
pub mod front;
pub mod host;
pub mod node;
pub mod rocks;
pub mod sinks;
pub mod telemetry;
