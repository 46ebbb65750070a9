//! Claimed rows on their way to an attempt: a queue a sink, served in turn. Pure.
//!
//! Sinks with something to run stand in a ring, so the next row is found without looking at sinks that have nothing, are
//! at their limit, or are left alone.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use super::breaker::{Answer, Breaker, BreakerPolicy, Gate};

/// How much may run at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub(super) total: usize,
    pub(super) per_key: usize,
}

#[derive(Debug)]
struct Lane<T> {
    waiting: VecDeque<T>,
    running: usize,
    breaker: Breaker,
    /// It stands in the ring.
    in_ring: bool,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        let breaker = Breaker::default();
        Self { waiting: VecDeque::new(), running: 0, breaker, in_ring: false }
    }
}

impl<T> Lane<T> {
    fn is_runnable(&self, limits: Limits, now: Instant) -> bool {
        !self.waiting.is_empty()
            && self.running < limits.per_key
            && self.breaker.gate(now) == Gate::Run
    }
}

/// What is handed back instead of being run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parked<T> {
    pub(super) items: Vec<T>,
    /// When the sink may be tried again.
    pub(super) until: Instant,
}

/// An item to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Started<K, T> {
    pub(super) key: K,
    pub(super) item: T,
    /// Its outcome decides whether the sink is well again.
    pub(super) probe: bool,
}

#[derive(Debug)]
pub(super) struct Queues<K, T> {
    limits: Limits,
    policy: BreakerPolicy,
    lanes: BTreeMap<K, Lane<T>>,
    ring: VecDeque<K>,
    waiting: usize,
    running: usize,
}

impl<K: Clone + Ord, T> Queues<K, T> {
    pub(super) fn new(limits: Limits, policy: BreakerPolicy) -> Self {
        Self {
            limits,
            policy,
            lanes: BTreeMap::new(),
            ring: VecDeque::new(),
            waiting: 0,
            running: 0,
        }
    }

    /// Until when this sink is left alone, if it is.
    pub(super) fn parked_until(&self, key: &K, now: Instant) -> Option<Instant> {
        match self.lanes.get(key)?.breaker.gate(now) {
            Gate::Park(until) => Some(until),
            Gate::Run | Gate::Wait => None,
        }
    }

    /// Takes an item on, or hands it back if its sink is left alone.
    pub(super) fn push(&mut self, key: &K, item: T, now: Instant) -> Option<Parked<T>> {
        if let Some(until) = self.parked_until(key, now) {
            return Some(Parked { items: vec![item], until });
        }
        self.lanes.entry(key.clone()).or_default().waiting.push_back(item);
        self.waiting += 1;
        self.enter_ring(key, now);
        None
    }

    /// The next item to run, if there is one and room for it.
    pub(super) fn start(&mut self, now: Instant) -> Option<Started<K, T>> {
        if self.running >= self.limits.total {
            return None;
        }
        while let Some(key) = self.ring.pop_front() {
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            lane.in_ring = false;
            if !lane.is_runnable(self.limits, now) {
                continue;
            }
            let Some(item) = lane.waiting.pop_front() else { continue };
            let probe = lane.breaker.begin();
            lane.running += 1;
            self.waiting -= 1;
            self.running += 1;
            self.enter_ring(&key, now);
            return Some(Started { key, item, probe });
        }
        None
    }

    /// An item has run. Hands back what waits for the sink if that opened its breaker.
    pub(super) fn end(
        &mut self,
        key: &K,
        probe: bool,
        answer: Answer,
        now: Instant,
    ) -> Option<Parked<T>> {
        let lane = self.lanes.get_mut(key)?;
        lane.running = lane.running.saturating_sub(1);
        self.running = self.running.saturating_sub(1);
        let opened = lane.breaker.end(probe, answer, &self.policy, now);
        let parked = opened.map(|until| Parked { items: lane.waiting.drain(..).collect(), until });
        self.waiting -= parked.as_ref().map_or(0, |parked| parked.items.len());
        self.enter_ring(key, now);
        parked
    }

