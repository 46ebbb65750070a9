//! Writes that only happen where nothing is.

use std::ops::Range;
use std::sync::Arc;

use ankusa_actors::ports::{BlobBody, BlobError, BlobSource};
use async_trait::async_trait;
use bytes::Bytes;

use super::crosscheck::Raw;
use super::{Fake, Fault, STEP, Surroundings, key, noise, spec};

const SIZES: [usize; 2] = [1_000, 2 * STEP + 7];

#[tokio::test]
async fn a_create_is_conditional_in_one_part_and_in_many() {
    for size in SIZES {
        let (fake, around) = (Fake::start().await, Surroundings::new());
        let store = around.open(&spec(&fake.url()));
        store.put(&key("k"), noise(size).into(), None).await.unwrap();
        let first = if size > STEP { "begin" } else { "multipart" };
        assert_eq!(fake.journal()[0], first);
        let other = vec![7; size];
        let refused = store.put_if_absent(&key("k"), other.into(), None).await;
        assert_eq!(refused, Err(BlobError::AlreadyExists));
        assert_eq!(fake.bytes_of("k").unwrap(), noise(size));
        let least = size.min(STEP) - usize::from(size > STEP);
        assert_eq!(fake.journal(), [format!("{first} if 0"), format!("range 0-{least}")]);
        // The other way round: without the condition it is gone.
        store.put(&key("k"), vec![7; size].into(), None).await.unwrap();
        assert_eq!(fake.bytes_of("k").unwrap(), vec![7; size]);
    }
}

#[tokio::test]
async fn the_condition_is_the_servers_on_every_kind_of_upload() {
    let fake = Fake::start().await;
    for raw in Raw::uploads("k", b"first") {
        let (url, condition) = (fake.url(), "&ifGenerationMatch=0");
        fake.state().objects.clear();
        // Where nothing is, and where something is; and where something is, without it.
        assert_eq!(raw.with(condition).run(&url).await.status, 200, "{raw:?}");
        assert_eq!(raw.with(condition).run(&url).await.status, 412, "{raw:?}");
        assert_eq!(raw.run(&url).await.status, 200, "{raw:?}");
        assert_eq!(raw.with("&ifGenerationMatch=7").run(&url).await.status, 412, "{raw:?}");
    }
}

#[tokio::test]
async fn an_answer_that_was_lost_is_not_another_writer() {
    for (size, verb) in [(1_000, "multipart"), (2 * STEP + 7, "part")] {
        // With retries it finds its own object; without, the next call does.
        for retries in [2, 0] {
            let fake = Fake::start().await;
            let mut spec = spec(&fake.url());
            spec.transport.retries = retries;
            let (store, body) = (Surroundings::new().open(&spec), noise(size));
            fake.fault_after(size / STEP, verb, Fault::LostOnTheWayBack);
            let created = store.put_if_absent(&key("k"), body.clone().into(), None).await;
            let expected = if retries == 0 { "transport" } else { "ok" };
            assert_eq!(created.as_ref().map_or_else(BlobError::as_str, |()| "ok"), expected);
            assert_eq!(fake.bytes_of("k").unwrap(), body, "it had landed");
            fake.journal();
            store.put_if_absent(&key("k"), body.clone().into(), None).await.unwrap();
            assert!(fake.journal()[0].ends_with(" if 0"));
            assert_eq!(fake.bytes_of("k").unwrap(), body);
            assert_eq!(fake.state().open_sessions(), 0);
        }
    }
}

#[tokio::test]
async fn another_writers_bytes_of_the_same_length_are_no_lost_answer() {
    for size in SIZES {
        let fake = Fake::start().await;
        let store = Surroundings::new().open(&spec(&fake.url()));
        let mut other = noise(size);
        *other.last_mut().unwrap() ^= 1;
        fake.state().insert("k", other.clone().into(), None);
        let created = store.put_if_absent(&key("k"), noise(size).into(), None).await;
        assert_eq!(created, Err(BlobError::AlreadyExists));
        assert_eq!(fake.bytes_of("k").unwrap(), other);
    }
}

#[tokio::test]
async fn an_object_that_is_gone_again_is_asked_for_another_time() {
    let fake = Fake::start().await;
    let store = Surroundings::new().open(&spec(&fake.url()));
    fake.fault("multipart", Fault::Says(super::Said::error(412, "conditionNotMet", "")));
    let created = store.put_if_absent(&key("k"), vec![1].into(), None).await;
    assert_eq!(created.unwrap_err().as_str(), "transport");
    store.put_if_absent(&key("k"), vec![1].into(), None).await.unwrap();
}

/// Bytes of which the second read finds that somebody else was quicker.
struct TooSlow {
    fake: Arc<Fake>,
    other: Bytes,
}

#[async_trait]
impl BlobSource for TooSlow {
    fn bytes(&self) -> u64 {
        2 * STEP as u64
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        if range.start > 0 {
            self.fake.state().insert("k", self.other.clone(), None);
        }
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        Ok(Bytes::from(noise(2 * STEP)).slice(range))
    }
}

#[tokio::test]
async fn a_create_that_loses_the_race_is_cancelled() {
    for (other, lost) in [(b"other".to_vec(), true), (noise(2 * STEP), false)] {
        let fake = Arc::new(Fake::start().await);
        let store = Surroundings::new().open(&spec(&fake.url()));
        let source = TooSlow { fake: fake.clone(), other: other.clone().into() };
        let body = BlobBody::of_source(Arc::new(source));
        let created = store.put_if_absent(&key("k"), body, None).await;
        assert_eq!(created, if lost { Err(BlobError::AlreadyExists) } else { Ok(()) });
        assert_eq!(fake.bytes_of("k").unwrap(), other);
        let said = fake.journal();
        let begun = ["begin if 0", "part 0-262143/524288", "part 262144-524287/524288", "cancel"];
        assert_eq!(said[..4], begun);
        assert_eq!(fake.state().open_sessions(), 0);
    }
}
