//! A whole node with probes for sinks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::dispatch::{DispatchConfig, DispatchSnapshot};
use ankusa_actors::edge::{IngestConfig, QuarantineConfig, RateLimitsConfig, Routing};
use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::delivery::DeliveryRow;
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::model::forward::ForwardPolicy;
use ankusa_actors::model::ids::{HookId, Seq, TenantOrd};
use ankusa_actors::model::invariants::{Dump, check};
use ankusa_actors::model::keys::{CounterKey, is_sentinel};
use ankusa_actors::model::ordering::OrderBy;
use ankusa_actors::model::rate_limit::Limits;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::model::verify::Verifier;
use ankusa_actors::node::{Node, NodeSettings, Ports, Roles};
use ankusa_actors::ports::sim::{JournalEvents, SimClock, SimDisk, SimEngine, SimEntropy, SimSink};
use ankusa_actors::ports::{
    Clock, Delivery, DiskRoom, Engine, Entropy, Kv, KvError, Lane, OpenError, Outcome, Sink,
};
use ankusa_actors::queue::{BatcherConfig, CommitAnswer, DedupeConfig, NewHook, TenantsConfig};
use ankusa_actors::sources::{Answers, LaneRules, OnVerifyFailure, Source, Sources, Switches};
use ankusa_actors::store::StoreConfig;
use ankusa_actors::tree::Front;
use async_trait::async_trait;
use bytes::Bytes;

pub(crate) const HTTP: &str = "Elixir.Ankusa.Sink.Http";
pub(crate) const LOG: &str = "Elixir.Ankusa.Sink.Log";

/// The date at the start: the first millisecond of a second.
pub(crate) const EPOCH_MS: u64 = 1_700_000_000_000;

/// Chance that always falls the same way.
pub(crate) struct Loaded(pub(crate) f64);

impl Entropy for Loaded {
    fn bits(&self) -> u128 {
        0
    }

    fn unit(&self) -> f64 {
        self.0
    }
}

/// A sink with a script, which also notes when it was asked.
pub(crate) struct Probe {
    pub(crate) script: SimSink,
    clock: Arc<SimClock>,
    /// `<ms since the start> <body> #<attempt>`.
    asked: Mutex<Vec<String>>,
    panics: Mutex<Vec<String>>,
}

impl Probe {
    /// The next attempt of the hook with this body panics.
    pub(crate) fn panic_at(&self, body: &str) {
        self.panics.lock().unwrap().push(body.to_owned());
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    /// Without the times.
    pub(crate) fn attempts(&self) -> Vec<String> {
        self.asked().iter().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect()
    }

    /// When, in milliseconds since the start.
    pub(crate) fn times(&self) -> Vec<u64> {
        self.asked().iter().map(|line| line.split_once(' ').unwrap().0.parse().unwrap()).collect()
    }
}

#[async_trait]
impl Sink for Probe {
    fn module(&self) -> &'static str {
        self.script.module()
    }

    fn kind(&self) -> &'static str {
        self.script.kind()
    }

    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let body = String::from_utf8(delivery.envelope.body.to_vec()).unwrap();
        let at_ms = self.clock.now_ms().saturating_sub(EPOCH_MS);
        self.asked.lock().unwrap().push(format!("{at_ms} {body} #{}", delivery.attempt));
        let panics = {
            let mut panics = self.panics.lock().unwrap();
            let at = panics.iter().position(|panic| *panic == body);
            at.map(|at| panics.remove(at)).is_some()
        };
        if panics {
            // As a panic does, without the report of one.
            std::panic::resume_unwind(Box::new("told to panic"));
        }
        self.script.deliver(delivery).await
    }
}

/// The disk as one process sees it: once that is dead it opens nothing any more, whatever of it still runs here.
struct Mounted {
    engine: SimEngine,
    alive: Arc<AtomicBool>,
}

impl Mounted {
    fn dead(&self) -> OpenError {
        let path = "sim/store".into();
        OpenError { path, class: FailureClass::Other, detail: "this process is dead".to_owned() }
    }
}

