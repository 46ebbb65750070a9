//! Connections that others hold: silent ones, more than there are descriptors for, and ones that send a byte at a time.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::HELD;
use crate::drill::CannotInject;
use crate::load::PREFIX;
use crate::node::Node;
use crate::stage::Stage;
use crate::timings::millis;

/// The largest crowd.
const SILENT: usize = 10_000;

/// The smallest that is one: well over the node's descriptors.
const SILENT_LEAST: usize = 1_000;

/// Descriptors this process keeps for everything else.
const OWN_FILES: usize = 512;

/// Those that send a byte at a time.
const SLOW: usize = 100;

/// A byte every so often.
const BYTE_EVERY: Duration = Duration::from_millis(200);

/// Longest wait for a connection in one of these crowds to be closed. The node's patience is 2 s; a bound on hanging.
const CLOSED_WITHIN: Duration = Duration::from_secs(60);

/// Longest wait for one connection: past the kernel's queue it is the kernel that lets it wait.
const CONNECTED_WITHIN: Duration = Duration::from_millis(500);

/// A crowd of silent connections. Most find no descriptor and wait in the kernel's queue, or not even there.
pub(super) async fn silent(stage: &mut Stage, node: &Node) -> Result<(), CannotInject> {
    let place = "a silent crowd";
    let allowed = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = usize::try_from(allowed).unwrap_or(usize::MAX).saturating_sub(OWN_FILES);
    let size = SILENT.min(room);
    if size < SILENT_LEAST {
        return Err(CannotInject(format!(
            "open {SILENT_LEAST} connections with {allowed} descriptors: raise the limit (ulimit -n)"
        )));
    }
    let came = Instant::now();
    let mut crowd = Vec::new();
    for _ in 0..size {
        let connecting = TcpStream::connect(address(stage));
        match timeout(CONNECTED_WITHIN, connecting).await {
            Ok(Ok(stream)) => crowd.push(stream),
            // The kernel's queue is full: more of them come no nearer.
            Ok(Err(_)) | Err(_) => break,
        }
    }
    stage.report.count("silent_connections", crowd.len());
    sleep(HELD).await;
    stage.report.count("acked_beside_a_silent_crowd", stage.since(came).acked());
    if !node.control_answers().await {
        stage.report.violated_by(format!("{place}: the control socket does not answer"));
    }
    drop(crowd);
    let left = Instant::now();
    if let Some(again) = stage.takes_hooks_again(place, left).await {
        stage.report.count("resumed_after_a_silent_crowd_ms", millis(again));
    }
    Ok(())
}

/// Heads and bodies that come a byte at a time: each is closed, and nobody else waits for them.
pub(super) async fn slow(stage: &mut Stage, node: &Node) -> Result<(), CannotInject> {
    let place = "a slow crowd";
    let began = Instant::now();
    let mut crowd = JoinSet::new();
    for number in 0..SLOW {
        let begin = if number % 2 == 0 {
            String::new()
        } else {
            format!(
                "POST {PREFIX}/alpha HTTP/1.1\r\nhost: localhost\r\ncontent-length: 4000\r\n\r\n"
            )
        };
        crowd.spawn(drip(address(stage), begin));
    }
    let mut held = 0_usize;
    while let Some(closed) = crowd.join_next().await {
        held += usize::from(!matches!(closed, Ok(true)));
    }
    stage.report.count("slow_connections", SLOW);
    if held > 0 {
        stage.report.violated_by(format!(
            "{place}: {held} connections were still open after {CLOSED_WITHIN:?}"
        ));
    }
    let span = stage.since(began);
    stage.report.count("acked_beside_a_slow_crowd", span.acked());
    if !node.is_alive().await {
        stage.report.violated_by(format!("{place}: /health is not green"));
    }
    stage.takes_hooks_again(place, Instant::now()).await;
    Ok(())
}

fn address(stage: &Stage) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, stage.setup.http_port()))
}

/// Sends `begin`, then a byte at a time. Answers whether the other side ended it in time.
async fn drip(address: SocketAddr, begin: String) -> bool {
    let Ok(mut stream) = TcpStream::connect(address).await else { return true };
    let began = Instant::now();
    if stream.write_all(begin.as_bytes()).await.is_err() {
        return true;
    }
    let mut answer = [0; 512];
    while began.elapsed() < CLOSED_WITHIN {
        if stream.write_all(b"P").await.is_err() {
            return true;
        }
        // An answer may come, and then the end.
        if let Ok(Ok(0) | Err(_)) = timeout(BYTE_EVERY, stream.read(&mut answer)).await {
            return true;
        }
    }
    false
}
