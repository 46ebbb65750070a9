//! What dispatch remembers, and one turn of its work.

mod purging;
mod shown;
mod sources;
mod stop;
mod timer;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ractor::ActorRef;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{info, warn};

use super::attempts::{Attempts, AttemptsArgs};
use super::breaker::BreakerPolicy;
use super::canary;
use super::claim::{ClaimContext, ClaimReport, Claims, Left};
use super::flush::Outcomes;
use super::held::Held;
use super::lanes::{Handover, Lanes};
use super::load::Claiming;
use super::outcomes::{Change, DeadLetter, Rules, Settled};
use super::queues::{Limits, Queues};
use super::reclaim::Sweep;
use super::recover::{pull_back, recover_claims, restore_markers};
use super::targets::Targets;
use super::writing::Writing;
use super::{DispatchArgs, DispatchMsg};
use crate::model::ids::TenantOrd;
use crate::model::retry::RetryPolicy;
use crate::ports::{Clock, KvError};

/// Between two looks at what no message tells: clocks that were set, a store that is open again, markers left over.
const HOUSEKEEPING: Duration = Duration::from_secs(1);

/// Of these, the one that sweeps the markers of cleared obligations.
const SWEEP_EVERY: u64 = 60;

/// Pages claimed, or chunks swept, before messages are looked at again.
const STEPS_A_TURN: usize = 8;

/// Wake-ups come with every fsync. While there is something to deliver, they are answered together.
const LOOK_EVERY: Duration = Duration::from_millis(3);

/// Looks at many tenants that have nothing due right now take long: this many times as long as the last one is the pause
/// before the next.
const LOOK_PAUSE: u32 = 3;

/// But no longer than this: it may have been the disk that took so long.
const LOOK_PAUSE_MAX: Duration = Duration::from_millis(50);

/// Tenants whose claimed rows are told.
const TENANTS_SHOWN: usize = 32;

/// How far a turn came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Worked {
    Done,
    /// There is more to do at once.
    InPart,
    /// The store has to be opened again first.
    NotYet,
}

pub struct DispatchState {
    args: DispatchArgs,
    myself: ActorRef<DispatchMsg>,
    clock: Arc<dyn Clock>,
    targets: Targets,
    rules: Rules,
    attempts: Attempts,
    writing: Writing,
    held: Held,
    outcomes: Outcomes,
    claims: Claims,
    lanes: Lanes,
    sweep: Sweep,
    /// Nothing is attempted any more.
    stopping: bool,
    /// Whether the claims of a predecessor have been recovered.
    started: bool,
    /// There may be rows to claim.
    look: bool,
    /// The last claim was a full page: there is more.
    more: bool,
    /// What the last claim left of the rows that are due.
    left: Left,
    /// Wake-ups before this are answered then, unless there is nothing else to do.
    look_after: Instant,
    /// When to look if nothing says so before, in Unix milliseconds.
    next_look_ms: u64,
    oldest_due_at_ms: Option<u64>,
    next_housekeeping: Instant,
    housekeepings: u64,
    timer: Option<(Instant, AbortHandle)>,
    /// The store refused something, and it was said.
    complained: bool,
}

impl DispatchState {
    pub(super) fn new(args: DispatchArgs, myself: ActorRef<DispatchMsg>) -> Self {
        let config = &args.config;
        let clock = Arc::clone(&args.clock);
        let limits = Limits {
            total: config.concurrency.max(1),
            per_key: config.sink_concurrency.unwrap_or(config.concurrency).max(1),
            stalled: config.stalled(),
            percents: canary::percents(config.tenants.percents()),
        };
        let attempts = Attempts::new(AttemptsArgs {
            queues: Queues::new(limits, BreakerPolicy::new(config)),
            attempt_timeout: Duration::from_millis(config.attempt_timeout_ms),
            clock: Arc::clone(&clock),
            events: Arc::clone(&args.events),
            owner: myself.clone(),
        });
        let claims = Claims::new(config);
        let retry = RetryPolicy::from(config.retry);
        let attempt_timeout_ms = config.attempt_timeout_ms;
        Self {
            myself,
            targets: Targets::new(args.sources.now()),
            rules: Rules { retry, attempt_timeout_ms, version: args.version },
            attempts,
            writing: Writing::new(args.store.clone()),
            held: Held::default(),
            outcomes: Outcomes::default(),
            claims,
            lanes: Lanes::new(),
            sweep: Sweep::default(),
            stopping: false,
            started: false,
            look: true,
            more: false,
            left: Left::Nothing,
            look_after: Instant::now(),
            next_look_ms: 0,
            oldest_due_at_ms: None,
            next_housekeeping: Instant::now() + HOUSEKEEPING,
            housekeepings: 0,
            timer: None,
            complained: false,
            clock,
            args,
        }
    }

