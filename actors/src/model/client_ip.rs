//! Whose request it is: the address of the peer, or what proxies that are trusted say of it.
//!
//! `X-Forwarded-For` is data of whoever sent the request, but for what a trusted proxy put at its end. So it is read from
//! the right, and only as far as each step was written by somebody who is trusted: the first address that is not is the
//! client. What stands left of it proves nothing and is not looked at.

use std::net::{IpAddr, SocketAddr};

use super::network::Network;

/// An address in the chain that cannot be read, behind a trusted proxy: nobody knows whose request this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an entry of x-forwarded-for is no address")]
pub struct Unreadable;

/// The address of the client. `forwarded_for` are the values of all `X-Forwarded-For` headers in the order they came;
/// they count only where `peer` is in `trusted`. Where every address is a trusted one, the leftmost is the client.
/// IPv4-mapped IPv6 comes out as the IPv4 address it stands for.
///
/// # Errors
/// An entry that had to be read is no address. A guard refuses such a request; a limit is charged to the peer.
pub fn client_ip<V: AsRef<[u8]>>(
    peer: IpAddr,
    forwarded_for: &[V],
    trusted: &[Network],
) -> Result<IpAddr, Unreadable> {
    let is_trusted = |address: IpAddr| trusted.iter().any(|network| network.contains(address));
    let mut client = peer.to_canonical();
    let values = forwarded_for.iter().rev();
    let mut entries = values.flat_map(|value| value.as_ref().rsplit(|byte| *byte == b','));
    while is_trusted(client) {
        let Some(entry) = entries.next() else { break };
        client = address(entry)?;
    }
    Ok(client)
}

/// `192.0.2.1`, `2001:db8::1`, and both with a port: some proxies write one.
fn address(entry: &[u8]) -> Result<IpAddr, Unreadable> {
    let text = std::str::from_utf8(entry).map_err(|_| Unreadable)?.trim_matches([' ', '\t']);
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
    let address = match bare {
        Some(bare) => bare.parse().map(IpAddr::V6).ok(),
        None => text.parse().ok(),
    };
    let with_port = || text.parse::<SocketAddr>().ok().map(|socket| socket.ip());
    address.or_else(with_port).map(|address| address.to_canonical()).ok_or(Unreadable)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn trusted() -> Vec<Network> {
        ["10.0.0.0/8", "fd00::/8"].map(|entry| Network::parse(entry).unwrap()).to_vec()
    }

    fn client(peer: &str, forwarded_for: &[&str]) -> Result<String, Unreadable> {
        client_ip(ip(peer), forwarded_for, &trusted()).map(|address| address.to_string())
    }

    #[test]
    fn the_first_address_from_the_right_that_is_not_trusted_is_the_client() {
        let table: [(&str, &[&str], &str); 12] = [
            ("192.0.2.1", &[], "192.0.2.1"),
            ("192.0.2.1", &["203.0.113.9"], "192.0.2.1"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.7, 203.0.113.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.7, 203.0.113.9, 10.9.9.9"], "203.0.113.9"),
            ("10.0.0.1", &["198.51.100.7", "203.0.113.9", "10.9.9.9 ,\t10.0.0.2"], "203.0.113.9"),
            ("10.0.0.1", &["10.0.0.3,10.0.0.2"], "10.0.0.3"),
            ("::ffff:10.0.0.1", &["::ffff:203.0.113.9"], "203.0.113.9"),
            ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
            ("10.0.0.1", &["203.0.113.9:4711"], "203.0.113.9"),
            ("10.0.0.1", &["[2001:db8::7]:80,[fd00::2]"], "2001:db8::7"),
        ];
        for (peer, forwarded_for, expected) in table {
            let found = client(peer, forwarded_for);
            assert_eq!(found, Ok(expected.to_owned()), "{peer} {forwarded_for:?}");
        }
    }

    #[test]
    fn an_entry_that_must_be_read_and_cannot_is_an_error_and_any_other_is_not_looked_at() {
        let unreadable =
            ["", "unknown", "_hidden", "10.0.0", "203.0.113.9, ", "for=203.0.113.9", "[10.0.0.1]"];
        for entry in unreadable {
            assert_eq!(client("10.0.0.1", &[entry]), Err(Unreadable), "{entry:?}");
            assert_eq!(client("192.0.2.1", &[entry]), Ok("192.0.2.1".to_owned()), "{entry:?}");
            let behind = format!("{entry},203.0.113.9");
            assert_eq!(client("10.0.0.1", &[&behind]), Ok("203.0.113.9".to_owned()), "{entry:?}");
        }
    }

    proptest! {
        /// Whatever stands left of what the last trusted proxy wrote changes nothing.
        #[test]
        fn what_the_client_wrote_itself_never_names_it(
            forged in proptest::collection::vec(any::<u8>(), 0..64),
            address in any::<[u8; 4]>(),
            proxies in proptest::collection::vec(any::<[u8; 3]>(), 0..4),
        ) {
            let client = IpAddr::from(address);
            prop_assume!(address[0] != 10);
            let honest: Vec<String> = proxies.iter().map(|[b, c, d]| format!("10.{b}.{c}.{d}")).collect();
            let chain = std::iter::once(client.to_string()).chain(honest).collect::<Vec<_>>().join(", ");
            let with_forged = [&forged[..], b",", chain.as_bytes()].concat();
            for header in [chain.into_bytes(), with_forged] {
                let found = client_ip(ip("10.1.1.1"), &[header], &trusted());
                prop_assert_eq!(found, Ok(client));
            }
        }

        #[test]
        fn a_peer_that_is_not_trusted_is_the_client_whatever_it_says(
            peer in any::<[u8; 16]>(),
            headers in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..3),
        ) {
            let peer = IpAddr::from(peer);
            prop_assume!(!trusted().iter().any(|network| network.contains(peer)));
            prop_assert_eq!(client_ip(peer, &headers, &trusted()), Ok(peer.to_canonical()));
        }
    }
}
