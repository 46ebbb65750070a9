//! Rows that are none. The documented system puts an empty value at a low and a high key of every family it scans, on
//! every open, so that a scan can prove it reached its end. A store that came from there holds them: they are never
//! handed to a caller, counted or parsed.

use crate::model::cf::Cf;

/// Whether a row is a sentinel: an empty value under a key that is nothing but its family's prefix and then 00s or FFs,
/// or too short to be a real key of it.
///
/// The first formats wrote exactly the prefix and the prefix with FFs; the bytes of the later families are not
/// documented, hence the wider rule. No real row is caught: seqs and ordinals start at 1, names are text.
pub fn is_sentinel(cf: Cf, key: &[u8], value: &[u8]) -> bool {
    if !value.is_empty() {
        return false;
    }
    let (prefix_len, rest_len_min) = shape(cf, key);
    let Some(rest) = key.get(prefix_len..) else { return true };
    let only = |byte| rest.iter().all(|at| *at == byte);
    rest.len() < rest_len_min || only(0x00) || only(0xff)
}

/// How long the prefix of this key's kind is, and how many bytes a real key has after it at least.
fn shape(cf: Cf, key: &[u8]) -> (usize, usize) {
    match cf {
        Cf::Hooks => (0, 8),
        Cf::Deliveries => (0, 10),
        Cf::Counters => (0, 5),
        Cf::Default => (2, 1),
        Cf::Index => (1, index_rest_len_min(key)),
        Cf::Archive => (1, if key.first() == Some(&b'S') { 8 } else { 1 }),
        Cf::Quarantine => (1, 9),
        Cf::Audit => (1, if key.first() == Some(&b'a') { 16 } else { 8 }),
        Cf::Tenants => (1, if key.first() == Some(&b't') { 4 } else { 1 }),
    }
}

fn index_rest_len_min(key: &[u8]) -> usize {
    match key.first() {
        Some(b'D' | b'X') => 22,
        Some(b'F') => 14,
        Some(b'x' | b'd') => 18,
        Some(b'f') => 10,
        Some(b'A') => 12,
        Some(b'a' | b'k') => 8,
        Some(b'c') => 11,
        Some(b'O') => 30,
        Some(b'H' | b'P') => 20,
        // At least a tenant of one character, 00, and the length of the source id.
        Some(b'u') => 4,
        Some(b'e') => 12,
        // At least a tenant of one character, 00, a pack id and a seq.
        Some(b'l') => 36,
        _unknown => 1,
    }
}
