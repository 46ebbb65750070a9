//! `ankusa print-config`: the configuration in force, as `GET /v1/config` shows it.

use std::process::ExitCode;

use super::{ConfigFile, print};
use crate::config::redacted;

pub(super) fn run(file: &ConfigFile) -> ExitCode {
    match file.load() {
        Ok(config) => print(&format!("{:#}\n", redacted(&config))),
        Err(code) => code,
    }
}
