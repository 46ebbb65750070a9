//! The load generator. It shares the cores with what it measures, so it is as cheap as it can be: one thread, requests
//! made beforehand, one write and one read an answer.
//!
//! A *closed* load sends the next request of a connection when the last one is answered: it finds the most there is. A
//! *paced* load sends on a schedule, and a request that had to wait for its connection is counted from when it was due:
//! an answer that took long does not hide the ones behind it.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::{JoinSet, LocalSet};
use tokio::time::{sleep, sleep_until, timeout};

use super::histogram::Histogram;
use super::requests::Requests;
use crate::drill::{CannotInject, OrCannot};

/// Longest an answer may be, head and body.
const ANSWER_BYTES: usize = 4_096;

/// Longest wait for the last answers.
const PATIENCE: Duration = Duration::from_secs(20);

/// How connections send.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pace {
    /// As fast as they are answered.
    Closed,
    /// So many requests a second, all connections together.
    PerSecond(f64),
}

/// What is sent, from where, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) port: u16,
    pub(super) connections: usize,
    pub(super) pace: Pace,
    /// Not measured.
    pub(super) warm_up: Duration,
    pub(super) measured: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(super) struct Answers<T> {
    /// Answers of 201 within [`Answers::lasted`].
    pub(super) acked: u64,
    /// Answers of anything else.
    pub(super) refused: u64,
    pub(super) lasted: Duration,
    /// Of the 201s.
    pub(super) latency: Histogram,
    /// CPU time of the server.
    pub(super) cpu: Duration,
    /// What the caller saw shortly before the beginning and shortly after the end.
    pub(super) seen: (T, T),
}

impl<T> Answers<T> {
    /// 201s a second.
    pub(super) fn per_second(&self) -> f64 {
        self.acked as f64 / self.lasted.as_secs_f64()
    }

    /// CPU of the server for each 201, in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.acked as f64
    }
}

/// Puts load on a port. `cpu` tells the CPU time of the server so far. `look` is called before the measured time begins
/// and after it has ended, while the load goes on, and may take its time.
///
/// # Errors
/// When a connection cannot be made or breaks, or `cpu` or `look` fails.
pub(super) fn run<T>(
    plan: Plan,
    requests: &Rc<Requests>,
    cpu: impl Fn() -> Result<Duration, CannotInject>,
    look: impl AsyncFnMut() -> Result<T, CannotInject>,
) -> Result<Answers<T>, CannotInject> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.or_cannot("start the load generator")?;
    LocalSet::new().block_on(&runtime, drive(plan, requests, cpu, look))
}

async fn drive<T>(
    plan: Plan,
    requests: &Rc<Requests>,
    cpu: impl Fn() -> Result<Duration, CannotInject>,
    mut look: impl AsyncFnMut() -> Result<T, CannotInject>,
) -> Result<Answers<T>, CannotInject> {
    let tally = Rc::new(Tally::default());
    let mut clients = JoinSet::new();
    let begin = Instant::now();
    for number in 0..plan.connections {
        let connection = Connection::open(plan.port).await.or_cannot("connect the load")?;
        let requests = Rc::clone(requests);
        let client = Client { connection, requests, tally: Rc::clone(&tally), request: Vec::new() };
        match plan.pace {
            Pace::Closed => clients.spawn_local(client.closed()),
            Pace::PerSecond(rate) => clients.spawn_local(client.paced(Schedule {
                begin,
                number,
                every: Duration::from_secs_f64(plan.connections as f64 / rate.max(1.0)),
            })),
        };
    }
    sleep(plan.warm_up).await;
    let seen = look().await?;
    let (started, cpu_before) = (Instant::now(), cpu()?);
    tally.phase.set(Phase::Measured);
    sleep(plan.measured).await;
    tally.phase.set(Phase::After);
    let (lasted, cpu) = (started.elapsed(), cpu()?.saturating_sub(cpu_before));
    let seen = (seen, look().await?);
    tally.phase.set(Phase::Over);
    let last_answers = async {
        while let Some(ended) = clients.join_next().await {
            ended.or_cannot("run a client")?.or_cannot("keep a connection of the load")?;
        }
        Ok(())
    };
    timeout(PATIENCE, last_answers).await.or_cannot("end the load: an answer is missing")??;
    let latency = tally.latency.take();
    let (acked, refused) = (tally.acked.get(), tally.refused.get());
    Ok(Answers { acked, refused, lasted, latency, cpu, seen })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    WarmUp,
    Measured,
    /// The load goes on while the end is looked at.
    After,
    Over,
}

