//! Whether the store takes a synced write right now: what `/ready` says about it.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use super::StoreHandle;
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::failure::FailureClass;
use crate::model::keys::{META_READY_PROBE, u64_value};
use crate::ports::{Clock, Lane};

/// How long one probe's answer stands.
const CACHED_FOR: Duration = Duration::from_secs(1);

/// A probe that takes longer is a failing store: `/ready` never hangs behind a stalled disk.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// One probe's answer.
#[derive(Clone, Copy)]
struct Probed {
    at: Instant,
    /// Of the store: what was true of another open is no news of this one.
    generation: u64,
    failure: Option<FailureClass>,
}

#[derive(Clone)]
pub struct Readiness {
    store: StoreHandle,
    clock: Arc<dyn Clock>,
    last: Arc<Mutex<Option<Probed>>>,
}

impl Readiness {
    pub fn new(store: StoreHandle, clock: Arc<dyn Clock>) -> Self {
        Self { store, clock, last: Arc::default() }
    }

    /// `None` when the store is fine, else why it is not.
    pub async fn store_failure(&self) -> Option<FailureClass> {
        let state = self.store.state();
        if let Some(class) = state.failing {
            return Some(class);
        }
        if !state.open {
            return Some(FailureClass::NotRunning);
        }
        if !state.accepting {
            return Some(FailureClass::NoSpace);
        }
        let mut last = self.last.lock().await;
        if let Some(probed) = *last
            && probed.at.elapsed() < CACHED_FOR
            && probed.generation == state.generation
        {
            return probed.failure;
        }
        let failure = match timeout(PROBE_TIMEOUT, self.probe()).await {
            Ok(failure) => failure,
            Err(_elapsed) => {
                self.store.probe_timed_out();
                Some(FailureClass::Timeout)
            }
        };
        *last = Some(Probed { at: Instant::now(), generation: state.generation, failure });
        failure
    }

    async fn probe(&self) -> Option<FailureClass> {
        let mut probe = Batch::default();
        probe.put(Cf::Default, META_READY_PROBE, &u64_value(self.clock.now_ms()));
        let probed = self.store.apply_synced(probe, Lane::Background).await;
        probed.err().map(|error| error.class)
    }
}
