use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ankusa_actors::ports::contract::blob::{BlobTrial, holds_for};
use ankusa_actors::ports::{BlobBody, BlobError, BlobSource};
use ankusa_node::blob::azure::{AzureAuth, AzureSpec};
use ankusa_node::blob::multipart::PARTS_AT_ONCE;
use async_trait::async_trait;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use md5::{Digest, Md5};
use object_store::azure::{MicrosoftAzure, MicrosoftAzureBuilder};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt, PutMode, PutOptions, WriteMultipart};
use tokio::sync::Barrier;

use super::azure::access::{ACCOUNT, FAR_OFF, KEY, container_sas};
use super::azure::azurite::Azurite;
use super::azure::fake::{Asked, Fake, answer, hand_on};
use super::azure::{PART_BYTES, key, noise, store, with_small_parts};

/// Two parts and some more.
const LARGE: usize = 2 * PART_BYTES + 5;

fn md5(bytes: &[u8]) -> String {
    STANDARD.encode(Md5::digest(bytes))
}

/// The same container by way of `origin`.
fn by_way_of(origin: &str, spec: &AzureSpec) -> AzureSpec {
    AzureSpec { endpoint: Some(format!("{origin}/{ACCOUNT}")), ..spec.clone() }
}

fn origin(azurite: &Azurite) -> String {
    azurite.endpoint.strip_suffix(&format!("/{ACCOUNT}")).unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_contract_holds() {
    let azurite = Azurite::shared();
    holds_for(async |_| {
        let container = azurite.container().await;
        let store = store(&azurite.spec(&container));
        BlobTrial { large_bytes: LARGE, keys_not_kept: &["back\\slash"], ..BlobTrial::of(store) }
    })
    .await;
}

#[tokio::test]
async fn a_listing_goes_from_page_to_page_by_the_markers_of_the_service() {
    let azurite = Azurite::shared();
    let spec = azurite.spec(&azurite.container().await);
    let upstream = origin(&azurite);
    // Nobody asks for small pages but this.
    let small_pages = Fake::start(move |mut asked: Asked| {
        let upstream = upstream.clone();
        async move {
            asked.target = asked.target.replacen("comp=list", "comp=list&maxresults=3", 1);
            hand_on(&upstream, &asked).await
        }
    })
    .await;
    let store = store(&by_way_of(&small_pages.origin, &spec));
    let mut expected = Vec::new();
    for n in 0..10 {
        let name = format!("a & b/{n:02} +%/ü");
        store.put(&key(&name), vec![b'x'; n].into(), None).await.unwrap();
        expected.push((name, n as u64));
    }
    store.put(&key("a & c"), vec![].into(), None).await.unwrap();
    small_pages.take_asked();
    let listed = store.list("a & b/", None).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|entry| (entry.key, entry.bytes)).collect();
    assert_eq!(listed, expected);
    let markers: Vec<_> =
        small_pages.take_asked().iter().map(|asked| asked.field("marker").is_some()).collect();
    assert_eq!(markers, [false, true, true, true]);
}

fn oracle(azurite: &Azurite, container: &str) -> MicrosoftAzure {
    MicrosoftAzureBuilder::new()
        .with_account(ACCOUNT)
        .with_access_key(KEY)
        .with_endpoint(azurite.endpoint.clone())
        .with_container_name(container)
        .with_allow_http(true)
        .build()
        .unwrap()
}

