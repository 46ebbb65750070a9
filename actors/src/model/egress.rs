//! Where the node may connect to on somebody else's word: a sink's URL is data, and the data must not reach the
//! operator's own network.
//!
//! Addresses are judged, never names: a name means whatever its owner says at the moment it is asked for. Whoever
//! connects must therefore connect to the very address that was judged here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Section `egress`: what sinks may reach beyond public addresses over TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EgressConfig {
    /// Whether `http://` URLs are permitted. Default false: bodies would travel in clear.
    pub allow_http: bool,
    /// Whether private, loopback and carrier-grade NAT addresses are permitted. Default false: whoever writes a
    /// source could reach what is inside. Link-local and metadata addresses stay closed unless [`Self::allow`] names
    /// them.
    pub allow_private: bool,
    /// Networks permitted whatever they are, as `10.1.0.0/16`, `fd12::/48` or a single address. Default none.
    pub allow: Vec<String>,
}

/// An entry of `egress.allow` that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("allow[{index}] `{entry}` {problem}")]
pub struct EgressConfigError {
    pub index: usize,
    pub entry: String,
    pub problem: &'static str,
}

/// The guard, ready to judge. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Egress {
    allow_http: bool,
    allow_private: bool,
    allow: Arc<[Network]>,
}

/// An address the guard does not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{address} ({kind})")]
pub struct Denied {
    pub address: IpAddr,
    pub kind: AddressKind,
}

impl Egress {
    /// # Errors
    ///
    /// The first entry of `allow` that is not a network in its plainest form.
    pub fn new(config: &EgressConfig) -> Result<Self, EgressConfigError> {
        let network = |(index, entry): (usize, &String)| {
            Network::parse(entry).map_err(|problem| EgressConfigError {
                index,
                entry: entry.clone(),
                problem,
            })
        };
        let allow = config.allow.iter().enumerate().map(network).collect::<Result<_, _>>()?;
        Ok(Self { allow_http: config.allow_http, allow_private: config.allow_private, allow })
    }

    /// Whether `http://` URLs may be used.
    pub const fn allows_http(&self) -> bool {
        self.allow_http
    }

    /// Whether a connection to `address` may be made.
    ///
    /// # Errors
    ///
    /// What kind of address it is, when it may not.
    pub fn check(&self, address: IpAddr) -> Result<(), Denied> {
        let kind = AddressKind::new(address);
        if self.permits_kind(kind) || self.allow.iter().any(|network| network.contains(address)) {
            return Ok(());
        }
        Err(Denied { address, kind })
    }

    const fn permits_kind(&self, kind: AddressKind) -> bool {
        match kind {
            AddressKind::Public => true,
            AddressKind::Private | AddressKind::Loopback | AddressKind::Shared => {
                self.allow_private
            }
            AddressKind::LinkLocal
            | AddressKind::Metadata
            | AddressKind::Unspecified
            | AddressKind::Multicast
            | AddressKind::Benchmarking
            | AddressKind::Documentation
            | AddressKind::Embedding
            | AddressKind::Reserved => false,
        }
    }
}

/// What an address is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressKind {
    /// Meant for the internet.
    Public,
    /// RFC 1918, unique local, site local.
    Private,
    Loopback,
    /// Carrier-grade NAT, RFC 6598.
    Shared,
    LinkLocal,
    /// Where a cloud keeps the machine's credentials.
    Metadata,
    /// `0.0.0.0/8` and `::`, which connect to this machine.
    Unspecified,
    Multicast,
    Benchmarking,
    Documentation,
    /// IPv6 that a translator or a tunnel would turn into an IPv4 address that is not public.
    Embedding,
    /// Everything else that nobody is reached at.
    Reserved,
}

impl fmt::Display for AddressKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Loopback => "loopback",
            Self::Shared => "carrier-grade NAT",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Unspecified => "unspecified",
            Self::Multicast => "multicast",
            Self::Benchmarking => "benchmarking",
            Self::Documentation => "documentation",
            Self::Embedding => "embeds an address that is not public",
            Self::Reserved => "reserved",
        })
    }
}

