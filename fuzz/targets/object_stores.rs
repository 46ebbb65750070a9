//! What an object store answers, or whoever answers in its place: pages of listings and errors of S3, GCS, Azure and OCI
//! are read or refused, and what is read of a page was in it. The first byte says whose it is.
#![no_main]

use ankusa_actors::ports::BlobEntry;
use ankusa_node::blob::{azure, gcs, oci, s3};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((whose, body)) = bytes.split_first() else { return };
    let entries: Vec<BlobEntry> = match whose % 8 {
        0 => s3::parse_listing(body).map(|page| page.entries).unwrap_or_default(),
        1 => gcs::parse_listing(body).map(|page| page.entries).unwrap_or_default(),
        2 => azure::parse_listing(body).map(|page| page.entries).unwrap_or_default(),
        3 => oci::parse_listing(body).map(|page| page.entries).unwrap_or_default(),
        4 => return drop(s3::parse_error(body)),
        5 => return drop(gcs::parse_error(body)),
        6 => return drop(azure::parse_error(None, body)),
        _ => return drop(oci::parse_error(body)),
    };
    let told: usize = entries.iter().map(|entry| entry.key.len()).sum();
    assert!(told <= body.len(), "{told} bytes of keys in {}", body.len());
});
