//! Keeps the sources of the API: their rows in the store, and the set that everybody reads.
//!
//! A change is durable before anybody sees it, and seen by everybody before it is answered. A write that failed may have
//! landed all the same: the rows are then made durable and read again before anything else is believed of them.
//!
//! Rows that cannot be read stay where they are. Their names are taken, their sources answer that they are unavailable,
//! and a change of the API replaces or removes them.
//!
//! * **Owns:** nothing but what its rows say. Without it sources go on as they were last.
//! * **Talks to:** the store; wakes dispatch.
//! * **Supervised by:** `services`, one_for_one.

mod handle;
mod rows;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tracing::{info, warn};

pub use handle::{SourceChange, SourceStoreError, SourceStoreHandle};

use crate::dispatch::DispatchHandle;
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::keys::{SourceKey, SourceRevisionKey, u64_value};
use crate::model::source::SourceSpec;
use crate::model::stored_source::{self, SourceName};
use crate::ports::{Event, Events, KvError, Lane};
use crate::sources::{BuildSource, SourceSet, Sources, StoreSetup, StoredSource};
use crate::store::StoreHandle;
use crate::supervision::{Crash, told_to_crash};

/// Wait before rows that could not be read, or that may have changed under a failed write, are read again.
const LOAD_AGAIN: Duration = Duration::from_secs(1);

/// `None` where a source was deleted whose row could not be read.
type Changed = Result<Option<Arc<StoredSource>>, SourceStoreError>;

pub enum SourceStoreMsg {
    /// Read the rows, unless they have been read meanwhile.
    Load,
    Change(Box<SourceChange>, RpcReplyPort<Changed>),
    /// Panic, for a drill.
    Crash,
}

impl Crash for SourceStoreMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct SourceStoreArgs {
    pub configured: Arc<Sources>,
    pub setup: StoreSetup,
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    pub dispatch: DispatchHandle,
    pub handle: SourceStoreHandle,
}

pub struct SourceStoreState {
    args: SourceStoreArgs,
    stored: BTreeMap<SourceName, Arc<StoredSource>>,
    unreadable: BTreeMap<SourceName, String>,
    /// Of every name there ever was.
    revisions: BTreeMap<SourceName, u64>,
    /// What is above is what the store holds, durably.
    is_loaded: bool,
}

pub struct SourceStore;

