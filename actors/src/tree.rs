//! The table of processes: every child, its order, its strategy, how it is stopped. Nothing else starts a process.
//!
//! ```text
//! node                 one_for_one    3 in 60 s; then the process exits 70 and its manager restarts it
//! |-- core             rest_for_one   5 in 60 s; later depends on earlier
//! |   |-- store        Store
//! |   |-- queue        one_for_all    5 in 10 s; the pair shares one invariant
//! |   |   |-- syncer   Syncer
//! |   |   `-- writer   Writer
//! |   `-- services     one_for_one    20 in 60 s a child, then later and later
//! |       |-- source_store SourceStore  where the API keeps sources
//! |       |-- route_store RouteStore   role edge, where the route guard is on
//! |       |-- rate_limiter RateLimiter             role edge
//! |       |-- quarantine Quarantine               role edge
//! |       |-- quarantine_reaper QuarantineReaper  role edge
//! |       |-- dispatch Dispatch       role dispatch
//! |       |-- dedupe_sweeper DedupeSweeper
//! |       |-- scrubber Scrubber
//! |       `-- recounter Recounter
//! `-- front            one_for_one    10 in 10 s a child; survives core: it is how 503 gets said
//!     |-- control, admin              given by the adapters
//!     |-- batcher-1..n Batcher        role edge
//!     `-- ingest                      role edge, given by the adapters
//! ```
//!
//! Stop is start reversed: ingest, batchers, admin, control, recounter, scrubber, dedupe_sweeper, dispatch,
//! quarantine_reaper, quarantine, rate_limiter, route_store, source_store, writer, syncer, store.

mod keepers;

use std::sync::Arc;
use std::time::Duration;

use crate::dispatch::{Dispatch, DispatchArgs};
use crate::edge::quarantine::{Quarantine, QuarantineArgs};
use crate::edge::rate_limiter::{RateLimiter, RateLimiterArgs};
use crate::node::{Handles, NodeSettings, Ports};
use crate::ports::Clock;
use crate::queue::batcher::{Batcher, BatcherArgs};
use crate::queue::syncer::{Syncer, SyncerArgs};
use crate::queue::writer::{Writer, WriterArgs};
use crate::sources::SourceSetup;
use crate::store::{Store, StoreArgs};
use crate::supervision::{
    Backoff, ChildSpec, Exhausted, Intensity, Shutdown, Slot, Strategy, SupervisorArgs,
};
use crate::upkeep::dedupe_sweeper::{DedupeSweeper, DedupeSweeperArgs};
use crate::upkeep::quarantine_reaper::{QuarantineReaper, QuarantineReaperArgs};
use crate::upkeep::recounter::{Recounter, RecounterArgs};
use crate::upkeep::scrubber::{Scrubber, ScrubberArgs};

/// Wait before a child that failed to start again is tried once more.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// How long the pair of the queue may take to work through its mailbox.
const DRAIN_QUEUE: Duration = Duration::from_secs(10);

/// How long a batcher may take to hand over what it holds.
const DRAIN_BATCHER: Duration = Duration::from_secs(5);

/// How long the sweep of dedupe keys may take for the chunk it is at. One that has to be killed is found again.
const STOP_DEDUPE_SWEEPER: Duration = Duration::from_secs(1);

/// How long the scrubber may take to read the page it is at.
const STOP_SCRUBBER: Duration = Duration::from_secs(5);

/// How long the recounter may take to read the page it is at. One that has to be killed has changed nothing, or all it
/// was to.
const STOP_RECOUNTER: Duration = Duration::from_secs(1);

/// How long the limits may take to write what they were told last.
const STOP_LIMITS: Duration = Duration::from_secs(5);

/// How long the quarantine may take to write what it holds. Hooks whose fate is not settled by then are closed unanswered.
const DRAIN_QUARANTINE: Duration = Duration::from_secs(5);

/// How long the reaper may take for the chunk it is at.
const STOP_REAPER: Duration = Duration::from_secs(5);

/// How long the store may take to close.
const STOP_STORE: Duration = Duration::from_secs(30);

/// More than all of its children together: a supervisor that is killed kills its children unasked.
const STOP_SUPERVISOR: Duration = Duration::from_secs(180);

/// The children of `front` that the adapters bring, in start order.
pub struct Front {
    /// Started before the batchers, stopped after them: the control socket and the admin port.
    pub before: Vec<ChildSpec>,
    /// Started last, stopped first: whatever takes hooks in.
    pub after: Vec<ChildSpec>,
}

/// Lists the adapters' children afresh at every start of `front`.
pub type MakeFront = Arc<dyn Fn(&Handles) -> Front + Send + Sync>;

