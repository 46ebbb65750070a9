//! Holds connections to [`Egress`]: a literal address is judged as the URL is read, a name as it is resolved.
//!
//! The resolver below hands the HTTP client nothing but addresses that were judged, and the client connects to what it
//! is handed: a name that means something else a moment later changes nothing. For a literal the client asks no
//! resolver, which is why [`check_url`] must see every URL first; what `0x7f.1` or `2130706433` mean is settled by the
//! URL parser that the client uses too.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use ankusa_actors::model::egress::{Denied, Egress};

/// How many denied addresses a reason names.
const NAMED_ADDRESSES: usize = 3;

/// Asks what addresses a name has.
#[async_trait]
pub trait Lookup: Send + Sync + 'static {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The machine's own resolver: `/etc/hosts`, `/etc/resolv.conf` and what else is configured there.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Whether `url` may be used as far as it can be told without asking for names.
///
/// # Errors
///
/// A sentence that begins with `egress denied` and ends with the way out.
pub fn check_url(egress: &Egress, url: &Url) -> Result<(), String> {
    if url.scheme() != "https" && !egress.allows_http() {
        return Err("egress denied: plain http, unless egress.allow_http is true".into());
    }
    let checked = match url.host() {
        Some(Host::Ipv4(address)) => egress.check(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => egress.check(IpAddr::V6(address)),
        // By definition this machine, whatever a resolver says.
        Some(Host::Domain(name)) if is_localhost(name) => egress
            .check(IpAddr::V6(Ipv6Addr::LOCALHOST))
            .or_else(|_| egress.check(IpAddr::V4(Ipv4Addr::LOCALHOST))),
        Some(Host::Domain(_)) | None => Ok(()),
    };
    checked.map_err(|denied| format!("egress denied: {denied}, unless egress.allow names it"))
}

fn is_localhost(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    name == "localhost" || name.ends_with(".localhost")
}

/// A name that leads nowhere, for now: every one of these can be put right in the DNS, so none is permanent.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResolveError {
    #[error("cannot resolve {host}: {error}")]
    Failed { host: String, error: io::Error },
    #[error("cannot resolve {host}: it has no address")]
    NoAddress { host: String },
    #[error("egress denied: {host} resolves only to {denied}")]
    Denied { host: String, denied: String },
}

/// Resolves names for the HTTP client, and keeps back the addresses that may not be connected to.
pub(super) struct GuardedResolver {
    pub(super) egress: Egress,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl Resolve for GuardedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (egress, lookup) = (self.egress.clone(), Arc::clone(&self.lookup));
        Box::pin(async move {
            let host = name.as_str();
            let found = lookup.lookup(host).await;
            let found = found.map_err(|error| ResolveError::Failed { host: host.into(), error })?;
            let permitted = permitted(&egress, host, &found)?;
            // Port 0 stands for the URL's own.
            let addresses = permitted.into_iter().map(|address| SocketAddr::new(address, 0));
            Ok(Box::new(addresses) as Addrs)
        })
    }
}

fn permitted(egress: &Egress, host: &str, found: &[IpAddr]) -> Result<Vec<IpAddr>, ResolveError> {
    let permitted: Vec<IpAddr> =
        found.iter().copied().filter(|address| egress.check(*address).is_ok()).collect();
    if !permitted.is_empty() {
        return Ok(permitted);
    }
    let denied: Vec<Denied> =
        found.iter().filter_map(|address| egress.check(*address).err()).collect();
    if denied.is_empty() {
        return Err(ResolveError::NoAddress { host: host.into() });
    }
    let named: Vec<String> = denied.iter().take(NAMED_ADDRESSES).map(Denied::to_string).collect();
    let more = denied.len().saturating_sub(NAMED_ADDRESSES);
    let denied =
        if more == 0 { named.join(", ") } else { format!("{} and {more} more", named.join(", ")) };
    Err(ResolveError::Denied { host: host.into(), denied })
}
