//! Who asks, and what happens when that is not believed any more.

use std::collections::BTreeSet;
use std::sync::Arc;

use ankusa_actors::ports::{Blob, BlobScope};
use ankusa_node::blob::gcs::{GcsAuth, GcsSpec, open};

use super::metadata::MetadataServer;
use super::{Fake, Said, Surroundings, key, spec};

/// A bucket with one object for those who have one of these.
async fn guarded(tokens: &[&str]) -> Fake {
    let fake = Fake::start().await;
    fake.state().insert("k", "x".into(), None);
    allow(&fake, tokens);
    fake
}

fn allow(fake: &Fake, tokens: &[&str]) {
    let tokens: BTreeSet<String> = tokens.iter().map(|&token| token.to_owned()).collect();
    fake.state().tokens = Some(tokens);
}

fn by_metadata(fake: &Fake) -> GcsSpec {
    GcsSpec { auth: GcsAuth::Metadata, ..spec(&fake.url()) }
}

async fn get(store: &Arc<dyn Blob>) -> String {
    let got = store.get(&key("k"), None).await;
    got.map_or_else(|error| error.to_string(), |_bytes| "ok".to_owned())
}

#[tokio::test]
async fn a_token_that_is_given_is_sent_and_nobody_else_is_let_in() {
    let fake = guarded(&["right"]).await;
    let with = |auth, token: Option<&str>| {
        let token = token.map(str::to_owned);
        Surroundings::new().open(&GcsSpec { auth, token, ..spec(&fake.url()) })
    };
    assert_eq!(get(&with(GcsAuth::Token, Some("right"))).await, "ok");
    fake.journal();
    let wrong = get(&with(GcsAuth::Token, Some("wrong"))).await;
    assert_eq!(wrong, "forbidden: 401 authError: Invalid Credentials");
    assert_eq!(fake.journal(), ["get"], "there is no other to try");
    let nobody = get(&with(GcsAuth::None, None)).await;
    assert_eq!(nobody, "forbidden: 401 required: Login Required");
    assert_eq!(fake.journal(), ["get"]);
}

#[tokio::test]
async fn the_machines_token_is_fetched_once_and_anew_a_minute_before_its_end() {
    let fake = guarded(&["one", "two"]).await;
    let (metadata, around) =
        (MetadataServer::start(&[("one", 3_600), ("two", 3_600)]).await, Surroundings::new());
    let store = around.open_at(&by_metadata(&fake), &metadata.host());
    assert_eq!(metadata.given(), 0, "nobody has asked yet");
    let gets = (get(&store), get(&store), get(&store), get(&store));
    let gets = tokio::join!(gets.0, gets.1, gets.2, gets.3);
    assert_eq!(<[String; 4]>::from(gets), ["ok"; 4]);
    assert_eq!(metadata.given(), 1);
    around.clock.step_ms(3_500_000);
    assert_eq!((get(&store).await.as_str(), metadata.given()), ("ok", 1));
    around.clock.step_ms(50_000);
    assert_eq!((get(&store).await.as_str(), metadata.given()), ("ok", 2));
    allow(&fake, &["two"]);
    assert_eq!((get(&store).await.as_str(), metadata.given()), ("ok", 2));
}

#[tokio::test]
async fn a_token_that_is_refused_is_dropped_once() {
    let fake = guarded(&["new"]).await;
    let metadata = MetadataServer::start(&[("old", 3_600), ("new", 3_600)]).await;
    let store = Surroundings::new().open_at(&by_metadata(&fake), &metadata.host());
    assert_eq!(get(&store).await, "ok");
    assert_eq!((fake.journal(), metadata.given()), (vec!["get".to_owned(); 2], 2));
    // Every verb, and within an upload.
    let large = vec![1; 2 * super::STEP];
    for (n, old) in ["new", "newer"].iter().enumerate() {
        let metadata = MetadataServer::start(&[("stale", 9), (old, 3_600)]).await;
        allow(&fake, &[old]);
        let store = Surroundings::new().open_at(&by_metadata(&fake), &metadata.host());
        store.put(&key("large"), large.clone().into(), None).await.unwrap();
        assert_eq!(metadata.given(), 2, "{n}");
    }
    // None that is right: it is asked twice, and not for ever.
    allow(&fake, &[]);
    fake.journal();
    assert_eq!(get(&store).await, "forbidden: 401 authError: Invalid Credentials");
    assert_eq!((fake.journal(), metadata.given()), (vec!["get".to_owned(); 2], 3));
}

