//! What a simulated object store does when it fails. What it does when it works is in the contract.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::*;
use crate::ports::contract::blob::{BlobTrial, holds_for};

fn key(key: &str) -> BlobKey {
    BlobKey::new(key).unwrap()
}

async fn put(store: &SimBlob, name: &str) -> Result<(), BlobError> {
    store.put(&key(name), Bytes::from_static(b"12").into(), None).await
}

fn refused() -> BlobError {
    BlobError::Transport("refused".to_owned())
}

#[tokio::test(start_paused = true)]
async fn the_simulated_object_store_keeps_the_contract() {
    holds_for(async |_name| BlobTrial::of(SimBlob::empty())).await;
}

#[tokio::test(start_paused = true)]
async fn the_simulated_object_store_keeps_it_in_a_corner_of_a_bucket() {
    let bucket = SimBlob::empty();
    bucket.plant("zz/other", "another's");
    holds_for(async |name| BlobTrial::of(Arc::clone(&bucket) as Arc<dyn Blob>).below(name)).await;
}

#[tokio::test(start_paused = true)]
async fn a_fault_hits_the_calls_it_was_made_for_and_no_other() {
    let store = SimBlob::empty();
    store.fail(BlobFault::refuse(BlobVerb::Put, refused()).after(1).times(2));
    let mut puts = Vec::new();
    for name in ["a", "b", "c", "d"] {
        puts.push(put(&store, name).await);
    }
    assert_eq!(puts, [Ok(()), Err(refused()), Err(refused()), Ok(())]);
    assert_eq!(store.keys(), ["a", "d"]);

    store.fail(BlobFault::refuse(BlobVerb::Get, refused()).below("a").until_healed());
    assert_eq!(store.get(&key("a"), None).await, Err(refused()));
    assert_eq!(store.get(&key("d"), None).await.unwrap(), "12");
    assert_eq!(store.get(&key("a"), None).await, Err(refused()));
    store.heal();
    assert_eq!(store.get(&key("a"), None).await.unwrap(), "12");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_answer_is_lost_has_landed() {
    let store = SimBlob::empty();
    for verb in [BlobVerb::Put, BlobVerb::PutIfAbsent, BlobVerb::Delete] {
        store.fail(BlobFault::answer_lost(verb, BlobError::Deadline));
    }
    assert_eq!(put(&store, "put").await, Err(BlobError::Deadline));
    let name = key("created");
    let created = || store.put_if_absent(&name, Bytes::from_static(b"1").into(), None);
    assert_eq!(created().await, Err(BlobError::Deadline));
    assert_eq!(store.keys(), ["created", "put"]);
    assert_eq!(created().await, Ok(()), "its own bytes are there");
    assert_eq!(store.delete(&key("put"), None).await, Err(BlobError::Deadline));
    assert_eq!(store.keys(), ["created"]);
}

#[tokio::test(start_paused = true)]
async fn half_a_listing_is_an_error() {
    let store = SimBlob::empty();
    put(&store, "a").await.unwrap();
    put(&store, "b").await.unwrap();
    store.fail(BlobFault::listing_breaks_off());
    let broken = BlobError::Transport("the listing broke off".to_owned());
    assert_eq!(store.list("", None).await, Err(broken));
    assert_eq!(store.list("", None).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_call_ends_at_its_deadline_and_has_done_nothing() {
    let store = SimBlob::empty();
    store.slow(Duration::from_secs(60));
    let began = Instant::now();
    let deadline = Some(began + Duration::from_secs(5));
    let late = store.put(&key("a"), Bytes::from_static(b"1").into(), deadline).await;
    assert_eq!((late, began.elapsed()), (Err(BlobError::Deadline), Duration::from_secs(5)));
    assert_eq!(store.keys(), Vec::<String>::new());
    put(&store, "a").await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(65));
}

#[tokio::test(start_paused = true)]
async fn what_rots_is_told_of_a_whole_object_and_not_of_a_part() {
    let store = SimBlob::empty();
    put(&store, "a").await.unwrap();
    assert!(store.damage("a", 1) && !store.damage("a", 2) && !store.damage("b", 0));
    assert_eq!(store.get(&key("a"), None).await.unwrap_err().as_str(), "integrity");
    assert_eq!(store.get_range(&key("a"), 0, 9, None).await.unwrap(), "13");
    put(&store, "a").await.unwrap();
    assert_eq!(store.get(&key("a"), None).await.unwrap(), "12");
    assert!(store.lose("a") && !store.lose("a"));
    assert_eq!(store.get(&key("a"), None).await, Err(BlobError::NotFound));
}

#[tokio::test(start_paused = true)]
async fn every_call_is_in_the_journal() {
    let store = SimBlob::empty();
    put(&store, "a/b").await.unwrap();
    store.put_if_absent(&key("c"), Bytes::new().into(), None).await.unwrap();
    store.get(&key("a/b"), None).await.unwrap();
    store.get_range(&key("a/b"), 1, 4, None).await.unwrap();
    store.get_range(&key("a/b"), 1, 0, None).await.unwrap();
    store.delete(&key("c"), None).await.unwrap();
    store.list("a/", None).await.unwrap();
    let calls = ["put a/b 2", "put_if_absent c 0", "get a/b", "get_range a/b 1+4", "delete c"];
    assert_eq!(store.take_journal(), [&calls[..], &["list a/"]].concat());
    assert_eq!(store.journal(), Vec::<String>::new());
}
