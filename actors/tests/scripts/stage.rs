//! Where stories are played: a disk, a clock, a node on them, and receivers that wait to be told what to say.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::counters::{self, Field};
use ankusa_actors::model::keys::{CounterKey, TenantNameKey};
use ankusa_actors::node::{Node, Ports};
use ankusa_actors::ports::sim::SimDisk;
use ankusa_actors::ports::{Clock, Delivery, Entropy, Lane, Outcome, Sink};
use ankusa_actors::queue::{CommitAnswer, NewHook, Refusal};
use ankusa_actors::sources::{Source, Sources};
use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use crate::common::late::LateEngine;
use crate::common::{Bench, HTTP, open_source};
use crate::simulation::Plugged;
use crate::simulation::plan::Settings;
use crate::teller::MOMENT;

/// Where no room is short.
const FREE: (u64, u64) = (1 << 40, 1 << 41);

/// What a sink says.
#[derive(Clone, Debug, Default)]
pub(crate) enum Mood {
    /// Waits until the story says it.
    #[default]
    Asks,
    Answer(Outcome),
    Hangs,
    Panics,
}

#[derive(Default)]
struct Log {
    began: Option<Instant>,
    news: Vec<String>,
    moods: BTreeMap<usize, Mood>,
    asked: Vec<(String, oneshot::Sender<Mood>)>,
}

/// What has happened since a command began, and who waits.
#[derive(Clone, Default)]
struct Board(Arc<Mutex<Log>>);

impl Board {
    fn tell(&self, what: &str) {
        let mut log = self.0.lock().unwrap();
        let since = log.began.map_or(Duration::ZERO, |began| began.elapsed());
        // What a command does at once has no time of its own.
        let line = if since < MOMENT {
            what.to_owned()
        } else {
            format!("after {:.1}s {what}", since.as_secs_f64())
        };
        log.news.push(line);
    }
}

/// Tells of an attempt that is cut off.
struct UnderWay {
    board: Board,
    name: String,
    ended: bool,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if !self.ended && !std::thread::panicking() {
            self.board.tell(&format!("{} is cut off", self.name));
        }
    }
}

struct StorySink {
    ix: usize,
    board: Board,
}

#[async_trait]
impl Sink for StorySink {
    fn module(&self) -> &'static str {
        HTTP
    }

    fn kind(&self) -> &'static str {
        "http"
    }

    async fn deliver(&self, delivery: &Delivery) -> Outcome {
        let body = String::from_utf8(delivery.envelope.body.to_vec()).unwrap();
        let name = if self.ix == 0 { body } else { format!("{body}/{}", self.ix) };
        self.board.tell(&format!("{name} is attempted, #{}", delivery.attempt));
        let mut under_way =
            UnderWay { board: self.board.clone(), name: name.clone(), ended: false };
        let mood = self.board.0.lock().unwrap().moods.get(&self.ix).cloned().unwrap_or_default();
        let mood = match mood {
            Mood::Asks => {
                let (answer, answered) = oneshot::channel();
                self.board.0.lock().unwrap().asked.push((name, answer));
                answered.await.unwrap_or(Mood::Hangs)
            }
            Mood::Answer(_) | Mood::Hangs | Mood::Panics => mood,
        };
        let outcome = match mood {
            Mood::Answer(outcome) => outcome,
            Mood::Hangs | Mood::Asks => std::future::pending().await,
            Mood::Panics => {
                under_way.ended = true;
                std::panic::resume_unwind(Box::new("told to panic"))
            }
        };
        under_way.ended = true;
        outcome
    }
}

struct Life {
    node: Node,
    engine: LateEngine,
    is_in: Arc<AtomicBool>,
}

pub(crate) struct Stage {
    bench: Bench,
    board: Board,
    pub(crate) settings: Settings,
    late: Duration,
    life: Option<Life>,
    has_lived: bool,
    clients: Vec<(String, JoinHandle<()>)>,
}

type Done = Result<(), Box<dyn Error>>;

impl Default for Stage {
    /// Sources `none`, `one` and `two`, with so many sinks.
    fn default() -> Self {
        let board = Board::default();
        let source = |(id, sinks): (&str, usize)| {
            let sink = |ix| Arc::new(StorySink { ix, board: board.clone() }) as Arc<dyn Sink>;
            let sinks: Vec<_> = (0..sinks).map(sink).collect();
            let modules = Source::modules_of(&sinks);
            Source { sinks, modules, ..open_source(id, "default", &[]) }
        };
        let mut bench = Bench::on(&SimDisk::empty());
        let sources = [("none", 0), ("one", 1), ("two", 2)];
        bench.sources = Arc::new(sources.into_iter().map(source).collect::<Sources>());
        bench.stays_sound = false;
        Self {
            bench,
            board,
            settings: Settings::default(),
            late: Duration::ZERO,
            life: None,
            has_lived: false,
            clients: Vec::new(),
        }
    }
}

