//! The checksum of RocksDB's log and manifest records.

/// What RocksDB adds to a stored checksum, so that data which holds checksums has one that is not theirs.
const MASK_DELTA: u32 = 0xa282_ead8;

/// CRC-32C of `parts`, one after the other.
pub(super) fn of(parts: &[&[u8]]) -> u32 {
    parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part))
}

/// As it is stored.
pub(super) const fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_come_out() {
        assert_eq!(of(&[b"123456789"]), 0xe306_9283);
        assert_eq!(of(&[b""]), 0);
        assert_eq!(of(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(of(&[b"1234", b"", b"56789"]), of(&[b"123456789"]));
    }

    #[test]
    fn a_stored_checksum_is_masked() {
        assert_eq!(masked(0), 0xa282_ead8);
        assert_eq!(masked(0x8000_0001), 0x0003_0000_u32.wrapping_add(0xa282_ead8));
    }
}
