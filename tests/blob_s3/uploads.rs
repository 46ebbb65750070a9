//! Objects in parts: how they are sent, ended and undone.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ankusa_actors::ports::{BlobBody, BlobError, BlobSource};
use ankusa_node::blob::multipart::PARTS_AT_ONCE;
use ankusa_node::blob::options::{Sse, TransportOptions};
use ankusa_node::blob::s3::S3Spec;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::relay::{Act, Heard, Relay};
use crate::s3_servers::{raw, s3s, seaweedfs, spec};
use crate::{Arc, key, large, store};

const BEGIN: &str = "POST /bkt/k?uploads";
const PART: &str = "PUT /bkt/k?partNumber&uploadId";
const END: &str = "POST /bkt/k?uploadId";
const UNDO: &str = "DELETE /bkt/k?uploadId";
/// Whether it is there after all.
const LOOK: &str = "GET /bkt/k";

/// A store that takes all there is, and says `end` to the end of an upload.
fn takes(heard: &Heard, end: impl Fn() -> Act) -> Act {
    let query = heard.target.split_once('?').map_or("", |(_, query)| query);
    match (heard.method.as_str(), query) {
        ("POST", "uploads=") => begun(),
        ("POST", _) => end(),
        ("PUT", part) if part.starts_with("partNumber") => taken(),
        ("PUT", _) => Act::ok(""),
        _ => Act::status(204),
    }
}

fn begun() -> Act {
    Act::ok(
        "<InitiateMultipartUploadResult><UploadId>the+id/1</UploadId></InitiateMultipartUploadResult>",
    )
}

fn taken() -> Act {
    Act::Answer(200, vec![("etag", "\"tag\"".to_owned())], String::new())
}

fn whole() -> Act {
    Act::ok("  \n<CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>")
}

async fn put(relay: &Relay, if_absent: bool) -> Result<(), BlobError> {
    let ours = store(&spec(relay.port, "bkt"));
    if if_absent {
        ours.put_if_absent(&key("k"), large().into(), None).await
    } else {
        ours.put(&key("k"), large().into(), None).await
    }
}

#[tokio::test]
async fn an_object_is_begun_sent_in_parts_and_put_together() {
    let relay = Relay::alone(|heard| takes(heard, whole)).await;
    put(&relay, true).await.unwrap();
    assert_eq!(relay.told(), [BEGIN, PART, PART, END]);
    let [begin, one, two, end] = &relay.heard()[..] else { panic!() };
    assert!(!begin.headers.contains_key("if-none-match"));
    let mut parts = [one, two];
    parts.sort_by(|a, b| a.target.cmp(&b.target));
    let digests = ["content-md5", "x-amz-content-sha256"];
    assert_eq!(
        parts.map(|part| part.target.as_str()),
        ["/bkt/k?partNumber=1&uploadId=the%2Bid%2F1", "/bkt/k?partNumber=2&uploadId=the%2Bid%2F1",]
    );
    let large = large();
    assert!(parts[0].body == large[..8 << 20] && parts[1].body == large[8 << 20..]);
    for part in parts {
        assert!(digests.iter().all(|name| part.headers.contains_key(*name)), "{:?}", part.headers);
        assert!(part.headers["authorization"].contains("content-md5;host;x-amz-content-sha256;"));
    }
    assert_eq!(end.headers["if-none-match"], "*");
    let listed = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
        <Part><PartNumber>1</PartNumber><ETag>&quot;tag&quot;</ETag></Part>\
        <Part><PartNumber>2</PartNumber><ETag>&quot;tag&quot;</ETag></Part></CompleteMultipartUpload>";
    assert_eq!(String::from_utf8_lossy(&end.body), listed);
}