    pub(super) async fn woken(&mut self) {
        self.args.handle.bell.answered();
        self.look = true;
        self.turn().await;
    }

    pub(super) async fn timer_fired(&mut self) {
        self.timer = None;
        self.turn().await;
    }

    /// Does whatever there is to do, and sees to it that it is called again in time.
    pub(super) async fn turn(&mut self) {
        self.keep_house();
        self.follow_sources();
        let worked = self.work().await;
        if let Err(error) = &worked
            && !self.complained
        {
            warn!(%error, "dispatch cannot use the store; it goes on once that works again");
        }
        self.complained = worked.is_err();
        self.attempts.set_hungry(self.more || self.left.is_something());
        self.attempts.fill();
        self.show();
        match worked {
            Ok(Worked::Done) => self.set_timer(),
            // Others may have something to say in between.
            Ok(Worked::InPart) => self.set_timer_at(Instant::now()),
            Ok(Worked::NotYet) | Err(_) => self.set_timer_at(self.next_housekeeping),
        }
    }

    fn keep_house(&mut self) {
        let now = Instant::now();
        if now < self.next_housekeeping {
            return;
        }
        self.next_housekeeping = now + HOUSEKEEPING;
        self.housekeepings += 1;
        self.held.tidy(now);
        self.args.handle.tenants.send_replace(self.held.most(TENANTS_SHOWN).into());
        if self.housekeepings.is_multiple_of(SWEEP_EVERY) {
            self.sweep.begin();
        }
    }

    async fn work(&mut self) -> Result<Worked, KvError> {
        if !self.settle().await? {
            return Ok(Worked::NotYet);
        }
        for _ in 0..STEPS_A_TURN {
            self.flush_due().await?;
            if !self.wants_to_claim() {
                break;
            }
            self.claim().await?;
            self.attempts.fill();
        }
        for _ in 0..STEPS_A_TURN {
            if self.sweep.is_under_way() {
                self.sweep.step(&mut self.writing).await?;
                if !self.sweep.is_under_way() {
                    self.outcomes.set_unswept(false);
                }
            }
            self.look |= self.lanes.sweep(&mut self.writing).await?;
        }
        let sweeps = self.sweep.is_under_way() || self.lanes.is_sweeping();
        let is_done = !self.wants_to_claim() && !sweeps && !self.outcomes.is_urgent();
        Ok(if is_done { Worked::Done } else { Worked::InPart })
    }

    /// Compares memory with the store where they may disagree: at the start, and after a write that failed. False while
    /// that is not possible yet.
    async fn settle(&mut self) -> Result<bool, KvError> {
        if self.writing.is_settled() {
            return Ok(true);
        }
        if !self.writing.can_settle() {
            return Ok(false);
        }
        let written = self.outcomes.forget_written(self.writing.store(), &mut self.held).await?;
        self.written(written);
        let now_ms = self.clock.now_ms();
        let recovered = recover_claims(&mut self.writing, &self.held, now_ms).await?;
        if recovered > 0 {
            info!(recovered, "claimed rows that nobody was working on are due again");
        }
        if !self.started {
            restore_markers(&mut self.writing).await?;
            let horizon_ms = now_ms.saturating_add(self.args.config.longest_wait_ms());
            let pulled = pull_back(&mut self.writing, now_ms, horizon_ms).await?;
            if pulled > 0 {
                warn!(
                    pulled,
                    "rows were due later than they can be: the clock was set back; due now"
                );
            }
            self.started = true;
        }
        self.writing.settled();
        self.lanes.begin();
        self.sweep.begin();
        self.outcomes.set_unswept(true);
        self.look = true;
        Ok(true)
    }

    /// Writes outcomes once there are enough of them, or one has waited long enough.
    async fn flush_due(&mut self) -> Result<(), KvError> {
        let is_due = self.outcomes.is_due(self.attempts.done(), Instant::now());
        let is_due = is_due || self.attempts.is_urgent();
        if is_due || self.attempts.is_starving() { self.flush().await } else { Ok(()) }
    }

