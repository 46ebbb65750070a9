//! What every receiver does with a webhook before it stores it: check the signature, give it an id.

use std::time::{SystemTime, UNIX_EPOCH};

use hmac::{Hmac, KeyInit, Mac};
use hyper::HeaderMap;
use sha2::Sha256;

use crate::load::SECRET;

/// Keyed once; a check starts with the body.
#[derive(Clone)]
pub(super) struct Key(Hmac<Sha256>);

impl Key {
    /// `None` never: HMAC takes a key of any length.
    pub(super) fn new() -> Option<Self> {
        Hmac::new_from_slice(SECRET.as_bytes()).ok().map(Self)
    }

    /// Whether GitHub's signature header fits the body.
    pub(super) fn signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let value = headers.get("x-hub-signature-256").map(|value| value.as_bytes());
        let Some(signature) = value.and_then(|value| value.strip_prefix(b"sha256=")) else {
            return false;
        };
        let Some(signature) = from_hex(signature) else { return false };
        let mut mac = self.0.clone();
        mac.update(body);
        mac.verify_slice(&signature).is_ok()
    }
}

fn from_hex(text: &[u8]) -> Option<[u8; 32]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _other => None,
    };
    let (pairs, []) = text.as_chunks::<2>() else { return None };
    let mut bytes = [0; 32];
    if pairs.len() != bytes.len() {
        return None;
    }
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = digit(*high)? << 4 | digit(*low)?;
    }
    Some(bytes)
}

/// Unix milliseconds.
pub(super) fn now_ms() -> u64 {
    let since_the_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_the_epoch.as_millis()).unwrap_or(u64::MAX)
}

/// A UUIDv7, as text.
pub(super) fn new_id(now_ms: u64) -> [u8; 36] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let random: u128 = rand::random();
    let time = u128::from(now_ms & 0xffff_ffff_ffff) << 80;
    let (high, low) = (random >> 62 & 0xfff, random & 0x3fff_ffff_ffff_ffff);
    let bits = time | 0x7 << 76 | high << 64 | 0b10 << 62 | low;
    let mut text = [b'-'; 36];
    let mut rest = bits;
    for at in (0..text.len()).rev().filter(|at| !matches!(at, 8 | 13 | 18 | 23)) {
        text[at] = DIGITS[(rest & 0xf) as usize];
        rest >>= 4;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::super::requests::body;
    use super::*;
    use crate::load::sign;

    #[test]
    fn only_the_right_signature_fits() {
        let key = Key::new().unwrap();
        let body = body(1);
        let with = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("x-hub-signature-256", value.parse().unwrap());
            headers
        };
        assert!(key.signed(&with(&sign(&body)), &body));
        assert!(!key.signed(&with(&sign(b"another")), &body));
        assert!(!key.signed(&with("sha256=12"), &body));
        assert!(!key.signed(&HeaderMap::new(), &body));
    }

    #[test]
    fn an_id_is_a_uuid_of_version_7() {
        let id = String::from_utf8(new_id(1_688_169_000_086).to_vec()).unwrap();
        assert!(id.starts_with("01890eb6-ac96-7"), "{id}");
        assert!(matches!(id.as_bytes()[19], b'8' | b'9' | b'a' | b'b'), "{id}");
        assert_ne!(new_id(0), new_id(0));
    }
}
