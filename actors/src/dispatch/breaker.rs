//! Whether a sink is left alone for a while. Pure; in memory only, so a restart closes every breaker ("Breakers").

use std::time::Duration;

use tokio::time::Instant;

use super::DispatchConfig;

/// When a breaker opens and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct BreakerPolicy {
    /// 0 never opens.
    failures: u32,
    open: Duration,
    max_open: Duration,
}

impl BreakerPolicy {
    pub(super) fn new(config: &DispatchConfig) -> Self {
        Self {
            failures: config.breaker_failures,
            open: Duration::from_millis(config.breaker_open_ms),
            max_open: Duration::from_millis(config.breaker_max_open_ms),
        }
    }

    /// How long it stays open the `times`th time in a row, the first being 1.
    fn open_for(&self, times: u32) -> Duration {
        let doubled = 1_u32.checked_shl(times.saturating_sub(1)).unwrap_or(u32::MAX);
        self.open.checked_mul(doubled).unwrap_or(self.max_open).min(self.max_open)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed {
        /// In a row, permanent answers aside.
        failures: u32,
    },
    Open {
        until: Instant,
        times: u32,
    },
    /// The period is over: one attempt decides.
    Probing {
        times: u32,
        running: bool,
    },
}

/// What may be done with a row for this sink now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    Run,
    /// A probe is under way: keep it until that has ended.
    Wait,
    /// Write it back, due then.
    Park(Instant),
}

/// How an attempt ended, as far as its breaker is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Ok,
    /// It refused this hook for good, so it works.
    Permanent,
    Failed,
}

/// One sink's.
#[derive(Debug)]
pub(super) struct Breaker {
    state: State,
}

impl Default for Breaker {
    fn default() -> Self {
        Self { state: State::Closed { failures: 0 } }
    }
}

impl Breaker {
    pub(super) fn gate(&self, now: Instant) -> Gate {
        match self.state {
            State::Closed { .. } | State::Probing { running: false, .. } => Gate::Run,
            State::Probing { running: true, .. } => Gate::Wait,
            State::Open { until, .. } if now < until => Gate::Park(until),
            State::Open { .. } => Gate::Run,
        }
    }

    /// An attempt begins, let through by [`Breaker::gate`]. True if it is the probe.
    pub(super) fn begin(&mut self) -> bool {
        match self.state {
            State::Closed { .. } => false,
            State::Open { times, .. } | State::Probing { times, .. } => {
                self.state = State::Probing { times, running: true };
                true
            }
        }
    }

    /// An attempt has ended. Attempts from before it opened decide nothing: only the probe does. Answers until when
    /// the breaker is open, if this opened it.
    pub(super) fn end(
        &mut self,
        probe: bool,
        answer: Answer,
        policy: &BreakerPolicy,
        now: Instant,
    ) -> Option<Instant> {
        let times = match (self.state, answer) {
            (State::Closed { .. }, Answer::Ok) => {
                self.state = State::Closed { failures: 0 };
                return None;
            }
            (State::Closed { failures }, Answer::Failed) => {
                let failures = failures.saturating_add(1);
                self.state = State::Closed { failures };
                if policy.failures == 0 || failures < policy.failures {
                    return None;
                }
                1
            }
            (State::Probing { .. }, Answer::Ok | Answer::Permanent) if probe => {
                self.state = State::Closed { failures: 0 };
                return None;
            }
            (State::Probing { times, .. }, Answer::Failed) if probe => times.saturating_add(1),
            (State::Closed { .. }, Answer::Permanent)
            | (State::Open { .. } | State::Probing { .. }, _) => return None,
        };
        let until = now + policy.open_for(times);
        self.state = State::Open { until, times };
        Some(until)
    }

    /// Until a probe has succeeded, also while one runs.
    pub(super) fn is_open(&self) -> bool {
        match self.state {
            State::Closed { .. } => false,
            State::Open { .. } | State::Probing { .. } => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(failures: u32) -> BreakerPolicy {
        let config = DispatchConfig { breaker_failures: failures, ..DispatchConfig::default() };
        BreakerPolicy::new(&config)
    }

    fn secs(secs: u64) -> Duration {
        Duration::from_secs(secs)
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_so_many_failures_in_a_row_permanent_answers_aside() {
        let (policy, now, mut breaker) = (policy(3), Instant::now(), Breaker::default());
        let answers =
            [Answer::Failed, Answer::Failed, Answer::Ok, Answer::Failed, Answer::Permanent];
        for answer in answers.into_iter().chain([Answer::Failed]) {
            assert_eq!(breaker.end(false, answer, &policy, now), None);
            assert_eq!(breaker.gate(now), Gate::Run);
        }
        assert_eq!(breaker.end(false, Answer::Failed, &policy, now), Some(now + secs(30)));
        assert_eq!(breaker.gate(now + secs(29)), Gate::Park(now + secs(30)));
        assert!(breaker.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn the_period_ends_with_one_probe_and_doubles_to_its_cap_while_that_fails() {
        let (policy, mut now, mut breaker) = (policy(1), Instant::now(), Breaker::default());
        assert_eq!(breaker.end(false, Answer::Failed, &policy, now), Some(now + secs(30)));
        for open_secs in [60, 120, 240, 300, 300] {
            now += secs(300);
            assert_eq!(breaker.gate(now), Gate::Run);
            assert!(breaker.begin());
            assert_eq!(breaker.gate(now), Gate::Wait);
            assert_eq!(breaker.end(false, Answer::Ok, &policy, now), None, "an old attempt");
            assert_eq!(breaker.gate(now), Gate::Wait);
            let until = now + secs(open_secs);
            assert_eq!(breaker.end(true, Answer::Failed, &policy, now), Some(until));
            assert_eq!(breaker.end(false, Answer::Failed, &policy, now), None, "open already");
            assert_eq!(breaker.gate(now), Gate::Park(until));
        }
        now += secs(300);
        assert!(breaker.begin());
        assert_eq!(breaker.end(true, Answer::Permanent, &policy, now), None);
        assert_eq!((breaker.gate(now), breaker.is_open()), (Gate::Run, false));
        assert!(!breaker.begin());
        let again = breaker.end(false, Answer::Failed, &policy, now);
        assert_eq!(again, Some(now + secs(30)), "it starts over");
    }

    #[tokio::test(start_paused = true)]
    async fn with_a_limit_of_0_it_never_opens() {
        let (policy, now, mut breaker) = (policy(0), Instant::now(), Breaker::default());
        for _ in 0..1_000 {
            assert_eq!(breaker.end(false, Answer::Failed, &policy, now), None);
        }
        assert_eq!(breaker.gate(now), Gate::Run);
    }
}
