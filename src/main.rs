//! The binary: hands its arguments to the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    // No argument of ours is anything but UTF-8; one that is not is refused by name instead of a panic.
    ankusa_node::run(std::env::args_os().skip(1).map(|arg| arg.to_string_lossy().into_owned()))
}
