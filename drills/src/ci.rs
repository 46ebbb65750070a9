//! Every drill of the table in its short form, with one seed, in at most [`LIMIT`], with one report.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::drill::{DrillOptions, Report, Verdict};
use crate::table::DRILLS;

/// The longest a run may take. A drill that would begin later is skipped, which fails the run.
pub const LIMIT: Duration = Duration::from_secs(600);

/// What one drill came to.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "verdict", rename_all = "snake_case")]
pub enum Line {
    Pass(Timed),
    Violated(Timed),
    /// Nothing is known. `expected` where the table says that it needs what this machine lacks.
    Skipped {
        drill: &'static str,
        reason: String,
        expected: bool,
    },
}

/// A drill that ran. Its own report has the verdict too, under the same name and with the same value.
#[derive(Clone, Debug, Serialize)]
pub struct Timed {
    pub drill: &'static str,
    pub budget_s: u64,
    pub elapsed_s: f64,
    pub report: Report,
}

/// The whole run. Serialized, it is the one line of JSON.
#[derive(Clone, Debug, Serialize)]
pub struct CiReport {
    pub seed: u64,
    pub verdict: Overall,
    pub elapsed_s: f64,
    pub drills: Vec<Line>,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Overall {
    Pass,
    Violated,
    /// Nothing was violated, and something that should have been tried was not.
    Incomplete,
}

impl Overall {
    /// What a run comes to: a violation says more than anything that was not tried.
    #[must_use]
    pub fn of(lines: &[Line]) -> Self {
        let mut overall = Self::Pass;
        for line in lines {
            match line {
                Line::Violated(_) => return Self::Violated,
                Line::Skipped { expected: false, .. } => overall = Self::Incomplete,
                Line::Pass(_) | Line::Skipped { expected: true, .. } => {}
            }
        }
        overall
    }
}

/// Runs them all. What goes on is told on standard error.
#[must_use]
pub fn run(seed: u64) -> CiReport {
    let started = Instant::now();
    let mut lines = Vec::new();
    for drill in DRILLS {
        let Some(ci) = drill.ci else { continue };
        let skipped = |reason, expected| Line::Skipped { drill: drill.name, reason, expected };
        let line = if let Some(reason) = drill.needs.missing() {
            skipped(reason, true)
        } else if started.elapsed() > LIMIT {
            skipped(format!("the {LIMIT:?} of the run were over"), false)
        } else {
            tell(&format!("{} (budget {} s)", drill.name, ci.budget_s));
            let began = Instant::now();
            let options = DrillOptions { seed, keeps_evidence: true, ..ci.form.options() };
            match (drill.run)(&options) {
                Err(error) => skipped(error.to_string(), false),
                Ok(report) => {
                    let elapsed_s = began.elapsed().as_secs_f64();
                    let verdict = report.verdict;
                    let budget_s = ci.budget_s;
                    let timed = Timed { drill: drill.name, budget_s, elapsed_s, report };
                    match verdict {
                        Verdict::Pass => Line::Pass(timed),
                        Verdict::Violated => Line::Violated(timed),
                    }
                }
            }
        };
        tell(&line.to_string());
        lines.push(line);
    }
    let (verdict, elapsed_s) = (Overall::of(&lines), started.elapsed().as_secs_f64());
    CiReport { seed, verdict, elapsed_s, drills: lines }
}

fn tell(line: &str) {
    // Whoever closed it does not want to hear more.
    let _ = writeln!(io::stderr().lock(), "{line}");
}

impl std::fmt::Display for Line {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pass(timed) | Self::Violated(timed) => {
                let late = timed.elapsed_s > f64::from(u32::try_from(timed.budget_s).unwrap_or(0));
                let over = if late { ", over its budget" } else { "" };
                write!(out, "{}{over}", timed.report)
            }
            Self::Skipped { drill, reason, expected: true } => {
                write!(out, "{drill}: skipped, as expected: {reason}")
            }
            Self::Skipped { drill, reason, expected: false } => {
                write!(out, "{drill}: NOT RUN: {reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_violation_outweighs_a_drill_that_was_not_run_which_outweighs_a_pass() {
        let ran = |verdict: fn(Timed) -> Line| {
            let report = Report::new("a drill", 7);
            verdict(Timed { drill: "a drill", budget_s: 1, elapsed_s: 0.5, report })
        };
        let skipped = |expected| Line::Skipped { drill: "b", reason: "no root".into(), expected };
        assert_eq!(Overall::of(&[ran(Line::Pass), skipped(true)]), Overall::Pass);
        assert_eq!(Overall::of(&[skipped(false), ran(Line::Pass)]), Overall::Incomplete);
        assert_eq!(Overall::of(&[skipped(false), ran(Line::Violated)]), Overall::Violated);
    }
}
