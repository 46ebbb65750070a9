//! What the tree looks like right now, for whoever asks: states, restart counts, last failures.
//!
//! Written by the supervisors, read by `ctl tree`, the metrics and the tests. Reading it never waits for an actor, so a
//! supervisor in the middle of a restart can still be looked at.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::time::Instant;

/// Where a child stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// Not started yet, or between incarnations.
    Starting,
    Running,
    /// Stopped on purpose.
    Stopped,
    /// Its restart budget is spent; it is tried again later.
    Down,
}

impl ChildState {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Down => "down",
        }
    }
}

/// One line of the tree.
#[derive(Clone, Debug)]
pub struct ChildReport {
    pub id: Arc<str>,
    /// The supervisor it hangs from; empty for the root's own children.
    pub parent: Arc<str>,
    /// What a supervisor does with its children; empty for a worker.
    pub strategy: &'static str,
    pub state: ChildState,
    /// Starts after the first.
    pub restarts: u64,
    /// Times its restart budget was spent.
    pub downs: u64,
    pub last_failure: Option<String>,
    /// When it got into `state`.
    pub since: Instant,
}

struct Row {
    report: ChildReport,
    starts: u64,
    crash: Option<Box<dyn Fn() -> bool + Send + Sync>>,
}

#[derive(Default)]
struct Rows {
    order: Vec<Arc<str>>,
    by_id: BTreeMap<Arc<str>, Row>,
}

/// Shared by every supervisor of one node.
#[derive(Clone, Default)]
pub struct Board {
    rows: Arc<Mutex<Rows>>,
}

impl Board {
    /// Every child, supervisors before their children, in start order.
    pub fn report(&self) -> Vec<ChildReport> {
        let rows = self.rows();
        let reports = rows.order.iter().filter_map(|id| rows.by_id.get(id));
        reports.map(|row| row.report.clone()).collect()
    }

    /// Makes a child panic in its own handler. False when there is no such child, or none running.
    pub fn crash(&self, id: &str) -> bool {
        self.rows().by_id.get(id).and_then(|row| row.crash.as_ref()).is_some_and(|crash| crash())
    }

    /// Adds a child the first time it is seen; a restarted supervisor announces the same ones again.
    pub(super) fn announce(
        &self,
        id: &Arc<str>,
        parent: &Arc<str>,
        strategy: &'static str,
        crash: Option<Box<dyn Fn() -> bool + Send + Sync>>,
    ) {
        let mut rows = self.rows();
        if let Some(row) = rows.by_id.get_mut(id) {
            row.crash = crash;
            return;
        }
        let report = ChildReport {
            id: Arc::clone(id),
            parent: Arc::clone(parent),
            strategy,
            state: ChildState::Starting,
            restarts: 0,
            downs: 0,
            last_failure: None,
            since: Instant::now(),
        };
        let at = rows.place_below(parent);
        rows.order.insert(at, Arc::clone(id));
        rows.by_id.insert(Arc::clone(id), Row { report, starts: 0, crash });
    }

    pub(super) fn started(&self, id: &str) {
        self.change(id, |row| {
            row.starts += 1;
            row.report.restarts = row.starts - 1;
            row.report.state = ChildState::Running;
        });
    }

    pub(super) fn failed(&self, id: &str, failure: String) {
        self.change(id, |row| {
            row.report.state = ChildState::Starting;
            row.report.last_failure = Some(failure);
        });
    }

    pub(super) fn stopped(&self, id: &str) {
        self.change(id, |row| row.report.state = ChildState::Stopped);
    }

    pub(super) fn down(&self, id: &str) {
        self.change(id, |row| {
            row.report.state = ChildState::Down;
            row.report.downs += 1;
        });
    }

    fn change(&self, id: &str, change: impl FnOnce(&mut Row)) {
        if let Some(row) = self.rows().by_id.get_mut(id) {
            change(row);
            row.report.since = Instant::now();
        }
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Rows {
    /// Behind everything that already hangs, at any depth, from `parent`.
    fn place_below(&self, parent: &Arc<str>) -> usize {
        let Some(parent_at) = self.order.iter().position(|id| id == parent) else {
            return self.order.len();
        };
        let below = self.order.iter().skip(parent_at + 1);
        parent_at + 1 + below.take_while(|id| self.hangs_from(id, parent)).count()
    }

    fn hangs_from(&self, id: &Arc<str>, ancestor: &Arc<str>) -> bool {
        let mut at = Arc::clone(id);
        while let Some(row) = self.by_id.get(&at) {
            if row.report.parent == *ancestor {
                return true;
            }
            at = Arc::clone(&row.report.parent);
        }
        false
    }
}