#[tokio::test]
async fn another_client_reads_what_is_written_and_writes_what_is_read() {
    let azurite = Azurite::shared();
    let container = azurite.container().await;
    let (ours, theirs) = (store(&azurite.spec(&container)), oracle(&azurite, &container));
    let large = Bytes::from(noise(1, LARGE));
    let path = |key: &str| Path::parse(key).unwrap();
    let bodies =
        [("empty", Bytes::new()), ("ours/small", "small".into()), ("ours/large", large.clone())];
    for (name, body) in &bodies {
        ours.put_if_absent(&key(name), body.clone().into(), None).await.unwrap();
        assert!(theirs.get(&path(name)).await.unwrap().bytes().await.unwrap() == body, "{name}");
        let create = PutOptions::from(PutMode::Create);
        let again = theirs.put_opts(&path(name), "other".into(), create).await.unwrap_err();
        assert!(matches!(again, object_store::Error::AlreadyExists { .. }), "{again}");
    }

    theirs.put(&path("theirs/small"), "their small".into()).await.unwrap();
    let mut upload =
        WriteMultipart::new(theirs.put_multipart(&path("theirs/large")).await.unwrap());
    upload.write(&large);
    upload.finish().await.unwrap();
    assert_eq!(ours.get(&key("theirs/small"), None).await.unwrap(), "their small");
    assert!(ours.get(&key("theirs/large"), None).await.unwrap() == large);
    let middle =
        ours.get_range(&key("theirs/large"), PART_BYTES as u64 - 7, 77, None).await.unwrap();
    assert_eq!(middle, large.slice(PART_BYTES - 7..PART_BYTES + 70));
    let other = ours.put_if_absent(&key("theirs/small"), b"mine"[..].into(), None).await;
    assert_eq!(other, Err(BlobError::AlreadyExists));
    ours.put_if_absent(&key("theirs/large"), large.clone().into(), None).await.unwrap();

    for prefix in ["", "ours/", "theirs/"] {
        let listed = ours.list(prefix, None).await.unwrap();
        let listed: Vec<_> = listed.into_iter().map(|entry| (entry.key, entry.bytes)).collect();
        let folder = Some(path(prefix.trim_end_matches('/'))).filter(|_| !prefix.is_empty());
        let mut expected = theirs.list_with_delimiter(folder.as_ref()).await.unwrap();
        for below in expected.common_prefixes.clone() {
            expected
                .objects
                .extend(theirs.list_with_delimiter(Some(&below)).await.unwrap().objects);
        }
        let mut expected: Vec<_> =
            expected.objects.into_iter().map(|it| (it.location.to_string(), it.size)).collect();
        expected.sort();
        assert_eq!(listed, expected, "{prefix:?}");
        assert_eq!(listed.len(), if prefix.is_empty() { 5 } else { 2 });
    }
}

#[tokio::test]
async fn the_digest_of_a_whole_object_is_kept_with_it_and_a_wrong_one_is_refused() {
    let azurite = Azurite::shared();
    let container = azurite.container().await;
    let spec = azurite.spec(&container);
    let store = store(&spec);
    let large = Bytes::from(noise(2, LARGE));
    for (name, body) in [("small", Bytes::from("small")), ("large", large.clone())] {
        store.put(&key(name), body.clone().into(), None).await.unwrap();
        let target = format!("{container}/{name}?{}", spec.sas_token.as_ref().unwrap());
        let head = azurite.ask(Method::HEAD, &target, &[], "").await;
        assert_eq!(head.headers()["content-md5"], md5(&body), "{name}");
    }

    // Azurite looks at the digests that are sent with what is sent.
    let sas = spec.sas_token.unwrap();
    let (right, wrong) = (md5(b"bytes"), md5(b"other"));
    let kind = ("x-ms-blob-type", "BlockBlob");
    let block = format!("comp=block&blockid=YQ%3D%3D&{sas}");
    for (digest, query, status) in
        [(&right, &sas, 201), (&wrong, &sas, 400), (&right, &block, 201), (&wrong, &block, 400)]
    {
        let target = format!("{container}/checked?{query}");
        let put =
            azurite.ask(Method::PUT, &target, &[kind, ("content-md5", digest)], "bytes").await;
        assert_eq!(put.status(), status, "{digest} {query}");
        if status == 400 {
            // Its own word for what the service calls Md5Mismatch.
            assert_eq!(put.headers()["x-ms-error-code"], "InvalidOperation");
        }
    }
}

#[tokio::test]
async fn a_second_create_is_refused_by_the_service_itself() {
    let azurite = Azurite::shared();
    let container = azurite.container().await;
    let sas = azurite.spec(&container).sas_token.unwrap();
    let headers = [("x-ms-blob-type", "BlockBlob"), ("if-none-match", "*")];
    let target = format!("{container}/once?{sas}");
    let codes = async |target: &str, body: &'static str| {
        let put = azurite.ask(Method::PUT, target, &headers, body).await;
        let code =
            put.headers().get("x-ms-error-code").map(|code| code.to_str().unwrap().to_owned());
        (put.status().as_u16(), code.unwrap_or_default())
    };
    assert_eq!(codes(&target, "one").await, (201, String::new()));
    let refused = (409, "BlobAlreadyExists".to_owned());
    assert_eq!(codes(&target, "two").await, refused);
    let blocks = format!("{container}/once?comp=blocklist&{sas}");
    assert_eq!(codes(&blocks, "<BlockList></BlockList>").await, refused);
    let store = store(&azurite.spec(&container));
    assert_eq!(store.get(&key("once"), None).await.unwrap(), "one");
}