impl Actor for SourceStore {
    type Msg = SourceStoreMsg;
    type State = SourceStoreState;
    type Arguments = SourceStoreArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<SourceStoreMsg>,
        args: SourceStoreArgs,
    ) -> Result<SourceStoreState, ActorProcessingErr> {
        let mut state = SourceStoreState {
            args,
            stored: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            revisions: BTreeMap::new(),
            is_loaded: false,
        };
        // A store that is closed is no reason not to start: until it is open, hooks of these sources are refused.
        state.load_or_later(&myself).await;
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<SourceStoreMsg>,
        message: SourceStoreMsg,
        state: &mut SourceStoreState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SourceStoreMsg::Load => state.load_or_later(&myself).await,
            SourceStoreMsg::Change(change, reply) => {
                let _ = reply.send(state.change(&myself, *change).await);
            }
            SourceStoreMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl SourceStoreState {
    async fn load_or_later(&mut self, myself: &ActorRef<SourceStoreMsg>) {
        if let Err(error) = self.load().await {
            warn!(%error, "the sources of the API cannot be read; trying again");
            myself.send_after(LOAD_AGAIN, || SourceStoreMsg::Load);
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
        self.revisions = rows.revisions;
        self.unreadable = rows.unreadable;
        self.stored.clear();
        for (name, spec) in rows.specs {
            let revision = self.revisions.get(&name).copied().unwrap_or(1);
            match stored(self.args.setup.builder.as_ref(), name.clone(), spec, revision) {
                Ok(source) => drop(self.stored.insert(name, source)),
                Err(why) => drop(self.unreadable.insert(name, why)),
            }
        }
        for (name, why) in &self.unreadable {
            warn!(tenant = %name.tenant, name = %name.name, %why, "a stored source cannot be used; its hooks are answered 503");
        }
        let (sources, unreadable) = (self.stored.len(), self.unreadable.len());
        info!(sources, unreadable, "the sources of the API were read");
        self.is_loaded = true;
        self.publish();
        Ok(())
    }

    fn publish(&self) {
        let (stored, unreadable) = (self.stored.clone(), self.unreadable.clone());
        let set = SourceSet::new(&self.args.configured, stored, unreadable);
        let ids: Vec<String> = self.stored.keys().map(SourceName::source_id).collect();
        let unreadable = self.unreadable.len();
        // Before any hook can be counted for them.
        self.args.events.emit(&Event::Sources { ids: &ids, unreadable });
        self.args.handle.table().publish(set);
        self.args.dispatch.wake();
    }

    async fn change(&mut self, myself: &ActorRef<SourceStoreMsg>, change: SourceChange) -> Changed {
        self.load().await?;
        match change {
            SourceChange::Create { name, spec } => {
                if self.stored.contains_key(&name) || self.unreadable.contains_key(&name) {
                    return Err(SourceStoreError::Exists);
                }
                let max_sources = self.args.setup.max_sources;
                if self.stored.len() + self.unreadable.len() >= max_sources {
                    return Err(SourceStoreError::TooMany { max_sources });
                }
                self.put(myself, name, *spec, "created").await
            }
            SourceChange::Replace { name, spec, expected } => {
                self.must_be(&name, expected)?;
                self.put(myself, name, *spec, "updated").await
            }
            SourceChange::Delete { name, expected } => {
                self.must_be(&name, expected)?;
                self.delete(myself, name).await
            }
        }
    }

    /// The last of whatever had this name; 0 if nothing ever had.
    fn revision(&self, name: &SourceName) -> u64 {
        let is_there = self.stored.contains_key(name) || self.unreadable.contains_key(name);
        self.revisions.get(name).copied().unwrap_or(u64::from(is_there))
    }

    /// There is such a source, readable or not, at the revision that is expected.
    fn must_be(&self, name: &SourceName, expected: Option<u64>) -> Result<(), SourceStoreError> {
        if !self.stored.contains_key(name) && !self.unreadable.contains_key(name) {
            return Err(SourceStoreError::NotFound);
        }
        let revision = self.revision(name);
        match expected {
            Some(expected) if expected != revision => {
                Err(SourceStoreError::RevisionMismatch { revision })
            }
            Some(_) | None => Ok(()),
        }
    }

    async fn put(
        &mut self,
        myself: &ActorRef<SourceStoreMsg>,
        name: SourceName,
        spec: SourceSpec,
        what: &'static str,
    ) -> Changed {
        let revision = self.revision(&name).saturating_add(1);
        let spec = SourceSpec { tenant: name.tenant.clone(), ..spec };
        let value = stored_source::encode(&spec);
        let source = stored(self.args.setup.builder.as_ref(), name.clone(), spec, revision)
            .map_err(SourceStoreError::Invalid)?;
        let mut batch = Batch::default();
        let (tenant, of) = (name.tenant.as_str(), name.name.as_str());
        batch.put(Cf::Default, &SourceKey { tenant, name: of }.encode(), &value);
        let revision_key = SourceRevisionKey { tenant, name: of }.encode();
        batch.put(Cf::Default, &revision_key, &u64_value(revision));
        self.write(myself, batch).await?;
        self.revisions.insert(name.clone(), revision);
        self.unreadable.remove(&name);
        self.stored.insert(name.clone(), Arc::clone(&source));
        self.announce(&name, what);
        Ok(Some(source))
    }

    async fn delete(&mut self, myself: &ActorRef<SourceStoreMsg>, name: SourceName) -> Changed {
        let mut batch = Batch::default();
        let (tenant, of) = (name.tenant.as_str(), name.name.as_str());
        batch.delete(Cf::Default, &SourceKey { tenant, name: of }.encode());
        // Stays, so that whoever has this name next goes on counting.
        let revision = self.revision(&name);
        let revision_key = SourceRevisionKey { tenant, name: of }.encode();
        batch.put(Cf::Default, &revision_key, &u64_value(revision));
        self.write(myself, batch).await?;
        self.revisions.insert(name.clone(), revision);
        self.unreadable.remove(&name);
        let removed = self.stored.remove(&name);
        self.announce(&name, "deleted");
        Ok(removed)
    }

    async fn write(
        &mut self,
        myself: &ActorRef<SourceStoreMsg>,
        batch: Batch,
    ) -> Result<(), SourceStoreError> {
        let written = self.args.store.apply_synced(batch, Lane::Background).await;
        if written.is_err() {
            self.is_loaded = false;
            myself.send_after(LOAD_AGAIN, || SourceStoreMsg::Load);
        }
        Ok(written?)
    }

    fn announce(&self, name: &SourceName, what: &'static str) {
        let id = name.source_id();
        info!(source = %id, what, "a source was changed");
        self.args.events.emit(&Event::SourceChanged { source_id: &id, what });
        self.publish();
    }
}

fn stored(
    builder: &dyn BuildSource,
    name: SourceName,
    spec: SourceSpec,
    revision: u64,
) -> Result<Arc<StoredSource>, String> {
    let source = Arc::new(builder.build(&name.source_id(), &spec)?);
    Ok(Arc::new(StoredSource { name, revision, spec, source }))
}
