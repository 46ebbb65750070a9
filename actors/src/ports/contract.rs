//! What every adapter of the store's ports must do, as functions: the simulated store is trusted because it passes what
//! RocksDB passes.
//!
//! Each function is given an engine over an empty store. They are called from tests and panic like tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;

use super::{Direction, Engine, Kv, Lane, OpenError, Page, Pair, Scan, StoreStats};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::failure::FailureClass;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{CounterKey, DueKey, DueKind, DueValue};
use crate::model::ops::Ops;

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
    commits_land_in_the_order_they_were_handed_over(&new_engine()).await;
    a_batch_lands_although_its_caller_gave_up(&new_engine()).await;
    what_was_synced_is_there_after_a_reopen(&new_engine()).await;
    a_clean_close_loses_nothing(&new_engine()).await;
    there_is_one_open_at_a_time(&new_engine()).await;
    the_statistics_count_rows(&new_engine()).await;
    the_disk_can_be_probed_open_or_closed(&new_engine()).await;
}

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

fn range(start: &[u8], end: &[u8]) -> Range<Vec<u8>> {
    start.to_vec()..end.to_vec()
}

async fn rows(kv: &dyn Kv, cf: Cf) -> Vec<Pair> {
    let page = kv.scan(everything(cf)).await.expect("the family can be scanned");
    assert!(!page.more);
    page.pairs
}

async fn scan(kv: &dyn Kv, scan: Scan) -> Page {
    kv.scan(scan).await.expect("the range can be scanned")
}

pub async fn a_new_store_is_empty(engine: &dyn Engine) {
    let kv = open(engine).await;
    for cf in Cf::ALL {
        assert_eq!(scan(&*kv, everything(cf)).await, Page::default(), "{}", cf.name());
        assert_eq!(kv.get(cf, b"k").unwrap(), None, "{}", cf.name());
    }
    apply(&*kv, Batch::default()).await;
    kv.sync().await.unwrap();
}

pub async fn a_batch_lands_in_the_order_it_was_written(engine: &dyn Engine) {
    let kv = open(engine).await;
    let mut batch = puts(Cf::Index, &[(b"twice", b"1"), (b"gone", b"1"), (b"twice", b"2")]);
    batch.delete(Cf::Index, b"gone");
    batch.delete(Cf::Index, b"back");
    batch.put_shared(Cf::Index, b"back", Bytes::from_static(b"3"));
    batch.delete(Cf::Index, b"never there");
    apply(&*kv, batch).await;
    assert_eq!(rows(&*kv, Cf::Index).await, pairs(&[(b"back", b"3"), (b"twice", b"2")]));

    let mut batch = puts(Cf::Index, &[(b"twice", b"4")]);
    batch.delete(Cf::Index, b"back");
    kv.apply(batch, Lane::Background).await.unwrap();
    assert_eq!(rows(&*kv, Cf::Index).await, pairs(&[(b"twice", b"4")]));
    assert_eq!(kv.get(Cf::Index, b"twice").unwrap(), Some(b"4".to_vec()));
    assert_eq!(kv.get(Cf::Index, b"back").unwrap(), None);
}

pub async fn families_do_not_share_keys(engine: &dyn Engine) {
    let kv = open(engine).await;
    let mut batch = Batch::default();
    for cf in Cf::ALL {
        batch.put(cf, b"k", cf.name().as_bytes());
    }
    apply(&*kv, batch).await;
    let mut batch = Batch::default();
    batch.delete(Cf::Audit, b"k");
    apply(&*kv, batch).await;
    for cf in Cf::ALL {
        let expected =
            if cf == Cf::Audit { vec![] } else { pairs(&[(b"k", cf.name().as_bytes())]) };
        assert_eq!(rows(&*kv, cf).await, expected, "{}", cf.name());
    }
}

