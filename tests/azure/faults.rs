//! What breaks between the adapter and Azurite, and what becomes of each verb.

use std::net::SocketAddr;
use std::sync::Arc;

use ankusa_actors::ports::BlobScope;
use ankusa_node::blob::azure::{AzureSpec, Environment, open_in};

use super::azure::access::ACCOUNT;
use super::azure::azurite::Azurite;
use super::fault_table::{Subject, holds_for, uploads_hold_for};

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
        checks_whole_reads: true,
    };
    (azurite, subject)
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
