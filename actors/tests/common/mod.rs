//! A whole node on a simulated disk, without its front: hooks go in through the batchers.
// Every test file compiles this for itself and uses its part of it.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods
)]

pub mod late;
pub mod probe;

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::dispatch::DispatchConfig;
use ankusa_actors::edge::{IngestConfig, QuarantineConfig, RateLimitsConfig, Routing};
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::forward::ForwardPolicy;
use ankusa_actors::model::ids::{HookId, Seq};
use ankusa_actors::model::invariants::{self, Dump};
use ankusa_actors::model::keys::{HookKey, is_sentinel};
use ankusa_actors::model::rate_limit::Limits;
use ankusa_actors::model::source::OnVerifyFailure;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::model::verify::Verifier;
use ankusa_actors::node::{Node, NodeSettings, Ports, Roles};
use ankusa_actors::ports::sim::{JournalEvents, SimClock, SimDisk, SimEngine, SimEntropy};
use ankusa_actors::ports::{Clock, Engine, Entropy, Pair};
use ankusa_actors::queue::{
    BatcherConfig, CommitAnswer, DedupeConfig, NewHook, Refusal, TenantsConfig,
};
use ankusa_actors::sources::{
    Answers, LaneRules, Source, SourceSetup, Sources, StoreSetup, Switches,
};
use ankusa_actors::store::StoreConfig;
use ankusa_actors::tree::{Front, MakeFront};
use bytes::Bytes;
use tokio::task::JoinHandle;

pub const HTTP: &str = "Elixir.Ankusa.Sink.Http";
pub const EPOCH_MS: u64 = 1_700_000_000_000;

/// What a test changes of a node before it starts. At the end of the test the rows on its disk must be sound.
pub struct Bench {
    pub disk: Arc<SimDisk>,
    /// What opens the store, where that is not plainly the disk.
    pub engine: Option<Arc<dyn Engine>>,
    pub front: MakeFront,
    pub clock: Arc<SimClock>,
    pub entropy: Arc<SimEntropy>,
    pub events: Arc<JournalEvents>,
    pub settings: NodeSettings,
    pub sources: Arc<Sources>,
    /// How sources of the API are kept, if they are.
    pub stored_sources: Option<StoreSetup>,
    /// False for tests that put rows on the disk which no node ever would.
    pub stays_sound: bool,
}

impl Default for Bench {
    fn default() -> Self {
        Self::on(&SimDisk::empty())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        if self.stays_sound && !std::thread::panicking() {
            assert_sound(&self.disk);
        }
    }
}

impl Bench {
    pub fn on(disk: &Arc<SimDisk>) -> Self {
        Self {
            disk: Arc::clone(disk),
            engine: None,
            front: Arc::new(|_: &_| Front { before: Vec::new(), after: Vec::new() }),
            clock: Arc::new(SimClock::at(EPOCH_MS)),
            entropy: Arc::new(SimEntropy::seeded(7)),
            events: Arc::default(),
            settings: NodeSettings {
                instance: "test".to_owned(),
                roles: Roles { edge: true, dispatch: false, storage: false },
                value_version: ValueVersion::V0,
                ingest: IngestConfig {
                    routing: Routing::Path,
                    prefix: "/webhooks".to_owned(),
                    max_body_bytes: 1 << 20,
                    trusted_proxies: Arc::default(),
                },
                rate_limits: RateLimitsConfig::default(),
                quarantine: QuarantineConfig::default(),
                routes: None,
                batcher: BatcherConfig::default(),
                tenants: TenantsConfig::default(),
                dedupe: DedupeConfig::default(),
                store: StoreConfig::default(),
                dispatch: DispatchConfig::default(),
            },
            sources: Arc::default(),
            stored_sources: None,
            stays_sound: true,
        }
    }

    pub async fn start(&self) -> Node {
        self.try_start().await.unwrap()
    }

    pub async fn try_start(&self) -> Result<Node, String> {
        let on_disk = || Arc::new(SimEngine::on(&self.disk)) as Arc<dyn Engine>;
        let ports = Ports {
            engine: self.engine.clone().unwrap_or_else(on_disk),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            entropy: Arc::clone(&self.entropy) as Arc<dyn Entropy>,
            events: Arc::clone(&self.events) as _,
        };
        let (configured, front) = (Arc::clone(&self.sources), Arc::clone(&self.front));
        let sources = SourceSetup { configured, store: self.stored_sources.clone() };
        let started = Node::start(ports, self.settings.clone(), sources, front);
        started.await.map_err(|error| error.to_string())
    }

