//! Tenants flood the node for sinks that hang; another goes on as before.
//!
//! A hook of the quiet tenant is sent every few milliseconds and timed from its request to its arrival at the sink: alone,
//! then beside a backlog of one loud tenant, then of several, then beside backlogs that grow. The last shares its fsyncs
//! too. A node that lets the loud ones have every place keeps the quiet one waiting for an attempt timeout at a time. How
//! much slower it got is reported; what is held against it is far above what a busy machine does by itself, and far below
//! that.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until};

use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::http::Connection;
use crate::load::{PATIENCE, PREFIX, SECRET, sign};
use crate::node::NodeSetup;
use crate::scratch::Scratch;
use crate::stage::on_a_runtime;
use crate::timings::millis;

/// How long each part is, unless asked otherwise.
const MEASURED: Duration = Duration::from_millis(1_500);

/// Between two hooks of the quiet tenant.
const EVERY: Duration = Duration::from_millis(10);

/// What the first loud tenant has waiting when the second part begins, unless asked otherwise.
const BACKLOG: u64 = 10_000;

/// The other loud tenants, and what each has waiting when the third part begins: they come one after the other, and each
/// takes of dispatch what it is given.
const CROWD: [&str; 4] = ["loud-1", "loud-2", "loud-3", "loud-4"];
const BACKLOG_EACH: u64 = 1_000;

/// While dispatch claims as much of it as a loud tenant may hold, the backlog is not at rest.
const SETTLES: Duration = Duration::from_secs(1);

/// Nor while what it left to compaction takes a core: for so many rows a second more.
const COMPACTED_A_SECOND: u64 = 25_000;

/// Clients that make it.
const FLOOD: usize = 32;

/// Between two hooks of each of them while the other is timed: the flood goes on, and leaves the cores to what is drilled.
const TRICKLE: Duration = Duration::from_millis(250);

/// How long an attempt waits for the sink that hangs: it is to hold its place for as long as the short form takes.
const GIVES_UP_AFTER: Duration = Duration::from_secs(29);

/// What is violated: it is no promise of a hook, so it has a name instead of a number.
const FAIRNESS: &str = "fairness";

/// Longest wait for the last hook of the quiet tenant.
const ARRIVED_WITHIN: Duration = Duration::from_secs(60);

/// As many times slower than alone the quiet tenant's hooks may be, the median and the 99th percentile.
const SLOWER_MAX: f64 = 10.0;

/// And not before they are this slow at all: a fraction of the time for which a place can be held.
const SLOW: Duration = Duration::from_millis(250);

/// What is told of a part's times, and held against it.
const PERCENTS: [usize; 2] = [50, 99];

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let began = Instant::now();
        let mut report = Report::new("noisy_neighbour", options.seed);
        let mut all = Turn::default();
        // What a disk does changes by the minute: parts that are long are held against another disk.
        let turns = options.cycles.unwrap_or(1);
        for _turn in 0..turns {
            let measured = options.lasting.unwrap_or(MEASURED);
            all.add(Turn::take(measured, options.rows.unwrap_or(BACKLOG)).await?);
        }
        let Turn { mut alone, mut at_rest, mut crowded, mut growing, accepted, loud_attempts } =
            all;
        for (what, times) in [
            ("alone", &mut alone),
            ("backlog", &mut at_rest),
            ("crowd", &mut crowded),
            ("flood", &mut growing),
        ] {
            times.sort_unstable_by_key(|took| took.unwrap_or(Duration::MAX));
            for percent in PERCENTS {
                report.count(format!("{what}_p{percent}_ms"), tenths(at(times, percent)));
            }
        }
        judge(&mut report, "backlog", &alone, &at_rest);
        judge(&mut report, "crowd", &alone, &crowded);
        judge(&mut report, "flood", &alone, &growing);
        report.count("loud_attempts", loud_attempts);
        let timed = alone.len() + at_rest.len() + crowded.len() + growing.len();
        report.acked = accepted.saturating_add(u64::try_from(timed).unwrap_or(u64::MAX));
        report.elapsed_ms = began.elapsed().as_millis();
        Ok(report)
    })
}

/// What was timed on one node, or on several.
#[derive(Default)]
struct Turn {
    alone: Times,
    at_rest: Times,
    crowded: Times,
    growing: Times,
    /// Of the backlogs.
    accepted: u64,
    loud_attempts: usize,
}

