//! The `object_store` crate at the same bucket: it reads what we write, and we read what it writes.

use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobError};
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder};
use object_store::path::Path;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions};
use serde_json::json;

use super::emulators::Emulator;
use super::{BUCKET, Fake, STEP, Surroundings, key, noise, spec};

fn theirs(url: &str) -> GoogleCloudStorage {
    let account = json!({"gcs_base_url": url, "disable_oauth": true, "client_email": "",
        "private_key": "", "private_key_id": ""});
    GoogleCloudStorageBuilder::new()
        .with_bucket_name(BUCKET)
        .with_service_account_key(account.to_string())
        .with_client_options(ClientOptions::new().with_allow_http(true))
        .build()
        .unwrap()
}

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn both(url: &str) -> (Arc<dyn Blob>, GoogleCloudStorage) {
    (Surroundings::new().open(&spec(url)), theirs(url))
}

const NAMES: [&str; 3] = ["plain", "d/dt=2026-11-30/ü + &x", "d/a b"];
const SIZES: [usize; 6] = [0, 1, 1_000, STEP, STEP + 1, 3 * STEP + 5];

/// The names of one object of each size and each name, and what is in it.
fn objects() -> impl Iterator<Item = (String, Bytes)> {
    let of_size = |size| {
        let body = Bytes::from(noise(size));
        NAMES.into_iter().map(move |name| (format!("{size}/{name}"), body.clone()))
    };
    SIZES.into_iter().flat_map(of_size)
}

/// It reads what we write.
async fn reads_ours(ours: &Arc<dyn Blob>, theirs: &GoogleCloudStorage) {
    for (name, body) in objects() {
        ours.put(&key(&name), body.clone().into(), None).await.unwrap();
        let read = theirs.get(&path(&name)).await.unwrap();
        assert_eq!(read.meta.size, body.len() as u64);
        assert!(read.bytes().await.unwrap() == body, "{name}");
        if body.len() > 10 {
            assert_eq!(theirs.get_range(&path(&name), 3..9).await.unwrap(), body.slice(3..9));
        }
    }
}

#[tokio::test]
async fn it_reads_what_we_write() {
    // The emulator takes no uploads of the API it speaks.
    let emulator = Emulator::fake_gcs_server().await;
    let (ours, theirs) = both(&emulator.url());
    reads_ours(&ours, &theirs).await;
    let fake = Fake::start().await;
    let (ours, theirs) = both(&fake.url());
    reads_ours(&ours, &theirs).await;
}

#[tokio::test]
async fn we_read_what_it_writes() {
    let fake = Fake::start().await;
    let (ours, theirs) = both(&fake.url());
    for (name, body) in objects() {
        theirs.put(&path(&name), body.clone().into()).await.unwrap();
        assert!(ours.get(&key(&name), None).await.unwrap() == body, "{name}");
        let range = ours.get_range(&key(&name), 3, 6, None).await.unwrap();
        assert_eq!(range, body.slice(body.len().min(3)..body.len().min(9)));
    }
}

#[tokio::test]
async fn both_create_only_where_nothing_is() {
    let fake = Fake::start().await;
    let (ours, theirs) = both(&fake.url());
    let create = PutOptions::from(PutMode::Create);
    ours.put_if_absent(&key("a"), vec![1].into(), None).await.unwrap();
    let refused = theirs.put_opts(&path("a"), vec![2].into(), create.clone()).await.unwrap_err();
    assert!(matches!(refused, object_store::Error::AlreadyExists { .. }), "{refused}");
    theirs.put_opts(&path("b"), vec![2].into(), create).await.unwrap();
    let refused = ours.put_if_absent(&key("b"), vec![1].into(), None).await;
    assert_eq!(refused, Err(BlobError::AlreadyExists));
    assert_eq!(ours.get(&key("b"), None).await.unwrap(), vec![2]);
}

#[tokio::test]
async fn both_list_the_same_and_miss_the_same() {
    let fake = Fake::start().await;
    let (ours, theirs) = both(&fake.url());
    fake.state().page_max = 4;
    for n in 0..25 {
        let name = format!("l/{}/{n:03}", n % 3);
        if n % 2 == 0 {
            ours.put(&key(&name), noise(n).into(), None).await.unwrap();
        } else {
            theirs.put(&path(&name), noise(n).into()).await.unwrap();
        }
    }
    for prefix in ["l", "l/1", "none"] {
        let mut listed: Vec<(String, u64)> = theirs
            .list(Some(&path(prefix)))
            .map_ok(|meta| (meta.location.to_string(), meta.size))
            .try_collect()
            .await
            .unwrap();
        listed.sort();
        // Theirs is of a folder.
        let own = ours.list(&format!("{prefix}/"), None).await.unwrap();
        let own: Vec<_> = own.into_iter().map(|entry| (entry.key, entry.bytes)).collect();
        assert_eq!(own, listed, "{prefix}");
    }
    ours.delete(&key("l/0/000"), None).await.unwrap();
    let gone = theirs.get(&path("l/0/000")).await.unwrap_err();
    assert!(matches!(gone, object_store::Error::NotFound { .. }), "{gone}");
    theirs.delete(&path("l/1/001")).await.unwrap();
    assert_eq!(ours.get(&key("l/1/001"), None).await, Err(BlobError::NotFound));
}
