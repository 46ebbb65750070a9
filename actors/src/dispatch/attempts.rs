//! Runs attempts, and keeps what came of them until the actor takes it.
//!
//! Each task here runs row after row, so a slot is filled again the moment it is free, whatever the actor is doing. The
//! tasks belong to the actor: when it goes, however it goes, they are cut off. What they report waits in a list; the
//! mailbox carries a wake-up for the first of a batch and for a full one, never a message a row.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ractor::ActorRef;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::warn;

use super::DispatchMsg;
use super::breaker::Answer;
use super::canary;
use super::outcomes::BATCH;
use super::queues::{New, Parked, Place, Queues, Started};
use super::targets::Target;
use crate::model::delivery::DeliveryRow;
use crate::model::envelope::Envelope;
use crate::model::forward;
use crate::model::keys::{ClaimedKey, LaneKey};
use crate::model::ops::Claimed;
use crate::ports::{Clock, Delivery, DeliveryResult, Event, Events, Outcome};

/// An attempt that takes longer leaves its slot to others.
const STALLED_AFTER: Duration = Duration::from_secs(1);

/// A claimed row, ready to be attempted.
pub(super) struct Job {
    pub(super) claimed: Claimed,
    /// Whose head it is, if it is one.
    pub(super) lane: Option<LaneKey>,
    /// Of its claim: [`super::held::Held::insert`].
    pub(super) ticket: u64,
    pub(super) row: DeliveryRow,
    pub(super) envelope: Arc<Envelope>,
    pub(super) target: Arc<Target>,
}

impl Job {
    fn delivery(&self) -> Delivery {
        Delivery {
            envelope: Arc::clone(&self.envelope),
            tenant_id: self.envelope.tenant().to_owned(),
            attempt: self.row.attempts.saturating_add(1),
            replay_id: self.row.replay.clone(),
            forwarded: forward::headers(&self.envelope, &self.target.source.forward),
        }
    }
}

/// What came of a job.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    Answered(Outcome),
    TimedOut,
    Panicked,
    /// Not attempted: its sink is left alone until then, in Unix milliseconds.
    Parked {
        until_ms: u64,
    },
}

impl End {
    fn answer(&self) -> Answer {
        match self {
            Self::Answered(Outcome::Ok) => Answer::Ok,
            Self::Answered(Outcome::Permanent(_)) => Answer::Permanent,
            Self::Answered(Outcome::RetryAfter { .. } | Outcome::Retry(_))
            | Self::TimedOut
            | Self::Panicked
            | Self::Parked { .. } => Answer::Failed,
        }
    }

    fn result(&self) -> DeliveryResult {
        match self {
            Self::Answered(Outcome::Ok) => DeliveryResult::Ok,
            Self::TimedOut => DeliveryResult::Timeout,
            Self::Answered(_) | Self::Panicked | Self::Parked { .. } => DeliveryResult::Error,
        }
    }
}

pub(super) struct Done {
    pub(super) job: Job,
    pub(super) end: End,
    /// When, in Unix milliseconds.
    pub(super) at_ms: u64,
}

/// What the gauges show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) running: usize,
    pub(super) runnable: usize,
    pub(super) breakers_open: usize,
}

pub(super) struct AttemptsArgs {
    pub(super) queues: Queues<usize, Job>,
    pub(super) attempt_timeout: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) events: Arc<dyn Events>,
    /// Whom to wake.
    pub(super) owner: ActorRef<DispatchMsg>,
}

struct Inner {
    queues: Queues<usize, Job>,
    done: Vec<Done>,
    /// A lane waits for one of them.
    urgent: bool,
    /// More is due than fits: finish a batch early when nothing is left to run.
    hungry: bool,
    /// Nothing new is begun.
    stopping: bool,
}

struct Shared {
    inner: Mutex<Inner>,
    attempt_timeout: Duration,
    clock: Arc<dyn Clock>,
    events: Arc<dyn Events>,
    owner: ActorRef<DispatchMsg>,
}

/// Held by the actor. Dropping it cuts every attempt off.
pub(super) struct Attempts {
    shared: Arc<Shared>,
    tasks: JoinSet<()>,
}

