//! What the Store does: opens, closes, waits, looks at the disk.

use std::time::Duration;

use ractor::{ActorProcessingErr, ActorRef};
use tokio::time::{Instant, timeout};
use tracing::{debug, error, info, warn};

use super::not_open::NotOpen;
use super::reopen::{PROBE_RETRY, ReopenPlan};
use super::room::{Recovery, RoomLimits};
use super::{OpenNotes, StoreArgs, StoreMsg, boot};
use crate::model::failure::FailureClass;
use crate::ports::{DiskRoom, Event, Kv, KvError, ReopenResult};

/// How often the disk is looked at: hooks are refused, and taken again, this soon after its room has changed.
pub const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A look that takes longer is given up: the Store has better to do than to wait for a disk that hangs.
const LOOK_TIMEOUT: Duration = Duration::from_secs(2);

/// Wait before a reserve that could not be made is tried again.
const RESERVE_RETRY: Duration = Duration::from_secs(60);

/// A store that did not open for want of room is tried before its time once there is so much more, in bytes.
const WORTH_A_TRY_BYTES: u64 = 1 << 20;

pub struct StoreActorState {
    args: StoreArgs,
    plan: ReopenPlan,
    last_reopen: Option<Instant>,
    /// The number of the `Wake` that counts, and when it comes.
    turn: u64,
    wakes_at: Option<Instant>,
    /// Since when the reopen has been waiting for the disk, and for room.
    deferred: bool,
    lacks_room_since: Option<Instant>,
    /// What was free when the last open failed for want of room.
    free_at_failure: Option<u64>,
    reserve_retry_at: Option<Instant>,
    told_accepting: bool,
}

impl StoreActorState {
    pub(super) fn new(args: StoreArgs) -> Self {
        Self {
            told_accepting: args.handle.state().accepting,
            args,
            plan: ReopenPlan::default(),
            last_reopen: None,
            turn: 0,
            wakes_at: None,
            deferred: false,
            lacks_room_since: None,
            free_at_failure: None,
            reserve_retry_at: None,
        }
    }

    /// # Errors
    /// The first boot is refused.
    pub(super) async fn boot(
        &mut self,
        myself: &ActorRef<StoreMsg>,
    ) -> Result<(), ActorProcessingErr> {
        // A predecessor that crashed left its database behind the door.
        self.close().await;
        if self.args.handle.state().generation == 0 {
            self.first_open(myself).await?;
        } else {
            let _ = self.reopen(myself).await;
        }
        myself.cast(StoreMsg::Look)?;
        Ok(())
    }

    /// Nothing is lost by trying: there is no open database that could still be read.
    async fn first_open(&mut self, myself: &ActorRef<StoreMsg>) -> Result<(), ActorProcessingErr> {
        if let Some(room) = self.see_room().await
            && Recovery::on(&room) == Recovery::FitsWithReserve
        {
            self.give_up_reserve().await;
        }
        match self.open().await {
            Ok(()) => Ok(()),
            Err(why) if why.class() == FailureClass::NoSpace => {
                self.args.handle.door.stays_closed();
                self.did_not_open(why, myself);
                Ok(())
            }
            Err(why) => Err(why.into()),
        }
    }

    pub(super) fn write_failed(
        &mut self,
        class: FailureClass,
        op: &'static str,
        generation: u64,
        myself: &ActorRef<StoreMsg>,
    ) {
        self.args.events.emit(&Event::StoreWriteFailed { class });
        let state = self.args.handle.state();
        // Broken on purpose, for a drill to catch; never in a release.
        let never = cfg!(feature = "canary-no-reopen-after-eio");
        if never || generation != state.generation || !state.open {
            return;
        }
        self.args.handle.door.write_failed(class, op, generation);
        self.tell_accepting();
        let since_last = self.last_reopen.map(|at| at.elapsed());
        let wait = ReopenPlan::after_report(&self.args.config, since_last);
        if self.wakes_at.is_none() {
            warn!(class = class.as_str(), op, "a store write failed; reopening");
        }
        self.wake_after(wait, myself);
    }

    pub(super) fn probe_timed_out(&self) {
        self.args.events.emit(&Event::StoreWriteFailed { class: FailureClass::Timeout });
    }

    /// One wake-up is enough, and the earlier one counts.
    fn wake_after(&mut self, wait: Duration, myself: &ActorRef<StoreMsg>) {
        let at = Instant::now() + wait;
        if self.wakes_at.is_some_and(|planned| planned <= at) {
            return;
        }
        self.turn += 1;
        self.wakes_at = Some(at);
        self.args.handle.door.next_attempt(Some(at));
        let turn = self.turn;
        myself.send_after(wait, move || StoreMsg::Wake { turn });
    }

    fn cancel_wake(&mut self) {
        self.turn += 1;
        self.wakes_at = None;
        self.args.handle.door.next_attempt(None);
    }

