//! A chain of proxies: the address found is the peer's own unless the peer is trusted, and the last one that is not
//! trusted where there is one.
#![no_main]

use std::net::IpAddr;

use ankusa_actors::model::client_ip::client_ip;
use ankusa_actors::model::network::Network;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let trusted = [Network::parse("10.0.0.0/8").unwrap(), Network::parse("fd00::/8").unwrap()];
    let values: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
    let stranger: IpAddr = "192.0.2.1".parse().unwrap();
    assert_eq!(client_ip(stranger, &values, &trusted), Ok(stranger));
    let proxy: IpAddr = "10.0.0.1".parse().unwrap();
    if let Ok(client) = client_ip(proxy, &values, &trusted) {
        assert_eq!(client, client.to_canonical());
    }
});