#[tokio::test]
async fn encryption_is_asked_for_where_an_object_begins() {
    let relay = Relay::alone(|heard| takes(heard, whole)).await;
    let sse = Some(Sse::Kms { key_id: "arn:aws:kms:eu-west-1:1:key/2".into() });
    let ours = store(&S3Spec { sse, ..spec(relay.port, "bkt") });
    ours.put(&key("k"), b"x".as_slice().into(), None).await.unwrap();
    ours.put_if_absent(&key("k"), b"x".as_slice().into(), None).await.unwrap();
    ours.put(&key("k"), large().into(), None).await.unwrap();
    assert_eq!(relay.told(), ["PUT /bkt/k", "PUT /bkt/k", BEGIN, PART, PART, END]);
    let asked = |heard: &Heard| {
        let kind = heard.headers.get("x-amz-server-side-encryption");
        let id = heard.headers.get("x-amz-server-side-encryption-aws-kms-key-id");
        let is_signed = heard.headers["authorization"]
            .contains(";x-amz-server-side-encryption;x-amz-server-side-encryption-aws-kms-key-id,");
        assert_eq!(is_signed, kind.is_some());
        (kind.map_or("", String::as_str).to_owned(), id.map_or("", String::as_str).to_owned())
    };
    let asked: Vec<_> = relay.heard().iter().map(asked).collect();
    let kms = ("aws:kms".to_owned(), "arn:aws:kms:eu-west-1:1:key/2".to_owned());
    let no = (String::new(), String::new());
    assert_eq!(asked, [kms.clone(), kms.clone(), kms, no.clone(), no.clone(), no]);
}

#[tokio::test]
async fn an_end_that_began_with_200_is_what_it_turned_out_to_be() {
    let error = |code: &str| {
        format!(
            "<?xml version=\"1.0\"?>\n\n<Error><Code>{code}</Code><Message>No.</Message></Error>"
        )
    };
    let undone = [BEGIN, PART, PART, END, UNDO, LOOK];
    let tried = [BEGIN, PART, PART, END, END, END, UNDO, LOOK];
    for (end, if_absent, asked, expected) in [
        (error("InternalError"), false, &tried[..], Err("transport")),
        (error("SlowDown"), false, &tried[..7], Err("throttled")),
        // It stopped in the middle.
        ("  \n".to_owned(), false, &tried, Err("transport")),
        ("<CompleteMultipartUploadResult><ETag>".to_owned(), false, &tried, Err("transport")),
        (error("InvalidPart"), false, &undone, Err("misconfigured")),
        (error("AccessDenied"), false, &undone, Err("forbidden")),
        (error("PreconditionFailed"), false, &undone[..5], Err("already_exists")),
    ] {
        let told = end.clone();
        let relay = Relay::alone(move |heard| takes(heard, || Act::ok(end.clone()))).await;
        let put = put(&relay, if_absent).await;
        assert_eq!(put.map_err(|error| error.as_str()), expected, "{told}");
        assert_eq!(relay.told(), asked, "{told}");
    }
    // The second time it works.
    let ends = AtomicUsize::new(0);
    let failed = error("InternalError");
    let relay = Relay::alone(move |heard| {
        takes(heard, || {
            if ends.fetch_add(1, Ordering::SeqCst) == 0 { Act::ok(failed.clone()) } else { whole() }
        })
    })
    .await;
    assert_eq!(put(&relay, false).await, Ok(()));
    assert_eq!(relay.told(), [BEGIN, PART, PART, END, END]);
}

#[tokio::test]
async fn after_a_conflict_the_parts_are_sent_anew() {
    let ends = AtomicUsize::new(0);
    let relay = Relay::alone(move |heard| {
        let conflict = || Act::error(409, "ConditionalRequestConflict");
        takes(heard, || if ends.fetch_add(1, Ordering::SeqCst) == 0 { conflict() } else { whole() })
    })
    .await;
    assert_eq!(put(&relay, true).await, Ok(()));
    assert_eq!(relay.told(), [BEGIN, PART, PART, END, UNDO, BEGIN, PART, PART, END]);

    let relay =
        Relay::alone(|heard| takes(heard, || Act::error(409, "ConditionalRequestConflict"))).await;
    assert_eq!(
        put(&relay, true).await,
        Err(BlobError::Transport("409 ConditionalRequestConflict".into()))
    );
    assert_eq!(relay.told(), [BEGIN, PART, PART, END, UNDO].repeat(3));
}

