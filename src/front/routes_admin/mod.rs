//! The listener where the routes of the guard are managed, on loopback unless tokens guard it.
//!
//! * **Owns:** its connections; the listening socket outlives it.
//! * **Talks to:** the route store.
//! * **Supervised by:** `front`, one_for_one.

mod api;

use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::supervision::{Crash, told_to_crash};
use ractor::{Actor, ActorProcessingErr, ActorRef};

pub(super) use api::control_routes;
pub use api::{OPENAPI, RoutesApi, routes_endpoints};

use super::listener::{Acceptor, Server, Terms};
use super::routes::Routes;

pub enum RoutesServerMsg {
    /// Panic, for a drill.
    Crash,
}

impl Crash for RoutesServerMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct RoutesServerArgs {
    pub socket: Arc<TcpListener>,
    pub terms: Terms,
    pub drain: Duration,
    pub api: RoutesApi,
}

pub struct RoutesServerState {
    server: Option<Server>,
    args: RoutesServerArgs,
}

pub struct RoutesServer;

impl Actor for RoutesServer {
    type Msg = RoutesServerMsg;
    type State = RoutesServerState;
    type Arguments = RoutesServerArgs;

    async fn pre_start(
        &self,
        _: ActorRef<RoutesServerMsg>,
        args: RoutesServerArgs,
    ) -> Result<RoutesServerState, ActorProcessingErr> {
        let routes = Routes(api::listener_routes(args.api.clone()));
        let server = Server::start(Acceptor::tcp(&args.socket)?, args.terms.clone(), routes);
        Ok(RoutesServerState { server: Some(server), args })
    }

    async fn handle(
        &self,
        _: ActorRef<RoutesServerMsg>,
        message: RoutesServerMsg,
        _: &mut RoutesServerState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RoutesServerMsg::Crash => told_to_crash(),
        }
    }

    async fn post_stop(
        &self,
        _: ActorRef<RoutesServerMsg>,
        state: &mut RoutesServerState,
    ) -> Result<(), ActorProcessingErr> {
        if *state.args.api.admin.handles.stopping.borrow() {
            super::close_socket(&state.args.socket);
        }
        if let Some(server) = state.server.take() {
            server.stop(state.args.drain).await;
        }
        Ok(())
    }
}
