//! The table of drills, what one is given and what it answers.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use ankusa_drills_check::Violation;
use serde::Serialize;
use serde_json::Value;

use crate::{cut_every_op, kill9};

/// Violations written out in a report; the rest are counted.
const VIOLATIONS_TOLD: usize = 20;

/// A drill, as listed and run by name.
#[derive(Clone, Copy)]
pub struct Drill {
    pub name: &'static str,
    /// What is broken, and what must hold.
    pub what: &'static str,
    pub run: fn(&DrillOptions) -> Result<Report, CannotInject>,
}

/// Every drill there is.
pub const DRILLS: [Drill; 2] = [
    Drill {
        name: "kill9",
        what: "SIGKILL at a random moment under load, restart, again: every 201 is delivered, no refused hook ever is",
        run: kill9::run,
    },
    Drill {
        name: "cut_every_op",
        what: "a power cut at every operation on the disk, in every legal shape: every image opens and keeps every promise",
        run: cut_every_op::run,
    },
];

/// How a drill is run. What a drill does not use it ignores.
#[derive(Clone, Debug, Default)]
pub struct DrillOptions {
    /// Everything random follows from it, but for how threads interleave.
    pub seed: u64,
    /// How often to break something. Unset: the drill's own default.
    pub cycles: Option<u64>,
    /// For how long to go on breaking things, instead of a number of times.
    pub lasting: Option<Duration>,
    /// Look at every Nth cut only. Unset: as many as fit the time of an automatic run.
    pub stride: Option<u64>,
}

/// The drill could not do what it is about, which is neither a pass nor a violation.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct CannotInject(pub String);

/// Says what could not be done when something fails.
pub trait OrCannot<T> {
    /// # Errors
    /// When this is an error: that `what` cannot be done, and why.
    fn or_cannot(self, what: impl Display) -> Result<T, CannotInject>;
}

impl<T, E: Display> OrCannot<T> for Result<T, E> {
    fn or_cannot(self, what: impl Display) -> Result<T, CannotInject> {
        self.map_err(|error| CannotInject(format!("cannot {what}: {error}")))
    }
}

/// How a drill ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Pass,
    Violated,
}

/// What a drill found. Serialized, it is the drill's one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub drill: &'static str,
    pub seed: u64,
    pub verdict: Verdict,
    /// Requests answered 201.
    pub acked: u64,
    /// Requests answered 503, or refused before anything was stored.
    pub refused: u64,
    /// Requests without an answer.
    pub unknown: u64,
    /// What else the drill counted, by name.
    pub counts: BTreeMap<&'static str, Value>,
    pub violations_total: usize,
    /// How often each invariant was violated, by its code.
    pub invariants_violated: BTreeMap<&'static str, usize>,
    /// The first violations, each with where it was found.
    pub violations: Vec<String>,
    pub elapsed_ms: u128,
}

impl Report {
    /// A report of a drill that found nothing wrong yet.
    #[must_use]
    pub fn new(drill: &'static str, seed: u64) -> Self {
        Self {
            drill,
            seed,
            verdict: Verdict::Pass,
            acked: 0,
            refused: 0,
            unknown: 0,
            counts: BTreeMap::new(),
            violations_total: 0,
            invariants_violated: BTreeMap::new(),
            violations: Vec::new(),
            elapsed_ms: 0,
        }
    }

    /// Adds a number or a figure under a name.
    pub fn count(&mut self, name: &'static str, value: impl Into<Value>) {
        self.counts.insert(name, value.into());
    }

    /// Adds violations found in one place.
    pub fn violated(&mut self, place: &str, violations: &[Violation]) {
        for violation in violations {
            *self.invariants_violated.entry(violation.invariant.code()).or_default() += 1;
            self.violated_by(format!("{place}: {violation}"));
        }
    }

    /// Adds something that must not happen and that is no invariant of a store: a node that does not start, say.
    pub fn violated_by(&mut self, finding: String) {
        self.verdict = Verdict::Violated;
        self.violations_total += 1;
        if self.violations.len() < VIOLATIONS_TOLD {
            self.violations.push(finding);
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = match self.verdict {
            Verdict::Pass => "pass",
            Verdict::Violated => "VIOLATED",
        };
        writeln!(out, "{} seed {}: {verdict}", self.drill, self.seed)?;
        writeln!(
            out,
            "  acked {}, refused {}, unknown {}",
            self.acked, self.refused, self.unknown
        )?;
        for (name, value) in &self.counts {
            writeln!(out, "  {name} {value}")?;
        }
        if self.violations_total > 0 {
            let by_invariant = &self.invariants_violated;
            writeln!(out, "  violations {}, by invariant {by_invariant:?}", self.violations_total)?;
        }
        for violation in &self.violations {
            writeln!(out, "    {violation}")?;
        }
        write!(
            out,
            "  took {:.1} s",
            Duration::from_millis(u64::try_from(self.elapsed_ms).unwrap_or(u64::MAX)).as_secs_f64()
        )
    }
}
