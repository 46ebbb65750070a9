//! Where the node may connect to on somebody else's word: a sink's URL is data, and the data must not reach the
//! operator's own network.
//!
//! Addresses are judged, never names: a name means whatever its owner says at the moment it is asked for. Whoever
//! connects must therefore connect to the very address that was judged here.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::network::Network;

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
