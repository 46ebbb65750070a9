//! Uploads in parts, and what they do when parts of them get lost.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ankusa_actors::ports::{BlobBody, BlobError, BlobSource};
use ankusa_node::blob::gcs::GcsSpec;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::time::Instant;

use super::{Fake, Fault, STEP, Said, Surroundings, key, noise, spec};

const BYTES: usize = 2 * STEP + 100;

/// What an upload of [`BYTES`] asks that goes well.
const WELL: [&str; 4] =
    ["begin", "part 0-262143/524388", "part 262144-524287/524388", "part 524288-524387/524388"];

async fn uploaded(spec: &GcsSpec) -> Result<(), BlobError> {
    Surroundings::new().open(spec).put(&key("k"), noise(BYTES).into(), None).await
}

/// What was asked, of an upload that came through.
async fn asked(fake: &Fake) -> Vec<String> {
    uploaded(&spec(&fake.url())).await.unwrap();
    assert_eq!(fake.bytes_of("k").unwrap(), noise(BYTES));
    assert_eq!(fake.state().open_sessions(), 0);
    fake.journal()
}

#[tokio::test]
async fn parts_are_sent_in_order_and_no_more_than_above_the_threshold() {
    let fake = Fake::start().await;
    assert_eq!(asked(&fake).await, WELL);
    let store = Surroundings::new().open(&spec(&fake.url()));
    store.put(&key("k"), noise(STEP).into(), None).await.unwrap();
    assert_eq!(fake.journal(), ["multipart"]);
    store.put(&key("k"), noise(STEP + 1).into(), None).await.unwrap();
    let one_more = ["begin", "part 0-262143/262145", "part 262144-262144/262145"];
    assert_eq!(fake.journal(), one_more);
    store.put(&key("k"), noise(2 * STEP).into(), None).await.unwrap();
    let just_two = ["begin", "part 0-262143/524288", "part 262144-524287/524288"];
    assert_eq!(fake.journal(), just_two);
}

#[tokio::test]
async fn a_part_that_was_lost_is_asked_for_and_sent_from_where_it_stopped() {
    let fake = Fake::start().await;
    // Nothing of it arrived.
    for part in 0..3 {
        fake.fault_after(part, "part", Fault::LostOnTheWayThere);
        let mut expected = WELL.map(str::to_owned).to_vec();
        expected.insert(part + 2, WELL[part + 1].to_owned());
        expected.insert(part + 2, "ask */524388".to_owned());
        assert_eq!(asked(&fake).await, expected);
    }
    // All of it did.
    for part in 0..3 {
        fake.fault_after(part, "part", Fault::LostOnTheWayBack);
        let mut expected = WELL.map(str::to_owned).to_vec();
        expected.insert(part + 2, "ask */524388".to_owned());
        assert_eq!(asked(&fake).await, expected);
    }
    // And so it is with one that is refused for a moment.
    fake.fault_after(1, "part", Fault::Says(Said::new(503, "")));
    let expected = [&WELL[..3], &["ask */524388"], &WELL[2..]].concat();
    assert_eq!(asked(&fake).await, expected);
}

#[tokio::test]
async fn an_upload_goes_on_within_a_part() {
    let fake = Fake::start().await;
    let mut spec = spec(&fake.url());
    spec.transport.multipart_part_bytes = 2 * STEP as u64;
    fake.fault("part", Fault::ArrivesUpTo(STEP + 77));
    uploaded(&spec).await.unwrap();
    assert_eq!(fake.bytes_of("k").unwrap(), noise(BYTES));
    let expected = ["begin", "part 0-524287/524388", "ask */524388", "part 262144-524387/524388"];
    assert_eq!(fake.journal(), expected);
}

#[tokio::test]
async fn the_answer_to_a_question_may_be_lost_too() {
    let fake = Fake::start().await;
    fake.fault("part", Fault::LostOnTheWayBack);
    fake.fault("ask", Fault::LostOnTheWayThere);
    fake.fault("ask", Fault::Says(Said::new(500, "")));
    let ask = "ask */524388";
    assert_eq!(asked(&fake).await, [&WELL[..2], &[ask, ask, ask], &WELL[2..]].concat());
}

#[tokio::test]
async fn every_part_has_its_own_attempts() {
    let fake = Fake::start().await;
    for part in [0, 0, 1, 0, 1, 0] {
        fake.fault_after(part, "part", Fault::LostOnTheWayThere);
    }
    let asked = asked(&fake).await;
    assert_eq!(asked.iter().filter(|line| line.starts_with("ask")).count(), 6);
}

#[tokio::test]
async fn an_upload_the_store_forgot_begins_anew() {
    for status in [404, 410] {
        let fake = Fake::start().await;
        fake.fault_after(1, "part", Fault::SessionEnds(status));
        assert_eq!(asked(&fake).await, [&WELL[..3], &WELL].concat());
        // As it is told when it asks.
        fake.fault_after(2, "part", Fault::LostOnTheWayThere);
        fake.fault("ask", Fault::SessionEnds(status));
        assert_eq!(asked(&fake).await, [&WELL[..], &["ask */524388"], &WELL].concat());
    }
    let fake = Fake::start().await;
    for _ in 0..3 {
        fake.fault("part", Fault::SessionEnds(404));
    }
    let error = uploaded(&spec(&fake.url())).await.unwrap_err();
    assert_eq!(error.to_string(), "transport: its upload was forgotten before it was finished");
    assert_eq!(fake.journal(), [&WELL[..2], &WELL[..2], &WELL[..2]].concat());
}

