//! What was measured, as text and against the bars.

use std::fmt;

use super::delivery::KeptUp;
use crate::bench::{Bar, Side, median};

/// What the memory of a node may be with a large queue: its block cache and its memtables, both at their defaults, and
/// this much for everything else.
const REST_MIB: f64 = 256.0;
const CACHE_MIB: f64 = 64.0;
const MEMTABLES_MIB: f64 = 256.0;

/// Of one load.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) cpu_us: f64,
    pub(super) per_second: f64,
    pub(super) rss_bytes: u64,
}

/// The same load with and without what makes it dear, in turns.
#[derive(Clone, Debug)]
pub(super) struct Times<T = Cost> {
    pub(super) without: Vec<T>,
    pub(super) with: Vec<T>,
}

impl<T> Default for Times<T> {
    fn default() -> Self {
        Self { without: Vec::new(), with: Vec::new() }
    }
}

impl<T> Times<T> {
    /// The median of the rounds' own ratios.
    fn ratio(&self, of: impl Fn(&T) -> f64) -> f64 {
        let rounds = self.with.iter().zip(&self.without);
        median(rounds.map(|(with, without)| of(with) / of(without)).collect())
    }
}

impl Times {
    fn cpu_ratio(&self) -> f64 {
        self.ratio(|cost| cost.cpu_us)
    }

    fn rss_mib(&self) -> f64 {
        let most = self.with.iter().map(|cost| cost.rss_bytes).max().unwrap_or(u64::MAX);
        (most >> 10) as f64 / 1_024.0
    }
}

impl fmt::Display for Times {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cpu = |costs: &[Cost]| {
            let each = costs.iter().map(|cost| format!("{:.1}", cost.cpu_us));
            each.collect::<Vec<_>>().join(" ")
        };
        let rate = |costs: &[Cost]| median(costs.iter().map(|cost| cost.per_second).collect());
        write!(
            out,
            "CPU us a hook {} against {}, ratio {:.2}; {:.0}/s against {:.0}/s; memory at most {:.0} MiB",
            cpu(&self.with),
            cpu(&self.without),
            self.cpu_ratio(),
            rate(&self.with),
            rate(&self.without),
            self.rss_mib()
        )
    }
}

/// Everything that is held against a bar.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) interleaved: Times,
    /// By past, and whether the hooks were delivered too.
    pub(super) costs: Vec<(&'static str, bool, Times)>,
    /// Of the scans from a start to the first delivery together, and of one later on, in microseconds.
    pub(super) scans: Times<(f64, f64)>,
    pub(super) dead_page_ms: f64,
    pub(super) dead_filtered_ms: f64,
    pub(super) kept_up: Option<KeptUp>,
}

impl Measured {
    pub(super) fn bars(&self) -> Vec<Bar> {
        let at_most = |name: &str, value, bar| Bar::new(name, value, Side::AtMost, bar);
        let mut bars =
            vec![at_most("ack_cpu_1000_tenants_vs_one", self.interleaved.cpu_ratio(), 1.5)];
        for (past, delivered, times) in &self.costs {
            let what = if *delivered { "delivered" } else { "ack" };
            bars.push(at_most(&format!("{what}_cpu_{past}_vs_empty"), times.cpu_ratio(), 1.2));
        }
        let pending = self.costs.iter().filter(|(past, ..)| *past == "pending");
        let rss_mib = pending.map(|(.., times)| times.rss_mib()).fold(f64::NAN, f64::max);
        bars.push(at_most("rss_mib_pending", rss_mib, CACHE_MIB + MEMTABLES_MIB + REST_MIB));
        // Times on a clock: whatever else the machine does only adds to them.
        let least = |times: &[(f64, f64)], of: fn(&(f64, f64)) -> f64| {
            times.iter().map(of).fold(f64::NAN, f64::min)
        };
        let ratio = |of| least(&self.scans.with, of) / least(&self.scans.without, of);
        let (first, warm) = (ratio(|(first, _)| *first), ratio(|(_, warm)| *warm));
        bars.push(at_most("claim_scan_passed_warm_vs_empty", warm, 2.0));
        bars.push(at_most("claim_scans_passed_after_restart_vs_empty", first, 2.0));
        bars.push(at_most("dead_letters_first_page_ms", self.dead_page_ms, 50.0));
        bars.push(at_most("dead_letters_filtered_page_ms", self.dead_filtered_ms, 200.0));
        bars.extend(self.kept_up.iter().flat_map(KeptUp::bars));
        bars
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(ratio: f64, rss_mib: u64) -> Times {
        let cost = |cpu_us| Cost { cpu_us, per_second: 1.0, rss_bytes: rss_mib << 20 };
        // One round is spoilt.
        Times {
            without: vec![cost(10.0), cost(10.0), cost(1.0)],
            with: vec![cost(10.0 * ratio), cost(10.0 * ratio), cost(100.0)],
        }
    }

    #[test]
    fn a_run_is_held_against_every_bar() {
        let measured = Measured {
            interleaved: times(1.5, 100),
            costs: vec![
                ("pending", false, times(1.1, 576)),
                ("pending", true, times(1.3, 577)),
                ("dead", false, times(1.2, 900)),
            ],
            scans: Times {
                without: vec![(100.0, 10.0), (900.0, 30.0)],
                with: vec![(4_000.0, 70.0), (300.0, 20.0)],
            },
            dead_page_ms: 7.5,
            dead_filtered_ms: 201.0,
            kept_up: None,
        };
        let told: Vec<_> = measured
            .bars()
            .iter()
            .map(|bar| (bar.name.clone(), bar.value, bar.bar, bar.pass))
            .collect();
        let bar = |name: &str, value, bar, pass| (name.to_owned(), value, bar, pass);
        assert_eq!(
            told,
            [
                bar("ack_cpu_1000_tenants_vs_one", 1.5, 1.5, true),
                bar("ack_cpu_pending_vs_empty", 1.1, 1.2, true),
                bar("delivered_cpu_pending_vs_empty", 1.3, 1.2, false),
                bar("ack_cpu_dead_vs_empty", 1.2, 1.2, true),
                bar("rss_mib_pending", 577.0, 576.0, false),
                bar("claim_scan_passed_warm_vs_empty", 2.0, 2.0, true),
                bar("claim_scans_passed_after_restart_vs_empty", 3.0, 2.0, false),
                bar("dead_letters_first_page_ms", 7.5, 50.0, true),
                bar("dead_letters_filtered_page_ms", 201.0, 200.0, false),
            ]
        );
    }
}
