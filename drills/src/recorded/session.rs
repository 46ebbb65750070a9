//! One run of a node under the recorder: started, loaded, hit by a failing fsync, and ended.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ankusa_drills_replay::control::Word;
use tokio::time::sleep;

use super::recorder::Recorder;
use crate::drill::{CannotInject, OrCannot};
use crate::journal::{Journal, Tally};
use crate::load::{Load, LoadPlan};
use crate::node::{NodeSetup, NotReady, limits};
use crate::scratch::Scratch;
use crate::worker::Worker;

/// How long an fsync takes at least, in microseconds.
const SYNC_DELAY_US: u64 = 2_000;

/// What the one failing fsync says: input/output error.
const EIO: u64 = 5;

/// Wait between two looks at how far the load is.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Longest wait for the recorded node to deliver everything.
const DRAINED_WITHIN: Duration = Duration::from_secs(30);

/// What a node is put through while it is recorded.
#[derive(Clone, Debug)]
pub struct Session {
    pub seed: u64,
    /// The requests of the plan that are sent.
    pub numbers: Range<u64>,
    pub clients: usize,
    /// One fsync fails once half of them are sent.
    pub fails_sync: bool,
    pub ends: Ends,
}

/// How a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// Everything delivered, then stopped as an operator would.
    Stopped,
    /// Killed as soon as the last request is answered.
    Killed,
}

/// What came of it, but for the log.
#[derive(Clone, Copy, Debug)]
pub struct Recorded {
    pub tally: Tally,
    /// Everything was delivered and the node ended well; always, where it was killed.
    pub ended_well: bool,
}

/// Why there is no recording.
#[derive(Debug)]
pub enum NotRecorded {
    /// The node did not come up on what the disk held.
    Down(NotReady),
    CannotInject(CannotInject),
}

impl From<CannotInject> for NotRecorded {
    fn from(error: CannotInject) -> Self {
        Self::CannotInject(error)
    }
}

impl Session {
    /// Runs it.
    ///
    /// # Errors
    /// When the node does not come up, or the session cannot be recorded.
    pub async fn record(
        &self,
        scratch: &Scratch,
        recorder: &Recorder,
    ) -> Result<Recorded, NotRecorded> {
        recorder.set(Word::SyncDelayUs, SYNC_DELAY_US)?;
        let journal =
            Arc::new(Journal::marking(recorder.log()).or_cannot("open the operation log")?);
        let worker = Worker::start(self.seed, Arc::clone(&journal)).await?;
        let setup = NodeSetup::with_lanes(scratch.path(), recorder.root(), &worker.url())?
            .with_config(&limits())?
            .with_environment(recorder.environment());
        let node = setup.start().await.map_err(|error| match error {
            NotReady::CannotStart(error) => {
                CannotInject(format!("cannot start the node under the recorder: {error}")).into()
            }
            down @ (NotReady::Ended { .. } | NotReady::TooLate { .. }) => NotRecorded::Down(down),
        })?;
        let next = Arc::new(AtomicU64::new(self.numbers.start));
        let (port, plan) = (setup.http_port(), LoadPlan::new(self.seed).with_forgeries());
        let load = Load::start(self.clients, port, plan, &next, self.numbers.end, &journal);
        if self.fails_sync {
            let half = self.numbers.start + (self.numbers.end - self.numbers.start) / 2;
            while next.load(Ordering::SeqCst) < half {
                sleep(LOOK_AGAIN).await;
            }
            recorder.set(Word::SyncErrno, EIO)?;
            recorder.set(Word::FailSync, 1)?;
        }
        load.finish().await;
        let ended_well = match self.ends {
            Ends::Killed => {
                node.kill()?;
                true
            }
            Ends::Stopped => {
                let drained = node.drain(DRAINED_WITHIN).await?;
                node.stop().await? == "exit status: 0" && drained
            }
        };
        let tally = journal.tally();
        if !journal.is_whole() {
            Err(CannotInject("a mark could not be written to the operation log".to_owned()))?;
        }
        if next.load(Ordering::SeqCst) < self.numbers.end || tally.acked == 0 {
            let (acked, numbers) = (tally.acked, &self.numbers);
            Err(CannotInject(format!("the recorded node acked {acked} of the hooks {numbers:?}")))?;
        }
        Ok(Recorded { tally, ended_well })
    }
}
