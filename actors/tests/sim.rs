//! The whole tree under a plan drawn from a seed: hooks come in while the disk fails, children die and power is cut, and
//! every promise is judged on the way.
//!
//! * `ANKUSA_SEED=7` lives through that one seed and prints its journal;
//! * `ANKUSA_SEEDS=1000..3000` lives through so many, and goes on after one that fails;
//! * `ANKUSA_PLAN=path/to/a.plan` lives through that plan and prints its journal.
//!
//! What goes wrong is cut down to the least that shows it. That plan belongs into `tests/regressions`, where every plan is
//! lived through at every run.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;
mod simulation;

use std::ops::Range;
use std::path::{Path, PathBuf};

use simulation::plan::Step;
use simulation::{Plan, Story, run, shrink};

const SEEDS: Range<u64> = 0..50;

/// Plans that are cut down when many seeds fail: each costs hundreds of runs.
const MAX_SHRUNK: usize = 3;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn seeds() -> Range<u64> {
    let Some(range) = variable("ANKUSA_SEEDS") else { return SEEDS };
    let (first, end) = range.split_once("..").unwrap_or(("0", &range));
    first.parse().unwrap()..end.parse().unwrap()
}

fn fails(plan: &Plan) -> bool {
    !run(plan).violations.is_empty()
}

fn read(path: &Path) -> Plan {
    let text = std::fs::read_to_string(path).unwrap();
    text.parse().unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Tells a run in full.
fn aloud(plan: &Plan) {
    let story = run(plan);
    println!("{plan}\n{}", story.journal.join("\n"));
    assert!(story.violations.is_empty(), "{:#?}", story.violations);
}

/// What there is to say of a plan that failed.
fn report(plan: &Plan, story: &Story) -> String {
    let smallest = shrink(plan.clone(), fails);
    let again = run(&smallest);
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.plan", plan.seed));
    std::fs::write(&path, smallest.to_string()).unwrap();
    format!(
        "seed {}: {:#?}\nthe least that shows it:\n{smallest}\n{}\n{:#?}\n\
         ANKUSA_PLAN={} cargo test -p ankusa-actors --test sim\n\
         ANKUSA_SEED={} cargo test -p ankusa-actors --test sim",
        plan.seed,
        story.violations,
        again.journal.join("\n"),
        again.violations,
        path.display(),
        plan.seed,
    )
}

#[test]
fn every_promise_is_kept_whatever_happens() {
    if let Some(path) = variable("ANKUSA_PLAN") {
        return aloud(&read(Path::new(&path)));
    }
    if let Some(seed) = variable("ANKUSA_SEED") {
        println!("seed {seed}");
        return aloud(&Plan::draw(seed.parse().unwrap()));
    }
    let (mut committed, mut delivered, mut held, mut power_cuts) = (0, 0, 0, 0);
    let mut failed = Vec::new();
    for seed in seeds() {
        println!("seed {seed}");
        let plan = Plan::draw(seed);
        let story = run(&plan);
        committed += story.committed;
        delivered += story.delivered;
        held += story.held;
        power_cuts += story.power_cuts;
        if !story.violations.is_empty() {
            failed.push(seed);
            if failed.len() <= MAX_SHRUNK {
                println!("{}", report(&plan, &story));
            }
        }
    }
    println!(
        "{committed} hooks acked, {held} held, {delivered} deliveries taken, {power_cuts} power cuts"
    );
    assert!(failed.is_empty(), "the seeds that failed: {failed:?}");
    let all = [committed, delivered, held, power_cuts];
    assert!(all.iter().all(|count| *count > 0), "runs that do nothing prove nothing");
}

#[test]
fn what_once_went_wrong_does_not_again() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regressions");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    for path in paths {
        println!("{}", path.display());
        let plan = read(&path);
        let story = run(&plan);
        assert!(story.violations.is_empty(), "{}", report(&plan, &story));
    }
}

#[test]
fn a_plan_is_cut_down_to_what_it_takes() {
    let mut plan = Plan::draw(11);
    assert!(plan.steps.len() > 20);
    let dies = Step::Crash { child: "syncer".to_owned() };
    plan.steps.insert(7, dies.clone());
    // Stands for something that goes wrong when the syncer dies of a node with small groups.
    plan.settings.batcher.group_commit_max_records = 2;
    let smallest = shrink(plan, |plan| {
        plan.settings.batcher.group_commit_max_records < 16 && plan.steps.contains(&dies)
    });
    let expected = "seed 11\nsettings {\"batcher\":{\"group_commit_max_records\":2}}\n\
                    {\"crash\":{\"child\":\"syncer\"}}\n";
    assert_eq!(smallest.to_string(), expected);
}
