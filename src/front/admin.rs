//! A port for operators, on loopback unless tokens guard it: the admin port, and the one where the guard's routes are
//! managed.
//!
//! * **Owns:** its connections; the listening socket outlives it.
//! * **Talks to:** whatever its routes ask.
//! * **Supervised by:** `front`, one_for_one: it answers while the core is down.

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::supervision::{Crash, told_to_crash};
use axum::Router;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::watch;

use super::listener::{Acceptor, Server, Terms};
use super::routes::Routes;

pub enum AdminServerMsg {
    /// Panic, for a drill.
    Crash,
}

impl Crash for AdminServerMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct AdminServerArgs {
    pub socket: Arc<TcpListener>,
    pub terms: Terms,
    pub drain: Duration,
    pub routes: Router,
    /// Whether it is stopped for good: see [`ankusa_actors::node::Handles::stopping`].
    pub stopping: watch::Receiver<bool>,
}

pub struct AdminServerState {
    server: Option<Server>,
    args: AdminServerArgs,
}

pub struct AdminServer;

impl Actor for AdminServer {
    type Msg = AdminServerMsg;
    type State = AdminServerState;
    type Arguments = AdminServerArgs;

    async fn pre_start(
        &self,
        _: ActorRef<AdminServerMsg>,
        args: AdminServerArgs,
    ) -> Result<AdminServerState, ActorProcessingErr> {
        let routes = Routes(args.routes.clone());
        let server = Server::start(Acceptor::tcp(&args.socket)?, args.terms.clone(), routes);
        Ok(AdminServerState { server: Some(server), args })
    }

    async fn handle(
        &self,
        _: ActorRef<AdminServerMsg>,
        message: AdminServerMsg,
        _: &mut AdminServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            AdminServerMsg::Crash => told_to_crash(),
        }
    }

    async fn post_stop(
        &self,
        _: ActorRef<AdminServerMsg>,
        state: &mut AdminServerState,
    ) -> Result<(), ActorProcessingErr> {
        if *state.args.stopping.borrow() {
            super::close_socket(&state.args.socket);
        }
        if let Some(server) = state.server.take() {
            server.stop(state.args.drain).await;
        }
        Ok(())
    }
}