#[tokio::test]
async fn an_upload_that_fails_is_undone() {
    for (wrong, asked, expected) in [
        (PART, &[BEGIN, PART, PART, UNDO][..], "forbidden"),
        (BEGIN, &[BEGIN], "forbidden"),
        (END, &[BEGIN, PART, PART, END, UNDO, LOOK], "forbidden"),
    ] {
        let relay = Relay::alone(move |heard| {
            let is_begin = heard.target.ends_with("uploads=");
            let what = match (heard.method.as_str(), is_begin) {
                ("POST", true) => BEGIN,
                ("POST", false) => END,
                ("PUT", _) => PART,
                _ => UNDO,
            };
            if what == wrong { Act::error(403, "AccessDenied") } else { takes(heard, whole) }
        })
        .await;
        assert_eq!(put(&relay, false).await.unwrap_err().as_str(), expected, "{wrong}");
        // Whether a second part was on its way when the first was refused is chance.
        let mut told = relay.told();
        if wrong == PART && told.len() == 3 {
            told.insert(1, PART.to_owned());
        }
        assert_eq!(told, asked, "{wrong}");
    }
}

#[tokio::test]
async fn a_part_without_a_tag_and_a_begin_without_an_id_are_errors() {
    let relay = Relay::alone(|heard| match heard.method.as_str() {
        "PUT" => Act::ok(""),
        _ => takes(heard, whole),
    })
    .await;
    let error = put(&relay, false).await.unwrap_err().to_string();
    assert!(error.ends_with("was taken without a tag"), "{error}");
    for (answer, why) in [
        ("<InitiateMultipartUploadResult/>", "an upload was begun without an id"),
        ("", "an upload's id cannot be read: it ends before its end"),
    ] {
        let relay = Relay::alone(move |_| Act::ok(answer)).await;
        assert_eq!(put(&relay, false).await, Err(BlobError::Transport(why.into())));
    }
}

/// Counts what is read of it, and holds it against the parts that have been taken.
struct Counted {
    reads: AtomicUsize,
    taken: Arc<AtomicUsize>,
    most: AtomicUsize,
    arrived: Arc<Semaphore>,
}

#[async_trait]
impl BlobSource for Counted {
    fn bytes(&self) -> u64 {
        10 * (5 << 20)
    }

