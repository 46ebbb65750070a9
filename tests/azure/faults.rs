//! What breaks between the adapter and Azurite, and what becomes of each verb.

use std::net::SocketAddr;
use std::sync::Arc;

use ankusa_actors::ports::BlobScope;
use ankusa_drills_proxy::Fault;
use ankusa_node::blob::azure::{AzureAuth, AzureSpec, Environment, open_in};

use super::azure::access::ACCOUNT;
use super::azure::azurite::Azurite;
use super::azure::fake::{Fake, answer, hand_on};
use super::fault_table::{
    Clocks, Page, Subject, credentials_are_renewed_for, holds_for, uploads_hold_for,
};

async fn subject() -> (Arc<Azurite>, Subject) {
    let azurite = Azurite::shared();
    let container = azurite.container().await;
    let spec = azurite.spec(&container);
    let url = url::Url::parse(&azurite.endpoint).unwrap();
    let subject = Subject {
        upstream: SocketAddr::from(([127, 0, 0, 1], url.port().unwrap())),
        open: Box::new(move |port, transport, world| {
            let endpoint = Some(format!("http://127.0.0.1:{port}/{ACCOUNT}"));
            let spec = AzureSpec { endpoint, transport, ..spec.clone() };
            open_in(&spec, BlobScope::Segments, &world, &Environment::default()).unwrap()
        }),
        digest: ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        // A shared access signature has no date; a token has, and this is what the service says of it.
        clocks: Clocks::Provider(failed(403, "AuthenticationFailed")),
        page,
        pages_say_which: true,
        part: "comp=block&",
        last: 3,
        asks_how_far: false,
    };
    (azurite, subject)
}

fn failed(status: u16, code: &str) -> Fault {
    let headers = vec![("x-ms-error-code".to_owned(), code.to_owned())];
    Fault::Answer { status, headers, body: Vec::new() }
}

fn page(page: &Page<'_>) -> String {
    let object = |key: &String| {
        format!(
            "<Blob><Name>{key}</Name><Properties><Content-Length>{}</Content-Length></Properties></Blob>",
            Page::BYTES
        )
    };
    let this = page.this.map_or_else(String::new, |marker| format!("<Marker>{marker}</Marker>"));
    format!(
        "\u{feff}<?xml version=\"1.0\" encoding=\"utf-8\"?><EnumerationResults>{this}\
         <Blobs>{}</Blobs><NextMarker>{}</NextMarker></EnumerationResults>",
        page.keys.iter().map(object).collect::<String>(),
        page.next.unwrap_or_default(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_has_its_answer() {
    let (_azurite, subject) = subject().await;
    holds_for(subject).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_sent_again_and_an_upload_that_is_refused_leaves_nothing() {
    let (_azurite, subject) = subject().await;
    uploads_hold_for(subject).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_has_expired_is_fetched_anew_and_the_request_sent_once_more() {
    let (azurite, subject) = subject().await;
    let container = azurite.container().await;
    let origin = azurite.endpoint.strip_suffix(&format!("/{ACCOUNT}")).unwrap().to_owned();
    // Azurite takes no token without TLS: whoever has one is let in by a signature.
    let sas = azurite.spec(&container).sas_token.unwrap();
    let door = Fake::start(move |mut asked| {
        let (origin, sas) = (origin.clone(), sas.clone());
        async move {
            let bearer = asked.headers.remove("authorization").expect("a token is sent");
            assert!(bearer.to_str().unwrap().starts_with("Bearer token-"));
            let joint = if asked.target.contains('?') { '&' } else { '?' };
            asked.target = format!("{}{joint}{sas}", asked.target);
            hand_on(&origin, &asked).await
        }
    })
    .await;
    let metadata = Fake::start(|_| async {
        let body = r#"{"access_token":"token-1","expires_on":"4070908800","token_type":"Bearer"}"#;
        answer(200, &[], body)
    })
    .await;
    let machine = metadata.origin.clone();
    let subject = Subject {
        upstream: door.origin.strip_prefix("http://").unwrap().parse().unwrap(),
        open: Box::new(move |port, transport, world| {
            let spec = AzureSpec {
                container: container.clone(),
                endpoint: Some(format!("http://127.0.0.1:{port}/{ACCOUNT}")),
                auth: AzureAuth::ManagedIdentity,
                transport,
                ..AzureSpec::default()
            };
            let environment =
                Environment { metadata_host: Some(machine.clone()), ..Environment::default() };
            open_in(&spec, BlobScope::Segments, &world, &environment).unwrap()
        }),
        ..subject
    };
    credentials_are_renewed_for(subject, failed(401, "InvalidAuthenticationInfo")).await;
}
