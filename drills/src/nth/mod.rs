//! "Fail the Nth call, for every N until none fails": fsyncs, writes and reads of a node, from its first start on.
//!
//! Each trial starts a node under the recorder's faults, sends a small load, and fails one call: once, or that call and
//! every later one for a while. Whatever it hits, the node answers every client, takes hooks again by itself once the disk
//! works, delivers everything, and is judged. A node may refuse to boot on a disk that fails under its boot; it must boot
//! on the next attempt. After a failed fsync, images of a power cut are judged as well, on a disk that marked the pages
//! clean which it could not write: no later fsync brings them back.
//!
//! `--cycles N` is a sample of N trials, drawn from the seed; without it every N is tried.

mod store;
mod trial;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use ankusa_drills_replay::Rng;
use libc::{EIO, ENOSPC};

use self::store::Held;
use self::trial::{Ended, Trial};
use crate::control;
use crate::drill::{CannotInject, DrillOptions, Report};
use crate::journal::Tally;
use crate::recorded::count_images;
use crate::recorded::fault::{Calls, Fault};
use crate::recorded::images::Outcome;
use crate::scratch::Scratch;
use crate::stage::on_a_runtime;
use crate::timings::millis;

/// More calls than any trial makes: such a fault never comes, and what is left of it says how many there were.
const NEVER: u64 = 1 << 40;

/// Bytes of a write that land in a trial that cuts one short: within a record of the log.
const SHORT_BYTES: u64 = 5;

/// A drill that has found so many trials violated has found enough.
const VIOLATED_MOST: u64 = 5;

/// A drill of this kind.
#[derive(Clone, Copy, Debug)]
struct NthDrill {
    name: &'static str,
    calls: Calls,
    errno: i32,
    /// Some failing writes land in part.
    cuts_short: bool,
    /// The paths whose calls are counted, one after the other.
    filters: &'static [&'static str],
    /// Whether the trials start on a store with hooks in it. Else they start on an empty disk.
    on_a_store: bool,
    /// Whether images of a power cut are judged.
    cuts_power: bool,
}

/// EIO from the Nth fsync.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run_fsync_eio(options: &DrillOptions) -> Result<Report, CannotInject> {
    let drill = NthDrill {
        name: "fsync_eio_nth",
        calls: Calls::Syncs,
        errno: EIO,
        cuts_short: false,
        filters: &[""],
        on_a_store: false,
        cuts_power: true,
    };
    drill.run(options)
}

/// EIO from the Nth write, create, rename, link or removal.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run_write_eio(options: &DrillOptions) -> Result<Report, CannotInject> {
    let drill = NthDrill {
        name: "write_eio_nth",
        calls: Calls::Writes,
        errno: EIO,
        cuts_short: true,
        filters: &[""],
        on_a_store: false,
        cuts_power: false,
    };
    drill.run(options)
}

/// EIO from the Nth read, on a store with hooks in it.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run_read_eio(options: &DrillOptions) -> Result<Report, CannotInject> {
    let drill = NthDrill {
        name: "read_eio_nth",
        calls: Calls::Reads,
        errno: EIO,
        cuts_short: false,
        filters: &[""],
        on_a_store: true,
        cuts_power: false,
    };
    drill.run(options)
}

/// A full disk at the Nth write: of anything, of the manifest, of the options, and of what becomes `CURRENT`.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run_full(options: &DrillOptions) -> Result<Report, CannotInject> {
    let drill = NthDrill {
        name: "full_nth",
        calls: Calls::Writes,
        errno: ENOSPC,
        cuts_short: true,
        filters: &["", "MANIFEST-", "OPTIONS-", "CURRENT", ".dbtmp", ".log"],
        on_a_store: false,
        cuts_power: false,
    };
    drill.run(options)
}

impl NthDrill {
    fn run(&self, options: &DrillOptions) -> Result<Report, CannotInject> {
        let started = Instant::now();
        self.calibrate(options.seed)?;
        let mut report = Report::new(self.name, options.seed);
        let scratch = Scratch::in_memory()?;
        let all = on_a_runtime(self.try_all(options, &scratch, &mut report))?;
        if all.fired == 0 {
            return Err(CannotInject(format!("none of {} trials met its fault", all.trials)));
        }
        all.count(&mut report);
        report.elapsed_ms = started.elapsed().as_millis();
        scratch.keep_evidence(options, &mut report);
        Ok(report)
    }

    /// The control program meets every form of the fault, and loses nothing.
    fn calibrate(&self, seed: u64) -> Result<(), CannotInject> {
        // It reads once.
        let nth = if self.calls == Calls::Reads { 1 } else { 7 };
        for fault in self.forms(self.fault("", nth)) {
            control::calibrate_fault(seed, &fault)?;
        }
        Ok(())
    }

