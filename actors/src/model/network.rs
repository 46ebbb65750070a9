//! Networks by their prefix: what an address is held against, whoever asks.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: the addresses that share its leading bits. IPv4 is kept as `::ffff:0:0/96`, which no IPv6 network covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    bits: u128,
    mask: u128,
}

impl Network {
    pub(in crate::model) const fn v4(a: u8, b: u8, c: u8, d: u8, prefix_bits: u32) -> Self {
        let bits = Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().to_bits();
        Self { bits, mask: u128::MAX << (32 - prefix_bits) }
    }

    pub(in crate::model) const fn v6(address: Ipv6Addr, prefix_bits: u32) -> Self {
        Self { bits: address.to_bits(), mask: u128::MAX << (128 - prefix_bits) }
    }

    /// Whether `address` is in it. IPv4-mapped IPv6 is the IPv4 address it stands for.
    pub const fn contains(&self, address: IpAddr) -> bool {
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        bits & self.mask == self.bits && is_v4(bits) == is_v4(self.bits)
    }

    /// Reads `10.1.0.0/16`, `fd12::/48` or a single address.
    ///
    /// # Errors
    /// What is wrong with it, as it goes on after the entry in a sentence.
    pub fn parse(entry: &str) -> Result<Self, &'static str> {
        let (address, prefix) = match entry.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (entry, None),
        };
        let Ok(address) = address.parse::<IpAddr>() else {
            return Err("is not a network: write it like 10.1.0.0/16 or fd12::/48");
        };
        let (bits, width_bits) = match address {
            IpAddr::V4(address) => (address.to_ipv6_mapped().to_bits(), 32),
            IpAddr::V6(address) if address.to_ipv4_mapped().is_some() => {
                return Err("must be written as IPv4");
            }
            IpAddr::V6(address) => (address.to_bits(), 128),
        };
        let prefix_bits = match prefix {
            None => width_bits,
            Some(digits) if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                digits.parse().unwrap_or(u32::MAX)
            }
            Some(_other) => u32::MAX,
        };
        if prefix_bits > width_bits {
            return Err("has no prefix length between 0 and the address's own");
        }
        // A shift by the whole width leaves nothing of the mask.
        let mask = u128::MAX.checked_shl(width_bits - prefix_bits).unwrap_or(0);
        if bits & !mask != 0 {
            return Err("has bits set after its prefix");
        }
        Ok(Self { bits, mask })
    }
}

const fn is_v4(bits: u128) -> bool {
    bits >> 32 == 0xffff
}