/// Shared by the clients, which all run on one thread.
#[derive(Default)]
struct Tally {
    phase: Cell<Phase>,
    acked: Cell<u64>,
    refused: Cell<u64>,
    latency: RefCell<Histogram>,
}

impl Tally {
    fn answered(&self, acked: bool, took: Duration) {
        if self.phase.get() != Phase::Measured {
            return;
        }
        if acked {
            self.acked.set(self.acked.get() + 1);
            self.latency.borrow_mut().record(took);
        } else {
            self.refused.set(self.refused.get() + 1);
        }
    }
}

/// When the requests of one connection are due: spread evenly between those of the others.
struct Schedule {
    begin: Instant,
    number: usize,
    every: Duration,
}

struct Client {
    connection: Connection,
    requests: Rc<Requests>,
    tally: Rc<Tally>,
    request: Vec<u8>,
}

impl Client {
    async fn closed(mut self) -> io::Result<()> {
        while self.tally.phase.get() != Phase::Over {
            self.post(Instant::now()).await?;
        }
        Ok(())
    }

    async fn paced(mut self, schedule: Schedule) -> io::Result<()> {
        // A golden-ratio step, so that neighbours in time are not neighbours in number.
        let share = (schedule.number as f64 * 0.618_033_988_75).fract();
        let mut due = schedule.begin + schedule.every.mul_f64(share);
        while self.tally.phase.get() != Phase::Over {
            let had_to_wait = due <= Instant::now();
            if !had_to_wait {
                sleep_until(due.into()).await;
            }
            // The timer wakes late by up to a millisecond, which is the generator's and nobody else's.
            self.post(if had_to_wait { due } else { Instant::now() }).await?;
            due += schedule.every;
        }
        Ok(())
    }

    async fn post(&mut self, since: Instant) -> io::Result<()> {
        self.requests.write(&mut self.request);
        let acked = self.connection.post(&self.request).await?;
        self.tally.answered(acked, since.elapsed());
        Ok(())
    }
}

/// One kept connection, and no more HTTP than it takes to find the end of an answer.
struct Connection {
    stream: TcpStream,
    buffer: Box<[u8; ANSWER_BYTES]>,
    /// Bytes of the last 201. The next one has as many, so it is told by its length and its first line.
    expected: usize,
}

impl Connection {
    async fn open(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Box::new([0; ANSWER_BYTES]), expected: 0 })
    }

    /// Whether the answer was a 201.
    async fn post(&mut self, request: &[u8]) -> io::Result<bool> {
        self.stream.write_all(request).await?;
        let mut filled = 0;
        loop {
            let room = self.buffer.get_mut(filled..).unwrap_or_default();
            let read = self.stream.read(room).await?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            filled += read;
            let answer = self.buffer.get(..filled).unwrap_or_default();
            let acked = is_created(answer);
            if acked && filled == self.expected {
                return Ok(true);
            }
            match answer_length(answer)? {
                Some(length) if length == filled => {
                    if acked {
                        self.expected = length;
                    }
                    return Ok(acked);
                }
                Some(length) if length < filled => {
                    return Err(io::Error::other("more than one answer to one request"));
                }
                Some(_) | None => {}
            }
        }
    }
}

fn is_created(answer: &[u8]) -> bool {
    answer.starts_with(b"HTTP/1.1 201 ")
}

/// Bytes of the whole answer, or request, once its head is there.
pub(super) fn answer_length(answer: &[u8]) -> io::Result<Option<usize>> {
    const NAME: &[u8] = b"content-length:";
    let Some(head) = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let lines = answer.get(..head).unwrap_or_default().split(|byte| *byte == b'\n');
    let length =
        lines.filter_map(|line| line.split_at_checked(NAME.len())).find_map(|(name, value)| {
            let value =
                std::str::from_utf8(value).ok().filter(|_| name.eq_ignore_ascii_case(NAME))?;
            value.trim().parse::<usize>().ok()
        });
    let length = length.ok_or_else(|| io::Error::other("an answer without a content-length"))?;
    Ok(Some(head + 4 + length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_ends_where_its_length_says() {
        let answer = b"HTTP/1.1 201 Created\r\nContent-Length: 2\r\ndate: now\r\n\r\nok";
        assert_eq!(answer_length(answer).unwrap(), Some(answer.len()));
        assert_eq!(answer_length(&answer[..answer.len() - 1]).unwrap(), Some(answer.len()));
        assert_eq!(answer_length(&answer[..50]).unwrap(), None);
        assert!(answer_length(b"HTTP/1.1 201 Created\r\n\r\n").is_err());
        assert!(is_created(answer) && !is_created(b"HTTP/1.1 503 Service Unavailable\r\n"));
    }
}
