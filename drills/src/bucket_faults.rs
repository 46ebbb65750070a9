//! Everything that goes wrong with a bucket, in turn, between a node and a real S3 server.
//!
//! Clients send hooks all the time; beside them, objects are put and read back through the node. For each fault the bucket
//! is broken for a while and then made well. Meanwhile hooks are taken as if nothing had happened, what a call of an object
//! store answers is one of the errors that fault can come to, and no call outlives its deadline. Then puts succeed again
//! within the time the breaker stays open. At the end every object that was said to be written is there, byte for byte,
//! and every other one is whole or not there.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ankusa_drills_proxy::{Fault, Proxy, Rule, When};
use ankusa_drills_replay::Rng;
use bytes::Bytes;
use hyper::{Method, StatusCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::node::Node;
use crate::scratch::Scratch;
use crate::seaweedfs::{ACCESS_KEY_ID, BUCKET, REGION, SECRET_ACCESS_KEY, SeaweedFs};
use crate::stage::{Stage, on_a_runtime};
use crate::timings::millis;

/// Clients that send hooks.
const CLIENTS: usize = 8;

/// Objects on their way at once.
const WRITERS: u64 = 4;

/// How long each fault lasts.
const BROKEN_FOR: Duration = Duration::from_millis(800);

/// The node's deadline of one operation, and what its answer may take besides on a busy machine.
const OP_DEADLINE_MS: u64 = 3_000;
const SLACK: Duration = Duration::from_secs(7);

/// The node's breaker.
const BREAKER_OPEN_MS: u64 = 500;

/// Longest wait for an object to be taken again.
const WELL_WITHIN: Duration = Duration::from_secs(20);

const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::on_disk()?;
        let server = SeaweedFs::start(&scratch.subdirectory("seaweedfs")?).await?;
        let proxy = Proxy::start(server.address()).await.or_cannot("start the proxy")?;
        let mut stage = Stage::plain("bucket_faults", options, scratch).await?;
        stage.setup = stage.setup.clone().with_config(&storage(&proxy))?;
        let Some(node) = stage.start("the start").await? else { return Ok(stage.conclude(0)) };
        let node = Arc::new(node);
        let load = stage.load(CLIENTS);
        let mut objects = Objects::new(options.seed);
        let mut rounds = 0;
        while stage.goes_on(rounds, 1) {
            rounds += 1;
            for broken in in_any_order(&mut stage.rng) {
                objects.while_broken(&node, &proxy, &broken, &mut stage.report).await?;
            }
        }
        load.stop().await;
        objects.judge(&node, &mut stage.report).await?;
        let refused = stage.journal.tally().refused;
        if refused > 0 {
            stage
                .report
                .violated_by(format!("{refused} hooks were refused beside a broken bucket"));
        }
        breaker_worked(&node, &mut stage.report).await?;
        stage.drain_and_judge(&node, "at the end").await?;
        if let Ok(node) = Arc::try_unwrap(node) {
            stage.stop(node, "at the end").await?;
        }
        objects.tell(&mut stage.report);
        Ok(stage.conclude(rounds))
    })
}

fn storage(proxy: &Proxy) -> Value {
    json!({"storage": {"type": "s3", "s3": {
        "bucket": BUCKET,
        "region": REGION,
        "endpoint": format!("http://{}", proxy.address()),
        "access_key_id": ACCESS_KEY_ID,
        "secret_access_key": SECRET_ACCESS_KEY,
        "op_deadline_ms": OP_DEADLINE_MS,
        "timeout_ms": 400,
        "upload_timeout_ms": 400,
        "breaker_failures": 5,
        "breaker_open_ms": BREAKER_OPEN_MS,
    }}})
}

/// A fault, and what calls may come to while it lasts.
#[derive(Clone)]
struct Broken {
    what: &'static str,
    rules: Vec<Rule>,
    words: &'static [&'static str],
}

/// What a call comes to where it is made in vain.
const IN_VAIN: &[&str] = &["transport", "deadline", "breaker_open"];

