//! What breaks between the adapter and a real server, and what becomes of each verb.

use ankusa_actors::ports::BlobScope;
use ankusa_drills_proxy::Fault;
use ankusa_node::blob::s3::credentials::Environment;
use ankusa_node::blob::s3::{S3Spec, open, open_in};

use super::fault_table::{
    Clocks, Page, Subject, credentials_are_renewed_for, dropped_uploads_are_taken_back_by,
    holds_for, uploads_hold_for,
};
use super::relay::{Act, Relay};
use super::s3_servers::{Server, moto, raw, s3s, seaweedfs, spec};

async fn subject(server: &Server, bucket: &'static str) -> Subject {
    server.spec(bucket).await;
    Subject {
        upstream: ([127, 0, 0, 1], server.port).into(),
        open: Box::new(move |port, transport, world| {
            let spec = S3Spec { transport, ..spec(port, bucket) };
            open(&spec, BlobScope::Segments, &world).unwrap()
        }),
        digest: ("x-amz-checksum-sha256", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="),
        clocks: Clocks::Server,
        page,
        pages_say_which: true,
        part: "partNumber=",
        last: 4,
        asks_how_far: false,
    }
}

fn page(page: &Page<'_>) -> String {
    let object =
        |key: &String| format!("<Contents><Key>{key}</Key><Size>{}</Size></Contents>", Page::BYTES);
    let told = |name: &str, token: Option<&str>| {
        token.map_or_else(String::new, |token| format!("<{name}>{token}</{name}>"))
    };
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\
         <ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name>\
         <EncodingType>url</EncodingType><IsTruncated>{}</IsTruncated>{}{}{}</ListBucketResult>",
        page.next.is_some(),
        page.keys.iter().map(object).collect::<String>(),
        told("ContinuationToken", page.this),
        told("NextContinuationToken", page.next),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn every_fault_has_its_answer() {
    holds_for(subject(seaweedfs(), "fault-table").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_are_sent_again_and_an_upload_that_is_refused_leaves_nothing() {
    uploads_hold_for(subject(s3s(), "fault-uploads").await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_put_that_is_dropped_in_the_middle_leaves_no_upload_behind() {
    let server = seaweedfs();
    let subject = subject(server, "fault-drops").await;
    dropped_uploads_are_taken_back_by(subject, async || {
        let uploads = raw(server.port, "GET", "/fault-drops?uploads=", &[], b"").await;
        assert_eq!(uploads.status, 200, "{}", uploads.body);
        uploads.body.matches("<UploadId>").count()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_have_expired_are_fetched_anew_and_the_request_sent_once_more() {
    let server = moto();
    raw(server.port, "PUT", "/fault-keys", &[], b"").await;
    let metadata = Relay::before_as(server.port, "169.254.169.254").await;
    let endpoint = format!("http://127.0.0.1:{}", metadata.port);
    let table = subject(server, "fault-keys").await;
    let subject = Subject {
        open: Box::new(move |port, transport, world| {
            let spec = S3Spec {
                access_key_id: None,
                secret_access_key: None,
                transport,
                ..spec(port, "fault-keys")
            };
            let environment =
                Environment::of(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", endpoint.as_str())]);
            open_in(&spec, BlobScope::Segments, &world, &environment).unwrap()
        }),
        ..table
    };
    let Act::Answer(status, _, body) = Act::error(400, "ExpiredToken") else { unreachable!() };
    let expired = Fault::Answer { status, headers: vec![], body: body.into() };
    credentials_are_renewed_for(subject, expired).await;
}
