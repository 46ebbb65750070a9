//! What a simulated disk does when it loses power or fails. What it does when it works is in the contract.

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::ports::{Engine, Kv, KvError, Lane, OpenError, contract};

fn put(key: &str) -> Batch {
    let mut batch = Batch::default();
    batch.put(Cf::Hooks, key.as_bytes(), b"v");
    batch
}

async fn open(disk: &Arc<SimDisk>) -> Box<dyn Kv> {
    SimEngine::on(disk).open().await.unwrap()
}

async fn apply(kv: &dyn Kv, key: &str) -> Result<(), FailureClass> {
    kv.apply(put(key), Lane::Commit).await.map_err(|KvError { class, .. }| class)
}

async fn sync(kv: &dyn Kv) -> Result<(), FailureClass> {
    kv.sync().await.map_err(|KvError { class, .. }| class)
}

fn keys(rows: &[(Vec<u8>, Vec<u8>)]) -> Vec<String> {
    rows.iter().map(|(key, _)| String::from_utf8(key.clone()).unwrap()).collect()
}

fn seen(disk: &SimDisk) -> Vec<String> {
    keys(&disk.rows(Cf::Hooks))
}

fn durable(disk: &SimDisk) -> Vec<String> {
    keys(&disk.durable_rows(Cf::Hooks))
}

#[tokio::test(start_paused = true)]
async fn the_simulated_store_keeps_the_contract() {
    contract::holds_for(|| SimEngine::on(&SimDisk::empty())).await;
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_loses_what_was_not_synced_and_every_handle() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    apply(&*kv, "a").await.unwrap();
    sync(&*kv).await.unwrap();
    apply(&*kv, "b").await.unwrap();
    assert_eq!((seen(&disk), disk.unsynced_batches()), (vec!["a".to_owned(), "b".to_owned()], 1));
    disk.cut_power();
    assert_eq!(apply(&*kv, "c").await, Err(FailureClass::NotRunning));
    assert_eq!(sync(&*kv).await, Err(FailureClass::NotRunning));
    assert_eq!(kv.get(Cf::Hooks, b"a").unwrap_err().class, FailureClass::NotRunning);
    let next = open(&disk).await;
    assert_eq!(seen(&disk), ["a"]);
    drop(kv);
    assert!(disk.is_open(), "a handle from before the cut does not close the next open");
    drop(next);
    assert!(!disk.is_open());
}

#[tokio::test(start_paused = true)]
async fn the_kernel_may_have_written_some_of_the_unsynced_log_by_itself() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    for key in ["a", "b", "c"] {
        apply(&*kv, key).await.unwrap();
    }
    disk.cut_power_keeping(2);
    open(&disk).await;
    assert_eq!(seen(&disk), ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn a_killed_process_loses_nothing_it_applied() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    apply(&*kv, "a").await.unwrap();
    disk.kill();
    assert_eq!(apply(&*kv, "b").await, Err(FailureClass::NotRunning));
    open(&disk).await;
    assert_eq!((seen(&disk), durable(&disk)), (vec!["a".to_owned()], vec!["a".to_owned()]));
}

#[tokio::test(start_paused = true)]
async fn a_sync_covers_what_was_applied_before_it_began_and_nothing_later() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    apply(&*kv, "a").await.unwrap();
    disk.slow(SimOp::Sync, Duration::from_secs(2));
    let later = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(durable(&disk), Vec::<String>::new());
        apply(&*kv, "b").await
    };
    let (synced, applied) = tokio::join!(sync(&*kv), later);
    assert_eq!((synced, applied), (Ok(()), Ok(())));
    assert_eq!((durable(&disk), disk.unsynced_batches()), (vec!["a".to_owned()], 1));
}

