use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ankusa_actors::ports::{Blob, BlobEntry, BlobError, BlobScope, Clock};
use ankusa_node::blob::azure::{AzureAuth, AzureSpec, Environment, open_in};
use ankusa_node::blob::options::Sse;
use bytes::Bytes;
use http::Method;

use super::azure::fake::{Answer, Asked, Fake, answer, refusal};
use super::azure::{PART_BYTES, key, noise, store, with_small_parts, world_at};

fn spec(fake: &Fake) -> AzureSpec {
    with_small_parts(AzureSpec {
        container: "container".into(),
        endpoint: Some(fake.origin.clone()),
        auth: AzureAuth::None,
        ..AzureSpec::default()
    })
}

/// A store whose service gives these answers.
async fn answering(answers: Vec<Answer>) -> (Fake, Arc<dyn Blob>) {
    let fake = Fake::scripted(answers).await;
    let store = store(&spec(&fake));
    (fake, store)
}

fn asked(fake: &Fake) -> Vec<String> {
    let asked = fake.take_asked();
    asked.iter().map(|asked| format!("{} {}", asked.method, asked.target)).collect()
}

#[tokio::test]
async fn every_request_says_which_protocol_it_speaks_and_what_it_carries() {
    let fake = Fake::start(|_| async { answer(201, &[], "") }).await;
    let mut spec = spec(&fake);
    spec.sse = Some(Sse::Kms { key_id: "my-scope".into() });
    let store = store(&spec);
    let body = Bytes::from(noise(1, PART_BYTES + 1));
    store.put(&key("dt=1/a b"), b"123"[..].into(), None).await.unwrap();
    store.put_if_absent(&key("small"), b"123"[..].into(), None).await.unwrap();
    store.put_if_absent(&key("large"), body.into(), None).await.unwrap();
    let all = fake.take_asked();
    let header =
        |name: &str| -> Vec<Option<&str>> { all.iter().map(|it| it.header(name)).collect() };
    assert_eq!(all.len(), 5);
    assert_eq!(all[0].target, "/container/dt%3D1/a%20b");
    assert_eq!(all[1].target, "/container/small");
    assert!(all[2..4].iter().all(|block| block.field("comp") == Some("block")));
    assert_ne!(all[2].field("blockid"), all[3].field("blockid"));
    assert_eq!(all[4].target, "/container/large?comp=blocklist");
    assert_eq!(header("x-ms-version"), [Some("2024-11-04"); 5]);
    assert!(header("x-ms-date").iter().all(|date| date.unwrap().ends_with(" GMT")));
    assert_eq!(header("x-ms-encryption-scope"), [Some("my-scope"); 5]);
    assert!(header("content-md5").iter().all(|digest| digest.unwrap().len() == 24));
    let small = Some("ICy5YqxZB1uWSwcVLSNLcA==");
    assert_eq!(header("content-md5")[..2], [small, small]);
    assert_eq!(header("x-ms-blob-content-md5")[..4], [small, small, None, None]);
    assert_eq!(header("x-ms-blob-content-md5")[4].map(str::len), Some(24));
    let kind = Some("BlockBlob");
    assert_eq!(header("x-ms-blob-type"), [kind, kind, None, None, None]);
    assert_eq!(header("if-none-match"), [None, Some("*"), None, None, Some("*")]);
    assert_eq!(header("transfer-encoding"), [None; 5]);
    assert_eq!(header("authorization"), [None; 5]);
}

#[tokio::test]
async fn a_name_the_service_would_take_for_another_is_not_sent_to_it() {
    let (fake, store) = answering(vec![answer(200, &[], "")]).await;
    for name in ["a\\b", "a/b.", "a./b", "a..."] {
        let (key, body) = (key(name), || b"1"[..].into());
        let refused = [
            store.put(&key, body(), None).await,
            store.put_if_absent(&key, body(), None).await,
            store.put(&key, noise(1, PART_BYTES + 1).into(), None).await,
            store.get(&key, None).await.map(|_| ()),
            store.get_range(&key, 0, 1, None).await.map(|_| ()),
            store.delete(&key, None).await,
        ];
        assert_eq!(refused.map(|refused| refused.unwrap_err().as_str()), ["misconfigured"; 6]);
    }
    assert_eq!(fake.take_asked().len(), 0);
    store.put(&key(".a/.b.c"), b"1"[..].into(), None).await.unwrap();
    assert_eq!(asked(&fake), ["PUT /container/.a/.b.c"]);
}

#[tokio::test]
async fn a_key_of_the_services_own_is_not_asked_for() {
    let fake = Fake::start(|_| async { answer(201, &[], "") }).await;
    let spec = AzureSpec { sse: Some(Sse::Aes256 {}), ..spec(&fake) };
    store(&spec).put(&key("k"), b"1"[..].into(), None).await.unwrap();
    assert_eq!(fake.take_asked()[0].header("x-ms-encryption-scope"), None);
}

