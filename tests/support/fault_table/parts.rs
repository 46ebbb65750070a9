//! An object in three parts, of which one breaks; or what comes before them, or after.

use ankusa_actors::ports::{BlobBody, BlobError};
use ankusa_drills_proxy::{Fault, Rule, Seen};
use ankusa_node::blob::options::TransportOptions;

use super::over_time::nth;
use super::{Bench, Word, options, word, world};

const PART_BYTES: u64 = 5 << 20;

/// Of an object of two parts of that size and a smaller one.
const PARTS: usize = 3;

struct Upload {
    what: &'static str,
    rules: Vec<Rule>,
    word: Word,
    /// Requests that carry a part; `None` where that depends on which came first.
    sent: Option<usize>,
}

fn rows(part: &str, asks_how_far: bool) -> Vec<Upload> {
    let row = |what, rules, word, sent| Upload { what, rules, word, sent };
    let again = if asks_how_far { PARTS } else { PARTS + 1 };
    let mut rows = vec![
        row("nothing", vec![], "ok", Some(PARTS)),
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

/// What is not as a row says.
pub(super) async fn wrong(bench: &Bench) -> Vec<String> {
    let cut = TransportOptions {
        multipart_threshold_bytes: PART_BYTES,
        multipart_part_bytes: PART_BYTES,
        ..options()
    };
    let whole: Vec<u8> =
        (0..11 << 20).map(|n: u32| n.to_le_bytes()[1] ^ n.to_le_bytes()[2]).collect();
    let body = BlobBody::from(whole.clone());
    let store = bench.store(cut, world());
    let mut wrong = Vec::new();
    for (n, row) in rows(bench.subject.part, bench.subject.asks_how_far).into_iter().enumerate() {
        let key = bench.key();
        drop(bench.proxy.take_seen());
        bench.proxy.break_by(row.rules.clone());
        // Of both that end in the same requests, by turns.
        let put = if n % 2 == 0 {
            store.put_if_absent(&key, body.clone(), None).await
        } else {
            store.put(&key, body.clone(), None).await
        };
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