impl Attempts {
    pub(super) fn new(args: AttemptsArgs) -> Self {
        let AttemptsArgs { queues, attempt_timeout, clock, events, owner } = args;
        let inner =
            Inner { queues, done: Vec::new(), urgent: false, hungry: false, stopping: false };
        let inner = Mutex::new(inner);
        let shared = Arc::new(Shared { inner, attempt_timeout, clock, events, owner });
        Self { shared, tasks: JoinSet::new() }
    }

    /// Until when a sink is left alone, in Unix milliseconds, if it is.
    pub(super) fn parked_until(&self, target: &Target) -> Option<u64> {
        let until = self.shared.inner().queues.parked_until(&target.key, Instant::now())?;
        Some(self.shared.wall_ms(until))
    }

    /// Takes a job on, with the weight of its tenant.
    pub(super) fn push(&self, job: Job, weight: u32) {
        let (key, tenant) = (job.target.key, job.claimed.tenant);
        let mut inner = self.shared.inner();
        let new = New { item: job, tenant, weight };
        if let Some(parked) = inner.queues.push(&key, new, Instant::now()) {
            self.shared.park(&mut inner, parked);
        }
    }

    /// These are not to be attempted any more. What runs already runs on.
    pub(super) fn forget(&self, claims: &BTreeSet<ClaimedKey>) {
        self.shared.inner().queues.forget(|job| claims.contains(&job.claimed.key()));
    }

    /// Takes back what waits for sinks that are not among `keys` any more. What runs already runs on.
    pub(super) fn take_all_but(&self, keys: &BTreeSet<usize>) -> Vec<Job> {
        self.shared.inner().queues.take_all_but(|key| keys.contains(key))
    }

    /// Begins as many attempts as may run at once.
    pub(super) fn fill(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        while let Some(first) = self.shared.start() {
            // Bound to this set, and so to the actor that owns it.
            self.tasks.spawn(run(Arc::clone(&self.shared), first));
        }
    }

    /// Everything that has ended since the last call.
    pub(super) fn take(&self) -> Vec<Done> {
        let mut inner = self.shared.inner();
        inner.urgent = false;
        std::mem::take(&mut inner.done)
    }

    /// Ended and not taken yet.
    pub(super) fn done(&self) -> usize {
        self.shared.inner().done.len()
    }

    /// Whether a lane waits for what has ended: it is not to wait for others to share a batch.
    pub(super) fn is_urgent(&self) -> bool {
        self.shared.inner().urgent
    }

    /// Whether more is due than there was room for.
    pub(super) fn set_hungry(&self, hungry: bool) {
        self.shared.inner().hungry = hungry;
    }

    /// Nothing waits and nothing runs that will end soon, although there is more to do.
    pub(super) fn is_starving(&self) -> bool {
        self.shared.inner().is_starving()
    }

    /// Rows that hang: beside the slots, or waiting for a sink that leaves them there.
    pub(super) fn hanging(&self) -> usize {
        let inner = self.shared.inner();
        if inner.queues.running() > 0 { 0 } else { inner.queues.stalled() + inner.queues.waiting() }
    }

    pub(super) fn counts(&self) -> Counts {
        let inner = self.shared.inner();
        Counts {
            running: inner.queues.running() + inner.queues.stalled(),
            runnable: inner.queues.waiting(),
            breakers_open: inner.queues.breakers_open(),
        }
    }

    /// Begins nothing more.
    pub(super) fn stop(&self) {
        self.shared.inner().stopping = true;
    }

    /// Waits until nothing runs any more, but no longer than `limit`. True if nothing does.
    pub(super) async fn ended(&mut self, limit: Duration) -> bool {
        let all = async { while self.tasks.join_next().await.is_some() {} };
        timeout(limit, all).await.is_ok()
    }
}

impl Inner {
    fn is_starving(&self) -> bool {
        self.hungry && self.queues.running() == 0 && self.queues.waiting() == 0
    }
}

impl Shared {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn start(&self) -> Option<Started<Job>> {
        let mut inner = self.inner();
        if inner.stopping { None } else { inner.queues.start(Instant::now()) }
    }