fn faults() -> Vec<Broken> {
    let broken = |what, fault: Fault, words| Broken { what, rules: vec![fault.always()], words };
    let of_reads = |fault: Fault| vec![fault.of(Method::GET)];
    let mut faults = vec![
        broken("500", Fault::status(500), IN_VAIN),
        broken("503", Fault::status(503), IN_VAIN),
        broken("429", Fault::status(429), &["throttled", "deadline"]),
        broken("429 for a minute", Fault::throttle(429, "60"), &["throttled"]),
        broken("503 for a second", Fault::throttle(503, "1"), &["throttled", "deadline"]),
        broken("403", Fault::status(403), &["forbidden"]),
        broken("a reset", Fault::Reset, IN_VAIN),
        broken("silence", Fault::Blackhole, IN_VAIN),
        broken("late", Fault::Late(Duration::from_millis(150)), &[]),
        broken("answers lost", Fault::LoseAnswer, IN_VAIN),
    ];
    let cut = of_reads(Fault::Truncate { after_bytes: 10 });
    faults.push(Broken { what: "answers cut", rules: cut, words: IN_VAIN });
    let drips = of_reads(Fault::Drip { bytes: 4_096, every: Duration::from_millis(1) });
    faults.push(Broken { what: "drops", rules: drips, words: IN_VAIN });
    let flipped = of_reads(Fault::CorruptBody);
    faults.push(Broken { what: "a bit flipped", rules: flipped, words: &["integrity"] });
    // One answer in two of those that are lost has landed: the next attempt meets its own object.
    let when = When { method: Some(Method::PUT), times: Some(2), ..When::default() };
    let rules = vec![Rule { when, fault: Fault::LoseAnswer }];
    faults.push(Broken { what: "two answers lost", rules, words: IN_VAIN });
    faults
}

/// Every fault once.
fn in_any_order(rng: &mut Rng) -> Vec<Broken> {
    let mut faults = faults();
    for last in (1..faults.len()).rev() {
        faults.swap(last, rng.up_to(last));
    }
    faults
}

/// What is known of an object: whether it was said to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Written,
    Perhaps,
}

/// The objects of the drill, by their numbers.
struct Objects {
    seed: u64,
    next: u64,
    known: BTreeMap<u64, Known>,
    /// Calls by what they came to, and the longest.
    words: BTreeMap<String, u64>,
    slowest: Duration,
    slowest_well: Duration,
}

/// One call of an object store.
struct Call {
    number: u64,
    method: Method,
    word: String,
    took: Duration,
    wrong_bytes: bool,
}

impl Objects {
    fn new(seed: u64) -> Self {
        Self {
            seed,
            next: 0,
            known: BTreeMap::new(),
            words: BTreeMap::new(),
            slowest: Duration::ZERO,
            slowest_well: Duration::ZERO,
        }
    }

    /// Breaks the bucket for a while, and waits until it is well again.
    async fn while_broken(
        &mut self,
        node: &Arc<Node>,
        proxy: &Proxy,
        broken: &Broken,
        report: &mut Report,
    ) -> Result<(), CannotInject> {
        proxy.break_by(broken.rules.clone());
        let until = Instant::now() + BROKEN_FOR;
        let mut at_work = JoinSet::new();
        for writer in 0..WRITERS {
            let written = self.known.iter().filter(|(_, known)| **known == Known::Written);
            let read_back = written.map(|(number, _)| *number).nth_back(0);
            let first = self.next + writer * 1_000;
            at_work.spawn(calls(Arc::clone(node), self.seed, first, read_back, until));
        }
        self.next += WRITERS * 1_000;
        while let Some(done) = at_work.join_next().await {
            for call in done.or_cannot("put objects")? {
                self.take(&call, broken, report);
            }
        }
        proxy.heal();
        self.is_well_again(node, broken, report).await;
        Ok(())
    }

    fn take(&mut self, call: &Call, broken: &Broken, report: &mut Report) {
        let Call { number, method, word, took, wrong_bytes } = call;
        *self.words.entry(format!("{} {method} {word}", broken.what)).or_default() += 1;
        self.slowest = self.slowest.max(*took);
        if method == Method::PUT {
            let known = if word == "ok" { Known::Written } else { Known::Perhaps };
            self.known.insert(*number, known);
        }
        let what = broken.what;
        if word != "ok" && !broken.words.contains(&word.as_str()) {
            report.violated_by(format!("{what}: {method} of object {number} came to {word}"));
        }
        if *wrong_bytes {
            report.violated_by(format!("{what}: object {number} was read with other bytes"));
        }
        if *took > Duration::from_millis(OP_DEADLINE_MS) + SLACK {
            let took = millis(*took);
            report.violated_by(format!("{what}: {method} of object {number} took {took} ms"));
        }
    }

