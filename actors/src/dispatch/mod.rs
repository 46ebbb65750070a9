//! Delivery: claims due rows, attempts them, writes the outcomes.

mod config;
pub mod dlq { pub struct DeadFilter { pub source_id: Option<String>, pub since_ms: Option<u64> } }
mod handle;

pub use config::{DispatchConfig, RetryConfig};
pub use handle::DispatchHandle;

use crate::supervision::Crash;

pub enum DispatchMsg {
    /// There may be rows to claim.
    Wake,
    /// Panic, for a drill.
    Crash,
}

impl Crash for DispatchMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

use std::sync::Arc;
#[derive(Clone)]
pub struct DispatchArgs {
    pub config: DispatchConfig,
    pub instance: String,
    pub clock: Arc<dyn crate::ports::Clock>,
    pub entropy: Arc<dyn crate::ports::Entropy>,
    pub events: Arc<dyn crate::ports::Events>,
    pub store: crate::store::StoreHandle,
    pub mark: crate::queue::SyncedMark,
    pub sources: Arc<crate::sources::Sources>,
    pub version: crate::model::value_version::ValueVersion,
    pub handle: DispatchHandle,
}
pub struct Dispatch;
impl ractor::Actor for Dispatch {
    type Msg = DispatchMsg;
    type State = ();
    type Arguments = DispatchArgs;
    async fn pre_start(
        &self,
        _: ractor::ActorRef<DispatchMsg>,
        _: DispatchArgs,
    ) -> Result<(), ractor::ActorProcessingErr> {
        Ok(())
    }
}
