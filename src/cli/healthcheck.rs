//! `ankusa healthcheck`: whether the node on this machine is ready, for a container manager. Says nothing when it is.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use hyper::{Method, StatusCode};
use tokio::net::{TcpStream, UnixStream};

use super::http::{AskError, ask};
use super::{ConfigFile, complain, converse};
use crate::config::{Config, Role};

/// Below the three seconds the image's health check may take.
const LIMIT: Duration = Duration::from_millis(2_500);

pub(super) fn run(file: &ConfigFile) -> ExitCode {
    let config = match file.load() {
        Ok(config) => config,
        Err(code) => return code,
    };
    let status = match converse(ready(&config)) {
        Ok(status) => status,
        Err(error) => Err(AskError::Broken(error.to_string())),
    };
    match status {
        Ok(StatusCode::OK) => ExitCode::SUCCESS,
        Ok(status) => {
            complain(format_args!("not ready: {status}"));
            ExitCode::FAILURE
        }
        Err(error) => {
            complain(format_args!("not ready: {error}"));
            ExitCode::FAILURE
        }
    }
}

/// Asks the port hooks arrive on; without the role, the admin port; without that, the control socket. Of a port that
/// speaks TLS the socket is asked too: whether this command could trust its certificate says nothing of the node.
async fn ready(config: &Config) -> Result<StatusCode, AskError> {
    let tcp = |ip, port| TcpStream::connect(SocketAddr::new(reachable(ip), port));
    let (http, admin) = (&config.http, &config.admin);
    let answer = if config.has_role(Role::Edge) && http.tls.cert_file.is_none() {
        let connection = connected(tcp(http.ip, http.port)).await?;
        ask(connection, Method::GET, "/ready", LIMIT).await?
    } else if !config.has_role(Role::Edge) && admin.enabled && admin.tls.cert_file.is_none() {
        let connection = connected(tcp(admin.ip, admin.port)).await?;
        ask(connection, Method::GET, "/ready", LIMIT).await?
    } else {
        let connection = connected(UnixStream::connect(config.control_socket())).await?;
        ask(connection, Method::GET, "/ready", LIMIT).await?
    };
    Ok(answer.status())
}

async fn connected<T>(connecting: impl Future<Output = std::io::Result<T>>) -> Result<T, AskError> {
    let connected = tokio::time::timeout(LIMIT, connecting).await;
    let connected = connected.map_err(|_| AskError::Late(LIMIT))?;
    connected.map_err(|error| AskError::Broken(error.to_string()))
}

/// Where a listener on `ip` is reached from this machine.
fn reachable(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        IpAddr::V4(_) | IpAddr::V6(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_on_every_address_is_asked_on_loopback() {
        for (listening, asked) in [
            ("0.0.0.0", "127.0.0.1"),
            ("::", "::1"),
            ("10.0.0.1", "10.0.0.1"),
            ("fd00::1", "fd00::1"),
        ] {
            assert_eq!(reachable(listening.parse().unwrap()).to_string(), asked);
        }
    }
}
