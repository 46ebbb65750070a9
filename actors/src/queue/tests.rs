//! The parts of the commit path one by one, where only their insides show what they did.
#![allow(clippy::unwrap_used)]

mod groups;
mod keys;
mod ordinals;
mod room;

use std::sync::Arc;

use bytes::Bytes;
use ractor::Actor;
use tokio::time::Instant;

use super::admission::Admission;
use super::config::DedupeConfig;
use super::group::Known;
use super::key_quota::KeyQuota;
use super::recent_keys::{KeyEpoch, RecentKeys};
use super::reply::{Waiting, reply};
use super::tenants::Tenants;
use super::writer_handle::CommitEntry;
use crate::model::batch::Batch;
use crate::model::delivery::PendingRow;
use crate::model::envelope::Envelope;
use crate::model::ids::HookId;
use crate::model::ops::{Ops, stored_size};
use crate::model::value_version::ValueVersion;
use crate::ports::sim::{JournalEvents, SimDisk, SimEngine, SimEntropy};
use crate::ports::{Engine, Lane};
use crate::store::{Store, StoreArgs, StoreConfig, StoreHandle};

/// A hook on its way to the Writer, owed to one sink, and its caller.
fn entry(tenant: &str, body: &str, deadline: Instant) -> (CommitEntry, Waiting) {
    let envelope = Envelope {
        id: HookId::v7(0, 0),
        source_id: "src".to_owned(),
        tenant_id: Some(tenant.to_owned()),
        received_at_ms: 0,
        method: "POST".to_owned(),
        path: "/src".to_owned(),
        headers: Vec::new(),
        content_type: None,
        body: Bytes::copy_from_slice(body.as_bytes()),
        dedupe_key: None,
        verification: None,
    };
    let value = Bytes::from(envelope.encode(ValueVersion::V0));
    let row =
        PendingRow::new("Elixir.Ankusa.Sink.Http", "src", stored_size(&value), ValueVersion::V0);
    let (reply, waiting) = reply();
    let permit = Admission::new(1, usize::MAX).admit("acme", body.len(), 100).unwrap();
    let tenant = tenant.to_owned().into();
    let rows = vec![(0, row)];
    (CommitEntry { tenant, value, rows, key: None, reply, permit, deadline }, waiting)
}

/// These tenants, no key, and no limit that matters.
fn known<const N: usize>(tenants: [&str; N]) -> Known {
    let keys = RecentKeys::new(KeyEpoch::default());
    let quota = KeyQuota::new(DedupeConfig::default());
    Known { tenants: Tenants::of(tenants), keys, quota }
}

/// An empty stamped store, open on `disk`.
async fn open(disk: &Arc<SimDisk>) -> StoreHandle {
    let handle = StoreHandle::default();
    let args = StoreArgs {
        config: StoreConfig::default(),
        engine: Arc::new(SimEngine::on(disk)),
        entropy: Arc::new(SimEntropy::seeded(1)),
        events: Arc::<JournalEvents>::default(),
        handle: handle.clone(),
    };
    Actor::spawn(None, Store, args).await.unwrap();
    handle
}

/// Puts rows on a disk that nobody has open, with the stamp of a store.
async fn put(disk: &Arc<SimDisk>, rows: Batch) {
    let engine = SimEngine::on(disk);
    let kv = engine.open().await.unwrap();
    let mut ops = Ops::default();
    ops.stamp_format();
    for batch in [ops.finish(), rows] {
        kv.apply(batch, Lane::Commit).await.unwrap();
    }
    kv.sync().await.unwrap();
    engine.close(kv).await;
}
