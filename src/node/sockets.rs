//! Every socket of the node, bound before the tree starts: a port that is taken refuses the boot, and a listener that
//! restarts finds its socket, and the connections waiting in it, where it left them.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};

use crate::config::{Config, Role};
use crate::front::control;

/// Connections the kernel keeps for us while we are busy.
const BACKLOG: i32 = 1024;

pub(super) struct Sockets {
    /// `None` without the role edge.
    pub(super) ingest: Option<Arc<TcpListener>>,
    /// `None` with `admin.enabled: false`.
    pub(super) admin: Option<Arc<TcpListener>>,
    /// `None` without the route guard.
    pub(super) routes: Option<Arc<TcpListener>>,
    pub(super) control: Arc<UnixListener>,
    pub(super) control_path: PathBuf,
}

/// A port or a path that could not be bound.
#[derive(Debug, thiserror::Error)]
#[error("{key}: cannot listen on {address}: {error}")]
pub(super) struct BindError {
    key: &'static str,
    address: String,
    error: std::io::Error,
}

impl Sockets {
    pub(super) fn bind(config: &Config) -> Result<Self, BindError> {
        let edge = config.has_role(Role::Edge);
        let ingest =
            edge.then(|| tcp("http.port", config.http.ip, config.http.port)).transpose()?;
        let admin = config.admin.enabled;
        let admin =
            admin.then(|| tcp("admin.port", config.admin.ip, config.admin.port)).transpose()?;
        let routes = &config.routes;
        let has_guard = edge && routes.enabled;
        let bound = || tcp("routes.admin.port", routes.admin.ip, routes.admin.port);
        let routes = has_guard.then(bound).transpose()?;
        let control_path = config.control_socket();
        let control = control::bind(&control_path).map_err(|error| BindError {
            key: "control.socket",
            address: control_path.display().to_string(),
            error,
        })?;
        Ok(Self { ingest, admin, routes, control: Arc::new(control), control_path })
    }
}

fn tcp(key: &'static str, ip: IpAddr, port: u16) -> Result<Arc<TcpListener>, BindError> {
    let address = SocketAddr::new(ip, port);
    let bound = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        // Connections of a node that was just killed may still be on their way out.
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(Arc::new(TcpListener::from(socket)))
    };
    bound().map_err(|error| BindError { key, address: address.to_string(), error })
}