impl Turn {
    async fn take(measured: Duration, backlog: u64) -> Result<Self, CannotInject> {
        let scratch = Scratch::on_disk()?;
        let data_dir = scratch.subdirectory("data")?;
        let (quick, hanging) = (Sink::start(true).await?, Sink::start(false).await?);
        let mut sources =
            json!({"quiet": source("quiet", &quick), "loud": source("loud", &hanging)});
        for loud in CROWD {
            sources[loud] = source(loud, &hanging);
        }
        let setup = NodeSetup::new(scratch.path(), &data_dir, &quick.url())?
            .with_config(&json!({"sources": sources}))?;
        let node = setup.start().await.or_cannot("start the node")?;
        let port = setup.http_port();
        let alone = quick.time(port, measured).await?;
        let mut accepted = flood(port, "loud", backlog).await?;
        sleep(SETTLES + Duration::from_secs(backlog / COMPACTED_A_SECOND)).await;
        let at_rest = quick.time(port, measured).await?;
        for loud in CROWD {
            accepted += flood(port, loud, BACKLOG_EACH).await?;
        }
        sleep(SETTLES).await;
        let crowded = quick.time(port, measured).await?;
        let mut clients = JoinSet::new();
        (0..FLOOD).for_each(|_| drop(clients.spawn(trickle(port))));
        let growing = quick.time(port, measured).await?;
        drop(clients);
        drop(node);
        let loud_attempts = hanging.arrived();
        Ok(Self { alone, at_rest, crowded, growing, accepted, loud_attempts })
    }

    fn add(&mut self, other: Self) {
        self.alone.extend(other.alone);
        self.at_rest.extend(other.at_rest);
        self.crowded.extend(other.crowded);
        self.growing.extend(other.growing);
        self.accepted += other.accepted;
        self.loud_attempts += other.loud_attempts;
    }
}

fn source(tenant: &str, sink: &Sink) -> Value {
    json!({
        "tenant": tenant,
        "verify": {"type": "github", "secret": SECRET},
        "sinks": [{
            "type": "http",
            "url": sink.url(),
            "allow_unsigned": true,
            "timeout_ms": millis(GIVES_UP_AFTER),
        }],
    })
}

/// Every time a hook of the quiet tenant took, in order of length where percentiles are told; nothing for one that did not
/// arrive.
type Times = Vec<Option<Duration>>;

/// Holds the times beside something against those alone.
fn judge(report: &mut Report, what: &str, alone: &Times, beside: &Times) {
    for percent in PERCENTS {
        let (alone, beside) = (at(alone, percent), at(beside, percent));
        let slower = beside.as_secs_f64() / alone.as_secs_f64().max(0.001);
        report.count(format!("{what}_slower_p{percent}"), (slower * 100.0).round() / 100.0);
        if slower > SLOWER_MAX && beside > SLOW {
            report.violated_as(
                FAIRNESS,
                format!(
                    "percentile {percent} of the quiet tenant went from {} to {} ms",
                    millis(alone),
                    millis(beside)
                ),
            );
        }
    }
    let missing = alone.iter().chain(beside).filter(|took| took.is_none()).count();
    if missing > 0 {
        report.violated_as(
            FAIRNESS,
            format!("{missing} hooks of the quiet tenant had not arrived after {ARRIVED_WITHIN:?}"),
        );
    }
}

/// Milliseconds to a tenth.
fn tenths(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

fn at(times: &Times, percent: usize) -> Duration {
    percentile(times, percent).unwrap_or(ARRIVED_WITHIN)
}

fn percentile(times: &Times, percent: usize) -> Option<Duration> {
    let at = (times.len() * percent).div_ceil(100).saturating_sub(1);
    times.get(at).copied().flatten()
}

/// A server that notes when each hook arrived, and answers at once or not at all.
struct Sink {
    port: u16,
    arrivals: Arc<Mutex<Vec<(usize, Instant)>>>,
}

impl Sink {
    async fn start(answers: bool) -> Result<Self, CannotInject> {
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).await;
        let listener = listener.or_cannot("listen as the sink")?;
        let port = listener.local_addr().or_cannot("listen as the sink")?.port();
        let arrivals = Arc::<Mutex<Vec<_>>>::default();
        let notes = Arc::clone(&arrivals);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answers, Arc::clone(&notes)));
            }
        });
        Ok(Self { port, arrivals })
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/hooks", self.port)
    }

    fn arrived(&self) -> usize {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Sends hooks of the quiet tenant for a while and waits until each has arrived.
    async fn time(&self, port: u16, measured: Duration) -> Result<Times, CannotInject> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner).clear();
        let mut connection = Connection::to_port(port).await.or_cannot("connect")?;
        let (begun, mut sent) = (Instant::now(), Vec::new());
        while begun.elapsed() < measured {
            let next = Instant::now() + EVERY;
            sent.push(Instant::now());
            post(&mut connection, "quiet", sent.len() - 1).await?;
            sleep_until(next.into()).await;
        }
        let last = Instant::now();
        while self.arrived() < sent.len() && last.elapsed() < ARRIVED_WITHIN {
            sleep(EVERY).await;
        }
        let arrivals = self.arrivals.lock().unwrap_or_else(PoisonError::into_inner);
        let mut took: Times = vec![None; sent.len()];
        for (number, at) in arrivals.iter() {
            if let (Some(took), Some(sent)) = (took.get_mut(*number), sent.get(*number)) {
                took.get_or_insert(at.saturating_duration_since(*sent));
            }
        }
        Ok(took)
    }
}