#[async_trait]
impl Engine for Mounted {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        if !self.alive.load(Ordering::Relaxed) {
            return Err(self.dead());
        }
        let kv = self.engine.open().await?;
        // It may have died meanwhile.
        if self.alive.load(Ordering::Relaxed) { Ok(kv) } else { Err(self.dead()) }
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        self.engine.close(kv).await;
    }

    async fn probe_disk(&self) -> Result<(), KvError> {
        self.engine.probe_disk().await
    }

    async fn room(&self) -> Result<DiskRoom, KvError> {
        self.engine.room().await
    }

    async fn set_reserve(&self, bytes: u64) -> Result<(), KvError> {
        self.engine.set_reserve(bytes).await
    }
}

pub(crate) struct World {
    pub(crate) disk: Arc<SimDisk>,
    pub(crate) clock: Arc<SimClock>,
    pub(crate) entropy: Arc<dyn Entropy>,
    pub(crate) events: Arc<JournalEvents>,
    pub(crate) dispatch: DispatchConfig,
    pub(crate) roles: Roles,
    pub(crate) sources: Arc<Sources>,
    pub(crate) probes: Vec<Arc<Probe>>,
    alive: Arc<AtomicBool>,
    ids: AtomicU64,
}

impl World {
    /// Sources with so many HTTP sinks each, named `s0`, `s1` ...
    pub(crate) fn new(sinks: &[usize]) -> Self {
        let modules: Vec<Vec<_>> = sinks.iter().map(|count| vec![HTTP; *count]).collect();
        Self::with(SimDisk::empty(), Arc::new(SimClock::at(EPOCH_MS)), &modules)
    }

