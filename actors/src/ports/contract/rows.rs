//! What a batch does to rows, and what reads of single keys see.

use bytes::Bytes;

use super::{apply, everything, open, pairs, puts, rows, scan};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::counters::{self, Field};
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{CounterKey, DueKey, DueKind, DueValue};
use crate::model::ops::Ops;
use crate::ports::{Engine, Lane, Page, Pair};

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
