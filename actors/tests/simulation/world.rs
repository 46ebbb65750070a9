//! Everything around the node: the disk with its power cord, clients that wait, sinks that fail now and then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::edge::RequestHead;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::envelope::Envelope;
use ankusa_actors::model::gcra::Rate;
use ankusa_actors::model::ids::HookId;
use ankusa_actors::model::ordering::OrderBy;
use ankusa_actors::model::rate_limit::{RateLimit, TenantLimit};
use ankusa_actors::model::source::OnVerifyFailure;
use ankusa_actors::model::verify::VerifySpec;
use ankusa_actors::node::{Node, Ports};
use ankusa_actors::ports::sim::{SimClock, SimDisk, SimEntropy};
use ankusa_actors::ports::{
    Clock, Delivery, DiskRoom, Engine, Entropy, Kv, KvError, OpenError, Outcome, Sink,
};
use ankusa_actors::queue::{CommitAnswer, NewHook};
use ankusa_actors::sources::{LaneRules, Source, Sources};
use ankusa_actors::tree::Front;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::Story;
use super::draw::Chance;
use super::judge::{Judge, LANE_HEADER, LASTING_SINKS, LASTING_TTL_MS, ORDERED_SINK, TTL_MS};
use super::plan::{Mood, Plan, Step};
use crate::common::late::LateEngine;
use crate::common::{Bench, HTTP, open_source};

const TENANTS: [&str; 2] = ["acme", "blue"];

/// A healed node has opened its store, fenced and come back from every wait by then.
const CONVALESCENCE: Duration = Duration::from_secs(130);

/// And every row stamped by a clock that was ahead is due by then.
const PATIENCE: Duration = Duration::from_secs(2 * 3_600);

/// Room that nobody uses up.
const FREE: (u64, u64) = (1 << 40, 1 << 41);

/// How the receivers of each sink behave: in the end they take everything.
type Moods = Arc<Mutex<[Mood; 2]>>;

struct JudgedSink {
    judge: Judge,
    ix: usize,
    seed: u64,
    moods: Moods,
}

#[async_trait]
impl Sink for JudgedSink {
    fn module(&self) -> &'static str {
        HTTP
    }

    fn kind(&self) -> &'static str {
        "http"
    }

    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let body = String::from_utf8(delivery.envelope.body.to_vec()).unwrap();
        let _under_way = self.judge.is_delivered(&body, self.ix, delivery);
        // Drawn from what is asked, not from the order it is asked in.
        let asked = format!("{body} {} {}", self.ix, delivery.attempt);
        let mut chance = Chance(
            asked.bytes().fold(self.seed, |seed, byte| seed.rotate_left(7) ^ u64::from(byte)),
        );
        sleep(Duration::from_millis(chance.pick(&[0, 0, 1, 30, 400]))).await;
        let mood = self.moods.lock().unwrap()[self.ix];
        let reason = "not now".to_owned();
        match mood {
            Mood::Fickle if chance.one_in(4) => return Outcome::Retry(reason),
            Mood::Fails => return Outcome::Retry(reason),
            Mood::FailsUntil { ms } => return Outcome::RetryAfter { ms, reason },
            Mood::Refuses => {
                self.judge.is_declined(&body, self.ix);
                return Outcome::Permanent("never".to_owned());
            }
            Mood::Hangs => std::future::pending().await,
            // As a panic does, without the report of one.
            Mood::Panics => std::panic::resume_unwind(Box::new("told to panic")),
            Mood::Fickle | Mood::Takes => {}
        }
        self.judge.is_taken(&body, self.ix);
        Outcome::Ok
    }
}

/// A source whose hooks never verify and are held.
fn pen() -> Source {
    let spec = serde_json::json!({"type": "github", "secret": "secret"});
    let spec: VerifySpec = serde_json::from_value(spec).unwrap();
    let (verifier, on_verify_failure) = (spec.build().unwrap(), OnVerifyFailure::Quarantine);
    let passed = verifier.passed();
    Source { verifier, passed, on_verify_failure, ..open_source("pen", "default", &[]) }
}

