//! A database whose commit lane is a queue with a thread behind it, as the real one's is: a batch that was handed over
//! lands in its turn, whenever that is and whether or not anybody still waits for it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::ports::sim::{SimDisk, SimEngine};
use ankusa_actors::ports::{
    DiskRoom, Engine, Kv, KvError, Lane, Look, OpenError, Page, Scan, StoreStats, Verified,
};
use async_trait::async_trait;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Opens such databases on a simulated disk.
#[derive(Clone)]
pub struct LateEngine {
    disk: SimEngine,
    /// How long each batch of the commit lane takes to land.
    delay: Arc<Mutex<Duration>>,
    /// The threads of the databases that were opened: a close waits for the last.
    threads: Arc<Mutex<Vec<JoinHandle<()>>>>,
}

type Answer = oneshot::Sender<Result<(), KvError>>;

struct LateKv {
    kv: Arc<Box<dyn Kv>>,
    commits: mpsc::UnboundedSender<(Batch, Answer)>,
}

impl LateEngine {
    pub fn on(disk: &Arc<SimDisk>) -> Self {
        Self { disk: SimEngine::on(disk), delay: Arc::default(), threads: Arc::default() }
    }

    /// Batches that are taken up from now on land this late.
    pub fn delay(&self, delay: Duration) {
        *self.delay.lock().unwrap() = delay;
    }
}

async fn land(
    kv: Arc<Box<dyn Kv>>,
    mut commits: mpsc::UnboundedReceiver<(Batch, Answer)>,
    delay: Arc<Mutex<Duration>>,
) {
    while let Some((batch, answer)) = commits.recv().await {
        let delay = *delay.lock().unwrap();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let _ = answer.send(kv.apply(batch, Lane::Commit).await);
    }
}

#[async_trait]
impl Engine for LateEngine {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        let kv = Arc::new(self.disk.open().await?);
        let (commits, taken) = mpsc::unbounded_channel();
        let thread = tokio::spawn(land(Arc::clone(&kv), taken, Arc::clone(&self.delay)));
        self.threads.lock().unwrap().push(thread);
        Ok(Box::new(LateKv { kv, commits }))
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        drop(kv);
        let threads = std::mem::take(&mut *self.threads.lock().unwrap());
        for thread in threads {
            thread.await.unwrap();
        }
    }

    async fn probe_disk(&self) -> Result<(), KvError> {
        self.disk.probe_disk().await
    }

    async fn room(&self) -> Result<DiskRoom, KvError> {
        self.disk.room().await
    }

    async fn set_reserve(&self, bytes: u64) -> Result<(), KvError> {
        self.disk.set_reserve(bytes).await
    }
}

#[async_trait]
impl Kv for LateKv {
    async fn apply(&self, batch: Batch, lane: Lane) -> Result<(), KvError> {
        match lane {
            Lane::Commit => {
                let (answer, answered) = oneshot::channel();
                self.commits.send((batch, answer)).unwrap();
                answered.await.unwrap()
            }
            Lane::Background => self.kv.apply(batch, lane).await,
        }
    }

    async fn sync(&self) -> Result<(), KvError> {
        self.kv.sync().await
    }

    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.kv.get(cf, key)
    }

    async fn multi_get(&self, cf: Cf, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        self.kv.multi_get(cf, keys).await
    }

    async fn scan(&self, scan: Scan) -> Result<Page, KvError> {
        self.kv.scan(scan).await
    }

    async fn at_one_moment(&self, look: Look) -> Result<(), KvError> {
        self.kv.at_one_moment(look).await
    }

    async fn stats(&self) -> Result<StoreStats, KvError> {
        self.kv.stats().await
    }

    async fn verify(&self, cf: Cf, from: Vec<u8>, max_bytes: u64) -> Result<Verified, KvError> {
        self.kv.verify(cf, from, max_bytes).await
    }
}