#[tokio::test]
async fn whoever_comes_between_the_blocks_and_their_list_has_won() {
    let azurite = Azurite::shared();
    let spec = azurite.spec(&azurite.container().await);
    let direct = store(&spec);
    let large = Bytes::from(noise(3, LARGE));
    let (upstream, other) = (origin(&azurite), Arc::clone(&direct));
    // Before a list is handed on, somebody else has written the object.
    let theirs = Arc::new(Mutex::new(Bytes::new()));
    let between = Arc::clone(&theirs);
    let race = Fake::start(move |asked: Asked| {
        let (upstream, other) = (upstream.clone(), Arc::clone(&other));
        let theirs = between.lock().unwrap().clone();
        async move {
            if asked.field("comp") == Some("blocklist") {
                let (_, name) = asked.target.split('?').next().unwrap().rsplit_once('/').unwrap();
                other.put(&key(name), theirs.into(), None).await.unwrap();
            }
            hand_on(&upstream, &asked).await
        }
    })
    .await;
    let store = store(&by_way_of(&race.origin, &spec));

    let mut other = large.to_vec();
    other[LARGE - 1] ^= 1;
    for (name, body) in [("small", Bytes::from("theirs")), ("large", other.into())] {
        *theirs.lock().unwrap() = body.clone();
        let lost = store.put_if_absent(&key(name), large.clone().into(), None).await;
        assert_eq!(lost, Err(BlobError::AlreadyExists), "{name}");
        assert!(direct.get(&key(name), None).await.unwrap() == body, "{name}");
    }
    *theirs.lock().unwrap() = large.clone();
    store.put_if_absent(&key("same"), large.clone().into(), None).await.unwrap();

    // The blocks of a put went when the other object came: what is there is that one, whole.
    let body = Bytes::from(noise(4, LARGE));
    *theirs.lock().unwrap() = body.clone();
    let put = store.put(&key("over"), large.clone().into(), None).await;
    let told = "400 InvalidBlockList: The specified block list is invalid.";
    assert_eq!(put, Err(BlobError::Transport(told.to_owned())));
    assert!(direct.get(&key("over"), None).await.unwrap() == body);
    direct.put(&key("over"), large.clone().into(), None).await.unwrap();
    assert!(direct.get(&key("over"), None).await.unwrap() == large);
}

#[tokio::test]
async fn an_answer_that_is_lost_after_its_write_is_no_other_writer() {
    let azurite = Azurite::shared();
    let spec = azurite.spec(&azurite.container().await);
    let upstream = origin(&azurite);
    let lost = Arc::new(AtomicUsize::new(0));
    let losses = Arc::clone(&lost);
    // Of every write, the first answer.
    let seen = Arc::new(Mutex::new(std::collections::BTreeSet::new()));
    let loses = Fake::start(move |asked: Asked| {
        let upstream = upstream.clone();
        let is_first =
            asked.method == Method::PUT && seen.lock().unwrap().insert(asked.target.clone());
        let losses = Arc::clone(&losses);
        async move {
            let answer = hand_on(&upstream, &asked).await;
            if is_first {
                losses.fetch_add(1, Ordering::SeqCst);
                return None;
            }
            answer
        }
    })
    .await;
    let store = store(&by_way_of(&loses.origin, &spec));
    let large = Bytes::from(noise(5, LARGE));
    for (name, body) in [("small", Bytes::from("small")), ("large", large)] {
        store.put_if_absent(&key(name), body.clone().into(), None).await.unwrap();
        assert!(store.get(&key(name), None).await.unwrap() == body);
        let other = store.put_if_absent(&key(name), b"other"[..].into(), None).await;
        assert_eq!(other, Err(BlobError::AlreadyExists));
        store.put(&key(&format!("{name}-put")), body.into(), None).await.unwrap();
    }
    // One object at once, and three blocks and a list; each twice, and a lost create of another.
    assert_eq!(lost.load(Ordering::SeqCst), 2 + 2 * 4 + 1);
}

