//! Two real servers, one in Go and one in Rust, that check signatures and digests; and a client of others beside ours.

use std::sync::Arc;

use ankusa_actors::ports::contract::blob::{BLOB_CONTRACT, BlobTrial, holds_for};
use ankusa_actors::ports::{BlobEntry, BlobError, Clock};
use ankusa_node::blob::options::Sse;
use ankusa_node::blob::s3::S3Spec;
use bytes::Bytes;
use futures_util::TryStreamExt;
use object_store::aws::AmazonS3Builder;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutPayload, WriteMultipart};

use crate::s3_servers::{Server, raw, s3s, seaweedfs};
use crate::{body, key, large, store, world};

/// SeaweedFS takes it for a slash.
const NOT_KEPT_BY_SEAWEEDFS: &[&str] = &["back\\slash"];

/// s3s-fs says that it encodes keys in listings, and does not: what looks encoded is taken for it.
const NOT_KEPT_BY_S3S: &[&str] = &["plus+plus", "a%2Fb", "%2e%2e", "%20"];

/// What s3s-fs does not hold, whose objects are files.
const NOT_HELD_BY_S3S: [&str; 3] = [
    // A folder is an object that cannot be read.
    "what_keys_begin_with_is_no_object",
    // It replaces an object and its digest one after the other.
    "a_reader_sees_one_whole_object",
    // A second file is named after the whole key.
    "the_longest_key_is_kept",
];

