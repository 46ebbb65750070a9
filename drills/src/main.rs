//! The drills' command line.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use ankusa_drills::bench::{BENCHES, BenchOptions, floor, queue};
use ankusa_drills::ci::{self, Overall};
use ankusa_drills::drill::{CannotInject, Drill, DrillOptions, Form, Verdict};
use ankusa_drills::table::DRILLS;
use ankusa_drills::{canary, control, forgetful, node};
use clap::{Parser, Subcommand};

/// The drill found a violation, or a bench missed a bar.
const VIOLATED: u8 = 1;
/// The drill could not do what it is about.
const CANNOT_INJECT: u8 = 2;

/// How often a drill that is expected to find something may run before it has failed to.
const CANARY_RUNS_MOST: u64 = 10;

/// Crash drills and benches of an Ankusa node. Exit status: 0 pass, 1 violated, 2 could not inject.
#[derive(Parser)]
#[command(name = "ankusa-drills", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the drills and benches.
    List,
    /// Run every drill in its short form, at most ten minutes in all, and print one line of JSON. Exit status 2: something
    /// that this machine can do was not done.
    Ci {
        /// What everything random follows from. Default: the day, as in 20260131.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// List the builds to be caught, a line each: the feature, the drill, the arguments to run it with.
    Canaries,
    /// Run a drill.
    Run {
        name: String,
        /// What everything random follows from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// How often to break something.
        #[arg(long, conflicts_with = "seconds")]
        cycles: Option<u64>,
        /// How long to go on breaking things.
        #[arg(long)]
        seconds: Option<u64>,
        /// Look at every Nth cut only, in drills that look at cuts.
        #[arg(long)]
        stride: Option<u64>,
        /// Rows of a backlog, in drills that make one.
        #[arg(long)]
        rows: Option<u64>,
        /// Answer with one line of JSON.
        #[arg(long)]
        json: bool,
        /// Pass if, and only if, the drill finds an invariant violated: for builds with a rule broken on purpose. Runs
        /// again with the next seeds, up to ten times, until it does.
        #[arg(long)]
        expect_violation: bool,
    },
    /// Run a bench.
    Bench {
        name: String,
        /// Exit 0 whether or not every bar was passed.
        #[arg(long)]
        report: bool,
        /// How often the floors and the node take turns.
        #[arg(long)]
        rounds: Option<usize>,
        /// Seconds of each load.
        #[arg(long)]
        seconds: Option<u64>,
        /// Connections of the load.
        #[arg(long)]
        connections: Option<usize>,
        /// Rows of a store that is called large.
        #[arg(long)]
        rows: Option<u64>,
        /// Dedupe keys a store is filled with.
        #[arg(long)]
        keys: Option<u64>,
        /// Answer with the line of JSON alone.
        #[arg(long)]
        json: bool,
        /// Where the stores are made, on the disk to be measured. Default: below the working directory.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// The program that calibrates the recorder.
    #[command(name = control::COMMAND, hide = true)]
    Control { file: PathBuf, mark: PathBuf },
    /// The file system that forgets.
    #[command(name = forgetful::COMMAND, hide = true)]
    Forgetful { at: PathBuf },
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        // The node has a command line of its own.
        Some(node::COMMAND) => return ankusa_node::run(arguments),
        Some(queue::part::COMMAND) => return queue::part::run(&arguments.collect::<Vec<_>>()),
        Some(floor::COMMAND) => return floor::run(&arguments.collect::<Vec<_>>()),
        Some(_) | None => {}
    }
    match Arguments::parse().command {
        Command::List => list(),
        Command::Ci { seed } => run_ci(seed.unwrap_or_else(seed_of_the_day)),
        Command::Canaries => canaries(),
        Command::Run { name, seed, cycles, seconds, stride, rows, json, expect_violation } => {
            let keeps_evidence = !expect_violation;
            let form = Form { cycles, seconds, stride, rows };
            let options = DrillOptions { seed, keeps_evidence, ..form.options() };
            run(&name, &options, json, expect_violation)
        }
        Command::Bench { name, report, rounds, seconds, connections, rows, keys, json, dir } => {
            let directory = dir;
            let options = BenchOptions { rounds, seconds, connections, rows, keys, directory };
            bench(&name, &options, report, json)
        }
        Command::Forgetful { at } => match forgetful::run(&at) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&CannotInject(error.to_string())),
        },
        Command::Control { file, mark } => match control::run(&file, &mark) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&CannotInject(error.to_string())),
        },
    }
}

fn list() -> ExitCode {
    if let Some(refusal) = canary_refusal() {
        return complain(&refusal);
    }
    for drill in DRILLS {
        say(&format!("run {}: {}", drill.name, drill.what));
        say(&format!(
            "    needs {}; --cycles counts {}; {}",
            drill.needs.name(),
            drill.cycles_are,
            ci_form(drill)
        ));
        if !drill.canaries.is_empty() {
            say(&format!("    must catch {}", drill.canaries.join(", ")));
        }
    }
    for bench in BENCHES {
        say(&format!("bench {}: {}", bench.name, bench.what));
    }
    ExitCode::SUCCESS
}