#[tokio::test]
async fn a_signature_that_is_wrong_or_over_or_allows_less_is_forbidden_and_not_told() {
    let azurite = Azurite::shared();
    let container = azurite.container().await;
    let good = container_sas(&container, "racwdl", FAR_OFF);
    let signed = |sas: String| {
        let spec = AzureSpec { sas_token: Some(sas), ..azurite.spec(&container) };
        store(&spec)
    };
    signed(format!("?{good}")).put(&key("k"), b"1"[..].into(), None).await.unwrap();

    let (rest, sig) = good.split_once("&sig=").unwrap();
    let flipped = if sig.starts_with('A') { "B" } else { "A" };
    let broken = format!("{rest}&sig={flipped}{}", &sig[1..]);
    let over = container_sas(&container, "racwdl", "2026-01-01T00:00:00Z");
    let reads = container_sas(&container, "rl", FAR_OFF);
    let elsewhere = container_sas("container-x", "racwdl", FAR_OFF);
    let table = [
        // Azurite's word for what the service calls AuthenticationFailed.
        (&broken, "403 AuthorizationFailure"),
        (&over, "403 AuthorizationFailure"),
        (&elsewhere, "403 AuthorizationFailure"),
        (&reads, "403 AuthorizationPermissionMismatch"),
    ];
    for (sas, code) in table {
        let refused = signed(sas.clone()).put(&key("k"), b"2"[..].into(), None).await.unwrap_err();
        let BlobError::Forbidden(told) = refused else { panic!("{refused:?}") };
        assert!(told.starts_with(code), "{told}");
        assert!(!told.contains(&sas[sas.len() - 20..]), "{told}");
        let is_over = std::ptr::eq(sas, &over);
        assert_eq!(
            told.ends_with(": the SAS token expired at 2026-01-01T00:00:00Z"),
            is_over,
            "{told}"
        );
    }
    assert_eq!(signed(reads).get(&key("k"), None).await.unwrap(), "1");
    let spec = AzureSpec { container: "no-such-one".into(), ..azurite.spec("no-such-one") };
    let absent = store(&spec).get(&key("k"), None).await.unwrap_err();
    assert_eq!(absent.as_str(), "misconfigured", "{absent}");
    assert_eq!(store(&spec).list("", None).await.unwrap_err().as_str(), "misconfigured");
    assert_eq!(store(&spec).delete(&key("k"), None).await.unwrap_err().as_str(), "misconfigured");
}

/// Counts how many of its parts somebody still holds.
struct Counted {
    bytes: usize,
    held: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

struct Part {
    bytes: Vec<u8>,
    held: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.held.fetch_sub(1, Ordering::SeqCst);
    }
}

#[async_trait]
impl BlobSource for Counted {
    fn bytes(&self) -> u64 {
        self.bytes as u64
    }

    async fn read(&self, range: std::ops::Range<u64>) -> Result<Bytes, BlobError> {
        let held = self.held.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(held, Ordering::SeqCst);
        let bytes = vec![b'x'; usize::try_from(range.end - range.start).unwrap()];
        Ok(Bytes::from_owner(Part { bytes, held: Arc::clone(&self.held) }))
    }
}

#[tokio::test]
async fn an_upload_holds_no_more_than_its_parts_at_once() {
    // No block is answered before as many are there as may be.
    let all_there = Arc::new(Barrier::new(PARTS_AT_ONCE));
    let fake = Fake::start(move |asked: Asked| {
        let all_there = Arc::clone(&all_there);
        async move {
            if asked.field("comp") == Some("block") {
                all_there.wait().await;
            }
            answer(201, &[], "")
        }
    })
    .await;
    let spec = with_small_parts(AzureSpec {
        container: "container".into(),
        endpoint: Some(fake.origin.clone()),
        auth: AzureAuth::None,
        ..AzureSpec::default()
    });
    let (held, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let bytes = 5 * PARTS_AT_ONCE * PART_BYTES;
    let source = Counted { bytes, held: Arc::clone(&held), most: Arc::clone(&most) };
    let body = BlobBody::of_source(Arc::new(source));
    store(&spec).put(&key("k"), body, None).await.unwrap();
    assert_eq!(fake.take_asked().len(), 5 * PARTS_AT_ONCE + 1);
    assert_eq!(most.load(Ordering::SeqCst), PARTS_AT_ONCE);
    assert_eq!(held.load(Ordering::SeqCst), 0);
}
