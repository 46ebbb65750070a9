//! The node the commands go to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::dispatch::{DispatchConfig, RetryConfig};
use ankusa_actors::edge::{IngestConfig, QuarantineConfig, RateLimitsConfig, Routing};
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::delivery::{DeliveryRow, RowState};
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::forward::ForwardPolicy;
use ankusa_actors::model::ids::{HookId, Seq};
use ankusa_actors::model::invariants::{self, Dump};
use ankusa_actors::model::keys::{
    CounterKey, DedupeKey, DedupeValue, DeliveryKey, HookKey, TenantNameKey, is_sentinel,
};
use ankusa_actors::model::rate_limit::Limits;
use ankusa_actors::model::source::OnVerifyFailure;
use ankusa_actors::model::value_version::ValueVersion;
use ankusa_actors::model::verify::Verifier;
use ankusa_actors::node::{Node, NodeSettings, Ports, Roles};
use ankusa_actors::ports::sim::{JournalEvents, SimClock, SimEntropy};
use ankusa_actors::ports::{
    Clock, Delivery, Direction, Engine, Entropy, Outcome, Pair, Scan, Sink,
};
use ankusa_actors::queue::{
    BatcherConfig, CommitAnswer, DedupeConfig, NewHook, Refusal, TenantsConfig,
};
use ankusa_actors::sources::{Answers, LaneRules, Source, Sources, Switches};
use ankusa_actors::store::StoreConfig;
use ankusa_actors::tree::Front;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::time::sleep;

use super::{Books, KEY_HOURS, MAX_ATTEMPTS, Row, Rows, Step};

const HTTP: &str = "Elixir.Ankusa.Sink.Http";
const TENANTS: [&str; 2] = ["acme", "blue"];
const HOUR_MS: u64 = 3_600_000;

/// Enough for everything that a command sets going.
const MOMENT: Duration = Duration::from_millis(150);

/// Enough for a node to notice that somebody has set the clock, and for what a start sets going.
const WHILE: Duration = Duration::from_millis(1_500);

/// What the store of a node is on.
pub trait Disk: std::fmt::Debug + 'static {
    /// Whether a power cut can be had, and what it would leave be read.
    const LOSES_POWER: bool;

    fn new() -> Self;
    /// For one process.
    fn engine(&self) -> Arc<dyn Engine>;
    /// The next fsync fails.
    fn fail_sync(&self);
    /// The process is gone, and with `power` the machine too.
    fn end(&self, power: bool);
    /// What a power cut would leave.
    fn durable_rows(&self, cf: Cf) -> Vec<Pair>;
}

type Asked = Arc<Mutex<BTreeMap<(usize, u16), oneshot::Sender<Outcome>>>>;

#[derive(Debug)]
struct Receiver {
    sink: u16,
    asked: Asked,
}

#[async_trait]
impl Sink for Receiver {
    fn module(&self) -> &'static str {
        HTTP
    }

    fn kind(&self) -> &'static str {
        "http"
    }

    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let (answer, answered) = oneshot::channel();
        let key = (number_of(&delivery.envelope), self.sink);
        self.asked.lock().unwrap().insert(key, answer);
        match answered.await {
            Ok(outcome) => outcome,
            // Asked anew by another process; this one is dead.
            Err(_) => std::future::pending().await,
        }
    }
}

fn number_of(envelope: &Envelope) -> usize {
    std::str::from_utf8(&envelope.body).unwrap().parse().unwrap()
}

/// A node, and what its clients know.
pub struct World<D> {
    runtime: Runtime,
    disk: D,
    clock: Arc<SimClock>,
    entropy: Arc<SimEntropy>,
    sources: Arc<Sources>,
    asked: Asked,
    node: Option<Node>,
    sent: usize,
    /// The id of every hook that was sent.
    ids: Vec<HookId>,
    highest: Seq,
}

impl<D> std::fmt::Debug for World<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

