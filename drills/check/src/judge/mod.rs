//! The invariants, each stated once.

mod counters;
mod lanes;
mod promises;
mod structure;

use std::collections::BTreeMap;
use std::fmt;

pub use lanes::{LaneRequest, judge_lanes};

use crate::dump::Dump;
use crate::ledger::{Delivery, Request};
use crate::store::Store;

/// What can be violated. The numbers are those of the drills' documentation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// I1: a hook that was acked was delivered, or is stored with a delivery owed.
    AckedIsKept,
    /// I2: a hook that was refused is not stored and was never delivered.
    RefusedIsForgotten,
    /// I3: a request without an answer may have become a hook or not, but never two.
    UnknownIsOneOrNone,
    /// I4: every counter is what a recount says, for each tenant and for the node.
    CountersAreCounts,
    /// I5: seqs are unique, below the next one, and never given to another hook.
    SeqsAreNeverReused,
    /// I6: one hook for one key of a provider, and every repetition is told its id.
    KeysMakeOneHook,
    /// I7: every row has its index keys and its hook, and every index key its row.
    RowsFitTogether,
    /// I11: the node does not die or hang, but for what a drill does to it.
    NeverDiesOrHangs,
    /// I13: hooks of a lane are delivered in the order they were accepted in, each once the one before it was.
    LanesKeepOrder,
    /// I14: bodies are, byte for byte, what clients sent.
    BytesAreKept,
}

impl Invariant {
    /// The invariant's number, as documentation and reports use it.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            Self::AckedIsKept => "I1",
            Self::RefusedIsForgotten => "I2",
            Self::UnknownIsOneOrNone => "I3",
            Self::CountersAreCounts => "I4",
            Self::SeqsAreNeverReused => "I5",
            Self::KeysMakeOneHook => "I6",
            Self::RowsFitTogether => "I7",
            Self::NeverDiesOrHangs => "I11",
            Self::LanesKeepOrder => "I13",
            Self::BytesAreKept => "I14",
        }
    }
}

/// One broken promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    pub invariant: Invariant,
    /// What was found, with the ids, seqs or keys it was found in.
    pub evidence: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.invariant.code(), self.evidence)
    }
}

/// When the dump was taken, which decides what may still be owed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Just after a crash: deliveries and reclamation may be half way, between two batches.
    Crash,
    /// After everything owed was done: every acked hook must have been delivered, and nothing waits.
    Drained,
}

/// Which hook each durable seq was given to, learnt from the dumps of one store over its life.
#[derive(Clone, Debug, Default)]
pub struct SeqHistory {
    ids: BTreeMap<u64, String>,
    /// Every seq below here was durable once and must not be assigned again.
    floor: u64,
}

impl SeqHistory {
    /// Remembers the hooks of a dump that were durable when it was taken. Later ones may vanish in a crash, and their seqs
    /// be given out again: nobody relied on them.
    pub fn learn(&mut self, dump: &Dump) {
        self.floor = self.floor.max(dump.synced_through.saturating_add(1));
        let store = Store::decode(dump);
        self.ids.extend(
            store
                .hooks
                .into_iter()
                .filter(|(seq, _)| *seq <= dump.synced_through)
                .map(|(seq, hook)| (seq, hook.id)),
        );
    }
}

/// Everything a verdict rests on.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub requests: &'a [Request],
    pub deliveries: &'a [Delivery],
    pub dump: &'a Dump,
    pub history: &'a SeqHistory,
    pub moment: Moment,
}

/// Every violation the evidence shows, in the order of the invariants. None is a pass.
#[must_use]
pub fn judge(evidence: &Evidence<'_>) -> Vec<Violation> {
    let store = Store::decode(evidence.dump);
    let mut findings = Findings::default();
    promises::judge(evidence, &store, &mut findings);
    counters::judge(&store, &mut findings);
    structure::judge(evidence, &store, &mut findings);
    findings.0.sort();
    findings.0
}

/// Whether these violations of a dump are nothing but stalled lanes, one each. Dispatch removes the marker of an idle lane
/// and then looks whether a hook joined it meanwhile: a crash in between leaves such a lane, and the next start has to find
/// it. Whoever excuses one has to see that it does.
#[must_use]
pub fn only_stalled_lanes(violations: &[Violation], dump: &Dump) -> bool {
    let stalled = structure::stalled_lanes(&Store::decode(dump)).count();
    stalled > 0 && stalled == violations.len()
}

/// The violations found so far.
#[derive(Default)]
struct Findings(Vec<Violation>);

impl Findings {
    fn add(&mut self, invariant: Invariant, evidence: String) {
        self.0.push(Violation { invariant, evidence });
    }

    /// A finding about rows and index keys.
    fn misfit(&mut self, evidence: String) {
        self.add(Invariant::RowsFitTogether, evidence);
    }
}