async fn serve(stream: TcpStream, answers: bool, notes: Arc<Mutex<Vec<(usize, Instant)>>>) {
    let service = service_fn(|request: Request<Incoming>| {
        let notes = Arc::clone(&notes);
        async move {
            let body = request.into_body().collect().await.map(|body| body.to_bytes());
            let number = body.ok().and_then(|body| std::str::from_utf8(&body).ok()?.parse().ok());
            let note = (number.unwrap_or(usize::MAX), Instant::now());
            notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
            if !answers {
                std::future::pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

/// Posts the hook with this number as its body, and takes nothing but a 201 for an answer.
async fn post(
    connection: &mut Connection,
    source: &str,
    number: usize,
) -> Result<(), CannotInject> {
    let body = number.to_string();
    let (path, signature) = (format!("{PREFIX}/{source}"), sign(body.as_bytes()));
    let headers = [("x-hub-signature-256", signature.as_str())];
    let answer = connection.send(Method::POST, &path, &headers, Bytes::from(body), PATIENCE).await;
    match answer.or_cannot("have a hook taken")?.status {
        StatusCode::CREATED => Ok(()),
        status => Err(CannotInject(format!("cannot have a hook taken: it was answered {status}"))),
    }
}

/// Has about `count` hooks of a loud tenant taken. Answers how many.
async fn flood(port: u16, loud: &'static str, count: u64) -> Result<u64, CannotInject> {
    let mut clients = JoinSet::new();
    let each = usize::try_from(count).unwrap_or(usize::MAX).div_ceil(FLOOD);
    let mut accepted = 0;
    for _ in 0..FLOOD {
        clients.spawn(async move {
            let mut connection = Connection::to_port(port).await.or_cannot("connect")?;
            for number in 0..each {
                post(&mut connection, loud, number).await?;
            }
            Ok::<_, CannotInject>(u64::try_from(each).unwrap_or(u64::MAX))
        });
    }
    while let Some(ended) = clients.join_next().await {
        accepted += ended.or_cannot("run a client")??;
    }
    Ok(accepted)
}

async fn trickle(port: u16) -> Result<(), CannotInject> {
    let mut connection = Connection::to_port(port).await.or_cannot("connect")?;
    loop {
        post(&mut connection, "loud", 0).await?;
        sleep(TRICKLE).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(each_ms: u64, last_ms: u64) -> Times {
        let mut times = vec![Some(Duration::from_millis(each_ms)); 199];
        times.extend([Some(Duration::from_millis(last_ms)); 3]);
        times
    }

    fn verdict(alone: &Times, beside: &Times) -> String {
        let mut report = Report::new("noisy_neighbour", 1);
        judge(&mut report, "backlog", alone, beside);
        serde_json::to_string(&report).unwrap()
    }

    #[test]
    fn ten_times_slower_is_a_violation_only_where_it_is_slow() {
        let alone = times(2, 5);
        for (beside, violated) in [
            (times(2, 5), false),
            (times(40, 90), false),
            (times(2, 251), true),
            (times(300, 300), true),
        ] {
            assert_eq!(verdict(&alone, &beside).contains("\"violated\""), violated);
        }
        assert!(!verdict(&times(200, 900), &times(900, 5_000)).contains("\"violated\""));
    }

    #[test]
    fn a_hook_that_never_arrives_is_a_violation() {
        let mut beside = times(2, 5);
        beside.push(None);
        assert!(verdict(&times(2, 5), &beside).contains("1 hooks of the quiet tenant"));
    }
}