    fn with(disk: Arc<SimDisk>, clock: Arc<SimClock>, modules: &[Vec<&'static str>]) -> Self {
        let mut probes = Vec::new();
        let mut source = |(ix, modules): (usize, &Vec<&'static str>)| {
            let of_source: Vec<_> = modules.iter().map(|module| probe(&clock, module)).collect();
            probes.extend(of_source.iter().cloned());
            source(ix, of_source)
        };
        let sources = modules.iter().enumerate().map(&mut source).collect();
        Self {
            disk,
            clock,
            entropy: Arc::new(SimEntropy::seeded(7)),
            events: Arc::default(),
            dispatch: DispatchConfig::default(),
            roles: Roles { edge: true, dispatch: true, storage: false },
            sources: Arc::new(sources),
            probes,
            alive: Arc::new(AtomicBool::new(true)),
            ids: AtomicU64::new(1),
        }
    }

    /// Another process on the same disk, perhaps with other sinks.
    pub(crate) fn next_life(&self, modules: &[Vec<&'static str>]) -> Self {
        let next = Self::with(Arc::clone(&self.disk), Arc::clone(&self.clock), modules);
        next.ids.store(self.ids.load(Ordering::Relaxed), Ordering::Relaxed);
        Self {
            dispatch: self.dispatch.clone(),
            entropy: Arc::clone(&self.entropy),
            roles: self.roles,
            ..next
        }
    }

    /// Says what the sinks of a source take their hooks in order by.
    pub(crate) fn order(&mut self, source: usize, by: &[Option<OrderBy>]) {
        let id = format!("s{source}");
        let ordered = |source: &Arc<Source>| {
            let by =
                if source.id == id { LaneRules::new(by.to_vec()) } else { source.lanes.clone() };
            Source { lanes: by, ..of_sinks(source.id.clone(), source.sinks.clone()) }
        };
        self.sources = Arc::new(self.sources.iter().map(ordered).collect());
    }

    /// The process dies; the machine does not.
    pub(crate) fn kill(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.disk.kill();
    }

    /// The machine dies.
    pub(crate) fn cut_power(&self) {
        self.alive.store(false, Ordering::Relaxed);
        self.disk.cut_power();
    }

    pub(crate) async fn start(&self) -> Node {
        let ports = Ports {
            engine: Arc::new(Mounted {
                engine: SimEngine::on(&self.disk),
                alive: Arc::clone(&self.alive),
            }),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            entropy: Arc::clone(&self.entropy),
            events: Arc::clone(&self.events) as _,
        };
        let settings = NodeSettings {
            instance: "test".to_owned(),
            roles: self.roles,
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
            tenants: TenantsConfig::default(),
            dedupe: DedupeConfig::default(),
            // Nobody but dispatch reads.
            store: StoreConfig { scrub_bytes_per_s: 0, ..StoreConfig::default() },
            dispatch: self.dispatch.clone(),
        };
        let front = Arc::new(|_: &_| Front { before: Vec::new(), after: Vec::new() });
        Node::start(ports, settings, Arc::clone(&self.sources), front).await.unwrap()
    }

    pub(crate) fn probe(&self) -> &Probe {
        &self.probes[0]
    }

    fn hook(&self, source: usize, tenant: &str, body: &str) -> NewHook {
        let now_ms = self.clock.now_ms();
        let random = self.ids.fetch_add(1, Ordering::Relaxed);
        let source_id = format!("s{source}");
        let source = Arc::clone(self.sources.get(&source_id).unwrap());
        let (sinks, body) = (Arc::clone(&source.modules), body.as_bytes());
        let lanes = source.lanes.lanes(&source_id, &[], body);
        let envelope = Envelope {
            id: HookId::v7(now_ms, u128::from(random)),
            source_id,
            tenant_id: Some(tenant.to_owned()),
            received_at_ms: now_ms,
            method: "POST".to_owned(),
            path: "/s".to_owned(),
            headers: Vec::new(),
            content_type: Some(Bytes::from_static(b"text/plain")),
            body: Bytes::copy_from_slice(body),
            dedupe_key: None,
            verification: None,
        };
        NewHook { envelope, sinks, lanes, key_ttl_ms: None }
    }

    /// Commits a hook of the first source and the tenant `acme`.
    pub(crate) async fn send(&self, node: &Node, body: &str) -> Seq {
        self.send_to(node, 0, "acme", body).await
    }

    pub(crate) async fn send_to(
        &self,
        node: &Node,
        source: usize,
        tenant: &str,
        body: &str,
    ) -> Seq {
        match self.try_send_to(node, source, tenant, body).await {
            CommitAnswer::Committed(seq) => seq,
            answer @ (CommitAnswer::Duplicate(_)
            | CommitAnswer::Refused(_)
            | CommitAnswer::Unknown) => {
                panic!("{body}: {answer:?}")
            }
        }
    }

    pub(crate) async fn try_send_to(
        &self,
        node: &Node,
        source: usize,
        tenant: &str,
        body: &str,
    ) -> CommitAnswer {
        let hook = self.hook(source, tenant, body);
        match node.handles().batchers[0].submit(hook) {
            Ok((waiting, deadline)) => waiting.answer(deadline).await,
            Err(refusal) => CommitAnswer::Refused(refusal),
        }
    }

    /// Commits hooks of the first source and the tenant `acme` with these bodies, in this order.
    pub(crate) async fn send_all<T: AsRef<str>>(&self, node: &Node, bodies: &[T]) {
        let mut waiting = Vec::new();
        for body in bodies {
            let hook = self.hook(0, "acme", body.as_ref());
            waiting.push(node.handles().batchers[0].submit(hook).unwrap());
        }
        for (waiting, deadline) in waiting {
            let answer = waiting.answer(deadline).await;
            assert!(matches!(answer, CommitAnswer::Committed(_)), "{answer:?}");
        }
    }

    /// Commits `count` hooks at once, with bodies `<prefix>0`, `<prefix>1` ...
    pub(crate) async fn send_many(&self, node: &Node, source: usize, tenant: &str, count: usize) {
        let mut waiting = Vec::new();
        for ix in 0..count {
            let hook = self.hook(source, tenant, &format!("{tenant}{ix}"));
            waiting.push(node.handles().batchers[0].submit(hook).unwrap());
        }
        for (waiting, deadline) in waiting {
            let answer = waiting.answer(deadline).await;
            assert!(matches!(answer, CommitAnswer::Committed(_)), "{answer:?}");
        }
    }

    pub(crate) fn snapshot(&self, node: &Node) -> DispatchSnapshot {
        node.handles().dispatch.snapshot()
    }

    /// Holds every row of the store against the invariants.
    pub(crate) fn is_sound(&self) {
        let rows = Cf::ALL.into_iter().flat_map(|cf| {
            self.disk.rows(cf).into_iter().map(move |(key, value)| (cf, key, value))
        });
        let violations = check(&Dump::from_rows(rows));
        let lines: Vec<String> = violations.iter().map(ToString::to_string).collect();
        assert_eq!(lines, Vec::<String>::new());
    }

    /// One of the node's counters.
    pub(crate) fn count(&self, field: Field) -> i64 {
        let key = CounterKey { tenant: TenantOrd::NODE, field }.encode();
        let rows = self.disk.rows(Cf::Counters);
        let row = rows.iter().find(|(at, _)| *at == key);
        row.map_or(0, |(_, value)| counters::read(value).unwrap())
    }

    /// The tags of the rows of the index, one each.
    pub(crate) fn index(&self) -> String {
        let rows = self.disk.rows(Cf::Index);
        let real = rows.iter().filter(|(key, value)| !is_sentinel(Cf::Index, key, value));
        real.map(|(key, _)| char::from(key[0])).collect()
    }

    pub(crate) fn rows(&self) -> Vec<DeliveryRow> {
        let rows = self.disk.rows(Cf::Deliveries);
        rows.iter().filter_map(|(_, value)| DeliveryRow::decode(value).ok()).collect()
    }

    pub(crate) fn hooks(&self) -> usize {
        self.disk.rows(Cf::Hooks).len()
    }

    /// Writes past everybody, as a release with a bug would.
    pub(crate) async fn write(&self, node: &Node, batch: Batch) {
        node.handles().store.apply(batch, Lane::Commit).await.unwrap();
    }

    /// What happened to deliveries, without how long it took.
    pub(crate) fn delivered(&self) -> Vec<String> {
        let lines = self.events.lines().into_iter();
        let delivered = lines.filter(|line| line.starts_with("De"));
        delivered.map(|line| line.split(", took").next().unwrap().to_owned()).collect()
    }
}

fn probe(clock: &Arc<SimClock>, module: &'static str) -> Arc<Probe> {
    let kind = if module == HTTP { "http" } else { "log" };
    Arc::new(Probe {
        script: SimSink::new(module, kind),
        clock: Arc::clone(clock),
        asked: Mutex::default(),
        panics: Mutex::default(),
    })
}

fn source(ix: usize, probes: Vec<Arc<Probe>>) -> Source {
    let sinks = probes.into_iter().map(|probe| probe as Arc<dyn Sink>);
    of_sinks(format!("s{ix}"), sinks.collect())
}

fn of_sinks(id: String, sinks: Vec<Arc<dyn Sink>>) -> Source {
    Source {
        id,
        tenant: "acme".to_owned(),
        verifier: Verifier::None,
        passed: Verifier::None.passed(),
        answers: Answers::default(),
        on_verify_failure: OnVerifyFailure::Reject,
        modules: Source::modules_of(&sinks),
        lanes: LaneRules::default(),
        dedupe: None,
        sinks,
        forward: ForwardPolicy::All,
        trust_url_tenant: false,
        rate_limit: Limits::default(),
        switches: Switches::default(),
    }
}

pub(crate) fn retry(reason: &str) -> Outcome {
    Outcome::Retry(reason.to_owned())
}

/// Long enough for everything to come to rest: markers too.
pub(crate) async fn rest() {
    secs(40).await;
}

/// Virtual time.
pub(crate) async fn secs(seconds: u64) {
    tokio::time::sleep(Duration::from_secs(seconds)).await;
}

pub(crate) async fn millis(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

pub(crate) async fn stop(node: Node) {
    assert!(node.stop(Duration::from_secs(100)).await);
}

/// Lives one seed, if `ANKUSA_SEED` says which; else the first few.
pub(crate) fn for_each_seed(live: impl AsyncFn(u64)) {
    let one = std::env::var("ANKUSA_SEED").ok().map(|seed| seed.parse::<u64>().unwrap());
    for seed in one.map_or(0..20, |seed| seed..seed + 1) {
        // What a killed life leaves running ends with its runtime.
        let mut runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build().unwrap();
        eprintln!("ANKUSA_SEED={seed}");
        runtime.block_on(live(seed));
    }
}