/// The engine of one process: with the process gone it opens nothing any more.
pub struct Plugged {
    pub engine: LateEngine,
    pub is_in: Arc<AtomicBool>,
}

#[async_trait]
impl Engine for Plugged {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        if self.is_in.load(Ordering::Relaxed) {
            return self.engine.open().await;
        }
        std::future::pending().await
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

/// A process that runs.
struct Life {
    node: Node,
    engine: LateEngine,
    is_in: Arc<AtomicBool>,
}

struct World {
    judge: Judge,
    bench: Bench,
    clock: Arc<SimClock>,
    entropy: Arc<SimEntropy>,
    late: Duration,
    life: Option<Life>,
    clients: Vec<(String, JoinHandle<()>)>,
    /// Those whose hooks are for the pen, and operators who set limits.
    others: Vec<(String, JoinHandle<()>)>,
    moods: Moods,
    power_cuts: usize,
}

pub(super) async fn live(plan: &Plan) -> Story {
    let mut world = World::new(plan);
    world.start().await;
    for (ix, step) in plan.steps.iter().enumerate() {
        world.judge.note(&format!("step {ix}: {step:?}"));
        world.take(step).await;
    }
    world.convalesce().await;
    let judge = world.judge.clone();
    judge.note(&format!("the next chance is {:x}", world.entropy.bits()));
    let family = |cf: Cf| {
        let rows = world.bench.disk.rows(cf).into_iter();
        rows.map(move |(key, value)| format!("{} {key:02x?} {value:02x?}", cf.name()))
    };
    Story {
        rows: Cf::ALL.into_iter().flat_map(family).collect(),
        journal: judge.journal(),
        violations: judge.violations(),
        committed: judge.committed(),
        delivered: judge.taken(),
        held: judge.pen.held(),
        power_cuts: world.power_cuts,
    }
}

impl World {
    fn new(plan: &Plan) -> Self {
        let disk = SimDisk::empty();
        let mut bench = Bench::on(&disk);
        plan.settings.apply_to(&mut bench.settings);
        // The judge looks at the rows.
        bench.stays_sound = false;
        let (clock, entropy) = (Arc::clone(&bench.clock), Arc::new(SimEntropy::seeded(plan.seed)));
        let judge = Judge::new(&disk, Arc::clone(&clock) as _, plan);
        let moods = Moods::default();
        let source = |sinks: usize| {
            let sink = |ix| {
                let (judge, moods) = (judge.clone(), Arc::clone(&moods));
                Arc::new(JudgedSink { judge, ix, seed: plan.seed, moods }) as Arc<dyn Sink>
            };
            let sinks_of: Vec<_> = (0..sinks).map(sink).collect();
            let modules = Source::modules_of(&sinks_of);
            // Of two sinks the second takes its hooks in order.
            let by = Some(OrderBy::Header(LANE_HEADER.to_owned()));
            Source {
                sinks: sinks_of,
                modules,
                lanes: LaneRules::new(
                    (0..sinks).map(|ix| by.clone().filter(|_| ix == ORDERED_SINK)),
                ),
                ..open_source(&format!("src{sinks}"), "default", &[])
            }
        };
        bench.sources = Arc::new((0..=2).map(source).chain([pen()]).collect::<Sources>());
        Self {
            judge,
            bench,
            clock,
            entropy,
            late: Duration::ZERO,
            life: None,
            clients: Vec::new(),
            others: Vec::new(),
            moods,
            power_cuts: 0,
        }
    }

