//! What breaks between the adapter and a real server, and what becomes of each verb.

use ankusa_actors::ports::BlobScope;
use ankusa_node::blob::s3::{S3Spec, open};

use super::fault_table::{Subject, holds_for, uploads_hold_for};
use super::s3_servers::{Server, s3s, seaweedfs, spec};

async fn subject(server: &Server, bucket: &'static str) -> Subject {
    server.spec(bucket).await;
    Subject {
        upstream: ([127, 0, 0, 1], server.port).into(),
        open: Box::new(move |port, transport, world| {
            let spec = S3Spec { transport, ..spec(port, bucket) };
            open(&spec, BlobScope::Segments, &world).unwrap()
        }),
        checks_whole_reads: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_has_its_answer() {
    holds_for(subject(seaweedfs(), "fault-table").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_sent_again_and_an_upload_that_is_refused_leaves_nothing() {
    uploads_hold_for(subject(s3s(), "fault-uploads").await).await;
}