fn settings() -> NodeSettings {
    NodeSettings {
        instance: "test".to_owned(),
        roles: Roles { edge: true, dispatch: true, storage: false },
        value_version: ValueVersion::V1,
        ingest: IngestConfig {
            routing: Routing::Path,
            prefix: String::new(),
            max_body_bytes: 1 << 20,
            trusted_proxies: Arc::default(),
        },
        rate_limits: RateLimitsConfig::default(),
        quarantine: QuarantineConfig::default(),
        routes: None,
        batcher: BatcherConfig { partitions: 1, ..BatcherConfig::default() },
        tenants: TenantsConfig::default(),
        // No step is over before what has expired is gone.
        dedupe: DedupeConfig { sweep_interval_ms: 20, ..DedupeConfig::default() },
        store: StoreConfig {
            reopen_min_interval_ms: 1,
            scrub_bytes_per_s: 0,
            ..StoreConfig::default()
        },
        dispatch: DispatchConfig {
            concurrency: 1_000,
            breaker_failures: 0,
            attempt_timeout_ms: 600_000,
            retry: RetryConfig {
                base_ms: HOUR_MS,
                max_ms: HOUR_MS,
                max_attempts: MAX_ATTEMPTS,
                jitter: false,
            },
            ..DispatchConfig::default()
        },
    }
}

fn source(sinks: u16, asked: &Asked) -> Source {
    let sink = |sink| Arc::new(Receiver { sink, asked: Arc::clone(asked) }) as Arc<dyn Sink>;
    let of_source: Vec<_> = (0..sinks).map(sink).collect();
    Source {
        lanes: LaneRules::default(),
        dedupe: None,
        id: format!("s{sinks}"),
        tenant: "default".to_owned(),
        verifier: Verifier::None,
        passed: Verifier::None.passed(),
        answers: Answers::default(),
        on_verify_failure: OnVerifyFailure::Reject,
        modules: Source::modules_of(&of_source),
        sinks: of_source,
        forward: ForwardPolicy::All,
        trust_url_tenant: false,
        rate_limit: Limits::default(),
        switches: Switches::default(),
    }
}

