//! Claimed rows on their way to an attempt: a queue a sink, served in turn, and in it a queue a tenant. Pure.
//!
//! Sinks with something to run stand in a ring, so the next row is found without looking at sinks that have nothing, are
//! at their limit, or are left alone. No sink and no tenant takes the last slots: what is quick finds one however much
//! another has waiting. An attempt that takes long leaves its slot and goes on beside it, so a sink that hangs costs
//! memory and not everybody's time.

use std::collections::{BTreeMap, VecDeque};

use tokio::time::Instant;

use super::breaker::{Answer, Breaker, BreakerPolicy, Gate};
use super::page::{Percents, is_lately, window};
use crate::model::ids::TenantOrd;

/// How much may run at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// In slots.
    pub(super) total: usize,
    /// Beside them.
    pub(super) stalled: usize,
    /// To one sink, in slots or not.
    pub(super) per_key: usize,
    /// Of the slots, and the places beside them, that the others leave, what one sink or one tenant may have.
    pub(super) percents: Percents,
}

impl Limits {
    /// Whether a tenant that has so many of all slots that are taken may have another.
    fn may_take(self, all: usize, mine: usize) -> bool {
        window(self.total, all.saturating_sub(mine), mine, self.percents.share) > 0
    }

    /// How many attempts of a sink may be beside their slots while those of others are: all sinks may hang.
    fn may_stall(self, others: usize) -> usize {
        window(self.stalled, others, 0, self.percents.of(false, others))
    }
}

/// Whose turn it is, and how many items it may still have in it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    tenant: TenantOrd,
    left: u32,
}

/// What waits of one tenant, in order, and how many items it has in a turn.
#[derive(Debug)]
struct OfTenant<T> {
    items: VecDeque<T>,
    weight: u32,
}

/// What waits for one sink: tenants take turns.
#[derive(Debug)]
struct Waiting<T> {
    by_tenant: BTreeMap<TenantOrd, OfTenant<T>>,
    /// Each tenant with something, once.
    turns: VecDeque<Turn>,
    len: usize,
}

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Self { by_tenant: BTreeMap::new(), turns: VecDeque::new(), len: 0 }
    }
}

impl<T> Waiting<T> {
    fn push(&mut self, item: T, tenant: TenantOrd, weight: u32) {
        let of_tenant = self.by_tenant.entry(tenant).or_insert_with(|| {
            self.turns.push_back(Turn { tenant, left: weight });
            OfTenant { items: VecDeque::new(), weight }
        });
        of_tenant.items.push_back(item);
        self.len += 1;
    }

    /// The next item of the first tenant in turn that may have a slot.
    fn pop(&mut self, may: impl Fn(TenantOrd) -> bool) -> Option<(TenantOrd, T)> {
        let at = self.turns.iter().position(|turn| may(turn.tenant))?;
        let Turn { tenant, left } = self.turns.remove(at)?;
        let of_tenant = self.by_tenant.get_mut(&tenant)?;
        let item = of_tenant.items.pop_front()?;
        if of_tenant.items.is_empty() {
            self.by_tenant.remove(&tenant);
        } else if left > 1 {
            self.turns.push_front(Turn { tenant, left: left - 1 });
        } else {
            self.turns.push_back(Turn { tenant, left: of_tenant.weight });
        }
        self.len -= 1;
        Some((tenant, item))
    }

    fn forget(&mut self, is_gone: impl Fn(&T) -> bool) {
        self.by_tenant.retain(|_, of_tenant| {
            of_tenant.items.retain(|item| !is_gone(item));
            !of_tenant.items.is_empty()
        });
        self.turns.retain(|turn| self.by_tenant.contains_key(&turn.tenant));
        self.len = self.by_tenant.values().map(|of_tenant| of_tenant.items.len()).sum();
    }

