//! `put_if_absent`: the first one wins, and whoever wrote the same has won too.

use std::sync::Arc;

use bytes::Bytes;
use tokio::task::JoinSet;

use super::{BlobTrial, Elsewhere, noise};
use crate::ports::{BlobBody, BlobError};

pub async fn a_create_writes_where_nothing_is(trial: &BlobTrial) {
    trial.create("claims/a", &b"1"[..]).await.unwrap();
    assert_eq!(trial.get("claims/a").await.unwrap(), &b"1"[..]);
    trial.delete("claims/a").await;
    trial.create("claims/a", &b"22"[..]).await.unwrap();
    assert_eq!(trial.get("claims/a").await.unwrap(), &b"22"[..]);
    trial.create("claims/ab", &b"333"[..]).await.unwrap();
    let both = [("claims/a".to_owned(), 2), ("claims/ab".to_owned(), 3)];
    assert_eq!(trial.list("claims/").await, both);
}

/// An answer was lost, and the same is written again: perhaps from elsewhere, and cut in another way.
pub async fn a_create_of_the_same_bytes_has_succeeded(trial: &BlobTrial) {
    trial.create("k", &b"the bytes"[..]).await.unwrap();
    trial.create("k", &b"the bytes"[..]).await.unwrap();
    for cut in 0..=9 {
        let (one, two) = b"the bytes".split_at(cut);
        let pieces = [one, two].map(Bytes::from_static);
        trial.create("k", BlobBody::of_pieces(pieces)).await.unwrap();
    }
    let source = BlobBody::of_source(Arc::new(Elsewhere::with(&b"the bytes"[..])));
    trial.create("k", source).await.unwrap();
    trial.put("put", &b"with put"[..]).await;
    trial.create("put", &b"with put"[..]).await.unwrap();
    assert_eq!(trial.list("").await, [("k".to_owned(), 9), ("put".to_owned(), 8)]);
}

pub async fn a_create_leaves_another_object_alone(trial: &BlobTrial) {
    trial.put("k", &b"original"[..]).await;
    for other in ["0riginal", "originaL", "origina", "original ", "", "xriginal"] {
        let pieces = BlobBody::of_pieces([Bytes::from_static(other.as_bytes())]);
        let source = BlobBody::of_source(Arc::new(Elsewhere::with(other.as_bytes())));
        for body in [pieces, source] {
            assert_eq!(trial.create("k", body).await, Err(BlobError::AlreadyExists), "{other:?}");
            assert_eq!(trial.get("k").await.unwrap(), &b"original"[..], "{other:?}");
        }
    }
    assert_eq!(trial.list("").await, [("k".to_owned(), 8)]);
}

pub async fn a_large_create_is_a_create(trial: &BlobTrial) {
    let large = Bytes::from(noise(trial.large_bytes));
    trial.create("large", large.clone()).await.unwrap();
    trial.create("large", large.clone()).await.unwrap();
    let source = BlobBody::of_source(Arc::new(Elsewhere::with(large.clone())));
    trial.create("large", source).await.unwrap();

    let mut other = large.to_vec();
    *other.last_mut().expect("it is large") ^= 1;
    assert_eq!(trial.create("large", other).await, Err(BlobError::AlreadyExists));
    let shorter = large.slice(..large.len() - 1);
    assert_eq!(trial.create("large", shorter).await, Err(BlobError::AlreadyExists));
    assert_eq!(trial.create("large", &b"small"[..]).await, Err(BlobError::AlreadyExists));
    assert!(trial.get("large").await.unwrap() == large, "the original was touched");

    trial.put("small", &b"small"[..]).await;
    assert_eq!(trial.create("small", large).await, Err(BlobError::AlreadyExists));
    assert_eq!(trial.get("small").await.unwrap(), &b"small"[..]);
}

pub async fn of_creates_at_once_one_wins(trial: &BlobTrial) {
    if !trial.creates_are_atomic {
        return;
    }
    for round in 0..5 {
        let key = format!("round-{round}");
        let mut creates = JoinSet::new();
        for writer in 0_u8..8 {
            let (trial, key) = (trial.clone(), key.clone());
            creates.spawn(async move { (writer, trial.create(&key, vec![writer; 100]).await) });
        }
        let mut winners = Vec::new();
        while let Some(created) = creates.join_next().await {
            match created.expect("a create does not panic") {
                (writer, Ok(())) => winners.push(writer),
                (_, Err(lost)) => assert_eq!(lost, BlobError::AlreadyExists),
            }
        }
        assert_eq!(winners.len(), 1, "{winners:?}");
        assert_eq!(trial.get(&key).await.unwrap(), vec![winners[0]; 100]);
    }
}
