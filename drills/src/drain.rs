//! SIGTERM under full load with slow sinks, restart on the same store, again and again; now and then a second SIGTERM.
//!
//! A request whose head the node has read is accepted: it must be answered, however the stop has begun meanwhile. Some
//! clients therefore hold back half of a body until after the signal. Of the others nobody can tell whether a connection
//! was closed before or after the node read what was under way on it, so they are judged by what became of them: a hook
//! that is delivered although nobody was told is a request that was accepted and not answered.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use ankusa_drills_check::Outcome;
use bytes::Bytes;
use hyper::StatusCode;
use rustix::process::Signal;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::http::Answer;
use crate::load::{PATIENCE, PREFIX, outcome, sign};
use crate::node::Node;
use crate::scratch::Scratch;
use crate::stage::{Stage, on_a_runtime};
use crate::timings::millis;

/// Rounds, unless asked otherwise.
const ROUNDS: u64 = 10;

const CLIENTS: usize = 32;

/// Clients that hold back half of a body until after the signal.
const HALVES: usize = 4;

/// Every so many rounds a second SIGTERM follows the first.
const TWICE_EVERY: u64 = 5;

/// How long the node waits for requests it is reading, in milliseconds: its `shutdown.drain_ms`.
const DRAIN_MS: u64 = 5_000;

/// Longest wait for a node told to stop: its drain, an attempt that is under way, the close of the store.
const STOPPED_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for one that was told twice.
const ENDED_AT_ONCE_WITHIN: Duration = Duration::from_secs(10);

/// Milliseconds an answer of the sink takes.
const SINK_MS: std::ops::Range<u64> = 20..400;

/// The signal comes this long after the load began, in milliseconds.
const AFTER_MS: std::ops::Range<u64> = 150..600;

/// How long after the signal the held back halves follow.
const HELD_BACK: Duration = Duration::from_millis(60);

#[derive(Default)]
struct Figures {
    once: u64,
    twice: u64,
    slowest_stop: Duration,
    slowest_second: Duration,
    halves_answered: u64,
    /// Requests of graceful rounds without an answer, none of which was accepted.
    closed_unread: usize,
}

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::on_disk()?;
        let data_dir = scratch.subdirectory("data")?;
        let mut stage = Stage::new("drain", options, scratch, &data_dir, SINK_MS).await?;
        // The load leaves a backlog; it is delivered at the end, not at the pace of the slow sink.
        stage.setup = stage.setup.clone().with_config(
            &json!({"shutdown": {"drain_ms": DRAIN_MS}, "dispatch": {"concurrency": 256}}),
        )?;
        let mut figures = Figures::default();
        let mut graceful = Vec::new();
        let mut rounds = 0;
        while stage.goes_on(rounds, ROUNDS) {
            rounds += 1;
            let Some(node) = stage.start(&format!("start {rounds}")).await? else { break };
            let first = stage.next_number();
            if rounds % TWICE_EVERY == 0 {
                twice(&mut stage, node, rounds, &mut figures).await?;
            } else {
                once(&mut stage, node, rounds, &mut figures).await?;
                graceful.push(first..stage.next_number());
            }
            stage.judge_files(&format!("after stop {rounds}"));
        }
        if let Some(node) = stage.start("the last start").await? {
            stage.drain_and_judge(&node, "after the last start").await?;
            stage.stop(node, "after the last start").await?;
        }
        for numbers in graceful {
            judge_answers(&mut stage, numbers, &mut figures);
        }
        Ok(report(stage, rounds, &figures))
    })
}

fn report(mut stage: Stage, rounds: u64, figures: &Figures) -> Report {
    let report = &mut stage.report;
    report.count("sigterms", figures.once);
    report.count("second_sigterms", figures.twice);
    report.count("slowest_stop_ms", millis(figures.slowest_stop));
    report.count("slowest_second_stop_ms", millis(figures.slowest_second));
    report.count("held_back_answered", figures.halves_answered);
    report.count("closed_unread", figures.closed_unread);
    stage.conclude(rounds)
}

/// One SIGTERM.
async fn once(
    stage: &mut Stage,
    mut node: Node,
    round: u64,
    figures: &mut Figures,
) -> Result<(), CannotInject> {
    let place = format!("SIGTERM {round}");
    let load = stage.load(CLIENTS);
    let halves = send_halves(stage).await?;
    sleep(stage.draw_ms(&AFTER_MS)).await;
    let told = Instant::now();
    node.signal(Signal::TERM)?;
    sleep(HELD_BACK).await;
    for half in halves {
        match half.finish(stage).await {
            Some(_) => figures.halves_answered += 1,
            None => stage.report.violated_by(format!(
                "{place}: a request whose head had been read was not answered"
            )),
        }
    }
    let status = node.ended(STOPPED_WITHIN).await?;
    figures.slowest_stop = figures.slowest_stop.max(told.elapsed());
    figures.once += 1;
    load.stop().await;
    match status {
        Some(status) if status.success() => {}
        Some(status) => stage
            .report
            .violated_by(format!("{place}: {status}; the node said last:\n{}", node.log_tail())),
        None => stage.report.violated_by(format!(
            "{place}: still running {STOPPED_WITHIN:?} later; the node said last:\n{}",
            node.log_tail()
        )),
    }
    let left_waiting = stage.since(told).left_waiting;
    if left_waiting > 0 {
        stage.report.violated_by(format!("{place}: {left_waiting} clients were left waiting"));
    }
    Ok(())
}

