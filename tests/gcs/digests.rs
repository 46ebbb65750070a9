//! Bytes that change on their way, or where they are kept.

use ankusa_actors::ports::BlobError;

use super::crosscheck::Raw;
use super::{Fake, Fault, STEP, Surroundings, key, md5_base64, noise, spec};

fn integrity<T: std::fmt::Debug>(result: Result<T, BlobError>) {
    assert_eq!(result.unwrap_err().as_str(), "integrity");
}

#[tokio::test]
async fn an_upload_that_changes_on_the_way_is_refused_by_the_store() {
    let fake = Fake::start().await;
    let store = Surroundings::new().open(&spec(&fake.url()));
    fake.fault("multipart", Fault::BitFlipsOnTheWayThere);
    integrity(store.put(&key("small"), noise(1_000).into(), None).await);
    fake.fault("part", Fault::BitFlipsOnTheWayThere);
    integrity(store.put(&key("large"), noise(2 * STEP + 1).into(), None).await);
    assert_eq!(fake.state().objects.len(), 0);
    assert_eq!(fake.state().open_sessions(), 0);
    // Nothing had to be removed.
    assert_eq!(fake.journal().last().unwrap(), "cancel");
    // The same again, unharmed.
    store.put(&key("small"), noise(1_000).into(), None).await.unwrap();
    store.put(&key("large"), noise(2 * STEP + 1).into(), None).await.unwrap();
    assert_eq!(fake.bytes_of("large").unwrap(), noise(2 * STEP + 1));
}

#[tokio::test]
async fn the_header_is_enough_and_so_is_the_metadata() {
    let fake = Fake::start().await;
    let store = Surroundings::new().open(&spec(&fake.url()));
    let put = async || {
        fake.fault("multipart", Fault::BitFlipsOnTheWayThere);
        integrity(store.put(&key("k"), noise(1_000).into(), None).await);
        assert_eq!(fake.bytes_of("k"), None);
        fake.journal().len()
    };
    for deaf_to in ["header", "metadata"] {
        fake.state().deaf_to = vec![deaf_to];
        assert_eq!(put().await, 1, "{deaf_to}");
    }
    // Who looks at neither takes it, and it is removed.
    fake.state().deaf_to = vec!["header", "metadata"];
    assert_eq!(put().await, 2);
    // Of an upload in parts there is the header alone.
    fake.fault("part", Fault::BitFlipsOnTheWayThere);
    integrity(store.put(&key("large"), noise(STEP + 1).into(), None).await);
    let last = fake.journal().pop().unwrap();
    assert!(last.starts_with("delete if 17000"), "{last}");
    assert_eq!(fake.bytes_of("large"), None);
}

#[tokio::test]
async fn a_wrong_digest_is_refused_by_the_server_on_every_kind_of_upload() {
    let fake = Fake::start().await;
    let url = fake.url();
    for raw in Raw::uploads("k", b"the bytes") {
        let right = raw.with_hash(&md5_base64(b"the bytes"));
        let wrong = raw.with_hash(&md5_base64(b"other bytes"));
        assert_eq!(wrong.run(&url).await.status, 400, "{raw:?}");
        assert_eq!(fake.bytes_of("k"), None);
        assert_eq!(right.run(&url).await.status, 200, "{raw:?}");
        assert_eq!(fake.bytes_of("k").unwrap(), "the bytes");
        fake.state().objects.clear();
    }
    let wrong = Raw::multipart("k", b"the bytes", Some(&md5_base64(b"other bytes")));
    assert_eq!(wrong.run(&url).await.status, 400);
    let right = Raw::multipart("k", b"the bytes", Some(&md5_base64(b"the bytes")));
    assert_eq!(right.run(&url).await.status, 200);
}

#[tokio::test]
async fn what_the_store_says_it_has_is_compared_and_removed_if_it_is_another() {
    for (size, verb) in [(1_000, "multipart"), (STEP + 1, "part")] {
        let fake = Fake::start().await;
        let store = Surroundings::new().open(&spec(&fake.url()));
        fake.fault_after(size / STEP, verb, Fault::BitFlipsWithin);
        integrity(store.put_if_absent(&key("k"), noise(size).into(), None).await);
        assert_eq!(fake.bytes_of("k"), None, "what was kept is not what was sent");
        let last = fake.journal().pop().unwrap();
        assert!(last.starts_with("delete if 17000"), "{last}");
        // So nothing is in the way of the next.
        store.put_if_absent(&key("k"), noise(size).into(), None).await.unwrap();
    }
}

#[tokio::test]
async fn what_is_read_whole_is_compared_with_its_digest() {
    let fake = Fake::start().await;
    let store = Surroundings::new().open(&spec(&fake.url()));
    store.put(&key("k"), noise(1_000).into(), None).await.unwrap();
    fake.fault("get", Fault::BitFlipsOnTheWayBack);
    integrity(store.get(&key("k"), None).await);
    assert_eq!(store.get(&key("k"), None).await.unwrap(), noise(1_000));
    // One that is made of others has no MD5, and a part is nobody's digest.
    fake.state().objects.get_mut("k").unwrap().composite = true;
    fake.fault("get", Fault::BitFlipsOnTheWayBack);
    assert_ne!(store.get(&key("k"), None).await.unwrap(), noise(1_000));
    fake.state().objects.get_mut("k").unwrap().composite = false;
    fake.fault("range", Fault::BitFlipsOnTheWayBack);
    let part = store.get_range(&key("k"), 0, 10, None).await.unwrap();
    assert_ne!(part, noise(10));
}