/// A second later every time somebody looks.
struct Later(AtomicU64);

impl Clock for Later {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(1_000, Ordering::SeqCst)
    }
}

#[tokio::test]
async fn every_attempt_carries_its_own_date() {
    let fake = Fake::scripted(vec![refusal(500, "OperationTimedOut"), answer(201, &[], "")]).await;
    let world = world_at(Arc::new(Later(AtomicU64::new(784_111_777_000))));
    let store =
        open_in(&spec(&fake), BlobScope::Segments, &world, &Environment::default()).unwrap();
    store.put(&key("k"), b"1"[..].into(), None).await.unwrap();
    let dates: Vec<_> =
        fake.take_asked().iter().map(|it| it.header("x-ms-date").unwrap().to_owned()).collect();
    assert_eq!(dates.len(), 2);
    assert!(dates[0] < dates[1] && dates[0].starts_with("Sun, 06 Nov 1994 08:49:"), "{dates:?}");
}

#[tokio::test]
async fn each_refusal_is_answered_at_once_or_after_further_attempts_and_says_what_to_do() {
    let table = [
        (404, "BlobNotFound", "not_found", 1),
        (404, "ContainerNotFound", "misconfigured", 1),
        (409, "ContainerBeingDeleted", "misconfigured", 1),
        (403, "AuthenticationFailed", "forbidden", 1),
        (403, "AuthorizationFailure", "forbidden", 1),
        (401, "InvalidAuthenticationInfo", "forbidden", 1),
        (400, "Md5Mismatch", "integrity", 1),
        (400, "InvalidHeaderValue", "misconfigured", 1),
        (412, "LeaseIdMissing", "misconfigured", 1),
        (503, "ServerBusy", "throttled", 3),
        (429, "TooManyRequests", "throttled", 3),
        (500, "OperationTimedOut", "transport", 3),
        (500, "InternalError", "transport", 3),
    ];
    for (status, code, word, attempts) in table {
        let fake = Fake::scripted(vec![refusal(status, code)]).await;
        let mut spec = spec(&fake);
        spec.transport.breaker_failures = 0;
        let store = store(&spec);
        let (k, body) = (key("k"), || b"1"[..].into());
        let put = store.put(&k, body(), None).await.unwrap_err();
        assert_eq!(
            (put.as_str(), fake.take_asked().len()),
            (word, attempts),
            "put: {status} {code}"
        );
        let get = store.get(&k, None).await.unwrap_err();
        assert_eq!(get.as_str(), word, "get: {status} {code}");
        let range = store.get_range(&k, 3, 4, None).await.unwrap_err();
        assert_eq!(range.as_str(), word, "get_range: {status} {code}");
        let created = store.put_if_absent(&k, body(), None).await.unwrap_err();
        assert_eq!(created.as_str(), word, "put_if_absent: {status} {code}");
        if word != "not_found" {
            assert_eq!(store.delete(&k, None).await.unwrap_err().as_str(), word);
            assert_eq!(store.list("", None).await.unwrap_err().as_str(), word);
        } else {
            assert_eq!(store.delete(&k, None).await, Ok(()));
        }
    }
}

#[tokio::test]
async fn a_busy_service_is_left_alone_for_as_long_as_it_wants() {
    let busy = answer(503, &[("x-ms-error-code", "ServerBusy"), ("retry-after", "3600")], "");
    let (fake, store) = answering(vec![busy]).await;
    let throttled = Err(BlobError::Throttled { seconds: 3_600 });
    assert_eq!(store.get(&key("k"), None).await, throttled);
    assert_eq!(fake.take_asked().len(), 1);
}

