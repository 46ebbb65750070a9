//! The node's engine with a clock at its scans: how long each took, and in which family.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::keys::{ActiveKey, DueKey};
use ankusa_actors::ports::{
    DiskRoom, Engine, Kv, KvError, Lane, Look, OpenError, OpenReport, Page, Scan, StoreStats,
    Verified,
};
use ankusa_node::rocks::RocksEngine;
use async_trait::async_trait;

/// One scan of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanTime {
    /// Looks for rows that are due, or for tenants with such: every claim begins with these. The others are made once
    /// after a start.
    pub(super) is_of_claim: bool,
    pub(super) took: Duration,
}

/// How long every scan of the index took since the last look.
#[derive(Clone, Debug, Default)]
pub(super) struct ScanTimes {
    times: Arc<Mutex<Vec<ScanTime>>>,
}

impl ScanTimes {
    fn record(&self, time: ScanTime) {
        self.times.lock().unwrap_or_else(PoisonError::into_inner).push(time);
    }

    /// Takes them out, oldest first.
    pub(super) fn take(&self) -> Vec<ScanTime> {
        std::mem::take(&mut *self.times.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub(super) struct TimedEngine {
    engine: RocksEngine,
    times: ScanTimes,
}

impl TimedEngine {
    pub(super) fn over(engine: RocksEngine, times: ScanTimes) -> Self {
        Self { engine, times }
    }
}

#[async_trait]
impl Engine for TimedEngine {
    async fn open(&self) -> Result<Box<dyn Kv>, OpenError> {
        let kv = self.engine.open().await?;
        Ok(Box::new(TimedKv { kv, times: self.times.clone() }))
    }

    async fn close(&self, kv: Box<dyn Kv>) {
        self.engine.close(kv).await;
    }

    fn last_open(&self) -> OpenReport {
        self.engine.last_open()
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

struct TimedKv {
    kv: Box<dyn Kv>,
    times: ScanTimes,
}

#[async_trait]
impl Kv for TimedKv {
    async fn apply(&self, batch: Batch, lane: Lane) -> Result<(), KvError> {
        self.kv.apply(batch, lane).await
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
        let (is_index, begun) = (scan.cf == Cf::Index, Instant::now());
        let tag = scan.range.start.first().copied();
        let is_of_claim = matches!(tag, Some(ActiveKey::TAG | DueKey::TAG));
        let page = self.kv.scan(scan).await;
        if is_index {
            self.times.record(ScanTime { is_of_claim, took: begun.elapsed() });
        }
        page
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
