//! The adapter of OCI Object Storage before a server that is as strict as the real one is documented to be: the
//! contract of object stores, signatures, digests, conditions, parts, pages, refusals, and the instance as who signs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "support/fault_table.rs"]
mod fault_table;
#[path = "oci/faults.rs"]
mod faults;
mod oci;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ankusa_actors::ports::contract::blob::{BlobTrial, holds_for};
use ankusa_actors::ports::{BlobBody, BlobError, BlobKey, BlobScope};
use ankusa_node::blob::oci::signing::{
    CONTENT_SHA256, GENERIC, Identity, SigningKey, authorization, names, sign, signing_string,
};
use ankusa_node::blob::oci::{OciAuth, OciSpec, open, parse_error};
use ankusa_node::blob::options::Sse;
use aws_lc_rs::signature::{RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, UnparsedPublicKey};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE, DATE};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use oci::instance::{TOKEN_S, instance};
use oci::objects::{Fault, Seen};
use oci::{
    BUCKET, FINGERPRINT, KEY, NAMESPACE, NOW_MS, OTHER_KEY, PART_BYTES, Scene, TENANCY, USER,
    field, parts, pem,
};
use reqwest::{Body, Client, Request};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::sync::Barrier;
use tokio::time::timeout;
use url::Url;

fn key(key: &str) -> BlobKey {
    BlobKey::new(key).unwrap()
}