    async fn read(&self, range: Range<u64>) -> Result<Bytes, BlobError> {
        let on_their_way =
            self.reads.fetch_add(1, Ordering::SeqCst) + 1 - self.taken.load(Ordering::SeqCst);
        self.most.fetch_max(on_their_way, Ordering::SeqCst);
        self.arrived.add_permits(1);
        Ok(vec![0; usize::try_from(range.end - range.start).unwrap()].into())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_more_parts_are_in_memory_than_may_be_on_their_way() {
    let taken_parts = Arc::new(AtomicUsize::new(0));
    let arrived = Arc::new(Semaphore::new(0));
    let (counter, gate) = (Arc::clone(&taken_parts), Arc::clone(&arrived));
    let relay = Relay::alone_in_time(move |heard: &Heard| {
        let is_part = heard.method == "PUT";
        let act = takes(heard, whole);
        let (counter, gate) = (Arc::clone(&counter), Arc::clone(&gate));
        async move {
            if is_part {
                // None is taken before as many are there as may be.
                if counter.load(Ordering::SeqCst) == 0 {
                    let all = u32::try_from(PARTS_AT_ONCE).unwrap();
                    drop(gate.acquire_many(all).await.unwrap());
                }
                counter.fetch_add(1, Ordering::SeqCst);
            }
            act
        }
    })
    .await;
    let source = Arc::new(Counted {
        reads: AtomicUsize::new(0),
        taken: taken_parts,
        most: AtomicUsize::new(0),
        arrived,
    });
    let mut spec = spec(relay.port, "bkt");
    spec.transport = TransportOptions { multipart_part_bytes: 5 << 20, ..spec.transport };
    store(&spec).put(&key("k"), BlobBody::of_source(Arc::clone(&source) as _), None).await.unwrap();
    assert_eq!(source.reads.load(Ordering::SeqCst), 10);
    assert_eq!(source.most.load(Ordering::SeqCst), PARTS_AT_ONCE);
}

/// The ids of what was begun and is not ended, as the server tells.
async fn unfinished(port: u16, bucket: &str) -> usize {
    let listed = raw(port, "GET", &format!("/{bucket}?uploads="), &[], b"").await;
    assert_eq!(listed.status, 200, "{}", listed.body);
    listed.body.matches("<UploadId>").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_race_leaves_no_parts_behind() {
    let server = seaweedfs();
    let spec = server.spec("races").await;
    let ours = store(&spec);
    let begun = raw(server.port, "POST", "/races/other?uploads=", &[], b"").await;
    assert_eq!(
        (begun.status, unfinished(server.port, "races").await),
        (200, 1),
        "the server tells"
    );

    ours.put(&key("k"), b"theirs".as_slice().into(), None).await.unwrap();
    let lost = ours.put_if_absent(&key("k"), large().into(), None).await;
    assert_eq!(lost, Err(BlobError::AlreadyExists));
    assert_eq!(ours.get(&key("k"), None).await.unwrap(), &b"theirs"[..]);
    assert_eq!(unfinished(server.port, "races").await, 1);
}

/// SeaweedFS knows that it is over, s3s-fs denies access to it.
#[tokio::test(flavor = "multi_thread")]
async fn an_upload_whose_end_was_answered_to_nobody_is_whole() {
    for (server, if_absent) in
        [(seaweedfs(), false), (seaweedfs(), true), (s3s(), false), (s3s(), true)]
    {
        server.spec("lost-ends").await;
        let lost = AtomicUsize::new(0);
        let relay = Relay::before(server.port, move |heard| {
            let is_end = heard.method == "POST" && heard.target.contains("?uploadId=");
            if is_end && lost.fetch_add(1, Ordering::SeqCst) == 0 {
                Act::Lose
            } else {
                Act::Forward
            }
        })
        .await;
        let ours = store(&spec(relay.port, "lost-ends"));
        let name = key(&format!("k-{if_absent}"));
        let put = if if_absent {
            ours.put_if_absent(&name, large().into(), None).await
        } else {
            ours.put(&name, large().into(), None).await
        };
        assert_eq!(put, Ok(()));
        assert!(ours.get(&name, None).await.unwrap() == large());
    }
    assert_eq!(unfinished(seaweedfs().port, "lost-ends").await, 0);
}

#[tokio::test]
async fn an_upload_that_is_unknown_and_not_there_is_an_error() {
    let relay = Relay::alone(|heard| match heard.method.as_str() {
        "GET" => Act::Answer(206, vec![("content-range", "bytes 0-4/5".into())], "other".into()),
        _ => takes(heard, || Act::error(404, "NoSuchUpload")),
    })
    .await;
    let error = put(&relay, false).await.unwrap_err();
    assert_eq!(error, BlobError::Transport("404 NoSuchUpload: Because.".into()));
    assert_eq!(relay.told(), [BEGIN, PART, PART, END, UNDO, LOOK]);
}

#[tokio::test]
async fn an_upload_out_of_time_is_undone_after_it() {
    let relay = Relay::alone_in_time(|heard: &Heard| {
        let (is_part, act) = (heard.method == "PUT", takes(heard, whole));
        async move {
            if is_part {
                std::future::pending::<()>().await;
            }
            act
        }
    })
    .await;
    let ours = store(&spec(relay.port, "bkt"));
    let deadline = Instant::now() + Duration::from_secs(2);
    let put = ours.put(&key("k"), large().into(), Some(deadline)).await;
    assert_eq!(put, Err(BlobError::Deadline));
    let undone = async {
        while relay.told().last().unwrap() != UNDO {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), undone).await.expect("nobody waits for it");
}
