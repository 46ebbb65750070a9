//! How much is taken of whom: the limits of the configuration, those an operator has set since, and what has been taken.
//!
//! A hook is charged once it has verified, so that whoever forges one neither uses anybody's limit up nor makes a bucket.
//! It is charged to its node, source, tenant and client together, or to none of them. Everything here is memory of this
//! process: after a restart all buckets are full. Where nothing is limited, nothing is looked up.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::cells::{Cell, Cells, take_all};
use super::config::RateLimitsConfig;
use super::rate_limiter::RateLimiterMsg;
use crate::model::gcra::retry_after_s;
use crate::model::rate_limit::{Limits, RateLimit, TenantLimit};
use crate::supervision::Slot;

/// Buckets of tenants: more than a node has tenants that send at once.
const MAX_TENANT_CELLS: usize = 100_000;

/// Buckets of sources likewise.
const MAX_SOURCE_CELLS: usize = 16_384;

/// Buckets of client addresses. Together with the other two they take some tens of megabytes when all are in use.
const MAX_CLIENT_CELLS: usize = 65_536;

/// Where the limit of a tenant is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// An operator has set it while the node ran.
    Override,
    /// `rate_limits.tenants`.
    Config,
    /// `rate_limits.default`.
    Default,
    /// There is none.
    None,
}

impl LimitSource {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Override => "override",
            Self::Config => "config",
            Self::Default => "default",
            Self::None => "none",
        }
    }
}

/// Who sends a hook that has verified.
#[derive(Clone, Copy, Debug)]
pub struct Sender<'a> {
    pub tenant: &'a str,
    pub source_id: &'a str,
    /// The limits of its source.
    pub source: Limits,
    /// Where it is from, if that is known.
    pub client: Option<IpAddr>,
}

/// A tenant's limit, as it is written and as it is worked with.
#[derive(Clone, Copy, Debug)]
struct Known {
    written: TenantLimit,
    limits: Limits,
}

#[derive(Debug)]
struct Shared {
    default: Option<RateLimit>,
    default_limits: Limits,
    tenants: BTreeMap<String, Known>,
    client_ip: Limits,
    node: Limits,
    max_body_bytes: u64,
    overrides: RwLock<BTreeMap<String, Known>>,
    has_overrides: AtomicBool,
    /// The overrides have been read since the start of this node.
    has_read: AtomicBool,
    node_cell: Cell,
    tenant_cells: Cells,
    source_cells: Cells,
    client_cells: Cells,
    since: Instant,
}

/// The limits, as everybody uses them. Cheap to clone; survives restarts of the process that keeps the overrides.
#[derive(Clone)]
pub struct LimitsHandle {
    slot: Slot<RateLimiterMsg>,
    shared: Arc<Shared>,
}

impl Default for LimitsHandle {
    fn default() -> Self {
        Self::new(&RateLimitsConfig::default(), 0)
    }
}

impl LimitsHandle {
    /// A limit of the configuration that cannot be is none: the configuration has been checked.
    pub fn new(config: &RateLimitsConfig, max_body_bytes: usize) -> Self {
        let max_body_bytes = u64::try_from(max_body_bytes).unwrap_or(u64::MAX);
        let limits = |written: Option<RateLimit>| {
            written.and_then(|written| written.limits(max_body_bytes).ok()).unwrap_or_default()
        };
        let known = |(id, written): (&String, &TenantLimit)| {
            let limits = written.limits(max_body_bytes).unwrap_or_default();
            (id.clone(), Known { written: *written, limits })
        };
        let shared = Shared {
            default: config.default,
            default_limits: limits(config.default),
            tenants: config.tenants.iter().map(known).collect(),
            client_ip: limits(config.client_ip),
            node: limits(config.node),
            max_body_bytes,
            overrides: RwLock::default(),
            has_overrides: AtomicBool::new(false),
            has_read: AtomicBool::new(false),
            node_cell: Cell::default(),
            tenant_cells: Cells::new(MAX_TENANT_CELLS),
            source_cells: Cells::new(MAX_SOURCE_CELLS),
            client_cells: Cells::new(MAX_CLIENT_CELLS),
            since: Instant::now(),
        };
        Self { slot: Slot::default(), shared: Arc::new(shared) }
    }

    pub fn slot(&self) -> &Slot<RateLimiterMsg> {
        &self.slot
    }

    /// `http.max_body_bytes`, below which no limit of bytes may be.
    pub fn max_body_bytes(&self) -> u64 {
        self.shared.max_body_bytes
    }

    /// Whether it matters where a hook is from.
    pub fn limits_clients(&self) -> bool {
        !self.shared.client_ip.is_none()
    }

