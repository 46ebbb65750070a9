//! The node's own tree inside this process: its store, its Writer, its dispatch, and hooks handed to the batchers as the
//! edge does after it has checked them. No sockets, so what is measured is the queue.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ankusa_actors::dispatch::DispatchConfig;
use ankusa_actors::edge::{IngestConfig, QuarantineConfig, RateLimitsConfig, Routing};
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::forward::ForwardPolicy;
use ankusa_actors::model::ids::HookId;
use ankusa_actors::model::rate_limit::Limits;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::model::verify::Verifier;
use ankusa_actors::node::{Node, NodeSettings, Ports, Roles};
use ankusa_actors::ports::{Clock, Delivery, Event, Events, Outcome, Sink};
use ankusa_actors::queue::{BatcherConfig, DedupeConfig, NewHook, TenantsConfig};
use ankusa_actors::sources::{Answers, LaneRules, OnVerifyFailure, Source, Sources, Switches};
use ankusa_actors::store::StoreConfig;
use ankusa_actors::tree::Front;
use ankusa_node::host::{HostClock, HostEntropy};
use ankusa_node::rocks::{RocksEngine, RocksOptions};
use async_trait::async_trait;
use bytes::Bytes;

use super::timed::{ScanTimes, TimedEngine};
use crate::bench::requests::body;
use crate::drill::CannotInject;

/// The module that rows of the bench name.
pub(super) const MODULE: &str = "Elixir.Ankusa.Sink.Http";

/// The source whose sink answers at once.
pub(super) const QUICK: &str = "quick";

/// The source whose sink never answers.
pub(super) const HANGING: &str = "hanging";

/// Longest wait for the tree to stop. Attempts of the sink that hangs are cut off.
const STOP_WITHIN: Duration = Duration::from_secs(60);

/// Nobody listens.
struct Silent;

impl Events for Silent {
    fn emit(&self, _: &Event<'_>) {}
}

/// Takes every hook at once.
#[derive(Debug, Default)]
pub(super) struct Quick {
    taken: AtomicU64,
}

impl Quick {
    pub(super) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }
}

#[async_trait]
impl Sink for Quick {
    fn module(&self) -> &'static str {
        MODULE
    }

    fn kind(&self) -> &'static str {
        "http"
    }

    async fn deliver(&self, _: &Delivery) -> Outcome {
        self.taken.fetch_add(1, Ordering::Relaxed);
        Outcome::Ok
    }
}

/// Takes none.
struct Hanging;

#[async_trait]
impl Sink for Hanging {
    fn module(&self) -> &'static str {
        MODULE
    }

    fn kind(&self) -> &'static str {
        "http"
    }

    async fn deliver(&self, _: &Delivery) -> Outcome {
        std::future::pending().await
    }
}

/// A running tree.
pub(super) struct Tree {
    node: Node,
    pub(super) quick: Arc<Quick>,
    pub(super) scans: ScanTimes,
    modules: Arc<[&'static str]>,
    bodies: Vec<Bytes>,
    clock: HostClock,
    number: AtomicU64,
}

impl Tree {
    /// Starts one over the store in `directory`.
    pub(super) async fn start(directory: &Path, roles: Roles) -> Result<Self, CannotInject> {
        let (quick, scans) = (Arc::new(Quick::default()), ScanTimes::default());
        let engine = RocksEngine::new(directory, RocksOptions::default());
        let ports = Ports {
            engine: Arc::new(TimedEngine::over(engine, scans.clone())),
            clock: Arc::new(HostClock),
            entropy: Arc::new(HostEntropy),
            events: Arc::new(Silent),
        };
        let sources: Sources =
            [source(QUICK, Arc::clone(&quick) as _), source(HANGING, Arc::new(Hanging))]
                .into_iter()
                .collect();
        let front = Arc::new(|_: &_| Front { before: Vec::new(), after: Vec::new() });
        let node = Node::start(ports, settings(roles), Arc::new(sources), front).await;
        let node = node.map_err(|error| CannotInject(format!("cannot start the tree: {error}")))?;
        let modules = [MODULE].into_iter().collect();
        let bodies = (0..64).map(|number| Bytes::from(body(number))).collect();
        let number = AtomicU64::new(0);
        Ok(Self { node, quick, scans, modules, bodies, clock: HostClock, number })
    }

