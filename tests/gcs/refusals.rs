//! What the store says no with, and what comes of it: the error, and how often it was asked.

use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobError};

use super::{Fake, Fault, Said, Surroundings, key, noise, spec};

/// The verbs of the adapter, and what each asks the server first.
const VERBS: [(&str, &str); 6] = [
    ("put", "multipart"),
    ("put_if_absent", "multipart"),
    ("get", "get"),
    ("get_range", "range"),
    ("delete", "delete"),
    ("list", "list"),
];

async fn done(store: &Arc<dyn Blob>, verb: &str) -> String {
    let key = key("k");
    let done = match verb {
        "put" => store.put(&key, noise(10).into(), None).await,
        "put_if_absent" => store.put_if_absent(&key, noise(10).into(), None).await,
        "get" => store.get(&key, None).await.map(drop),
        "get_range" => store.get_range(&key, 2, 3, None).await.map(drop),
        "delete" => store.delete(&key, None).await,
        _list => store.list("k", None).await.map(drop),
    };
    done.map_or_else(|error: BlobError| error.to_string(), |()| "ok".to_owned())
}

/// What comes of it if the server says this, `times` in a row; and how often it was asked.
async fn comes_of(said: &Said, times: usize, verb: &str, asks: &'static str) -> (String, usize) {
    let fake = Fake::start().await;
    if verb != "put_if_absent" {
        fake.state().insert("k", noise(10).into(), None);
    }
    for _ in 0..times {
        fake.fault(asks, Fault::Says(said.clone()));
    }
    let done = done(&Surroundings::new().open(&spec(&fake.url())), verb).await;
    (done, fake.journal().len())
}

#[tokio::test]
async fn each_refusal_has_its_error_and_its_number_of_attempts() {
    let slow = |status, reason| Said::error(status, reason, "slow down");
    let cases = [
        // What passes is tried again: twice it is no matter, three times it is.
        (Said::new(500, "<html>"), 2, "ok", 3),
        (Said::new(500, "<html>"), 3, "transport: 500", 3),
        (Said::new(408, ""), 3, "transport: 408", 3),
        (Said::error(502, "backendError", "x"), 3, "transport: 502 backendError: x", 3),
        (Said::new(504, "time"), 3, "transport: 504: time", 3),
        // So is a throttle, under any of its names.
        (slow(429, "rateLimitExceeded"), 2, "ok", 3),
        (slow(429, "rateLimitExceeded"), 3, "throttled: not before 1 s", 3),
        (slow(503, "rateLimitExceeded"), 3, "throttled: not before 1 s", 3),
        (slow(403, "userRateLimitExceeded"), 3, "throttled: not before 1 s", 3),
        (slow(403, "rateLimitExceeded"), 1, "ok", 2),
        (Said::new(429, ""), 3, "throttled: not before 1 s", 3),
        // One that asks for more time than there is is told at once.
        (Said::new(429, "").with("retry-after", "1000"), 1, "throttled: not before 1000 s", 1),
        (Said::new(503, "").with("retry-after", "1000"), 1, "throttled: not before 1000 s", 1),
        // The rest is final.
        (Said::error(403, "forbidden", "no"), 1, "forbidden: 403 forbidden: no", 1),
        (Said::error(401, "authError", "who"), 1, "forbidden: 401 authError: who", 1),
        (Said::new(400, "plain words\n"), 1, "misconfigured: 400: plain words", 1),
        (Said::error(409, "conflict", "c"), 1, "misconfigured: 409 conflict: c", 1),
        (
            Said::new(301, "").with("location", "http://127.0.0.1:1/"),
            1,
            "misconfigured: 301: redirects are not followed",
            1,
        ),
        (
            Said::new(308, "").with("location", "http://127.0.0.1:1/"),
            1,
            "misconfigured: 308: redirects are not followed",
            1,
        ),
        (
            Said::error(404, "notFound", "The specified bucket does not exist."),
            1,
            "misconfigured: 404 notFound: The specified bucket does not exist.",
            1,
        ),
    ];
    for (said, times, expected, asked) in cases {
        for (verb, asks) in VERBS {
            let came = comes_of(&said, times, verb, asks).await;
            assert_eq!(came, (expected.to_owned(), asked), "{verb} {said:?}");
        }
    }
}

#[tokio::test]
async fn a_missing_bucket_is_misconfigured_and_a_missing_object_is_not_there() {
    let fake = Fake::start().await;
    let mut spec = spec(&fake.url());
    spec.bucket = "bucket-z".to_owned();
    let store = Surroundings::new().open(&spec);
    for (verb, _) in VERBS {
        let done = done(&store, verb).await;
        assert!(done.starts_with("misconfigured: 404"), "{verb}: {done}");
        assert!(done.ends_with("The specified bucket does not exist."), "{verb}: {done}");
    }
    let large = store.put(&key("k"), noise(super::STEP + 1).into(), None).await.unwrap_err();
    assert_eq!(large.as_str(), "misconfigured");
    // A 404 that says nothing is of the bucket where nothing else can be missing.
    let bare = Said::new(404, "");
    for (verb, asks) in VERBS {
        let expected = match verb {
            "get" | "get_range" => "not_found",
            "delete" => "ok",
            _ => "misconfigured: 404",
        };
        assert_eq!(comes_of(&bare, 1, verb, asks).await, (expected.to_owned(), 1), "{verb}");
    }
}

#[tokio::test]
async fn what_is_no_part_that_was_asked_for_is_not_taken() {
    let fake = Fake::start().await;
    fake.state().insert("k", noise(10).into(), None);
    let store = Surroundings::new().open(&spec(&fake.url()));
    let range = async |said: Said| {
        fake.fault("range", Fault::Says(said));
        store.get_range(&key("k"), 2, 3, None).await
    };
    let part = |range: &str, body: &'static str| Said::new(206, body).with("content-range", range);
    assert_eq!(range(part("bytes 2-4/10", "abc")).await.unwrap(), "abc");
    assert_eq!(range(part("bytes 2-3/4", "ab")).await.unwrap(), "ab");
    // Who does not know ranges sends all of it.
    assert_eq!(range(Said::new(200, "0123456789")).await.unwrap(), "234");
    assert_eq!(range(Said::new(200, "012")).await.unwrap(), "2");
    assert_eq!(range(Said::new(200, "")).await.unwrap(), "");
    for wrong in [
        part("bytes 1-3/10", "abc"),
        part("bytes 2-3/10", "ab"),
        part("bytes 2-5/10", "abcd"),
        Said::new(206, "abcd"),
    ] {
        let error = range(wrong.clone()).await.unwrap_err();
        assert_eq!(error.as_str(), "integrity", "{wrong:?}");
    }
}

#[tokio::test]
async fn what_is_asked_again_is_told() {
    let (fake, around) = (Fake::start().await, Surroundings::new());
    fake.fault("list", Fault::Says(Said::new(500, "")));
    fake.fault("list", Fault::LostOnTheWayThere);
    around.open(&spec(&fake.url())).list("", None).await.unwrap();
    let retried = "Blob(Retried { scope: Claims })";
    assert_eq!(around.events.take(), [retried, retried]);
}