    pub fn hook(&self, tenant: &str, body: &str) -> NewHook {
        let now_ms = self.clock.now_ms();
        let envelope = Envelope {
            id: HookId::v7(now_ms, self.entropy.bits()),
            source_id: "src".to_owned(),
            tenant_id: Some(tenant.to_owned()),
            received_at_ms: now_ms,
            method: "POST".to_owned(),
            path: "/webhooks/src".to_owned(),
            headers: Vec::new(),
            content_type: None,
            body: Bytes::copy_from_slice(body.as_bytes()),
            dedupe_key: None,
            verification: None,
        };
        NewHook { envelope, sinks: Arc::from([HTTP]), lanes: Vec::new(), key_ttl_ms: None }
    }

    /// Sends a hook and waits for what its caller is told.
    pub async fn send(&self, node: &Node, hook: NewHook) -> CommitAnswer {
        submit(node, hook).await
    }

    /// Sends a hook in the background.
    pub fn sending(&self, node: &Node, hook: NewHook) -> JoinHandle<CommitAnswer> {
        let batcher = node.handles().batchers[0].clone();
        tokio::spawn(async move {
            match batcher.submit(hook) {
                Ok((waiting, deadline)) => waiting.answer(deadline).await,
                Err(refusal) => CommitAnswer::Refused(refusal),
            }
        })
    }

    pub async fn acked(&self, node: &Node, tenant: &str, body: &str) -> Seq {
        match self.send(node, self.hook(tenant, body)).await {
            CommitAnswer::Committed(seq) => seq,
            other @ (CommitAnswer::Duplicate(_)
            | CommitAnswer::Refused(_)
            | CommitAnswer::Unknown) => {
                panic!("{body}: {other:?}")
            }
        }
    }

    /// Seq and body of every stored hook, as readers see them.
    pub fn stored(&self) -> Vec<(u64, String)> {
        hooks(&self.disk.rows(Cf::Hooks))
    }

    /// Seq and body of every hook that a power cut would leave.
    pub fn durable(&self) -> Vec<(u64, String)> {
        hooks(&self.disk.durable_rows(Cf::Hooks))
    }

    /// Hooks of every group that was applied, in order.
    pub fn group_sizes(&self) -> Vec<u64> {
        let hooks = |line: &String| {
            let size = line.strip_prefix("CommitApplied { hooks: ")?.split(',').next()?;
            size.parse().ok()
        };
        self.events.lines().iter().filter_map(hooks).collect()
    }

    pub fn rows(&self, cf: Cf) -> usize {
        let rows = self.disk.rows(cf);
        rows.iter().filter(|(key, value)| !is_sentinel(cf, key, value)).count()
    }
}

async fn submit(node: &Node, hook: NewHook) -> CommitAnswer {
    match node.handles().batchers[0].submit(hook) {
        Ok((waiting, deadline)) => waiting.answer(deadline).await,
        Err(refusal) => CommitAnswer::Refused(refusal),
    }
}

fn hooks(rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<(u64, String)> {
    let hooks = rows.iter().filter(|(key, value)| !is_sentinel(Cf::Hooks, key, value));
    hooks
        .map(|(key, value)| {
            let envelope = Envelope::decode(value).unwrap();
            (HookKey::decode(key).unwrap().0.0, String::from_utf8(envelope.body.to_vec()).unwrap())
        })
        .collect()
}

/// A source that verifies nothing and delivers to nobody's sinks: its hooks are owed to `modules` all the same.
pub fn open_source(id: &str, tenant: &str, modules: &[&'static str]) -> Source {
    Source {
        id: id.to_owned(),
        tenant: tenant.to_owned(),
        verifier: Verifier::None,
        passed: Verifier::None.passed(),
        answers: Answers::default(),
        on_verify_failure: OnVerifyFailure::Reject,
        sinks: Vec::new(),
        modules: modules.iter().copied().collect(),
        lanes: LaneRules::default(),
        dedupe: None,
        forward: ForwardPolicy::default(),
        trust_url_tenant: false,
        rate_limit: Limits::default(),
        switches: Switches::default(),
    }
}

/// What readers see and what a power cut would leave: neither may ever break an invariant.
pub fn assert_sound(disk: &SimDisk) {
    let families = |rows: &dyn Fn(Cf) -> Vec<Pair>| {
        let all = Cf::ALL
            .into_iter()
            .flat_map(|cf| rows(cf).into_iter().map(move |(key, value)| (cf, key, value)));
        Dump::from_rows(all)
    };
    let (seen, durable) = (families(&|cf| disk.rows(cf)), families(&|cf| disk.durable_rows(cf)));
    assert_eq!(invariants::check(&seen), [], "as readers see it");
    assert_eq!(invariants::check(&durable), [], "as a power cut would leave it");
}

pub const UNAVAILABLE: CommitAnswer = CommitAnswer::Refused(Refusal::StoreUnavailable);
pub const OVERLOAD: CommitAnswer = CommitAnswer::Refused(Refusal::Overload);

/// Virtual time.
pub async fn secs(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub async fn millis(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
