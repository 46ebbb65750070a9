//! The whole tree under a plan drawn from a seed: hooks come in while the disk fails, children die and power is cut, and
//! every promise is judged on the way.
//!
//! `ANKUSA_SEED=7` lives through that one seed and prints its journal; `ANKUSA_SEEDS=2000` lives through so many.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

mod common;
mod simulation;

use simulation::{Plan, run, shrink};

const SEEDS: u64 = 50;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|value| value.parse().unwrap())
}

fn live_through(seed: u64, aloud: bool) -> simulation::Story {
    println!("seed {seed}");
    let plan = Plan::draw(seed);
    let story = run(&plan);
    if aloud {
        println!("{}", story.journal.join("\n"));
    }
    if !story.violations.is_empty() {
        let smallest = shrink(plan);
        let again = run(&smallest);
        println!("{:#?}\n{}", smallest.settings, again.journal.join("\n"));
        panic!(
            "seed {seed}: {:#?}\nthe least that shows it: {:#?}",
            story.violations, again.violations
        );
    }
    story
}

#[test]
fn every_promise_is_kept_whatever_happens() {
    if let Some(seed) = number("ANKUSA_SEED") {
        live_through(seed, true);
        return;
    }
    let (mut committed, mut delivered, mut power_cuts) = (0, 0, 0);
    for seed in 0..number("ANKUSA_SEEDS").unwrap_or(SEEDS) {
        let story = live_through(seed, false);
        committed += story.committed;
        delivered += story.delivered;
        power_cuts += story.power_cuts;
    }
    println!("{committed} hooks acked, {delivered} deliveries taken, {power_cuts} power cuts");
    assert!(committed > 0 && delivered > 0 && power_cuts > 0, "runs that do nothing prove nothing");
}