#[tokio::test(flavor = "multi_thread")]
async fn seaweedfs_keeps_the_contract() {
    let whole = BlobTrial::of(store(&seaweedfs().spec("contract.of.dots").await));
    let trial = BlobTrial { keys_not_kept: NOT_KEPT_BY_SEAWEEDFS, ..whole };
    holds_for(async |name| trial.below(name)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s3s_keeps_what_it_can_of_the_contract() {
    let whole = BlobTrial::of(store(&s3s().spec("contract.of.dots").await));
    // It looks first and writes later.
    let trial = BlobTrial { keys_not_kept: NOT_KEPT_BY_S3S, creates_are_atomic: false, ..whole };
    let held: Vec<_> =
        BLOB_CONTRACT.iter().filter(|(name, _)| !NOT_HELD_BY_S3S.contains(name)).collect();
    assert_eq!(held.len(), BLOB_CONTRACT.len() - NOT_HELD_BY_S3S.len());
    for (name, property) in held {
        property(&trial.below(name)).await;
    }
}

async fn a_wrong_secret_is_forbidden(server: &Server) {
    let right = server.spec("wrong-secret").await;
    store(&right).put(&key("k"), body(b"kept"), None).await.unwrap();
    let secret_access_key = Some("another".to_owned());
    let wrong = store(&S3Spec { secret_access_key, ..right.clone() });
    let refused = [
        wrong.put(&key("k"), body(b"lost"), None).await.unwrap_err(),
        wrong.get(&key("k"), None).await.unwrap_err(),
        wrong.delete(&key("k"), None).await.unwrap_err(),
        wrong.list("", None).await.unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().starts_with("forbidden: 403 SignatureDoesNotMatch"), "{error}");
    }
    let nobody = S3Spec { access_key_id: Some("AKIDNOBODY".to_owned()), ..right.clone() };
    assert_eq!(store(&nobody).get(&key("k"), None).await.unwrap_err().as_str(), "forbidden");
    assert_eq!(store(&right).get(&key("k"), None).await.unwrap(), &b"kept"[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_secret_is_forbidden_by_both() {
    a_wrong_secret_is_forbidden(seaweedfs()).await;
    a_wrong_secret_is_forbidden(s3s()).await;
}

/// That a digest which goes with an object is looked at: else ours would say nothing.
async fn a_wrong_digest_is_refused(server: &Server) {
    let port = server.port;
    server.spec("digests").await;
    let sha256 = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=";
    let md5 = "XUFAKrxLKna5cZ2REBfFkg==";
    let put = async |header: &str, value: &str| {
        raw(port, "PUT", "/digests/k", &[(header, value)], b"hello").await.status
    };
    assert_eq!(put("x-amz-checksum-sha256", sha256).await, 200);
    assert_eq!(put("content-md5", md5).await, 200);
    assert_eq!(raw(port, "DELETE", "/digests/k", &[], b"").await.status, 204);
    assert_eq!(put("x-amz-checksum-sha256", &sha256.replace('L', "M")).await, 400);
    assert_eq!(put("content-md5", &md5.replace('X', "Y")).await, 400);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_digest_is_refused_by_both() {
    a_wrong_digest_is_refused(seaweedfs()).await;
    a_wrong_digest_is_refused(s3s()).await;
}

/// A store that took no notice of the condition would have two owners of one object.
async fn a_second_create_is_refused(server: &Server) {
    let port = server.port;
    let spec = server.spec("creates").await;
    let create =
        async |bytes| raw(port, "PUT", "/creates/k", &[("if-none-match", "*")], bytes).await.status;
    assert_eq!(create(b"first").await, 200);
    assert_eq!(create(b"other").await, 412);
    assert_eq!(create(b"first").await, 412);
    let ours = store(&spec);
    assert_eq!(
        ours.put_if_absent(&key("k"), body(b"other"), None).await,
        Err(BlobError::AlreadyExists)
    );
    assert_eq!(ours.put_if_absent(&key("k"), body(b"first"), None).await, Ok(()));
    assert_eq!(ours.get(&key("k"), None).await.unwrap(), &b"first"[..]);
    // Large, and not in parts: the answer comes before the server has all of it.
    let big = vec![b'x'; 8 << 20];
    assert_eq!(
        ours.put_if_absent(&key("k"), big.into(), None).await,
        Err(BlobError::AlreadyExists)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_create_is_refused_by_both() {
    a_second_create_is_refused(seaweedfs()).await;
    a_second_create_is_refused(s3s()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_is_not_there_is_no_empty_one() {
    let server = seaweedfs();
    let spec = S3Spec { bucket: "nowhere".to_owned(), ..server.spec("somewhere").await };
    let nowhere = store(&spec);
    let refused = [
        nowhere.put(&key("k"), body(b"x"), None).await.unwrap_err(),
        nowhere.put(&key("k"), large().into(), None).await.unwrap_err(),
        nowhere.put_if_absent(&key("k"), body(b"x"), None).await.unwrap_err(),
        nowhere.get(&key("k"), None).await.unwrap_err(),
        nowhere.get_range(&key("k"), 0, 1, None).await.unwrap_err(),
        nowhere.list("", None).await.unwrap_err(),
    ];
    for error in refused {
        assert!(error.to_string().starts_with("misconfigured: 404 NoSuchBucket"), "{error}");
    }
}

struct Ahead(u64);

impl Clock for Ahead {
    fn now_ms(&self) -> u64 {
        world().clock.now_ms() + self.0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_is_told_by_the_stores() {
    for server in [seaweedfs(), s3s()] {
        let spec = server.spec("clocks").await;
        let mut world = world();
        world.clock = Arc::new(Ahead(20 * 60 * 1_000));
        let early = ankusa_node::blob::s3::open(&spec, crate::BlobScope::Backup, &world).unwrap();
        match early.put(&key("k"), body(b"x"), None).await {
            Err(BlobError::ClockSkew { ahead_s }) => {
                assert!((1_190..1_260).contains(&ahead_s), "{ahead_s}")
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_to_be_encrypted_is_kept_so() {
    let server = seaweedfs();
    let spec = S3Spec { sse: Some(Sse::Aes256 {}), ..server.spec("encrypted").await };
    let ours = store(&spec);
    ours.put(&key("put"), body(b"x"), None).await.unwrap();
    ours.put_if_absent(&key("created"), body(b"x"), None).await.unwrap();
    ours.put(&key("large"), large().into(), None).await.unwrap();
    for name in ["put", "created", "large"] {
        let head = raw(server.port, "HEAD", &format!("/encrypted/{name}"), &[], b"").await;
        assert_eq!(head.headers["x-amz-server-side-encryption"], "AES256", "{name}");
    }
    assert_eq!(ours.get(&key("large"), None).await.unwrap(), large());
    let plain = store(&S3Spec { sse: None, ..spec });
    plain.put(&key("plain"), body(b"x"), None).await.unwrap();
    let head = raw(server.port, "HEAD", "/encrypted/plain", &[], b"").await;
    assert_eq!(head.headers.get("x-amz-server-side-encryption"), None);
}

/// Another's client of the same bucket.
fn theirs(spec: &S3Spec) -> impl ObjectStore + use<> {
    AmazonS3Builder::new()
        .with_bucket_name(&spec.bucket)
        .with_region(&spec.region)
        .with_endpoint(spec.endpoint.clone().unwrap())
        .with_allow_http(true)
        .with_access_key_id(spec.access_key_id.clone().unwrap())
        .with_secret_access_key(spec.secret_access_key.clone().unwrap())
        .build()
        .unwrap()
}

async fn two_clients_agree(server: &Server) {
    let spec = server.spec("shared.by-two").await;
    let (ours, theirs) = (store(&spec), theirs(&spec));
    let large = Bytes::from(large());
    let names = ["a", "dt=2026-11-30/seg 1+.seg", "näh/日本&<>'\"?#", "zz/~!$(),;=@"];

    for name in names {
        let bytes = Bytes::from(name.repeat(3));
        ours.put(&key(&format!("ours/{name}")), bytes.clone().into(), None).await.unwrap();
        let path = Path::parse(format!("ours/{name}")).unwrap();
        assert_eq!(theirs.get(&path).await.unwrap().bytes().await.unwrap(), bytes, "{name}");

        let path = Path::parse(format!("theirs/{name}")).unwrap();
        theirs.put(&path, PutPayload::from(bytes.clone())).await.unwrap();
        assert_eq!(ours.get(&key(&format!("theirs/{name}")), None).await.unwrap(), bytes, "{name}");
        assert_eq!(
            ours.get_range(&key(&format!("theirs/{name}")), 1, 2, None).await.unwrap(),
            bytes.slice(1..3)
        );
    }
    // Both in parts.
    ours.put_if_absent(&key("ours/large"), large.clone().into(), None).await.unwrap();
    let read = theirs.get(&Path::from("ours/large")).await.unwrap().bytes().await.unwrap();
    assert!(read == large);
    let upload = theirs.put_multipart(&Path::from("theirs/large")).await.unwrap();
    let mut upload = WriteMultipart::new_with_chunk_size(upload, 5 << 20);
    upload.put(large.clone());
    upload.finish().await.unwrap();
    assert!(ours.get(&key("theirs/large"), None).await.unwrap() == large);

    for prefix in ["", "ours", "theirs"] {
        let path = Path::from(prefix);
        let listed: Vec<_> =
            theirs.list(Some(&path).filter(|_| !prefix.is_empty())).try_collect().await.unwrap();
        let mut listed: Vec<BlobEntry> = listed
            .into_iter()
            .map(|object| BlobEntry { key: object.location.to_string(), bytes: object.size })
            .collect();
        listed.sort_by(|one, two| one.key.cmp(&two.key));
        assert_eq!(listed.len(), if prefix.is_empty() { 10 } else { 5 });
        assert_eq!(ours.list(prefix, None).await.unwrap(), listed, "{prefix:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_of_seaweedfs_agree() {
    two_clients_agree(seaweedfs()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_clients_of_s3s_agree() {
    two_clients_agree(s3s()).await;
}
