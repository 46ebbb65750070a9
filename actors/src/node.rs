//! One running node: the tree, and the handles everything outside it holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use ractor::concurrency::JoinHandle;
use ractor::{Actor, ActorProcessingErr, ActorRef, SpawnErr};
use tokio::sync::watch;

use crate::dispatch::{DispatchConfig, DispatchHandle};
use crate::edge::{
    Guard, Ingest, IngestConfig, LimitsHandle, QuarantineConfig, QuarantineHandle,
    RateLimitsConfig, RouteStoreHandle, RoutesSettings, SourceStoreHandle,
};
use crate::model::value_version::ValueVersion;
use crate::ports::{Clock, Engine, Entropy, Events};
use crate::queue::{
    BatcherConfig, BatcherHandle, DedupeConfig, JoinedLanes, Ledger, SyncedMark, SyncerHandle,
    TenantsConfig, WriterHandle,
};
use crate::sources::{SourceSet, SourceSetup, SourceTable};
use crate::steady::SteadyClock;
use crate::store::ready::Readiness;
use crate::store::{StoreConfig, StoreHandle};
use crate::supervision::{Board, Slot, Supervisor, SupervisorMsg};
use crate::tree::{MakeFront, Tree};
use crate::upkeep::quarantine_reaper::QuarantineReaperMsg;
use crate::upkeep::{RecountHandle, ScrubHandle};

/// What the node does ("Roles"). Every role shares the one database, so they run in one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    /// Takes hooks in.
    pub edge: bool,
    /// Delivers them.
    pub dispatch: bool,
    /// Gives each hook an archive obligation.
    pub storage: bool,
}

impl Roles {
    /// In alphabetical order.
    pub fn names(self) -> Vec<&'static str> {
        let roles = [("dispatch", self.dispatch), ("edge", self.edge), ("storage", self.storage)];
        roles.into_iter().filter(|(_, runs)| *runs).map(|(name, _)| name).collect()
    }
}

/// The outside world.
#[derive(Clone)]
pub struct Ports {
    pub engine: Arc<dyn Engine>,
    pub clock: Arc<dyn Clock>,
    pub entropy: Arc<dyn Entropy>,
    pub events: Arc<dyn Events>,
}

/// Everything that is decided before the start.
#[derive(Clone, Debug)]
pub struct NodeSettings {
    /// Names the node in logs, metrics and answers.
    pub instance: String,
    pub roles: Roles,
    pub value_version: ValueVersion,
    pub ingest: IngestConfig,
    pub rate_limits: RateLimitsConfig,
    pub quarantine: QuarantineConfig,
    /// Nothing where the route guard is off.
    pub routes: Option<RoutesSettings>,
    pub batcher: BatcherConfig,
    pub tenants: TenantsConfig,
    pub dedupe: DedupeConfig,
    pub store: StoreConfig,
    pub dispatch: DispatchConfig,
}

/// The addresses of every process, and what they share. They survive restarts.
#[derive(Clone)]
pub struct Handles {
    pub board: Board,
    pub store: StoreHandle,
    pub ledger: Ledger,
    pub mark: SyncedMark,
    pub joined: JoinedLanes,
    pub writer: WriterHandle,
    pub syncer: SyncerHandle,
    pub dispatch: DispatchHandle,
    pub scrub: ScrubHandle,
    pub recount: RecountHandle,
    pub batchers: Arc<[BatcherHandle]>,
    pub limits: LimitsHandle,
    pub quarantine: QuarantineHandle,
    pub reaper: Slot<QuarantineReaperMsg>,
    pub ingest: Arc<Ingest>,
    pub sources: SourceStoreHandle,
    pub routes: RouteStoreHandle,
    pub readiness: Readiness,
    /// Raised before the tree is stopped, so that a stop can be told from a restart.
    pub stopping: watch::Receiver<bool>,
}

/// A running node. Stop it with [`Node::stop`]; dropped, it goes on until the runtime ends.
pub struct Node {
    root: ActorRef<SupervisorMsg>,
    task: JoinHandle<()>,
    stopping: watch::Sender<bool>,
    handles: Handles,
}

