//! What the control socket and the admin port can ask, and the shapes they answer.

mod dlq;
mod dump;
mod hooks;
mod purge;
mod quarantine;
mod queue;
mod rate_limits;
mod ready;
mod recount;
mod sources;
mod status;
mod tenants;

use std::sync::Arc;

use tokio::time::Instant;

use crate::edge::RouteStoreHandle;
use crate::node::{Handles, NodeSettings};

pub use dump::{Dump, DumpCursor};
pub use recount::recounted;
pub use sources::{Deliveries, SourceError};
pub use tenants::TenantCursor;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdminError {
    #[error("store_unavailable")]
    StoreUnavailable(String),
    /// The node does not run the role it takes.
    #[error("role_not_enabled")]
    RoleNotEnabled(&'static str),
    /// A row that cannot be decoded: `{corrupt_value, family, key}`.
    #[error("corrupt_value")]
    CorruptValue { family: &'static str, key: String, reason: String },
    /// `store.scrub_bytes_per_s` is 0.
    #[error("scrub_disabled")]
    ScrubDisabled,
    /// `routes.enabled` is false.
    #[error("routes_disabled")]
    RoutesDisabled,
    #[error("no_such_child")]
    NoSuchChild(String),
    /// No hook of this tenant was ever committed here.
    #[error("tenant_not_found")]
    TenantNotFound(String),
    /// What is asked for in this field cannot be.
    #[error("invalid_filter")]
    InvalidFilter(&'static str),
    /// What is to be a rate limit cannot be one.
    #[error("invalid_rate_limit")]
    InvalidRateLimit(String),
    /// Nobody has set a limit of this tenant.
    #[error("rate_limit_not_found")]
    RateLimitNotFound,
    /// So many tenants have one already.
    #[error("too_many_rate_limits")]
    TooManyRateLimits(usize),
    /// Dispatch is between incarnations, or ended over it.
    #[error("dispatch_unavailable")]
    DispatchUnavailable,
}

/// Everything an operator can ask of a running node. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    pub handles: Handles,
    settings: Arc<NodeSettings>,
    version: &'static str,
    started: Instant,
}

impl Admin {
    pub fn new(handles: Handles, settings: NodeSettings, version: &'static str) -> Self {
        Self { handles, settings: Arc::new(settings), version, started: Instant::now() }
    }

    /// How routes are read and changed.
    ///
    /// # Errors
    /// There is no guard on this node.
    pub fn routes(&self) -> Result<&RouteStoreHandle, AdminError> {
        if !self.settings.roles.edge {
            return Err(AdminError::RoleNotEnabled("edge"));
        }
        let guard = self.settings.routes.as_ref();
        guard.map(|_| &self.handles.routes).ok_or(AdminError::RoutesDisabled)
    }

    /// Makes a child panic, for a drill.
    pub fn crash(&self, child: &str) -> Result<(), AdminError> {
        let crashed = self.handles.board.crash(child);
        crashed.then_some(()).ok_or_else(|| AdminError::NoSuchChild(child.to_owned()))
    }
}
