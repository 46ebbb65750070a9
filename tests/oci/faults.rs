//! What breaks between the adapter and the server, and what becomes of each verb.

use std::sync::Arc;

use ankusa_actors::ports::{BlobScope, Clock};
use ankusa_node::blob::oci::{OciSpec, open};
use ankusa_node::host::HostClock;

use crate::fault_table::{Subject, holds_for, uploads_hold_for};
use crate::oci::Scene;

fn subject(scene: &Scene) -> Subject {
    // The proxy tells the date too, where it answers itself.
    scene.objects.clock.set(HostClock.now_ms());
    let (spec, objects) = (scene.spec(), Arc::clone(&scene.objects));
    Subject {
        upstream: scene.listening.url.strip_prefix("http://").unwrap().parse().unwrap(),
        open: Box::new(move |port, transport, world| {
            // The server takes what is signed for it, and knows it by its names.
            objects.is_behind(format!("127.0.0.1:{port}"));
            let endpoint = Some(format!("http://127.0.0.1:{port}"));
            let spec = OciSpec { endpoint, transport, ..spec.clone() };
            open(&spec, BlobScope::Segments, &world).unwrap()
        }),
        checks_whole_reads: true,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_has_its_answer() {
    let scene = Scene::new().await;
    holds_for(subject(&scene)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_sent_again_and_an_upload_that_is_refused_leaves_nothing() {
    let scene = Scene::new().await;
    uploads_hold_for(subject(&scene)).await;
    // Of one whose beginning was not heard of nobody knows the name: a rule of the bucket ends it.
    assert_eq!(scene.objects.uploads(), 1);
}