#[tokio::test]
async fn a_token_that_ends_within_an_upload_is_renewed_there() {
    let fake = Arc::new(guarded(&["one"]).await);
    let metadata = MetadataServer::start(&[("one", 3_600), ("two", 3_600)]).await;
    let store = Surroundings::new().open_at(&by_metadata(&fake), &metadata.host());
    let refused = Said::error(401, "authError", "Invalid Credentials");
    fake.fault_after(1, "part", super::Fault::Says(refused));
    allow(&fake, &["one", "two"]);
    let large = super::noise(2 * super::STEP + 1);
    store.put(&key("large"), large.clone().into(), None).await.unwrap();
    assert_eq!(fake.bytes_of("large").unwrap(), large);
    assert_eq!(metadata.given(), 2);
}

#[tokio::test]
async fn all_whose_token_was_refused_at_once_come_through() {
    let fake = guarded(&["new"]).await;
    let metadata = MetadataServer::start(&[("old", 3_600), ("new", 3_600)]).await;
    let store = Surroundings::new().open_at(&by_metadata(&fake), &metadata.host());
    let mut gets = tokio::task::JoinSet::new();
    for _ in 0..16 {
        let store = store.clone();
        gets.spawn(async move { get(&store).await });
    }
    while let Some(got) = gets.join_next().await {
        assert_eq!(got.unwrap(), "ok");
    }
}

#[tokio::test]
async fn a_metadata_server_that_fails_is_asked_again_and_one_that_refuses_is_not() {
    let fake = guarded(&["one"]).await;
    let metadata = MetadataServer::start(&[("one", 3_600)]).await;
    let open = || Surroundings::new().open_at(&by_metadata(&fake), &metadata.host());
    metadata.says_once(Said::new(503, "later"));
    assert_eq!(get(&open()).await, "ok");
    metadata.says_once(Said::new(200, "<html>a portal</html>"));
    assert_eq!(get(&open()).await, "ok");
    assert_eq!(fake.journal(), ["get", "get"]);
    metadata.says_once(Said::new(404, "no service account"));
    let refused = "forbidden: the metadata server: 404: no service account";
    assert_eq!(get(&open()).await, refused);
    let nobody = Surroundings::new().open_at(&by_metadata(&fake), "127.0.0.1:9");
    let silent = get(&nobody).await;
    assert!(silent.starts_with("transport: credentials from 127.0.0.1: "), "{silent}");
    assert_eq!(fake.journal(), Vec::<String>::new(), "nothing is asked by nobody");
}

/// Runs itself again, in a process whose environment names another metadata server.
#[tokio::test]
async fn the_environment_may_name_the_metadata_server() {
    const ENDPOINT: &str = "GCS_TEST_ENDPOINT";
    if let Ok(endpoint) = std::env::var(ENDPOINT) {
        let spec = GcsSpec { auth: GcsAuth::Metadata, ..spec(&endpoint) };
        let store = open(&spec, BlobScope::Backup, &Surroundings::new().world).unwrap();
        assert_eq!(get(&store).await, "ok");
        return;
    }
    let fake = guarded(&["one"]).await;
    let metadata = MetadataServer::start(&[("one", 3_600)]).await;
    let mut again = tokio::process::Command::new(std::env::current_exe().unwrap());
    again
        .args(["--exact", "gcs::tokens::the_environment_may_name_the_metadata_server"])
        .env(ENDPOINT, fake.url())
        .env("GCE_METADATA_HOST", metadata.host());
    let output = again.output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((fake.journal(), metadata.given()), (vec!["get".to_owned()], 1));
}
