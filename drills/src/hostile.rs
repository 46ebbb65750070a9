//! Thousands of connections that hold what they can and give nothing, beside good traffic: silent ones, heads and bodies
//! that come a byte at a time, and ones that fall silent after a first answer. Whoever is closed comes back at once.
//!
//! Nothing is timed. Every good request is accepted while the crowd is there, the node's memory stays within what so many
//! connections may cost, each of the crowd is closed in the end, and nothing of theirs is stored.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::drill::{CannotInject, DrillOptions, OrCannot, Report};
use crate::load::PREFIX;
use crate::node::Node;
use crate::scratch::Scratch;
use crate::stage::{Stage, on_a_runtime};

/// Rounds, unless asked otherwise.
const ROUNDS: u64 = 1;

/// The crowd, in four kinds.
const CROWD: usize = 5_000;

/// The good clients.
const CLIENTS: usize = 16;

/// Good hooks that must be accepted while the whole crowd is there.
const GOOD_HOOKS: usize = 300;

/// Descriptors of either side beside the crowd.
const OTHER_FILES: usize = 2_048;

/// The node's patience, in milliseconds.
const PATIENCE_MS: u64 = 3_000;

/// A byte every so often.
const BYTE_EVERY: Duration = Duration::from_millis(400);

/// Bounds on hanging.
const ALL_THERE_WITHIN: Duration = Duration::from_secs(120);
const ACCEPTED_WITHIN: Duration = Duration::from_secs(120);
const CLOSED_WITHIN: Duration = Duration::from_secs(120);

/// What one connection of the crowd may cost the node: its buffers, its timers, its state.
const CONNECTION_BYTES: u64 = 64 << 10;

/// What the node may grow by besides, for its own good traffic.
const OWN_GROWTH_BYTES: u64 = 256 << 20;

/// What one of the crowd does.
#[derive(Clone, Copy)]
enum Kind {
    Silent,
    Head,
    Body,
    KeptAlive,
}

const KINDS: [Kind; 4] = [Kind::Silent, Kind::Head, Kind::Body, Kind::KeptAlive];

/// What the crowd has come to.
#[derive(Default)]
struct Crowd {
    goes_home: AtomicBool,
    open: AtomicUsize,
    closed: AtomicUsize,
}

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    // The crowd is on this side of the connections too.
    let files = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, maximum: files.maximum });
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    if usize::try_from(allowed).is_ok_and(|allowed| allowed < CROWD + OTHER_FILES) {
        return Err(CannotInject(format!(
            "open {CROWD} connections with {allowed} descriptors: raise the limit (ulimit -n)"
        )));
    }
    on_a_runtime(async {
        let mut stage = Stage::plain("hostile", options, Scratch::on_disk()?).await?;
        stage.setup = stage.setup.clone().with_config(&config())?;
        let Some(node) = stage.start("the start").await? else { return Ok(stage.conclude(0)) };
        let mut rounds = 0;
        while stage.goes_on(rounds, ROUNDS) && stage.report.violations_total == 0 {
            rounds += 1;
            one(&mut stage, &node).await?;
        }
        stage.drain_and_judge(&node, "after the crowd").await?;
        stage.stop(node, "after the crowd").await?;
        Ok(stage.conclude(rounds))
    })
}

fn config() -> Value {
    json!({
        "log": {"level": "warning"},
        "http": {
            "max_connections": CROWD + CLIENTS,
            "header_timeout_ms": PATIENCE_MS,
            "idle_timeout_ms": PATIENCE_MS,
            "body_timeout_ms": PATIENCE_MS,
        },
        // A busy machine may take its time without being refused.
        "batcher": {"stall_ms": 60_000, "start_deadline_ms": 60_000},
    })
}

