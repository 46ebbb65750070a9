//! Keeps the routes of the guard: their rows in the store, and the set that every request is held against.
//!
//! A change is durable before anybody sees it, and counts for every request before it is answered. A write that failed
//! may have landed all the same: the rows are then made durable and read again before anything else is believed of them.
//!
//! * **Owns:** nothing but what its rows say. Without it the guard goes on with the routes as they were last.
//! * **Talks to:** the store.
//! * **Supervised by:** `services`, one_for_one.

mod handle;
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tracing::{info, warn};

pub use handle::{RouteChange, RouteStoreError, RouteStoreHandle};

use super::guard::{RoutesNow, RoutesSettings};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::keys::{META_ROUTE_RULES, RouteKey};
use crate::model::route::{self, IpRules, Route, RouteSet, RouteSpec};
use crate::ports::{Clock, Entropy, KvError, Lane};
use crate::store::StoreHandle;
use crate::supervision::{Crash, told_to_crash};

/// Wait before rows that could not be read, or that may have changed under a failed write, are read again.
const LOAD_AGAIN: Duration = Duration::from_secs(1);

/// `None` where there is no route to show.
type Changed = Result<Option<Arc<Route>>, RouteStoreError>;

pub enum RouteStoreMsg {
    /// Read the rows, unless they have been read meanwhile.
    Load,
    Change(Box<RouteChange>, RpcReplyPort<Changed>),
    /// Panic, for a drill.
    Crash,
}

impl Crash for RouteStoreMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct RouteStoreArgs {
    pub settings: RoutesSettings,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub store: StoreHandle,
    pub handle: RouteStoreHandle,
}

pub struct RouteStoreState {
    args: RouteStoreArgs,
    /// The same as published.
    set: Arc<RouteSet>,
    unreadable: BTreeMap<String, String>,
    rules_unreadable: Option<String>,
    /// What is above is what the store holds, durably.
    is_loaded: bool,
}

pub struct RouteStore;

