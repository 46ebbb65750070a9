//! What becomes of each verb of a store when one thing between it and its bucket is broken: one table for every adapter,
//! of the fault and the verb to the error, the attempts and the time within which it is told.
// Every test program uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ankusa_actors::ports::{Blob, BlobError, BlobKey, BlobVerb, Clock, Entropy, Event, Events};
use ankusa_drills_proxy::{Fault, Proxy, Rule, Seen};
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::transport::World;
use ankusa_node::host::HostClock;
use bytes::Bytes;
use hyper::Method;
use tokio::time::{Instant, timeout};

#[path = "fault_table/over_time.rs"]
mod over_time;
#[path = "fault_table/pages.rs"]
mod pages;
#[path = "fault_table/parts.rs"]
mod parts;

pub use pages::Page;

/// A store under test and the server behind it.
pub struct Subject {
    /// The server, which has the bucket.
    pub upstream: SocketAddr,
    /// The store, as if its server were at this port of this host.
    pub open: Box<dyn Fn(u16, TransportOptions, World) -> Arc<dyn Blob> + Send + Sync>,
    /// The header of the digest that a whole read is held against, and another object's digest.
    pub digest: (&'static str, &'static str),
    /// What becomes of whoever's clock is twenty minutes off.
    pub clocks: Clocks,
    /// A page of a listing, as the server writes it.
    pub page: fn(&Page<'_>) -> String,
    /// Whether pages say which they are, so that one is not taken for another.
    pub pages_say_which: bool,
    /// What the address of every part of an upload has in it.
    pub part: &'static str,
    /// The last request of an upload of three parts, from 0 on.
    pub last: u64,
    /// Whether an upload asks how far it came, and sends no part again that has arrived.
    pub asks_how_far: bool,
}

/// Who looks at the date of a request.
pub enum Clocks {
    /// The server, and it refuses.
    Server,
    /// The provider, which says this; the server behind does not look.
    Provider(Fault),
    /// Nobody: what proves who asks has no date.
    Nobody,
}

/// What a call comes to: `ok`, or the word of its error.
type Word = &'static str;

struct Row {
    what: &'static str,
    rules: Vec<Rule>,
    verbs: &'static [BlobVerb],
    /// With the time within which the call has ended, however it does: `op_deadline_ms`.
    options: TransportOptions,
    /// What the caller allows, if that is less.
    caller_ms: Option<u64>,
    word: Word,
    /// Requests of the verb's first kind: attempts.
    sent: usize,
}

const READS: &[BlobVerb] = &[BlobVerb::Get, BlobVerb::GetRange, BlobVerb::List];
const WRITES: &[BlobVerb] = &[BlobVerb::Put, BlobVerb::PutIfAbsent, BlobVerb::Delete];
const WHOLE: &[BlobVerb] = &[BlobVerb::Get];
const ALL: &[BlobVerb] = &BlobVerb::ALL;

const BODY: &[u8] = b"the bytes of an object, neither few nor many";

/// Every row ends within this, on every server and machine; those that are about time say less.
const WITHIN_MS: u64 = 120_000;

/// How much later than a bound a busy machine notices that it has passed.
const NOTICED: Duration = Duration::from_secs(30);

fn options() -> TransportOptions {
    TransportOptions {
        op_deadline_ms: WITHIN_MS,
        timeout_ms: 60_000,
        breaker_failures: 0,
        ..TransportOptions::default()
    }
}

fn row(
    what: &'static str,
    rules: Vec<Rule>,
    verbs: &'static [BlobVerb],
    word: Word,
    sent: usize,
) -> Row {
    Row { what, rules, verbs, options: options(), caller_ms: None, word, sent }
}

fn rows((digest, of_another): (&str, &str)) -> Vec<Row> {
    let silent = || vec![Fault::Blackhole.always()];
    let impatient = TransportOptions { timeout_ms: 300, ..options() };
    let nearly_over = TransportOptions { op_deadline_ms: 300, ..options() };
    let never = "Fri, 31 Dec 2100 23:59:59 GMT";
    let dripped = Fault::Drip { bytes: 5, every: Duration::from_millis(2) };
    let endless = Fault::Drip { bytes: 1, every: Duration::from_millis(200) };
    let other_digest = Fault::Header { name: digest.into(), value: of_another.into() };
    let cut = Fault::Truncate { after_bytes: 3 };
    let mut rows = vec![
        row("nothing", vec![], ALL, "ok", 1),
        row("500 once", vec![Fault::status(500).times(1)], ALL, "ok", 2),
        row("500", vec![Fault::status(500).always()], ALL, "transport", 3),
        row("429 twice", vec![Fault::status(429).times(2)], ALL, "ok", 3),
        row("429", vec![Fault::status(429).always()], ALL, "throttled", 3),
        row("429 for an hour", vec![Fault::throttle(429, "3600").always()], ALL, "throttled", 1),
        row("503 until 2100", vec![Fault::throttle(503, never).always()], READS, "throttled", 1),
        row("503 for a second", vec![Fault::throttle(503, "1").times(1)], WHOLE, "ok", 2),
        row("403", vec![Fault::status(403).always()], ALL, "forbidden", 1),
        row("401", vec![Fault::status(401).always()], ALL, "forbidden", 1),
        row("400", vec![Fault::status(400).always()], ALL, "misconfigured", 1),
        row("301", vec![Fault::status(301).always()], ALL, "misconfigured", 1),
        row("a reset", vec![Fault::Reset.times(1)], ALL, "ok", 2),
        row("resets", vec![Fault::Reset.always()], ALL, "transport", 3),
        row("an answer cut", vec![cut.clone().times(1)], READS, "ok", 2),
        row("answers cut", vec![cut.always()], READS, "transport", 3),
        row("drops", vec![dripped.always()], READS, "ok", 1),
        row("a bit flipped", vec![Fault::CorruptBody.always()], WHOLE, "integrity", 1),
        row("a wrong digest", vec![other_digest.always()], WHOLE, "integrity", 1),
        row("an answer lost", vec![Fault::LoseAnswer.times(1)], ALL, "ok", 2),
        row("answers lost", vec![Fault::LoseAnswer.always()], WRITES, "transport", 3),
        Row { options: impatient.clone(), ..row("silence", silent(), ALL, "transport", 3) },
        Row {
            options: impatient,
            ..row("drops", vec![endless.clone().always()], WHOLE, "transport", 3)
        },
        Row { options: nearly_over.clone(), ..row("until its end", silent(), ALL, "deadline", 1) },
        Row { options: nearly_over, ..row("drops", vec![endless.always()], WHOLE, "deadline", 1) },
        Row { caller_ms: Some(300), ..row("until the caller's", silent(), ALL, "deadline", 1) },
    ];
    for status in [408, 502, 504] {
        rows.push(row("a failure", vec![Fault::status(status).always()], WHOLE, "transport", 3));
    }
    rows
}

/// Holds every row against the subject.
pub async fn holds_for(subject: Subject) {
    let bench = Bench::new(subject).await;
    let mut wrong = Vec::new();
    for row in rows(bench.subject.digest) {
        bench.hold(&row, &world(), &mut wrong).await;
    }
    wrong.extend(pages::wrong(&bench).await);
    wrong.extend(over_time::wrong(&bench).await);
    assert_eq!(wrong, Vec::<String>::new());
}

/// An object in parts: a part that is lost is sent again, and one that is refused leaves nothing behind.
pub async fn uploads_hold_for(subject: Subject) {
    let bench = Bench::new(subject).await;
    assert_eq!(parts::wrong(&bench).await, Vec::<String>::new());
}

/// An object in parts whose put is dropped in the middle: no upload is left behind, of which `left` counts those there are.
pub async fn dropped_uploads_are_taken_back_by(subject: Subject, left: impl AsyncFn() -> usize) {
    parts::dropped(&Bench::new(subject).await, left).await;
}

/// Of a store whose credentials can be had anew: `expired` is how its provider says that they must be.
pub async fn credentials_are_renewed_for(subject: Subject, expired: Fault) {
    let bench = Bench::new(subject).await;
    let mut wrong = Vec::new();
    for row in [
        row("401 once", vec![Fault::status(401).times(1)], ALL, "ok", 2),
        row("expired once", vec![expired.clone().times(1)], ALL, "ok", 2),
        row("expired twice", vec![expired.clone().times(2)], ALL, "forbidden", 2),
        row("expired", vec![expired.always()], ALL, "forbidden", 2),
    ] {
        bench.hold(&row, &world(), &mut wrong).await;
    }
    assert_eq!(wrong, Vec::<String>::new());
}

struct Bench {
    subject: Subject,
    proxy: Proxy,
    /// Past the proxy.
    sound: Arc<dyn Blob>,
    next: AtomicU64,
}

impl Bench {
    async fn new(subject: Subject) -> Self {
        let proxy = Proxy::start(subject.upstream).await.unwrap();
        let sound = (subject.open)(subject.upstream.port(), options(), world());
        Self { subject, proxy, sound, next: AtomicU64::new(0) }
    }

