//! `list`: everything, once, in order.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::{BlobTrial, len};

/// In order: the bytes of the keys, in which `.` is before `/` and U+FFFD before U+10000. UTF-16, a walk through folders
/// and a sort that knows languages would each put them otherwise.
const IN_ORDER: [&str; 14] = [
    "B",
    "Z/z",
    "_",
    "a b",
    "a!",
    "a-/x",
    "a.x",
    "a/b",
    "a/b-",
    "a0",
    "aB",
    "b",
    "\u{fffd}",
    "\u{10000}",
];

pub async fn a_listing_is_in_the_order_of_bytes(trial: &BlobTrial) {
    for key in IN_ORDER.iter().rev() {
        trial.put(key, key.as_bytes()).await;
    }
    let expected: Vec<_> = IN_ORDER.iter().map(|key| ((*key).to_owned(), len(key.len()))).collect();
    assert!(expected.is_sorted());
    assert_eq!(trial.list("").await, expected);
}

pub async fn a_prefix_is_any_text(trial: &BlobTrial) {
    let keys = ["a/b.x", "a/b/1", "a/b/2/3", "a/bc", "a/c", "ab", "b"];
    for key in keys {
        trial.put(key, &b"12"[..]).await;
    }
    let expected: [(&str, &[&str]); 19] = [
        ("", &keys),
        ("a", &keys[..6]),
        ("a/", &keys[..5]),
        ("a/b", &keys[..4]),
        ("a/b/", &keys[1..3]),
        ("a/b/2", &keys[2..3]),
        ("a/b/2/3", &keys[2..3]),
        ("a/b/2/3/", &[]),
        ("a/bc", &keys[3..4]),
        ("a/bcd", &[]),
        ("ab", &keys[5..6]),
        ("nothing", &[]),
        ("no/thing", &[]),
        // No key is like these.
        ("/", &[]),
        ("./", &[]),
        ("../", &[]),
        ("a//", &[]),
        ("a/../", &[]),
        ("a/%", &[]),
    ];
    for (prefix, keys) in expected {
        let keys: Vec<_> = keys.iter().map(|key| ((*key).to_owned(), 2)).collect();
        assert_eq!(trial.list(prefix).await, keys, "{prefix:?}");
    }
    // The empty prefix is everybody's: ours are among them, and nothing twice.
    let all = trial.whole_list("").await;
    assert!(all.is_sorted_by(|one, two| one.key < two.key));
    let ours = all.into_iter().filter(|entry| entry.key.starts_with(&trial.prefix));
    let ours: Vec<_> = ours.map(|entry| trial.own(entry)).collect();
    assert_eq!(ours, trial.list("").await);
}

pub async fn a_listing_goes_on_to_its_end(trial: &BlobTrial) {
    let key = |n: usize| format!("pages/part={}/object {n:05} & more", n % 7);
    let body = |n: usize| Bytes::from(vec![b'x'; n % 5]);
    let objects: BTreeMap<_, _> = (0..trial.many_objects).map(|n| (key(n), body(n))).collect();
    trial.put_all(objects.clone()).await;
    trial.put("page", &b"before them"[..]).await;
    trial.put("pages2", &b"after them"[..]).await;
    let expected: Vec<_> = objects.into_iter().map(|(key, body)| (key, len(body.len()))).collect();
    assert_eq!(expected.len(), trial.many_objects);
    assert_eq!(trial.list("pages/").await, expected);
    let some: Vec<_> =
        expected.iter().filter(|(key, _)| key.starts_with("pages/part=3/")).cloned().collect();
    assert_eq!(trial.list("pages/part=3").await, some);
}
