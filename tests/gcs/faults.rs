//! What breaks between the adapter and the server, and what becomes of each verb. The parts of an upload go this way as all
//! requests do: wherever the server says a session is, it is at our endpoint.

use std::net::SocketAddr;

use ankusa_actors::ports::BlobScope;
use ankusa_drills_proxy::Fault;
use ankusa_node::blob::gcs::{GcsAuth, GcsSpec, open, open_at};
use serde_json::json;

use super::emulators::Emulator;
use super::metadata::MetadataServer;
use super::{Fake, spec};
use crate::fault_table::{
    Clocks, Page, Subject, credentials_are_renewed_for, dropped_uploads_are_taken_back_by,
    holds_for, uploads_hold_for,
};

fn subject(upstream: SocketAddr) -> Subject {
    Subject {
        upstream,
        open: Box::new(|port, transport, world| {
            let spec = GcsSpec { transport, ..spec(&format!("http://127.0.0.1:{port}")) };
            open(&spec, BlobScope::Segments, &world).unwrap()
        }),
        digest: ("x-goog-hash", "md5=AAAAAAAAAAAAAAAAAAAAAA=="),
        // A token has no date.
        clocks: Clocks::Nobody,
        page,
        // A page without a token is the last one, whatever was asked for: nothing on it says which it is.
        pages_say_which: false,
        part: "upload_id=",
        last: 3,
        asks_how_far: true,
    }
}

fn page(page: &Page<'_>) -> String {
    let item = |key: &String| json!({"name": key, "size": Page::BYTES.to_string()});
    let items: Vec<_> = page.keys.iter().map(item).collect();
    let mut told = json!({"kind": "storage#objects", "items": items});
    if let Some(next) = page.next {
        told["nextPageToken"] = next.into();
    }
    told.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_has_its_answer() {
    let fake = Fake::start().await;
    holds_for(subject(fake.address())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_come_through_before_a_strict_server() {
    let fake = Fake::start().await;
    uploads_hold_for(subject(fake.address())).await;
    // That one's address was lost with the answer to its beginning.
    assert_eq!(fake.state().open_sessions(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn uploads_come_through_before_gcp_storage_emulator() {
    let emulator = Emulator::gcp_storage_emulator().await;
    uploads_hold_for(subject(emulator.address())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_in_the_middle_leaves_no_session_behind() {
    let fake = Fake::start().await;
    let left = async || fake.state().open_sessions();
    dropped_uploads_are_taken_back_by(subject(fake.address()), left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_has_expired_is_fetched_anew_and_the_request_sent_once_more() {
    let fake = Fake::start().await;
    let metadata = MetadataServer::start(&[("one", 3_600)]).await;
    let host = metadata.host();
    let subject = Subject {
        open: Box::new(move |port, transport, world| {
            let spec = spec(&format!("http://127.0.0.1:{port}"));
            let spec = GcsSpec { auth: GcsAuth::Metadata, transport, ..spec };
            open_at(&spec, BlobScope::Segments, &world, &host).unwrap()
        }),
        ..subject(fake.address())
    };
    let said = json!({"error": {"code": 401, "message": "Invalid Credentials",
        "errors": [{"reason": "authError"}]}});
    let body = said.to_string().into();
    credentials_are_renewed_for(subject, Fault::Answer { status: 401, headers: vec![], body })
        .await;
}