    async fn take(&mut self, step: &Step) {
        match step {
            Step::Send { hooks, tenant, sinks, key } => {
                (0..*hooks).for_each(|_| self.send(tenant, *sinks, *key));
                // Lets some of what follows from it happen, as another thread would.
                tokio::task::yield_now().await;
            }
            Step::Hold { hooks } => {
                (0..*hooks).for_each(|_| self.hold());
                tokio::task::yield_now().await;
            }
            Step::Limit { tenant, burst } => {
                self.limit(tenant, *burst);
                tokio::task::yield_now().await;
            }
            Step::HangUp => self.hang_up(),
            Step::Advance { ms } => self.advance(Duration::from_millis(*ms)).await,
            Step::Sink { sink, mood } => self.moods.lock().unwrap()[*sink] = *mood,
            Step::Fail(trouble) => self.bench.disk.fail((*trouble).into()),
            Step::FailWrites { class } => self.bench.disk.fail_writes(*class),
            Step::Room { free_bytes } => self.bench.disk.resize(*free_bytes, FREE.1),
            Step::Slow { op, ms } => self.bench.disk.slow(*op, Duration::from_millis(*ms)),
            Step::Late { ms } => self.land_after(Duration::from_millis(*ms)),
            Step::Heal => self.heal(),
            Step::Crash { child } => {
                let found =
                    self.life.as_ref().is_some_and(|life| life.node.handles().board.crash(child));
                self.judge.note(if found { "crashing" } else { "nobody to crash" });
                self.advance(Duration::ZERO).await;
            }
            Step::Probe => self.probe(),
            Step::Reopen => self.reopen(),
            Step::SetClock { by_ms } => self.clock.step_ms(*by_ms),
            Step::CutPower { keeping } => {
                self.power_cuts += 1;
                self.end_abruptly(|disk| disk.cut_power_keeping(*keeping)).await;
                // Not before: the sinks hear from it until it is gone.
                self.judge.lanes_may_begin_again();
                self.start().await;
            }
            Step::Kill => {
                self.end_abruptly(SimDisk::kill).await;
                self.start().await;
            }
            Step::StopAndStart => {
                self.stop().await;
                self.start().await;
            }
        }
        self.judge.inspect_changes("after a step");
    }

    fn land_after(&mut self, late: Duration) {
        self.late = late;
        if let Some(life) = &self.life {
            life.engine.delay(late);
        }
    }

    fn heal(&mut self) {
        self.bench.disk.heal();
        self.bench.disk.resize(FREE.0, FREE.1);
        self.land_after(Duration::ZERO);
    }

    /// Starts a process. One that refuses to boot is started again and again, and in the end with a healed disk.
    async fn start(&mut self) {
        for attempt in 0..5 {
            if attempt == 4 {
                self.heal();
            }
            match self.try_start().await {
                Ok(life) => {
                    self.life = Some(life);
                    return;
                }
                Err(why) => self.judge.note(&format!("does not boot: {why}")),
            }
            sleep(Duration::from_secs(1)).await;
        }
        self.judge.object("a healed disk does not boot".to_owned());
    }

    async fn try_start(&self) -> Result<Life, String> {
        let (engine, is_in) = (LateEngine::on(&self.bench.disk), Arc::new(AtomicBool::new(true)));
        engine.delay(self.late);
        let plugged = Plugged { engine: engine.clone(), is_in: Arc::clone(&is_in) };
        let ports = Ports {
            engine: Arc::new(plugged),
            clock: Arc::clone(&self.clock) as Arc<dyn Clock>,
            entropy: Arc::clone(&self.entropy) as Arc<dyn Entropy>,
            events: Arc::new(self.judge.clone()),
        };
        let front = Arc::new(|_: &_| Front { before: Vec::new(), after: Vec::new() });
        let (settings, sources) = (self.bench.settings.clone(), Arc::clone(&self.bench.sources));
        let node = Node::start(ports, settings, sources, front).await;
        Ok(Life { node: node.map_err(|error| error.to_string())?, engine, is_in })
    }

    fn send(&mut self, tenant: &str, sinks: usize, key: Option<u64>) {
        let body = format!("hook-{}", self.clients.len());
        let hook = self.hook(tenant, sinks, key, &body);
        self.judge.is_sent(&body, sinks, &hook);
        let client = self.client(&body, hook);
        self.clients.push((body, client));
    }