/// What every row of the table is made from.
#[derive(Clone)]
pub(crate) struct Tree {
    pub(crate) ports: Ports,
    /// What the Writer and dispatch stamp rows by.
    pub(crate) steady: Arc<dyn Clock>,
    pub(crate) settings: NodeSettings,
    pub(crate) sources: SourceSetup,
    pub(crate) handles: Handles,
    pub(crate) front: MakeFront,
}

impl Tree {
    pub(crate) fn node(&self) -> SupervisorArgs {
        let (core, front) = (self.clone(), self.clone());
        self.supervisor(
            "node",
            Strategy::OneForOne,
            Intensity { restarts: 3, within: Duration::from_secs(60) },
            Exhausted::Fail,
            vec![
                ChildSpec::supervisor("core", Shutdown::Stop(STOP_SUPERVISOR), move || core.core()),
                ChildSpec::supervisor("front", Shutdown::Stop(STOP_SUPERVISOR), move || {
                    front.front()
                }),
            ],
        )
    }

    fn core(&self) -> SupervisorArgs {
        let (queue, services) = (self.clone(), self.clone());
        self.supervisor(
            "core",
            Strategy::RestForOne,
            Intensity { restarts: 5, within: Duration::from_secs(60) },
            Exhausted::Fail,
            vec![
                self.store(),
                ChildSpec::supervisor("queue", Shutdown::Stop(STOP_SUPERVISOR), move || {
                    queue.queue()
                }),
                ChildSpec::supervisor("services", Shutdown::Stop(STOP_SUPERVISOR), move || {
                    services.services()
                }),
            ],
        )
    }

    fn queue(&self) -> SupervisorArgs {
        self.supervisor(
            "queue",
            Strategy::OneForAll,
            Intensity { restarts: 5, within: Duration::from_secs(10) },
            Exhausted::Fail,
            vec![self.syncer(), self.writer()],
        )
    }

    fn services(&self) -> SupervisorArgs {
        self.supervisor(
            "services",
            Strategy::OneForOne,
            Intensity { restarts: 20, within: Duration::from_secs(60) },
            Exhausted::RetryLater(Backoff::default()),
            self.services_of_roles()
                .into_iter()
                .chain([self.dedupe_sweeper(), self.scrubber(), self.recounter()])
                .collect(),
        )
    }

    fn services_of_roles(&self) -> Vec<ChildSpec> {
        let roles = self.settings.roles;
        // First, so that it has read the rows before dispatch looks for their sources.
        let mut children: Vec<_> =
            self.sources.store.iter().map(|setup| self.source_store(setup)).collect();
        if roles.edge {
            // Before anything that takes hooks in.
            children.extend(self.settings.routes.iter().map(|routes| self.route_store(routes)));
            children.extend([self.rate_limiter(), self.quarantine(), self.quarantine_reaper()]);
        }
        if roles.dispatch {
            children.push(self.dispatch());
        }
        children
    }

    fn front(&self) -> SupervisorArgs {
        let Front { before, after } = (self.front)(&self.handles);
        let batchers = self.handles.batchers.iter().enumerate();
        let batchers = batchers.map(|(ix, _)| self.batcher(ix));
        self.supervisor(
            "front",
            Strategy::OneForOne,
            Intensity { restarts: 10, within: Duration::from_secs(10) },
            Exhausted::RetryLater(Backoff::default()),
            before.into_iter().chain(batchers).chain(after).collect(),
        )
    }

    fn supervisor(
        &self,
        id: &'static str,
        strategy: Strategy,
        intensity: Intensity,
        exhausted: Exhausted,
        children: Vec<ChildSpec>,
    ) -> SupervisorArgs {
        let (board, retry_delay) = (self.handles.board.clone(), RETRY_DELAY);
        SupervisorArgs { id, board, strategy, intensity, exhausted, retry_delay, children }
    }

    fn store(&self) -> ChildSpec {
        let args = StoreArgs {
            config: self.settings.store.clone(),
            engine: Arc::clone(&self.ports.engine),
            entropy: Arc::clone(&self.ports.entropy),
            events: Arc::clone(&self.ports.events),
            handle: self.handles.store.clone(),
        };
        let slot = self.handles.store.slot().clone();
        ChildSpec::new("store", Shutdown::Stop(STOP_STORE), &slot, move || (Store, args.clone()))
    }

    fn syncer(&self) -> ChildSpec {
        let args = SyncerArgs {
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            ledger: self.handles.ledger.clone(),
            mark: self.handles.mark.clone(),
            writer: self.handles.writer.clone(),
            dispatch: self.handles.dispatch.clone(),
            handle: self.handles.syncer.clone(),
        };
        let slot = self.handles.syncer.slot().clone();
        ChildSpec::new("syncer", Shutdown::Drain(DRAIN_QUEUE), &slot, move || {
            (Syncer, args.clone())
        })
    }

