//! The table of benches, and what one answers.
//!
//! A bench measures the node and its own floors in turns, in one process tree, and holds ratios of the two against bars.
//! It runs alone, in a release build; nothing here is ever part of a test.

mod blob;
mod clients;
mod dedupe;
pub mod floor;
mod histogram;
mod ingest;
mod machine;
mod node;
mod process;
pub mod queue;
mod requests;

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::drill::CannotInject;

/// A bench, as listed and run by name.
#[derive(Clone, Copy)]
pub struct Bench {
    pub name: &'static str,
    /// What is measured against what.
    pub what: &'static str,
    pub run: fn(&BenchOptions) -> Result<BenchReport, CannotInject>,
}

/// Every bench there is.
pub const BENCHES: [Bench; 4] = [
    Bench {
        name: "blob",
        what: "objects on a disk against cp and fsync, and on a real S3 server against the object_store crate; memory of a large upload",
        run: blob::run,
    },
    Bench {
        name: "dedupe",
        what: "look-up and durable commit of fresh dedupe keys over a hundred million others, with and without filters, small and large caches, against an empty store",
        run: dedupe::run,
    },
    Bench {
        name: "ingest",
        what: "acked hooks against bare HTTP, a bare store and a bare fsync: CPU a hook, rate, latency, fsyncs",
        run: ingest::run,
    },
    Bench {
        name: "queue",
        what: "hooks on a store with millions of rows against an empty one: CPU a hook, scans, dead letters, memory",
        run: queue::run,
    },
];

/// How a bench is run. What is unset is the bench's own default.
#[derive(Clone, Debug, Default)]
pub struct BenchOptions {
    /// How often the floors and the node take turns.
    pub rounds: Option<usize>,
    /// Seconds of each load.
    pub seconds: Option<u64>,
    /// Connections of the load.
    pub connections: Option<usize>,
    /// Rows of a store that is called large.
    pub rows: Option<u64>,
    /// Dedupe keys a store is filled with.
    pub keys: Option<u64>,
    /// Where the stores are made, on the disk that is to be measured. Unset: below the working directory.
    pub directory: Option<PathBuf>,
}

/// On which side of its bar a value passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    AtMost,
    AtLeast,
}

/// One figure that is owed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bar {
    pub name: String,
    pub value: f64,
    pub bar: f64,
    pub pass: bool,
    #[serde(skip)]
    side: Side,
}

impl Bar {
    /// Holds a value against its bar. A value that is no number passes no bar.
    #[must_use]
    pub fn new(name: impl Into<String>, value: f64, side: Side, bar: f64) -> Self {
        let pass = match side {
            Side::AtMost => value <= bar,
            Side::AtLeast => value >= bar,
        };
        Self { name: name.into(), value, bar, pass, side }
    }
}

/// What a bench measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BenchReport {
    pub bench: &'static str,
    pub bars: Vec<Bar>,
    /// Everything else, for people: the machine, each round, medians.
    #[serde(skip)]
    pub lines: Vec<String>,
}

impl BenchReport {
    /// The one line a program reads.
    #[must_use]
    pub fn json(&self) -> String {
        // Serializing numbers and text cannot fail.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Whether every bar was passed.
    #[must_use]
    pub fn passes(&self) -> bool {
        self.bars.iter().all(|bar| bar.pass)
    }
}

impl fmt::Display for BenchReport {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.lines {
            writeln!(out, "{line}")?;
        }
        for Bar { name, value, bar, pass, side } in &self.bars {
            let (word, side) = (
                if *pass { "pass" } else { "MISS" },
                if *side == Side::AtMost { "at most" } else { "at least" },
            );
            writeln!(out, "{word}  {name}: {value:.3}, {side} {bar}")?;
        }
        out.write_str(&self.json())
    }
}

/// The middle of the values, or the mean of the two in the middle; no number for none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = values.get(middle).copied().unwrap_or(f64::NAN);
    if values.len() % 2 == 1 {
        return upper;
    }
    values.get(middle.wrapping_sub(1)).map_or(upper, |lower| f64::midpoint(*lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn a_report_is_text_and_then_one_line_of_json() {
        let bars = vec![
            Bar::new("cpu", 1.25, Side::AtMost, 1.3),
            Bar::new("rate", 0.7, Side::AtLeast, 0.8),
        ];
        let report = BenchReport { bench: "ingest", bars, lines: vec!["2 cores".into()] };
        assert!(!report.passes());
        assert_eq!(
            report.to_string(),
            "2 cores\npass  cpu: 1.250, at most 1.3\nMISS  rate: 0.700, at least 0.8\n\
             {\"bench\":\"ingest\",\"bars\":[{\"name\":\"cpu\",\"value\":1.25,\"bar\":1.3,\"pass\":true},\
             {\"name\":\"rate\",\"value\":0.7,\"bar\":0.8,\"pass\":false}]}"
        );
    }

    #[test]
    fn a_value_at_its_bar_passes_and_no_number_does_not() {
        assert!(
            Bar::new("x", 1.0, Side::AtMost, 1.0).pass
                && Bar::new("x", 1.0, Side::AtLeast, 1.0).pass
        );
        assert!(
            !Bar::new("x", f64::NAN, Side::AtMost, 1.0).pass
                && !Bar::new("x", f64::NAN, Side::AtLeast, 1.0).pass
        );
    }
}