    pub(super) fn store(&self) -> &ankusa_actors::store::StoreHandle {
        &self.node.handles().store
    }

    /// Has a hook committed and waits until it is acked. False if it was refused.
    pub(super) async fn ack(&self, source: &str, tenant: &str) -> bool {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let at =
            |count: usize| usize::try_from(number).unwrap_or(0).checked_rem(count).unwrap_or(0);
        let batchers = &self.node.handles().batchers;
        let body = self.bodies.get(at(self.bodies.len())).cloned().unwrap_or_default();
        let envelope = envelope(number, self.clock.now_ms(), source, tenant, body);
        let hook = NewHook {
            envelope,
            sinks: Arc::clone(&self.modules),
            lanes: Vec::new(),
            key_ttl_ms: None,
        };
        let Some(Ok((waiting, deadline))) =
            batchers.get(at(batchers.len())).map(|batcher| batcher.submit(hook))
        else {
            return false;
        };
        let answer = waiting.answer(deadline).await;
        matches!(answer, ankusa_actors::queue::CommitAnswer::Committed(_))
    }

    /// Stops it, the store last.
    pub(super) async fn stop(self) -> Result<(), CannotInject> {
        if self.node.stop(STOP_WITHIN).await {
            Ok(())
        } else {
            Err(CannotInject(format!("cannot stop the tree within {STOP_WITHIN:?}")))
        }
    }
}

/// A hook as a provider's push makes one, the headers of the bench's requests included.
pub(super) fn envelope(
    number: u64,
    now_ms: u64,
    source: &str,
    tenant: &str,
    body: Bytes,
) -> Envelope {
    let header = |name: &'static str, value: &'static str| {
        (Bytes::from_static(name.as_bytes()), Bytes::from_static(value.as_bytes()))
    };
    Envelope {
        id: HookId::v7(now_ms, u128::from(number)),
        source_id: source.to_owned(),
        tenant_id: Some(tenant.to_owned()),
        received_at_ms: now_ms,
        method: "POST".to_owned(),
        path: "/webhooks/github".to_owned(),
        headers: vec![
            header("user-agent", "GitHub-Hookshot/044aadd"),
            header("content-type", "application/json"),
            header("x-github-event", "push"),
        ],
        content_type: Some(Bytes::from_static(b"application/json")),
        body,
        dedupe_key: None,
        verification: None,
    }
}

fn source(id: &str, sink: Arc<dyn Sink>) -> Source {
    let sinks = vec![sink];
    Source {
        id: id.to_owned(),
        tenant: "default".to_owned(),
        verifier: Verifier::None,
        passed: Verifier::None.passed(),
        answers: Answers::default(),
        on_verify_failure: OnVerifyFailure::Reject,
        modules: Source::modules_of(&sinks),
        sinks,
        lanes: LaneRules::default(),
        dedupe: None,
        forward: ForwardPolicy::All,
        trust_url_tenant: false,
        rate_limit: Limits::default(),
        switches: Switches::default(),
    }
}

fn settings(roles: Roles) -> NodeSettings {
    NodeSettings {
        instance: "bench".to_owned(),
        roles,
        value_version: ValueVersion::V0,
        ingest: IngestConfig {
            routing: Routing::Path,
            prefix: String::new(),
            max_body_bytes: 1 << 20,
            trusted_proxies: Arc::default(),
        },
        rate_limits: RateLimitsConfig::default(),
        quarantine: QuarantineConfig::default(),
        routes: None,
        batcher: BatcherConfig::default(),
        dedupe: DedupeConfig::default(),
        tenants: TenantsConfig::default(),
        // Nobody but what is measured reads.
        store: StoreConfig { scrub_bytes_per_s: 0, ..StoreConfig::default() },
        // As a node with a sink that hangs should be configured: it does not hold every slot.
        dispatch: DispatchConfig { sink_concurrency: Some(16), ..DispatchConfig::default() },
    }
}
