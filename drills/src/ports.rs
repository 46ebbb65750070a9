//! Ports of this machine for whoever is started by a drill.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use crate::drill::{CannotInject, OrCannot};

const FIND: &str = "find a free port";

/// Ports nobody listens on. Somebody may take one before it is used; then who was to use it says so and does not come up.
///
/// # Errors
/// There are none.
pub fn free<const N: usize>() -> Result<[u16; N], CannotInject> {
    // All at once: two that are looked for one after the other can be the same.
    let bind = |_| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let listeners = (0..N).map(bind).collect::<Result<Vec<TcpListener>, _>>().or_cannot(FIND)?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr().or_cannot(FIND)?.port();
    }
    Ok(ports)
}