#[tokio::test]
async fn a_create_that_is_refused_looks_at_what_is_there() {
    let found = |body: &'static str| {
        let length = body.len().to_string();
        let range = format!("bytes 0-{}/{length}", body.len() - 1);
        let head = answer(200, &[("etag", "\"1\""), ("content-length", &length)], "");
        (head, answer(206, &[("content-range", &range), ("etag", "\"1\"")], body))
    };
    for (status, code) in [
        (409, "BlobAlreadyExists"),
        (412, "ConditionNotMet"),
        (403, "UnauthorizedBlobOverwrite"),
        (409, "BlobImmutableDueToPolicy"),
        (400, "InvalidBlockList"),
    ] {
        let create = async |answers: Vec<Answer>| {
            let (fake, store) = answering(answers).await;
            let created = store.put_if_absent(&key("k"), b"mine"[..].into(), None).await;
            (created, asked(&fake))
        };
        let refused = || refusal(status, code);
        let (head, same) = found("mine");
        let both = ["PUT /container/k", "HEAD /container/k", "GET /container/k"];
        let ours = create(vec![refused(), head.clone(), same]).await;
        assert_eq!(ours, (Ok(()), both.map(str::to_owned).to_vec()), "{code}");
        let (_, other) = found("thei");
        let theirs = create(vec![refused(), head.clone(), other]).await.0;
        assert_eq!(theirs, Err(BlobError::AlreadyExists), "{code}");
        // Of another length: nobody reads it.
        let theirs = create(vec![refused(), found("theirs").0]).await;
        assert_eq!(
            theirs,
            (Err(BlobError::AlreadyExists), both[..2].iter().map(|it| (*it).to_owned()).collect())
        );
        let replaced = create(vec![refused(), head, refusal(412, "ConditionNotMet")]).await.0;
        assert_eq!(replaced, Err(BlobError::AlreadyExists), "{code}");
        let gone = create(vec![refused(), refusal(404, "BlobNotFound")]).await.0.unwrap_err();
        assert_eq!(gone.as_str(), "transport", "{code}");
        let unreadable = create(vec![refused(), refusal(403, "AuthorizationFailure")]).await.0;
        assert_eq!(unreadable.unwrap_err().as_str(), "forbidden", "{code}");
    }
}

#[tokio::test]
async fn a_put_never_takes_a_refusal_for_an_object_that_is_there() {
    for (status, code) in [(409, "BlobAlreadyExists"), (412, "ConditionNotMet")] {
        let (fake, store) = answering(vec![refusal(status, code)]).await;
        let put = store.put(&key("k"), b"mine"[..].into(), None).await.unwrap_err();
        assert_eq!((put.as_str(), fake.take_asked().len()), ("misconfigured", 1), "{code}");
    }
}

#[tokio::test]
async fn a_whole_object_is_checked_against_its_digest_and_a_part_is_not() {
    // Of "123".
    let digest = "ICy5YqxZB1uWSwcVLSNLcA==";
    let get = async |answered: Answer| answering(vec![answered]).await.1.get(&key("k"), None).await;
    let whole = Ok(Bytes::from("123"));
    assert_eq!(get(answer(200, &[("content-md5", digest)], "123")).await, whole);
    assert_eq!(get(answer(200, &[], "123")).await, whole);
    let wrong = get(answer(200, &[("content-md5", digest)], "124")).await.unwrap_err();
    assert_eq!(wrong.as_str(), "integrity");
    // Half an object is none, though it was asked for whole.
    let half = answer(206, &[("content-range", "bytes 0-2/6")], "123");
    assert_eq!(get(half).await.unwrap_err().as_str(), "misconfigured");

    let part = answer(206, &[("content-md5", digest), ("content-range", "bytes 4-6/9")], "xyz");
    let (fake, store) = answering(vec![part]).await;
    assert_eq!(store.get_range(&key("k"), 4, 3, None).await.unwrap(), "xyz");
    assert_eq!(fake.take_asked()[0].header("range"), Some("bytes=4-6"));
}

#[tokio::test]
async fn a_range_is_the_one_that_was_asked_for() {
    let range = async |headers: &[(&str, &str)], body: &'static str| {
        let (_fake, store) = answering(vec![answer(206, headers, body)]).await;
        store.get_range(&key("k"), 4, 3, None).await.map_err(|error| error.as_str())
    };
    assert_eq!(range(&[("content-range", "bytes 4-6/7")], "xyz").await, Ok(Bytes::from("xyz")));
    assert_eq!(range(&[("content-range", "bytes 4-5/6")], "xy").await, Ok(Bytes::from("xy")));
    assert_eq!(range(&[("content-range", "bytes 0--1/0")], "").await, Ok(Bytes::new()));
    for (said, body) in [
        ("bytes 0--1/0", "xyz"),
        ("bytes 3-5/9", "xyz"),
        ("bytes 4-5/9", "xy"),
        ("bytes 4-7/9", "wxyz"),
        ("bytes 4-6/9", "xy"),
        ("bytes 4-6/*", "xyz"),
        ("bytes 4-18446744073709551615/9", "xyz"),
        ("4-6/9", "xyz"),
    ] {
        assert_eq!(range(&[("content-range", said)], body).await, Err("integrity"), "{said}");
    }
    assert_eq!(range(&[], "xyz").await, Err("integrity"));
    let (_fake, store) = answering(vec![answer(200, &[], "0123xyz")]).await;
    let deaf = store.get_range(&key("k"), 4, 3, None).await.unwrap_err();
    assert_eq!(deaf.as_str(), "misconfigured");
    let (_fake, store) = answering(vec![refusal(416, "InvalidRange")]).await;
    assert_eq!(store.get_range(&key("k"), 4, 3, None).await, Ok(Bytes::new()));
}

