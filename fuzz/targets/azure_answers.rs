//! What the Blob service and an identity answer, or whoever answers in their place: read whole or refused, what is read,
//! written again, is read as the same, and nothing that gives a signature or half a token away is told. The first byte
//! says which of them it is.
#![no_main]

mod answers;

use ankusa_node::blob::answer::Refusal;
use ankusa_node::blob::azure::{self, Page, Sas};
use answers::{NOW_MS, REFUSALS, answer, fit, one_line, percent, said, transport, whole, xml};
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

fuzz_target!(|bytes: &[u8]| {
    let Some((which, body)) = bytes.split_first() else { return };
    match which % 4 {
        0 => listing(body),
        1 => refusal(body),
        2 => token(body),
        _ => REFUSALS.iter().for_each(|status| one_line(&azure::refused(&answer(*status, body)))),
    }
});

fn listing(body: &[u8]) {
    let read = |body: &[u8]| azure::parse_listing(body).map_err(transport);
    let Some(page) = whole(body, read) else { return };
    fit(&page.entries, body);
    assert_ne!(page.next.as_deref(), Some(""));
    let plain = written(&page, "", xml);
    assert_eq!(azure::parse_listing(plain.as_bytes()), Ok(page.clone()), "{plain}");
    let encoded = written(&page, " Encoded=\"true\"", percent);
    assert_eq!(azure::parse_listing(encoded.as_bytes()), Ok(page), "{encoded}");
}

fn written(page: &Page, how: &str, name: impl Fn(&str) -> String) -> String {
    let mut out = String::from("<EnumerationResults><Blobs>");
    for entry in &page.entries {
        let (name, bytes) = (name(&entry.key), entry.bytes);
        out.push_str(&format!(
            "<Blob><Name{how}>{name}</Name><Properties><Content-Length>{bytes}</Content-Length></Properties></Blob>"
        ));
    }
    let text = |marker: &Option<String>| xml(marker.as_deref().unwrap_or_default());
    let (this, next) = (text(&page.this), text(&page.next));
    out + &format!(
        "</Blobs><Marker>{this}</Marker><NextMarker>{next}</NextMarker></EnumerationResults>"
    )
}

fn refusal(body: &[u8]) {
    let read = |body: &[u8]| {
        let refusal = azure::parse_error(None, body);
        (refusal != Refusal::default()).then_some(refusal)
    };
    if let Some(refusal) = answers::whole_or_none(body, read) {
        said(&refusal, body.len());
    }
    let sas = Sas::new("se=2026-11-30&sig=ab%2Fcd").unwrap();
    for status in REFUSALS {
        let answer = answer(status, body);
        let refusal = azure::refusal(&answer, Some(&sas));
        let error = azure::error(&answer, &refusal, NOW_MS, Some(&sas));
        one_line(&error);
        let told = error.to_string();
        assert!(!told.contains("ab%2Fcd") && !told.contains("ab/cd"), "{told}");
    }
}

fn token(body: &[u8]) {
    let read = |body: &[u8]| azure::parse_token(body, NOW_MS);
    let told: Option<Value> = serde_json::from_slice(body).ok();
    let told = told.as_ref().and_then(|told| told.get("access_token")).and_then(Value::as_str);
    let Some(read) = whole(body, read) else {
        if let (Some(told), Err(error)) = (told, azure::parse_token(body, NOW_MS)) {
            // What is short may be in the words of the error.
            assert!(told.len() < 12 || !error.to_string().contains(told), "{error}");
        }
        return;
    };
    assert!(read.value.is_sensitive());
    let bearer = read.value.as_bytes().strip_prefix(b"Bearer ").unwrap();
    assert!(told.is_none_or(|told| told.as_bytes() == bearer));
    let ends_s = read.expires_at_ms.unwrap() / 1_000;
    let again = json!({"access_token": std::str::from_utf8(bearer).unwrap(), "expires_on": ends_s});
    let again = azure::parse_token(again.to_string().as_bytes(), 0).unwrap();
    assert_eq!((again.value, again.expires_at_ms.unwrap() / 1_000), (read.value, ends_s));
}