pub async fn any_bytes_are_a_key_or_a_value(engine: &dyn Engine) {
    let kv = open(engine).await;
    let written = [
        (b"\xff\x00".as_slice(), b"\0".as_slice()),
        (b"".as_slice(), b"of the empty key".as_slice()),
        (b"\x00", b""),
        (b"\x00\x00", b"\xff"),
        (b"\x7f", b"a"),
        (b"\x80", b"b"),
    ];
    apply(&*kv, puts(Cf::Default, &written)).await;
    // Keys sort as unsigned bytes, a prefix before what it is a prefix of.
    let sorted = [written[1], written[2], written[3], written[4], written[5], written[0]];
    assert_eq!(rows(&*kv, Cf::Default).await, pairs(&sorted));
    assert_eq!(kv.get(Cf::Default, b"\x00").unwrap(), Some(Vec::new()));
    assert_eq!(kv.get(Cf::Default, b"").unwrap(), Some(b"of the empty key".to_vec()));
}

pub async fn big_values_come_back_whole(engine: &dyn Engine) {
    let kv = open(engine).await;
    let body = |len: usize| -> Vec<u8> { (0_u8..=250).cycle().take(len).collect() };
    let lens = [4_095, 4_096, 70_000, 5 << 20];
    let mut batch = Batch::default();
    for (key, len) in (0_u8..).zip(lens) {
        batch.put_shared(Cf::Hooks, &[key], Bytes::from(body(len)));
        batch.put(Cf::Index, &[key], &body(len));
    }
    apply(&*kv, batch).await;
    kv.sync().await.unwrap();
    engine.close(kv).await;
    let kv = open(engine).await;
    for cf in [Cf::Hooks, Cf::Index] {
        let found: Vec<_> = rows(&*kv, cf).await.into_iter().map(|(_, value)| value).collect();
        assert!(found == lens.map(body), "{}", cf.name());
        assert!(kv.get(cf, &[3]).unwrap() == Some(body(5 << 20)), "{}", cf.name());
    }
}

/// A batch whose only merges take one from what waits of `tenant`, and so of the node.
fn one_less(tenant: u32) -> Batch {
    let mut ops = Ops::default();
    let due = DueKey { tenant: TenantOrd(tenant), at_ms: 1, seq: Seq::FIRST, sink: 0 };
    ops.drop_due(&due, DueValue { size: 0, kind: DueKind::First });
    ops.finish()
}

pub async fn counters_add_up_what_was_merged(engine: &dyn Engine) {
    let key = |tenant: u32| {
        CounterKey { tenant: TenantOrd(tenant), field: Field::Pending }.encode().to_vec()
    };
    let counts = |counts: &[(u32, i64)]| -> Vec<Pair> {
        counts.iter().map(|(tenant, count)| (key(*tenant), counters::value(*count))).collect()
    };
    let kv = open(engine).await;
    apply(&*kv, one_less(1)).await;
    assert_eq!(rows(&*kv, Cf::Counters).await, counts(&[(0, -1), (1, -1)]));
    for _ in 0..300 {
        apply(&*kv, one_less(2)).await;
    }
    kv.apply(one_less(1), Lane::Background).await.unwrap();
    assert_eq!(rows(&*kv, Cf::Counters).await, counts(&[(0, -302), (1, -2), (2, -300)]));

    // Operands are folded among themselves, into values and over reopens; the sum is the same.
    engine.close(kv).await;
    for _ in 0..3 {
        let kv = open(engine).await;
        apply(&*kv, one_less(1)).await;
        engine.close(kv).await;
    }
    let kv = open(engine).await;
    assert_eq!(rows(&*kv, Cf::Counters).await, counts(&[(0, -305), (1, -5), (2, -300)]));
    assert_eq!(kv.get(Cf::Counters, &key(1)).unwrap(), Some(counters::value(-5)));
    let found = kv.multi_get(Cf::Counters, vec![key(2), key(3), key(0), key(4), key(1)]).await;
    let of = |count| Some(counters::value(count));
    assert_eq!(found.unwrap(), [of(-300), None, of(-305), None, of(-5)]);

    // A put starts from what it says, a delete from nothing, damage from 0: a merge never fails.
    let mut batch = puts(
        Cf::Counters,
        &[(&key(0), &counters::value(7_000_000_000)), (&key(2), b"no number"), (&key(3), b"12")],
    );
    batch.delete(Cf::Counters, &key(1));
    apply(&*kv, batch).await;
    for tenant in 1..=3 {
        apply(&*kv, one_less(tenant)).await;
    }
    let expected = counts(&[(0, 6_999_999_997), (1, -1), (2, -1), (3, 11)]);
    assert_eq!(rows(&*kv, Cf::Counters).await, expected);
    engine.close(kv).await;
    assert_eq!(rows(&*open(engine).await, Cf::Counters).await, expected);
}

