//! What a drill is, what one is given and what it answers. The drills themselves are rows of [`crate::table`].

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use ankusa_drills_check::{Invariant, Violation};
use serde::Serialize;
use serde_json::Value;

/// Violations written out in a report; the rest are counted.
const VIOLATIONS_TOLD: usize = 20;

/// A drill, as listed and run by name.
#[derive(Clone, Copy)]
pub struct Drill {
    pub name: &'static str,
    /// What is broken, and what must hold.
    pub what: &'static str,
    /// What `--cycles` counts.
    pub cycles_are: &'static str,
    /// What the machine must have.
    pub needs: Needs,
    /// How CI runs it; `None`: on demand only.
    pub ci: Option<Ci>,
    /// The broken builds it must catch, by their features.
    pub canaries: &'static [&'static str],
    /// The shortest run that catches each of them.
    pub canary_form: Form,
    pub run: fn(&DrillOptions) -> Result<Report, CannotInject>,
}

/// What a drill needs beyond a plain user's rights. A machine without it skips the drill, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    Nothing,
    /// `/dev/fuse`, readable and writable.
    Fuse,
    /// Root, and loop devices.
    RootAndLoop,
    /// A mount of its own: root, or user namespaces.
    UserNamespace,
    /// SeaweedFS, as `scripts/setup.sh --test` installs it.
    S3Server,
}

impl Needs {
    /// The need in words, for the list.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Fuse => "/dev/fuse",
            Self::RootAndLoop => "root and loop devices",
            Self::UserNamespace => "root or user namespaces",
            Self::S3Server => "SeaweedFS",
        }
    }

    /// Why this machine cannot run it; `None` when it can.
    #[must_use]
    pub fn missing(self) -> Option<String> {
        match self {
            Self::Nothing => None,
            Self::Fuse => File::options()
                .read(true)
                .write(true)
                .open("/dev/fuse")
                .err()
                .map(|error| format!("needs /dev/fuse: {error}")),
            Self::RootAndLoop => {
                // The owner of our own entry is our effective user.
                let root = std::fs::metadata("/proc/self").is_ok_and(|entry| entry.uid() == 0);
                if !root {
                    return Some("needs root".to_owned());
                }
                (!Path::new("/dev/loop-control").exists()).then(|| "needs loop devices".to_owned())
            }
            Self::UserNamespace => {
                let tried = Command::new("unshare")
                    .args(["-Urm", "true"])
                    .stdin(Stdio::null())
                    .stdout(Stdio::null())
                    .stderr(Stdio::null())
                    .status();
                let works = tried.is_ok_and(|status| status.success());
                (!works).then(|| "needs user namespaces (unshare -Urm)".to_owned())
            }
            Self::S3Server => crate::seaweedfs::program().err().map(|error| error.to_string()),
        }
    }
}

/// How often, how long and how densely a drill breaks things. What is unset is the drill's own default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form {
    pub cycles: Option<u64>,
    pub seconds: Option<u64>,
    pub stride: Option<u64>,
    pub rows: Option<u64>,
}

impl Form {
    /// As the drill itself would have it.
    pub const DEFAULT: Self = Self { cycles: None, seconds: None, stride: None, rows: None };

    #[must_use]
    pub const fn cycles(cycles: u64) -> Self {
        Self { cycles: Some(cycles), ..Self::DEFAULT }
    }

    #[must_use]
    pub const fn seconds(seconds: u64) -> Self {
        Self { seconds: Some(seconds), ..Self::DEFAULT }
    }

    #[must_use]
    pub const fn stride(stride: u64) -> Self {
        Self { stride: Some(stride), ..Self::DEFAULT }
    }

    /// As options of a run.
    #[must_use]
    pub fn options(self) -> DrillOptions {
        DrillOptions {
            cycles: self.cycles,
            lasting: self.seconds.map(Duration::from_secs),
            stride: self.stride,
            rows: self.rows,
            ..DrillOptions::default()
        }
    }
}

/// As arguments of `run`.
impl Display for Form {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cycles, seconds, stride, rows } = *self;
        let options =
            [("cycles", cycles), ("seconds", seconds), ("stride", stride), ("rows", rows)];
        let set = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let words: Vec<String> = set.map(|(name, value)| format!("--{name} {value}")).collect();
        out.write_str(&words.join(" "))
    }
}

/// How CI runs a drill.
#[derive(Clone, Copy, Debug)]
pub struct Ci {
    pub form: Form,
    /// Seconds it may take on two cores. The sum over the table is what CI may take.
    pub budget_s: u64,
}

