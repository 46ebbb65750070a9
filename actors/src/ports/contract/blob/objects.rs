//! Whole objects and parts of them: written, read, removed.

use bytes::Bytes;
use tokio::time::Instant;

use super::{BlobTrial, len};
use crate::ports::{
    BLOB_KEY_MAX_BYTES, BLOB_KEY_PART_MAX_BYTES, BlobError, BlobKey, GET_MAX_BYTES,
};

pub async fn a_put_object_comes_back(trial: &BlobTrial) {
    for (key, body) in [("a", &b"1"[..]), ("folder/deep/er", b"22"), ("bytes", b"\0\r\n\xff\xfe")] {
        trial.put(key, Bytes::copy_from_slice(body)).await;
        assert_eq!(trial.get(key).await.unwrap(), body, "{key}");
    }
    let listed = trial.list("").await;
    let expected = [("a", 1), ("bytes", 5), ("folder/deep/er", 2)];
    assert_eq!(listed, expected.map(|(key, bytes)| (key.to_owned(), bytes)));
}

pub async fn a_put_replaces_what_is_there(trial: &BlobTrial) {
    for body in ["first", "a longer second", "3rd", ""] {
        trial.put("k", Bytes::from_static(body.as_bytes())).await;
        assert_eq!(trial.get("k").await.unwrap(), body.as_bytes());
        assert_eq!(trial.list("").await, [("k".to_owned(), len(body.len()))]);
    }
}

pub async fn a_missing_object_is_not_found(trial: &BlobTrial) {
    trial.put("there/one", &b"1"[..]).await;
    trial.put("there/gone", &b"2"[..]).await;
    trial.delete("there/gone").await;
    for key in ["no", "no/folder/either", "there/gone", "there/on", "there/one1", "there/oneself"] {
        assert_eq!(trial.get(key).await, Err(BlobError::NotFound), "{key}");
        assert_eq!(trial.range(key, 0, 1).await, Err(BlobError::NotFound), "{key}");
        assert_eq!(trial.range(key, 7, 3).await, Err(BlobError::NotFound), "{key}");
    }
}

pub async fn a_range_is_what_lies_within(trial: &BlobTrial) {
    let whole = b"0123456789ab";
    trial.put("k", &whole[..]).await;
    trial.put("empty", &b""[..]).await;
    let expected: [(u64, u64, &[u8]); 15] = [
        // Within it.
        (0, 1, b"0"),
        (0, 12, whole),
        (3, 4, b"3456"),
        (11, 1, b"b"),
        // Across its end.
        (0, 13, whole),
        (3, GET_MAX_BYTES, b"3456789ab"),
        (11, 2, b"b"),
        // From its end on.
        (12, 1, b""),
        (13, 5, b""),
        (1 << 40, 5, b""),
        (u64::MAX - 1, GET_MAX_BYTES, b""),
        (u64::MAX, 1, b""),
        // Of nothing.
        (0, 0, b""),
        (5, 0, b""),
        (12, 0, b""),
    ];
    for (offset, length, part) in expected {
        let found = trial.range("k", offset, length).await;
        assert_eq!(found.as_deref(), Ok(part), "{length} bytes from {offset} on");
        let found = trial.range("empty", offset, length).await;
        assert_eq!(found.as_deref(), Ok(&[][..]), "{length} bytes from {offset} on of none");
    }
    // Nothing is asked of the store, so it cannot say that there is no such object.
    assert_eq!(trial.range("missing", 0, 0).await, Ok(Bytes::new()));
}

pub async fn a_range_too_long_is_refused(trial: &BlobTrial) {
    trial.put("k", &b"1"[..]).await;
    for length in [GET_MAX_BYTES + 1, u64::MAX] {
        let refused = trial.range("k", 0, length).await.unwrap_err();
        assert_eq!(refused.as_str(), "misconfigured", "{length}");
    }
}

pub async fn what_is_deleted_is_gone(trial: &BlobTrial) {
    trial.put("d/k", &b"1"[..]).await;
    trial.put("d/k2", &b"2"[..]).await;
    for _again in 0..2 {
        trial.delete("d/k").await;
        assert_eq!(trial.get("d/k").await, Err(BlobError::NotFound));
        assert_eq!(trial.list("d").await, [("d/k2".to_owned(), 1)]);
    }
    trial.delete("never/was").await;
    assert_eq!(trial.get("d/k2").await.unwrap(), &b"2"[..]);
    trial.put("d/k", &b"back"[..]).await;
    assert_eq!(trial.get("d/k").await.unwrap(), &b"back"[..]);
}

pub async fn an_empty_object_is_an_object(trial: &BlobTrial) {
    trial.put("put", &b""[..]).await;
    trial.create("created", &b""[..]).await.unwrap();
    trial.create("created", &b""[..]).await.unwrap();
    assert_eq!(trial.create("created", &b"1"[..]).await, Err(BlobError::AlreadyExists));
    for key in ["put", "created"] {
        assert_eq!(trial.get(key).await.unwrap(), Bytes::new());
    }
    assert_eq!(trial.list("").await, [("created".to_owned(), 0), ("put".to_owned(), 0)]);
}