    fn take(&mut self) -> Vec<T> {
        let by_tenant = std::mem::take(self).by_tenant.into_values();
        by_tenant.flat_map(|of_tenant| of_tenant.items).collect()
    }
}

#[derive(Debug)]
struct Lane<T> {
    waiting: Waiting<T>,
    /// In slots.
    running: usize,
    /// Beside them.
    stalled: usize,
    /// When an attempt last ended in its slot.
    ended_at: Option<Instant>,
    breaker: Breaker,
    /// It stands in the ring.
    in_ring: bool,
}

impl<T> Default for Lane<T> {
    fn default() -> Self {
        let (waiting, breaker) = (Waiting::default(), Breaker::default());
        Self { waiting, running: 0, stalled: 0, ended_at: None, breaker, in_ring: false }
    }
}

impl<T> Lane<T> {
    /// Whether it waits for nothing but a slot.
    fn is_runnable(&self, limits: Limits, now: Instant) -> bool {
        self.waiting.len > 0
            && self.running + self.stalled < limits.per_key
            && self.breaker.gate(now) == Gate::Run
    }

    /// Whether it may have another slot while so many attempts of all sinks run. A sink that may hang has no more at once
    /// than may leave their slots, so that it holds none of them for long; and one at least, to show that it does not.
    fn may_start(&self, limits: Limits, running: usize, stalled: usize, now: Instant) -> bool {
        let (others, gets_on) =
            (running.saturating_sub(self.running), is_lately(self.ended_at, now));
        let percent = limits.percents.of(gets_on, others);
        let is_quick = gets_on && self.stalled == 0;
        let at_once = self.running + self.stalled;
        window(limits.total, others, self.running, percent) > 0
            && (is_quick || at_once < limits.may_stall(stalled.saturating_sub(self.stalled)).max(1))
    }
}

/// An item that may run.
#[derive(Debug)]
pub(super) struct New<T> {
    pub(super) item: T,
    pub(super) tenant: TenantOrd,
    /// How many of its tenant run while one of another with weight 1 does, > 0.
    pub(super) weight: u32,
}

/// What is handed back instead of being run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Parked<T> {
    pub(super) items: Vec<T>,
    /// When the sink may be tried again.
    pub(super) until: Instant,
}

/// What an item that runs holds until it has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    tenant: TenantOrd,
    /// Its outcome decides whether the sink is well again.
    probe: bool,
    /// It has left its slot.
    stalled: bool,
    /// It takes long, whether or not it has.
    slow: bool,
}

