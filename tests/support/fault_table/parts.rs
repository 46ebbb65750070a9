//! An object in three parts, of which one breaks; or what comes before them, or after.

use std::time::Duration;

use ankusa_actors::ports::{BlobBody, BlobError};
use ankusa_drills_proxy::{Fault, Rule, Seen, When};
use ankusa_node::blob::options::TransportOptions;
use hyper::Method;
use tokio::time::{sleep, timeout};

use super::over_time::nth;
use super::{Bench, NOTICED, Word, options, word, world};

const PART_BYTES: u64 = 5 << 20;

/// Of an object of two parts of that size and a smaller one.
const PARTS: usize = 3;

struct Upload {
    what: &'static str,
    rules: Vec<Rule>,
    word: Word,
    /// Requests that carry a part; `None` where that depends on which came first.
    sent: Option<usize>,
    /// The time it has ended within.
    op_deadline_ms: u64,
}

fn rows(part: &str, asks_how_far: bool) -> Vec<Upload> {
    let op_deadline_ms = options().op_deadline_ms;
    let row = |what, rules, word, sent| Upload { what, rules, word, sent, op_deadline_ms };
    let again = if asks_how_far { PARTS } else { PARTS + 1 };
    let mut rows = vec![
        row("nothing", vec![], "ok", Some(PARTS)),
        Upload {
            op_deadline_ms: 5_000,
            ..row("silence after a part", vec![nth(Fault::Blackhole, part, 1)], "deadline", None)
        },
        row("500 for a part", vec![nth(Fault::status(500), part, 1)], "ok", Some(PARTS + 1)),
        row("a reset of a part", vec![nth(Fault::Reset, part, 1)], "ok", Some(PARTS + 1)),
        row("the answer to a part lost", vec![nth(Fault::LoseAnswer, part, 1)], "ok", Some(again)),
        row(
            "the answer to the first part lost",
            vec![nth(Fault::LoseAnswer, part, 0)],
            "ok",
            Some(again),
        ),
        row("429 for a part", vec![nth(Fault::throttle(429, "1"), part, 1)], "ok", Some(PARTS + 1)),
        row("a part forbidden", vec![nth(Fault::status(403), part, 1)], "forbidden", None),
        row(
            "a part for later",
            vec![nth(Fault::throttle(503, "3600"), part, 1)],
            "throttled",
            None,
        ),
    ];
    // What begins an upload and what ends it, wherever that is.
    for nth_of_all in 0..5 {
        for fault in [Fault::Reset, Fault::status(503), Fault::LoseAnswer] {
            rows.push(row("one of its requests", vec![nth(fault, "", nth_of_all)], "ok", None));
        }
    }
    rows
}

fn cut() -> TransportOptions {
    TransportOptions {
        multipart_threshold_bytes: PART_BYTES,
        multipart_part_bytes: PART_BYTES,
        ..options()
    }
}

fn whole() -> Vec<u8> {
    (0..11 << 20).map(|n: u32| n.to_le_bytes()[1] ^ n.to_le_bytes()[2]).collect()
}

fn body() -> BlobBody {
    BlobBody::from(whole())
}

/// What is not as a row says.
pub(super) async fn wrong(bench: &Bench) -> Vec<String> {
    let (whole, body) = (whole(), body());
    let mut wrong = Vec::new();
    for (n, row) in rows(bench.subject.part, bench.subject.asks_how_far).into_iter().enumerate() {
        let key = bench.key();
        let cut = TransportOptions { op_deadline_ms: row.op_deadline_ms, ..cut() };
        let store = bench.store(cut, world());
        drop(bench.proxy.take_seen());
        bench.proxy.break_by(row.rules.clone());
        // Of both that end in the same requests, by turns.
        let put = async {
            if n % 2 == 0 {
                store.put_if_absent(&key, body.clone(), None).await
            } else {
                store.put(&key, body.clone(), None).await
            }
        };
        let within = Duration::from_millis(row.op_deadline_ms) + NOTICED;
        let put = timeout(within, put).await.expect(row.what);
        bench.proxy.heal();
        let sent = sent(&bench.proxy.take_seen(), bench.subject.part);
        if word(&put) != row.word || row.sent.is_some_and(|expected| expected != sent) {
            wrong.push(format!(
                "{} ({:?}): {put:?} after {sent} parts, not {} after {:?}",
                row.what, row.rules, row.word, row.sent
            ));
        }
        let there = bench.sound.get(&key, None).await;
        let is_right = match &put {
            Ok(()) => there.as_ref().is_ok_and(|there| *there == whole),
            Err(_) => there == Err(BlobError::NotFound),
        };
        if !is_right {
            let there = there.map(|there| there.len());
            wrong.push(format!("{} ({:?}) left {there:?}", row.what, row.rules));
        }
    }
    wrong
}

/// Requests that carried a part.
fn sent(seen: &[Seen], part: &str) -> usize {
    seen.iter().filter(|seen| seen.bytes > 0 && seen.target.contains(part)).count()
}

/// A put that is dropped in the middle, wherever that is, leaves no upload behind. `left` counts those there are.
pub(super) async fn dropped(bench: &Bench, left: impl AsyncFn() -> usize) {
    let part = bench.subject.part;
    let before = left().await;
    // The beginning, which is heard late; a part; and what comes last.
    for (what, held, at, of_all) in [
        ("its beginning", Fault::Late(Duration::from_millis(500)), nth_of("", 0), 1_u64),
        ("a part", Fault::Blackhole, nth_of(part, 1), 3),
        ("its end", Fault::Blackhole, nth_of("", bench.subject.last), bench.subject.last + 1),
    ] {
        let (key, store) = (bench.key(), bench.store(cut(), world()));
        drop(bench.proxy.take_seen());
        bench.proxy.break_by([Rule { when: at, fault: held }]);
        let of_put = key.clone();
        let put = tokio::spawn(async move { store.put(&of_put, body(), None).await });
        let mut seen = Vec::new();
        until(what, async || {
            seen.extend(bench.proxy.take_seen());
            seen.len() >= usize::try_from(of_all).unwrap()
        })
        .await;
        if of_all > 1 {
            assert_eq!(left().await, before + 1, "{what}: it has begun");
        }
        put.abort();
        assert!(put.await.unwrap_err().is_cancelled(), "{what}");
        // Who takes it back waits for nobody.
        until(what, async || {
            seen.extend(bench.proxy.take_seen());
            seen.iter().any(|seen| seen.method == Method::DELETE) && left().await == before
        })
        .await;
        bench.proxy.heal();
        assert_eq!(bench.sound.get(&key, None).await, Err(BlobError::NotFound), "{what}");
    }
}

fn nth_of(holds: &str, nth: u64) -> When {
    super::over_time::nth(Fault::Reset, holds, nth).when
}

/// Looks again and again, for longer than anything here takes.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let looked = async {
        while !is_so().await {
            sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(Duration::from_secs(60), looked)
        .await
        .unwrap_or_else(|_| panic!("{what}: it never came"));
}