impl<D: Disk> World<D> {
    pub(super) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let asked = Asked::default();
        let clock = runtime.block_on(async { Arc::new(SimClock::at(1_700_000_000_000)) });
        let mut world = Self {
            runtime,
            disk: D::new(),
            clock,
            entropy: Arc::new(SimEntropy::seeded(7)),
            sources: Arc::new((0..3).map(|sinks| source(sinks, &asked)).collect()),
            asked,
            node: None,
            sent: 0,
            ids: Vec::new(),
            highest: Seq(0),
        };
        world.start();
        world
    }

    fn start(&mut self) {
        self.asked.lock().unwrap().clear();
        let ports = Ports {
            engine: self.disk.engine(),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            entropy: Arc::clone(&self.entropy) as Arc<dyn Entropy>,
            events: Arc::<JournalEvents>::default(),
        };
        let front = Arc::new(|_: &_| Front { before: Vec::new(), after: Vec::new() });
        let node = Node::start(ports, settings(), Arc::clone(&self.sources), front);
        self.node = Some(self.runtime.block_on(node).unwrap());
    }

    /// `books` are those after the step.
    pub(super) fn take(&mut self, step: &Step, books: &Books) {
        match step {
            Step::Commit { tenant, sinks, hooks } => {
                for answer in self.send(*tenant, *sinks, None, *hooks) {
                    self.is_committed(answer);
                }
            }
            Step::CommitKeyed { tenant, key, hooks } => {
                let first = self.sent;
                let answers = self.send(*tenant, 1, Some(*key), *hooks);
                for (number, answer) in (first..).zip(answers) {
                    let (holder, _) = books.keys[&(*tenant, *key)];
                    if holder == number {
                        self.is_committed(answer);
                    } else {
                        assert_eq!(answer, CommitAnswer::Duplicate(self.ids[holder]));
                    }
                }
            }
            Step::FailSyncKeyed { tenant, key } => {
                self.disk.fail_sync();
                let refused = CommitAnswer::Refused(Refusal::StoreUnavailable);
                assert_eq!(self.send(*tenant, 1, Some(*key), 1), [refused]);
            }
            Step::FailSync { tenant, sinks } => {
                self.disk.fail_sync();
                let refused = CommitAnswer::Refused(Refusal::StoreUnavailable);
                assert_eq!(self.send(*tenant, *sinks, None, 1), [refused]);
            }
            Step::Deliver(which) => self.answer(*which, Outcome::Ok),
            Step::Fail(which) => self.answer(*which, Outcome::Retry("busy".to_owned())),
            Step::Refuse(which) => self.answer(*which, Outcome::Permanent("no".to_owned())),
            Step::Advance => self.clock.step_ms(2 * 3_600_000),
            Step::CrashDispatch => {
                self.asked.lock().unwrap().clear();
                assert!(self.node.as_ref().unwrap().handles().board.crash("dispatch"));
            }
            Step::Kill => self.end(false),
            Step::CutPower => self.end(true),
            Step::StopStart => {
                let node = self.node.take().unwrap();
                node.announce_stop();
                for (_, answer) in std::mem::take(&mut *self.asked.lock().unwrap()) {
                    answer.send(Outcome::Ok).unwrap();
                }
                assert!(self.runtime.block_on(node.stop(Duration::from_secs(60))));
                self.start();
            }
        }
        let lasts = match step {
            Step::Commit { .. }
            | Step::CommitKeyed { .. }
            | Step::FailSync { .. }
            | Step::FailSyncKeyed { .. }
            | Step::Deliver(_)
            | Step::Fail(_)
            | Step::Refuse(_) => MOMENT,
            Step::Advance | Step::CrashDispatch | Step::Kill | Step::CutPower | Step::StopStart => {
                WHILE
            }
        };
        self.runtime.block_on(async { sleep(lasts).await });
    }

    fn is_committed(&mut self, answer: CommitAnswer) {
        let CommitAnswer::Committed(seq) = answer else { panic!("{answer:?}") };
        assert!(seq > self.highest, "{seq} after {}", self.highest);
        self.highest = seq;
    }

    fn end(&mut self, power: bool) {
        self.disk.end(power);
        let node = self.node.take().unwrap();
        self.runtime.block_on(node.stop(Duration::ZERO));
        self.runtime.block_on(async { sleep(MOMENT).await });
        self.start();
    }

    pub(super) fn leave(mut self) {
        let node = self.node.take().unwrap();
        self.disk.end(false);
        self.runtime.block_on(node.stop(Duration::ZERO));
    }

    fn send(
        &mut self,
        tenant: usize,
        sinks: u16,
        key: Option<u8>,
        hooks: usize,
    ) -> Vec<CommitAnswer> {
        let hooks: Vec<_> = (0..hooks).map(|_| self.hook(tenant, sinks, key)).collect();
        let batcher = self.node.as_ref().unwrap().handles().batchers[0].clone();
        self.runtime.block_on(async {
            let waiting: Vec<_> =
                hooks.into_iter().map(|hook| batcher.submit(hook).unwrap()).collect();
            let mut answers = Vec::new();
            for (waiting, deadline) in waiting {
                answers.push(waiting.answer(deadline).await);
            }
            answers
        })
    }

    fn hook(&mut self, tenant: usize, sinks: u16, key: Option<u8>) -> NewHook {
        let source = self.sources.get(&format!("s{sinks}")).unwrap();
        let envelope = Envelope {
            id: HookId::v7(self.clock.now_ms(), self.entropy.bits()),
            source_id: source.id.clone(),
            tenant_id: Some(TENANTS[tenant].to_owned()),
            received_at_ms: self.clock.now_ms(),
            method: "POST".to_owned(),
            path: "/s".to_owned(),
            headers: Vec::new(),
            content_type: None,
            body: Bytes::from(self.sent.to_string()),
            dedupe_key: key.map(|key| Bytes::from(vec![key])),
            verification: None,
        };
        self.sent += 1;
        self.ids.push(envelope.id);
        NewHook {
            envelope,
            sinks: Arc::clone(&source.modules),
            lanes: Vec::new(),
            key_ttl_ms: Some(KEY_HOURS * HOUR_MS),
        }
    }

    fn answer(&self, which: usize, outcome: Outcome) {
        let mut asked = self.asked.lock().unwrap();
        let keys: Vec<_> = asked.keys().copied().collect();
        let answer = asked.remove(&keys[which % keys.len()]).unwrap();
        answer.send(outcome).unwrap();
    }

    fn rows(&self, cf: Cf) -> Vec<Pair> {
        let scan = Scan {
            cf,
            range: Vec::new()..vec![0xff; 64],
            direction: Direction::Forward,
            max_rows: usize::MAX,
            max_bytes: usize::MAX,
        };
        let store = &self.node.as_ref().unwrap().handles().store;
        let page = self.runtime.block_on(store.scan(scan)).unwrap();
        page.pairs.into_iter().filter(|(key, value)| !is_sentinel(cf, key, value)).collect()
    }

    /// Compares all there is with the books.
    pub(super) fn is_as_in(&self, books: &Books) {
        let seen = Seen::of(|cf| self.rows(cf));
        assert_eq!(seen.rows, books.applied);
        let asked: Vec<_> = self.asked.lock().unwrap().keys().copied().collect();
        assert_eq!(asked, books.asked());
        let held = books.keys.iter().map(|(key, (number, _))| (*key, self.ids[*number]));
        assert_eq!(seen.keys, held.collect());
        seen.counts_as_in(books);
        if D::LOSES_POWER {
            let durable = Seen::of(|cf| self.disk.durable_rows(cf));
            assert_eq!(durable.rows, books.durable, "what a power cut would leave");
            assert_eq!(durable.keys, seen.keys, "what a power cut would leave");
        }
    }
}

