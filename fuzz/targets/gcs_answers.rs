//! What GCS and a machine's metadata server answer, or whoever answers in their place: read whole or refused, and what is
//! read, written again, is read as the same. The first byte says which of them it is.
#![no_main]

mod answers;

use ankusa_node::blob::gcs::{self, About};
use answers::{NOW_MS, REFUSALS, answer, fit, one_line, said, transport, whole};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 4 {
        0 => listing(body),
        1 => {
            said(&gcs::parse_error(body), body.len());
            for status in REFUSALS {
                for about in [About::Object, About::Bucket] {
                    one_line(&gcs::error(&answer(status, body), about, NOW_MS));
                }
            }
        }
        2 => uploaded(body),
        _ => token(body),
    }
});

fn listing(body: &[u8]) {
    let Some(page) = whole(body, |body| gcs::parse_listing(body).map_err(transport)) else {
        return;
    };
    fit(&page.entries, body);
    assert_ne!(page.next.as_deref(), Some(""));
    for sizes_are_texts in [true, false] {
        let size =
            |bytes: u64| if sizes_are_texts { json!(bytes.to_string()) } else { json!(bytes) };
        let items = page.entries.iter().map(|it| json!({"name": it.key, "size": size(it.bytes)}));
        let items: Vec<Value> = items.collect();
        let written =
            json!({"kind": "storage#objects", "items": items, "nextPageToken": page.next});
        assert_eq!(gcs::parse_listing(written.to_string().as_bytes()), Ok(page.clone()));
    }
}

fn uploaded(body: &[u8]) {
    let Some(read) = answers::whole_or_none(body, gcs::parse_uploaded) else { return };
    let written =
        json!({"size": read.bytes.to_string(), "md5Hash": read.md5, "generation": read.generation});
    assert_eq!(gcs::parse_uploaded(written.to_string().as_bytes()), Some(read));
}

fn token(body: &[u8]) {
    let Some(read) = whole(body, |body| gcs::parse_token(body, NOW_MS).map_err(transport)) else {
        return;
    };
    let ends_at_ms = read.expires_at_ms.unwrap();
    assert!(read.value.is_sensitive() && ends_at_ms >= NOW_MS);
    let token = read.value.to_str().unwrap().strip_prefix("Bearer ").unwrap();
    assert!(!token.is_empty() && token.len() <= body.len());
    let span_s = (ends_at_ms - NOW_MS).div_ceil(1_000);
    let again = json!({"access_token": token, "expires_in": span_s});
    assert_eq!(gcs::parse_token(again.to_string().as_bytes(), NOW_MS), Ok(read));
}
