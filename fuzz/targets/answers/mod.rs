//! What holds for whatever is read of an answer, whoever's it is.
// Every target uses some of it.
#![allow(dead_code)]

use std::fmt::{Debug, Write as _};

use ankusa_actors::ports::{BlobEntry, BlobError};
use ankusa_node::blob::answer::{Answer, Refusal};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

/// A clock's word: Mon, 30 Nov 2026 10:00:00 GMT.
pub const NOW_MS: u64 = 1_796_032_800_000;

/// The statuses a refusal may come with.
pub const REFUSALS: [u16; 10] = [301, 400, 401, 403, 404, 409, 412, 429, 500, 503];

/// The beginning of `whole` that its own bytes choose.
fn beginning(whole: &[u8]) -> &[u8] {
    let chance = whole.iter().fold(7_usize, |sum, byte| sum.wrapping_mul(31) ^ usize::from(*byte));
    &whole[..chance % whole.len().max(1)]
}

/// What is read of `body`, if anything is; then of no beginning of it anything else is read. An error is one line.
pub fn whole<T: PartialEq + Debug>(
    body: &[u8],
    read: impl Fn(&[u8]) -> Result<T, BlobError>,
) -> Option<T> {
    let found = read(body).map_err(|error| one_line(&error)).ok()?;
    if let Ok(half) = read(beginning(body)) {
        assert_eq!(half, found, "half of it is something else");
    }
    Some(found)
}

/// The same where no reason is given.
pub fn whole_or_none<T: PartialEq + Debug>(
    body: &[u8],
    read: impl Fn(&[u8]) -> Option<T>,
) -> Option<T> {
    whole(body, |body| read(body).ok_or(BlobError::NotFound))
}

/// The reason as an error of the kind that is told.
pub fn transport(why: impl ToString) -> BlobError {
    BlobError::Transport(why.to_string())
}

/// What goes into a log is one line, and not as long as whoever answered likes.
pub fn one_line(error: &BlobError) {
    let told = error.to_string();
    assert!(told.chars().count() <= 1_000, "{} characters", told.chars().count());
    assert!(!told.chars().any(char::is_control), "{told:?}");
}

/// What is said of objects was in the page.
pub fn fit(entries: &[BlobEntry], body: &[u8]) {
    let told: usize = entries.iter().map(|entry| entry.key.len()).sum();
    assert!(told <= body.len(), "{told} bytes of keys in {}", body.len());
}

/// A listing has each key once, in order.
pub fn in_order(entries: &[BlobEntry]) {
    assert!(entries.windows(2).all(|two| two[0].key < two[1].key), "{entries:?}");
}

/// What is read of a refusal was in it.
pub fn said(refusal: &Refusal, bytes: usize) {
    // What is no UTF-8 is three bytes each.
    assert!(refusal.code.len() + refusal.message.len() <= 3 * bytes, "{refusal:?}");
    if let Some(region) = &refusal.region {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        assert!((1..=64).contains(&region.len()) && region.bytes().all(fits), "{region:?}");
    }
}

/// An answer without headers.
pub fn answer(status: u16, body: &[u8]) -> Answer {
    let status = StatusCode::from_u16(status).unwrap();
    Answer { status, headers: HeaderMap::new(), body: Bytes::copy_from_slice(body) }
}

/// A text as XML. What no reference may stand for stays as it is.
pub fn xml(text: &str) -> String {
    let mut xml = String::new();
    for character in text.chars() {
        if character.is_ascii_alphanumeric() || character == '\0' {
            xml.push(character);
        } else {
            let _ = write!(xml, "&#{};", u32::from(character));
        }
    }
    xml
}

/// A text in which every byte is percent-encoded that could be.
pub fn percent(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        let _ = write!(encoded, "%{byte:02X}");
    }
    encoded
}
