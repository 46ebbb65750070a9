//! What a scan sees, and what it says of what it did not look at.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use super::{ABCDE, apply, everything, open, pairs, puts, scan};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::ports::{Direction, Engine, KvError, Moment, Page, Scan};

fn range(start: &[u8], end: &[u8]) -> Range<Vec<u8>> {
    start.to_vec()..end.to_vec()
}

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

pub async fn a_moment_stays_as_it_was(engine: &dyn Engine) {
    let kv = Arc::new(open(engine).await);
    apply(&**kv, puts(Cf::Archive, &ABCDE)).await;
    apply(&**kv, puts(Cf::Audit, &ABCDE[..1])).await;
    let (look_now, now) = std::sync::mpsc::channel::<()>();
    let (seen, see) = tokio::sync::oneshot::channel();
    let (began, begun) = tokio::sync::oneshot::channel();
    let look = move |moment: &dyn Moment| {
        let before = moment.scan(everything(Cf::Archive))?;
        let _ = began.send(());
        // The real store gives the look a thread of its own; while the simulated one looks, nobody can send anything.
        let _ = now.recv_timeout(Duration::from_millis(300));
        let keys = [b"a".to_vec(), b"new".to_vec()];
        let after = (moment.scan(everything(Cf::Archive))?, moment.multi_get(Cf::Audit, &keys)?);
        let _ = seen.send((before, after));
        Ok(())
    };
    let writes = async {
        let _ = begun.await;
        let mut batch = puts(Cf::Archive, &[(b"a", b"changed"), (b"new", b"1")]);
        batch.delete(Cf::Archive, b"b");
        batch.put(Cf::Audit, b"a", b"changed");
        batch.put(Cf::Audit, b"new", b"1");
        apply(&**kv, batch).await;
        let _ = look_now.send(());
    };
    let (looked, ()) = tokio::join!(kv.at_one_moment(Box::new(look)), writes);
    looked.expect("the look comes to its end");
    let (before, (after, found)) = see.await.expect("it was looked");
    let expected = Page { pairs: pairs(&ABCDE), more: false };
    assert_eq!((&before, &after), (&expected, &expected));
    assert_eq!(found, [Some(b"1".to_vec()), None]);
    assert_eq!(scan(&**kv, everything(Cf::Archive)).await.pairs.len(), 5, "and the store went on");
    let failed = kv.at_one_moment(Box::new(|_| Err(no("told to"))));
    assert_eq!(failed.await.expect_err("as the look does").detail, "told to");
    let (seen, see) = tokio::sync::oneshot::channel();
    let look = move |moment: &dyn Moment| {
        let _ = seen.send(moment.scan(everything(Cf::Audit))?.pairs);
        Ok(())
    };
    kv.undisturbed(Box::new(look)).await.expect("the look comes to its end");
    assert_eq!(see.await.expect("it was looked").len(), 2, "it sees what is there");
    let failed = kv.undisturbed(Box::new(|_| Err(no("told to"))));
    assert_eq!(failed.await.expect_err("as the look does").detail, "told to");
}

fn no(detail: &str) -> KvError {
    KvError { class: FailureClass::Other, op: "look", detail: detail.to_owned() }
}