    /// Holds a row, for each of its verbs, by a store of its own.
    async fn hold(&self, row: &Row, world: &World, wrong: &mut Vec<String>) {
        for verb in row.verbs {
            let store = self.store(row.options.clone(), world.clone());
            let call = self.prepare(*verb).await;
            drop(self.proxy.take_seen());
            self.proxy.break_by(row.rules.clone());
            let word = self.ended(row, call.on(&*store, row.deadline())).await;
            self.proxy.heal();
            let sent = attempts(&self.proxy.take_seen());
            if (word, sent) != (row.word, row.sent) {
                wrong.push(format!(
                    "{} on {}: {word} after {sent}, not {} after {}",
                    row.what,
                    verb.as_str(),
                    row.word,
                    row.sent
                ));
            }
            call.left_nothing_wrong(&*self.sound, word).await;
        }
    }

    /// The word of a call, if it keeps to the time it has.
    async fn ended(&self, row: &Row, call: impl Future<Output = Result<(), BlobError>>) -> Word {
        let within = row.caller_ms.unwrap_or(row.options.op_deadline_ms);
        match timeout(Duration::from_millis(within) + NOTICED, call).await {
            Ok(done) => word(&done),
            Err(_) => "no end",
        }
    }

    fn store(&self, options: TransportOptions, world: World) -> Arc<dyn Blob> {
        (self.subject.open)(self.proxy.address().port(), options, world)
    }