    pub(super) async fn wake(&mut self, turn: u64, myself: &ActorRef<StoreMsg>) {
        if turn != self.turn {
            return;
        }
        self.cancel_wake();
        let state = self.args.handle.state();
        if state.open && state.failing.is_none() {
            return;
        }
        let _ = self.reopen(myself).await;
    }

    /// Closes and opens, if the disk takes a synced write and has the room a recovery needs; a disk that still fails keeps
    /// its database open and readable.
    pub(super) async fn reopen(&mut self, myself: &ActorRef<StoreMsg>) -> Result<(), String> {
        let started = Instant::now();
        self.cancel_wake();
        if let Err(error) = self.disk_lets_us().await {
            let took = started.elapsed();
            self.args.events.emit(&Event::StoreReopened { result: ReopenResult::Deferred, took });
            // Several times a second is too often to say it.
            if self.deferred {
                debug!(%error, "reopen deferred again");
            } else {
                warn!(%error, class = error.class.as_str(), "reopen deferred until the disk takes it");
            }
            self.deferred = true;
            if self.args.handle.state().open {
                self.args.handle.door.failed(error.class, error.op);
            } else {
                self.args.handle.door.failing(error.class, error.op);
            }
            self.tell_accepting();
            self.tell_unavailable();
            self.wake_after(PROBE_RETRY, myself);
            return Err(error.to_string());
        }
        self.deferred = false;
        self.lacks_room_since = None;
        self.close().await;
        self.last_reopen = Some(Instant::now());
        let opened = self.open().await;
        let took = started.elapsed();
        let result = if opened.is_ok() { ReopenResult::Ok } else { ReopenResult::Error };
        self.args.events.emit(&Event::StoreReopened { result, took });
        match opened {
            Ok(()) => {
                info!(took_ms = took.as_millis(), "store reopened");
                self.tell_unavailable();
                Ok(())
            }
            Err(why) => Err(self.did_not_open(why, myself)),
        }
    }

    /// It stays closed and is tried again, later and later.
    fn did_not_open(&mut self, why: NotOpen, myself: &ActorRef<StoreMsg>) -> String {
        let class = why.class();
        let room = self.args.handle.state().room;
        self.free_at_failure =
            room.filter(|_| class == FailureClass::NoSpace).map(|room| room.free_bytes);
        let wait = self.plan.after_failed_open(&self.args.config, self.args.entropy.unit());
        let error = ActorProcessingErr::from(why).to_string();
        error!(error, class = class.as_str(), wait_ms = wait.as_millis(), "the store stays closed");
        self.tell_accepting();
        self.tell_unavailable();
        self.wake_after(wait, myself);
        error
    }

    /// # Errors
    /// Why a reopen would not get through now.
    async fn disk_lets_us(&mut self) -> Result<(), KvError> {
        if let Some(room) = self.see_room().await {
            match Recovery::on(&room) {
                Recovery::Fits => {}
                Recovery::FitsWithReserve => {
                    self.wait_before_reserve(&room)?;
                    self.give_up_reserve().await;
                }
                Recovery::Needs(bytes) => self.wait_for_room(&room, bytes)?,
            }
        }
        self.args.engine.probe_disk().await
    }

    /// The room of the reserve may be eaten by whoever filled the disk, the reopened store fails again, and the next
    /// reopen has to wait out its interval. So first the disk gets as long to have room without it.
    fn wait_before_reserve(&mut self, room: &DiskRoom) -> Result<(), KvError> {
        let DiskRoom { free_bytes, reserve_bytes, .. } = room;
        self.lacks_room_for(self.args.config.reopen_min_interval_ms, || {
            format!("{free_bytes} bytes are free; the {reserve_bytes} reserved are kept for now")
        })
    }

    /// What a recovery needs is estimated, and on the safe side: in the end it is tried all the same.
    fn wait_for_room(&mut self, room: &DiskRoom, needs_bytes: u64) -> Result<(), KvError> {
        let DiskRoom { free_bytes, reserve_bytes, .. } = room;
        self.lacks_room_for(self.args.config.reopen_max_backoff_ms, || {
            format!("a recovery may write {needs_bytes} bytes, {free_bytes} are free and {reserve_bytes} reserved")
        })
    }

    /// # Errors
    /// Until the disk has lacked room for `patience_ms`.
    fn lacks_room_for(
        &mut self,
        patience_ms: u64,
        detail: impl FnOnce() -> String,
    ) -> Result<(), KvError> {
        let since = *self.lacks_room_since.get_or_insert(Instant::now());
        if since.elapsed() >= Duration::from_millis(patience_ms) {
            return Ok(());
        }
        Err(KvError { class: FailureClass::NoSpace, op: "reopen", detail: detail() })
    }

    pub(super) async fn close(&self) {
        if let Some(kv) = self.args.handle.door.take().await {
            self.args.engine.close(kv).await;
        }
    }

