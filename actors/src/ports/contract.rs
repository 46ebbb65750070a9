//! What every adapter of the store's ports must do, as functions: the simulated store is trusted because it passes what
//! RocksDB passes.
//!
//! Each function is given an engine over an empty store. They are called from tests and panic like tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use super::{Direction, Engine, Kv, Lane, Page, Pair, Scan};
use crate::model::batch::Batch;
use crate::model::cf::Cf;

pub mod blob;
mod opens;
mod rows;
mod scans;

pub use opens::*;
pub use rows::*;
pub use scans::*;

/// Runs the whole contract, each part over an empty store of its own.
pub async fn holds_for<E: Engine>(new_engine: impl Fn() -> E) {
    a_new_store_is_empty(&new_engine()).await;
    a_batch_lands_in_the_order_it_was_written(&new_engine()).await;
    families_do_not_share_keys(&new_engine()).await;
    any_bytes_are_a_key_or_a_value(&new_engine()).await;
    big_values_come_back_whole(&new_engine()).await;
    counters_add_up_what_was_merged(&new_engine()).await;
    keys_are_answered_in_the_order_asked(&new_engine()).await;
    a_scan_sees_its_range_in_both_directions(&new_engine()).await;
    a_bounded_scan_says_whether_there_is_more(&new_engine()).await;
    a_range_that_holds_nothing_is_an_empty_page(&new_engine()).await;
    a_scan_goes_on_where_the_last_one_stopped(&new_engine()).await;
    a_moment_stays_as_it_was(&new_engine()).await;
    commits_land_in_the_order_they_were_handed_over(&new_engine()).await;
    a_batch_lands_although_its_caller_gave_up(&new_engine()).await;
    what_was_synced_is_there_after_a_reopen(&new_engine()).await;
    a_clean_close_loses_nothing(&new_engine()).await;
    there_is_one_open_at_a_time(&new_engine()).await;
    the_statistics_count_rows(&new_engine()).await;
    the_disk_can_be_probed_open_or_closed(&new_engine()).await;
}

const ABCDE: [(&[u8], &[u8]); 5] =
    [(b"a", b"1"), (b"b", b"22"), (b"c", b"333"), (b"d", b"4444"), (b"e", b"55555")];

async fn open(engine: &dyn Engine) -> Box<dyn Kv> {
    engine.open().await.expect("the store opens")
}

async fn apply(kv: &dyn Kv, batch: Batch) {
    kv.apply(batch, Lane::Commit).await.expect("the batch is applied");
}

fn puts(cf: Cf, pairs: &[(&[u8], &[u8])]) -> Batch {
    let mut batch = Batch::default();
    for (key, value) in pairs {
        batch.put(cf, key, value);
    }
    batch
}

fn pairs(pairs: &[(&[u8], &[u8])]) -> Vec<Pair> {
    pairs.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

fn everything(cf: Cf) -> Scan {
    Scan {
        cf,
        range: Vec::new()..vec![0xff; 16],
        direction: Direction::Forward,
        max_rows: usize::MAX,
        max_bytes: usize::MAX,
    }
}

async fn rows(kv: &dyn Kv, cf: Cf) -> Vec<Pair> {
    let page = kv.scan(everything(cf)).await.expect("the family can be scanned");
    assert!(!page.more);
    page.pairs
}

async fn scan(kv: &dyn Kv, scan: Scan) -> Page {
    kv.scan(scan).await.expect("the range can be scanned")
}