    /// Writes every outcome there is.
    async fn flush(&mut self) -> Result<(), KvError> {
        let (rules, entropy, held) = (&self.rules, &self.args.entropy, &self.held);
        let mut done = self.attempts.take();
        // What came of a row that was purged meanwhile is nobody's business.
        done.retain(|done| held.is_held_by(&done.job.claimed.key(), done.job.ticket));
        let done = done.into_iter();
        self.outcomes.extend(done.map(|done| rules.settle(done, entropy.unit())));
        loop {
            let now_ms = self.clock.now_ms();
            let mark = self.args.mark.get();
            self.follow_sources();
            let handover = Handover {
                claiming: Claiming {
                    targets: &self.targets,
                    rules: &self.rules,
                    attempts: &self.attempts,
                    now_ms,
                },
                mark,
                max_bytes: self.args.config.max_inflight_bytes,
                claims: !self.stopping,
            };
            let (writing, held) = (&mut self.writing, &mut self.held);
            let (written, next) =
                self.outcomes.write(writing, held, &mut self.lanes, &handover).await?;
            for job in next.jobs {
                let weight = self.claims.weight(job.claimed.tenant);
                self.attempts.push(job, weight);
            }
            self.promoted(next.tenants, now_ms);
            self.written(written);
            if self.outcomes.settled() == 0 {
                return Ok(());
            }
        }
    }

    fn written(&mut self, written: Vec<Settled>) {
        // What was left may have room now.
        self.look |= written.iter().any(|settled| self.left.waits_for(settled.claimed.tenant));
        for settled in &written {
            if let Some(due_ms) = settled.due_ms() {
                self.claims.put(settled.claimed.tenant, due_ms);
                self.next_look_ms = self.next_look_ms.min(due_ms);
            }
            match &settled.change {
                Change::Dead(dead) => self.announce(dead),
                Change::Delivered
                | Change::Retry { .. }
                | Change::Park { .. }
                | Change::NoHook
                | Change::NoRow => {}
            }
        }
    }

    /// Tenants have got heads of lanes that are due now.
    fn promoted(&mut self, tenants: BTreeSet<TenantOrd>, now_ms: u64) {
        for tenant in tenants {
            self.claims.put(tenant, now_ms);
            self.next_look_ms = self.next_look_ms.min(now_ms);
        }
    }

    fn announce(&self, dead: &DeadLetter) {
        dead.announce(&self.args.instance, self.args.events.as_ref());
    }

    fn wants_to_claim(&self) -> bool {
        // What hangs is no company for a row that comes now.
        let is_alone = || self.held.total().rows <= self.attempts.hanging();
        let looks = self.look && (Instant::now() >= self.look_after || is_alone());
        let wants = looks || self.more || self.clock.now_ms() >= self.next_look_ms;
        wants && self.has_room()
    }

    fn has_room(&self) -> bool {
        let (config, held) = (&self.args.config, self.held.total());
        let has_bytes = held.rows == 0 || held.bytes < config.max_inflight_bytes;
        held.rows < config.max_inflight && has_bytes
    }

    async fn claim(&mut self) -> Result<(), KvError> {
        let (now_ms, began) = (self.clock.now_ms(), Instant::now());
        // Whoever wakes us from here on has seen something newer.
        self.look = false;
        // Before what has joined lanes is looked at: all of that is applied.
        let mark = self.args.mark.get();
        // After the mark: every hook up to it came while its source was there to be seen.
        self.follow_sources();
        self.lanes.joined(self.args.joined.take());
        let promoted = self.lanes.promote(&mut self.writing, now_ms, mark).await;
        self.look |= promoted.is_err();
        let promoted = promoted?;
        self.promoted(promoted.tenants, now_ms);
        let context = ClaimContext {
            config: &self.args.config,
            targets: &self.targets,
            rules: &self.rules,
            attempts: &self.attempts,
            now_ms,
            mark,
        };
        let mut report = ClaimReport::default();
        let (writing, held) = (&mut self.writing, &mut self.held);
        let claimed = self.claims.claim(&context, writing, held, &mut report).await;
        report.dead.iter().for_each(|dead| self.announce(dead));
        self.outcomes.look_at(report.cleared);
        self.outcomes.extend(report.settled);
        // What is left to tenants that hold their share already waits until something of theirs has finished.
        self.more = report.left.is_something() && report.is_full && report.claimed > 0;
        self.left = report.left;
        let pause = (began.elapsed() * LOOK_PAUSE).min(LOOK_PAUSE_MAX);
        self.look_after = Instant::now() + LOOK_EVERY.max(pause);
        self.oldest_due_at_ms = report.oldest_due_ms;
        self.next_look_ms = report.next_ms.filter(|_| !promoted.more).unwrap_or(now_ms);
        self.look |= claimed.is_err();
        claimed
    }
}