pub async fn keys_are_answered_in_the_order_asked(engine: &dyn Engine) {
    let kv = open(engine).await;
    apply(&*kv, puts(Cf::Index, &[(b"a", b"1"), (b"b", b""), (b"c", b"3")])).await;
    apply(&*kv, puts(Cf::Deliveries, &[(b"x", b"elsewhere")])).await;
    let asked = [b"c".as_slice(), b"x", b"a", b"c", b"b"].map(<[u8]>::to_vec).to_vec();
    let found = kv.multi_get(Cf::Index, asked).await.unwrap();
    let of = |value: &[u8]| Some(value.to_vec());
    assert_eq!(found, [of(b"3"), None, of(b"1"), of(b"3"), of(b"")]);
    assert_eq!(kv.multi_get(Cf::Index, vec![]).await.unwrap(), Vec::<Option<Vec<u8>>>::new());

    // As many as a full batch asks for.
    let many = |n: u16| (0..n).map(|i| i.to_be_bytes().to_vec()).collect::<Vec<_>>();
    let mut batch = Batch::default();
    for key in many(600).iter().step_by(3) {
        batch.put(Cf::Index, key, key);
    }
    apply(&*kv, batch).await;
    let found = kv.multi_get(Cf::Index, many(600)).await.unwrap();
    let expected = many(600).into_iter().enumerate().map(|(i, key)| (i % 3 == 0).then_some(key));
    assert_eq!(found, expected.collect::<Vec<_>>());
}

const ABCDE: [(&[u8], &[u8]); 5] =
    [(b"a", b"1"), (b"b", b"22"), (b"c", b"333"), (b"d", b"4444"), (b"e", b"55555")];

pub async fn a_scan_sees_its_range_in_both_directions(engine: &dyn Engine) {
    let kv = open(engine).await;
    apply(&*kv, puts(Cf::Archive, &ABCDE)).await;
    let cases = [
        (range(b"b", b"d"), &ABCDE[1..3]),
        (range(b"a\0", b"d\0"), &ABCDE[1..4]),
        (range(b"", b"b"), &ABCDE[..1]),
        (range(b"d", b"z"), &ABCDE[3..]),
        (range(b"e", b"e\0"), &ABCDE[4..]),
    ];
    for (range, expected) in cases {
        let forward = Scan { range, ..everything(Cf::Archive) };
        let reverse = Scan { direction: Direction::Reverse, ..forward.clone() };
        let mut expected = Page { pairs: pairs(expected), more: false };
        assert_eq!(scan(&*kv, forward.clone()).await, expected, "{forward:?}");
        expected.pairs.reverse();
        assert_eq!(scan(&*kv, reverse).await, expected, "{forward:?} in reverse");
    }
}