    fn enter_ring(&mut self, key: &K, now: Instant) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        if !lane.in_ring && lane.is_runnable(self.limits, now) {
            lane.in_ring = true;
            self.ring.push_back(key.clone());
        }
    }

    /// Drops what waits and is not to run any more.
    pub(super) fn forget(&mut self, is_gone: impl Fn(&T) -> bool) {
        for lane in self.lanes.values_mut() {
            let before = lane.waiting.len();
            lane.waiting.retain(|item| !is_gone(item));
            self.waiting -= before - lane.waiting.len();
        }
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Sinks whose breaker is open.
    pub(super) fn breakers_open(&self) -> usize {
        self.lanes.values().filter(|lane| lane.breaker.is_open()).count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::DispatchConfig;
    use super::*;

    type Q = Queues<&'static str, u32>;

    fn queues(total: usize, per_key: usize) -> Q {
        let config = DispatchConfig { breaker_failures: 2, ..DispatchConfig::default() };
        Queues::new(Limits { total, per_key }, BreakerPolicy::new(&config))
    }

    fn started(queues: &mut Q, now: Instant) -> Vec<u32> {
        std::iter::from_fn(|| queues.start(now)).map(|started| started.item).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn sinks_take_turns_however_much_waits_for_one_of_them() {
        let (mut queues, now) = (queues(100, 100), Instant::now());
        for (key, item) in [("a", 1), ("a", 2), ("a", 3), ("a", 4), ("b", 11), ("c", 21), ("b", 12)]
        {
            assert_eq!(queues.push(&key, item, now), None);
        }
        assert_eq!(started(&mut queues, now), [1, 11, 21, 2, 12, 3, 4]);
        assert_eq!((queues.waiting(), queues.running()), (0, 7));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_run_than_allowed_in_all_and_to_one_sink() {
        let (mut queues, now) = (queues(3, 2), Instant::now());
        for item in 1..=4 {
            queues.push(&"a", item, now);
        }
        queues.push(&"b", 11, now);
        queues.push(&"b", 12, now);
        assert_eq!(started(&mut queues, now), [1, 11, 2]);
        queues.end(&"b", false, Answer::Ok, now);
        assert_eq!(started(&mut queues, now), [12], "a is at its limit");
        queues.end(&"a", false, Answer::Ok, now);
        assert_eq!(started(&mut queues, now), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_sink_that_fails_is_handed_everything_back_and_tried_with_one_probe_later() {
        let (mut queues, now) = (queues(10, 10), Instant::now());
        let until = now + Duration::from_secs(30);
        for item in 1..=4 {
            queues.push(&"a", item, now);
        }
        queues.start(now);
        queues.start(now);
        assert_eq!(queues.end(&"a", false, Answer::Failed, now), None);
        let parked = queues.end(&"a", false, Answer::Failed, now);
        assert_eq!(parked, Some(Parked { items: vec![3, 4], until }));
        assert_eq!(queues.push(&"a", 5, now), Some(Parked { items: vec![5], until }));
        assert_eq!((queues.waiting(), queues.running(), queues.breakers_open()), (0, 0, 1));
        queues.push(&"a", 6, until);
        queues.push(&"a", 7, until);
        queues.push(&"a", 8, until);
        let probe = Started { key: "a", item: 6, probe: true };
        assert_eq!(queues.start(until), Some(probe));
        assert_eq!(queues.start(until), None);
        assert_eq!(queues.end(&"a", true, Answer::Ok, until), None);
        assert_eq!(started(&mut queues, until), [7, 8]);
        assert_eq!(queues.breakers_open(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_forgotten_never_runs_and_holds_nobody_up() {
        let (mut queues, now) = (queues(10, 10), Instant::now());
        for (key, item) in [("a", 1), ("a", 2), ("b", 11), ("c", 21)] {
            queues.push(&key, item, now);
        }
        queues.forget(|item| [1, 2, 21].contains(item));
        assert_eq!((queues.waiting(), queues.running()), (1, 0));
        queues.push(&"c", 22, now);
        assert_eq!(started(&mut queues, now), [11, 22]);
        queues.push(&"a", 3, now);
        assert_eq!(started(&mut queues, now), [3]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_probe_hands_back_what_waited_for_it() {
        let (mut queues, now) = (queues(10, 10), Instant::now());
        queues.push(&"a", 1, now);
        queues.push(&"a", 2, now);
        queues.start(now);
        queues.start(now);
        queues.end(&"a", false, Answer::Failed, now);
        queues.end(&"a", false, Answer::Failed, now);
        let later = now + Duration::from_secs(30);
        queues.push(&"a", 3, later);
        queues.push(&"a", 4, later);
        queues.start(later);
        let until = later + Duration::from_secs(60);
        let parked = queues.end(&"a", true, Answer::Failed, later);
        assert_eq!(parked, Some(Parked { items: vec![4], until }));
        assert_eq!(queues.start(later), None);
    }
}
