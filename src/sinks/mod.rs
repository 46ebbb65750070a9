//! Where hooks are delivered to: the adapters behind [`ankusa_actors::ports::Sink`].

mod egress;
mod failure;
mod headers;
mod http;
mod log;
mod outbound;

use std::sync::Arc;

use ankusa_actors::model::sink_spec::{SinkSpec, SinkSpecError};
use ankusa_actors::ports::Sink;

pub use self::egress::{Lookup, SystemLookup, check_url};
pub use self::http::HttpSink;
pub use self::log::LogSink;
pub use self::outbound::Outbound;

/// Builds the sink a source names.
///
/// # Errors
///
/// The key of the spec that stands in the way, below the sink.
pub fn build(spec: &SinkSpec, outbound: &Outbound) -> Result<Arc<dyn Sink>, SinkSpecError> {
    if let Some(by) = spec.ordered() {
        by.check()?;
    }
    match spec {
        SinkSpec::Log(_) => Ok(Arc::new(LogSink)),
        SinkSpec::Http(spec) => Ok(Arc::new(HttpSink::new(spec, outbound)?)),
    }
}