#[tokio::test]
async fn an_upload_that_fails_is_cancelled() {
    let fake = Fake::start().await;
    let refusals = [
        (Said::error(403, "forbidden", "no"), "forbidden: 403 forbidden: no"),
        (Said::error(400, "invalid", "what"), "misconfigured: 400 invalid: what"),
        (
            Said::new(308, "").with("range", "bytes=1-5"),
            r#"transport: its upload has the bytes "bytes=1-5""#,
        ),
        (
            Said::new(308, "").with("range", "bytes=0-524287"),
            "integrity: its upload has 524288 bytes of 262144 that were sent",
        ),
        (Said::new(200, "{}"), "transport: its answer to an upload names no object"),
    ];
    for (said, error) in refusals {
        let ends = said.status != 200;
        fake.fault("part", Fault::Says(said));
        let failed = uploaded(&spec(&fake.url())).await.unwrap_err();
        assert_eq!(failed.to_string(), error);
        assert_eq!(fake.bytes_of("k"), None);
        assert_eq!(fake.journal().last().unwrap() == "cancel", ends);
    }
    for _ in 0..3 {
        fake.fault("part", Fault::Says(Said::new(503, "")));
    }
    let failed = uploaded(&spec(&fake.url())).await.unwrap_err();
    assert_eq!(failed.to_string(), "transport: 503");
    let ask = "ask */524388";
    let expected = [WELL[0], WELL[1], ask, WELL[1], ask, WELL[1], "cancel"];
    assert_eq!(fake.journal(), expected);
}

#[tokio::test]
async fn an_upload_that_never_gets_on_ends() {
    let fake = Fake::start().await;
    let said = Fault::Says(Said::new(308, "").with("range", "bytes=0-262143"));
    for _ in 0..4 {
        fake.fault("part", said.clone());
    }
    let failed = uploaded(&spec(&fake.url())).await.unwrap_err();
    assert_eq!(failed.to_string(), "transport: its upload does not get past 262144 bytes");
    let expected = [&WELL[..2], &[WELL[2]; 3], &["cancel"]].concat();
    assert_eq!(fake.journal(), expected);
}

#[tokio::test]
async fn an_upload_with_all_its_bytes_is_finished_by_asking() {
    let fake = Fake::start().await;
    let all = Said::new(308, "").with("range", "bytes=0-524387");
    fake.fault_after(2, "part", Fault::Says(all.clone()));
    // What it has is what it says here, so it is told again.
    fake.fault("ask", Fault::Says(all));
    let object = r#"{"size":"524388","name":"k"}"#;
    fake.fault("ask", Fault::Says(Said::new(200, object)));
    uploaded(&spec(&fake.url())).await.unwrap();
    let ask = "ask */524388";
    assert_eq!(fake.journal(), [&WELL[..], &[ask, ask]].concat());
}

/// Bytes elsewhere, and what was read of them.
#[derive(Default)]
struct Watched {
    reads: Mutex<Vec<Range<u64>>>,
    fails_at: Option<u64>,
    /// This byte is not there before then.
    waits: Option<(u64, Instant)>,
}

#[async_trait]
impl BlobSource for Watched {
    fn bytes(&self) -> u64 {
        BYTES as u64
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        self.reads.lock().unwrap().push(range.clone());
        if let Some((at, until)) = self.waits
            && range.contains(&at)
        {
            tokio::time::sleep_until(until).await;
        }
        if self.fails_at.is_some_and(|at| range.contains(&at)) {
            return Err(BlobError::Transport("the disk".to_owned()));
        }
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        Ok(Bytes::from(noise(BYTES)).slice(range))
    }
}

#[tokio::test]
async fn no_more_than_a_part_of_a_body_is_read_at_a_time() {
    let fake = Fake::start().await;
    let store = Surroundings::new().open(&spec(&fake.url()));
    fake.fault_after(1, "part", Fault::LostOnTheWayThere);
    let source = Arc::new(Watched::default());
    store.put(&key("k"), BlobBody::of_source(source.clone()), None).await.unwrap();
    assert_eq!(fake.bytes_of("k").unwrap(), noise(BYTES));
    let reads = source.reads.lock().unwrap().clone();
    assert_eq!(reads, [0..262_144, 262_144..524_288, 262_144..524_288, 524_288..524_388]);
}

#[tokio::test]
async fn nothing_is_sent_past_the_deadline_not_even_that_it_is_over() {
    let fake = Fake::start().await;
    let store = Surroundings::new().open(&spec(&fake.url()));
    let deadline = Instant::now() + Duration::from_secs(2);
    let source = Arc::new(Watched { waits: Some((300_000, deadline)), ..Watched::default() });
    let late = store.put(&key("k"), BlobBody::of_source(source), Some(deadline)).await;
    assert_eq!(late, Err(BlobError::Deadline));
    assert_eq!(fake.journal(), WELL[..2]);
    assert_eq!(fake.bytes_of("k"), None);
}

#[tokio::test]
async fn a_body_that_cannot_be_read_to_its_end_is_cancelled() {
    let fake = Fake::start().await;
    let store = Surroundings::new().open(&spec(&fake.url()));
    let source = Arc::new(Watched { fails_at: Some(300_000), ..Watched::default() });
    let failed = store.put(&key("k"), BlobBody::of_source(source), None).await;
    assert_eq!(failed, Err(BlobError::Transport("the disk".to_owned())));
    assert_eq!(fake.journal(), [WELL[0], WELL[1], "cancel"]);
    assert_eq!(fake.state().open_sessions(), 0);
}
