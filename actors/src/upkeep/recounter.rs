//! Counts every row of the store against the counters, when an operator asks, and makes right what is wrong if that is
//! asked too.
//!
//! The node goes on meanwhile: rows and counters are read at one moment, and a repair adds what a counter was short of
//! then. Two repairs of one miscount would add it twice, so they are made one after the other, each from a count of its
//! own, and one that failed is not made again.
//!
//! * **Owns:** nothing. A crash leaves each counter as it was or right.
//! * **Talks to:** the store.
//! * **Supervised by:** `services`, one_for_one.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;
use tracing::{info, warn};

use super::recount_handle::{RecountHandle, RecountReport};
use crate::ports::{Event, Events, KvError};
use crate::store::StoreHandle;
use crate::supervision::{Crash, told_to_crash};

pub enum RecounterMsg {
    /// Count, and repair if so.
    Recount { repair: bool, reply: RpcReplyPort<Result<RecountReport, KvError>> },
    /// Panic, for a drill.
    Crash,
}

impl Crash for RecounterMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct RecounterArgs {
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    pub handle: RecountHandle,
}

/// Nothing is remembered between counts.
pub struct RecounterState {
    args: RecounterArgs,
}

pub struct Recounter;

impl Actor for Recounter {
    type Msg = RecounterMsg;
    type State = RecounterState;
    type Arguments = RecounterArgs;

    async fn pre_start(
        &self,
        _: ActorRef<RecounterMsg>,
        args: RecounterArgs,
    ) -> Result<RecounterState, ActorProcessingErr> {
        Ok(RecounterState { args })
    }

    async fn handle(
        &self,
        _: ActorRef<RecounterMsg>,
        message: RecounterMsg,
        state: &mut RecounterState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            RecounterMsg::Recount { repair, reply } => {
                // Whoever asked may have gone while others were counted for.
                if !reply.is_closed() {
                    let _ = reply.send(state.recount(repair).await);
                }
            }
            RecounterMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl RecounterState {
    async fn recount(&self, repair: bool) -> Result<RecountReport, KvError> {
        let began = Instant::now();
        let counted = self.args.store.recount().await?;
        let repaired = repair && !counted.wrong.is_empty();
        if repaired {
            self.args.store.correct(&counted.wrong).await?;
            let counters = u64::try_from(counted.wrong.len()).unwrap_or(u64::MAX);
            warn!(counters, rows = counted.rows, "counters were put right, as an operator asked");
            self.args.events.emit(&Event::CountersRepaired { counters });
        }
        let took: Duration = began.elapsed();
        info!(rows = counted.rows, took_ms = took.as_millis(), "every row was counted");
        Ok(RecountReport { counted, repaired, took })
    }
}
