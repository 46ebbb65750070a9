//! How others read and change the routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ractor::rpc::CallResult;

use super::RouteStoreMsg;
use crate::edge::guard::RouteTable;
use crate::model::route::{Invalid, IpRules, Route, RoutePatch, RouteSpec};
use crate::ports::KvError;
use crate::supervision::Slot;

/// One change that is asked for.
#[derive(Debug)]
pub enum RouteChange {
    /// A new one; an id is made unless it has one.
    Create {
        id: Option<String>,
        spec: Box<RouteSpec>,
    },
    /// A new one, or another under an id that is taken.
    Put {
        id: String,
        spec: Box<RouteSpec>,
    },
    Patch {
        id: String,
        patch: RoutePatch,
    },
    Delete {
        id: String,
    },
    /// Other global rules.
    Rules(IpRules),
}

/// Why nothing was changed, or it is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RouteStoreError {
    #[error("not_found")]
    NotFound,
    /// Its id is taken, or another enabled route takes one of its methods of its path.
    #[error("duplicate_route")]
    Duplicate { conflicting_id: String },
    #[error("too_many_routes")]
    TooMany { max_routes: usize },
    #[error("invalid_route")]
    Invalid(Invalid),
    /// There is one, and its row cannot be read. Put or delete it.
    #[error("corrupt_value")]
    Unreadable { id: String, reason: String },
    /// Asked for again, it is seen whether it was made.
    #[error("store_unavailable")]
    Unavailable(String),
}

impl From<KvError> for RouteStoreError {
    fn from(error: KvError) -> Self {
        Self::Unavailable(error.to_string())
    }
}

/// Cheap to clone; survives restarts.
#[derive(Clone, Default)]
pub struct RouteStoreHandle {
    slot: Slot<RouteStoreMsg>,
    table: RouteTable,
    /// The seed is for a start of the node: a route that is deleted while it runs stays away.
    seeded: Arc<AtomicBool>,
}

impl RouteStoreHandle {
    pub fn slot(&self) -> &Slot<RouteStoreMsg> {
        &self.slot
    }

    /// What everybody reads.
    pub fn table(&self) -> &RouteTable {
        &self.table
    }

    pub(super) fn is_seeded(&self) -> bool {
        self.seeded.load(Ordering::Acquire)
    }

    pub(super) fn seeded(&self) {
        self.seeded.store(true, Ordering::Release);
    }

    /// Durable once it is answered, and seen by every reader. Answers the route as it is now; `None` where there is
    /// none to show.
    ///
    /// # Errors
    /// After [`RouteStoreError::Unavailable`] it may have been made.
    pub async fn change(&self, change: RouteChange) -> Result<Option<Arc<Route>>, RouteStoreError> {
        let ended = || RouteStoreError::Unavailable("the route store is not running".to_owned());
        let store = self.slot.get().ok_or_else(ended)?;
        let change = Box::new(change);
        match store.call(|reply| RouteStoreMsg::Change(change, reply), None).await {
            Ok(CallResult::Success(changed)) => changed,
            Ok(CallResult::Timeout | CallResult::SenderError) | Err(_) => Err(ended()),
        }
    }
}
