//! Random commands to a whole node, against books a child could keep: what is owed to whom, as plain maps and numbers.
//!
//! What a power cut would leave has books of its own. The node has two tenants, and a command about an attempt chooses
//! among three of them, so that commands meet. Time goes by in hours, and only when a command says so.

mod world;

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest_state_machine::{ReferenceStateMachine, StateMachineTest};

pub use world::{Disk, World};

/// One command.
#[derive(Clone, Debug)]
pub enum Step {
    /// Hooks that arrive together, each owed to so many sinks.
    Commit {
        tenant: usize,
        sinks: u16,
        hooks: usize,
    },
    /// The same, and the fsync fails.
    FailSync {
        tenant: usize,
        sinks: u16,
    },
    /// Hooks of one sink that arrive together with the same dedupe key.
    CommitKeyed {
        tenant: usize,
        key: u8,
        hooks: usize,
    },
    /// One such hook, and the fsync fails.
    FailSyncKeyed {
        tenant: usize,
        key: u8,
    },
    /// The receiver of one of the attempts under way answers.
    Deliver(usize),
    Fail(usize),
    Refuse(usize),
    /// Every retry is due.
    Advance,
    CrashDispatch,
    Kill,
    CutPower,
    /// The receivers of all attempts under way take them meanwhile.
    StopStart,
}

/// A delivery row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub attempts: u32,
    pub is_dead: bool,
    /// In the hour it failed it is not tried again.
    pub failed_in: Option<u64>,
}

/// What is owed, by hook and sink.
pub type Rows = BTreeMap<(usize, u16), Row>;

/// A dedupe key is forgotten so many hours after its hook.
pub const KEY_HOURS: u64 = 3;

/// The hook that holds each dedupe key of a tenant, and the hour it was committed in.
pub type Keys = BTreeMap<(usize, u8), (usize, u64)>;

/// The books.
#[derive(Clone, Debug, Default)]
pub struct Books {
    pub applied: Rows,
    /// What a power cut would leave of them.
    pub durable: Rows,
    /// A power cut leaves them as they are: they change with an fsync.
    pub keys: Keys,
    /// The tenant of every hook that was ever sent.
    pub tenants: Vec<usize>,
    pub hour: u64,
}

/// A row is dead after so many attempts.
pub const MAX_ATTEMPTS: u32 = 3;

impl Books {
    /// Attempts under way.
    pub fn asked(&self) -> Vec<(usize, u16)> {
        let asked = self.applied.iter().filter(|(_, row)| self.is_asked(row));
        asked.map(|(key, _)| *key).collect()
    }

    pub fn is_asked(&self, row: &Row) -> bool {
        !row.is_dead && row.failed_in.is_none_or(|hour| hour < self.hour)
    }

    pub fn choose(&self, which: usize) -> Option<(usize, u16)> {
        let asked = self.asked();
        (!asked.is_empty()).then(|| asked[which % asked.len()])
    }

    fn commit(&mut self, tenant: usize, sinks: u16) {
        let row = Row { attempts: 0, is_dead: false, failed_in: None };
        self.applied.extend((0..sinks).map(|sink| ((self.tenants.len(), sink), row)));
        self.tenants.push(tenant);
    }

    fn commit_keyed(&mut self, tenant: usize, key: u8, hooks: usize) {
        for _ in 0..hooks {
            if self.keys.contains_key(&(tenant, key)) {
                // Sent, and nothing came of it.
                self.tenants.push(tenant);
            } else {
                self.keys.insert((tenant, key), (self.tenants.len(), self.hour));
                self.commit(tenant, 1);
                self.is_synced();
            }
        }
    }

    /// Time goes by, and the sweep is not far behind.
    fn advance(&mut self) {
        self.hour += 2;
        let (before, hour) = (self.keys.len(), self.hour);
        self.keys.retain(|_, (_, since)| *since + KEY_HOURS > hour);
        if self.keys.len() < before {
            // It is durable, and so is all that was written before.
            self.is_synced();
        }
    }

    fn failed(&mut self, which: usize, for_good: bool) {
        let (key, hour) = (self.choose(which).unwrap(), self.hour);
        let row = self.applied.get_mut(&key).unwrap();
        row.attempts += 1;
        row.is_dead = for_good || row.attempts == MAX_ATTEMPTS;
        row.failed_in = Some(hour);
    }