/// An item to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Started<T> {
    pub(super) item: T,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) struct Queues<K, T> {
    limits: Limits,
    policy: BreakerPolicy,
    lanes: BTreeMap<K, Lane<T>>,
    /// Lanes that wait for nothing but a slot.
    ring: VecDeque<K>,
    waiting: usize,
    running: usize,
    /// By tenant, those in slots.
    by_tenant: BTreeMap<TenantOrd, usize>,
    stalled: usize,
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
            by_tenant: BTreeMap::new(),
            stalled: 0,
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
    pub(super) fn push(&mut self, key: &K, new: New<T>, now: Instant) -> Option<Parked<T>> {
        let New { item, tenant, weight } = new;
        if let Some(until) = self.parked_until(key, now) {
            return Some(Parked { items: vec![item], until });
        }
        self.lanes.entry(key.clone()).or_default().waiting.push(item, tenant, weight);
        self.waiting += 1;
        self.enter_ring(key, now);
        None
    }

    /// The next item to run, if there is one and room for it.
    pub(super) fn start(&mut self, now: Instant) -> Option<Started<T>> {
        if self.running >= self.limits.total {
            return None;
        }
        // Once around: who is passed over has slots, and waits for another.
        for _ in 0..self.ring.len() {
            let key = self.ring.pop_front()?;
            if let Some(started) = self.start_of(&key, now) {
                return Some(started);
            }
        }
        None
    }

    fn start_of(&mut self, key: &K, now: Instant) -> Option<Started<T>> {
        let (limits, running, stalled) = (self.limits, self.running, self.stalled);
        let lane = self.lanes.get_mut(key)?;
        lane.in_ring = false;
        if !lane.is_runnable(limits, now) {
            return None;
        }
        let held = |tenant| self.by_tenant.get(&tenant).copied().unwrap_or(0);
        let popped = if lane.may_start(limits, running, stalled, now) {
            lane.waiting.pop(|tenant| limits.may_take(running, held(tenant)))
        } else {
            None
        };
        let started = popped.map(|(tenant, item)| {
            let probe = lane.breaker.begin();
            lane.running += 1;
            self.waiting -= 1;
            self.running += 1;
            *self.by_tenant.entry(tenant).or_default() += 1;
            Started { item, place: Place { tenant, probe, stalled: false, slow: false } }
        });
        self.enter_ring(key, now);
        started
    }

    /// An item takes long: it goes on without its slot, if it is not one too many already. True if it does.
    pub(super) fn stall(&mut self, key: &K, place: &mut Place, now: Instant) -> bool {
        let Some(lane) = self.lanes.get_mut(key) else { return false };
        place.slow = true;
        let may_stall =
            lane.stalled < self.limits.may_stall(self.stalled.saturating_sub(lane.stalled));
        if place.stalled || !may_stall {
            return place.stalled;
        }
        lane.running = lane.running.saturating_sub(1);
        lane.stalled += 1;
        self.stalled += 1;
        place.stalled = true;
        self.leave_slot(place.tenant);
        self.enter_ring(key, now);
        true
    }

    /// An item has run. Hands back what waits for the sink if that opened its breaker.
    pub(super) fn end(
        &mut self,
        key: &K,
        place: &Place,
        answer: Answer,
        now: Instant,
    ) -> Option<Parked<T>> {
        let lane = self.lanes.get_mut(key)?;
        if place.stalled {
            lane.stalled = lane.stalled.saturating_sub(1);
            self.stalled = self.stalled.saturating_sub(1);
        } else {
            lane.running = lane.running.saturating_sub(1);
        }
        if !place.slow {
            lane.ended_at = Some(now);
        }
        let opened = lane.breaker.end(place.probe, answer, &self.policy, now);
        let parked = opened.map(|until| Parked { items: lane.waiting.take(), until });
        self.waiting -= parked.as_ref().map_or(0, |parked| parked.items.len());
        if !place.stalled {
            self.leave_slot(place.tenant);
        }
        self.enter_ring(key, now);
        parked
    }

    fn leave_slot(&mut self, tenant: TenantOrd) {
        self.running = self.running.saturating_sub(1);
        if let Some(running) = self.by_tenant.get_mut(&tenant) {
            *running = running.saturating_sub(1);
            if *running == 0 {
                self.by_tenant.remove(&tenant);
            }
        }
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
            let before = lane.waiting.len;
            lane.waiting.forget(&is_gone);
            self.waiting -= before - lane.waiting.len;
        }
    }

    /// Takes out what waits for the sinks that do not stay, and forgets those of them that run nothing.
    pub(super) fn take_all_but(&mut self, stays: impl Fn(&K) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        self.lanes.retain(|key, lane| {
            if stays(key) {
                return true;
            }
            taken.extend(lane.waiting.take());
            lane.running + lane.stalled > 0
        });
        self.ring.retain(|key| stays(key));
        for (key, lane) in &mut self.lanes {
            lane.in_ring &= stays(key);
        }
        self.waiting -= taken.len();
        taken
    }

    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// In slots: what will end soon.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Beside them.
    pub(super) fn stalled(&self) -> usize {
        self.stalled
    }

    /// Sinks whose breaker is open.
    pub(super) fn breakers_open(&self) -> usize {
        self.lanes.values().filter(|lane| lane.breaker.is_open()).count()
    }
}

#[cfg(test)]
mod tests;