async fn one(stage: &mut Stage, node: &Node) -> Result<(), CannotInject> {
    let load = stage.load(CLIENTS);
    stage.acks(Instant::now(), CLIENTS, ACCEPTED_WITHIN).await;
    let before = memory_bytes(node)?;
    let crowd = Arc::new(Crowd::default());
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, stage.setup.http_port()));
    let mut members = JoinSet::new();
    for kind in KINDS.into_iter().cycle().take(CROWD) {
        members.spawn(member(Arc::clone(&crowd), address, kind));
    }
    let all_there = async {
        while crowd.open.load(Ordering::Relaxed) < CROWD * 9 / 10 {
            sleep(Duration::from_millis(20)).await;
        }
    };
    if timeout(ALL_THERE_WITHIN, all_there).await.is_err() {
        let open = crowd.open.load(Ordering::Relaxed);
        stage.report.violated_by(format!("the crowd cannot be there: {open} of {CROWD}"));
    }
    let came = Instant::now();
    if !stage.acks(came, GOOD_HOOKS, ACCEPTED_WITHIN).await {
        let acked = stage.since(came).acked();
        stage.report.violated_by(format!("{acked} hooks were accepted beside the crowd"));
    }
    let grown = memory_bytes(node)?.saturating_sub(before);
    crowd.goes_home.store(true, Ordering::Relaxed);
    let home = async { while members.join_next().await.is_some() {} };
    if timeout(CLOSED_WITHIN, home).await.is_err() {
        let open = crowd.open.load(Ordering::Relaxed);
        stage.report.violated_by(format!("{open} of the crowd were never closed"));
    }
    load.stop().await;
    let span = stage.since(came);
    let harmed = span.refused + span.closed + span.left_waiting;
    if harmed > 0 {
        stage.report.violated_by(format!(
            "{harmed} good requests were refused, closed or left waiting beside the crowd"
        ));
    }
    let bound = CONNECTION_BYTES * u64::try_from(CROWD).unwrap_or(u64::MAX) + OWN_GROWTH_BYTES;
    if grown > bound {
        stage.report.violated_by(format!("the node grew by {grown} bytes, {bound} are in order"));
    }
    stage.report.count("crowd", CROWD);
    stage.report.count("crowd_closed", crowd.closed.load(Ordering::Relaxed));
    stage.report.count("acked_beside_the_crowd", span.acked());
    stage.report.count("grown_bytes", grown);
    Ok(())
}

/// One of the crowd: connects, holds on until it is closed, and comes back.
async fn member(crowd: Arc<Crowd>, address: SocketAddr, kind: Kind) {
    while !crowd.goes_home.load(Ordering::Relaxed) {
        // Past the kernel's queue a connection is not had at once.
        let Ok(mut stream) = TcpStream::connect(address).await else {
            sleep(BYTE_EVERY).await;
            continue;
        };
        crowd.open.fetch_add(1, Ordering::Relaxed);
        hold_on(&mut stream, kind).await;
        crowd.open.fetch_sub(1, Ordering::Relaxed);
        crowd.closed.fetch_add(1, Ordering::Relaxed);
    }
}

/// Until the other side ends it.
async fn hold_on(stream: &mut TcpStream, kind: Kind) {
    let begin = match kind {
        Kind::Silent | Kind::Head => String::new(),
        Kind::Body => {
            format!(
                "POST {PREFIX}/alpha HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000\r\n\r\n"
            )
        }
        Kind::KeptAlive => "GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n".to_owned(),
    };
    if stream.write_all(begin.as_bytes()).await.is_err() {
        return;
    }
    let mut answer = [0; 512];
    loop {
        let drips = matches!(kind, Kind::Head | Kind::Body);
        if drips && stream.write_all(b"P").await.is_err() {
            return;
        }
        let wait = if drips { BYTE_EVERY } else { CLOSED_WITHIN };
        // An answer may come, and then the end.
        if let Ok(Ok(0) | Err(_)) = timeout(wait, stream.read(&mut answer)).await {
            return;
        }
    }
}

/// What the node has in memory.
fn memory_bytes(node: &Node) -> Result<u64, CannotInject> {
    let path = format!("/proc/{}/status", node.pid()?.as_raw_nonzero());
    let status = std::fs::read_to_string(path).or_cannot("read what the node has in memory")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1_024)
        .ok_or_else(|| CannotInject("read what the node has in memory".to_owned()))
}
