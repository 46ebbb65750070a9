//! How an object is cut into parts that are sent by themselves ("Multipart above multipart_threshold_bytes").

use std::ops::Range;

use super::options::TransportOptions;

/// Parts of one upload on their way at once. What an upload holds in memory is so many parts, and nothing else of a body
/// that lies in a file.
pub const PARTS_AT_ONCE: usize = 4;

/// What a part is a multiple of, in bytes: GCS takes nothing else.
pub const PART_STEP_BYTES: u64 = 256 << 10;

/// The ranges of the parts, in order, or `None` for an object that is sent whole. Parts grow where `parts_max` of the
/// configured size are not enough.
pub fn parts(options: &TransportOptions, bytes: u64, parts_max: u64) -> Option<Vec<Range<u64>>> {
    if bytes <= options.multipart_threshold_bytes {
        return None;
    }
    let least = bytes.div_ceil(parts_max.max(1)).div_ceil(PART_STEP_BYTES) * PART_STEP_BYTES;
    let part = options.multipart_part_bytes.max(least).max(1);
    let mut parts = Vec::new();
    let mut at = 0;
    while at < bytes {
        let end = bytes.min(at.saturating_add(part));
        parts.push(at..end);
        at = end;
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn an_object_above_the_threshold_is_cut_without_gaps() {
        let options = TransportOptions::default();
        for whole in [0, 1, 8 * MIB] {
            assert_eq!(parts(&options, whole, 10_000), None, "{whole}");
        }
        assert_eq!(
            parts(&options, 8 * MIB + 1, 10_000),
            Some(vec![0..8 * MIB, 8 * MIB..8 * MIB + 1])
        );
        for (bytes, parts_max) in [(100 * MIB + 3, 10_000), (100 * MIB, 3), (81 * MIB, 10)] {
            let cut = parts(&options, bytes, parts_max).unwrap();
            assert!(cut.len() as u64 <= parts_max, "{bytes} {parts_max}");
            assert_eq!((cut[0].start, cut.last().unwrap().end), (0, bytes));
            assert!(cut.windows(2).all(|two| two[0].end == two[1].start));
            let size = cut[0].end;
            assert!(size >= options.multipart_part_bytes && size.is_multiple_of(PART_STEP_BYTES));
            assert!(cut[..cut.len() - 1].iter().all(|part| part.end - part.start == size));
        }
    }
}