fn body(text: &'static str) -> BlobBody {
    Bytes::from_static(text.as_bytes()).into()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contract_of_object_stores_holds() {
    let scene = Scene::new().await;
    let whole = BlobTrial::of(scene.store());
    holds_for(async |name| whole.below(name)).await;
    assert_eq!(scene.objects.unsigned(), Vec::<&str>::new());
    assert_eq!(scene.objects.uploads(), 0);
}

/// The two published examples: what is signed, letter by letter, and that the published signature is the one of it.
#[test]
fn requests_are_signed_as_published() {
    let golden = include_str!("golden/oci_signatures.json");
    let golden: Value = serde_json::from_str(golden).unwrap();
    let public = BASE64_STANDARD.decode(field(&golden, "public_key")).unwrap();
    let cases = golden["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 2);
    for case in cases {
        let mut headers = HeaderMap::new();
        for pair in case["headers"].as_array().unwrap() {
            let name = HeaderName::from_bytes(pair[0].as_str().unwrap().as_bytes()).unwrap();
            headers.insert(name, HeaderValue::from_str(pair[1].as_str().unwrap()).unwrap());
        }
        if let Some(body) = case["body"].as_str() {
            let digest = BASE64_STANDARD.encode(Sha256::digest(body));
            assert_eq!(digest, field(case, "x_content_sha256"));
            headers.insert(CONTENT_SHA256, HeaderValue::from_str(&digest).unwrap());
        }
        let method: Method = field(case, "method").parse().unwrap();
        let url: Url = field(case, "url").parse().unwrap();
        let names = names(GENERIC, &headers);
        let text = signing_string(&method, &url, &headers, &names);
        assert_eq!(text, field(case, "signing_string"));
        let value = authorization(field(case, "key_id"), &names, field(case, "signature"));
        assert_eq!(value, field(case, "authorization"));

        let signature = BASE64_STANDARD.decode(field(case, "signature")).unwrap();
        let key = UnparsedPublicKey::new(&RSA_PKCS1_1024_8192_SHA256_FOR_LEGACY_USE_ONLY, &public);
        key.verify(text.as_bytes(), &signature).unwrap();
        key.verify(format!("{text} ").as_bytes(), &signature).unwrap_err();
    }
}

#[tokio::test]
async fn a_key_is_pkcs1_or_pkcs8_and_signs_the_same() {
    let mut signatures = Vec::new();
    for pem in [&KEY.pkcs1, &KEY.pkcs8] {
        // As the console hands it out: with a label after its end.
        let key = SigningKey::from_pem(&format!("{pem}OCI_API_KEY\n")).unwrap();
        assert_eq!(key.public_der().unwrap(), KEY.public);
        signatures.push(key.sign("date: now".to_owned()).await.unwrap());
    }
    assert_eq!(signatures[0], signatures[1]);
}

#[tokio::test]
async fn what_somebody_else_signs_is_forbidden() {
    let scene = Scene::new().await;
    let spec = OciSpec { private_key: Some(OTHER_KEY.pkcs1.clone()), ..scene.spec() };
    let stranger = scene.store_of(&spec);
    let why = "401 NotAuthenticated: NotAuthenticated it is";
    let forbidden = BlobError::Forbidden(why.to_owned());
    assert_eq!(stranger.put(&key("a"), body("1"), None).await, Err(forbidden.clone()));
    assert_eq!(stranger.put_if_absent(&key("a"), body("1"), None).await, Err(forbidden.clone()));
    assert_eq!(stranger.get(&key("a"), None).await, Err(forbidden.clone()));
    assert_eq!(stranger.delete(&key("a"), None).await, Err(forbidden.clone()));
    assert_eq!(stranger.list("", None).await, Err(forbidden));
    assert_eq!(scene.objects.unsigned(), ["another signature"; 5]);
    assert_eq!(scene.objects.object("a"), None);

    let owner = OciSpec { private_key: Some(KEY.pkcs1.clone()), ..scene.spec() };
    scene.store_of(&owner).put(&key("a"), body("1"), None).await.unwrap();
    assert_eq!(scene.objects.unsigned(), Vec::<&str>::new());
}

/// A request to begin an upload, signed as the store signs it.
async fn signed(scene: &Scene) -> Request {
    let path = format!("{}/n/{NAMESPACE}/b/{BUCKET}/u", scene.listening.url);
    let details = r#"{"object":"a"}"#;
    let mut request = Request::new(Method::POST, path.parse().unwrap());
    let digest = BASE64_STANDARD.encode(Sha256::digest(details));
    let headers = request.headers_mut();
    headers.insert(CONTENT_LENGTH, HeaderValue::from(details.len()));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CONTENT_SHA256, digest.parse().unwrap());
    *request.body_mut() = Some(Body::from(details));
    let key_id = format!("{TENANCY}/{USER}/{FINGERPRINT}");
    let identity = Identity { key_id, key: SigningKey::from_pem(&KEY.pkcs8).unwrap() };
    sign(&mut request, &identity, GENERIC, NOW_MS).await.unwrap();
    request
}

#[tokio::test]
async fn a_request_that_was_changed_after_it_was_signed_is_refused() {
    let scene = Scene::new().await;
    type Change = fn(&mut Request);
    let changes: [(&str, Change); 9] = [
        ("another signature", |r| {
            let later = HeaderValue::from_static("Mon, 30 Nov 2026 00:00:01 GMT");
            r.headers_mut().insert(DATE, later);
        }),
        ("another signature", |r| *r.method_mut() = Method::PUT),
        ("another signature", |r| r.url_mut().set_query(Some("a=b"))),
        ("another signature", |r| {
            r.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
        }),
        ("another body", |r| *r.body_mut() = Some(Body::from(r#"{"object":"b"}"#))),
        ("another signature", |r| {
            let digest = BASE64_STANDARD.encode(Sha256::digest(r#"{"object":"b"}"#));
            r.headers_mut().insert(CONTENT_SHA256, digest.parse().unwrap());
            *r.body_mut() = Some(Body::from(r#"{"object":"b"}"#));
        }),
        ("a name of the body is not signed", |r| {
            let value = r.headers()["authorization"].to_str().unwrap();
            let value = value.replace(" x-content-sha256", "");
            r.headers_mut().insert("authorization", value.parse().unwrap());
        }),
        ("a name is not signed", |r| {
            let value = r.headers()["authorization"].to_str().unwrap();
            let value = value.replace("date ", "");
            r.headers_mut().insert("authorization", value.parse().unwrap());
        }),
        ("no authorization", |r| drop(r.headers_mut().remove("authorization"))),
    ];
    let client = Client::builder().no_proxy().build().unwrap();
    for (why, change) in changes {
        let mut request = signed(&scene).await;
        change(&mut request);
        let answer = client.execute(request).await.unwrap();
        assert_eq!(answer.status(), 401, "{why}");
        assert_eq!(scene.objects.unsigned(), [why]);
    }
    assert_eq!(client.execute(signed(&scene).await).await.unwrap().status(), 200);
    assert_eq!(scene.objects.unsigned(), Vec::<&str>::new());
}

#[tokio::test]
async fn a_clock_more_than_five_minutes_off_is_told_apart_from_a_wrong_key() {
    let scene = Scene::new().await;
    let store = scene.store();
    for ahead_s in [-300_i64, -299, 299, 300] {
        scene.clock.set(NOW_MS.checked_add_signed(ahead_s * 1_000).unwrap());
        store.put(&key("a"), body("1"), None).await.unwrap();
    }
    for ahead_s in [-360_i64, 360, 86_400] {
        scene.clock.set(NOW_MS.checked_add_signed(ahead_s * 1_000).unwrap());
        let skewed = Err(BlobError::ClockSkew { ahead_s });
        assert_eq!(store.put(&key("a"), body("1"), None).await, skewed);
        assert_eq!(scene.objects.unsigned(), ["another date"]);
    }
}

#[tokio::test]
async fn every_attempt_is_signed_with_the_date_of_its_own() {
    let scene = Scene::new().await;
    let store = scene.store();
    // Longer than a date counts.
    for later in [600_000, 1_200_000] {
        let late = Fault::Late(Arc::clone(&scene.clock), NOW_MS + later);
        scene.objects.fault(Method::PUT, "/o/", late);
    }
    store.put(&key("a"), body("1"), None).await.unwrap();
    assert_eq!(scene.objects.asked(), ["PUT /o/a"; 3]);
    assert_eq!(scene.objects.unsigned(), Vec::<&str>::new());
    assert_eq!(scene.retries.count(), 2);
}

#[tokio::test]
async fn an_object_that_changed_on_its_way_is_no_object() {
    let scene = Scene::new().await;
    let store = scene.store();
    let why = "400 UnmatchedContentMD5: UnmatchedContentMD5 it is".to_owned();
    scene.objects.fault(Method::PUT, "/o/", Fault::FlipThere);
    let put = store.put(&key("a"), body("123"), None).await;
    assert_eq!(put, Err(BlobError::Integrity(why.clone())));
    assert_eq!(scene.objects.object("a"), None);

    store.put(&key("a"), body("123"), None).await.unwrap();
    scene.objects.fault(Method::GET, "/o/", Fault::FlipBack);
    let flipped = Err(BlobError::Integrity("3 bytes came whose digest is another".to_owned()));
    assert_eq!(store.get(&key("a"), None).await, flipped);
    assert_eq!(store.get(&key("a"), None).await, Ok(Bytes::from_static(b"123")));
    // Whoever reads a part of it has a checksum of it.
    scene.objects.fault(Method::GET, "/o/", Fault::FlipBack);
    let range = store.get_range(&key("a"), 0, 3, None).await;
    assert_eq!(range, Ok(Bytes::from_static(b"023")));

    let store = scene.store_in_parts();
    scene.objects.fault(Method::PUT, "/u/", Fault::FlipThere);
    let put = store.put(&key("b"), parts(2).into(), None).await;
    assert_eq!(put, Err(BlobError::Integrity(why)));
    assert_eq!((scene.objects.object("b"), scene.objects.uploads()), (None, 0));
}

#[tokio::test]
async fn the_digest_of_digests_of_an_object_in_parts_is_not_taken_for_its_own() {
    let scene = Scene::new().await;
    let store = scene.store_in_parts();
    store.put(&key("a"), parts(2).into(), None).await.unwrap();
    assert!(store.get(&key("a"), None).await.unwrap() == parts(2));
    // Should there be one beside it, it is not of the whole either.
    let other = Fault::Header("content-md5", "1B2M2Y8AsgTpgAmY7PhCfg==");
    scene.objects.fault(Method::GET, "/o/", other.clone());
    assert!(store.get(&key("a"), None).await.unwrap() == parts(2));
    store.put(&key("b"), body("1"), None).await.unwrap();
    scene.objects.fault(Method::GET, "/o/", other);
    assert_eq!(store.get(&key("b"), None).await.unwrap_err().as_str(), "integrity");
}

#[tokio::test]
async fn a_second_create_is_refused_by_the_store_itself() {
    let scene = Scene::new().await;
    let store = scene.store();
    store.put_if_absent(&key("a"), body("first"), None).await.unwrap();
    let second = store.put_if_absent(&key("a"), body("other"), None).await;
    assert_eq!(second, Err(BlobError::AlreadyExists));
    let asked = scene.objects.seen();
    let conditions: Vec<_> = asked.iter().map(|seen| seen.if_none_match.as_deref()).collect();
    assert_eq!(conditions, [Some("*"), Some("*"), None]);
    assert_eq!(scene.objects.object("a").unwrap(), "first");

    // A put has no condition, and replaces.
    store.put(&key("a"), body("other"), None).await.unwrap();
    assert_eq!(scene.objects.seen()[0].if_none_match, None);
    assert_eq!(scene.objects.object("a").unwrap(), "other");
}

#[tokio::test]
async fn a_create_whose_answer_was_lost_has_succeeded() {
    let scene = Scene::new().await;
    let store = scene.store();
    scene.objects.fault(Method::PUT, "/o/a", Fault::LoseAnswer);
    store.put_if_absent(&key("a"), body("mine"), None).await.unwrap();
    assert_eq!(scene.objects.asked(), ["PUT /o/a", "PUT /o/a", "GET /o/a"]);

    // Had it been another's, it would not have.
    scene.objects.fault(Method::PUT, "/o/b", Fault::Put("b", b"hers"));
    let lost = store.put_if_absent(&key("b"), body("mine"), None).await;
    assert_eq!(lost, Err(BlobError::AlreadyExists));

    // One that has gone since says nothing of whose it was.
    scene.objects.fault(
        Method::GET,
        "/o/b",
        Fault::Answer(404, None, r#"{"code":"ObjectNotFound"}"#.to_owned()),
    );
    let gone = "the object that was in the way is gone".to_owned();
    let lost = store.put_if_absent(&key("b"), body("mine"), None).await;
    assert_eq!(lost, Err(BlobError::Transport(gone)));
}

#[tokio::test]
async fn an_object_of_whole_parts_is_compared_to_its_end() {
    let scene = Scene::new().await;
    let store = scene.store_in_parts();
    let whole = parts(2).slice(..2 * PART_BYTES);
    store.put(&key("a"), whole.clone().into(), None).await.unwrap();
    store.put_if_absent(&key("a"), whole.clone().into(), None).await.unwrap();
    for other in [whole.slice(..PART_BYTES), whole.slice(1..), parts(2), Bytes::from_static(b"")] {
        let body = BlobBody::of_pieces([other]);
        let lost = store.put_if_absent(&key("a"), body, None).await;
        assert_eq!(lost, Err(BlobError::AlreadyExists));
    }
    assert!(scene.objects.object("a").unwrap() == whole);
    assert_eq!(scene.objects.uploads(), 0);
}

#[tokio::test]
async fn four_parts_are_on_their_way_at_once_and_no_more() {
    let scene = Scene::new().await;
    let store = scene.store_in_parts();
    *scene.objects.meeting.lock().unwrap() = Some(Arc::new(Barrier::new(4)));
    let whole = parts(7);
    let key = key("a");
    let put = store.put(&key, whole.clone().into(), None);
    timeout(Duration::from_secs(60), put).await.expect("four of them meet").unwrap();
    assert_eq!(scene.objects.parts_at_once.load(Ordering::SeqCst), 4);
    assert!(scene.objects.object("a").unwrap() == whole);
    let asked = scene.objects.asked();
    assert_eq!((asked.len(), asked[0].as_str()), (10, "POST /u"));
    let mut sent = asked[1..9].to_vec();
    sent.sort();
    let part = |n| format!("PUT /u/a?uploadId=upload%2B1%2F%3D&uploadPartNum={n}");
    assert_eq!(sent, (1..=8).map(part).collect::<Vec<_>>());
    assert_eq!(asked[9], "POST /u/a?uploadId=upload%2B1%2F%3D");
}

#[tokio::test]
async fn an_upload_loses_answers_and_not_the_object() {
    let scene = Scene::new().await;
    let store = scene.store_in_parts();
    let whole = parts(2);
    for (name, only_new) in [("put", false), ("create", true)] {
        scene.objects.fault(Method::PUT, "/u/", Fault::LoseAnswer);
        scene.objects.fault(Method::POST, "/u/", Fault::LoseAnswer);
        let (key, body) = (key(name), BlobBody::from(whole.clone()));
        if only_new {
            store.put_if_absent(&key, body, None).await.unwrap();
        } else {
            store.put(&key, body, None).await.unwrap();
        }
        assert!(scene.objects.object(name).unwrap() == whole);
        assert_eq!(scene.objects.uploads(), 0, "{name}");
    }
    // Of a create that is not heard of, nobody knows the upload.
    scene.objects.fault(Method::POST, "/u", Fault::LoseAnswer);
    store.put_if_absent(&key("begun"), whole.clone().into(), None).await.unwrap();
    assert!(scene.objects.object("begun").unwrap() == whole);
    assert_eq!(scene.objects.uploads(), 1);
}

#[tokio::test]
async fn an_upload_that_is_gone_and_left_nothing_is_a_failure() {
    let scene = Scene::new().await;
    let store = scene.store_in_parts();
    store.put(&key("a"), parts(1).into(), None).await.unwrap();
    let gone = Fault::Answer(404, None, r#"{"code":"UploadNotFound","message":"no"}"#.to_owned());
    scene.objects.fault(Method::POST, "/u/", gone);
    let put = store.put(&key("a"), parts(2).into(), None).await;
    assert_eq!(put, Err(BlobError::Misconfigured("404 UploadNotFound: no".to_owned())));
    assert!(scene.objects.object("a").unwrap() == parts(1));
    assert_eq!(scene.objects.uploads(), 0);
}

#[tokio::test]
async fn a_create_in_parts_that_loses_the_race_is_aborted() {
    let scene = Scene::new().await;
    let store = scene.store_in_parts();
    // There before the first part is sent, and only when all of them are.
    for (name, method, target) in [("a", Method::POST, "/u"), ("b", Method::POST, "/u/")] {
        scene.objects.fault(method, target, Fault::Put(name, b"hers"));
        let lost = store.put_if_absent(&key(name), parts(2).into(), None).await;
        assert_eq!(lost, Err(BlobError::AlreadyExists));
        assert_eq!(scene.objects.object(name).unwrap(), "hers");
        assert_eq!(scene.objects.uploads(), 0);
    }
    let conditions: Vec<_> = scene
        .objects
        .seen()
        .into_iter()
        .filter(|seen| seen.method == "POST")
        .map(|seen| seen.if_none_match)
        .collect();
    assert_eq!(conditions, vec![Some("*".to_owned()); 3]);
}

#[tokio::test]
async fn an_upload_that_fails_is_aborted() {
    let scene = Scene::new().await;
    let store = scene.store_in_parts();
    let denied = r#"{"code":"NotAllowed","message":"not now"}"#;
    for (method, target) in [(Method::PUT, "/u/"), (Method::POST, "/u/")] {
        scene.objects.fault(method, target, Fault::Answer(403, None, denied.to_owned()));
        let put = store.put(&key("a"), parts(6).into(), None).await;
        assert_eq!(put, Err(BlobError::Forbidden("403 NotAllowed: not now".to_owned())));
        assert_eq!(scene.objects.object("a"), None);
        assert_eq!(scene.objects.uploads(), 0);
        assert!(scene.objects.asked().last().unwrap().starts_with("DELETE /u/a?uploadId="));
    }
}

#[tokio::test]
async fn a_key_of_the_customers_is_asked_for_with_every_object() {
    let scene = Scene::new().await;
    let vault = "ocid1.key.oc1.iad.aaaakey";
    let sse = Some(Sse::Kms { key_id: vault.to_owned() });
    let encrypted = scene.store_of(&OciSpec { sse, ..scene.spec_in_parts() });
    let keys = |seen: Vec<Seen>| -> Vec<_> {
        seen.into_iter().map(|seen| (seen.method, seen.sse_key)).collect()
    };
    encrypted.put(&key("a"), body("1"), None).await.unwrap();
    encrypted.put_if_absent(&key("b"), body("1"), None).await.unwrap();
    let with = |method: &str| (method.to_owned(), Some(vault.to_owned()));
    assert_eq!(keys(scene.objects.seen()), [with("PUT"), with("PUT")]);
    encrypted.put(&key("c"), parts(1).into(), None).await.unwrap();
    // An upload is begun with it, and its parts follow.
    let without = |method: &str| (method.to_owned(), None);
    let of_parts = [with("POST"), without("PUT"), without("PUT"), without("POST")];
    assert_eq!(keys(scene.objects.seen()), of_parts);

    let sse = Some(Sse::Aes256 {});
    let plain = scene.store_of(&OciSpec { sse, ..scene.spec() });
    plain.put(&key("d"), body("1"), None).await.unwrap();
    assert_eq!(keys(scene.objects.seen()), [without("PUT")]);
}

#[tokio::test]
async fn what_is_refused_says_what_to_do() {
    let scene = Scene::new().await;
    let store = scene.store();
    let told = |text: &str| text.to_owned();
    let cases = [
        (404, "ObjectNotFound", BlobError::NotFound),
        (404, "BucketNotFound", BlobError::Misconfigured(told("404 BucketNotFound: why"))),
        (404, "NamespaceNotFound", BlobError::Misconfigured(told("404 NamespaceNotFound: why"))),
        (
            404,
            "NotAuthorizedOrNotFound",
            BlobError::Forbidden(told("404 NotAuthorizedOrNotFound: why")),
        ),
        (401, "NotAuthenticated", BlobError::Forbidden(told("401 NotAuthenticated: why"))),
        (403, "NotAllowed", BlobError::Forbidden(told("403 NotAllowed: why"))),
        (400, "UnmatchedContentMD5", BlobError::Integrity(told("400 UnmatchedContentMD5: why"))),
        (400, "InvalidParameter", BlobError::Misconfigured(told("400 InvalidParameter: why"))),
        (
            301,
            "Moved",
            BlobError::Misconfigured(told("301 Moved: why: redirects are not followed")),
        ),
    ];
    for (status, code, expected) in cases {
        let said = json!({ "code": code, "message": "why" }).to_string();
        scene.objects.fault(Method::GET, "/o/", Fault::Answer(status, None, said));
        assert_eq!(store.get(&key("a"), None).await, Err(expected), "{status} {code}");
    }
    // Not in Object Storage's words: it says nothing of the object.
    for said in ["", "<html>", "[]", "{\"code\":1}", "{\"code\":\"Obj"] {
        let nothing = Fault::Answer(404, None, said.to_owned());
        scene.objects.fault(Method::GET, "/o/", nothing.clone());
        let misconfigured = BlobError::Misconfigured("404".to_owned());
        assert_eq!(store.get(&key("a"), None).await, Err(misconfigured.clone()), "{said}");
        scene.objects.fault(Method::DELETE, "/o/", nothing);
        assert_eq!(store.delete(&key("a"), None).await, Err(misconfigured), "{said}");
    }
    assert_eq!(store.delete(&key("a"), None).await, Ok(()));
    assert_eq!(parse_error(&[b' '; 70_000]), parse_error(b""));
}

#[tokio::test]
async fn another_bucket_is_no_missing_object() {
    let scene = Scene::new().await;
    for (namespace, bucket, why) in [
        (NAMESPACE, "other", "404 BucketNotFound: BucketNotFound it is"),
        ("other", BUCKET, "404 NamespaceNotFound: NamespaceNotFound it is"),
    ] {
        let (namespace, bucket) = (namespace.to_owned(), bucket.to_owned());
        let store = scene.store_of(&OciSpec { namespace, bucket, ..scene.spec() });
        let error = BlobError::Misconfigured(why.to_owned());
        assert_eq!(store.get(&key("a"), None).await, Err(error.clone()));
        assert_eq!(store.delete(&key("a"), None).await, Err(error.clone()));
        assert_eq!(store.list("", None).await, Err(error.clone()));
        assert_eq!(store.put_if_absent(&key("a"), body("1"), None).await, Err(error));
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_and_a_throttle_waited_for() {
    let scene = Scene::new().await;
    let store = scene.store();
    let busy = r#"{"code":"ConcurrentObjectUpdate","message":"busy"}"#.to_owned();
    scene.objects.fault(Method::PUT, "/o/", Fault::Answer(409, None, busy.clone()));
    scene.objects.fault(Method::PUT, "/o/", Fault::Answer(409, None, busy.clone()));
    store.put(&key("a"), body("1"), None).await.unwrap();
    assert_eq!(scene.retries.count(), 2);
    for _attempt in 0..3 {
        scene.objects.fault(Method::PUT, "/o/", Fault::Answer(409, None, busy.clone()));
    }
    assert_eq!(store.put(&key("a"), body("1"), None).await.unwrap_err().as_str(), "transport");
    let conflict = r#"{"code":"BucketConflict","message":"other"}"#.to_owned();
    scene.objects.fault(Method::PUT, "/o/", Fault::Answer(409, None, conflict));
    let error = BlobError::Misconfigured("409 BucketConflict: other".to_owned());
    assert_eq!(store.put(&key("a"), body("1"), None).await, Err(error));

    scene.objects.asked();
    let slow = r#"{"code":"TooManyRequests","message":"slow"}"#.to_owned();
    let later = Some(("retry-after", "600"));
    scene.objects.fault(Method::PUT, "/o/", Fault::Answer(429, later, slow.clone()));
    let put = store.put(&key("a"), body("1"), None).await;
    assert_eq!(put, Err(BlobError::Throttled { seconds: 600 }));
    assert_eq!(scene.objects.asked(), ["PUT /o/a"]);
    scene.objects.fault(Method::PUT, "/o/", Fault::Answer(429, None, slow));
    store.put(&key("a"), body("1"), None).await.unwrap();
    assert_eq!(scene.objects.asked(), ["PUT /o/a", "PUT /o/a"]);
}

#[tokio::test]
async fn a_range_that_is_another_one_is_not_taken() {
    let scene = Scene::new().await;
    let store = scene.store();
    store.put(&key("a"), body("0123456789"), None).await.unwrap();
    let range = store.get_range(&key("a"), 8, 10, None).await;
    assert_eq!(range, Ok(Bytes::from_static(b"89")));
    let beyond = store.get_range(&key("a"), u64::MAX, 100, None).await;
    assert_eq!(beyond, Ok(Bytes::new()));

    let another = "another range came than was asked for".to_owned();
    scene.objects.fault(Method::GET, "/o/", Fault::Header("content-range", "bytes 2-3/10"));
    let range = store.get_range(&key("a"), 1, 2, None).await;
    assert_eq!(range, Err(BlobError::Integrity(another.clone())));
    scene.objects.fault(Method::GET, "/o/", Fault::Answer(206, None, "123".to_owned()));
    let range = store.get_range(&key("a"), 1, 2, None).await;
    assert_eq!(range, Err(BlobError::Integrity(another)));
    scene.objects.fault(Method::GET, "/o/", Fault::Answer(200, None, "0123456789".to_owned()));
    let whole = "a range was asked for, and the whole object came".to_owned();
    let range = store.get_range(&key("a"), 1, 2, None).await;
    assert_eq!(range, Err(BlobError::Misconfigured(whole)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_that_fails_midway_is_no_shorter_one() {
    let scene = Scene::new().await;
    let store = scene.store();
    for n in 0..3 {
        store.put(&key(&format!("a&b/{n}")), body("1"), None).await.unwrap();
    }
    scene.objects.asked();
    let page = |names: &[&str], next: &str| {
        let objects: Vec<_> = names.iter().map(|name| json!({ "name": name, "size": 1 })).collect();
        json!({ "objects": objects, "nextStartWith": next }).to_string()
    };
    let first = || Fault::Answer(200, None, page(&["a&b/0"], "a&b/1"));
    scene.objects.fault(Method::GET, "/o?", first());
    let listed = store.list("a&b", None).await.unwrap();
    let listed: Vec<_> = listed.into_iter().map(|entry| (entry.key, entry.bytes)).collect();
    let all = ["a&b/0", "a&b/1", "a&b/2"].map(|key| (key.to_owned(), 1));
    assert_eq!(listed, all);
    let fixed = "GET /o?fields=name%2Csize&limit=1000&prefix=a%26b";
    let expected = [fixed.to_owned(), format!("{fixed}&start=a%26b%2F1")];
    assert_eq!(scene.objects.asked(), expected);

    let broken = [
        (Fault::Answer(403, None, String::new()), "forbidden"),
        (Fault::Answer(200, None, page(&["a&b/1"], "a&b/2")[..40].to_owned()), "transport"),
        (Fault::Answer(200, None, page(&["a&b/1"], "a&b/1")), "transport"),
        (Fault::Answer(200, None, page(&[], "a&b/0")), "transport"),
        (Fault::Answer(200, None, page(&["a&b/0"], "a&b/2")), "transport"),
        (Fault::Answer(200, None, page(&[], "")), "transport"),
    ];
    for (second, word) in broken {
        scene.objects.fault(Method::GET, "/o?", first());
        scene.objects.fault(Method::GET, "/o?", second);
        assert_eq!(store.list("a&b", None).await.unwrap_err().as_str(), word);
    }
    scene.objects.fault(Method::GET, "/o?", first());
    for _attempt in 0..3 {
        scene.objects.fault(Method::GET, "/o?", Fault::Answer(500, None, String::new()));
    }
    assert_eq!(store.list("a&b", None).await.unwrap_err().as_str(), "transport");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_signs_with_a_token_it_keeps_until_shortly_before_its_end() {
    let scene = Scene::new().await;
    let (instance, _listening, spec) = instance(&scene).await;
    let store = scene.store_of(&spec);
    let exchanges = || instance.exchanges.load(Ordering::SeqCst);
    assert_eq!(exchanges(), 0, "nothing is asked before it is needed");
    let put = |name: &'static str| {
        let store = Arc::clone(&store);
        async move { store.put(&key(name), body("1"), None).await }
    };
    let all = tokio::join!(put("a"), put("b"), put("c"), put("d"));
    assert_eq!(all, (Ok(()), Ok(()), Ok(()), Ok(())));
    assert_eq!(exchanges(), 1, "one for all who ask at once");
    let first = scene.objects.seen();
    assert!(first[0].key_id.starts_with("ST$"));
    assert!(first.iter().all(|seen| seen.key_id == first[0].key_id));

    let tick = |ms: u64| {
        scene.clock.set(NOW_MS + ms);
        scene.objects.clock.set(NOW_MS + ms);
    };
    tick(TOKEN_S * 1_000 - 120_001);
    put("a").await.unwrap();
    assert_eq!(exchanges(), 1);
    tick(TOKEN_S * 1_000 - 120_000);
    put("a").await.unwrap();
    assert_eq!(exchanges(), 2);
    let later = scene.objects.seen();
    assert_eq!(later[0].key_id, first[0].key_id);
    assert_ne!(later[1].key_id, first[0].key_id);
    assert_eq!(*instance.refused.lock().unwrap(), Vec::<&str>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_is_not_taken_is_exchanged_once() {
    let scene = Scene::new().await;
    let (instance, _listening, spec) = instance(&scene).await;
    let store = scene.store_of(&spec);
    let exchanges = || instance.exchanges.load(Ordering::SeqCst);
    store.put(&key("a"), body("1"), None).await.unwrap();
    scene.objects.distrust_all();
    store.put(&key("a"), body("1"), None).await.unwrap();
    assert_eq!(exchanges(), 2);
    assert_eq!(scene.objects.unsigned(), ["nobody's key"]);

    *instance.tokens_count.lock().unwrap() = false;
    scene.objects.distrust_all();
    let why = "401 NotAuthenticated: NotAuthenticated it is".to_owned();
    let put = store.put(&key("a"), body("1"), None).await;
    assert_eq!(put, Err(BlobError::Forbidden(why)));
    assert_eq!(exchanges(), 3);
    assert_eq!(scene.objects.unsigned(), ["nobody's key"; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_without_a_token_says_why() {
    let scene = Scene::new().await;
    let (instance, _listening, spec) = instance(&scene).await;
    let store = scene.store_of(&spec);
    let put = async || store.put(&key("a"), body("1"), None).await.unwrap_err();
    let misconfigured = |why: &str| BlobError::Misconfigured(format!("instance principal{why}"));
    let other = pem("CERTIFICATE", b"0");
    let metadata = [
        ("identity/cert.pem", 404, "", misconfigured(", identity/cert.pem: 404")),
        ("identity/cert.pem", 200, "", misconfigured(": cert.pem is empty")),
        ("identity/cert.pem", 200, &other, misconfigured(": cert.pem: the certificate ends early")),
        (
            "identity/key.pem",
            200,
            "none",
            misconfigured(": the instance's key must be a private key in PEM, not encrypted"),
        ),
        (
            "identity/key.pem",
            500,
            "",
            BlobError::Transport("instance principal, identity/key.pem: 500".to_owned()),
        ),
    ];
    for (what, status, body, expected) in metadata {
        *instance.instead.lock().unwrap() = Some((what, status, body.to_owned()));
        assert_eq!(put().await, expected, "{what} {body}");
    }
    // The key of another certificate signs nothing here.
    let another = ("identity/key.pem", 200, OTHER_KEY.pkcs8.clone());
    *instance.instead.lock().unwrap() = Some(another);
    let denied = "instance principal, x509: 401 NotAuthenticated: NotAuthenticated it is";
    assert_eq!(put().await, BlobError::Forbidden(denied.to_owned()));
    assert_eq!(std::mem::take(&mut *instance.refused.lock().unwrap()), ["another signature"]);
    *instance.instead.lock().unwrap() = None;

    let tokens = [
        (200, "{}", misconfigured(": the federation endpoint gave no token")),
        (
            200,
            r#"{"token":"h.eyJleHAiOjF9.\n"}"#,
            misconfigured(": the federation endpoint gave no session token"),
        ),
        (
            200,
            r#"{"token":"one"}"#,
            misconfigured(": the federation endpoint gave no session token"),
        ),
        (412, "", misconfigured(", x509: 412")),
        (404, "", misconfigured(", x509: 404")),
        (503, "", BlobError::Transport("instance principal, x509: 503".to_owned())),
    ];
    for (status, body, expected) in tokens {
        *instance.no_token.lock().unwrap() = Some((status, body.to_owned()));
        assert_eq!(put().await, expected, "{status} {body}");
    }
    *instance.no_token.lock().unwrap() = None;

    scene.clock.set(NOW_MS - 360_000);
    assert_eq!(put().await, BlobError::ClockSkew { ahead_s: -360 });
    assert_eq!(*instance.refused.lock().unwrap(), ["another date"]);
    scene.clock.set(NOW_MS);
    store.put(&key("a"), body("1"), None).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_whose_region_is_not_told_says_which_it_is() {
    let scene = Scene::new().await;
    let (instance, _listening, spec) = instance(&scene).await;
    let store = scene.store_of(&OciSpec { federation_endpoint: None, ..spec });
    for (said, why) in [
        (
            r#"{"canonicalRegionName":"no region"}"#,
            "region: must be http:// or https://, a host and a port at most",
        ),
        (
            r#"{"region":"phx"}"#,
            "the instance's metadata: missing field `canonicalRegionName` at line 1 column 16",
        ),
    ] {
        *instance.instead.lock().unwrap() = Some(("instance/", 200, said.to_owned()));
        let error = BlobError::Misconfigured(format!("instance principal: {why}"));
        assert_eq!(store.put(&key("a"), body("1"), None).await, Err(error));
    }
}

#[tokio::test]
async fn a_session_token_signs_as_it_is_told() {
    let scene = Scene::new().await;
    scene.objects.distrust_all();
    scene.objects.trust("ST$a.b.c", &OTHER_KEY.public);
    let spec = OciSpec {
        auth: OciAuth::SessionToken,
        key_id: Some("ST$a.b.c".to_owned()),
        private_key: Some(OTHER_KEY.pkcs8.clone()),
        ..scene.spec()
    };
    let store = scene.store_of(&spec);
    store.put(&key("a"), body("1"), None).await.unwrap();
    assert_eq!(scene.objects.seen()[0].key_id, "ST$a.b.c");
    // Whoever renews it is not this node: it is not tried again.
    scene.objects.distrust_all();
    assert_eq!(store.get(&key("a"), None).await.unwrap_err().as_str(), "forbidden");
    assert_eq!(scene.objects.unsigned(), ["nobody's key"]);
}

#[tokio::test]
async fn a_spec_says_which_key_of_it_is_wrong() {
    let scene = Scene::new().await;
    type Change = fn(&mut OciSpec);
    let wrong: [(Change, &str); 22] = [
        (|s| s.namespace.clear(), "namespace: must be 1 to 256 letters, digits, '-', '_' and '.'"),
        (|s| s.bucket = "a/b".into(), "bucket: must be 1 to 256 letters, digits, '-', '_' and '.'"),
        (|s| s.bucket = "..".into(), "bucket: must be 1 to 256 letters, digits, '-', '_' and '.'"),
        (|s| s.endpoint = None, "region: is required without an endpoint"),
        (|s| s.region = Some("a.b".into()), "region: must be a name such as us-ashburn-1"),
        (|s| s.region = Some(String::new()), "region: must be a name such as us-ashburn-1"),
        (|s| s.endpoint = Some("ftp://h".into()), ENDPOINT),
        (|s| s.endpoint = Some("host".into()), ENDPOINT),
        (|s| s.endpoint = Some("https://h/path".into()), ENDPOINT),
        (|s| s.endpoint = Some("https://u:p@h".into()), ENDPOINT),
        (|s| s.endpoint = Some("https://h?q".into()), ENDPOINT),
        (|s| s.tenancy_ocid = None, "tenancy_ocid: is required"),
        (
            |s| s.user_ocid = Some("a b".into()),
            "user_ocid: must be printable, without spaces and quotes",
        ),
        (
            |s| s.key_fingerprint = Some("\"".into()),
            "key_fingerprint: must be printable, without spaces and quotes",
        ),
        (|s| s.private_key = None, "private_key: must be a private key in PEM, not encrypted"),
        (
            |s| s.private_key = Some(pem("PRIVATE KEY", b"0")),
            "private_key: must be an RSA key of 2048 to 8192 bits, in PKCS#1 or PKCS#8",
        ),
        (
            |s| s.private_key = Some(pem("EC PRIVATE KEY", b"0")),
            "private_key: must be an RSA key of 2048 to 8192 bits, in PKCS#1 or PKCS#8",
        ),
        (|s| s.auth = OciAuth::SessionToken, "key_id: is required"),
        (
            |s| {
                s.auth = OciAuth::SessionToken;
                s.key_id = Some("a".into())
            },
            "key_id: must be ST$ and a session token",
        ),
        (
            |s| {
                s.auth = OciAuth::InstancePrincipal;
                s.metadata_endpoint = Some("h".into())
            },
            "metadata_endpoint: must be http:// or https://, a host and a port at most",
        ),
        (
            |s| {
                s.auth = OciAuth::InstancePrincipal;
                s.federation_endpoint = Some("http://h/v1/x509".into())
            },
            "federation_endpoint: must be http:// or https://, a host and a port at most",
        ),
        (
            |s| s.sse = Some(Sse::Kms { key_id: String::new() }),
            "sse.key_id: must be the OCID of a key",
        ),
    ];
    for (change, text) in wrong {
        let mut spec = scene.spec();
        change(&mut spec);
        let error = open(&spec, BlobScope::Backup, &scene.world).err().expect(text);
        assert_eq!(error.to_string(), text);
    }
    let region = Some("us-ashburn-1".to_owned());
    let spec = OciSpec { endpoint: None, region, ..scene.spec() };
    assert!(open(&spec, BlobScope::Backup, &scene.world).is_ok());
}

const ENDPOINT: &str = "endpoint: must be http:// or https://, a host and a port at most";

#[test]
fn a_spec_is_read_and_a_misspelled_key_is_none() {
    let spec: OciSpec = serde_json::from_value(json!({
        "region": "us-ashburn-1",
        "namespace": "n",
        "bucket": "b",
        "auth": "instance_principal",
        "sse": { "type": "kms", "key_id": "k" },
        "retries": 7,
    }))
    .unwrap();
    let mut expected = OciSpec {
        region: Some("us-ashburn-1".to_owned()),
        namespace: "n".to_owned(),
        bucket: "b".to_owned(),
        auth: OciAuth::InstancePrincipal,
        sse: Some(Sse::Kms { key_id: "k".to_owned() }),
        ..OciSpec::default()
    };
    expected.transport.retries = 7;
    assert_eq!(spec, expected);
    let written = serde_json::to_value(&spec).unwrap();
    assert_eq!(serde_json::from_value::<OciSpec>(written).unwrap(), expected);
    for misspelled in [
        json!({ "buckets": "b" }),
        json!({ "retrys": 1 }),
        json!({ "auth": "none" }),
        json!({ "sse": { "type": "aes256", "key_id": "k" } }),
    ] {
        let shown = misspelled.to_string();
        assert!(serde_json::from_value::<OciSpec>(misspelled).is_err(), "{shown}");
    }
}

#[test]
fn a_spec_shows_no_secret() {
    let secret = "very-secret".to_owned();
    let spec = OciSpec {
        private_key: Some(secret.clone()),
        key_id: Some(secret.clone()),
        ..OciSpec::default()
    };
    assert!(!format!("{spec:?}").contains(&secret));
}
