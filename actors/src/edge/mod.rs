//! What stands between a request and the queue.

mod answer;
mod cells;
mod config;
pub mod guard;
mod handshake;
mod ingest;
mod limited;
mod limits;
mod pen;
pub mod quarantine;
pub mod rate_limiter;
pub mod route_store;
pub mod source_store;

pub use answer::Answer;
pub use config::{IngestConfig, QuarantineConfig, RateLimitsConfig, Routing};
pub use guard::{Guard, RouteTable, RoutesNow, RoutesSettings};
pub use ingest::{Admitted, BodyFailure, Ingest, RequestHead};
pub use limits::{LimitSource, LimitsHandle, Sender};
pub use pen::{PenRefusal, PenSize, Promise, QuarantineHandle};
pub use rate_limiter::{MAX_OVERRIDES, SetError};
pub use route_store::{RouteChange, RouteStoreError, RouteStoreHandle};
pub use source_store::{SourceChange, SourceStoreError, SourceStoreHandle};
