use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ankusa_actors::ports::{Blob, BlobBody, BlobError, BlobScope, Clock};
use ankusa_node::blob::azure::{AzureAuth, AzureSpec, Environment, open_in};
use bytes::Bytes;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, ObjectStoreExt};

use super::azure::access::{ACCOUNT, token};
use super::azure::azurite::Azurite;
use super::azure::fake::{Answer, Asked, Fake, answer, refusal};
use super::azure::{PART_BYTES, key, noise, with_small_parts, world, world_at};

const AUDIENCE: &str = "https://storage.azure.com";

fn given(token: &str) -> Answer {
    let body = format!(
        r#"{{"access_token":"{token}","client_id":"c","expires_in":"86399","expires_on":"1796119199",
        "ext_expires_in":"86399","not_before":"1796032500","resource":"https://storage.azure.com/",
        "token_type":"Bearer"}}"#
    );
    answer(200, &[("content-type", "application/json; charset=utf-8")], body)
}

fn spec(endpoint: &str) -> AzureSpec {
    with_small_parts(AzureSpec {
        container: "container".into(),
        endpoint: Some(endpoint.to_owned()),
        auth: AzureAuth::ManagedIdentity,
        ..AzureSpec::default()
    })
}

/// The machine's metadata server is this.
fn machine(metadata: &Fake) -> Environment {
    Environment { metadata_host: Some(metadata.origin.clone()), ..Environment::default() }
}

fn store(service: &Fake, metadata: &Fake) -> Arc<dyn Blob> {
    open_in(&spec(&service.origin), BlobScope::Backup, &world(), &machine(metadata)).unwrap()
}

fn bearers(fake: &Fake) -> Vec<String> {
    let bearer = |asked: &Asked| asked.header("authorization").unwrap().to_owned();
    fake.take_asked().iter().map(bearer).collect()
}

#[tokio::test]
async fn a_machine_proves_who_it_is_with_tokens_of_its_identity() {
    let azurite = Azurite::with_tokens();
    let container = azurite.container().await;
    let metadata = Fake::start(|_| async { given(&token(AUDIENCE)) }).await;
    let mut spec = AzureSpec { container: container.clone(), ..spec(&azurite.endpoint) };
    spec.transport.cacertfile = Some(azurite.folder.path().join("authority.pem"));
    let opened = |spec: &AzureSpec, metadata: &Fake| {
        open_in(spec, BlobScope::Segments, &world(), &machine(metadata)).unwrap()
    };
    let store = opened(&spec, &metadata);
    let large = Bytes::from(noise(1, PART_BYTES + 9));
    store.put(&key("small"), b"1"[..].into(), None).await.unwrap();
    store.put_if_absent(&key("large"), BlobBody::from(large.clone()), None).await.unwrap();
    let other = store.put_if_absent(&key("small"), b"2"[..].into(), None).await;
    assert_eq!(other, Err(BlobError::AlreadyExists));
    assert!(store.get(&key("large"), None).await.unwrap() == large);
    assert_eq!(store.list("", None).await.unwrap().len(), 2);
    let asked = metadata.take_asked();
    let token_path = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fstorage.azure.com%2F";
    assert_eq!(asked.len(), 1, "one token was enough");
    assert_eq!((asked[0].method.as_str(), asked[0].target.as_str()), ("GET", token_path));
    assert_eq!(asked[0].header("metadata"), Some("true"));

    // Another client takes the same answers for tokens.
    let theirs = MicrosoftAzureBuilder::new()
        .with_account(ACCOUNT)
        .with_endpoint(azurite.endpoint.clone())
        .with_container_name(&container)
        .with_msi_endpoint(format!("{}/metadata/identity/oauth2/token", metadata.origin))
        .with_client_options(
            ClientOptions::new()
                .with_root_certificate(Certificate::from_pem(&azurite.authority()).unwrap())
                .with_allow_http(true),
        )
        .build()
        .unwrap();
    let read = theirs.get(&Path::from("large")).await.unwrap().bytes().await.unwrap();
    assert!(read == large);

    // A token for something else, and a service whose certificate nobody vouches for.
    let foreign = Fake::start(|_| async { given(&token("https://vault.azure.net")) }).await;
    let refused = opened(&spec, &foreign).get(&key("small"), None).await.unwrap_err();
    assert_eq!(refused.as_str(), "forbidden", "{refused}");
    spec.transport.cacertfile = None;
    let stranger = opened(&spec, &metadata).get(&key("small"), None).await.unwrap_err();
    assert_eq!(stranger.as_str(), "transport", "{stranger}");
}

#[tokio::test]
async fn all_who_need_a_token_at_once_get_the_same() {
    let service = Fake::start(|_| async { answer(200, &[], "1") }).await;
    let metadata = Fake::scripted(vec![given("first"), given("second")]).await;
    let store = store(&service, &metadata);
    let k = key("k");
    let gets = tokio::join!(store.get(&k, None), store.get(&k, None), store.get(&k, None));
    assert!(gets.0.is_ok() && gets.1.is_ok() && gets.2.is_ok());
    assert_eq!(bearers(&service), ["Bearer first"; 3]);
    assert_eq!(metadata.take_asked().len(), 1);
}

/// Stands still until it is set.
struct At(AtomicU64);

