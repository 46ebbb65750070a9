//! Whether delivery keeps up: a whole node at 60 % of the rate it can ack at, with a sink on loopback that answers at once.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::bench::clients::{self, Pace, Plan};
use crate::bench::node::{Node, Serves};
use crate::bench::requests::Requests;
use crate::bench::{Bar, BenchOptions, Side};
use crate::drill::{CannotInject, OrCannot};

/// Of the ack peak, the rate that deliveries have to keep up with.
const SHARE: f64 = 0.6;

/// Of the ack peak, the rate at which is measured what a delivered hook costs: where more are acked than delivered, those
/// that wait would be paid for by those that do not.
const EASY_SHARE: f64 = 0.25;

/// How long the peak is looked for, and how long deliveries keep up with its share.
const PEAK: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

const WARM_UP: Duration = Duration::from_secs(2);
const CONNECTIONS: usize = 256;

/// The largest request the sink reads, head and body.
const REQUEST_BYTES: usize = 16_384;

/// What came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptUp {
    peak_per_second: f64,
    ack_cpu_us: f64,
    /// At the rate of `easy`: with fewer hooks to a group each costs more.
    easy_ack_cpu_us: f64,
    easy: Delivered,
    hard: Delivered,
}

/// At one share of the peak.
#[derive(Clone, Copy, Debug)]
struct Delivered {
    accepted: u64,
    refused: u64,
    delivered: u64,
    lasted: Duration,
    cpu: Duration,
}

impl Delivered {
    fn of_accepted(&self) -> f64 {
        self.delivered as f64 / self.accepted as f64
    }

    /// CPU of the node for a hook acked, delivered and reclaimed, in microseconds.
    fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.delivered as f64
    }

    fn line(&self, share: f64) -> String {
        format!(
            "with deliveries at {:.0} % of it: {} accepted and {} delivered in {:.0} s ({:.0}/s), {} refused; {:.1} us of \
             CPU for each that was delivered",
            share * 100.0,
            self.accepted,
            self.delivered,
            self.lasted.as_secs_f64(),
            self.accepted as f64 / self.lasted.as_secs_f64(),
            self.refused,
            self.cpu_us()
        )
    }
}

impl KeptUp {
    pub(super) fn lines(&self) -> Vec<String> {
        vec![
            format!(
                "a whole node: acks alone {:.0}/s, {:.1} us a hook; at {:.0} % of it {:.1} us",
                self.peak_per_second,
                self.ack_cpu_us,
                EASY_SHARE * 100.0,
                self.easy_ack_cpu_us
            ),
            self.easy.line(EASY_SHARE),
            self.hard.line(SHARE),
        ]
    }

    pub(super) fn bars(&self) -> Vec<Bar> {
        let (kept_up, dearer) = (self.hard.of_accepted(), self.easy.cpu_us() / self.ack_cpu_us);
        vec![
            Bar::new("delivered_of_accepted_at_60_percent", kept_up, Side::AtLeast, 0.99),
            Bar::new("delivered_cpu_vs_ack_cpu", dearer, Side::AtMost, 3.0),
        ]
    }
}

/// Measures the peak of acks, and then deliveries at a share of it.
pub(super) fn measure(directory: &Path, options: &BenchOptions) -> Result<KeptUp, CannotInject> {
    let requests = Rc::new(Requests::new());
    let connections = options.connections.unwrap_or(CONNECTIONS).max(1);
    let plan = |node: &Node, pace, measured| Plan {
        port: node.http_port,
        connections,
        pace,
        warm_up: WARM_UP,
        measured,
    };
    let (acks, easy_acks) = {
        let home = Home::below(directory, "acks")?;
        let node = Node::start(&home.0, Serves::Acks)?;
        let ack = |pace| {
            let plan = plan(&node, pace, PEAK);
            clients::run(plan, &requests, || node.cpu(), async || Ok(()))
        };
        let acks = ack(Pace::Closed)?;
        let easy = Pace::PerSecond(acks.per_second() * EASY_SHARE);
        (acks, ack(easy)?)
    };
    let home = Home::below(directory, "deliveries")?;
    let sink = Sink::start()?;
    let node = Node::start(&home.0, Serves::Deliveries { sink_port: sink.port })?;
    let minute = options.seconds.map_or(MINUTE, Duration::from_secs);
    let deliver = |share| {
        let pace = Pace::PerSecond(acks.per_second() * share);
        let look = async || Ok(sink.taken.load(Ordering::Relaxed));
        let answers = clients::run(plan(&node, pace, minute), &requests, || node.cpu(), look)?;
        let (before, after) = answers.seen;
        Ok::<_, CannotInject>(Delivered {
            accepted: answers.acked,
            refused: answers.refused,
            delivered: after - before,
            lasted: answers.lasted,
            cpu: answers.cpu,
        })
    };
    let (easy, hard) = (deliver(EASY_SHARE)?, deliver(SHARE)?);
    Ok(KeptUp {
        peak_per_second: acks.per_second(),
        ack_cpu_us: acks.cpu_us(),
        easy_ack_cpu_us: easy_acks.cpu_us(),
        easy,
        hard,
    })
}

/// A directory, gone with everything in it when this is dropped.
struct Home(std::path::PathBuf);

impl Home {
    fn below(directory: &Path, name: &str) -> Result<Self, CannotInject> {
        let path = directory.join(name);
        std::fs::create_dir(&path).or_cannot(format_args!("make {}", path.display()))?;
        Ok(Self(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An HTTP server that counts requests and answers each at once: one thread, no more HTTP than it takes. It lives as long
/// as the bench.
struct Sink {
    port: u16,
    taken: Arc<AtomicU64>,
}

impl Sink {
    fn start() -> Result<Self, CannotInject> {
        let taken = Arc::new(AtomicU64::new(0));
        let listener = std::net::TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let listener = listener.or_cannot("listen as the sink")?;
        listener.set_nonblocking(true).or_cannot("listen as the sink")?;
        let port = listener.local_addr().or_cannot("listen as the sink")?.port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.or_cannot("start the sink")?;
        let counts = Arc::clone(&taken);
        std::thread::spawn(move || {
            runtime.block_on(async move {
                let listener = TcpListener::from_std(listener)?;
                while let Ok((stream, _)) = listener.accept().await {
                    tokio::spawn(answer(stream, Arc::clone(&counts)));
                }
                io::Result::Ok(())
            })
        });
        Ok(Self { port, taken })
    }
}

async fn answer(mut stream: TcpStream, taken: Arc<AtomicU64>) -> io::Result<()> {
    const OK: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; REQUEST_BYTES];
    let mut filled = 0;
    loop {
        let room = buffer.get_mut(filled..).unwrap_or_default();
        let read = stream.read(room).await?;
        if read == 0 {
            return Ok(());
        }
        filled += read;
        let request = buffer.get(..filled).unwrap_or_default();
        // A client of HTTP/1.1 sends the next request after the answer.
        if clients::answer_length(request)?.is_some_and(|length| length <= filled) {
            filled = 0;
            taken.fetch_add(1, Ordering::Relaxed);
            stream.write_all(OK).await?;
        }
    }
}
