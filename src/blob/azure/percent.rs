//! Percent-encoding, of what goes into a URL and of names that XML cannot hold.

use std::fmt::Write as _;

/// Everything but the characters that no part of a URL gives a meaning to.
pub(super) fn encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            encoded.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// What was encoded, or `None` where it is no encoding of a text.
pub(super) fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_first_chunk::<2>()?;
        let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
        bytes.push(u8::try_from(high? * 16 + low?).ok()?);
        rest = after;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn only_unreserved_characters_are_left_as_they_are() {
        assert_eq!(encoded("aZ09-._~"), "aZ09-._~");
        assert_eq!(encoded("a b+c/%2F?&=#'\\ä"), "a%20b%2Bc%2F%252F%3F%26%3D%23%27%5C%C3%A4");
    }

    #[test]
    fn what_was_encoded_is_decoded_and_nothing_else() {
        for text in ["", "a/b c", "100 %", "näh\u{ffff}", "%41"] {
            assert_eq!(decoded(&encoded(text)).unwrap(), text);
        }
        assert_eq!(decoded("a+b%2f%2F").unwrap(), "a+b//");
        for wrong in ["%", "%4", "%4g", "a%+1", "%ff", "%c3"] {
            assert_eq!(decoded(wrong), None, "{wrong}");
        }
    }
}