/// Where keys are paths of files, too.
pub async fn what_keys_begin_with_is_no_object(trial: &BlobTrial) {
    trial.put("folder/k", &b"1"[..]).await;
    assert_eq!(trial.get("folder").await, Err(BlobError::NotFound));
    assert_eq!(trial.range("folder", 0, 1).await, Err(BlobError::NotFound));
    trial.delete("folder").await;
    assert_eq!(trial.get("folder/k").await.unwrap(), &b"1"[..]);

    trial.put("object", &b"2"[..]).await;
    assert_eq!(trial.get("object/k").await, Err(BlobError::NotFound));
    assert_eq!(trial.range("object/k", 0, 1).await, Err(BlobError::NotFound));
    trial.delete("object/k").await;
    trial.delete("object/k/deeper").await;
    assert_eq!(trial.get("object").await.unwrap(), &b"2"[..]);
    let all = [("folder/k".to_owned(), 1), ("object".to_owned(), 1)];
    assert_eq!(trial.list("").await, all);
    assert_eq!(trial.list("object/").await, []);
}

pub async fn a_reader_sees_one_whole_object(trial: &BlobTrial) {
    let (long, short) = (vec![b'l'; 100_000], vec![b's'; 10]);
    trial.put("k", long.clone()).await;
    for _round in 0..10 {
        let write = async {
            trial.put("k", short.clone()).await;
            trial.put("k", long.clone()).await;
        };
        let ((), one, two) = tokio::join!(write, trial.get("k"), trial.get("k"));
        for seen in [one, two] {
            let seen = seen.unwrap();
            assert!(seen == long || seen == short, "{} bytes of neither", seen.len());
        }
    }
}

pub async fn nothing_is_done_past_the_deadline(trial: &BlobTrial) {
    trial.put("k", &b"kept"[..]).await;
    let over = Some(Instant::now());
    let (store, key, new) = (&trial.store, trial.key("k"), trial.key("new"));
    let late = Err(BlobError::Deadline);
    assert_eq!(store.put(&key, Bytes::from_static(b"late").into(), over).await, late);
    assert_eq!(store.put(&new, Bytes::from_static(b"late").into(), over).await, late);
    assert_eq!(store.put_if_absent(&new, Bytes::from_static(b"late").into(), over).await, late);
    assert_eq!(store.delete(&key, over).await, late);
    assert_eq!(store.get(&key, over).await, Err(BlobError::Deadline));
    assert_eq!(store.get_range(&key, 0, 1, over).await, Err(BlobError::Deadline));
    assert_eq!(store.list(&trial.prefix, over).await, Err(BlobError::Deadline));
    assert_eq!(trial.list("").await, [("k".to_owned(), 4)]);
    assert_eq!(trial.get("k").await.unwrap(), &b"kept"[..]);
}

/// Keys with characters that mean something to a URL, a query, an XML or JSON document, a signature, a shell or a file
/// system, and are legal all the same.
pub const ODD_KEYS: [&str; 32] = [
    "space in it",
    " before",
    "after ",
    "plus+plus",
    "100%",
    "a%2Fb",
    "%2e%2e",
    "%20",
    "ü",
    "\u{75}\u{308}",
    "日本/語",
    "\u{1f9ff}",
    "a&b=c",
    "<a>",
    "\"quoted\"",
    "'quoted'",
    "#hash",
    "?query",
    "colon:colon",
    "star*",
    "~tilde",
    "dt=2026-11-30",
    "semi;colon",
    "comma,comma",
    "$dollar!",
    "at@at",
    "(round)[square]{curly}",
    "pipe|caret^tick`",
    "back\\slash",
    ".hidden",
    "Case",
    "case",
];

pub async fn every_character_of_a_key_is_kept(trial: &BlobTrial) {
    let kept = || ODD_KEYS.iter().filter(|key| !trial.keys_not_kept.contains(key));
    for key in kept() {
        // As a name and as a folder.
        trial.put(key, key.as_bytes()).await;
        let below = format!("in/{key}/object");
        trial.create(&below, &b"below"[..]).await.unwrap_or_else(|e| panic!("{below:?}: {e}"));
    }
    for key in kept() {
        assert_eq!(trial.get(key).await.unwrap(), key.as_bytes(), "{key:?}");
        assert_eq!(trial.range(key, 1, 1).await.unwrap(), key.as_bytes()[1..2], "{key:?}");
        assert_eq!(trial.list(key).await, [((*key).to_owned(), len(key.len()))], "{key:?}");
        let below = format!("in/{key}/object");
        assert_eq!(trial.list(&format!("in/{key}/")).await, [(below.clone(), 5)], "{key:?}");
        let again = trial.create(&below, &b"other"[..]).await;
        assert_eq!(again, Err(BlobError::AlreadyExists), "{key:?}");
        trial.delete(&below).await;
        assert_eq!(trial.get(&below).await, Err(BlobError::NotFound), "{key:?}");
    }
    let mut all: Vec<_> = kept().map(|key| ((*key).to_owned(), len(key.len()))).collect();
    all.sort();
    assert_eq!(trial.list("").await, all);
}

pub async fn the_longest_key_is_kept(trial: &BlobTrial) {
    let part = "p".repeat(BLOB_KEY_PART_MAX_BYTES);
    let mut longest = format!("{part}/");
    while trial.prefix.len() + longest.len() < BLOB_KEY_MAX_BYTES {
        let left = BLOB_KEY_MAX_BYTES - trial.prefix.len() - longest.len();
        longest.push_str(&part[..left.min(200)]);
        if left > 201 {
            longest.push('/');
        }
    }
    let full = format!("{}{longest}", trial.prefix);
    assert_eq!((full.len(), BlobKey::new(full.clone()).is_ok()), (BLOB_KEY_MAX_BYTES, true));
    trial.put(&longest, &b"1"[..]).await;
    assert_eq!(trial.get(&longest).await.unwrap(), &b"1"[..]);
    assert_eq!(trial.list("").await, [(longest.clone(), 1)]);
    trial.delete(&longest).await;
    assert_eq!(trial.list("").await, []);
}