impl Actor for RouteStore {
    type Msg = RouteStoreMsg;
    type State = RouteStoreState;
    type Arguments = RouteStoreArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<RouteStoreMsg>,
        args: RouteStoreArgs,
    ) -> Result<RouteStoreState, ActorProcessingErr> {
        let mut state = RouteStoreState {
            args,
            set: Arc::default(),
            unreadable: BTreeMap::new(),
            rules_unreadable: None,
            is_loaded: false,
        };
        // A store that is closed is no reason not to start: until it is open, every request is answered 503.
        state.load_or_later(&myself).await;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<RouteStoreMsg>,
        message: RouteStoreMsg,
        state: &mut RouteStoreState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RouteStoreMsg::Load => state.load_or_later(&myself).await,
            RouteStoreMsg::Change(change, reply) => {
                let _ = reply.send(state.change(&myself, *change).await);
            }
            RouteStoreMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl RouteStoreState {
    async fn load_or_later(&mut self, myself: &ActorRef<RouteStoreMsg>) {
        if let Err(error) = self.load().await {
            warn!(%error, "the routes cannot be read; trying again");
            myself.send_after(LOAD_AGAIN, || RouteStoreMsg::Load);
        }
    }

    /// Reads every row, unless what is known is what the store holds.
    async fn load(&mut self) -> Result<(), KvError> {
        if self.is_loaded {
            return Ok(());
        }
        // What a failed write has left behind may be seen, but not yet be there to stay.
        self.args.store.sync().await?;
        let rows = rows::read(&self.args.store).await?;
        for (id, why) in &rows.unreadable {
            warn!(%id, %why, "a stored route cannot be used: requests that no other takes are answered 503");
        }
        let (rules, rules_unreadable) = match rows.rules {
            None => (self.args.settings.rules.clone(), None),
            Some(Ok(rules)) => (rules, None),
            Some(Err(why)) => {
                warn!(%why, "the stored IP rules cannot be used: every request is answered 503");
                (IpRules::default(), Some(why))
            }
        };
        (self.unreadable, self.rules_unreadable) = (rows.unreadable, rules_unreadable);
        self.set = Arc::new(RouteSet::new(rows.routes, Arc::new(rules)));
        if !self.args.handle.is_seeded() {
            self.seed().await?;
            self.args.handle.seeded();
        }
        let (routes, unreadable) = (self.set.routes().len(), self.unreadable.len());
        info!(routes, unreadable, "the routes were read");
        self.is_loaded = true;
        self.publish();
        Ok(())
    }

    /// Makes those of the configuration that are not there.
    async fn seed(&mut self) -> Result<(), KvError> {
        let mut batch = Batch::default();
        let mut set = RouteSet::new(self.set.routes().clone(), Arc::clone(self.set.rules()));
        for (id, spec) in &self.args.settings.seed {
            if self.is_taken(id) {
                continue;
            }
            if let Err(error) = self.has_room(&set, spec, id) {
                warn!(%id, %error, "a route of routes.seed is passed over");
                continue;
            }
            let route = self.made(id.clone(), spec.clone(), None);
            batch.put(Cf::Default, &RouteKey(id).encode(), &route::encode(&route));
            set.insert_new(route);
        }
        if set.routes().len() > self.set.routes().len() {
            self.args.store.apply_synced(batch, Lane::Background).await?;
            self.set = Arc::new(set);
        }
        Ok(())
    }

    fn publish(&self) {
        self.args.handle.table().publish(RoutesNow {
            set: Arc::clone(&self.set),
            unreadable: self.unreadable.clone(),
            rules_unreadable: self.rules_unreadable.clone(),
            is_loading: false,
        });
    }

    async fn change(&mut self, myself: &ActorRef<RouteStoreMsg>, change: RouteChange) -> Changed {
        self.load().await?;
        match change {
            RouteChange::Create { id, spec } => {
                let (now_ms, bits) = (self.args.clock.now_ms(), self.args.entropy.bits());
                let id = id.unwrap_or_else(|| route::new_id(now_ms, bits));
                if self.is_taken(&id) {
                    return Err(RouteStoreError::Duplicate { conflicting_id: id });
                }
                self.put(myself, id, *spec).await
            }
            RouteChange::Put { id, spec } => self.put(myself, id, *spec).await,
            RouteChange::Patch { id, patch } => {
                let route = self.found(&id)?;
                let spec = route.spec.patched(patch).map_err(RouteStoreError::Invalid)?;
                self.put(myself, id, spec).await
            }
            RouteChange::Delete { id } => self.delete(myself, id).await,
            RouteChange::Rules(rules) => self.put_rules(myself, rules).await,
        }
    }

    fn is_taken(&self, id: &str) -> bool {
        self.set.routes().contains_key(id) || self.unreadable.contains_key(id)
    }

    fn found(&self, id: &str) -> Result<Arc<Route>, RouteStoreError> {
        if let Some(reason) = self.unreadable.get(id).cloned() {
            return Err(RouteStoreError::Unreadable { id: id.to_owned(), reason });
        }
        self.set.routes().get(id).cloned().ok_or(RouteStoreError::NotFound)
    }

    /// Whether `set` can have such a route.
    fn has_room(&self, set: &RouteSet, spec: &RouteSpec, id: &str) -> Result<(), RouteStoreError> {
        if let Some(other) = set.conflicting(spec, id) {
            return Err(RouteStoreError::Duplicate { conflicting_id: other.id.clone() });
        }
        let max_routes = self.args.settings.max_routes;
        if !self.is_taken(id) && set.routes().len() + self.unreadable.len() >= max_routes {
            return Err(RouteStoreError::TooMany { max_routes });
        }
        Ok(())
    }

    fn made(&self, id: String, spec: RouteSpec, before: Option<&Route>) -> Route {
        let now_ms = self.args.clock.now_ms();
        Route {
            id,
            spec,
            inserted_at_ms: before.map_or(now_ms, |before| before.inserted_at_ms),
            updated_at_ms: now_ms,
            revision: before.map_or(0, |before| before.revision).saturating_add(1),
        }
    }

    async fn put(
        &mut self,
        myself: &ActorRef<RouteStoreMsg>,
        id: String,
        spec: RouteSpec,
    ) -> Changed {
        self.has_room(&self.set, &spec, &id)?;
        let before = self.set.routes().get(&id);
        let route = self.made(id.clone(), spec, before.map(Arc::as_ref));
        let mut batch = Batch::default();
        batch.put(Cf::Default, &RouteKey(&id).encode(), &route::encode(&route));
        self.write(myself, batch).await?;
        self.unreadable.remove(&id);
        self.set = Arc::new(self.set.with(route));
        info!(route = %id, "a route was written");
        self.publish();
        Ok(self.set.routes().get(&id).cloned())
    }

    async fn delete(&mut self, myself: &ActorRef<RouteStoreMsg>, id: String) -> Changed {
        if !self.is_taken(&id) {
            return Err(RouteStoreError::NotFound);
        }
        let mut batch = Batch::default();
        batch.delete(Cf::Default, &RouteKey(&id).encode());
        self.write(myself, batch).await?;
        self.unreadable.remove(&id);
        self.set = Arc::new(self.set.without(&id));
        info!(route = %id, "a route was deleted");
        self.publish();
        Ok(None)
    }

    async fn put_rules(&mut self, myself: &ActorRef<RouteStoreMsg>, rules: IpRules) -> Changed {
        let mut batch = Batch::default();
        batch.put(Cf::Default, META_ROUTE_RULES, &route::encode_rules(&rules));
        self.write(myself, batch).await?;
        self.rules_unreadable = None;
        self.set = Arc::new(self.set.with_rules(rules));
        info!("the IP rules were written");
        self.publish();
        Ok(None)
    }

    async fn write(
        &mut self,
        myself: &ActorRef<RouteStoreMsg>,
        batch: Batch,
    ) -> Result<(), RouteStoreError> {
        let written = self.args.store.apply_synced(batch, Lane::Background).await;
        if written.is_err() {
            self.is_loaded = false;
            myself.send_after(LOAD_AGAIN, || RouteStoreMsg::Load);
        }
        Ok(written?)
    }
}
