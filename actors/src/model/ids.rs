//! The identities everything else is keyed by.

use std::fmt;

/// A committed hook's sequence number: strictly increasing, never reused, gaps allowed. The first is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub u64);

impl Seq {
    pub const FIRST: Self = Self(1);

    /// The seq `n` places after this one. Saturates: 2^64 hooks never happen.
    #[must_use]
    pub const fn plus(self, n: u64) -> Self {
        Self(self.0.saturating_add(n))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A tenant's dense ordinal, assigned by the Writer at its first committed hook and never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantOrd(pub u32);

impl TenantOrd {
    /// The node's own aggregate, in the counters.
    pub const NODE: Self = Self(0);
    /// The first a tenant can get.
    pub const FIRST: Self = Self(1);
}

/// The tenant of a hook that names none.
pub const DEFAULT_TENANT: &str = "default";

/// A source that no configuration may take.
pub const LIFECYCLE_SOURCE: &str = "ankusa:lifecycle";

/// Whether `name` can be a tenant id or a source name: `[A-Za-z0-9_-]{1,64}`.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// A hook's id: a lowercase, hyphenated UUIDv7, made on receipt and stable over retries and replays.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HookId([u8; Self::SIZE]);

impl HookId {
    pub const SIZE: usize = 36;

    /// `u48 ms, u4 7, u12 random, u2 0b10, u62 random`; of `random` the low 74 bits are used.
    pub fn v7(at_ms: u64, random: u128) -> Self {
        let ms = u128::from(at_ms & 0xffff_ffff_ffff) << 80;
        let rand_a = (random >> 62 & 0xfff) << 64;
        let rand_b = random & 0x3fff_ffff_ffff_ffff;
        Self::from_bits(ms | 0x7 << 76 | rand_a | 0b10 << 62 | rand_b)
    }

    fn from_bits(bits: u128) -> Self {
        const HEX: &[u8; 16] = b"0123456789abcdef";
        let mut text = [b'-'; Self::SIZE];
        let mut nibble = 32_u32;
        for (at, byte) in text.iter_mut().enumerate() {
            if matches!(at, 8 | 13 | 18 | 23) {
                continue;
            }
            nibble -= 1;
            let value = (bits >> (nibble * 4) & 0xf) as usize;
            *byte = HEX[value];
        }
        Self(text)
    }

    /// Lowercase only, version 7, variant 8, 9, a or b; anything else is `None`.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes: [u8; Self::SIZE] = text.as_bytes().try_into().ok()?;
        let well_formed = bytes.iter().enumerate().all(|(at, byte)| match at {
            8 | 13 | 18 | 23 => *byte == b'-',
            14 => *byte == b'7',
            19 => matches!(byte, b'8' | b'9' | b'a' | b'b'),
            _other => matches!(byte, b'0'..=b'9' | b'a'..=b'f'),
        });
        well_formed.then_some(Self(bytes))
    }

    /// When the hook was received, in Unix milliseconds.
    pub fn at_ms(&self) -> u64 {
        let digits = self.0[..8].iter().chain(&self.0[9..13]);
        digits.fold(0, |ms, byte| ms << 4 | u64::from((*byte as char).to_digit(16).unwrap_or(0)))
    }

    pub fn as_str(&self) -> &str {
        // Only ASCII ever gets in.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }
}

impl fmt::Display for HookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for HookId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_and_the_largest_id_of_a_millisecond_are_the_documented_ones() {
        let ms = 1_688_169_000_086;
        assert_eq!(HookId::v7(ms, 0).as_str(), "01890eb6-ac96-7000-8000-000000000000");
        assert_eq!(HookId::v7(ms, u128::MAX).as_str(), "01890eb6-ac96-7fff-bfff-ffffffffffff");
        assert_eq!(HookId::v7(ms, 7).at_ms(), ms);
    }

    #[test]
    fn only_a_lowercase_version_7_uuid_is_an_id() {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(HookId::parse(id).map(|id| id.to_string()).as_deref(), Some(id));
        for wrong in [
            "01890A5D-ac96-774b-bcce-b302099a8057",
            "01890a5d-ac96-474b-bcce-b302099a8057",
            "01890a5d-ac96-774b-ccce-b302099a8057",
            "01890a5dac96-774b-bcce-b302099a8057-",
            "01890a5d-ac96-774b-bcce-b302099a805",
            "",
        ] {
            assert_eq!(HookId::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_name_is_1_to_64_of_the_documented_characters() {
        assert!(is_name("acme-1_B"));
        assert!(is_name(&"a".repeat(64)));
        for wrong in ["", "a.b", "a/b", "ä", "a\0", LIFECYCLE_SOURCE] {
            assert!(!is_name(wrong), "{wrong}");
        }
        assert!(!is_name(&"a".repeat(65)));
    }
}