impl AddressKind {
    /// Judges an address. IPv4-mapped IPv6 is the IPv4 address it stands for: the kernel connects to that.
    pub fn new(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => Self::of_v4(address),
            IpAddr::V6(address) => Self::of_v6(address),
        }
    }

    fn of_v4(address: Ipv4Addr) -> Self {
        let found = V4_KINDS.iter().find(|(network, _)| network.contains(IpAddr::V4(address)));
        found.map_or(Self::Public, |(_, kind)| *kind)
    }

    fn of_v6(address: Ipv6Addr) -> Self {
        if let Some((_, kind)) =
            V6_KINDS.iter().find(|(network, _)| network.contains(IpAddr::V6(address)))
        {
            return *kind;
        }
        match embedded(address).map(Self::of_v4) {
            Some(Self::Public) => Self::Public,
            Some(_not_public) => Self::Embedding,
            None if GLOBAL_UNICAST.contains(IpAddr::V6(address)) => Self::Public,
            None => Self::Reserved,
        }
    }
}

/// The IPv4 address a translator (NAT64) or a tunnel (6to4, ISATAP) would make of it. Teredo is closed altogether.
fn embedded(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let join = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => Some(join(high, low)),
        [0x2002, high, low, ..] => Some(join(high, low)),
        [_, _, _, _, 0 | 0x200, 0x5efe, high, low] => Some(join(high, low)),
        _other => None,
    }
}

/// A network: the addresses that share its leading bits. IPv4 is kept as `::ffff:0:0/96`, which no IPv6 network covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Network {
    bits: u128,
    mask: u128,
}

impl Network {
    const fn v4(a: u8, b: u8, c: u8, d: u8, prefix_bits: u32) -> Self {
        let bits = Ipv4Addr::new(a, b, c, d).to_ipv6_mapped().to_bits();
        Self { bits, mask: u128::MAX << (32 - prefix_bits) }
    }

    const fn v6(address: Ipv6Addr, prefix_bits: u32) -> Self {
        Self { bits: address.to_bits(), mask: u128::MAX << (128 - prefix_bits) }
    }

    const fn contains(&self, address: IpAddr) -> bool {
        let bits = match address {
            IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
            IpAddr::V6(address) => address.to_bits(),
        };
        bits & self.mask == self.bits && is_v4(bits) == is_v4(self.bits)
    }