#[tokio::test(start_paused = true)]
async fn a_power_cut_during_a_sync_fails_the_sync() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    apply(&*kv, "a").await.unwrap();
    disk.slow(SimOp::Sync, Duration::from_secs(2));
    let cut = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        disk.cut_power();
    };
    let (synced, ()) = tokio::join!(sync(&*kv), cut);
    assert_eq!((synced, durable(&disk)), (Err(FailureClass::NotRunning), vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_failed_apply_did_nothing_or_hid_the_batch_or_landed_it() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    disk.fail(Fault::refuse(SimOp::Apply, FailureClass::NoSpace));
    disk.fail(Fault::apply_logged_unseen(FailureClass::IoError));
    disk.fail(Fault::apply_landed(FailureClass::Timeout));
    assert_eq!(apply(&*kv, "refused").await, Err(FailureClass::NoSpace));
    assert_eq!(apply(&*kv, "hidden").await, Err(FailureClass::IoError));
    assert_eq!(apply(&*kv, "landed").await, Err(FailureClass::Timeout));
    assert_eq!(apply(&*kv, "z").await, Ok(()));
    assert_eq!(seen(&disk), ["landed", "z"]);
    drop(kv);
    open(&disk).await;
    assert_eq!(seen(&disk), ["hidden", "landed", "z"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_sync_did_nothing_or_landed_or_dropped_the_pages() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    apply(&*kv, "a").await.unwrap();
    disk.fail(Fault::refuse(SimOp::Sync, FailureClass::IoError));
    assert_eq!(sync(&*kv).await, Err(FailureClass::IoError));
    assert_eq!(durable(&disk), Vec::<String>::new());
    disk.fail(Fault::sync_landed(FailureClass::IoError));
    assert_eq!(sync(&*kv).await, Err(FailureClass::IoError));
    assert_eq!(durable(&disk), ["a"]);

    apply(&*kv, "b").await.unwrap();
    disk.fail(Fault::sync_drops_pages(FailureClass::IoError));
    assert_eq!(sync(&*kv).await, Err(FailureClass::IoError));
    apply(&*kv, "c").await.unwrap();
    assert_eq!(sync(&*kv).await, Ok(()), "the kernel no longer knows that it owes anything");
    assert_eq!(durable(&disk), ["a"]);
    drop(kv);
    let kv = open(&disk).await;
    assert_eq!(durable(&disk), ["a", "b", "c"], "an open writes what it recovers into new files");
    apply(&*kv, "d").await.unwrap();
    sync(&*kv).await.unwrap();
    assert_eq!(durable(&disk), ["a", "b", "c", "d"]);
}

#[tokio::test(start_paused = true)]
async fn dropped_pages_are_gone_after_a_power_cut_whatever_the_kernel_had_written() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    apply(&*kv, "a").await.unwrap();
    disk.fail(Fault::sync_drops_pages(FailureClass::IoError));
    sync(&*kv).await.unwrap_err();
    apply(&*kv, "b").await.unwrap();
    disk.cut_power_keeping(2);
    open(&disk).await;
    assert_eq!(seen(&disk), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn a_full_disk_refuses_writes_and_opens_and_probes_until_it_heals() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    apply(&*kv, "a").await.unwrap();
    disk.fail_writes(FailureClass::NoSpace);
    assert_eq!(apply(&*kv, "b").await, Err(FailureClass::NoSpace));
    assert_eq!(sync(&*kv).await, Err(FailureClass::NoSpace));
    assert_eq!(kv.get(Cf::Hooks, b"a").unwrap(), Some(b"v".to_vec()));
    let engine = SimEngine::on(&disk);
    assert_eq!(engine.probe_disk().await.unwrap_err().class, FailureClass::NoSpace);
    engine.close(kv).await;
    let Err(OpenError { class, .. }) = engine.open().await else { panic!("the open succeeded") };
    assert_eq!(class, FailureClass::NoSpace);
    disk.heal();
    engine.probe_disk().await.unwrap();
    assert_eq!(sync(&*engine.open().await.unwrap()).await, Ok(()));
    assert_eq!(durable(&disk), ["a"]);
    let counts = SimCounts { opens: 3, probes: 2, applies: 2, syncs: 2, reads: 1 };
    assert_eq!(disk.counts(), counts);
}

#[tokio::test(start_paused = true)]
async fn a_batch_lands_although_its_caller_gave_up() {
    let disk = SimDisk::empty();
    let kv = open(&disk).await;
    disk.slow(SimOp::Apply, Duration::from_secs(60));
    let gave_up = tokio::time::timeout(Duration::from_secs(1), apply(&*kv, "a")).await;
    assert!(gave_up.is_err());
    assert_eq!(seen(&disk), ["a"]);
}
