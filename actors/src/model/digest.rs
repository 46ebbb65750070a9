//! SHA-256 as text, the way headers and messages carry it.

use sha2::{Digest, Sha256};

/// 64 lowercase hex digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        text.push(hex_digit(byte >> 4));
        text.push(hex_digit(byte & 0xf));
    }
    text
}

fn hex_digit(nibble: u8) -> char {
    char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_64_lowercase_hex_digits() {
        assert_eq!(
            sha256_hex(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
        assert_eq!(
            sha256_hex(b"abc"),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