/// A store, read.
struct Seen {
    rows: Rows,
    /// The size of every hook that is stored.
    sizes: BTreeMap<usize, i64>,
    counters: BTreeMap<(Option<usize>, Field), i64>,
    /// Who holds each dedupe key.
    keys: BTreeMap<(usize, u8), HookId>,
}

impl Seen {
    fn of(rows: impl Fn(Cf) -> Vec<Pair>) -> Self {
        let family = |cf| rows(cf).into_iter().map(move |(key, value)| (cf, key, value));
        let dump = Dump::from_rows(Cf::ALL.into_iter().flat_map(family));
        assert_eq!(invariants::check(&dump), []);
        let read = |cf: Cf| {
            let rows = rows(cf).into_iter();
            rows.filter(move |(key, value)| !is_sentinel(cf, key, value))
        };
        let (mut numbers, mut sizes) = (BTreeMap::new(), BTreeMap::new());
        for (key, value) in read(Cf::Hooks) {
            let number = number_of(&Envelope::decode(&value).unwrap());
            numbers.insert(HookKey::decode(&key).unwrap().0, number);
            assert!(sizes.insert(number, i64::try_from(value.len()).unwrap()).is_none());
        }
        let mut found = Rows::new();
        for (key, value) in read(Cf::Deliveries) {
            let key = DeliveryKey::decode(&key).unwrap();
            let row = DeliveryRow::decode(&value).unwrap();
            let hour = (row.at_ms - 1_700_000_000_000) / HOUR_MS;
            // A retry waits for an hour; a dead row has the time it died.
            let failed_in = match row.state {
                RowState::Dead => Some(hour),
                RowState::Pending => (row.attempts > 0).then(|| hour - 1),
            };
            let (attempts, is_dead) = (row.attempts, row.state == RowState::Dead);
            found.insert((numbers[&key.seq], key.sink), Row { attempts, is_dead, failed_in });
        }
        let mut ordinals = BTreeMap::new();
        for (key, value) in read(Cf::Tenants) {
            for (tenant, name) in TENANTS.into_iter().enumerate() {
                if key == TenantNameKey(name).encode() {
                    ordinals.insert(TenantNameKey::read_value(&value).unwrap(), tenant);
                }
            }
        }
        let mut counters = BTreeMap::new();
        for (key, value) in read(Cf::Counters) {
            let key = CounterKey::decode(&key).unwrap();
            let count = counters::read(&value).unwrap();
            if count != 0 {
                counters.insert((ordinals.get(&key.tenant).copied(), key.field), count);
            }
        }
        let mut keys = BTreeMap::new();
        for (key, value) in read(Cf::Index) {
            let Some(key) = DedupeKey::decode(&key) else { continue };
            let tenant = TENANTS.into_iter().position(|name| name == key.tenant()).unwrap();
            let value = DedupeValue::decode(&value).unwrap();
            keys.insert((tenant, key.key()[0]), value.original);
        }
        Self { rows: found, sizes, counters, keys }
    }

    /// The counters are those of the books, and every hook of the books is there.
    fn counts_as_in(&self, books: &Books) {
        let mut expected: BTreeMap<(Option<usize>, Field), i64> = BTreeMap::new();
        for ((number, _), row) in &books.applied {
            let size = self.sizes[number];
            let state = if row.is_dead {
                Field::Dead
            } else if books.is_asked(row) {
                Field::Inflight
            } else {
                Field::Scheduled
            };
            for tenant in [None, Some(books.tenants[*number])] {
                let mut add = |field, by| *expected.entry((tenant, field)).or_default() += by;
                add(state, 1);
                add(Field::Bytes, size);
                add(Field::DeadBytes, if row.is_dead { size } else { 0 });
            }
        }
        for (tenant, _) in books.keys.keys() {
            for tenant in [None, Some(*tenant)] {
                *expected.entry((tenant, Field::Dedupe)).or_default() += 1;
            }
        }
        expected.retain(|_, count| *count != 0);
        assert_eq!(self.counters, expected);
        // What nobody is owed any more is reclaimed.
        let owed: BTreeSet<_> = books.applied.keys().map(|(number, _)| *number).collect();
        let stored: BTreeSet<_> = self.sizes.keys().copied().collect();
        assert_eq!(stored, owed);
    }
}
