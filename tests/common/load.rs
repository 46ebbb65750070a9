//! Concurrent clients that keep a ledger of every answer.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::sleep;

use super::http::{Client, request};
use super::{Chance, in_time, until};

/// Before connecting again to a node that is not there.
const RECONNECT: Duration = Duration::from_millis(10);

/// What a client was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// 201, with this id.
    Acked(String),
    /// Another status.
    Refused(u16),
    /// The connection ended first.
    Unanswered,
}

#[derive(Default)]
struct Shared {
    stopped: AtomicBool,
    acked: AtomicU64,
    ledger: Mutex<Vec<(Vec<u8>, Outcome)>>,
}

/// A load under way.
pub struct Load {
    shared: Arc<Shared>,
    clients: JoinSet<()>,
}

impl Load {
    /// Starts so many clients, each with a keep-alive connection and a hook under way at all times. No two hooks have the
    /// same body; bodies follow from the seed.
    pub fn start(port: u16, target: &'static str, clients: u64, seed: u64) -> Self {
        let shared = Arc::<Shared>::default();
        let mut running = JoinSet::new();
        for client in 0..clients {
            running.spawn(run(port, target, seed, client, Arc::clone(&shared)));
        }
        Self { shared, clients: running }
    }

    /// Waits for so many 201s in all.
    pub async fn acked(&self, count: u64) {
        until("enough hooks are acked", async || {
            (self.shared.acked.load(Ordering::SeqCst) >= count).then_some(())
        })
        .await;
    }

    pub fn acked_so_far(&self) -> u64 {
        self.shared.acked.load(Ordering::SeqCst)
    }

    /// Waits until every hook under way is answered or its connection gone, and tells what was sent and said.
    pub async fn stop(mut self) -> Vec<(Vec<u8>, Outcome)> {
        self.shared.stopped.store(true, Ordering::SeqCst);
        in_time("the answers to the last hooks", async {
            while let Some(ended) = self.clients.join_next().await {
                ended.unwrap();
            }
        })
        .await;
        std::mem::take(&mut self.shared.ledger.lock().unwrap())
    }
}

async fn run(port: u16, target: &str, seed: u64, number: u64, shared: Arc<Shared>) {
    let mut chance = Chance::of(seed.wrapping_mul(1_000) + number);
    let mut connection = None;
    let mut turn = 0;
    while !shared.stopped.load(Ordering::SeqCst) {
        let Some(client) = &mut connection else {
            match Client::try_tcp(port).await {
                Ok(client) => connection = Some(client),
                Err(_) => sleep(RECONNECT).await,
            }
            continue;
        };
        turn += 1;
        let mut body = format!("{seed}/{number}/{turn}\0").into_bytes();
        let more = usize::try_from(chance.below(2_000)).unwrap();
        body.extend(chance.bytes(more));
        let outcome = match client.ask(&request("POST", target, &[], &body)).await {
            Ok(answer) if answer.status == 201 => {
                shared.acked.fetch_add(1, Ordering::SeqCst);
                Outcome::Acked(answer.id())
            }
            Ok(answer) => {
                if answer.header("connection") == Some("close") {
                    connection = None;
                }
                Outcome::Refused(answer.status)
            }
            Err(_) => {
                connection = None;
                Outcome::Unanswered
            }
        };
        shared.ledger.lock().unwrap().push((body, outcome));
    }
}