    fn client(&self, body: &str, hook: NewHook) -> JoinHandle<()> {
        let Some(life) = &self.life else {
            self.judge.is_lost(body);
            return tokio::spawn(async {});
        };
        let batchers = Arc::clone(&life.node.handles().batchers);
        let batcher = batchers[self.clients.len() % batchers.len()].clone();
        let (body, judge) = (body.to_owned(), self.judge.clone());
        tokio::spawn(async move {
            let answer = match batcher.submit(hook) {
                Ok((waiting, deadline)) => waiting.answer(deadline).await,
                Err(refusal) => CommitAnswer::Refused(refusal),
            };
            judge.is_answered(&body, answer);
        })
    }

    fn hook(&self, tenant: &str, sinks: usize, key: Option<u64>, body: &str) -> NewHook {
        let source_id = format!("src{sinks}");
        let source = self.bench.sources.get(&source_id).unwrap();
        let now_ms = self.clock.now_ms();
        let lane = Bytes::from(format!("{}", self.clients.len() % 3));
        let headers = vec![(Bytes::from(LANE_HEADER), lane)];
        let lanes = source.lanes.lanes(&source_id, &headers, body.as_bytes());
        let envelope = Envelope {
            id: HookId::v7(now_ms, self.entropy.bits()),
            source_id,
            tenant_id: Some(tenant.to_owned()),
            received_at_ms: now_ms,
            method: "POST".to_owned(),
            path: "/webhooks/src".to_owned(),
            headers,
            content_type: None,
            body: Bytes::copy_from_slice(body.as_bytes()),
            dedupe_key: key.map(|key| Bytes::from(format!("k{key}"))),
            verification: None,
        };
        let key_ttl_ms = Some(if sinks == LASTING_SINKS { LASTING_TTL_MS } else { TTL_MS });
        NewHook { envelope, sinks: Arc::clone(&source.modules), lanes, key_ttl_ms }
    }

    fn hold(&mut self) {
        let body = format!("held-{}", self.others.len());
        self.judge.pen.is_sent(&body);
        let Some(life) = &self.life else { return self.judge.pen.is_lost(&body) };
        let (ingest, judge) = (Arc::clone(&life.node.handles().ingest), self.judge.clone());
        let head = RequestHead {
            method: "POST".to_owned(),
            path: "/webhooks/pen".to_owned(),
            headers: Vec::new(),
            content_length: None,
            remote: None,
            peer: None,
            query: None,
        };
        let sent = body.clone();
        let client = tokio::spawn(async move {
            let Ok(admitted) = ingest.admit(&head) else { return };
            let answer = ingest.accept(admitted, head, Bytes::from(sent.clone())).await;
            judge.note(&format!("{sent}: {answer:?}"));
            let wrong = judge.pen.is_answered(&sent, &answer);
            wrong.into_iter().for_each(|objection| judge.object(objection));
        });
        self.others.push((body, client));
    }

    fn limit(&mut self, tenant: &str, burst: u64) {
        let Some(life) = &self.life else { return };
        let (limits, judge) = (life.node.handles().limits.clone(), self.judge.clone());
        let limit = (burst > 0).then(|| TenantLimit {
            limit: RateLimit { rate: Rate::whole(1), burst: Some(burst), ..RateLimit::default() },
            overload_share_percent: None,
        });
        let row = limit.map_or(String::new(), |limit| serde_json::to_string(&limit).unwrap());
        let tenant = tenant.to_owned();
        // Until it is answered, nobody knows.
        judge.pen.is_limited(&tenant, None);
        let operator = tokio::spawn(async move {
            let set = limits.set(&tenant, limit).await;
            judge.note(&format!("the limit of {tenant} is {row:?}: {set:?}"));
            judge.pen.is_limited(&tenant, set.is_ok().then_some(row));
        });
        self.others.push((String::new(), operator));
    }

    fn hang_up(&self) {
        if let Some((body, client)) = self.clients.iter().find(|(_, client)| !client.is_finished())
        {
            client.abort();
            self.judge.is_lost(body);
        }
    }

    fn probe(&self) {
        let Some(life) = &self.life else { return };
        let (readiness, judge) = (life.node.handles().readiness.clone(), self.judge.clone());
        tokio::spawn(async move {
            let failure = readiness.store_failure().await;
            judge.note(&format!("ready: {failure:?}"));
        });
    }

