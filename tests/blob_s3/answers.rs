//! What is made of answers, among them such as no server here gives.

use std::sync::atomic::{AtomicU64, Ordering};

use ankusa_actors::ports::{BlobEntry, BlobError, BlobScope, Clock};
use ankusa_node::blob::s3::{S3Spec, open};
use bytes::Bytes;

use crate::relay::{Act, Relay};
use crate::s3_servers::{seaweedfs, spec};
use crate::{Arc, body, key, store, world};

#[tokio::test]
async fn a_request_is_plain_and_says_what_is_in_it() {
    let relay = Relay::alone(|_| Act::ok("")).await;
    let endpoint = Some(format!("http://127.0.0.1:{}/tenant/s3", relay.port));
    let ours =
        store(&S3Spec { endpoint, session_token: Some("token".into()), ..spec(1, "my.bucket") });
    ours.put_if_absent(&key("a b/ü+.seg"), body(b"hello"), None).await.unwrap();

    let [put] = &relay.heard()[..] else { panic!("{:?}", relay.told()) };
    assert_eq!(
        (put.method.as_str(), put.target.as_str()),
        ("PUT", "/tenant/s3/my.bucket/a%20b/%C3%BC%2B.seg")
    );
    assert_eq!(put.body, b"hello");
    let authorization = put.headers["authorization"].clone();
    let signed = "SignedHeaders=host;if-none-match;x-amz-checksum-sha256;x-amz-content-sha256;x-amz-date;\
                  x-amz-security-token,";
    assert!(authorization.contains(signed), "{authorization}");
    let mut headers = put.headers.clone();
    for changing in ["authorization", "x-amz-date"] {
        headers.remove(changing).unwrap();
    }
    let host = format!("127.0.0.1:{}", relay.port);
    let sha256 = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
    let expected = [
        ("accept", "*/*"),
        ("content-length", "5"),
        ("host", &host),
        ("if-none-match", "*"),
        ("x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="),
        ("x-amz-content-sha256", sha256),
        ("x-amz-security-token", "token"),
    ];
    assert_eq!(headers, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_create_whose_answer_was_lost_is_this_one_and_not_anothers() {
    let server = seaweedfs();
    let direct = server.spec("lost-answers").await;
    let relay = Relay::before(server.port, |heard| {
        // The server has it, and nobody hears of it.
        if heard.n == 0 { Act::Lose } else { Act::Forward }
    })
    .await;
    let ours = store(&spec(relay.port, "lost-answers"));
    assert_eq!(ours.put_if_absent(&key("k"), body(b"mine"), None).await, Ok(()));
    assert_eq!(relay.told(), ["PUT /lost-answers/k", "PUT /lost-answers/k", "GET /lost-answers/k"]);
    // The same length, and another's.
    assert_eq!(
        ours.put_if_absent(&key("k"), body(b"thei"), None).await,
        Err(BlobError::AlreadyExists)
    );
    assert_eq!(store(&direct).get(&key("k"), None).await.unwrap(), &b"mine"[..]);
}

#[tokio::test]
async fn a_refusal_that_was_lost_with_what_was_sent_is_found_out() {
    for (there, bytes, asked, expected) in [
        (Some(b'x'), 65_537, 5, Ok(())),
        (Some(b'y'), 65_537, 5, Err("already_exists")),
        (None, 65_537, 4, Err("transport")),
        // So few that an answer would have been heard.
        (Some(b'x'), 65_536, 3, Err("transport")),
    ] {
        let relay = Relay::alone(move |heard| match (heard.method.as_str(), there) {
            ("PUT", _) => Act::Bytes(Vec::new()),
            (_, Some(byte)) => Act::ok(String::from_utf8(vec![byte; bytes]).unwrap()),
            (_, None) => Act::error(404, "NoSuchKey"),
        })
        .await;
        let ours = store(&spec(relay.port, "bkt"));
        let put = ours.put_if_absent(&key("k"), vec![b'x'; bytes].into(), None).await;
        assert_eq!(put.map_err(|error| error.as_str()), expected, "{there:?} {bytes}");
        assert_eq!(relay.heard().len(), asked, "{there:?} {bytes}");
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_is_an_answer_is_not() {
    for (status, code, attempts, expected) in [
        (409, "ConditionalRequestConflict", 3, Err("transport")),
        (409, "OperationAborted", 3, Err("transport")),
        (400, "RequestTimeout", 3, Err("transport")),
        (503, "SlowDown", 3, Err("throttled")),
        (503, "", 3, Err("transport")),
        (500, "InternalError", 3, Err("transport")),
        (409, "BucketNotEmpty", 1, Err("misconfigured")),
        (400, "BadDigest", 1, Err("integrity")),
        (403, "AccessDenied", 1, Err("forbidden")),
        (404, "", 1, Err("misconfigured")),
        (200, "", 1, Ok(())),
    ] {
        let relay = Relay::alone(move |_| {
            if code.is_empty() { Act::status(status) } else { Act::error(status, code) }
        });
        let relay = relay.await;
        let put = store(&spec(relay.port, "bkt")).put(&key("k"), body(b"x"), None).await;
        assert_eq!(put.map_err(|error| error.as_str()), expected, "{status} {code}");
        assert_eq!(relay.told(), vec!["PUT /bkt/k"; attempts], "{status} {code}");
    }
    // And what passes, passes.
    let relay = Relay::alone(|heard| {
        if heard.n == 0 { Act::error(409, "ConditionalRequestConflict") } else { Act::ok("") }
    })
    .await;
    assert_eq!(
        store(&spec(relay.port, "bkt")).put_if_absent(&key("k"), body(b"x"), None).await,
        Ok(())
    );
    assert_eq!(relay.heard().len(), 2);
}

/// Ten minutes pass from one look to the next.
#[derive(Default)]
struct Leaping(AtomicU64);

impl Clock for Leaping {
    fn now_ms(&self) -> u64 {
        self.0.fetch_add(600_000, Ordering::SeqCst)
    }
}

#[tokio::test]
async fn every_attempt_is_signed_anew() {
    let relay =
        Relay::alone(|heard| if heard.n == 0 { Act::status(500) } else { Act::ok("") }).await;
    let mut world = world();
    world.clock = Arc::new(Leaping::default());
    let ours = open(&spec(relay.port, "bkt"), BlobScope::Claims, &world).unwrap();
    ours.put(&key("k"), body(b"x"), None).await.unwrap();
    let of = |name: &str| {
        relay.heard().iter().map(|heard| heard.headers[name].clone()).collect::<Vec<_>>()
    };
    let (dates, signatures) = (of("x-amz-date"), of("authorization"));
    assert_eq!(dates.len(), 2);
    assert_ne!(dates[0], dates[1]);
    assert_ne!(signatures[0], signatures[1]);
}

#[tokio::test]
async fn a_bucket_elsewhere_says_where_it_is() {
    let region = || vec![("x-amz-bucket-region", "eu-central-1".to_owned())];
    let malformed =
        "<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-central-1</Region></Error>";
    for answer in [(301, region(), ""), (400, Vec::new(), malformed), (307, region(), "")] {
        let relay =
            Relay::alone(move |_| Act::Answer(answer.0, answer.1.clone(), answer.2.to_owned()))
                .await;
        let got = store(&spec(relay.port, "bkt")).get(&key("k"), None).await;
        assert_eq!(got, Err(BlobError::WrongRegion { region: "eu-central-1".into() }));
        assert_eq!(relay.heard().len(), 1);
    }
}

#[tokio::test]
async fn what_came_is_held_against_its_digest() {
    let right = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
    let wrong = right.replace('L', "M");
    for (digest, expected) in [
        (Some(right.to_owned()), Ok(Bytes::from_static(b"hello"))),
        (None, Ok(Bytes::from_static(b"hello"))),
        // Of an object in parts.
        (Some(format!("{wrong}-2")), Ok(Bytes::from_static(b"hello"))),
        (Some(wrong), Err(BlobError::Integrity("5 bytes came whose digest is another".into()))),
    ] {
        let headers: Vec<_> =
            digest.map(|digest| ("x-amz-checksum-sha256", digest)).into_iter().collect();
        let relay = Relay::alone(move |_| Act::Answer(200, headers.clone(), "hello".into())).await;
        assert_eq!(store(&spec(relay.port, "bkt")).get(&key("k"), None).await, expected);
        assert_eq!(relay.heard()[0].headers["x-amz-checksum-mode"], "ENABLED");
    }
}

#[tokio::test]
async fn a_range_is_the_one_that_was_asked_for() {
    for (status, range, came, expected) in [
        (206, Some("bytes 2-4/10"), "234", Ok("234")),
        (206, Some("bytes 2-3/4"), "23", Ok("23")),
        (206, Some("bytes 2-4/*"), "234", Ok("234")),
        (200, None, "0123456789", Ok("234")),
        (200, None, "012", Ok("2")),
        (200, None, "", Ok("")),
        (416, None, "", Ok("")),
        (206, Some("bytes 0-2/10"), "012", Err("integrity")),
        (206, Some("bytes 2-4/10"), "23", Err("integrity")),
        (206, Some("bytes 2-3/10"), "23", Err("integrity")),
        (206, Some("bytes 2-5/10"), "2345", Err("integrity")),
        (206, Some("bytes 2-5/*"), "2345", Err("integrity")),
        (206, None, "234", Err("integrity")),
        (206, Some("bytes 2-18446744073709551615/10"), "234", Err("integrity")),
    ] {
        let headers: Vec<_> =
            range.map(|range| ("content-range", range.to_owned())).into_iter().collect();
        let relay = Relay::alone(move |_| Act::Answer(status, headers.clone(), came.into())).await;
        let got = store(&spec(relay.port, "bkt")).get_range(&key("k"), 2, 3, None).await;
        let got = got.as_deref().map_err(BlobError::as_str);
        assert_eq!(got, expected.map(str::as_bytes), "{status} {range:?} {came}");
        assert_eq!(relay.heard()[0].headers["range"], "bytes=2-4");
    }
}

fn page(keys: &[&str], next: Option<&str>) -> String {
    let keys: String = keys
        .iter()
        .map(|key| format!("<Contents><Key>{key}</Key><Size>1</Size></Contents>"))
        .collect();
    let next = match next {
        Some(token) => {
            format!(
                "<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>"
            )
        }
        None => "<IsTruncated>false</IsTruncated>".to_owned(),
    };
    format!("<ListBucketResult><EncodingType>url</EncodingType>{keys}{next}</ListBucketResult>")
}

#[tokio::test]
async fn every_page_is_asked_for_with_what_the_one_before_it_said() {
    let relay = Relay::alone(|heard| match heard.n {
        0 => Act::ok(page(&["p/%C3%BC%2Bc", "p/%C3%BCd"], Some("to ken+/="))),
        _ => Act::ok(page(&["p/%C3%BC"], None)),
    })
    .await;
    let entry = |key: &str| BlobEntry { key: key.to_owned(), bytes: 1 };
    let listed = store(&spec(relay.port, "bkt")).list("p/ü", None).await;
    assert_eq!(listed, Ok(vec![entry("p/ü"), entry("p/ü+c"), entry("p/üd")]));
    let targets: Vec<String> = relay.heard().into_iter().map(|heard| heard.target).collect();
    assert_eq!(
        targets,
        [
            "/bkt?list-type=2&encoding-type=url&prefix=p%2F%C3%BC",
            "/bkt?list-type=2&encoding-type=url&prefix=p%2F%C3%BC&continuation-token=to%20ken%2B%2F%3D",
        ]
    );
}

#[tokio::test]
async fn pages_that_overlap_are_one_listing() {
    let relay = Relay::alone(|heard| match heard.n {
        0 => Act::ok(page(&["c", "d"], Some("1"))),
        _ => Act::ok(page(&["a", "d"], None)),
    })
    .await;
    let entry = |key: &str| BlobEntry { key: key.to_owned(), bytes: 1 };
    let listed = store(&spec(relay.port, "bkt")).list("", None).await;
    assert_eq!(listed, Ok(vec![entry("a"), entry("c"), entry("d")]));
}

#[tokio::test]
async fn a_listing_that_fails_midway_is_an_error_and_no_shorter_list() {
    let whole = page(&["b"], None);
    let cut = whole[..whole.len() - 20].to_owned();
    let short = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{cut}", whole.len());
    for (second, asked, why) in [
        (Act::status as fn(u16) -> Act, 4, "transport: 500"),
        (|_| Act::error(403, "AccessDenied"), 2, "forbidden: 403 AccessDenied: Because."),
        (|_| Act::ok(page(&["b"], Some("1"))), 2, "transport: its listing runs in a circle"),
        (
            |_| Act::ok("<html>fine</html>"),
            2,
            "transport: its listing cannot be read: it is no listing",
        ),
        (|_| Act::ok(""), 2, "transport: its listing cannot be read: it ends before its end"),
        (|_| Act::status(404), 2, "misconfigured: 404: no store is at this address"),
    ] {
        let relay =
            Relay::alone(
                move |heard| {
                    if heard.n == 0 { Act::ok(page(&["a"], Some("1"))) } else { second(500) }
                },
            );
        let relay = relay.await;
        let listed = store(&spec(relay.port, "bkt")).list("", None).await;
        assert_eq!(listed.map_err(|error| error.to_string()), Err(why.to_owned()));
        assert_eq!(relay.heard().len(), asked, "{why}");
    }
    // Cut by whoever carries it, with its length said and without.
    let relay = Relay::alone(move |_| Act::Bytes(short.clone().into_bytes())).await;
    assert_eq!(
        store(&spec(relay.port, "bkt")).list("", None).await.unwrap_err().as_str(),
        "transport"
    );
    let relay =
        Relay::alone(move |_| Act::Bytes(format!("HTTP/1.1 200 OK\r\n\r\n{cut}").into_bytes()))
            .await;
    let error = store(&spec(relay.port, "bkt")).list("", None).await.unwrap_err().to_string();
    assert!(error.starts_with("transport: its listing cannot be read: "), "{error}");
}

#[tokio::test]
async fn what_was_never_there_has_been_removed() {
    for answer in
        [|| Act::status(204), || Act::ok(""), || Act::error(404, "NoSuchKey"), || Act::status(404)]
    {
        let relay = Relay::alone(move |_| answer()).await;
        assert_eq!(store(&spec(relay.port, "bkt")).delete(&key("k"), None).await, Ok(()));
        assert_eq!(relay.told(), ["DELETE /bkt/k"]);
    }
    let relay = Relay::alone(|_| Act::error(404, "NoSuchBucket")).await;
    let error = store(&spec(relay.port, "bkt")).delete(&key("k"), None).await.unwrap_err();
    assert_eq!(error.to_string(), "misconfigured: 404 NoSuchBucket: Because.");
}
