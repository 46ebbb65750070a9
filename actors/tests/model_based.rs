//! Random commands to a node on a simulated disk, held against plain books after each.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, clippy::panic)]

mod machine;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::sim::{Fault, SimDisk, SimEngine, SimOp};
use ankusa_actors::ports::{DiskRoom, Engine, Kv, KvError, OpenError, Pair};
use async_trait::async_trait;
use machine::{Disk, Machine};
use proptest::test_runner::Config;
use proptest_state_machine::prop_state_machine;

/// Outlives the processes on it.
#[derive(Debug)]
struct Simulated {
    disk: Arc<SimDisk>,
    process: std::sync::Mutex<Arc<AtomicBool>>,
}

/// Opens nothing once its process is gone.
struct OfProcess {
    engine: SimEngine,
    lives: Arc<AtomicBool>,
}

#[async_trait]
impl Engine for OfProcess {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        if !self.lives.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
        self.engine.open().await
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        self.engine.close(kv).await;
    }

    async fn probe_disk(&self) -> Result<(), KvError> {
        self.engine.probe_disk().await
    }

    async fn room(&self) -> Result<DiskRoom, KvError> {
        self.engine.room().await
    }

    async fn set_reserve(&self, bytes: u64) -> Result<(), KvError> {
        self.engine.set_reserve(bytes).await
    }
}

impl Disk for Simulated {
    const LOSES_POWER: bool = true;

    fn new() -> Self {
        Self { disk: SimDisk::empty(), process: std::sync::Mutex::default() }
    }

    fn engine(&self) -> Arc<dyn Engine> {
        let lives = Arc::new(AtomicBool::new(true));
        *self.process.lock().unwrap() = Arc::clone(&lives);
        Arc::new(OfProcess { engine: SimEngine::on(&self.disk), lives })
    }

    fn fail_sync(&self) {
        self.disk.fail(Fault::refuse(SimOp::Sync, FailureClass::IoError));
    }

    fn end(&self, power: bool) {
        self.process.lock().unwrap().store(false, Ordering::Relaxed);
        if power { self.disk.cut_power() } else { self.disk.kill() }
    }

    fn durable_rows(&self, cf: Cf) -> Vec<Pair> {
        self.disk.durable_rows(cf)
    }
}

prop_state_machine! {
    #![proptest_config(Config { cases: 256, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_node_is_what_its_books_say(sequential 1..30 => Machine<Simulated>);
}