/// How a drill is run. What a drill does not use it ignores.
#[derive(Clone, Debug, Default)]
pub struct DrillOptions {
    /// Everything random follows from it, but for how threads interleave.
    pub seed: u64,
    /// How often to break something. Unset: the drill's own default.
    pub cycles: Option<u64>,
    /// For how long to go on breaking things, instead of a number of times.
    pub lasting: Option<Duration>,
    /// Look at every Nth cut only, whatever `cycles` says. Unset: as many as fit the time of an automatic run.
    pub stride: Option<u64>,
    /// Rows of a backlog. Unset: the drill's own default.
    pub rows: Option<u64>,
    /// Leave the files of a drill that found something, for somebody to look at.
    pub keeps_evidence: bool,
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
    pub counts: BTreeMap<Cow<'static, str>, Value>,
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
    pub fn count(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Value>) {
        self.counts.insert(name.into(), value.into());
    }

    /// Adds what was found in one place: every violation is counted, one of each invariant is told.
    pub fn violated(&mut self, place: &str, broken: &Broken) {
        for (invariant, (violations, first)) in &broken.by_invariant {
            *self.invariants_violated.entry(invariant.code()).or_default() += violations;
            let more = violations - 1;
            let others = if more > 0 { format!(" (and {more} more)") } else { String::new() };
            self.violated_by(format!("{place}: {first}{others}"));
            self.violations_total += more;
        }
    }

    /// Adds something that must not happen, by the number of the invariant it violates.
    pub fn violated_as(&mut self, invariant: &'static str, finding: String) {
        *self.invariants_violated.entry(invariant).or_default() += 1;
        self.violated_by(format!("{invariant}: {finding}"));
    }

    /// Takes over what another report found.
    pub fn take(&mut self, other: Self) {
        for (invariant, violations) in other.invariants_violated {
            *self.invariants_violated.entry(invariant).or_default() += violations;
        }
        let untold = other.violations_total - other.violations.len();
        other.violations.into_iter().for_each(|finding| self.violated_by(finding));
        self.violations_total += untold;
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

/// The violations of one place, summed up: thousands of them say no more than the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    by_invariant: BTreeMap<Invariant, (usize, Violation)>,
}

impl Broken {
    /// Sums up. Nothing when nothing is violated.
    #[must_use]
    pub fn by(violations: Vec<Violation>) -> Option<Self> {
        let mut by_invariant: BTreeMap<Invariant, (usize, Violation)> = BTreeMap::new();
        for violation in violations {
            by_invariant.entry(violation.invariant).or_insert((0, violation)).0 += 1;
        }
        (!by_invariant.is_empty()).then_some(Self { by_invariant })
    }

    /// The invariants that are violated.
    pub fn invariants(&self) -> impl Iterator<Item = Invariant> {
        self.by_invariant.keys().copied()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn violation(invariant: Invariant, evidence: &str) -> Violation {
        Violation { invariant, evidence: evidence.to_owned() }
    }

    #[test]
    fn a_report_counts_every_violation_and_tells_one_of_each_invariant_in_a_place() {
        let mut report = Report::new("a drill", 7);
        assert_eq!(Broken::by(vec![]), None);
        let lost = |name| violation(Invariant::AckedIsKept, name);
        let broken = Broken::by(vec![
            lost("a"),
            violation(Invariant::CountersAreCounts, "c"),
            lost("b"),
            lost("d"),
        ]);
        report.violated("here", &broken.unwrap());
        report.violated_by("there".to_owned());
        assert_eq!(report.violations, ["here: I1: a (and 2 more)", "here: I4: c", "there"]);
        assert_eq!(report.violations_total, 5);
        assert_eq!(report.invariants_violated, BTreeMap::from([("I1", 3), ("I4", 1)]));
        assert_eq!(report.verdict, Verdict::Violated);
    }

    #[test]
    fn a_form_is_told_as_the_arguments_of_a_run() {
        assert_eq!(Form::DEFAULT.to_string(), "");
        let form = Form { cycles: Some(3), ..Form::stride(4) };
        assert_eq!(form.to_string(), "--cycles 3 --stride 4");
        assert_eq!(Form::seconds(9).options().lasting, Some(Duration::from_secs(9)));
    }

    #[test]
    fn a_report_takes_over_what_another_found() {
        let (mut all, mut one) = (Report::new("a drill", 7), Report::new("a drill", 7));
        all.violated_as("I11", "it died".to_owned());
        (0..30).for_each(|n| one.violated_as("I12", n.to_string()));
        all.take(one);
        assert_eq!(all.invariants_violated, BTreeMap::from([("I11", 1), ("I12", 30)]));
        assert_eq!((all.violations_total, all.violations.len()), (31, VIOLATIONS_TOLD));
        assert_eq!(all.violations[..2], ["I11: it died", "I12: 0"]);
        assert_eq!(all.verdict, Verdict::Violated);
    }

    #[test]
    fn only_the_first_findings_are_told() {
        let mut report = Report::new("a drill", 7);
        (0..100).for_each(|n| report.violated_by(n.to_string()));
        assert_eq!((report.violations.len(), report.violations_total), (VIOLATIONS_TOLD, 100));
    }
}
