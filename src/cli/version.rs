//! `ankusa version`.

use std::process::ExitCode;

use super::print;

pub(super) fn run() -> ExitCode {
    print(&format!("ankusa {}\n", env!("CARGO_PKG_VERSION")))
}
