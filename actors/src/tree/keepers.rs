//! The rows of the table for what the APIs keep: sources and routes.

use std::sync::Arc;
use std::time::Duration;

use super::Tree;
use crate::edge::RoutesSettings;
use crate::edge::route_store::{RouteStore, RouteStoreArgs};
use crate::edge::source_store::{SourceStore, SourceStoreArgs};
use crate::sources::StoreSetup;
use crate::supervision::{ChildSpec, Shutdown};

/// How long the source store may take for the changes that wait for it.
const STOP_SOURCE_STORE: Duration = Duration::from_secs(5);

/// The same of the route store.
const STOP_ROUTE_STORE: Duration = Duration::from_secs(5);

impl Tree {
    pub(super) fn source_store(&self, setup: &StoreSetup) -> ChildSpec {
        let args = SourceStoreArgs {
            configured: Arc::clone(&self.sources.configured),
            setup: setup.clone(),
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            dispatch: self.handles.dispatch.clone(),
            handle: self.handles.sources.clone(),
        };
        let slot = self.handles.sources.slot().clone();
        ChildSpec::new("source_store", Shutdown::Drain(STOP_SOURCE_STORE), &slot, move || {
            (SourceStore, args.clone())
        })
    }

    pub(super) fn route_store(&self, settings: &RoutesSettings) -> ChildSpec {
        let args = RouteStoreArgs {
            settings: settings.clone(),
            clock: Arc::clone(&self.ports.clock),
            entropy: Arc::clone(&self.ports.entropy),
            store: self.handles.store.clone(),
            handle: self.handles.routes.clone(),
        };
        let slot = self.handles.routes.slot().clone();
        ChildSpec::new("route_store", Shutdown::Drain(STOP_ROUTE_STORE), &slot, move || {
            (RouteStore, args.clone())
        })
    }
}