    async fn try_all(
        &self,
        options: &DrillOptions,
        scratch: &Scratch,
        report: &mut Report,
    ) -> Result<Tried, CannotInject> {
        let seed = options.seed;
        let mut rng = Rng::new(seed.rotate_left(13));
        let held = if self.on_a_store { Some(Held::make(seed, scratch).await?) } else { None };
        let trial = |fault| Trial {
            seed,
            fault,
            held: held.as_ref(),
            cuts_power: self.cuts_power,
            scratch,
        };
        let mut all = Tried::default();
        for (index, filter) in self.filters.iter().enumerate() {
            // Without a fault, to learn how many calls there are. Such a trial must pass as well.
            let calls = all.add(trial(self.fault(filter, NEVER)).run(report).await?);
            all.calls.insert(name_of(filter), NEVER - calls.left);
            let calls = NEVER - calls.left;
            if let Some(cycles) = options.cycles {
                for nth in sample(share(cycles, index, self.filters.len()), calls, &mut rng) {
                    all.add(trial(self.drawn(filter, nth, &mut rng)).run(report).await?);
                }
                continue;
            }
            // How many there are differs a little from run to run: on, until one does not come.
            for nth in 1.. {
                let mut fired = false;
                for fault in self.forms(self.fault(filter, nth)) {
                    fired |= all.add(trial(fault).run(report).await?).fired;
                }
                if nth > calls && !fired || all.violated >= VIOLATED_MOST {
                    break;
                }
            }
        }
        Ok(all)
    }

    fn fault(&self, filter: &'static str, nth: u64) -> Fault {
        let Self { calls, errno, .. } = *self;
        Fault { calls, nth, errno, sticky: false, short_bytes: 0, filter }
    }

    /// A fault in every form.
    fn forms(&self, fault: Fault) -> Vec<Fault> {
        let mut forms = vec![fault, Fault { sticky: true, ..fault }];
        if self.cuts_short {
            forms.push(Fault { short_bytes: SHORT_BYTES, ..fault });
        }
        forms
    }

    /// A fault in one of its forms.
    fn drawn(&self, filter: &'static str, nth: u64, rng: &mut Rng) -> Fault {
        let fault = self.fault(filter, nth);
        let forms = self.forms(fault);
        forms.get(rng.up_to(forms.len() - 1)).copied().unwrap_or(fault)
    }
}

fn name_of(filter: &'static str) -> &'static str {
    if filter.is_empty() { "any" } else { filter }
}

/// How many of `trials` fall to one of `all` filters.
fn share(trials: u64, index: usize, all: usize) -> u64 {
    let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    (trials + number(all - 1 - index)) / number(all)
}

/// `count` different numbers of `1..=calls`, spread over all of them.
fn sample(count: u64, calls: u64, rng: &mut Rng) -> Vec<u64> {
    let count = count.min(calls);
    let drawn = |part: u64| {
        let (from, to) = (calls * part / count, calls * (part + 1) / count);
        1 + from + rng.below(to - from)
    };
    (0..count).map(drawn).collect()
}

/// What a drill's trials came to.
#[derive(Default)]
struct Tried {
    trials: u64,
    fired: u64,
    violated: u64,
    boots_refused: u64,
    tally: Tally,
    /// From the heal of a fault that stayed until a hook was acked.
    slowest_again: Duration,
    /// The trial that took longest.
    slowest: (Duration, String),
    images: Outcome,
    /// How many calls there were to fail, by filter.
    calls: BTreeMap<&'static str, u64>,
}

impl Tried {
    fn add(&mut self, ended: Ended) -> Ended {
        self.trials += 1;
        self.fired += u64::from(ended.fired);
        self.violated += u64::from(ended.violated);
        self.boots_refused += u64::from(ended.boot_refused);
        self.tally.acked += ended.tally.acked;
        self.tally.refused += ended.tally.refused;
        self.tally.unknown += ended.tally.unknown;
        self.slowest_again = self.slowest_again.max(ended.again_after);
        if ended.took > self.slowest.0 {
            self.slowest = (ended.took, ended.place.clone());
        }
        self.images.add(ended.images.clone());
        ended
    }

    fn count(&self, report: &mut Report) {
        let tally = self.tally;
        (report.acked, report.refused, report.unknown) =
            (tally.acked, tally.refused, tally.unknown);
        report.count("trials", self.trials);
        report.count("trials_with_a_fault", self.fired);
        report.count("boots_refused", self.boots_refused);
        report.count("calls", serde_json::json!(self.calls));
        report.count("slowest_again_ms", millis(self.slowest_again));
        let (took, place) = &self.slowest;
        report.count("slowest_trial", format!("{} ms: {place}", millis(*took)));
        if !self.images.images.is_empty() {
            count_images(report, &self.images);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_over_all_calls_and_never_holds_one_twice() {
        let mut rng = Rng::new(3);
        for (count, calls) in [(4, 100), (7, 7), (9, 3), (1, 1), (5, 0)] {
            let drawn = sample(count, calls, &mut rng);
            assert!(drawn.is_sorted() && drawn.iter().all(|nth| (1..=calls).contains(nth)));
            let different: std::collections::BTreeSet<_> = drawn.iter().collect();
            assert_eq!(different.len(), usize::try_from(count.min(calls)).unwrap());
        }
        let halves: Vec<bool> = sample(2, 100, &mut rng).iter().map(|nth| *nth <= 50).collect();
        assert_eq!(halves, [true, false]);
    }

    #[test]
    fn trials_are_shared_out_among_the_filters() {
        assert_eq!([0, 1, 2].map(|index| share(7, index, 3)), [3, 2, 2]);
        assert_eq!([0, 1, 2].map(|index| share(1, index, 3)), [1, 0, 0]);
    }
}
