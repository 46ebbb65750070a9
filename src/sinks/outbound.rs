//! The HTTP clients all sinks of a node share: the guard before them, and their connections.
//!
//! Shared because a client that speaks TLS reads every root certificate of the machine as it is built (measured: 137 KiB
//! and tens of milliseconds in a debug build), and a node may have a sink for each of ten thousand sources.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::redirect::Policy;
use reqwest::{Client, ClientBuilder, retry};

use ankusa_actors::model::egress::Egress;
use ankusa_actors::ports::Clock;

use super::egress::{GuardedResolver, Lookup, SystemLookup};
use super::failure::root_cause;

/// Idle connections kept a worker. More deliveries at once than this open connections they do not keep.
const POOL_MAX_IDLE_CONNECTIONS: usize = 64;

/// How long an idle connection is kept, in milliseconds: below the 5 s after which common servers close theirs, so that
/// a delivery seldom meets a connection that is being closed under it.
const POOL_IDLE_TIMEOUT_MS: u64 = 4_000;

/// How long a connection may take to open, in milliseconds, from the look-up to the end of the TLS handshake. It ends
/// what an attempt with a shorter timeout has left behind.
const CONNECT_TIMEOUT_MS: u64 = 10_000;

/// What [`super::HttpSink`]s deliver through. Built once a node.
pub struct Outbound {
    egress: Egress,
    clock: Arc<dyn Clock>,
    resolver: Arc<GuardedResolver>,
    plain: Built,
    /// Built for the first `https` sink: a machine without root certificates can run a node that needs none.
    tls: Built,
}

/// A client, or why there can be none.
type Built = OnceLock<Result<Client, String>>;

impl Outbound {
    /// Names are resolved by the machine.
    pub fn new(egress: Egress, clock: Arc<dyn Clock>) -> Self {
        Self::with_lookup(egress, clock, Arc::new(SystemLookup))
    }

    /// Names are resolved by `lookup`. What it answers is judged by `egress` all the same.
    pub fn with_lookup(egress: Egress, clock: Arc<dyn Clock>, lookup: Arc<dyn Lookup>) -> Self {
        let resolver = Arc::new(GuardedResolver { egress: egress.clone(), lookup });
        Self { egress, clock, resolver, plain: OnceLock::new(), tls: OnceLock::new() }
    }

    pub(super) const fn egress(&self) -> &Egress {
        &self.egress
    }

    pub(super) fn clock(&self) -> Arc<dyn Clock> {
        Arc::clone(&self.clock)
    }

    /// The client for a scheme.
    ///
    /// # Errors
    ///
    /// Why there is none, for TLS most likely that the machine has no root certificates.
    pub(super) fn client(&self, tls: bool) -> Result<Client, String> {
        let built = if tls {
            self.tls.get_or_init(|| build(self.builder()))
        } else {
            self.plain.get_or_init(|| build(self.builder().tls_certs_only([])))
        };
        built.clone()
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder()
            .dns_resolver(Arc::clone(&self.resolver))
            // A proxy would connect to addresses nobody here has judged.
            .no_proxy()
            .redirect(Policy::none())
            .referer(false)
            // One delivery is one request: trying again is for the retry policy, which counts.
            .retry(retry::never())
            // Enough for one request at a time a connection, and workers see the headers in their documented order.
            .http1_only()
            .tcp_nodelay(true)
            .pool_max_idle_per_host(POOL_MAX_IDLE_CONNECTIONS)
            .pool_idle_timeout(Duration::from_millis(POOL_IDLE_TIMEOUT_MS))
            .connect_timeout(Duration::from_millis(CONNECT_TIMEOUT_MS))
    }
}

fn build(builder: ClientBuilder) -> Result<Client, String> {
    builder.build().map_err(|error| root_cause(&error))
}