    /// The breaker lets one request through after a while, and then all.
    async fn is_well_again(&mut self, node: &Node, broken: &Broken, report: &mut Report) {
        let healed = Instant::now();
        while healed.elapsed() < WELL_WITHIN {
            self.next += 1;
            let call = put(node, self.seed, self.next).await;
            let known = if call.word == "ok" { Known::Written } else { Known::Perhaps };
            self.known.insert(call.number, known);
            if known == Known::Written {
                self.slowest_well = self.slowest_well.max(healed.elapsed());
                return;
            }
            sleep(LOOK_AGAIN).await;
        }
        let what = broken.what;
        report.violated_by(format!("{what}: no object is taken {WELL_WITHIN:?} after it was over"));
    }

    /// Every object is what was said of it.
    async fn judge(&mut self, node: &Node, report: &mut Report) -> Result<(), CannotInject> {
        for (number, known) in &self.known {
            let read = get(node, self.seed, *number).await;
            let fits = match (read.word.as_str(), known) {
                ("ok", Known::Written | Known::Perhaps) => !read.wrong_bytes,
                ("not_found", Known::Perhaps) => true,
                _other => false,
            };
            if !fits {
                let (word, wrong) = (&read.word, read.wrong_bytes);
                report.violated_by(format!(
                    "object {number} is {known:?} and reads as {word}, with other bytes: {wrong}"
                ));
            }
        }
        Ok(())
    }

    fn tell(&self, report: &mut Report) {
        let written = self.known.values().filter(|known| **known == Known::Written).count();
        report.count("objects_written", written);
        report.count("objects_in_doubt", self.known.len() - written);
        report.count("calls", json!(self.words));
        report.count("slowest_call_ms", millis(self.slowest));
        report.count("slowest_well_again_ms", millis(self.slowest_well));
    }
}

/// Puts objects from `first` on, each in turn with a read of one that is there.
async fn calls(
    node: Arc<Node>,
    seed: u64,
    first: u64,
    read_back: Option<u64>,
    until: Instant,
) -> Vec<Call> {
    let mut done = Vec::new();
    for number in first.. {
        if Instant::now() >= until {
            break;
        }
        done.push(put(&node, seed, number).await);
        if let Some(number) = read_back {
            done.push(get(&node, seed, number).await);
        }
    }
    done
}

async fn put(node: &Node, seed: u64, number: u64) -> Call {
    let body = body(seed, number);
    called(node, Method::PUT, number, body, |_| false).await
}

async fn get(node: &Node, seed: u64, number: u64) -> Call {
    let body = body(seed, number);
    called(node, Method::GET, number, Bytes::new(), |read| *read != body).await
}

async fn called(
    node: &Node,
    method: Method,
    number: u64,
    body: Bytes,
    is_wrong: impl FnOnce(&Bytes) -> bool,
) -> Call {
    let began = Instant::now();
    let answer = node.object(method.clone(), &format!("drill/{number}"), body).await;
    let took = began.elapsed();
    let (word, wrong_bytes) = match answer {
        Ok(answer) if answer.status == StatusCode::OK => ("ok".to_owned(), is_wrong(&answer.body)),
        Ok(answer) => {
            let told: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let word = told.get("error").and_then(Value::as_str).unwrap_or("no word");
            (word.to_owned(), false)
        }
        Err(_) => ("no answer".to_owned(), false),
    };
    Call { number, method, word, took, wrong_bytes }
}

/// Up to 64 KiB that follow from the number.
fn body(seed: u64, number: u64) -> Bytes {
    let mut rng = Rng::new(seed.rotate_left(19) ^ number);
    let length = 1 + rng.up_to((64 << 10) - 1);
    let mut body = Vec::with_capacity(length + 8);
    while body.len() < length {
        body.extend_from_slice(&rng.draw().to_le_bytes());
    }
    body.into()
}

/// It opened while the bucket failed, and is closed now.
async fn breaker_worked(node: &Node, report: &mut Report) -> Result<(), CannotInject> {
    let series = node.series().await?;
    let opened = series.sum("ankusa_blob_store_breaker_transitions_total", &[("state", "open")]);
    let is_open = series.sum("ankusa_blob_store_breaker_open", &[]);
    report.count("breaker_opened", opened.unwrap_or(0.0));
    if opened.unwrap_or(0.0) < 1.0 || is_open != Some(0.0) {
        report.violated_by(format!(
            "the breaker has opened {opened:?} times and is {is_open:?} at the end"
        ));
    }
    Ok(())
}
