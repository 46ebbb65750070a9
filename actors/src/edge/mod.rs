//! What stands between a request and the queue.

mod answer;
mod config;
mod handshake;
mod ingest;
pub mod source_store;

pub use answer::Answer;
pub use config::{IngestConfig, Routing};
pub use ingest::{Admitted, BodyFailure, Ingest, RequestHead};
pub use source_store::{SourceChange, SourceStoreError, SourceStoreHandle};