    fn take(&mut self, step: &Step, loses_power: bool) {
        match step {
            Step::Commit { tenant, sinks, hooks } => {
                (0..*hooks).for_each(|_| self.commit(*tenant, *sinks));
                self.is_synced();
            }
            Step::CommitKeyed { tenant, key, hooks } => self.commit_keyed(*tenant, *key, *hooks),
            Step::FailSync { tenant, sinks: _ } | Step::FailSyncKeyed { tenant, key: _ } => {
                self.tenants.push(*tenant);
                // The store is opened again, and an open writes down what it finds.
                self.is_synced();
            }
            Step::Deliver(which) => {
                let key = self.choose(*which).unwrap();
                self.applied.remove(&key);
            }
            Step::Fail(which) => self.failed(*which, false),
            Step::Refuse(which) => self.failed(*which, true),
            Step::Advance => self.advance(),
            Step::CrashDispatch => {
                // Claims that were nobody's are due again, durably.
                if !self.asked().is_empty() {
                    self.is_synced();
                }
            }
            Step::CutPower if loses_power => self.applied = self.durable.clone(),
            Step::StopStart => {
                for key in self.asked() {
                    self.applied.remove(&key);
                }
                self.is_synced();
            }
            Step::Kill | Step::CutPower => self.is_synced(),
        }
    }

    fn is_synced(&mut self) {
        self.durable = self.applied.clone();
    }
}

/// The machine on one kind of disk.
#[derive(Debug)]
pub struct Machine<D>(std::marker::PhantomData<D>);

impl<D: Disk> ReferenceStateMachine for Machine<D> {
    type State = Books;
    type Transition = Step;

    fn init_state() -> BoxedStrategy<Books> {
        Just(Books::default()).boxed()
    }

    fn transitions(_: &Books) -> BoxedStrategy<Step> {
        let (tenant, sinks, which) = (0..2_usize, 0..3_u16, 0..3_usize);
        let key = (tenant.clone(), 0..3_u8);
        prop_oneof![
            8 => (tenant.clone(), sinks.clone(), 1..3_usize)
                .prop_map(|(tenant, sinks, hooks)| Step::Commit { tenant, sinks, hooks }),
            6 => (key.clone(), 1..4_usize)
                .prop_map(|((tenant, key), hooks)| Step::CommitKeyed { tenant, key, hooks }),
            2 => key.prop_map(|(tenant, key)| Step::FailSyncKeyed { tenant, key }),
            2 => (tenant, sinks).prop_map(|(tenant, sinks)| Step::FailSync { tenant, sinks }),
            6 => which.clone().prop_map(Step::Deliver),
            6 => which.clone().prop_map(Step::Fail),
            1 => which.prop_map(Step::Refuse),
            3 => Just(Step::Advance),
            1 => Just(Step::CrashDispatch),
            1 => Just(Step::Kill),
            3 => Just(Step::CutPower),
            1 => Just(Step::StopStart),
        ]
        .boxed()
    }

    fn apply(mut books: Books, step: &Step) -> Books {
        books.take(step, D::LOSES_POWER);
        books
    }

    fn preconditions(books: &Books, step: &Step) -> bool {
        match step {
            Step::Deliver(_) | Step::Fail(_) | Step::Refuse(_) => books.choose(0).is_some(),
            // A repeated hook asks for no fsync.
            Step::FailSyncKeyed { tenant, key } => !books.keys.contains_key(&(*tenant, *key)),
            Step::Commit { .. }
            | Step::CommitKeyed { .. }
            | Step::FailSync { .. }
            | Step::Advance
            | Step::CrashDispatch
            | Step::Kill
            | Step::CutPower
            | Step::StopStart => true,
        }
    }
}

impl<D: Disk> StateMachineTest for Machine<D> {
    type SystemUnderTest = World<D>;
    type Reference = Self;

    fn init_test(_: &Books) -> World<D> {
        World::new()
    }

    fn apply(mut world: World<D>, books: &Books, step: Step) -> World<D> {
        world.take(&step, books);
        world
    }

    fn check_invariants(world: &World<D>, books: &Books) {
        world.is_as_in(books);
    }

    fn teardown(world: World<D>, _: Books) {
        world.leave();
    }
}
