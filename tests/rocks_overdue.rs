//! An open that never ends. Alone in its process, because it stays for as long as that lives.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::process::Command;

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

    // A pipe nobody writes to: whoever opens it waits for ever.
    let current = dir.path().join("CURRENT");
    fs::remove_file(&current).unwrap();
    assert!(Command::new("mkfifo").arg(&current).status().unwrap().success());

    let impatient = RocksOptions { open_deadline_ms: 500, ..RocksOptions::default() };
    let engine = RocksEngine::new(dir.path(), impatient);
    let first = refused(&engine).await;
    assert_eq!((&*first.path, first.class), (dir.path(), FailureClass::Corruption));
    assert!(first.detail.starts_with("no result within 500 ms"), "{first}");
    // It may hold the files: there is no second open beside it.
    let again = refused(&engine).await;
    assert_eq!((again.class, again.detail), (first.class, first.detail));
}
