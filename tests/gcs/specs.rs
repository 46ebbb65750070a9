//! What an operator can say, what he cannot, and what is asked of the store for it.

use ankusa_actors::ports::BlobScope;
use ankusa_node::blob::gcs::{GcsAuth, GcsSpec, open_at};
use ankusa_node::blob::options::{Sse, TransportOptions};
use serde_json::json;

use super::crosscheck::Raw;
use super::{BUCKET, Fake, STEP, Surroundings, key, noise, spec};

fn read(value: serde_json::Value) -> Result<GcsSpec, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

/// What is wrong with it, if it can be read.
fn mistake(spec: &GcsSpec) -> String {
    let opened = open_at(spec, BlobScope::Claims, &Surroundings::new().world, "metadata.invalid");
    opened.map(drop).unwrap_err().to_string()
}

#[test]
fn a_section_is_read_with_its_defaults() {
    let bare = GcsSpec { bucket: "b".to_owned(), ..GcsSpec::default() };
    assert_eq!(read(json!({"bucket": "b"})), Ok(bare));
    let full = json!({
        "bucket": "b", "endpoint": "http://127.0.0.1:1", "auth": "token", "token": "t",
        "sse": {"type": "kms", "key_id": "projects/p/k"}, "retries": 7, "pool_size": 3,
    });
    let expected = GcsSpec {
        bucket: "b".to_owned(),
        endpoint: "http://127.0.0.1:1".to_owned(),
        auth: GcsAuth::Token,
        token: Some("t".to_owned()),
        sse: Some(Sse::Kms { key_id: "projects/p/k".to_owned() }),
        transport: TransportOptions { retries: 7, pool_size: 3, ..TransportOptions::default() },
    };
    assert_eq!(read(full), Ok(expected.clone()));
    assert_eq!(read(serde_json::to_value(&expected).unwrap()), Ok(expected.clone()));
    assert!(!format!("{expected:?}").contains("\"t\""), "{expected:?}");
}

#[test]
fn what_is_misspelled_is_no_section() {
    for wrong in [
        json!({"buckets": "b"}),
        json!({"retrys": 7}),
        json!({"auth": "metadatas"}),
        json!({"sse": {"type": "aes"}}),
        json!({"sse": {"type": "kms"}}),
        json!({"sse": {"type": "kms", "key": "k"}}),
        json!({"sse": {"type": "aes256", "key_id": "k"}}),
        json!({"sse": "kms"}),
    ] {
        assert!(read(wrong.clone()).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn each_mistake_names_its_key() {
    let right = spec("http://127.0.0.1:1");
    let with = |change: &dyn Fn(&mut GcsSpec)| {
        let mut spec = right.clone();
        change(&mut spec);
        mistake(&spec)
    };
    let name = "bucket: must be the name of a bucket: lower-case letters, digits, '-', '_' and '.'";
    for bucket in ["", "A", "a/b", "a b", "ü"] {
        assert_eq!(with(&|spec| spec.bucket = bucket.to_owned()), name);
    }
    for (endpoint, why) in [
        ("", "endpoint: relative URL without a base"),
        ("ftp://h", "endpoint: must be an http or https address"),
        ("http://u:p@h", "endpoint: must hold no credentials"),
        ("http://h/?a=b", "endpoint: must end with its path"),
    ] {
        assert_eq!(with(&|spec| spec.endpoint = endpoint.to_owned()), why);
    }
    let required = with(&|spec| spec.auth = GcsAuth::Token);
    assert_eq!(required, "token: is required with auth: token");
    for token in ["", "a b", "a\n", "ä"] {
        let wrong = with(&|spec| {
            spec.auth = GcsAuth::Token;
            spec.token = Some(token.to_owned());
        });
        assert_eq!(wrong, "token: must be an access token");
    }
    for auth in [GcsAuth::None, GcsAuth::Metadata] {
        let unused = with(&|spec| {
            spec.auth = auth;
            spec.token = Some("t".to_owned());
        });
        assert_eq!(unused, "token: is used with auth: token alone");
    }
    for key_id in ["", "a\nb"] {
        let wrong = with(&|spec| spec.sse = Some(Sse::Kms { key_id: key_id.to_owned() }));
        assert_eq!(wrong, "sse.key_id: must be the name of a Cloud KMS key");
    }
    let unread = with(&|spec| spec.transport.cacertfile = Some("/nowhere/ca.pem".into()));
    assert!(unread.starts_with("cacertfile: /nowhere/ca.pem: "), "{unread}");
}

#[tokio::test]
async fn every_put_names_the_key_it_is_encrypted_with() {
    let fake = Fake::start().await;
    let kms_key = "projects/p/locations/l/keyRings/r/cryptoKeys/k";
    let kms = Some(Sse::Kms { key_id: kms_key.to_owned() });
    for (sse, expected) in [(kms, Some(kms_key)), (Some(Sse::Aes256 {}), None), (None, None)] {
        let store = Surroundings::new().open(&GcsSpec { sse, ..spec(&fake.url()) });
        let (small, large) = (noise(10), noise(STEP + 1));
        store.put(&key("small"), small.clone().into(), None).await.unwrap();
        store.put(&key("large"), large.clone().into(), None).await.unwrap();
        store.put_if_absent(&key("new/small"), small.into(), None).await.unwrap();
        store.put_if_absent(&key("new/large"), large.into(), None).await.unwrap();
        let objects = std::mem::take(&mut fake.state().objects);
        let keys: Vec<_> = objects.values().map(|object| object.kms_key.as_deref()).collect();
        assert_eq!(keys, [expected; 4]);
    }
    // The server is told twice, and believes only what is the same.
    let other = Raw::media("k", b"1").with("&kmsKeyName=a");
    assert_eq!(other.run(&fake.url()).await.status, 400);
    assert_eq!(
        other.header("x-goog-encryption-kms-key-name", "a").run(&fake.url()).await.status,
        200
    );
    assert_eq!(fake.bytes_of("k").unwrap(), "1", "in {BUCKET}");
}
