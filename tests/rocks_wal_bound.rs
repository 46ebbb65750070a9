//! One cold family must not keep the log of a hot one: a log without bound is a disk without bound, and a start after a
//! crash that replays all of it. A file of its own, because it writes most of a gigabyte.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Duration;

use ankusa_actors::model::batch::Batch;
use ankusa_actors::model::cf::Cf;
use ankusa_actors::ports::{Engine, Lane};
use ankusa_node::rocks::{RocksEngine, RocksOptions};
use bytes::Bytes;
use tokio::time::{Instant, sleep};

const MIB: usize = 1 << 20;

/// What the log may hold by the options, and the memtable that may be full before the bound is looked at.
const WAL_MAX_BYTES: u64 = (512 + 64) << 20;

/// Longest wait for the flushes that let go of it.
const FLUSHED_WITHIN: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_row_in_each_cold_family_does_not_keep_the_log_of_the_hooks() {
    let dir = tempfile::tempdir().unwrap();
    let engine = RocksEngine::new(dir.path(), RocksOptions::default());
    let kv = engine.open().await.unwrap();
    let mut cold = Batch::default();
    Cf::ALL
        .into_iter()
        .filter(|cf| *cf != Cf::Counters)
        .for_each(|cf| cold.put(cf, b"cold", b"row"));
    kv.apply(cold, Lane::Commit).await.unwrap();
    // Incompressible, so that no file is smaller than what was written.
    let mut state = 1_u64;
    let body: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        state.to_be_bytes()[0]
    })
    .take(MIB)
    .collect();
    let body = Bytes::from(body);
    for n in 0..800_u64 {
        let mut hook = Batch::default();
        hook.put_shared(Cf::Hooks, &n.to_be_bytes(), body.clone());
        kv.apply(hook, Lane::Commit).await.unwrap();
    }
    // What was written in a hurry is flushed after it.
    let began = Instant::now();
    while kv.stats().await.unwrap().wal_bytes > WAL_MAX_BYTES {
        assert!(began.elapsed() < FLUSHED_WITHIN, "the log stays larger than it may be");
        sleep(Duration::from_millis(20)).await;
    }
    engine.close(kv).await;
}
