//! Finding the control socket and connecting to it.

use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use crate::config::{Config, Environment};

/// The socket that is asked for, else the configured one, else that of a node without a configuration.
pub(super) fn path(asked_for: Option<&Path>, config: &Path) -> Result<PathBuf, String> {
    if let Some(path) = asked_for {
        return Ok(path.to_owned());
    }
    if !config.exists() {
        return Ok(Config::default().control_socket());
    }
    match Config::load(config, &Environment::of_the_process()) {
        Ok(config) => Ok(config.control_socket()),
        Err(errors) => {
            Err(format!("cannot tell where the control socket is; name it with --socket\n{errors}"))
        }
    }
}

pub(super) async fn connect(path: &Path) -> Result<UnixStream, String> {
    let connected = UnixStream::connect(path).await;
    connected.map_err(|error| why_not(&path.display().to_string(), &error))
}

fn why_not(at: &str, error: &Error) -> String {
    let is = |kind| error.kind() == kind;
    if is(ErrorKind::NotFound) {
        format!("no control socket at {at}: is the node running? --socket names another")
    } else if is(ErrorKind::ConnectionRefused) {
        format!("nobody listens at {at}: the node that made this socket is gone")
    } else if is(ErrorKind::PermissionDenied) {
        format!("not allowed to use {at}: run this as the user the node runs as")
    } else {
        format!("cannot connect to {at}: {error}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_keeps_one_from_connecting_is_told_with_the_way_out() {
        let told = |kind: ErrorKind| why_not("/s", &Error::from(kind));
        let denied = "not allowed to use /s: run this as the user the node runs as";
        assert_eq!(told(ErrorKind::PermissionDenied), denied);
        assert_eq!(told(ErrorKind::TimedOut), "cannot connect to /s: timed out");
    }
}
