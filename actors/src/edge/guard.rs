//! The route guard at the edge: asked before anything else of a request is looked at, and denies what no route takes.
//!
//! It reads the routes as the route store published them last. While their rows cannot be read a request is neither
//! allowed nor denied: it is answered 503, because a provider takes 404 for good.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use tracing::info;

use super::answer::Answer;
use super::ingest::RequestHead;
use crate::model::client_ip::client_ip;
use crate::model::network::Network;
use crate::model::route::{IpRules, Reason, RouteSet, RouteSpec};
use crate::ports::RefusedReason;

/// Bytes of a path that a log line shows.
const LOGGED_PATH_BYTES: usize = 256;

/// Section `routes`, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutesSettings {
    /// Routes at once; one more is refused.
    pub max_routes: usize,
    /// Of so many denials one is logged; 0 for none.
    pub log_sample: u64,
    /// What a client hears that the IP rules deny: 403 or 404.
    pub ip_denied_status: u16,
    /// Whose word on the client's address counts.
    pub trusted_proxies: Arc<[Network]>,
    /// The global rules until the API writes others.
    pub rules: IpRules,
    /// By id; made at a start where there is no such route.
    pub seed: BTreeMap<String, RouteSpec>,
}

/// The routes at one moment, and what of them cannot be read.
#[derive(Debug, Default)]
pub struct RoutesNow {
    pub set: Arc<RouteSet>,
    /// Ids whose rows cannot be read, and why: such routes exist, and nobody knows what they take.
    pub unreadable: BTreeMap<String, String>,
    /// Why the global rules cannot be read.
    pub rules_unreadable: Option<String>,
    /// The rows have not been read yet.
    pub is_loading: bool,
}

impl RoutesNow {
    fn loading() -> Self {
        Self { is_loading: true, ..Self::default() }
    }

    /// Whether a denial may be one that a row which cannot be read would not have made, or the other way round.
    pub fn is_unsure(&self, reason: Reason) -> bool {
        let of_path = match reason {
            Reason::NoRoute | Reason::Method => !self.unreadable.is_empty(),
            Reason::Matched | Reason::IpDenied => false,
        };
        self.is_loading || self.rules_unreadable.is_some() || of_path
    }
}

/// The routes as they are now. Made with the tree, so it survives whoever writes it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct RouteTable(Arc<ArcSwap<RoutesNow>>);

impl Default for RouteTable {
    fn default() -> Self {
        Self(Arc::new(ArcSwap::from_pointee(RoutesNow::loading())))
    }
}

impl RouteTable {
    pub fn now(&self) -> Arc<RoutesNow> {
        self.0.load_full()
    }

    pub(super) fn publish(&self, now: RoutesNow) {
        self.0.store(Arc::new(now));
    }
}

/// Decides about requests by the routes. Shared by every connection.
pub struct Guard {
    table: RouteTable,
    trusted_proxies: Arc<[Network]>,
    ip_denied_status: u16,
    log_sample: u64,
    denied: AtomicU64,
}

impl Guard {
    pub fn new(settings: &RoutesSettings, table: &RouteTable) -> Self {
        Self {
            table: table.clone(),
            trusted_proxies: Arc::clone(&settings.trusted_proxies),
            ip_denied_status: settings.ip_denied_status,
            log_sample: settings.log_sample,
            denied: AtomicU64::new(0),
        }
    }

    /// # Errors
    /// The request is denied, or nobody can tell.
    pub(super) fn check(&self, head: &RequestHead) -> Result<(), (RefusedReason, Answer)> {
        let now = self.table.0.load();
        let client = head.remote.and_then(|peer| self.client(peer, head));
        let reason = now.set.decide(&head.method, &head.path, client).reason;
        if now.is_unsure(reason) {
            let answer = Answer::unavailable("store_unavailable");
            return Err((RefusedReason::StoreUnavailable, answer));
        }
        // What is heard where there is nothing, guard or not: nothing can be probed.
        let is_hook = head.method == "POST";
        let nothing = || if is_hook { Answer::unknown_source() } else { Answer::not_found() };
        let refused = match reason {
            Reason::Matched => return Ok(()),
            Reason::NoRoute => (RefusedReason::NoRoute, nothing()),
            Reason::Method => (RefusedReason::RouteMethod, nothing()),
            Reason::IpDenied if self.ip_denied_status == 404 => {
                (RefusedReason::IpDenied, nothing())
            }
            Reason::IpDenied => (RefusedReason::IpDenied, Answer::ip_denied()),
        };
        self.log(head, client, reason);
        Err(refused)
    }

    /// Nothing where a trusted proxy says what nobody can read: then no rule can let the client through.
    fn client(&self, peer: IpAddr, head: &RequestHead) -> Option<IpAddr> {
        let named = head.headers.iter();
        let named = named.filter(|(name, _)| name.eq_ignore_ascii_case(b"x-forwarded-for"));
        let values: Vec<&[u8]> = named.map(|(_, value)| value.as_ref()).collect();
        client_ip(peer, &values, &self.trusted_proxies).ok()
    }

    fn log(&self, head: &RequestHead, client: Option<IpAddr>, reason: Reason) {
        let before = self.denied.fetch_add(1, Ordering::Relaxed);
        if self.log_sample == 0 || !before.is_multiple_of(self.log_sample) {
            return;
        }
        let path = head.path.as_bytes();
        let path = path.get(..LOGGED_PATH_BYTES).unwrap_or(path).escape_ascii();
        let (reason, method) = (reason.as_str(), &head.method);
        let client = client.map(|client| client.to_string()).unwrap_or_default();
        info!(reason, %method, %path, %client, one_of = self.log_sample, "a request was denied");
    }
}