impl Node {
    /// Starts the whole tree. The first boot has no retries: a store that cannot be opened or read, or a port that is
    /// taken, refuses it with the reason.
    pub async fn start(
        ports: Ports,
        settings: NodeSettings,
        sources: impl Into<SourceSetup>,
        front: MakeFront,
    ) -> Result<Self, ActorProcessingErr> {
        let (stopping, stopping_seen) = watch::channel(false);
        let sources = sources.into();
        let handles = handles(&ports, &settings, &sources, stopping_seen);
        let steady = Arc::new(SteadyClock::over(Arc::clone(&ports.clock)));
        let tree = Tree { ports, steady, settings, sources, handles: handles.clone(), front };
        let (root, task) =
            Actor::spawn(None, Supervisor, tree.node()).await.map_err(|error| match error {
                SpawnErr::StartupFailed(why) => why,
                SpawnErr::ActorAlreadyStarted | SpawnErr::ActorAlreadyRegistered(_) => error.into(),
            })?;
        Ok(Self { root, task, stopping, handles })
    }

    pub fn handles(&self) -> &Handles {
        &self.handles
    }

    /// Says that a stop has begun, without beginning it: `/ready` answers draining from here on.
    pub fn announce_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Stops the tree, last started first, and answers whether it was gone within `limit`. Whoever still waits for an
    /// answer then has its connection closed unanswered.
    pub async fn stop(mut self, limit: Duration) -> bool {
        self.announce_stop();
        let stopped =
            self.task.is_finished() || self.root.stop_and_wait(None, Some(limit)).await.is_ok();
        if !stopped {
            self.root.kill();
        }
        self.ended().await;
        stopped
    }

    /// Returns when the tree has given up by itself: the process should exit and be started again.
    pub async fn gave_up(&mut self) {
        self.ended().await;
    }

    async fn ended(&mut self) {
        if !self.task.is_finished() {
            let _ = (&mut self.task).await;
        }
        self.handles.ledger.abandon_callers();
    }
}

fn handles(
    ports: &Ports,
    settings: &NodeSettings,
    sources: &SourceSetup,
    stopping: watch::Receiver<bool>,
) -> Handles {
    let (store, ledger) = (StoreHandle::default(), Ledger::default());
    let partitions = if settings.roles.edge { settings.batcher.partitions } else { 0 };
    let batcher = |_| BatcherHandle::new(&settings.batcher, &ledger, &store);
    let batchers: Arc<[BatcherHandle]> = (0..partitions).map(batcher).collect();
    let limits = LimitsHandle::new(&settings.rate_limits, settings.ingest.max_body_bytes);
    let patience = Duration::from_millis(settings.batcher.start_deadline_ms);
    let quarantine =
        QuarantineHandle::new(&settings.quarantine, patience, settings.value_version, &store);
    let set = match &sources.store {
        Some(_) => SourceSet::loading(&sources.configured),
        None => SourceSet::new(&sources.configured, BTreeMap::new(), BTreeMap::new()),
    };
    let table = SourceTable::new(set);
    let routes = RouteStoreHandle::default();
    let ingest = Ingest {
        guard: settings.routes.as_ref().map(|settings| Guard::new(settings, routes.table())),
        config: settings.ingest.clone(),
        sources: table.clone(),
        batchers: Arc::clone(&batchers),
        limits: limits.clone(),
        quarantine: quarantine.clone(),
        clock: Arc::clone(&ports.clock),
        entropy: Arc::clone(&ports.entropy),
        events: Arc::clone(&ports.events),
        turn: AtomicUsize::new(0),
    };
    Handles {
        board: Board::default(),
        readiness: Readiness::new(store.clone(), Arc::clone(&ports.clock)),
        store,
        mark: SyncedMark::default(),
        joined: JoinedLanes::default(),
        writer: WriterHandle::new(&settings.batcher),
        syncer: SyncerHandle::default(),
        dispatch: DispatchHandle::default(),
        scrub: ScrubHandle::default(),
        recount: RecountHandle::default(),
        batchers,
        limits,
        quarantine,
        reaper: Slot::default(),
        ingest: Arc::new(ingest),
        routes,
        sources: SourceStoreHandle::new(table, sources.store.is_some()),
        ledger,
        stopping,
    }
}