    /// An attempt takes long. True if it goes on without its slot, which then is somebody else's.
    fn stall(&self, key: usize, place: &mut Place) -> bool {
        let stalled =
            !canary::keeps_slots() && self.inner().queues.stall(&key, place, Instant::now());
        if stalled {
            // Others start in the slots that end; the actor fills this one.
            let _ = self.owner.cast(DispatchMsg::Finished);
        }
        stalled
    }

    fn end(&self, job: Job, place: &Place, end: End) {
        let (now, at_ms) = (Instant::now(), self.clock.now_ms());
        let target = Arc::clone(&job.target);
        let mut inner = self.inner();
        let before = inner.done.len();
        let hurries = job.lane.is_some() && !inner.urgent;
        inner.urgent |= hurries;
        let parked = inner.queues.end(&target.key, place, end.answer(), now);
        let opened_until = parked.as_ref().map(|parked| parked.until);
        inner.done.push(Done { job, end, at_ms });
        if let Some(parked) = parked {
            self.park(&mut inner, parked);
        }
        let filled = before < BATCH && inner.done.len() >= BATCH;
        let wake = before == 0 || filled || hurries || inner.is_starving();
        drop(inner);
        if let Some(until) = opened_until {
            let (source, sink) = (&target.source.id, target.sink.kind());
            let for_ms = until.duration_since(now).as_millis();
            warn!(%source, sink, for_ms, "a sink keeps failing and is left alone for a while");
        }
        if wake {
            // The actor may be on its way out: what has ended is then picked up there.
            let _ = self.owner.cast(DispatchMsg::Finished);
        }
    }

    fn park(&self, inner: &mut Inner, parked: Parked<Job>) {
        let (at_ms, until_ms) = (self.clock.now_ms(), self.wall_ms(parked.until));
        let done = |job| Done { job, end: End::Parked { until_ms }, at_ms };
        inner.done.extend(parked.items.into_iter().map(done));
    }

    /// The date at `at`, rounded up.
    fn wall_ms(&self, at: Instant) -> u64 {
        let wait = at.saturating_duration_since(Instant::now());
        let wait_ms = u64::try_from(wait.as_micros().div_ceil(1_000)).unwrap_or(u64::MAX);
        self.clock.now_ms().saturating_add(wait_ms)
    }
}

/// One slot: a job, and then whichever is next.
async fn run(shared: Arc<Shared>, first: Started<Job>) {
    let mut next = Some(first);
    while let Some(started) = next {
        attempt(&shared, started).await;
        next = shared.start();
    }
}

async fn attempt(shared: &Arc<Shared>, started: Started<Job>) {
    let Started { item: job, place } = started;
    let (delivery, sink) = (job.delivery(), Arc::clone(&job.target.sink));
    let begun = Instant::now();
    let mut under_way = Attempt { shared: Arc::clone(shared), job: Some((job, place)), begun };
    let deadline = begun + shared.attempt_timeout;
    let mut answer = pin!(sink.deliver(&delivery));
    let mut until = begun + STALLED_AFTER;
    let end = loop {
        match timeout_at(until.min(deadline), &mut answer).await {
            Ok(outcome) => break End::Answered(outcome),
            Err(_elapsed) if Instant::now() >= deadline => break End::TimedOut,
            Err(_elapsed) => {
                // Without room beside the slots it keeps its own, and asks again.
                until = if under_way.stall() { deadline } else { until + STALLED_AFTER };
            }
        }
    };
    under_way.ended(end);
}

/// An attempt under way. A sink that panics takes its task down; its row is reported all the same.
struct Attempt {
    shared: Arc<Shared>,
    job: Option<(Job, Place)>,
    begun: Instant,
}

impl Attempt {
    fn stall(&mut self) -> bool {
        let Self { shared, job, begun: _ } = self;
        job.as_mut().is_some_and(|(job, place)| shared.stall(job.target.key, place))
    }

    fn ended(mut self, end: End) {
        self.report(end);
    }

    fn report(&mut self, end: End) {
        let Some((job, place)) = self.job.take() else { return };
        let (sink, result) = (job.target.sink.kind(), end.result());
        let took = self.begun.elapsed();
        self.shared.end(job, &place, end);
        self.shared.events.emit(&Event::Delivered { sink, result, took });
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        // Without a panic it was cut off with the actor, and nobody is there to be told.
        if std::thread::panicking() {
            self.report(End::Panicked);
        }
    }
}
