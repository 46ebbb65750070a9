//! The drills' command line.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ankusa_drills::bench::{BENCHES, BenchOptions, floor};
use ankusa_drills::drill::{CannotInject, DRILLS, DrillOptions, Verdict};
use ankusa_drills::{control, node};
use clap::{Parser, Subcommand};

/// The drill found a violation, or a bench missed a bar.
const VIOLATED: u8 = 1;
/// The drill could not do what it is about.
const CANNOT_INJECT: u8 = 2;

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
        /// Answer with one line of JSON.
        #[arg(long)]
        json: bool,
        /// Pass if, and only if, the drill finds an invariant violated: for builds with a rule broken on purpose.
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
        /// Where the stores are made, on the disk to be measured. Default: below the working directory.
        #[arg(long)]
        dir: Option<PathBuf>,
    },
    /// The program that calibrates the recorder.
    #[command(name = control::COMMAND, hide = true)]
    Control { file: PathBuf, mark: PathBuf },
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        // The node has a command line of its own.
        Some(node::COMMAND) => return ankusa_node::run(arguments),
        Some(floor::COMMAND) => return floor::run(&arguments.collect::<Vec<_>>()),
        Some(_) | None => {}
    }
    match Arguments::parse().command {
        Command::List => list(),
        Command::Run { name, seed, cycles, seconds, stride, json, expect_violation } => {
            let lasting = seconds.map(Duration::from_secs);
            let keeps_evidence = !expect_violation;
            let options = DrillOptions { seed, cycles, lasting, stride, keeps_evidence };
            run(&name, &options, json, expect_violation)
        }
        Command::Bench { name, report, rounds, seconds, connections, dir: directory } => {
            bench(&name, &BenchOptions { rounds, seconds, connections, directory }, report)
        }
        Command::Control { file, mark } => match control::run(&file, &mark) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => complain(&CannotInject(error.to_string())),
        },
    }
}

fn list() -> ExitCode {
    for drill in DRILLS {
        say(&format!("run {:<14} {}", drill.name, drill.what));
    }
    for bench in BENCHES {
        say(&format!("bench {:<12} {}", bench.name, bench.what));
    }
    ExitCode::SUCCESS
}

fn run(name: &str, options: &DrillOptions, json: bool, expect_violation: bool) -> ExitCode {
    let Some(drill) = DRILLS.into_iter().find(|drill| drill.name == name) else {
        return complain(&CannotInject(format!("there is no drill {name}: `list` names them")));
    };
    let report = match (drill.run)(options) {
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
    if as_wanted { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) }
}

fn bench(name: &str, options: &BenchOptions, report_only: bool) -> ExitCode {
    let Some(bench) = BENCHES.into_iter().find(|bench| bench.name == name) else {
        return complain(&CannotInject(format!("there is no bench {name}: `list` names them")));
    };
    match (bench.run)(options) {
        Ok(report) => {
            say(&report.to_string());
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
