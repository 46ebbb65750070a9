//! Ankusa node: a self-hosted webhook receiver that never answers 2xx for a hook it could still lose.
//!
//! This package is what the node touches: configuration, disk, network, clock. What it decides is in `ankusa-actors`.

pub mod blob;
mod cli;
pub mod config;
pub mod front;
pub mod host;
pub mod node;
pub mod rocks;
pub mod sinks;
mod sources;
pub mod telemetry;

use std::process::ExitCode;

use mimalloc::MiMalloc;

/// For every binary that links the node.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The whole program: `args` without its name, as in `["start", "--config", "ankusa.yml"]`.
pub fn run(args: impl Iterator<Item = String>) -> ExitCode {
    cli::run(args)
}