    fn writer(&self) -> ChildSpec {
        let args = WriterArgs {
            config: self.settings.batcher.clone(),
            tenants: self.settings.tenants.clone(),
            dedupe: self.settings.dedupe.clone(),
            store_config: self.settings.store.clone(),
            archive: self.settings.roles.storage,
            clock: Arc::clone(&self.steady),
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            ledger: self.handles.ledger.clone(),
            mark: self.handles.mark.clone(),
            joined: self.handles.joined.clone(),
            syncer: self.handles.syncer.clone(),
            handle: self.handles.writer.clone(),
        };
        let slot = self.handles.writer.slot().clone();
        ChildSpec::new("writer", Shutdown::Drain(DRAIN_QUEUE), &slot, move || {
            (Writer, args.clone())
        })
    }

    fn rate_limiter(&self) -> ChildSpec {
        let args = RateLimiterArgs {
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            handle: self.handles.limits.clone(),
        };
        let slot = self.handles.limits.slot().clone();
        ChildSpec::new("rate_limiter", Shutdown::Drain(STOP_LIMITS), &slot, move || {
            (RateLimiter, args.clone())
        })
    }

    fn quarantine(&self) -> ChildSpec {
        let args = QuarantineArgs {
            config: self.settings.store.clone(),
            store: self.handles.store.clone(),
            handle: self.handles.quarantine.clone(),
        };
        let slot = self.handles.quarantine.slot().clone();
        ChildSpec::new("quarantine", Shutdown::Drain(DRAIN_QUARANTINE), &slot, move || {
            (Quarantine, args.clone())
        })
    }

    fn quarantine_reaper(&self) -> ChildSpec {
        let args = QuarantineReaperArgs {
            retention_days: self.settings.quarantine.retention_days,
            clock: Arc::clone(&self.ports.clock),
            events: Arc::clone(&self.ports.events),
            quarantine: self.handles.quarantine.clone(),
        };
        let slot = self.handles.reaper.clone();
        ChildSpec::new("quarantine_reaper", Shutdown::Stop(STOP_REAPER), &slot, move || {
            (QuarantineReaper, args.clone())
        })
    }

    fn dispatch(&self) -> ChildSpec {
        let config = self.settings.dispatch.clone();
        let drain = Duration::from_millis(config.attempt_timeout_ms);
        let args = DispatchArgs {
            config,
            instance: self.settings.instance.clone(),
            clock: Arc::clone(&self.steady),
            entropy: Arc::clone(&self.ports.entropy),
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            mark: self.handles.mark.clone(),
            joined: self.handles.joined.clone(),
            sources: self.handles.sources.table().clone(),
            version: self.settings.value_version,
            handle: self.handles.dispatch.clone(),
        };
        let slot = self.handles.dispatch.slot().clone();
        ChildSpec::new("dispatch", Shutdown::Drain(drain), &slot, move || (Dispatch, args.clone()))
    }

    fn dedupe_sweeper(&self) -> ChildSpec {
        let slot = Slot::default();
        let args = DedupeSweeperArgs {
            config: self.settings.dedupe.clone(),
            clock: Arc::clone(&self.steady),
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            writer: self.handles.writer.clone(),
        };
        let shutdown = Shutdown::Stop(STOP_DEDUPE_SWEEPER);
        ChildSpec::new("dedupe_sweeper", shutdown, &slot, move || (DedupeSweeper, args.clone()))
    }

    fn scrubber(&self) -> ChildSpec {
        let args = ScrubberArgs {
            config: self.settings.store.clone(),
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            handle: self.handles.scrub.clone(),
        };
        let slot = self.handles.scrub.slot().clone();
        ChildSpec::new("scrubber", Shutdown::Stop(STOP_SCRUBBER), &slot, move || {
            (Scrubber, args.clone())
        })
    }

    fn recounter(&self) -> ChildSpec {
        let args = RecounterArgs {
            events: Arc::clone(&self.ports.events),
            store: self.handles.store.clone(),
            handle: self.handles.recount.clone(),
        };
        let slot = self.handles.recount.slot().clone();
        ChildSpec::new("recounter", Shutdown::Stop(STOP_RECOUNTER), &slot, move || {
            (Recounter, args.clone())
        })
    }

    fn batcher(&self, ix: usize) -> ChildSpec {
        let handle = &self.handles.batchers[ix];
        let args = BatcherArgs {
            config: self.settings.batcher.clone(),
            version: self.settings.value_version,
            handle: handle.clone(),
            writer: self.handles.writer.clone(),
        };
        let id = format!("batcher-{}", ix + 1);
        ChildSpec::new(&id, Shutdown::Drain(DRAIN_BATCHER), handle.slot(), move || {
            (Batcher, args.clone())
        })
    }
}
