//! Single flipped bits in a store at rest: every byte of every record header of the log and the manifest, and bits at
//! random in every kind of file. Each damaged store is given to a real node, which has to refuse it with a reason, report
//! the damage in the read that meets it, or hold every row as if nothing had happened. A store that comes up with rows
//! missing and says nothing, and a node that neither comes up nor ends, are what must never be.
//!
//! Two stores, of 1,500 hooks nobody has delivered: one whose node was killed, one whose node was stopped. In both, some
//! hooks are in tables and some in the log. Beside them: a store whose manifest keeps RocksDB reading for ever, and one
//! whose log cannot be read to its end because the read never returns.

mod case;
mod flips;
mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ankusa_drills_check::{Invariant, Violation};
use ankusa_drills_replay::Rng;
use tokio::sync::Mutex;
use tokio::task::JoinSet;

use self::case::{Bench, Fate};
use self::flips::Damage;
use self::rest::AtRest;
use crate::drill::{Broken, CannotInject, DrillOptions, OrCannot, Report};
use crate::scratch::Scratch;
use crate::stage::on_a_runtime;

const NAME: &str = "flip_store";

/// Random flips, unless asked otherwise.
const FLIPS: u64 = 200;

/// Every so many headers, unless asked otherwise: `--stride 1` for all of them.
const STRIDE: u64 = 2;

/// Reasons that are told of a class.
const REASONS_TOLD: usize = 12;

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(drill(options))
}

async fn drill(options: &DrillOptions) -> Result<Report, CannotInject> {
    let started = Instant::now();
    let scratch = Scratch::in_memory()?;
    let mut report = Report::new(NAME, options.seed);
    let stores: Arc<[AtRest]> = rest::make(options.seed, &scratch, &mut report).await?.into();
    let stride = usize::try_from(options.stride.unwrap_or(STRIDE)).unwrap_or(usize::MAX);
    let mut rng = Rng::new(options.seed);
    let mut plan = flips::headers(&stores, stride, &mut rng);
    report.count("flips_in_headers", plan.len());
    plan.extend(flips::at_random(&stores, options.cycles.unwrap_or(FLIPS), &mut rng));
    report.count("flips", plan.len());
    plan.extend([Damage::HangingManifest, Damage::UnreadableLog]);
    let tally = carry_out(plan, &stores, &scratch).await?;
    tally.tell(&mut report);
    report.elapsed_ms = started.elapsed().as_millis();
    scratch.keep_evidence(options, &mut report);
    Ok(report)
}

/// What became of every damaged store.
#[derive(Default)]
struct Tally {
    /// By what was damaged and what became of it.
    fates: BTreeMap<String, u64>,
    reasons: BTreeSet<String>,
    broken: Vec<(String, Violation)>,
    slowest_ms: u64,
}

/// Tries every damage, as many at a time as there are cores. The order of what is found follows from the plan alone.
async fn carry_out(
    plan: Vec<Damage>,
    stores: &Arc<[AtRest]>,
    scratch: &Scratch,
) -> Result<Tally, CannotInject> {
    let todo = Arc::new(Mutex::new(plan.into_iter().enumerate()));
    let mut at_work = JoinSet::new();
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    for worker in 0..workers {
        let bench = Bench::new(&scratch.subdirectory(&format!("bench-{worker}"))?)?;
        let (todo, stores) = (Arc::clone(&todo), Arc::clone(stores));
        at_work.spawn(async move {
            let mut done = Vec::new();
            loop {
                let next = todo.lock().await.next();
                let Some((n, damage)) = next else { return Ok::<_, CannotInject>(done) };
                let began = Instant::now();
                let fate = bench.fate(&damage, &stores).await?;
                let took_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                done.push((n, damage, fate, took_ms));
            }
        });
    }
    let mut all = Vec::new();
    while let Some(done) = at_work.join_next().await {
        all.extend(done.or_cannot("carry out the flips")??);
    }
    all.sort_by_key(|(n, ..)| *n);
    let mut tally = Tally::default();
    for (_, damage, fate, took_ms) in all {
        tally.add(&damage, fate, took_ms, stores);
    }
    Ok(tally)
}

impl Tally {
    fn add(&mut self, damage: &Damage, fate: Fate, took_ms: u64, stores: &[AtRest]) {
        self.slowest_ms = self.slowest_ms.max(took_ms);
        *self.fates.entry(format!("{} {}", damage.kind(), fate.name())).or_default() += 1;
        let place = damage.place(stores);
        let broken = match fate {
            Fate::Refused(reason) => {
                self.reasons.insert(without_numbers(&reason));
                None
            }
            Fate::Reported | Fate::Harmless | Fate::CutOff => None,
            Fate::Lost(what) => Some((Invariant::AckedIsKept, what)),
            Fate::Died(how) => Some((Invariant::NeverDiesOrHangs, how)),
            Fate::Hung => {
                Some((Invariant::NeverDiesOrHangs, "it neither came up nor ended".into()))
            }
        };
        self.broken
            .extend(broken.map(|(invariant, evidence)| (place, Violation { invariant, evidence })));
    }

    fn tell(self, report: &mut Report) {
        report.count("fates", serde_json::json!(self.fates));
        report.count("slowest_ms", self.slowest_ms);
        report.count("kinds_of_reasons", self.reasons.len());
        let told: Vec<String> = self.reasons.into_iter().take(REASONS_TOLD).collect();
        report.count("reasons", serde_json::json!(told));
        for (place, violation) in self.broken {
            if let Some(broken) = Broken::by(vec![violation]) {
                report.violated(&place, &broken);
            }
        }
    }
}

/// A reason as one of its kind.
fn without_numbers(reason: &str) -> String {
    let mut kind = String::new();
    for c in reason.chars() {
        match c {
            '0'..='9' if kind.ends_with('#') => {}
            '0'..='9' => kind.push('#'),
            other => kind.push(other),
        }
    }
    kind
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_are_of_one_kind() {
        assert_eq!(without_numbers("byte 1234 of 000012.log"), "byte # of #.log");
    }
}