    /// Takes a hook of `bytes` from everything it is limited by.
    ///
    /// # Errors
    /// One of these has not enough, and nothing was taken anywhere: the whole seconds to wait, at least one.
    pub fn charge(&self, sender: Sender<'_>, bytes: usize) -> Result<(), u32> {
        let shared = &*self.shared;
        let tenant = self.limits_of(sender.tenant);
        let client = sender.client.filter(|_| !shared.client_ip.is_none());
        let is_free = shared.node.is_none() && sender.source.is_none() && tenant.is_none();
        if is_free && client.is_none() {
            return Ok(());
        }
        let now = shared.now_ns();
        let in_use = |limits: Limits| Some(limits).filter(|limits| !limits.is_none());
        let of_tenant = in_use(tenant)
            .map(|limits| (shared.tenant_cells.of(sender.tenant.as_bytes(), now), limits));
        let of_source = in_use(sender.source)
            .map(|limits| (shared.source_cells.of(sender.source_id.as_bytes(), now), limits));
        let of_client =
            client.map(|ip| (shared.client_cells.of(&client_key(ip), now), shared.client_ip));
        let keyed = [&of_source, &of_tenant, &of_client].into_iter().flatten();
        let cells = keyed.map(|(cell, limits)| (&**cell, *limits));
        let cells = std::iter::once((&shared.node_cell, shared.node)).chain(cells);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        take_all(cells, bytes, || shared.now_ns()).map_err(retry_after_s)
    }

    /// What a tenant may have of the room in the batchers that others leave, in percent, where it has a share of its own.
    pub fn share_percent(&self, tenant: &str) -> Option<u32> {
        let own = |known: &Known| known.written.overload_share_percent;
        let set = self.overridden(tenant).as_ref().and_then(own);
        set.or_else(|| self.shared.tenants.get(tenant).and_then(own))
    }

    /// The limit of a tenant as it is written, and where it is from.
    pub fn of_tenant(&self, tenant: &str) -> (TenantLimit, LimitSource) {
        if let Some(known) = self.overridden(tenant) {
            return (known.written, LimitSource::Override);
        }
        match (self.shared.tenants.get(tenant), self.shared.default) {
            (Some(known), _) => (known.written, LimitSource::Config),
            (None, Some(limit)) => {
                (TenantLimit { limit, ..TenantLimit::default() }, LimitSource::Default)
            }
            (None, None) => (TenantLimit::default(), LimitSource::None),
        }
    }

    /// `rate_limits.default`.
    pub fn of_others(&self) -> Option<RateLimit> {
        self.shared.default
    }

    /// Every tenant that has a limit of its own, in the order of their ids.
    pub fn named(&self) -> Vec<String> {
        let overrides = self.shared.overrides.read().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<String> =
            overrides.keys().chain(self.shared.tenants.keys()).cloned().collect();
        all.sort();
        all.dedup();
        all
    }

    /// Buckets there are of tenants, sources and clients.
    pub fn cells(&self) -> [usize; 3] {
        let Shared { tenant_cells, source_cells, client_cells, .. } = &*self.shared;
        [tenant_cells, source_cells, client_cells].map(Cells::len)
    }

    /// These are the overrides from now on, and the buckets of those that changed are full.
    pub(super) fn set_overrides(&self, written: &BTreeMap<String, TenantLimit>) {
        let known = |(tenant, written): (&String, &TenantLimit)| {
            // One that was written under a smaller `http.max_body_bytes` stays in force.
            let limits = written.limits(0).unwrap_or_default();
            (tenant.clone(), Known { written: *written, limits })
        };
        let new: BTreeMap<String, Known> = written.iter().map(known).collect();
        let mut overrides = self.shared.overrides.write().unwrap_or_else(PoisonError::into_inner);
        self.shared.has_overrides.store(!new.is_empty(), Ordering::Release);
        self.shared.has_read.store(true, Ordering::Release);
        let old = std::mem::replace(&mut *overrides, new);
        for tenant in old.keys().chain(overrides.keys()) {
            let of = |known: &BTreeMap<String, Known>| known.get(tenant).map(|one| one.written);
            if of(&old) != of(&overrides) {
                self.shared.tenant_cells.reset(tenant.as_bytes());
            }
        }
    }

    /// Whether the overrides have ever been read here.
    pub(super) fn has_read(&self) -> bool {
        self.shared.has_read.load(Ordering::Acquire)
    }

    /// Fills the bucket of a tenant.
    pub(super) fn reset(&self, tenant: &str) {
        self.shared.tenant_cells.reset(tenant.as_bytes());
    }

    fn limits_of(&self, tenant: &str) -> Limits {
        if let Some(known) = self.overridden(tenant) {
            return known.limits;
        }
        self.shared.tenants.get(tenant).map_or(self.shared.default_limits, |known| known.limits)
    }

    fn overridden(&self, tenant: &str) -> Option<Known> {
        if !self.shared.has_overrides.load(Ordering::Acquire) {
            return None;
        }
        let overrides = self.shared.overrides.read().unwrap_or_else(PoisonError::into_inner);
        overrides.get(tenant).copied()
    }
}

impl Shared {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.since.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

/// Whoever has one IPv6 address has the /64 around it.
fn client_key(client: IpAddr) -> SmallVec<[u8; 8]> {
    match client.to_canonical() {
        IpAddr::V4(address) => address.octets().into_iter().collect(),
        IpAddr::V6(address) => address.octets().into_iter().take(8).collect(),
    }
}
