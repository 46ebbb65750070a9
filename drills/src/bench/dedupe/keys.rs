//! Keys as a provider makes them, spread evenly and known in two orders: as bytes sort, and as they came.
//!
//! Table files are written in order, so whoever writes a hundred million rows must know the order without sorting them:
//! that of the keys for the keys, that of time for their expiry. So the key that came `n`th is the `n * a`th in order,
//! modulo how many there are, and back.

use ankusa_actors::model::ids::HookId;
use ankusa_actors::model::keys::{DedupeKey, DedupeValue, ExpiryKey};

/// How long a key is remembered, in milliseconds: the node's default.
pub(super) const TTL_MS: u64 = 259_200_000;

/// No key expires while it is measured.
const SPARE_MS: u64 = 86_400_000;

/// Whose keys.
pub(super) const TENANT: &str = "acme";
const SOURCE: &str = "github";

/// Bytes of a key: a UUID.
const UUID_BYTES: usize = 36;

/// The keys of one store.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keys {
    count: u64,
    /// Coprime to the count, and its inverse.
    spread: u64,
    back: u64,
    now_ms: u64,
}

/// Spreads bits (splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Two thirds of the way to where the numbers repeat, in round figures.
const GOLDEN_PERCENT: u64 = 62;

impl Keys {
    /// `count` keys, at least 2, that came over the time a key is remembered and up to `now_ms`.
    pub(super) fn new(count: u64, now_ms: u64) -> Self {
        let count = count.max(2);
        let mut spread = (count / 100 * GOLDEN_PERCENT).max(1);
        loop {
            if let Some(back) = inverse(spread, count) {
                return Self { count, spread, back, now_ms };
            }
            spread += 1;
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Which key in order came `nth`.
    pub(super) fn in_order(&self, nth: u64) -> u64 {
        times(nth, self.spread, self.count)
    }

    /// Which came as the `nth` in order.
    pub(super) fn as_came(&self, in_order: u64) -> u64 {
        times(in_order, self.back, self.count)
    }

    /// When the key expires that came `nth`.
    pub(super) fn expires_at_ms(&self, nth: u64) -> u64 {
        let share = u128::from(TTL_MS) * u128::from(nth) / u128::from(self.count);
        self.now_ms + SPARE_MS + u64::try_from(share).unwrap_or(TTL_MS)
    }

    /// The key with this place in the order of all.
    pub(super) fn text(&self, in_order: u64) -> [u8; UUID_BYTES] {
        let stride = u128::MAX / u128::from(self.count);
        let within = u128::from(mix(in_order)) << 64 | u128::from(mix(!in_order));
        uuid(u128::from(in_order) * stride + within % stride)
    }

    /// What stands under the key that came `nth`.
    pub(super) fn value(&self, nth: u64) -> DedupeValue {
        let expires_at_ms = self.expires_at_ms(nth);
        let original = HookId::v7(expires_at_ms - TTL_MS, mix(nth).into());
        DedupeValue { expires_at_ms, original }
    }
}

/// A key of the source. Its names are short, so that it always is one.
pub(super) fn key(text: &[u8]) -> Option<DedupeKey<'_>> {
    DedupeKey::new(TENANT, SOURCE, text)
}

/// The entry of a key in the expiry index.
pub(super) fn entry(expires_at_ms: u64, text: &[u8]) -> Option<Vec<u8>> {
    key(text).map(|dedupe| ExpiryKey { expires_at_ms, dedupe }.encode())
}

pub(super) fn uuid(bits: u128) -> [u8; UUID_BYTES] {
    const HEX: &[u8; 16] = b"0123456789abcdef";
    let mut text = [b'-'; UUID_BYTES];
    let digits = text.iter_mut().enumerate().filter(|(at, _)| !matches!(at, 8 | 13 | 18 | 23));
    for (nibble, (_, digit)) in (0_u32..32).rev().zip(digits) {
        let value = usize::try_from(bits >> (nibble * 4) & 0xf).unwrap_or_default();
        *digit = HEX.get(value).copied().unwrap_or(b'0');
    }
    text
}

fn times(one: u64, other: u64, modulo: u64) -> u64 {
    let product = u128::from(one) * u128::from(other) % u128::from(modulo);
    u64::try_from(product).unwrap_or_default()
}

/// What undoes a multiplication, if anything does (Euclid).
fn inverse(of: u64, modulo: u64) -> Option<u64> {
    let whole = i128::from(modulo);
    let (mut rest, mut next_rest) = (whole, i128::from(of) % whole);
    let (mut back, mut next_back) = (0_i128, 1_i128);
    while next_rest != 0 {
        let quotient = rest / next_rest;
        (rest, next_rest) = (next_rest, rest - quotient * next_rest);
        (back, next_back) = (next_back, back - quotient * next_back);
    }
    (rest == 1).then(|| u64::try_from(back.rem_euclid(whole)).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_key_comes_once_and_both_orders_are_known() {
        for count in [2, 7, 1_000, 4_096, 10_007] {
            let keys = Keys::new(count, 1_700_000_000_000);
            let order: BTreeSet<u64> = (0..count).map(|nth| keys.in_order(nth)).collect();
            assert_eq!(order.len() as u64, count);
            assert!((0..count).all(|nth| keys.as_came(keys.in_order(nth)) == nth));
            let texts: Vec<_> = (0..count).map(|at| keys.text(at)).collect();
            assert!(texts.is_sorted_by(|one, next| one < next), "{count}");
            assert!((1..count).all(|nth| keys.expires_at_ms(nth - 1) <= keys.expires_at_ms(nth)));
        }
    }

    #[test]
    fn a_key_reads_as_a_uuid() {
        assert_eq!(
            uuid(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef),
            *b"01234567-89ab-cdef-0123-456789abcdef"
        );
    }
}