    fn key(&self) -> BlobKey {
        let n = self.next.fetch_add(1, Ordering::SeqCst);
        BlobKey::new(format!("faults/{n}/object")).unwrap()
    }

    /// A call that succeeds where nothing is broken.
    async fn prepare(&self, verb: BlobVerb) -> Call {
        let key = self.key();
        match verb {
            BlobVerb::Put | BlobVerb::PutIfAbsent => {}
            BlobVerb::Get | BlobVerb::GetRange | BlobVerb::Delete | BlobVerb::List => {
                self.sound.put(&key, BODY.into(), None).await.unwrap();
            }
        }
        Call { verb, key }
    }
}

impl Row {
    fn deadline(&self) -> Option<Instant> {
        self.caller_ms.map(|ms| Instant::now() + Duration::from_millis(ms))
    }
}

fn word(done: &Result<(), BlobError>) -> Word {
    done.as_ref().err().map_or("ok", BlobError::as_str)
}

struct Call {
    verb: BlobVerb,
    key: BlobKey,
}

impl Call {
    async fn on(&self, store: &dyn Blob, until: Option<Instant>) -> Result<(), BlobError> {
        let prefix = self.key.as_str().rsplit_once('/').unwrap().0;
        match self.verb {
            BlobVerb::Put => store.put(&self.key, BODY.into(), until).await,
            BlobVerb::PutIfAbsent => store.put_if_absent(&self.key, BODY.into(), until).await,
            BlobVerb::Get => store.get(&self.key, until).await.map(|read| assert_eq!(read, BODY)),
            BlobVerb::GetRange => store.get_range(&self.key, 4, 5, until).await.map(|read| {
                assert_eq!(read, Bytes::from_static(&BODY[4..9]));
            }),
            BlobVerb::Delete => store.delete(&self.key, until).await,
            BlobVerb::List => store.list(prefix, until).await.map(|found| {
                let found: Vec<_> = found.iter().map(|entry| entry.key.as_str()).collect();
                assert_eq!(found, [self.key.as_str()]);
            }),
        }
    }

    /// What is said to be done is, and a half is nowhere.
    async fn left_nothing_wrong(&self, sound: &dyn Blob, word: Word) {
        let there = sound.get(&self.key, None).await;
        let whole = Ok(Bytes::from_static(BODY));
        match (self.verb, word) {
            (BlobVerb::Put | BlobVerb::PutIfAbsent, "ok") => assert_eq!(there, whole),
            (BlobVerb::Delete, "ok") => assert_eq!(there, Err(BlobError::NotFound)),
            (BlobVerb::Put | BlobVerb::PutIfAbsent | BlobVerb::Delete, _failed) => {
                assert!(there == whole || there == Err(BlobError::NotFound), "{there:?}");
            }
            (BlobVerb::Get | BlobVerb::GetRange | BlobVerb::List, _any) => assert_eq!(there, whole),
        }
    }
}

/// Requests like the first one.
fn attempts(seen: &[Seen]) -> usize {
    let first: Option<&Method> = seen.first().map(|seen| &seen.method);
    seen.iter().filter(|seen| Some(&seen.method) == first).count()
}

/// Nothing is waited for between attempts.
struct NoChance;

impl Entropy for NoChance {
    fn bits(&self) -> u128 {
        0
    }
}

struct Unheard;

impl Events for Unheard {
    fn emit(&self, _: &Event<'_>) {}
}

pub fn world() -> World {
    world_at(Arc::new(HostClock))
}

pub fn world_at(clock: Arc<dyn Clock>) -> World {
    World {
        clock,
        entropy: Arc::new(NoChance),
        events: Arc::new(Unheard),
        pools: Arc::default(),
        breakers: Arc::default(),
    }
}
