//! What breaks between the adapter and the server, and what becomes of each verb. The parts of an upload go this way as all
//! requests do: wherever the server says a session is, it is at our endpoint.

use std::net::SocketAddr;

use ankusa_actors::ports::BlobScope;
use ankusa_node::blob::gcs::{GcsSpec, open};

use super::emulators::Emulator;
use super::{Fake, spec};
use crate::fault_table::{Subject, holds_for, uploads_hold_for};

fn subject(upstream: SocketAddr) -> Subject {
    Subject {
        upstream,
        open: Box::new(|port, transport, world| {
            let spec = GcsSpec { transport, ..spec(&format!("http://127.0.0.1:{port}")) };
            open(&spec, BlobScope::Segments, &world).unwrap()
        }),
        checks_whole_reads: true,
    }
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
