//! What breaks between the adapter and the server, and what becomes of each verb.

use std::sync::Arc;

use ankusa_actors::ports::{BlobScope, Clock};
use ankusa_drills_proxy::Fault;
use ankusa_node::blob::oci::{OciSpec, open};
use ankusa_node::host::HostClock;
use serde_json::json;

use crate::fault_table::{
    Clocks, Page, Subject, credentials_are_renewed_for, dropped_uploads_are_taken_back_by,
    holds_for, uploads_hold_for,
};
use crate::oci::Scene;
use crate::oci::instance::instance;

fn subject(scene: &Scene) -> Subject {
    subject_of(scene, scene.spec())
}

fn subject_of(scene: &Scene, spec: OciSpec) -> Subject {
    // The proxy tells the date too, where it answers itself.
    scene.objects.clock.set(HostClock.now_ms());
    let objects = Arc::clone(&scene.objects);
    Subject {
        upstream: scene.listening.url.strip_prefix("http://").unwrap().parse().unwrap(),
        open: Box::new(move |port, transport, world| {
            // The server takes what is signed for it, and knows it by its names.
            objects.is_behind(format!("127.0.0.1:{port}"));
            let endpoint = Some(format!("http://127.0.0.1:{port}"));
            let spec = OciSpec { endpoint, transport, ..spec.clone() };
            open(&spec, BlobScope::Segments, &world).unwrap()
        }),
        digest: ("content-md5", "AAAAAAAAAAAAAAAAAAAAAA=="),
        clocks: Clocks::Server,
        page,
        // The next page begins with a name, which may have been deleted meanwhile: one that begins later may be it.
        pages_say_which: false,
        part: "uploadPartNum=",
        last: 4,
        asks_how_far: false,
    }
}

fn page(page: &Page<'_>) -> String {
    let object = |key: &String| json!({"name": key, "size": Page::BYTES});
    let objects: Vec<_> = page.keys.iter().map(object).collect();
    json!({"objects": objects, "nextStartWith": page.next}).to_string()
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

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_in_the_middle_leaves_no_upload_behind() {
    let scene = Scene::new().await;
    let left = async || scene.objects.uploads();
    dropped_uploads_are_taken_back_by(subject(&scene), left).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_has_expired_is_exchanged_anew_and_the_request_sent_once_more() {
    let scene = Scene::new().await;
    let (_instance, _listening, spec) = instance(&scene).await;
    let body = json!({"code": "NotAuthenticated", "message": "It has expired."}).to_string().into();
    let expired = Fault::Answer { status: 401, headers: vec![], body };
    credentials_are_renewed_for(subject_of(&scene, spec), expired).await;
}