fn ci_form(drill: &Drill) -> String {
    match drill.ci {
        None => "not in ci".to_owned(),
        Some(ci) if ci.form == Form::DEFAULT => format!("in ci as it is, {} s", ci.budget_s),
        Some(ci) => format!("in ci with {}, {} s", ci.form, ci.budget_s),
    }
}

fn canaries() -> ExitCode {
    let mut lines: Vec<String> = DRILLS
        .iter()
        // What this machine cannot run it cannot be caught with here.
        .filter(|drill| drill.needs.missing().is_none())
        .flat_map(|drill| drill.canaries.iter().map(move |canary| (canary, drill)))
        .map(|(canary, drill)| format!("{canary} {} {}", drill.name, drill.canary_form))
        .collect();
    // One build after the other, whichever drills must catch it.
    lines.sort();
    lines.iter().for_each(|line| say(line.trim_end()));
    ExitCode::SUCCESS
}

/// A build with a rule broken on purpose proves nothing about the others, and must not be taken for one of them.
fn canary_refusal() -> Option<CannotInject> {
    let carried = canary::carried();
    (!carried.is_empty()).then(|| {
        CannotInject(format!(
            "this build carries {}: it breaks a rule on purpose; build it without features",
            carried.join(", ")
        ))
    })
}

fn run_ci(seed: u64) -> ExitCode {
    tell_seed(seed);
    if let Some(refusal) = canary_refusal() {
        return complain(&refusal);
    }
    let report = ci::run(seed);
    say(&serde_json::to_string(&report).unwrap_or_default());
    match report.verdict {
        Overall::Pass => ExitCode::SUCCESS,
        Overall::Violated => ExitCode::from(VIOLATED),
        Overall::Incomplete => ExitCode::from(CANNOT_INJECT),
    }
}

/// Today's date in UTC as a number, as `date -u +%Y%m%d` has it.
fn seed_of_the_day() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    date_number(since.as_secs() / 86_400)
}

/// The civil date of a day since 1970, as a number. Years begin in March here, so that leap days come last.
fn date_number(day: u64) -> u64 {
    let day = day + 719_468;
    let (era, day) = (day / 146_097, day % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = if month < 10 { (year, month + 3) } else { (year + 1, month - 9) };
    (era * 400 + year) * 10_000 + month * 100 + day
}

/// Before anything else, so that a run that never ends can be repeated too.
fn tell_seed(seed: u64) {
    let _ = writeln!(io::stderr().lock(), "seed {seed}");
}

fn run(name: &str, options: &DrillOptions, json: bool, expect_violation: bool) -> ExitCode {
    tell_seed(options.seed);
    let Some(drill) = DRILLS.iter().find(|drill| drill.name == name) else {
        return complain(&CannotInject(format!("there is no drill {name}: `list` names them")));
    };
    let carried = canary::carried();
    if !carried.is_empty() {
        let _ = writeln!(io::stderr().lock(), "this build carries {}", carried.join(", "));
    }
    if let Some(reason) = drill.needs.missing() {
        return complain(&CannotInject(reason));
    }
    for nth in 0..if expect_violation { CANARY_RUNS_MOST } else { 1 } {
        let options = DrillOptions { seed: options.seed.wrapping_add(nth), ..options.clone() };
        let report = match (drill.run)(&options) {
            Ok(report) => report,
            Err(error) => return complain(&error),
        };
        if json {
            say(&serde_json::to_string(&report).unwrap_or_default());
        } else {
            say(&report.to_string());
        }
        // A build with a rule broken on purpose is caught when the judge catches it, not when it fails in some other way.
        let as_wanted = if expect_violation {
            !report.invariants_violated.is_empty()
        } else {
            report.verdict == Verdict::Pass
        };
        if as_wanted {
            return ExitCode::SUCCESS;
        }
    }
    ExitCode::from(VIOLATED)
}

fn bench(name: &str, options: &BenchOptions, report_only: bool, json: bool) -> ExitCode {
    let Some(bench) = BENCHES.into_iter().find(|bench| bench.name == name) else {
        return complain(&CannotInject(format!("there is no bench {name}: `list` names them")));
    };
    match (bench.run)(options) {
        Ok(report) => {
            say(&if json { report.json() } else { report.to_string() });
            if report.passes() || report_only {
                ExitCode::SUCCESS
            } else {
                ExitCode::from(VIOLATED)
            }
        }
        Err(error) => complain(&error),
    }
}

/// A line on standard output. Whoever closed it does not want to hear more.
fn say(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

fn complain(error: &CannotInject) -> ExitCode {
    let _ = writeln!(io::stderr().lock(), "ankusa-drills: {error}");
    ExitCode::from(CANNOT_INJECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_of_a_day_is_its_date() {
        let dates = [(0, 19_700_101), (59, 19_700_301), (11_016, 20_000_229), (11_017, 20_000_301)];
        for (day, number) in dates {
            assert_eq!(date_number(day), number, "day {day}");
        }
        assert_eq!(date_number(20_484), 20_260_131);
    }
}
