//! `ankusa start`: the node itself.

use std::process::ExitCode;

use super::ConfigFile;
use crate::{node, telemetry};

pub(super) fn run(file: &ConfigFile) -> ExitCode {
    let config = match file.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    telemetry::logs::start(&config.log);
    for warning in config.warnings() {
        tracing::warn!("{warning}");
    }
    node::start(config)
}