    fn parse(entry: &str) -> Result<Self, &'static str> {
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

const GLOBAL_UNICAST: Network = Network::v6(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// IPv4 that is not for the internet; the first match counts. After IANA's special-purpose registry and what the clouds
/// document of their metadata services.
const V4_KINDS: [(Network, AddressKind); 21] = [
    (Network::v4(0, 0, 0, 0, 8), AddressKind::Unspecified),
    (Network::v4(10, 0, 0, 0, 8), AddressKind::Private),
    // Alibaba Cloud, inside carrier-grade NAT.
    (Network::v4(100, 100, 100, 200, 32), AddressKind::Metadata),
    (Network::v4(100, 64, 0, 0, 10), AddressKind::Shared),
    (Network::v4(127, 0, 0, 0, 8), AddressKind::Loopback),
    // Azure's platform address, otherwise public.
    (Network::v4(168, 63, 129, 16, 32), AddressKind::Metadata),
    // AWS, Google Cloud, Azure and most others; then AWS container credentials.
    (Network::v4(169, 254, 169, 254, 32), AddressKind::Metadata),
    (Network::v4(169, 254, 170, 2, 32), AddressKind::Metadata),
    (Network::v4(169, 254, 0, 0, 16), AddressKind::LinkLocal),
    (Network::v4(172, 16, 0, 0, 12), AddressKind::Private),
    // Oracle Cloud.
    (Network::v4(192, 0, 0, 192, 32), AddressKind::Metadata),
    (Network::v4(192, 0, 0, 0, 24), AddressKind::Reserved),
    (Network::v4(192, 0, 2, 0, 24), AddressKind::Documentation),
    // 6to4 relays, given up.
    (Network::v4(192, 88, 99, 0, 24), AddressKind::Reserved),
    (Network::v4(192, 168, 0, 0, 16), AddressKind::Private),
    (Network::v4(198, 18, 0, 0, 15), AddressKind::Benchmarking),
    (Network::v4(198, 51, 100, 0, 24), AddressKind::Documentation),
    (Network::v4(203, 0, 113, 0, 24), AddressKind::Documentation),
    (Network::v4(224, 0, 0, 0, 4), AddressKind::Multicast),
    (Network::v4(255, 255, 255, 255, 32), AddressKind::Reserved),
    (Network::v4(240, 0, 0, 0, 4), AddressKind::Reserved),
];

/// IPv6 with a name; what is in none of these and not in `2000::/3` either is reserved.
const V6_KINDS: [(Network, AddressKind); 13] = [
    (Network::v6(Ipv6Addr::UNSPECIFIED, 128), AddressKind::Unspecified),
    (Network::v6(Ipv6Addr::LOCALHOST, 128), AddressKind::Loopback),
    // IPv4-compatible, given up.
    (Network::v6(Ipv6Addr::UNSPECIFIED, 96), AddressKind::Reserved),
    // AWS, then Google Cloud, inside unique local.
    (Network::v6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x254), 128), AddressKind::Metadata),
    (Network::v6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128), AddressKind::Metadata),
    (Network::v6(Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7), AddressKind::Private),
    (Network::v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10), AddressKind::LinkLocal),
    (Network::v6(Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10), AddressKind::Private),
    (Network::v6(Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8), AddressKind::Multicast),
    (Network::v6(Ipv6Addr::new(0x2001, 0x2, 0, 0, 0, 0, 0, 0), 48), AddressKind::Benchmarking),
    // IETF protocol assignments, Teredo among them: tunnels, no places.
    (Network::v6(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), AddressKind::Reserved),
    (Network::v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), AddressKind::Documentation),
    (Network::v6(Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), AddressKind::Documentation),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn egress(allow_private: bool, allow: &[&str]) -> Egress {
        let allow = allow.iter().map(|entry| (*entry).into()).collect();
        Egress::new(&EgressConfig { allow_http: false, allow_private, allow }).unwrap()
    }

    fn permitted<'a>(egress: &Egress, addresses: &[&'a str]) -> Vec<&'a str> {
        let permits = |text: &&&str| egress.check(text.parse().unwrap()).is_ok();
        addresses.iter().filter(permits).copied().collect()
    }

    #[test]
    fn every_special_range_is_known_by_its_first_and_last_address() {
        use AddressKind::*;
        for (kind, addresses) in [
            (Unspecified, &["0.0.0.0", "0.255.255.255", "::", "::ffff:0.0.0.0"][..]),
            (
                Private,
                &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0"],
            ),
            (
                Private,
                &[
                    "192.168.255.255",
                    "fc00::",
                    "fdff:ffff::1",
                    "fec0::1",
                    "feff::1",
                    "::ffff:10.0.0.1",
                ],
            ),
            (
                Loopback,
                &[
                    "127.0.0.0",
                    "127.0.0.1",
                    "127.255.255.255",
                    "::1",
                    "::ffff:127.0.0.1",
                    "::ffff:7f00:1",
                ],
            ),
            (Shared, &["100.64.0.0", "100.127.255.255", "100.100.100.199"]),
            (
                LinkLocal,
                &["169.254.0.0", "169.254.255.255", "169.254.169.253", "fe80::1", "febf:ffff::1"],
            ),
            (
                Metadata,
                &[
                    "169.254.169.254",
                    "169.254.170.2",
                    "100.100.100.200",
                    "168.63.129.16",
                    "192.0.0.192",
                ],
            ),
            (
                Metadata,
                &["fd00:ec2::254", "fd20:ce::254", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe"],
            ),
            (Multicast, &["224.0.0.0", "239.255.255.255", "ff00::", "ff02::1", "ffff::1"]),
            (Benchmarking, &["198.18.0.0", "198.19.255.255", "2001:2::1", "2001:2:0:ffff::1"]),
            (
                Documentation,
                &[
                    "192.0.2.0",
                    "192.0.2.255",
                    "198.51.100.7",
                    "203.0.113.7",
                    "2001:db8::1",
                    "3fff::1",
                ],
            ),
            (Documentation, &["2001:db8:ffff::1", "3fff:fff::1"]),
            (
                Reserved,
                &[
                    "192.0.0.0",
                    "192.0.0.255",
                    "192.88.99.1",
                    "240.0.0.0",
                    "255.255.255.255",
                    "100::1",
                ],
            ),
            // IPv4-compatible, translated, discard, Teredo, ORCHID, local NAT64, segment routing, never given out.
            (
                Reserved,
                &[
                    "::8.8.8.8",
                    "::7f00:1",
                    "::ffff:0:8.8.8.8",
                    "2001::1",
                    "2001:0:4136:e378::1",
                    "2001:20::1",
                ],
            ),
            (
                Reserved,
                &[
                    "2001:1ff:ffff::1",
                    "64:ff9b:1::808:808",
                    "5f00::1",
                    "4000::1",
                    "1fff::1",
                    "64:ff9c::808:808",
                ],
            ),
            (
                Embedding,
                &["64:ff9b::10.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::1", "2002:c0a8:101::1"],
            ),
            (Embedding, &["2606:4700::5efe:10.0.0.1", "2606:4700::200:5efe:127.0.0.1"]),
            (
                Public,
                &[
                    "1.1.1.1",
                    "8.8.8.8",
                    "9.255.255.255",
                    "11.0.0.0",
                    "100.63.255.255",
                    "100.128.0.0",
                ],
            ),
            (
                Public,
                &[
                    "126.255.255.255",
                    "128.0.0.0",
                    "169.253.255.255",
                    "169.255.0.0",
                    "172.15.255.255",
                ],
            ),
            (
                Public,
                &[
                    "172.32.0.0",
                    "192.0.1.0",
                    "192.167.255.255",
                    "192.169.0.0",
                    "198.17.255.255",
                    "198.20.0.0",
                ],
            ),
            (
                Public,
                &[
                    "223.255.255.255",
                    "2606:4700::1111",
                    "2001:200::1",
                    "2001:4860:4860::8888",
                    "::ffff:8.8.8.8",
                ],
            ),
            (
                Public,
                &[
                    "64:ff9b::8.8.8.8",
                    "2002:808:808::1",
                    "2606:4700::5efe:8.8.8.8",
                    "3ffe::1",
                    "2001:db9::1",
                ],
            ),
        ] {
            for address in addresses {
                assert_eq!(AddressKind::new(address.parse().unwrap()), kind, "{address}");
            }
        }
    }

    #[test]
    fn only_public_addresses_are_permitted_unless_the_configuration_says_so() {
        let addresses = [
            "8.8.8.8",
            "10.0.0.1",
            "127.0.0.1",
            "100.64.0.1",
            "fd12::1",
            "169.254.1.1",
            "169.254.169.254",
            "fd00:ec2::254",
            "0.0.0.0",
            "224.0.0.1",
            "198.18.0.1",
            "192.0.2.1",
            "240.0.0.1",
            "64:ff9b::10.0.0.1",
            "::ffff:10.0.0.1",
        ];
        assert_eq!(permitted(&Egress::default(), &addresses), ["8.8.8.8"]);
        let private =
            ["8.8.8.8", "10.0.0.1", "127.0.0.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1"];
        assert_eq!(permitted(&egress(true, &[]), &addresses), private);
        let named = egress(false, &["169.254.169.254", "10.0.0.0/8", "64:ff9b::/96"]);
        let expected =
            ["8.8.8.8", "10.0.0.1", "169.254.169.254", "64:ff9b::10.0.0.1", "::ffff:10.0.0.1"];
        assert_eq!(permitted(&named, &addresses), expected);
    }

    #[test]
    fn a_network_is_permitted_to_its_last_address() {
        let ten = ["10.0.255.255", "10.1.0.0", "10.1.255.255", "10.2.0.0", "::a01:0"];
        assert_eq!(permitted(&egress(false, &["10.1.0.0/16"]), &ten), ["10.1.0.0", "10.1.255.255"]);
        let unique_local = ["fd11:ffff::1", "fd12::", "fd12:0:0:ffff::1", "fd12:0:1::1"];
        assert_eq!(
            permitted(&egress(false, &["fd12::/48"]), &unique_local),
            ["fd12::", "fd12:0:0:ffff::1"]
        );
        let everything = ["10.0.0.1", "::1", "fe80::1", "::ffff:10.0.0.1"];
        assert_eq!(permitted(&egress(false, &["::/0"]), &everything), ["::1", "fe80::1"]);
        assert_eq!(
            permitted(&egress(false, &["0.0.0.0/0"]), &everything),
            ["10.0.0.1", "::ffff:10.0.0.1"]
        );
    }

    #[test]
    fn a_denial_names_the_address_and_what_it_is() {
        let denied =
            |text: &str| Egress::default().check(text.parse().unwrap()).unwrap_err().to_string();
        assert_eq!(denied("10.1.2.3"), "10.1.2.3 (private)");
        assert_eq!(denied("::ffff:169.254.169.254"), "::ffff:169.254.169.254 (cloud metadata)");
        assert_eq!(denied("2002:7f00:1::"), "2002:7f00:1:: (embeds an address that is not public)");
    }

    #[test]
    fn an_entry_that_is_no_plain_network_is_refused_by_its_place() {
        let refused = |entry: &str| {
            let allow = vec!["10.0.0.0/8".into(), entry.into()];
            Egress::new(&EgressConfig { allow, ..EgressConfig::default() }).unwrap_err().to_string()
        };
        let no_network = "is not a network: write it like 10.1.0.0/16 or fd12::/48";
        for entry in
            ["", "worker", "10.1", "10.1.0.0.0/16", "0x0a.0.0.1", "010.0.0.1", "[::1]", "/8"]
        {
            assert_eq!(refused(entry), format!("allow[1] `{entry}` {no_network}"));
        }
        for entry in [
            "10.0.0.0/33",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/8/8",
            "fd12::/129",
            "10.0.0.0/99999999999",
        ] {
            let problem = "has no prefix length between 0 and the address's own";
            assert_eq!(refused(entry), format!("allow[1] `{entry}` {problem}"));
        }
        assert_eq!(refused("10.1.0.1/16"), "allow[1] `10.1.0.1/16` has bits set after its prefix");
        assert_eq!(refused("fd12::1/0"), "allow[1] `fd12::1/0` has bits set after its prefix");
        assert_eq!(
            refused("::ffff:10.0.0.0/104"),
            "allow[1] `::ffff:10.0.0.0/104` must be written as IPv4"
        );
    }

    #[test]
    fn the_section_is_closed_by_default_and_knows_three_keys() {
        let config: EgressConfig = serde_json::from_str("{}").unwrap();
        assert_eq!(config, EgressConfig { allow_http: false, allow_private: false, allow: vec![] });
        let unknown = serde_json::from_str::<EgressConfig>(r#"{"allow_https": true}"#)
            .unwrap_err()
            .to_string();
        assert!(unknown.starts_with("unknown field `allow_https`"), "{unknown}");
    }
}
