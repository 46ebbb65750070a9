//! What becomes of each verb of a store when one thing between it and its bucket is broken: one table for every adapter.
// Every test program uses a part of it.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ankusa_actors::ports::{
    Blob, BlobBody, BlobError, BlobKey, BlobVerb, Clock, Entropy, Event, Events,
};
use ankusa_drills_proxy::{Fault, Proxy, Rule, Seen, When};
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::transport::World;
use ankusa_node::host::HostClock;
use bytes::Bytes;
use hyper::Method;

/// A store under test and the server behind it.
pub struct Subject {
    /// The server, which has the bucket.
    pub upstream: SocketAddr,
    /// The store, as if its server were at this port of this host.
    pub open: Box<dyn Fn(u16, TransportOptions, World) -> Arc<dyn Blob> + Send + Sync>,
    /// Whether a whole read is held against a digest the server sends.
    pub checks_whole_reads: bool,
}

/// What a call comes to: `ok`, or the word of its error.
type Word = &'static str;

struct Row {
    what: &'static str,
    rules: Vec<Rule>,
    verbs: &'static [BlobVerb],
    options: TransportOptions,
    word: Word,
    /// Requests of the verb's first kind: attempts.
    sent: usize,
}

const READS: &[BlobVerb] = &[BlobVerb::Get, BlobVerb::GetRange, BlobVerb::List];
const WRITES: &[BlobVerb] = &[BlobVerb::Put, BlobVerb::PutIfAbsent, BlobVerb::Delete];
const WHOLE: &[BlobVerb] = &[BlobVerb::Get];
const ALL: &[BlobVerb] = &BlobVerb::ALL;

const BODY: &[u8] = b"the bytes of an object, neither few nor many";

/// Time enough for every server on every machine: no row is about that unless it says so.
fn options() -> TransportOptions {
    TransportOptions {
        op_deadline_ms: 120_000,
        timeout_ms: 60_000,
        breaker_failures: 0,
        ..TransportOptions::default()
    }
}

fn rows(checks_whole_reads: bool) -> Vec<Row> {
    let row = |what, rules: Vec<Rule>, verbs, word, sent| Row {
        what,
        rules,
        verbs,
        options: options(),
        word,
        sent,
    };
    let silent = Fault::Blackhole.always();
    let impatient = TransportOptions { timeout_ms: 300, ..options() };
    let nearly_over = TransportOptions { op_deadline_ms: 300, ..options() };
    let corrupt = if checks_whole_reads { "integrity" } else { "ok" };
    let never = "Fri, 31 Dec 2100 23:59:59 GMT";
    let dripped = Fault::Drip { bytes: 5, every: Duration::from_millis(2) };
    let mut rows = vec![
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
        row("an answer cut", vec![Fault::Truncate { after_bytes: 3 }.times(1)], READS, "ok", 2),
        row(
            "answers cut",
            vec![Fault::Truncate { after_bytes: 3 }.always()],
            READS,
            "transport",
            3,
        ),
        row("drops", vec![dripped.always()], READS, "ok", 1),
        row("a bit flipped", vec![Fault::CorruptBody.always()], WHOLE, corrupt, 1),
        row("an answer lost", vec![Fault::LoseAnswer.times(1)], ALL, "ok", 2),
        row("answers lost", vec![Fault::LoseAnswer.always()], WRITES, "transport", 3),
        Row { options: impatient, ..row("silence", vec![silent.clone()], ALL, "transport", 3) },
        Row { options: nearly_over, ..row("until its end", vec![silent], ALL, "deadline", 1) },
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
    for row in rows(bench.subject.checks_whole_reads) {
        for verb in row.verbs {
            let store = bench.store(row.options.clone());
            let call = bench.prepare(*verb).await;
            drop(bench.proxy.take_seen());
            bench.proxy.break_by(row.rules.clone());
            let word = call.on(&*store).await;
            bench.proxy.heal();
            let sent = attempts(&bench.proxy.take_seen());
            if (word, sent) != (row.word, row.sent) {
                wrong.push(format!(
                    "{} on {}: {word} after {sent}, not {} after {}",
                    row.what,
                    verb.as_str(),
                    row.word,
                    row.sent
                ));
            }
            call.left_nothing_wrong(&*bench.sound, word).await;
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

/// An object in parts: a part that is lost is sent again, and one that is refused leaves nothing behind.
pub async fn uploads_hold_for(subject: Subject) {
    let bench = Bench::new(subject).await;
    let parts = TransportOptions {
        multipart_threshold_bytes: 5 << 20,
        multipart_part_bytes: 5 << 20,
        ..options()
    };
    let store = bench.store(parts);
    let whole: Vec<u8> =
        (0..11 << 20).map(|n: u32| n.to_le_bytes()[1] ^ n.to_le_bytes()[2]).collect();
    let body = BlobBody::from(whole.clone());
    let nth = |fault: Fault, nth: u64| Rule {
        when: When { after: nth, times: Some(1), ..When::default() },
        fault,
    };
    for fault in [Fault::Reset, Fault::status(503), Fault::LoseAnswer] {
        // The start, two of the parts and what comes after them.
        for broken in 0..4 {
            let key = bench.key();
            bench.proxy.break_by([nth(fault.clone(), broken)]);
            let put = store.put_if_absent(&key, body.clone(), None).await;
            bench.proxy.heal();
            assert_eq!(put, Ok(()), "{fault:?} of request {broken}");
            assert!(store.get(&key, None).await.unwrap() == whole, "{fault:?} of {broken}");
        }
    }
    let key = bench.key();
    bench.proxy.break_by([nth(Fault::status(403), 2)]);
    let put = store.put(&key, body.clone(), None).await;
    bench.proxy.heal();
    assert_eq!(put.unwrap_err().as_str(), "forbidden");
    assert_eq!(bench.sound.get(&key, None).await, Err(BlobError::NotFound));
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

    fn store(&self, options: TransportOptions) -> Arc<dyn Blob> {
        (self.subject.open)(self.proxy.address().port(), options, world())
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

struct Call {
    verb: BlobVerb,
    key: BlobKey,
}

impl Call {
    async fn on(&self, store: &dyn Blob) -> Word {
        let prefix = self.key.as_str().rsplit_once('/').unwrap().0;
        let done = match self.verb {
            BlobVerb::Put => store.put(&self.key, BODY.into(), None).await,
            BlobVerb::PutIfAbsent => store.put_if_absent(&self.key, BODY.into(), None).await,
            BlobVerb::Get => store.get(&self.key, None).await.map(drop),
            BlobVerb::GetRange => store.get_range(&self.key, 4, 5, None).await.map(|read| {
                assert_eq!(read, Bytes::from_static(&BODY[4..9]));
            }),
            BlobVerb::Delete => store.delete(&self.key, None).await,
            BlobVerb::List => store.list(prefix, None).await.map(|found| {
                let found: Vec<_> = found.iter().map(|entry| entry.key.as_str()).collect();
                assert_eq!(found, [self.key.as_str()]);
            }),
        };
        done.err().map_or("ok", |error| error.as_str())
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