impl Clock for At {
    fn now_ms(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn a_token_is_renewed_shortly_before_its_end() {
    let service = Fake::start(|_| async { answer(200, &[], "1") }).await;
    let metadata = Fake::scripted(vec![given("first"), refusal(500, ""), given("second")]).await;
    let clock = Arc::new(At(AtomicU64::new(1_000_000_000)));
    let world = world_at(Arc::clone(&clock) as Arc<dyn Clock>);
    let store =
        open_in(&spec(&service.origin), BlobScope::Claims, &world, &machine(&metadata)).unwrap();
    let k = key("k");
    // 86,399 s less the five minutes, to the millisecond; then one that cannot be had yet.
    for after_ms in [0, 86_098_999, 1, 0] {
        clock.0.fetch_add(after_ms, Ordering::SeqCst);
        store.get(&k, None).await.unwrap();
    }
    let expected = ["Bearer first", "Bearer first", "Bearer first", "Bearer second"];
    assert_eq!(bearers(&service), expected);
    assert_eq!(metadata.take_asked().len(), 3);
}

#[tokio::test]
async fn a_token_that_is_not_taken_is_dropped_and_another_tried_once() {
    let unauthorized = || refusal(401, "InvalidAuthenticationInfo");
    let service = Fake::scripted(vec![unauthorized(), answer(200, &[], "1")]).await;
    let metadata = Fake::scripted(vec![given("first"), given("second")]).await;
    let store_of = store(&service, &metadata);
    assert_eq!(store_of.get(&key("k"), None).await.unwrap(), "1");
    assert_eq!(bearers(&service), ["Bearer first", "Bearer second"]);
    store_of.get(&key("k"), None).await.unwrap();
    assert_eq!(bearers(&service), ["Bearer second"]);

    let service = Fake::scripted(vec![unauthorized()]).await;
    let metadata = Fake::scripted(vec![given("se-cret"), given("second")]).await;
    let refused = store(&service, &metadata).get(&key("k"), None).await.unwrap_err();
    let told = "401 InvalidAuthenticationInfo: Why.";
    assert_eq!(refused, BlobError::Forbidden(told.to_owned()));
    assert_eq!(bearers(&service), ["Bearer se-cret", "Bearer second"]);

    // One that is known, and may not, is as good as any other.
    let service = Fake::scripted(vec![refusal(403, "AuthorizationPermissionMismatch")]).await;
    let metadata = Fake::scripted(vec![given("first")]).await;
    let refused = store(&service, &metadata).get(&key("k"), None).await.unwrap_err();
    assert_eq!((refused.as_str(), service.take_asked().len()), ("forbidden", 1));
}

#[tokio::test]
async fn a_metadata_server_that_is_restarted_is_asked_again_and_one_that_knows_no_identity_is_not()
{
    let service = Fake::start(|_| async { answer(200, &[], "1") }).await;
    let metadata =
        Fake::scripted(vec![refusal(404, ""), answer(200, &[], "{"), given("first")]).await;
    assert_eq!(store(&service, &metadata).get(&key("k"), None).await.unwrap(), "1");
    assert_eq!(
        (bearers(&service), metadata.take_asked().len()),
        (vec!["Bearer first".to_owned()], 3)
    );

    let unknown = r#"{"error":"invalid_request","error_description":"Identity not found"}"#;
    let metadata = Fake::scripted(vec![answer(400, &[], unknown)]).await;
    let refused = store(&service, &metadata).get(&key("k"), None).await;
    let told = "no token of the identity: 400 invalid_request: Identity not found";
    assert_eq!(refused, Err(BlobError::Forbidden(told.to_owned())));
    assert_eq!((service.take_asked().len(), metadata.take_asked().len()), (0, 1));

    let metadata = Fake::scripted(vec![None]).await;
    let silent = store(&service, &metadata).get(&key("k"), None).await.unwrap_err();
    assert_eq!(silent.as_str(), "transport", "{silent}");
    assert_eq!((service.take_asked().len(), metadata.take_asked().len()), (0, 3));
}

#[tokio::test]
async fn an_app_asks_its_own_endpoint_with_its_own_secret() {
    let service = Fake::start(|_| async { answer(200, &[], "1") }).await;
    let body = r#"{"access_token":"app","expires_on":"4070908800","resource":"https://storage.azure.com/","token_type":"Bearer"}"#;
    let app = Fake::start(move |_| async move { answer(200, &[], body) }).await;
    let variables = |name: &str| match name {
        "IDENTITY_ENDPOINT" => Some(format!("{}/msi/token", app.origin)),
        "IDENTITY_HEADER" => Some("853b9a84".to_owned()),
        _ => None,
    };
    let spec = AzureSpec { client_id: Some("5E29".into()), ..spec(&service.origin) };
    let environment = Environment::of(variables);
    let store = open_in(&spec, BlobScope::Segments, &world(), &environment).unwrap();
    store.get(&key("k"), None).await.unwrap();
    assert_eq!(bearers(&service), ["Bearer app"]);
    let asked = app.take_asked();
    let target = "/msi/token?api-version=2019-08-01&resource=https%3A%2F%2Fstorage.azure.com%2F&client_id=5E29";
    assert_eq!(asked[0].target, target);
    assert_eq!(asked[0].header("x-identity-header"), Some("853b9a84"));
    assert_eq!(asked[0].header("metadata"), None);
}