impl Stage {
    pub(crate) fn disk(&self) -> &SimDisk {
        &self.bench.disk
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.bench.clock.now_ms()
    }

    pub(crate) fn is_new(&self) -> bool {
        !self.has_lived
    }

    /// A command begins.
    pub(crate) fn begin(&self) {
        self.board.0.lock().unwrap().began = Some(Instant::now());
    }

    pub(crate) fn news(&self) -> Vec<String> {
        std::mem::take(&mut self.board.0.lock().unwrap().news)
    }

    fn life(&self) -> Result<&Life, &'static str> {
        self.life.as_ref().ok_or("no node runs")
    }

    pub(crate) async fn start(&mut self) -> Result<(), String> {
        self.has_lived = true;
        self.settings.apply_to(&mut self.bench.settings);
        let (engine, is_in) = (LateEngine::on(&self.bench.disk), Arc::new(AtomicBool::new(true)));
        engine.delay(self.late);
        let ports = Ports {
            engine: Arc::new(Plugged { engine: engine.clone(), is_in: Arc::clone(&is_in) }),
            clock: Arc::clone(&self.bench.clock) as Arc<dyn Clock>,
            entropy: Arc::clone(&self.bench.entropy) as Arc<dyn Entropy>,
            events: Arc::clone(&self.bench.events) as _,
        };
        let (settings, sources) = (self.bench.settings.clone(), Arc::clone(&self.bench.sources));
        let front = Arc::clone(&self.bench.front);
        let node = Node::start(ports, settings, sources, front).await;
        let node = node.map_err(|error| format!("does not start: {error}"))?;
        self.life = Some(Life { node, engine, is_in });
        Ok(())
    }

    pub(crate) fn commit(&mut self, tenant: &str, source: &str, bodies: &[String]) -> Done {
        for body in bodies {
            let batcher = self.life()?.node.handles().batchers[0].clone();
            let hook = self.hook(tenant, source, body)?;
            let (board, name) = (self.board.clone(), body.clone());
            let client = tokio::spawn(async move {
                let answer = match batcher.submit(hook) {
                    Ok((waiting, deadline)) => waiting.answer(deadline).await,
                    Err(refusal) => CommitAnswer::Refused(refusal),
                };
                board.tell(&match answer {
                    CommitAnswer::Committed(seq) => format!("{name}: acked, seq {}", seq.0),
                    CommitAnswer::Refused(Refusal::Overload) => format!("{name}: 503 overload"),
                    CommitAnswer::Refused(Refusal::StoreUnavailable) => {
                        format!("{name}: 503 store_unavailable")
                    }
                    CommitAnswer::Refused(Refusal::TenantLimit) => {
                        format!("{name}: 503 tenant_limit")
                    }
                    CommitAnswer::Refused(Refusal::TenantOverload) => {
                        format!("{name}: 429 tenant_overload")
                    }
                    CommitAnswer::Refused(Refusal::DedupeQuota) => {
                        format!("{name}: 503 dedupe_quota")
                    }
                    CommitAnswer::Duplicate(original) => {
                        format!("{name}: duplicate of {original}")
                    }
                    CommitAnswer::Unknown => format!("{name}: closed unanswered"),
                });
            });
            self.clients.push((body.clone(), client));
        }
        Ok(())
    }

    fn hook(&self, tenant: &str, source: &str, body: &str) -> Result<NewHook, Box<dyn Error>> {
        let mut hook = self.bench.hook(tenant, body);
        let source = self.bench.sources.get(source).ok_or("no such source")?;
        hook.envelope.source_id.clone_from(&source.id);
        Ok(NewHook { sinks: Arc::clone(&source.modules), ..hook })
    }

    pub(crate) fn hang_up(&self, body: &str) -> Done {
        let waiting =
            |(name, client): &&(String, JoinHandle<()>)| name == body && !client.is_finished();
        self.clients.iter().find(waiting).ok_or("nobody waits for that")?.1.abort();
        Ok(())
    }

    pub(crate) fn answer(&self, attempt: &str, answer: Mood) -> Done {
        let mut log = self.board.0.lock().unwrap();
        log.asked.retain(|(_, answer)| !answer.is_closed());
        let at = log.asked.iter().position(|(name, _)| name == attempt);
        let (_, asked) = log.asked.remove(at.ok_or_else(|| format!("{attempt} is not attempted"))?);
        asked.send(answer).map_err(|_| "it was cut off".into())
    }

    /// Attempts that wait to be answered.
    pub(crate) fn attempts(&self) -> Vec<String> {
        let log = self.board.0.lock().unwrap();
        let open = log.asked.iter().filter(|(_, answer)| !answer.is_closed());
        open.map(|(name, _)| name.clone()).collect()
    }

    pub(crate) fn set_mood(&self, sink: usize, mood: Mood) {
        self.board.0.lock().unwrap().moods.insert(sink, mood);
    }

    pub(crate) async fn advance(&mut self, by: Duration) {
        let Some(life) = &mut self.life else { return sleep(by).await };
        tokio::select! {
            biased;
            () = life.node.gave_up() => {}
            () = sleep(by) => return,
        }
        self.board.tell("the node gives up");
        self.end(SimDisk::kill).await;
    }

    pub(crate) async fn cut_power(&mut self, keeping: u64) {
        self.end(|disk| disk.cut_power_keeping(keeping)).await;
    }

    pub(crate) async fn kill(&mut self) {
        self.end(SimDisk::kill).await;
    }

    /// The process is gone from one moment to the next, and its connections break.
    async fn end(&mut self, end: impl FnOnce(&SimDisk)) {
        end(&self.bench.disk);
        for (body, client) in &self.clients {
            if !client.is_finished() {
                client.abort();
                self.board.tell(&format!("{body}: connection lost"));
            }
        }
        let before = self.board.0.lock().unwrap().news.len();
        if let Some(life) = self.life.take() {
            life.is_in.store(false, Ordering::Relaxed);
            life.node.stop(Duration::ZERO).await;
        }
        sleep(Duration::from_millis(1)).await;
        // What a dead process does is not seen by anybody.
        self.board.0.lock().unwrap().news.truncate(before);
    }

    /// The story is over.
    pub(crate) async fn leave(&mut self) {
        self.end(SimDisk::kill).await;
    }

    pub(crate) async fn stop(&mut self) -> Result<String, Box<dyn Error>> {
        let life = self.life.take().ok_or("no node runs")?;
        let in_time = life.node.stop(Duration::from_secs(60)).await;
        life.is_in.store(false, Ordering::Relaxed);
        self.bench.disk.kill();
        Ok(if in_time { "stopped" } else { "killed after 60 s" }.to_owned())
    }

    pub(crate) fn crash(&self, child: &str) -> Done {
        let found = self.life()?.node.handles().board.crash(child);
        if found { Ok(()) } else { Err(format!("there is no {child}").into()) }
    }

    pub(crate) async fn reopen(&self) -> Result<String, Box<dyn Error>> {
        let reopened = self.life()?.node.handles().store.reopen().await;
        Ok(reopened.map_or_else(|why| why, |()| "reopened".to_owned()))
    }

    pub(crate) fn land_after(&mut self, late: Duration) {
        self.late = late;
        if let Some(life) = &self.life {
            life.engine.delay(late);
        }
    }

    pub(crate) fn heal(&mut self) {
        self.bench.disk.heal();
        self.bench.disk.resize(FREE.0, FREE.1);
        self.land_after(Duration::ZERO);
    }

    pub(crate) fn set_clock(&self, by_ms: i64) {
        self.bench.clock.step_ms(by_ms);
    }

    pub(crate) async fn ready(&self) -> Result<String, Box<dyn Error>> {
        let failure = self.life()?.node.handles().readiness.store_failure().await;
        Ok(failure
            .map_or_else(|| "ready".to_owned(), |class| format!("not ready: {}", class.as_str())))
    }

    pub(crate) async fn miscount(&self, tenant: &str, field: &str, to: i64) -> Done {
        let store = &self.life()?.node.handles().store;
        let name = TenantNameKey(tenant).encode();
        let tenant =
            store.get(Cf::Tenants, &name)?.and_then(|value| TenantNameKey::read_value(&value));
        let field = Field::ALL.into_iter().find(|known| known.as_str() == field);
        let key = CounterKey {
            tenant: tenant.ok_or("no such tenant")?,
            field: field.ok_or("no such counter")?,
        };
        let mut batch = Batch::default();
        batch.put(
            Cf::Counters,
            &key.encode(),
            &counters::fold(None, [counters::operand(to).as_slice()]).bytes,
        );
        store.apply_synced(batch, Lane::Commit).await?;
        Ok(())
    }
}
