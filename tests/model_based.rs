//! The random commands of `actors/tests/model_based.rs`, to a node on a real database.
//!
//! The node's time is virtual, so the runtime must never be idle while the database works, or deadlines pass in no time:
//! every call is waited for where it is made.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

#[path = "../actors/tests/machine/mod.rs"]
mod machine;

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{
    DiskRoom, Engine, Kv, KvError, Lane, Look, OpenError, Page, Pair, Scan, StoreStats, Verified,
};
use ankusa_node::rocks::{RocksEngine, RocksOptions};
use async_trait::async_trait;
use machine::{Disk, Machine};
use proptest::test_runner::Config;
use proptest_state_machine::prop_state_machine;
use tempfile::TempDir;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Waits here, and lets nothing else of the runtime run meanwhile.
fn at_once<T>(what: impl Future<Output = T>) -> T {
    let mut what = pin!(tokio::task::unconstrained(what));
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match what.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => std::thread::park(),
        }
    }
}

type Database = Arc<Box<dyn Kv>>;

/// The database of one process: gone when that is.
#[derive(Clone, Default)]
struct Open(Arc<Mutex<Option<Database>>>);

impl Open {
    fn kv(&self) -> Result<Database, KvError> {
        let gone = || KvError {
            class: FailureClass::NotRunning,
            op: "any",
            detail: "the process is gone".to_owned(),
        };
        self.0.lock().unwrap().clone().ok_or_else(gone)
    }
}

struct Process {
    rocks: Arc<RocksEngine>,
    open: Open,
    lives: Arc<AtomicBool>,
    fail_sync: Arc<AtomicBool>,
}

struct Waited {
    open: Open,
    fail_sync: Arc<AtomicBool>,
}

impl Drop for Waited {
    fn drop(&mut self) {
        drop(self.open.0.lock().unwrap().take());
    }
}

#[async_trait]
impl Engine for Process {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        if !self.lives.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        *self.open.0.lock().unwrap() = Some(Arc::new(at_once(self.rocks.open())?));
        Ok(Box::new(Waited { open: self.open.clone(), fail_sync: Arc::clone(&self.fail_sync) }))
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        at_once(self.rocks.close(kv));
    }

    async fn probe_disk(&self) -> Result<(), KvError> {
        at_once(self.rocks.probe_disk())
    }

    async fn room(&self) -> Result<DiskRoom, KvError> {
        at_once(self.rocks.room())
    }

    async fn set_reserve(&self, _bytes: u64) -> Result<(), KvError> {
        Ok(())
    }
}

#[async_trait]
impl Kv for Waited {
    async fn apply(&self, batch: Batch, lane: Lane) -> Result<(), KvError> {
        at_once(self.open.kv()?.apply(batch, lane))
    }

    async fn sync(&self) -> Result<(), KvError> {
        if self.fail_sync.swap(false, Ordering::Relaxed) {
            let (class, op, detail) = (FailureClass::IoError, "sync", "injected".to_owned());
            return Err(KvError { class, op, detail });
        }
        at_once(self.open.kv()?.sync())
    }

    fn get(&self, cf: Cf, key: &[u8]) -> Result<Option<Vec<u8>>, KvError> {
        self.open.kv()?.get(cf, key)
    }

    async fn multi_get(&self, cf: Cf, keys: Vec<Vec<u8>>) -> Result<Vec<Option<Vec<u8>>>, KvError> {
        at_once(self.open.kv()?.multi_get(cf, keys))
    }

    async fn scan(&self, scan: Scan) -> Result<Page, KvError> {
        at_once(self.open.kv()?.scan(scan))
    }

    async fn at_one_moment(&self, look: Look) -> Result<(), KvError> {
        at_once(self.open.kv()?.at_one_moment(look))
    }

    async fn stats(&self) -> Result<StoreStats, KvError> {
        at_once(self.open.kv()?.stats())
    }

    async fn verify(&self, cf: Cf, from: Vec<u8>, max_bytes: u64) -> Result<Verified, KvError> {
        at_once(self.open.kv()?.verify(cf, from, max_bytes))
    }
}

/// A database in a directory of its own.
struct OnDisk {
    rocks: Arc<RocksEngine>,
    process: Mutex<(Open, Arc<AtomicBool>)>,
    fail_sync: Arc<AtomicBool>,
    _folder: TempDir,
}

impl std::fmt::Debug for OnDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnDisk").finish_non_exhaustive()
    }
}

impl Disk for OnDisk {
    const LOSES_POWER: bool = false;

    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let rocks = RocksEngine::new(folder.path().join("node/store"), RocksOptions::default());
        Self {
            rocks: Arc::new(rocks),
            process: Mutex::default(),
            fail_sync: Arc::default(),
            _folder: folder,
        }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        let (open, lives) = (Open::default(), Arc::new(AtomicBool::new(true)));
        *self.process.lock().unwrap() = (open.clone(), Arc::clone(&lives));
        let (rocks, fail_sync) = (Arc::clone(&self.rocks), Arc::clone(&self.fail_sync));
        Arc::new(Process { rocks, open, lives, fail_sync })
    }

    fn fail_sync(&self) {
        self.fail_sync.store(true, Ordering::Relaxed);
    }

    fn end(&self, _power: bool) {
        let (open, lives) = &*self.process.lock().unwrap();
        lives.store(false, Ordering::Relaxed);
        drop(open.0.lock().unwrap().take());
    }

    fn durable_rows(&self, _cf: Cf) -> Vec<Pair> {
        panic!("nobody can cut the power of a real disk from here")
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 16, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_node_on_a_real_database_is_what_its_books_say(sequential 1..16 => Machine<OnDisk>);
}