    async fn open(&mut self) -> Result<(), NotOpen> {
        match self.opened().await {
            Ok((kv, notes)) => {
                self.plan.opened();
                self.free_at_failure = None;
                // Before anybody is let in: a disk that is still full takes no hook.
                self.see_room().await;
                self.judge_room();
                self.args.handle.door.put(kv, notes);
                Ok(())
            }
            Err(why) => {
                self.see_room().await;
                self.args.handle.door.failing(why.class(), "open");
                Err(why)
            }
        }
    }

    async fn opened(&self) -> Result<(Box<dyn Kv>, OpenNotes), NotOpen> {
        let StoreArgs { engine, events, .. } = &self.args;
        let kv = engine.open().await.map_err(NotOpen::Engine)?;
        match boot::look_around(kv.as_ref(), engine.last_open(), events.as_ref()).await {
            Ok(notes) => Ok((kv, notes)),
            Err(error) => {
                engine.close(kv).await;
                Err(NotOpen::Boot(error))
            }
        }
    }

    /// Looks at the disk, acts on it, and looks again.
    pub(super) async fn look(&mut self, myself: &ActorRef<StoreMsg>) {
        if let Some(room) = self.see_room().await {
            let state = self.args.handle.state();
            if state.open && state.failing.is_none() {
                self.judge_room();
                self.keep_reserve(&room).await;
            } else if self.is_worth_a_try(&room) {
                let _ = self.reopen(myself).await;
            }
        }
        myself.send_after(LOOK_EVERY, || StoreMsg::Look);
    }

    /// A store that could not open for want of room does not sit its wait out once there is some.
    fn is_worth_a_try(&self, room: &DiskRoom) -> bool {
        let more = |before: u64| room.free_bytes >= before.saturating_add(WORTH_A_TRY_BYTES);
        let fits = !matches!(Recovery::on(room), Recovery::Needs(_));
        !self.args.handle.state().open && fits && self.free_at_failure.is_some_and(more)
    }

    /// `None` when the disk did not say: then nothing is done on its account.
    async fn see_room(&self) -> Option<DiskRoom> {
        let room = match timeout(LOOK_TIMEOUT, self.args.engine.room()).await {
            Ok(Ok(room)) => room,
            Ok(Err(error)) => {
                debug!(%error, "cannot tell how much room there is");
                return None;
            }
            Err(_elapsed) => return None,
        };
        let limits = RoomLimits::of(&self.args.config, room.total_bytes);
        self.args.handle.door.room(room, limits);
        Some(room)
    }

    /// Takes new hooks, or no more, by what was seen last.
    fn judge_room(&mut self) {
        let state = self.args.handle.state();
        let Some(room) = state.room else {
            // A disk that does not say is taken at its writes' word.
            self.args.handle.door.accepting(true);
            return self.tell_accepting();
        };
        self.args.handle.door.accepting(state.limits.accepts(&room, state.accepting));
        self.tell_accepting();
    }

    fn tell_accepting(&mut self) {
        let state = self.args.handle.state();
        if self.told_accepting == state.accepting {
            return;
        }
        self.told_accepting = state.accepting;
        self.args.events.emit(&Event::StoreAccepting { accepting: state.accepting });
        if !state.accepting && state.failing.is_none() {
            // Seen before a write has failed of it; whoever watches the failed writes is to know all the same.
            self.args.events.emit(&Event::StoreWriteFailed { class: FailureClass::NoSpace });
        }
        let free_bytes = state.room.map(|room| state.limits.usable_bytes(&room));
        let RoomLimits { min_free_bytes, resume_free_bytes, .. } = state.limits;
        if state.accepting {
            info!(free_bytes, resume_free_bytes, "there is room; new hooks are taken again");
        } else {
            warn!(free_bytes, min_free_bytes, "too little room; new hooks are refused");
        }
    }

    async fn give_up_reserve(&mut self) {
        match self.args.engine.set_reserve(0).await {
            Ok(()) => warn!("the reserve is given up so that the store can recover"),
            Err(error) => warn!(%error, "cannot give the reserve up"),
        }
        self.see_room().await;
    }

    /// Makes the reserve where there is none, once there is room for it.
    async fn keep_reserve(&mut self, room: &DiskRoom) {
        let limits = self.args.handle.state().limits;
        let waits = self.reserve_retry_at.is_some_and(|at| Instant::now() < at);
        if waits || !limits.lacks_reserve(room) {
            return;
        }
        let bytes = limits.reserve_bytes;
        match self.args.engine.set_reserve(bytes).await {
            Ok(()) => info!(bytes, "the reserve is made"),
            Err(error) => {
                warn!(%error, bytes, "cannot make the reserve");
                self.reserve_retry_at = Some(Instant::now() + RESERVE_RETRY);
            }
        }
        self.see_room().await;
    }

    fn tell_unavailable(&self) {
        let state = self.args.handle.state();
        let closed = state.since.filter(|_| !state.open);
        let for_ = closed.map_or(Duration::ZERO, |since| since.elapsed());
        self.args.events.emit(&Event::StoreUnavailable { for_ });
    }
}
