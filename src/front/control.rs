//! The control socket: HTTP/1.1 over a unix socket, for whoever owns the host.
//!
//! * **Owns:** its connections; the socket file and the listening socket outlive it.
//! * **Talks to:** the store (reads, reopen), the board, whoever waits for a stop.
//! * **Supervised by:** `front`, one_for_one.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::supervision::{Crash, told_to_crash};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use rustix::fs::Mode;
use socket2::{Domain, SockAddr, Socket, Type};

use super::listener::{Acceptor, Server, Terms};
use super::routes::{Control, Routes, control_routes};

/// Only the owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// Connections the kernel keeps for us while we are busy.
const BACKLOG: i32 = 1024;

/// Binds the socket. One nobody listens on is a leftover of a killed node and is replaced; a live one is refused, and so
/// is whatever is no socket.
pub fn bind(path: &Path) -> io::Result<UnixListener> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    make_room(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // Before there is a file: at no moment may anybody else connect.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(SOCKET_MODE))?;
    socket.bind(&SockAddr::unix(path)?)?;
    socket.listen(BACKLOG)?;
    // Not every system goes by the mode from before.
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

fn make_room(path: &Path) -> io::Result<()> {
    let taken = |kind, what: &str| Err(io::Error::new(kind, format!("{} {what}", path.display())));
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return taken(io::ErrorKind::AlreadyExists, "exists and is no socket");
        }
        Ok(_socket) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    }
    match UnixStream::connect(path) {
        Ok(_alive) => taken(io::ErrorKind::AddrInUse, "is in use by a running node"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fs::remove_file(path),
        Err(error) => Err(error),
    }
}

pub enum ControlServerMsg {
    /// Panic, for a drill.
    Crash,
}

impl Crash for ControlServerMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct ControlServerArgs {
    pub socket: Arc<UnixListener>,
    /// Removed at a stop; left by a kill, and replaced at the next start.
    pub path: PathBuf,
    pub terms: Terms,
    pub drain: Duration,
    pub control: Control,
}

pub struct ControlServerState {
    server: Option<Server>,
    args: ControlServerArgs,
}

pub struct ControlServer;

impl Actor for ControlServer {
    type Msg = ControlServerMsg;
    type State = ControlServerState;
    type Arguments = ControlServerArgs;

    async fn pre_start(
        &self,
        _: ActorRef<ControlServerMsg>,
        args: ControlServerArgs,
    ) -> Result<ControlServerState, ActorProcessingErr> {
        let routes = Routes(control_routes(args.control.clone()));
        let server = Server::start(Acceptor::unix(&args.socket)?, args.terms.clone(), routes);
        Ok(ControlServerState { server: Some(server), args })
    }

    async fn handle(
        &self,
        _: ActorRef<ControlServerMsg>,
        message: ControlServerMsg,
        _: &mut ControlServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ControlServerMsg::Crash => told_to_crash(),
        }
    }

    async fn post_stop(
        &self,
        _: ActorRef<ControlServerMsg>,
        state: &mut ControlServerState,
    ) -> Result<(), ActorProcessingErr> {
        if let Some(server) = state.server.take() {
            server.stop(state.args.drain).await;
        }
        if *state.args.control.api.admin.handles.stopping.borrow() {
            let _ = fs::remove_file(&state.args.path);
        }
        Ok(())
    }
}
