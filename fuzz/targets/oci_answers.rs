//! What Object Storage, the federation endpoint and an instance's metadata server answer, or whoever answers in their
//! place: read whole or refused, and what is read, written again, is read as the same. The first byte says which of them
//! it is.
#![no_main]

mod answers;

use ankusa_node::blob::oci;
use ankusa_node::blob::oci::listing::Pages;
use answers::{NOW_MS, REFUSALS, answer, fit, in_order, one_line, said, whole, whole_or_none};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 8 {
        0 => listing(body),
        1 => {
            let refusal =
                |body: &[u8]| Some(oci::parse_error(body)).filter(|it| !it.code.is_empty());
            if let Some(refusal) = whole_or_none(body, refusal) {
                said(&refusal, body.len());
            }
            REFUSALS
                .iter()
                .for_each(|status| one_line(&oci::error(&answer(*status, body), NOW_MS)));
        }
        2 => drop(whole(body, oci::parse_token)),
        3 => token_end(body),
        4 => region(body),
        5 => {
            if let Some(id) = whole(body, oci::parse_upload_id) {
                let again = json!({"uploadId": id}).to_string();
                assert_eq!(oci::parse_upload_id(again.as_bytes()), Ok(id));
            }
        }
        6 => certificates(body),
        _ => pages(body),
    }
});

fn listing(body: &[u8]) {
    let Some(page) = whole(body, oci::parse_listing) else { return };
    fit(&page.entries, body);
    let objects = page.entries.iter().map(|it| json!({"name": it.key, "size": it.bytes}));
    let objects: Vec<Value> = objects.collect();
    let written = json!({"objects": objects, "nextStartWith": page.next_start}).to_string();
    assert_eq!(oci::parse_listing(written.as_bytes()), Ok(page));
}

/// As it comes, and as the claims of a token.
fn token_end(body: &[u8]) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    let wrapped = format!("h.{}.s", URL_SAFE_NO_PAD.encode(text));
    for token in [text, &wrapped] {
        if let Some(end_ms) = oci::parse_token_end_ms(token) {
            assert_eq!(end_ms % 1_000, 0);
            let claims = json!({"exp": end_ms / 1_000}).to_string();
            let again = format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims));
            assert_eq!(oci::parse_token_end_ms(&again), Some(end_ms));
        }
    }
}

fn region(body: &[u8]) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    match oci::region_of(text) {
        Ok(region) => {
            let again = json!({"canonicalRegionName": region}).to_string();
            assert_eq!(oci::region_of(&again), Ok(region));
        }
        Err(error) => one_line(&error),
    }
}

fn certificates(body: &[u8]) {
    let Ok(text) = std::str::from_utf8(body) else { return };
    let found = match oci::certificates(text) {
        Ok(found) => found,
        Err(error) => return one_line(&error),
    };
    assert!(found.len() <= 8 && found.iter().map(Vec::len).sum::<usize>() <= body.len());
    for certificate in found {
        match oci::tenancy(&certificate) {
            Ok(tenancy) => assert!(!tenancy.is_empty() && tenancy.is_ascii(), "{tenancy:?}"),
            Err(error) => one_line(&error),
        }
    }
}

/// Pages with zeros between them.
fn pages(body: &[u8]) {
    let mut pages = Pages::default();
    for page in body.split(|byte| *byte == 0) {
        let Ok(page) = oci::parse_listing(page) else { return };
        let before = pages.start().map(str::to_owned);
        match pages.add(page) {
            Ok(true) => assert!(pages.start() > before.as_deref()),
            Ok(false) => break,
            Err(error) => return one_line(&error),
        }
    }
    match pages.into_entries() {
        Ok(entries) => {
            fit(&entries, body);
            in_order(&entries);
        }
        Err(error) => one_line(&error),
    }
}