pub async fn a_bounded_scan_says_whether_there_is_more(engine: &dyn Engine) {
    let kv = open(engine).await;
    apply(&*kv, puts(Cf::Archive, &ABCDE)).await;
    let all = usize::MAX;
    // In the range `a` to `e`: rows of 2, 3, 4 and 5 bytes.
    let cases = [
        // max_rows, max_bytes, rows forward, rows in reverse
        (all, all, 4, 4),
        (5, all, 4, 4),
        (4, all, 4, 4),
        (3, all, 3, 3),
        (1, all, 1, 1),
        (0, all, 0, 0),
        (all, 0, 1, 1),
        (all, 2, 1, 1),
        (all, 3, 2, 1),
        (all, 5, 2, 1),
        (all, 6, 3, 2),
        (all, 9, 3, 2),
        (all, 10, 4, 3),
        (all, 13, 4, 4),
        (all, 14, 4, 4),
        (2, 9, 2, 2),
        (3, 5, 2, 1),
    ];
    for (max_rows, max_bytes, forward, reverse) in cases {
        let bounds =
            Scan { range: range(b"a", b"e"), max_rows, max_bytes, ..everything(Cf::Archive) };
        let expected = Page { pairs: pairs(&ABCDE[..forward]), more: forward < 4 };
        assert_eq!(
            scan(&*kv, bounds.clone()).await,
            expected,
            "{max_rows} rows, {max_bytes} bytes"
        );

        let mut expected = Page { pairs: pairs(&ABCDE[4 - reverse..4]), more: reverse < 4 };
        expected.pairs.reverse();
        let bounds = Scan { direction: Direction::Reverse, ..bounds };
        assert_eq!(
            scan(&*kv, bounds).await,
            expected,
            "{max_rows} rows, {max_bytes} bytes, reverse"
        );
    }
}

pub async fn a_range_that_holds_nothing_is_an_empty_page(engine: &dyn Engine) {
    let kv = open(engine).await;
    apply(&*kv, puts(Cf::Archive, &ABCDE)).await;
    let empty = [
        range(b"c", b"c"),
        range(b"d", b"b"),
        range(b"b\0", b"c"),
        range(b"f", b"z"),
        range(b"", b"a"),
        range(b"z", b""),
        range(b"", b""),
    ];
    for range in empty {
        for direction in [Direction::Forward, Direction::Reverse] {
            for max_rows in [0, 1, usize::MAX] {
                let look =
                    Scan { range: range.clone(), direction, max_rows, ..everything(Cf::Archive) };
                assert_eq!(scan(&*kv, look.clone()).await, Page::default(), "{look:?}");
            }
        }
    }
}

pub async fn a_scan_goes_on_where_the_last_one_stopped(engine: &dyn Engine) {
    let kv = open(engine).await;
    let mut batch = Batch::default();
    let keys: Vec<_> = (0_u16..100).map(|i| i.to_be_bytes().to_vec()).collect();
    for key in &keys {
        batch.put(Cf::Hooks, key, b"v");
    }
    // Deleted rows are not rows, neither before nor after a bound.
    for key in [40_u16, 41, 42, 99] {
        batch.delete(Cf::Hooks, &key.to_be_bytes());
    }
    apply(&*kv, batch).await;
    let left: Vec<_> = keys.iter().filter(|key| !matches!(key[1], 40..=42 | 99)).cloned().collect();
    assert_eq!(left.len(), 96);
    for direction in [Direction::Forward, Direction::Reverse] {
        let mut look = Scan { direction, max_rows: 8, ..everything(Cf::Hooks) };
        let mut seen = Vec::new();
        let mut pages = 0;
        loop {
            let page = scan(&*kv, look.clone()).await;
            pages += 1;
            seen.extend(page.pairs.into_iter().map(|(key, _)| key));
            let last = seen.last().expect("a page with more has rows").clone();
            match direction {
                Direction::Forward => look.range.start = [last.as_slice(), b"\0"].concat(),
                Direction::Reverse => look.range.end = last,
            }
            if !page.more {
                break;
            }
        }
        if direction == Direction::Reverse {
            seen.reverse();
        }
        assert_eq!((seen, pages), (left.clone(), 12));
    }
}

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
