//! `ankusa check-config`: every mistake in the configuration, or one line of what it says.

use std::process::ExitCode;

use super::{ConfigFile, complain, print};
use crate::config::{Config, Role, WalType};

pub(super) fn run(file: &ConfigFile) -> ExitCode {
    match file.load() {
        Ok(config) => {
            for warning in config.warnings() {
                complain(format_args!("warning: {warning}"));
            }
            print(&format!("config OK: {}\n", summary(&config)))
        }
        Err(code) => code,
    }
}

/// `roles=edge,dispatch sources=demo,stripe wal=disk`.
fn summary(config: &Config) -> String {
    let roles: Vec<&str> = config.node.roles.iter().copied().map(Role::as_str).collect();
    let sources: Vec<&str> = config.sources.keys().map(String::as_str).collect();
    let wal = match config.wal.kind {
        WalType::Disk => "disk",
    };
    format!("roles={} sources={} wal={wal}", roles.join(","), sources.join(","))
}