fn page(names: &[&str], next: &str) -> Answer {
    let blob = |name: &&str| {
        format!(
            "<Blob><Name>{name}</Name><Properties><Content-Length>1</Content-Length></Properties></Blob>"
        )
    };
    let blobs: String = names.iter().map(blob).collect();
    let page = format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults><Blobs>{blobs}</Blobs>\
         <NextMarker>{next}</NextMarker></EnumerationResults>"
    );
    answer(200, &[("content-type", "application/xml")], page)
}

#[tokio::test]
async fn a_listing_is_whole_or_an_error() {
    let list = async |pages: Vec<Answer>| {
        let (fake, store) = answering(pages).await;
        let listed = store.list("a/", None).await;
        let targets: Vec<_> =
            fake.take_asked().into_iter().map(|asked: Asked| asked.target).collect();
        (listed, targets)
    };
    let entry = |key: &str| BlobEntry { key: key.to_owned(), bytes: 1 };
    let (listed, targets) =
        list(vec![page(&["a/2", "a/3"], "2!a+ /"), page(&[], "m"), page(&["a/1"], "")]).await;
    assert_eq!(listed, Ok(vec![entry("a/1"), entry("a/2"), entry("a/3")]));
    let first = "/container?restype=container&comp=list&prefix=a%2F";
    let second = format!("{first}&marker=2%21a%2B%20%2F");
    assert_eq!(targets, [first.to_owned(), second, format!("{first}&marker=m")]);

    let cut = {
        let whole = page(&["a/3"], "").unwrap();
        let body = http_body_util::BodyExt::collect(whole.into_body()).await.unwrap().to_bytes();
        answer(200, &[], body.slice(..body.len() - 30))
    };
    let one = || page(&["a/1", "a/2"], "m");
    for (second, word) in [
        // A page that was there before, by its marker, and by what is on it.
        (page(&["a/3"], "m"), "transport"),
        (page(&["a/2"], ""), "transport"),
        (page(&["b"], ""), "transport"),
        (cut, "transport"),
        (answer(200, &[], ""), "transport"),
        (answer(200, &[], "<html></html>"), "transport"),
        (answer(204, &[], ""), "misconfigured"),
        (refusal(500, "InternalError"), "transport"),
        (refusal(403, "AuthenticationFailed"), "forbidden"),
        (refusal(404, "ContainerNotFound"), "misconfigured"),
        (None, "transport"),
    ] {
        let told = format!("{second:?}");
        let (listed, _) = list(vec![one(), second]).await;
        assert_eq!(listed.unwrap_err().as_str(), word, "{told}");
    }
}

#[tokio::test]
async fn a_signature_is_in_every_request_as_it_was_given_and_in_no_error() {
    let sas = "sv=2024-11-04&si=policy&sr=c&sig=se%2Bcret%2Fsig%3D";
    for body in [
        "<Error><Code>X</Code><Message>at ?sig=se%2Bcret%2Fsig%3D</Message></Error>",
        "<Error><Code>se+cret/sig=</Code><Message>Why.</Message></Error>",
    ] {
        for status in [400, 403, 404, 409, 500] {
            let fake = Fake::scripted(vec![answer(status, &[], body)]).await;
            let spec = AzureSpec {
                auth: AzureAuth::Sas,
                sas_token: Some(format!("?{sas}")),
                ..spec(&fake)
            };
            let store = store(&spec);
            let errors = [
                store.put(&key("k"), b"1"[..].into(), None).await.unwrap_err(),
                store.get(&key("k"), None).await.unwrap_err(),
                store.list("p", None).await.unwrap_err(),
            ];
            for error in errors {
                let told = format!("{error} {error:?}");
                assert!(!told.contains("cret"), "{told}");
            }
            let targets: Vec<_> = fake.take_asked().into_iter().map(|asked| asked.target).collect();
            assert!(targets.iter().all(|target| target.ends_with(sas)), "{targets:?}");
            assert!(targets.contains(&format!("/container/k?{sas}")));
            drop(fake);
            // Nobody there: the client has words of its own.
            let gone = store.get(&key("k"), None).await.unwrap_err().to_string();
            assert!(!gone.contains("cret") && !gone.contains("sig="), "{gone}");
        }
    }
}

#[tokio::test]
async fn an_upload_stops_at_the_first_block_that_is_refused() {
    let fake = Fake::start(|asked: Asked| async move {
        match asked.method {
            Method::PUT if asked.field("comp") == Some("block") => {
                refusal(403, "AuthorizationFailure")
            }
            _ => answer(201, &[], ""),
        }
    })
    .await;
    let store = store(&spec(&fake));
    let body = noise(1, 12 * PART_BYTES);
    let put = store.put(&key("k"), body.into(), None).await.unwrap_err();
    assert_eq!(put.as_str(), "forbidden");
    let asked = fake.take_asked();
    assert!(asked.len() < 8, "{}", asked.len());
    assert!(asked.iter().all(|asked| asked.field("comp") == Some("block")));
}
