//! Which requests may reach ingest at all, and where that is managed: the config section `routes`.

use std::net::{IpAddr, Ipv4Addr};

use serde::{Deserialize, Serialize};

use ankusa_actors::edge::RoutesSettings;
use ankusa_actors::model::network::Network;
use ankusa_actors::model::route::{Access, IpRuleFields, IpRules, RouteFields, RouteSpec};

/// Section `routes`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoutesConfig {
    /// On, everything that no route takes is denied.
    pub enabled: bool,
    /// Routes at once, > 0 and at most 100,000. One more is answered 409.
    pub max_routes: usize,
    /// Of so many denials one is logged; 0 for none.
    pub log_sample: u64,
    /// What a client hears that the IP rules deny: 403, or 404 as if there were nothing.
    pub ip_denied_status: u16,
    /// Networks whose word on the client's address counts here. Default none.
    pub trusted_proxies: Vec<String>,
    pub ip_rules: IpRulesConfig,
    /// Made at a start where there is no route of that id. Each has one.
    pub seed: Vec<RouteFields>,
    pub admin: RoutesAdminConfig,
}

/// Section `routes.ip_rules`: the global rules until the API writes others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IpRulesConfig {
    /// For clients that no rule has.
    pub default: Access,
    /// The first that has the client counts.
    pub rules: Vec<IpRuleFields>,
}

/// Section `routes.admin`: the listener of the routes API. It asks for the tokens of `admin.tokens` and speaks TLS as
/// `admin.tls` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoutesAdminConfig {
    /// 0 to 65535, another than `http.port` and `admin.port`; 0 lets the kernel choose.
    pub port: u16,
    /// An IPv4 or IPv6 literal. Beyond loopback it needs `admin.tokens`.
    pub ip: IpAddr,
}

impl Default for RoutesConfig {
    fn default() -> Self {
        Self {
            enabled: false,
            max_routes: 10_000,
            log_sample: 100,
            ip_denied_status: 403,
            trusted_proxies: Vec::new(),
            ip_rules: IpRulesConfig::default(),
            seed: Vec::new(),
            admin: RoutesAdminConfig::default(),
        }
    }
}

impl Default for RoutesAdminConfig {
    fn default() -> Self {
        Self { port: 4003, ip: IpAddr::V4(Ipv4Addr::LOCALHOST) }
    }
}

impl RoutesConfig {
    /// What the guard works by; nothing where it is off.
    pub fn settings(&self) -> Option<RoutesSettings> {
        // All of it has been checked.
        let seed = self
            .seed
            .iter()
            .filter_map(|fields| Some((fields.id.clone()?, RouteSpec::new(fields.clone()).ok()?)));
        let IpRulesConfig { default, rules } = self.ip_rules.clone();
        let proxies = self.trusted_proxies.iter();
        self.enabled.then(|| RoutesSettings {
            max_routes: self.max_routes,
            log_sample: self.log_sample,
            ip_denied_status: self.ip_denied_status,
            trusted_proxies: proxies.filter_map(|entry| Network::parse(entry).ok()).collect(),
            rules: IpRules::new(default, rules).unwrap_or_default(),
            seed: seed.collect(),
        })
    }
}
