//! CRC-32C, eight bytes a step: every byte of the log is read at every open, and a byte a step would be felt there.

/// The polynomial, its bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// What RocksDB adds to a stored checksum, so that data which holds checksums has one that is not theirs.
const MASK_DELTA: u32 = 0xa282_ead8;

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        #[expect(clippy::cast_possible_truncation, reason = "less than 256; const has no try_from")]
        let mut crc = byte as u32;
        let mut table = 0;
        while table < 8 {
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ POLYNOMIAL } else { crc >> 1 };
                bit += 1;
            }
            tables[table][byte] = crc;
            table += 1;
        }
        byte += 1;
    }
    tables
}

/// The checksum of `parts`, one after the other.
pub(super) fn of(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(!0, |crc, part| extend(crc, part))
}

/// As it is stored.
pub(super) const fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(MASK_DELTA)
}

fn extend(mut crc: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in eights {
        let [low, second, third, high] = (crc ^ u32::from_le_bytes([*a, *b, *c, *d])).to_le_bytes();
        crc = look_up(7, low)
            ^ look_up(6, second)
            ^ look_up(5, third)
            ^ look_up(4, high)
            ^ look_up(3, *e)
            ^ look_up(2, *f)
            ^ look_up(1, *g)
            ^ look_up(0, *h);
    }
    for byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = (crc >> 8) ^ look_up(0, low ^ byte);
    }
    crc
}

/// A byte is always in a table of 256.
fn look_up(table: usize, byte: u8) -> u32 {
    TABLES[table][byte as usize]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_vectors_come_out() {
        assert_eq!(of(&[b"123456789"]), 0xe306_9283);
        assert_eq!(of(&[b""]), 0);
        assert_eq!(of(&[&[0; 32]]), 0x8a91_36aa);
        assert_eq!(of(&[&[0xff; 32]]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(of(&[&ascending]), 0x46dd_794e);
        assert_eq!(of(&[b"1234", b"", b"56789"]), of(&[b"123456789"]));
    }

    #[test]
    fn a_stored_checksum_is_masked() {
        assert_eq!(masked(0), 0xa282_ead8);
        assert_eq!(masked(0x8000_0001), 0x0003_0000_u32.wrapping_add(0xa282_ead8));
    }
}
