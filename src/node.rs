//! Builds the node from its configuration and runs it until it is told to stop.

use std::process::ExitCode;

use crate::config::Config;

/// Runs a node until SIGTERM.
pub fn start(_config: Config) -> ExitCode {
    tracing::error!("this build cannot run a node");
    ExitCode::FAILURE
}
