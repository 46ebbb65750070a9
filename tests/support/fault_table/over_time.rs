//! What takes more than one call, or another clock: a store that is slow, one that is silent, and a host whose clock is
//! wrong.

use std::sync::Arc;
use std::time::Duration;

use ankusa_actors::ports::{BlobError, BlobVerb, Clock};
use ankusa_drills_proxy::{Fault, Rule, When};
use ankusa_node::blob::options::TransportOptions;
use ankusa_node::blob::transport::World;
use ankusa_node::host::HostClock;

use super::{ALL, Bench, Clocks, Row, options, row, word, world, world_at};

/// Calls a p99 is of.
const WINDOW: usize = 100;

/// What is slow here, in milliseconds: slower than any answer that is not held up.
const SLOW_MS: u64 = 3_000;

/// What is not as it should be.
pub(super) async fn wrong(bench: &Bench) -> Vec<String> {
    let mut wrong = slow(bench).await;
    wrong.extend(silent(bench).await);
    wrong.extend(skewed(bench).await);
    wrong
}

/// Two slow answers of a hundred are the p99, and one is not.
async fn slow(bench: &Bench) -> Vec<String> {
    let mut wrong = Vec::new();
    for (late, expected, sent) in [(1, "ok", 1), (2, "breaker_open", 0)] {
        let options =
            TransportOptions { breaker_failures: 5, breaker_slow_ms: SLOW_MS, ..options() };
        let store = bench.store(options, world());
        let call = bench.prepare(BlobVerb::GetRange).await;
        bench.proxy.break_by([Fault::Late(Duration::from_millis(SLOW_MS + 500)).times(late)]);
        let (mut calls, mut done) = (Vec::new(), Vec::new());
        for _ in 0..WINDOW / 4 {
            calls.clear();
            calls.extend((0..4).map(|_| call.on(&*store, None)));
            done.extend(futures_util::future::join_all(calls.drain(..)).await);
        }
        assert_eq!(done, vec![Ok(()); WINDOW]);
        bench.proxy.heal();
        for verb in ALL {
            let call = bench.prepare(*verb).await;
            drop(bench.proxy.take_seen());
            let told = word(&call.on(&*store, None).await);
            let asked = bench.proxy.take_seen().len();
            if (told, asked) != (expected, sent) {
                let verb = verb.as_str();
                wrong.push(format!(
                    "{late} slow of {WINDOW}, {verb}: {told} after {asked}, not {expected}"
                ));
            }
        }
    }
    wrong
}

/// A store that never answers is a failing one, however little time its callers have.
async fn silent(bench: &Bench) -> Vec<String> {
    let mut wrong = Vec::new();
    for verb in ALL {
        let store = bench.store(TransportOptions { breaker_failures: 2, ..options() }, world());
        let call = bench.prepare(*verb).await;
        drop(bench.proxy.take_seen());
        bench.proxy.break_by([Fault::Blackhole.always()]);
        let mut told = Vec::new();
        for _ in 0..3 {
            let deadline = tokio::time::Instant::now() + Duration::from_millis(600);
            told.push(word(&call.on(&*store, Some(deadline)).await));
        }
        bench.proxy.heal();
        let sent = bench.proxy.take_seen().len();
        if (&told[..], sent) != (&["deadline", "deadline", "breaker_open"], 2) {
            wrong.push(format!("silence on {}: {told:?} after {sent}", verb.as_str()));
        }
    }
    wrong
}

const OFF_S: i64 = 20 * 60;

struct Off(i64);

impl Clock for Off {
    fn now_ms(&self) -> u64 {
        HostClock.now_ms().saturating_add_signed(self.0 * 1_000)
    }
}

async fn skewed(bench: &Bench) -> Vec<String> {
    let mut wrong = Vec::new();
    for off_s in [OFF_S, -OFF_S] {
        let (rules, expected): (Vec<Rule>, _) = match &bench.subject.clocks {
            Clocks::Server => (vec![], "clock_skew"),
            Clocks::Provider(fault) => (vec![fault.clone().always()], "clock_skew"),
            Clocks::Nobody => (vec![], "ok"),
        };
        let world = world_at(Arc::new(Off(off_s)));
        let skewed = row("a clock twenty minutes off", rules, ALL, expected, 1);
        bench.hold(&skewed, &world, &mut wrong).await;
        wrong.extend(by_how_much(bench, &skewed, &world, off_s).await);
    }
    wrong
}

/// The error says how far off the clock is, which is what somebody will set it by.
async fn by_how_much(bench: &Bench, row: &Row, world: &World, off_s: i64) -> Option<String> {
    if row.word != "clock_skew" {
        return None;
    }
    let store = bench.store(options(), world.clone());
    let call = bench.prepare(BlobVerb::Get).await;
    bench.proxy.break_by(row.rules.clone());
    let told = call.on(&*store, None).await;
    bench.proxy.heal();
    // A minute or two may have gone by on the servers' side, and a server of these tests has a clock that stands.
    let is_right = |ahead_s: i64| (off_s - 120..off_s + 300).contains(&ahead_s);
    match told {
        Err(BlobError::ClockSkew { ahead_s }) if is_right(ahead_s) => None,
        other => Some(format!("a clock {off_s} s ahead: {other:?}")),
    }
}

/// The `nth` of the requests that have this in their address, from 0 on.
pub(super) fn nth(fault: Fault, holds: &str, nth: u64) -> Rule {
    let when = When { holds: holds.to_owned(), after: nth, times: Some(1), ..When::default() };
    Rule { when, fault }
}
