//! Which addresses sinks may reach.
#![allow(clippy::unwrap_used)]

use ankusa_actors::model::egress::{AddressKind, Egress, EgressConfig};

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
        (Private, &["10.0.0.0", "10.255.255.255", "172.16.0.0", "172.31.255.255", "192.168.0.0"]),
        (
            Private,
            &["192.168.255.255", "fc00::", "fdff:ffff::1", "fec0::1", "feff::1", "::ffff:10.0.0.1"],
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
            &["192.0.2.0", "192.0.2.255", "198.51.100.7", "203.0.113.7", "2001:db8::1", "3fff::1"],
        ),
        (Documentation, &["2001:db8:ffff::1", "3fff:fff::1"]),
        (
            Reserved,
            &["192.0.0.0", "192.0.0.255", "192.88.99.1", "240.0.0.0", "255.255.255.255", "100::1"],
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
            &["1.1.1.1", "8.8.8.8", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0"],
        ),
        (
            Public,
            &["126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255"],
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
    let private = ["8.8.8.8", "10.0.0.1", "127.0.0.1", "100.64.0.1", "fd12::1", "::ffff:10.0.0.1"];
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
    for entry in ["", "worker", "10.1", "10.1.0.0.0/16", "0x0a.0.0.1", "010.0.0.1", "[::1]", "/8"] {
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
    let unknown =
        serde_json::from_str::<EgressConfig>(r#"{"allow_https": true}"#).unwrap_err().to_string();
    assert!(unknown.starts_with("unknown field `allow_https`"), "{unknown}");
}
