//! An open that never ends. Alone in its process, because it keeps a core busy for as long as that lives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;

use ankusa_actors::model::failure::FailureClass;
use ankusa_actors::ports::{Engine, OpenError};
use ankusa_node::rocks::{RocksEngine, RocksOptions};

async fn refused(engine: &RocksEngine) -> OpenError {
    match engine.open().await {
        Ok(_kv) => panic!("the store opened"),
        Err(refused) => refused,
    }
}

#[tokio::test]
async fn an_open_that_never_ends_is_given_up_on() {
    let dir = tempfile::tempdir().unwrap();
    let engine = RocksEngine::new(dir.path(), RocksOptions::default());
    engine.close(engine.open().await.unwrap()).await;

    // One bit in the type of the manifest's second record, so that it reads as a record of a recycled file.
    let files = fs::read_dir(dir.path()).unwrap().map(|file| file.unwrap().path());
    let is_manifest = |path: &std::path::Path| path.to_str().unwrap().contains("/MANIFEST-");
    let manifest = files.into_iter().find(|path| is_manifest(path)).unwrap();
    let mut bytes = fs::read(&manifest).unwrap();
    let first_bytes = 7 + usize::from(u16::from_le_bytes([bytes[4], bytes[5]]));
    bytes[first_bytes + 6] ^= 4;
    fs::write(&manifest, bytes).unwrap();

    let impatient = RocksOptions { open_deadline_ms: 500, ..RocksOptions::default() };
    let engine = RocksEngine::new(dir.path(), impatient);
    let first = refused(&engine).await;
    assert_eq!((&*first.path, first.class), (dir.path(), FailureClass::Corruption));
    assert!(first.detail.starts_with("no result within 500 ms"), "{first}");
    // It still holds LOCK, and that is not what is wrong with the store.
    let again = refused(&engine).await;
    assert_eq!((again.class, again.detail), (first.class, first.detail));
}
