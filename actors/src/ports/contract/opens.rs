//! The order of writes, and what opens, closes and probes do.

use std::time::Duration;

use super::{ABCDE, apply, open, pairs, puts, rows};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::ports::{Engine, Lane, OpenError, StoreStats};

pub async fn commits_land_in_the_order_they_were_handed_over(engine: &dyn Engine) {
    let kv = open(engine).await;
    let write = |value: &'static [u8]| apply(&*kv, puts(Cf::Default, &[(b"k", value)]));
    for _ in 0..20 {
        tokio::join!(write(b"1"), write(b"2"), write(b"3"), write(b"4"));
        assert_eq!(kv.get(Cf::Default, b"k").unwrap(), Some(b"4".to_vec()));
    }
}

pub async fn a_batch_lands_although_its_caller_gave_up(engine: &dyn Engine) {
    let kv = open(engine).await;
    let asked = kv.apply(puts(Cf::Default, &[(b"a", b"1")]), Lane::Commit);
    // Handed over, and perhaps answered; the next of its lane lands behind it.
    let _ = tokio::time::timeout(Duration::ZERO, asked).await;
    apply(&*kv, puts(Cf::Default, &[(b"b", b"2")])).await;
    assert_eq!(rows(&*kv, Cf::Default).await, pairs(&[(b"a", b"1"), (b"b", b"2")]));
}

pub async fn what_was_synced_is_there_after_a_reopen(engine: &dyn Engine) {
    let mut expected = Vec::new();
    for round in 0_u8..3 {
        let kv = open(engine).await;
        for cf in Cf::ALL {
            assert_eq!(rows(&*kv, cf).await, expected, "{}", cf.name());
        }
        let mut batch = Batch::default();
        for cf in Cf::ALL {
            batch.put(cf, &[round], b"v");
        }
        apply(&*kv, batch).await;
        kv.sync().await.unwrap();
        kv.sync().await.unwrap();
        engine.close(kv).await;
        expected.push((vec![round], b"v".to_vec()));
    }
}

pub async fn a_clean_close_loses_nothing(engine: &dyn Engine) {
    let kv = open(engine).await;
    apply(&*kv, puts(Cf::Hooks, &ABCDE)).await;
    kv.apply(puts(Cf::Index, &ABCDE), Lane::Background).await.unwrap();
    engine.close(kv).await;
    let kv = open(engine).await;
    assert_eq!(rows(&*kv, Cf::Hooks).await, pairs(&ABCDE));
    assert_eq!(rows(&*kv, Cf::Index).await, pairs(&ABCDE));
}

pub async fn there_is_one_open_at_a_time(engine: &dyn Engine) {
    let kv = open(engine).await;
    apply(&*kv, puts(Cf::Hooks, &ABCDE)).await;
    match engine.open().await {
        Ok(_second) => panic!("the store was opened twice"),
        Err(OpenError { class, .. }) => assert_eq!(class, FailureClass::Busy),
    }
    // The refused open left the first one alone.
    assert_eq!(rows(&*kv, Cf::Hooks).await, pairs(&ABCDE));
    engine.close(kv).await;
    for _ in 0..3 {
        engine.close(open(engine).await).await;
    }
}

pub async fn the_statistics_count_rows(engine: &dyn Engine) {
    let kv = open(engine).await;
    let before = kv.stats().await.unwrap();
    assert_eq!((before.hooks, before.deliveries), (0, 0));
    apply(&*kv, puts(Cf::Hooks, &ABCDE)).await;
    apply(&*kv, puts(Cf::Deliveries, &ABCDE[..2])).await;
    let StoreStats { hooks, deliveries, disk_bytes, write_stopped, background_errors, .. } =
        kv.stats().await.unwrap();
    assert_eq!((hooks, deliveries, write_stopped, background_errors), (5, 2, false, 0));
    assert!(disk_bytes > before.disk_bytes);
}

pub async fn the_disk_can_be_probed_open_or_closed(engine: &dyn Engine) {
    engine.probe_disk().await.unwrap();
    let kv = open(engine).await;
    apply(&*kv, puts(Cf::Hooks, &ABCDE)).await;
    engine.probe_disk().await.unwrap();
    engine.close(kv).await;
    engine.probe_disk().await.unwrap();
    let kv = open(engine).await;
    assert_eq!(rows(&*kv, Cf::Hooks).await, pairs(&ABCDE));
}