/// Two SIGTERMs: the second ends it at once, by a clean stop that was faster or as a kill would.
async fn twice(
    stage: &mut Stage,
    mut node: Node,
    round: u64,
    figures: &mut Figures,
) -> Result<(), CannotInject> {
    let place = format!("two SIGTERMs {round}");
    let load = stage.load(CLIENTS);
    sleep(stage.draw_ms(&AFTER_MS)).await;
    node.signal(Signal::TERM)?;
    sleep(stage.draw_ms(&(5..60))).await;
    let told = Instant::now();
    // It may have ended already.
    let _ = node.signal(Signal::TERM);
    let status = node.ended(ENDED_AT_ONCE_WITHIN).await?;
    figures.slowest_second = figures.slowest_second.max(told.elapsed());
    figures.twice += 1;
    load.stop().await;
    let killed_itself = |status: std::process::ExitStatus| {
        status.success() || status.to_string().starts_with("signal: 9")
    };
    match status {
        Some(status) if killed_itself(status) => {}
        Some(status) => stage.report.violated_by(format!("{place}: {status}")),
        None => stage
            .report
            .violated_by(format!("{place}: still running {ENDED_AT_ONCE_WITHIN:?} later")),
    }
    Ok(())
}

/// Of the requests of a graceful stop, none was accepted without an answer.
fn judge_answers(stage: &mut Stage, numbers: std::ops::Range<u64>, figures: &mut Figures) {
    let unanswered = numbers
        .clone()
        .filter(|number| stage.journal.outcome(*number) == Some(Outcome::Unknown))
        .count();
    let accepted = stage.accepted_unanswered(numbers.clone());
    figures.closed_unread += unanswered - accepted;
    if accepted > 0 {
        stage.report.violated_by(format!(
            "{accepted} of the requests {numbers:?} were accepted and not answered"
        ));
    }
}

/// A request of which the node has the head and half of the body.
struct Half {
    number: u64,
    stream: TcpStream,
    rest: Vec<u8>,
}

async fn send_halves(stage: &Stage) -> Result<Vec<Half>, CannotInject> {
    let mut halves = Vec::new();
    for _ in 0..HALVES {
        let (number, source, body) = stage.draw_request();
        let (begin, rest) = body.split_at(body.len() / 2);
        let head = format!(
            "POST {PREFIX}/{source} HTTP/1.1\r\nhost: localhost\r\nx-github-delivery: {number}\r\n\
             x-hub-signature-256: {}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            sign(&body),
            body.len()
        );
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, stage.setup.http_port()));
        let mut stream = TcpStream::connect(address).await.or_cannot("connect to the node")?;
        stream.set_nodelay(true).or_cannot("connect to the node")?;
        stream.write_all(head.as_bytes()).await.or_cannot("send half a request")?;
        stream.write_all(begin).await.or_cannot("send half a request")?;
        halves.push(Half { number, stream, rest: rest.to_vec() });
    }
    Ok(halves)
}

impl Half {
    /// Sends the rest and waits for the answer, which goes to the journal.
    async fn finish(mut self, stage: &Stage) -> Option<Outcome> {
        // A connection that was closed says so when it is read.
        let _ = self.stream.write_all(&self.rest).await;
        let mut text = Vec::new();
        let read = timeout(PATIENCE, self.stream.read_to_end(&mut text)).await;
        let answer = answer_in(&text).filter(|_| matches!(read, Ok(Ok(_))))?;
        let outcome = outcome(Ok(answer));
        stage.journal.answered(self.number, outcome.clone());
        Some(outcome)
    }
}

/// The answer in what a connection said before it was closed.
fn answer_in(text: &[u8]) -> Option<Answer> {
    let status = text.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    let status = StatusCode::from_bytes(status).ok()?;
    let body = text.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    Some(Answer { status, body: Bytes::copy_from_slice(text.get(body..)?) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_status_and_a_body() {
        let answer = answer_in(b"HTTP/1.1 201 Created\r\na: b\r\n\r\n{}");
        assert!(answer.is_some_and(|it| it.status == StatusCode::CREATED && it.body == "{}"));
        assert!(answer_in(b"HTTP/1.1 201 Created\r\n").is_none());
        assert!(answer_in(b"").is_none());
    }
}