    fn reopen(&self) {
        let Some(life) = &self.life else { return };
        let (store, judge) = (life.node.handles().store.clone(), self.judge.clone());
        tokio::spawn(async move {
            let reopened = store.reopen().await;
            judge.note(&format!("reopened: {reopened:?}"));
        });
    }

    /// Lets time pass. A node that gives up meanwhile is a process that exits, and its manager starts it again.
    async fn advance(&mut self, by: Duration) {
        let Some(life) = &mut self.life else { return sleep(by).await };
        tokio::select! {
            biased;
            () = life.node.gave_up() => {}
            () = sleep(by) => return,
        }
        self.judge.note("the node gave up");
        self.end_of_process().await;
        self.bench.disk.kill();
        self.start().await;
    }

    /// The process is gone from one moment to the next.
    async fn end_abruptly(&mut self, end: impl FnOnce(&SimDisk)) {
        if let Some(life) = &self.life {
            life.is_in.store(false, Ordering::Relaxed);
        }
        end(&self.bench.disk);
        self.end_of_process().await;
        self.judge.inspect_acked("after the end of the process");
    }

    /// Its connections break, and nothing it still does counts.
    async fn end_of_process(&mut self) {
        for (body, client) in &self.clients {
            if !client.is_finished() {
                client.abort();
                self.judge.is_lost(body);
            }
        }
        for (body, other) in &self.others {
            if !other.is_finished() {
                other.abort();
                self.judge.pen.is_lost(body);
            }
        }
        if let Some(life) = self.life.take() {
            life.is_in.store(false, Ordering::Relaxed);
            life.node.stop(Duration::ZERO).await;
        }
        sleep(Duration::from_millis(1)).await;
    }

    /// An orderly stop answers everybody.
    async fn stop(&mut self) {
        let Some(life) = self.life.take() else { return };
        let in_time = life.node.stop(Duration::from_secs(120)).await;
        self.judge.note(&format!("stopped in time: {in_time}"));
        life.is_in.store(false, Ordering::Relaxed);
        sleep(Duration::from_millis(1)).await;
        self.bench.disk.kill();
        for (body, client) in &self.clients {
            if !client.is_finished() {
                self.judge.object(format!("{body} is not answered by the end of a stop"));
                client.abort();
                self.judge.is_lost(body);
            }
        }
        for (body, other) in &self.others {
            if !other.is_finished() {
                self.judge.object(format!("{body:?} is not answered by the end of a stop"));
                other.abort();
                self.judge.pen.is_lost(body);
            }
        }
    }

    /// With a healed disk everything comes right by itself.
    async fn convalesce(&mut self) {
        self.judge.note("convalescence");
        *self.moods.lock().unwrap() = [Mood::Takes; 2];
        self.heal();
        self.advance(CONVALESCENCE).await;
        let began = Instant::now();
        while !self.judge.is_all_settled() && began.elapsed() < PATIENCE {
            self.advance(CONVALESCENCE).await;
        }
        for tenant in TENANTS {
            let before = self.judge.committed();
            self.send(tenant, 1, None);
            self.advance(Duration::from_secs(30)).await;
            // The limit of tenants may have been reached by others.
            let is_limited = self.bench.settings.tenants.max < 3;
            if self.judge.committed() == before && !is_limited {
                self.judge.object(format!("a healed node does not take a hook of {tenant}"));
            }
        }
        let before = self.judge.pen.held();
        self.hold();
        self.advance(Duration::from_secs(30)).await;
        let is_full = self.bench.settings.quarantine.max_bytes < 1 << 20;
        if self.judge.pen.held() == before && !is_full {
            self.judge.object("a healed node holds no hook".to_owned());
        }
        let Some(life) = &self.life else { return };
        if let Some(class) = life.node.handles().readiness.store_failure().await {
            self.judge.object(format!("a healed node is not ready: {class:?}"));
        }
        if timeout(Duration::from_secs(600), self.stop()).await.is_err() {
            self.judge.object("a healed node does not stop".to_owned());
        }
        self.bench.disk.cut_power();
        self.judge.inspect_the_end();
    }
}
