//! Reads the whole store, slowly, so that rot is found before the read that needs what has rotted.
//!
//! Family after family in key order, a page at a time, each block checked against its checksum and none kept in memory,
//! at no more bytes a second than configured. Damage is logged, counted and shown by its file, and the round goes on
//! behind that file: rows beside it in other files wait for the next round. The node goes on as it was: what is damaged
//! is an error of the reads that meet it, and of no others. What the operating system has in memory is not read from the
//! disk again.
//!
//! * **Owns:** the cursor of the round; where it stands is in [`super::ScrubHandle`].
//! * **Talks to:** the store (reads).
//! * **Supervised by:** `services`, one_for_one: a crash ends the round, and the next begins as after a start.

use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;
use tracing::{error, info};

use super::scrub_handle::{Finding, LastScrub, ScrubHandle, ScrubSnapshot};
use crate::model::cf::Cf;
use crate::ports::{Event, Events, Verified};
use crate::store::{StoreConfig, StoreHandle};
use crate::supervision::{Crash, told_to_crash};

/// The first round comes this long after the start, or after the interval if that is shorter: a node that is restarted
/// every day would never get to one otherwise.
const FIRST_AFTER: Duration = Duration::from_secs(600);

/// Read at a time, at most. A reopen waits for one of these.
const PAGE_BYTES: u64 = 1 << 20;

/// Wait before a store that cannot be read right now is tried again.
const RETRY: Duration = Duration::from_secs(5);

/// Files that are shown as damaged; more are logged and counted.
const FINDINGS_MAX: usize = 100;

pub enum ScrubberMsg {
    /// Begin a round, if none is under way.
    Begin,
    /// Read the next page of the round with this number.
    Read(u64),
    /// Panic, for a drill.
    Crash,
}

impl Crash for ScrubberMsg {
    fn crash() -> Self {
        Self::Crash
    }
}

#[derive(Clone)]
pub struct ScrubberArgs {
    pub config: StoreConfig,
    pub events: Arc<dyn Events>,
    pub store: StoreHandle,
    pub handle: ScrubHandle,
}

/// A round under way.
struct Round {
    number: u64,
    began: Instant,
    cf: Cf,
    from: Vec<u8>,
}

pub struct ScrubberState {
    args: ScrubberArgs,
    round: Option<Round>,
    rounds: u64,
}

pub struct Scrubber;

impl Actor for Scrubber {
    type Msg = ScrubberMsg;
    type State = ScrubberState;
    type Arguments = ScrubberArgs;

    async fn pre_start(
        &self,
        myself: ActorRef<ScrubberMsg>,
        args: ScrubberArgs,
    ) -> Result<ScrubberState, ActorProcessingErr> {
        // The round of a predecessor that crashed is over.
        args.handle.snapshot.send_modify(|shown| shown.reading = None);
        let state = ScrubberState { args, round: None, rounds: 0 };
        if state.args.config.scrub_bytes_per_s > 0 {
            myself.send_after(FIRST_AFTER.min(state.interval()), || ScrubberMsg::Begin);
        }
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<ScrubberMsg>,
        message: ScrubberMsg,
        state: &mut ScrubberState,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ScrubberMsg::Begin => state.begin(&myself).await,
            ScrubberMsg::Read(number) => state.read(number, &myself).await,
            ScrubberMsg::Crash => told_to_crash(),
        }
        Ok(())
    }
}

impl ScrubberState {
    const fn interval(&self) -> Duration {
        Duration::from_millis(self.args.config.scrub_interval_ms)
    }

    async fn begin(&mut self, myself: &ActorRef<ScrubberMsg>) {
        if self.round.is_some() || self.args.config.scrub_bytes_per_s == 0 {
            return;
        }
        self.rounds += 1;
        let [first, ..] = Cf::ALL;
        let number = self.rounds;
        self.round = Some(Round { number, began: Instant::now(), cf: first, from: Vec::new() });
        let disk_bytes = self.args.store.stats().await.map_or(0, |stats| stats.disk_bytes);
        self.args.handle.snapshot.send_modify(|shown| {
            let last = shown.last.take();
            *shown = ScrubSnapshot { disk_bytes, last, ..ScrubSnapshot::default() };
            shown.reading = Some(first);
        });
        info!(disk_bytes, "scrub: reading the whole store");
        let _ = myself.cast(ScrubberMsg::Read(number));
    }

    async fn read(&mut self, number: u64, myself: &ActorRef<ScrubberMsg>) {
        let Some(round) = self.round.as_ref().filter(|round| round.number == number) else {
            return;
        };
        let rate = self.args.config.scrub_bytes_per_s;
        let page = PAGE_BYTES.min(rate);
        let (cf, from) = (round.cf, round.from.clone());
        // A store that is closed, or closing, is read on when it is open again.
        let Ok(read) = self.args.store.verify(cf, from, page).await else {
            myself.send_after(RETRY, move || ScrubberMsg::Read(number));
            return;
        };
        let bytes = read.bytes;
        self.args.events.emit(&Event::ScrubRead { bytes });
        self.show(cf, read.clone());
        match (read.next, Cf::ALL.get(cf.index() + 1)) {
            (Some(next), _) => self.go_on(cf, next),
            (None, Some(next)) => self.go_on(*next, Vec::new()),
            (None, None) => {
                self.end();
                myself.send_after(self.interval(), || ScrubberMsg::Begin);
                return;
            }
        }
        let wait_ms = bytes.saturating_mul(1_000) / rate;
        myself.send_after(Duration::from_millis(wait_ms), move || ScrubberMsg::Read(number));
    }

    fn go_on(&mut self, cf: Cf, from: Vec<u8>) {
        if let Some(round) = &mut self.round {
            (round.cf, round.from) = (cf, from);
        }
        self.args.handle.snapshot.send_modify(|shown| shown.reading = Some(cf));
    }

    fn show(&self, family: Cf, read: Verified) {
        let mut found = None;
        self.args.handle.snapshot.send_modify(|shown| {
            shown.rows += read.rows;
            shown.bytes += read.bytes;
            let Some(damage) = read.damage else { return };
            let file = damage.file.unwrap_or_default();
            let finding = Finding { family, file, detail: damage.detail };
            let is_known = |known: &Finding| known.family == family && known.file == finding.file;
            if !shown.findings.iter().any(is_known) {
                if shown.findings.len() < FINDINGS_MAX {
                    shown.findings.push(finding.clone());
                }
                found = Some(finding);
            }
        });
        if let Some(Finding { family, file, detail }) = found {
            let family = family.name();
            error!(family, file, detail, "scrub: a file of the store is damaged");
            self.args.events.emit(&Event::ScrubFound);
        }
    }

    fn end(&mut self) {
        let Some(round) = self.round.take() else { return };
        self.args.handle.snapshot.send_modify(|shown| {
            shown.reading = None;
            let findings = shown.findings.len();
            let took = round.began.elapsed();
            let last = LastScrub { took, rows: shown.rows, bytes: shown.bytes, findings };
            info!(
                rows = last.rows,
                bytes = last.bytes,
                findings,
                "scrub: the whole store was read"
            );
            shown.last = Some(last);
        });
        self.args.events.emit(&Event::ScrubFinished);
    }
}
