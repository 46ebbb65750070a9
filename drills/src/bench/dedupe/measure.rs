//! Batches of fresh keys: a look-up, then a durable commit.

use std::fmt;
use std::path::Path;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ankusa_actors::model::cf::Cf;
use ankusa_actors::model::ids::HookId;
use ankusa_actors::model::keys::DedupeValue;
use ankusa_actors::model::ops::Ops;
use ankusa_actors::ports::{Engine, Kv, Lane};
use ankusa_node::rocks::{RocksEngine, RocksOptions};

use super::fill::{close, take};
use super::keys::{self, TTL_MS, mix, uuid};
use crate::bench::histogram::Histogram;
use crate::drill::{CannotInject, OrCannot};

/// Batches that are measured.
pub(super) const BATCHES: u64 = 2_000;

/// Keys of each.
pub(super) const BATCH_KEYS: u64 = 256;

/// Batches looked up before that: what a cache holds it holds by then.
const WARM_UP: u64 = 100;

/// How long things took.
#[derive(Clone, Debug, Default)]
pub(super) struct Times {
    /// The look-up, which finds nothing.
    pub(super) miss: Histogram,
    /// The durable write.
    write: Histogram,
    /// Both.
    pub(super) commit: Histogram,
}

impl fmt::Display for Times {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |times: &Histogram| {
            format!("{:.2}/{:.2}", times.percentile_ms(50), times.percentile_ms(99))
        };
        let (miss, write, commit) = (of(&self.miss), of(&self.write), of(&self.commit));
        write!(out, "miss {miss}, durable write {write}, commit {commit}")
    }
}

/// Opens the store in `path` and measures.
pub(super) async fn measure(path: &Path, options: RocksOptions) -> Result<Times, CannotInject> {
    let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let now_ms = u64::try_from(now_ms).unwrap_or_default();
    let engine = RocksEngine::new(path, options);
    let kv = engine.open().await.or_cannot("open the store")?;
    // No two runs over one store ask for the same keys.
    let mut fresh =
        Fresh(mix(now_ms) ^ u64::try_from(options.block_cache_bytes).unwrap_or_default());
    for _ in 0..WARM_UP {
        look_up(kv.as_ref(), &fresh.batch()).await?;
    }
    let mut times = Times::default();
    for _ in 0..BATCHES {
        let batch = fresh.batch();
        let began = Instant::now();
        look_up(kv.as_ref(), &batch).await?;
        let looked_up = Instant::now();
        let mut ops = Ops::with_capacity(512, 64 << 10);
        for text in &batch {
            let expires_at_ms = now_ms + TTL_MS;
            let original = HookId::v7(now_ms, 0);
            take(&mut ops, text, DedupeValue { expires_at_ms, original });
        }
        kv.apply(ops.finish(), Lane::Commit).await.or_cannot("write keys")?;
        kv.sync().await.or_cannot("sync the store")?;
        let done = Instant::now();
        times.miss.record(looked_up - began);
        times.write.record(done - looked_up);
        times.commit.record(done - began);
    }
    close(&engine, kv).await;
    Ok(times)
}

/// None of them is there.
async fn look_up(kv: &dyn Kv, batch: &[[u8; 36]]) -> Result<(), CannotInject> {
    let wanted = batch.iter().filter_map(|text| Some(keys::key(text)?.encode())).collect();
    let found = kv.multi_get(Cf::Index, wanted).await.or_cannot("look keys up")?;
    if found.iter().any(Option::is_some) {
        return Err(CannotInject("measure misses: a fresh key was there".to_owned()));
    }
    Ok(())
}

/// Keys that nobody has.
struct Fresh(u64);

impl Fresh {
    fn batch(&mut self) -> Vec<[u8; 36]> {
        let mut one = || {
            self.0 = self.0.wrapping_add(1);
            uuid(u128::from(mix(self.0)) << 64 | u128::from(mix(!self.0)))
        };
        (0..BATCH_KEYS).map(|_| one()).collect()
    }
}
