//! Rounds as text, and what is held against the bars.

use super::round::{Peak, Round, Served};
use crate::bench::histogram::Histogram;
use crate::bench::{Bar, Side, median};

/// The rounds of one run.
pub(super) struct Rounds<'a>(pub(super) &'a [Round]);

impl Round {
    /// CPU of the node for a hook, in the floors' own.
    fn cpu_ratio(&self) -> f64 {
        self.node.peak.cpu_us / (self.http.peak.cpu_us + self.store.cpu_us_a_hook())
    }

    fn rate_ratio(&self) -> f64 {
        self.node.peak.per_second / self.end_to_end.peak.per_second
    }

    fn low_ratio(&self) -> f64 {
        self.node.low.percentile_ms(50) / self.fsync.percentile_ms(50)
    }

    fn half_ratio(&self) -> f64 {
        self.node.half.percentile_ms(99) / self.fsync.percentile_ms(99)
    }

    /// The round as lines, its number counted from one.
    pub(super) fn lines(&self, number: usize) -> Vec<String> {
        let (store, fsync) = (self.store, &self.fsync);
        let mut lines = vec![
            format!("round {number}"),
            format!("  fsync floor       {} ({} of them)", times(fsync), fsync.count()),
            format!(
                "  store floor       {:6.2} us a hook {:8.0}/s",
                store.cpu_us_a_hook(),
                store.per_second()
            ),
        ];
        lines.extend(self.http.lines("HTTP floor"));
        lines.extend(self.end_to_end.lines("end-to-end floor"));
        lines.extend(self.node.lines("node"));
        lines.push(format!(
            "    written         {:.0} bytes and {:.5} fsyncs a hook",
            self.bytes_a_hook, self.fsyncs_a_hook
        ));
        lines.push(format!(
            "  ratios            CPU {:.2}, rate {:.2}, 1 connection {:.2}, half the rate {:.2}",
            self.cpu_ratio(),
            self.rate_ratio(),
            self.low_ratio(),
            self.half_ratio()
        ));
        lines
    }
}

impl Served {
    fn lines(&self, name: &str) -> [String; 3] {
        [
            format!("  {name:<18}{}", self.peak),
            format!("    1 connection    {}", times(&self.low)),
            format!("    half the rate   {}", times(&self.half)),
        ]
    }
}

fn times(times: &Histogram) -> String {
    format!("p50 {:.3} p99 {:.3} ms", times.percentile_ms(50), times.percentile_ms(99))
}

impl std::fmt::Display for Peak {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { per_second, cpu_us, p50_ms, p99_ms, refused } = self;
        write!(
            out,
            "{cpu_us:6.2} us a hook {per_second:8.0}/s  p50 {p50_ms:.3} p99 {p99_ms:.3} ms"
        )?;
        if *refused > 0 {
            write!(out, "  {refused} REFUSED")?;
        }
        Ok(())
    }
}

impl Rounds<'_> {
    fn median(&self, of: impl Fn(&Round) -> f64) -> f64 {
        median(self.0.iter().map(of).collect())
    }

    /// Every time of the run, whatever its round.
    fn all(&self, of: impl Fn(&Round) -> &Histogram) -> Histogram {
        let mut all = Histogram::default();
        self.0.iter().for_each(|round| all.add(of(round)));
        all
    }

    /// What the whole run came to, before the bars.
    pub(super) fn lines(&self) -> Vec<String> {
        let fsync = self.all(|round| &round.fsync);
        let http = self.median(|round| round.http.peak.cpu_us);
        let half = |of: fn(&Round) -> &Histogram| self.all(of).percentile_ms(99);
        let low = |of: fn(&Round) -> &Histogram| self.median(|round| of(round).percentile_ms(50));
        let store = self.median(|round| round.store.cpu_us_a_hook());
        vec![
            format!("medians of {} rounds", self.0.len()),
            format!(
                "  fsync of the run p50 {:.3} p99 {:.3} ms; half the rate p99 ms: HTTP floor {:.3}, end-to-end floor \
                 {:.3}, node {:.3}",
                fsync.percentile_ms(50),
                fsync.percentile_ms(99),
                half(|round| &round.http.half),
                half(|round| &round.end_to_end.half),
                half(|round| &round.node.half)
            ),
            format!(
                "  CPU us a hook: HTTP floor {http:.2} + store floor {store:.2} = {:.2}; end-to-end floor {:.2}; node \
                 {:.2}",
                http + store,
                self.median(|round| round.end_to_end.peak.cpu_us),
                self.median(|round| round.node.peak.cpu_us)
            ),
            format!(
                "  acked hooks/s: end-to-end floor {:.0}, node {:.0}",
                self.median(|round| round.end_to_end.peak.per_second),
                self.median(|round| round.node.peak.per_second)
            ),
            format!(
                "  1 connection p50 ms: HTTP floor {:.3}, end-to-end floor {:.3}, node {:.3}",
                low(|round| &round.http.low),
                low(|round| &round.end_to_end.low),
                low(|round| &round.node.low)
            ),
        ]
    }

    /// The bars: medians of the rounds' own ratios, whose two sides were measured within a minute of each other; for the
    /// tail at half the rate all times of the run, because one round's 99th percentile is a handful of answers.
    pub(super) fn bars(&self) -> Vec<Bar> {
        let tail = self.all(|round| &round.node.half).percentile_ms(99)
            / self.all(|round| &round.fsync).percentile_ms(99);
        vec![
            Bar::new(
                "cpu_vs_http_and_store_floor",
                self.median(Round::cpu_ratio),
                Side::AtMost,
                1.3,
            ),
            Bar::new(
                "acks_vs_end_to_end_floor",
                self.median(Round::rate_ratio),
                Side::AtLeast,
                0.8,
            ),
            Bar::new("low_load_p50_vs_fsync_p50", self.median(Round::low_ratio), Side::AtMost, 1.5),
            Bar::new("half_rate_p99_vs_fsync_p99", tail, Side::AtMost, 3.0),
            Bar::new("fsyncs_a_hook", self.median(|round| round.fsyncs_a_hook), Side::AtMost, 0.02),
        ]
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::bench::floor::Spent;

    fn millis(millis: u64) -> Histogram {
        let mut times = Histogram::default();
        times.record(Duration::from_millis(millis));
        times
    }

    fn round(node_cpu_us: f64) -> Round {
        let served = |cpu_us, per_second, half| Served {
            peak: Peak { per_second, cpu_us, p50_ms: 1.0, p99_ms: 2.0, refused: 0 },
            low: millis(1),
            half: millis(half),
        };
        Round {
            fsync: millis(1),
            http: served(10.0, 100_000.0, 1),
            store: Spent { hooks: 1_000, lasted_us: 10_000, cpu_us: 10_000 },
            end_to_end: served(20.0, 40_000.0, 1),
            node: served(node_cpu_us, 30_000.0, 4),
            fsyncs_a_hook: 0.01,
            bytes_a_hook: 1_700.0,
        }
    }

    #[test]
    fn a_run_is_held_against_every_bar() {
        let rounds = [round(22.0), round(100.0), round(24.0)];
        let bars = Rounds(&rounds).bars();
        let told: Vec<_> = bars
            .iter()
            .map(|bar| (bar.name.as_str(), (bar.value * 100.0).round() / 100.0, bar.bar, bar.pass))
            .collect();
        assert_eq!(
            told,
            [
                ("cpu_vs_http_and_store_floor", 1.2, 1.3, true),
                ("acks_vs_end_to_end_floor", 0.75, 0.8, false),
                ("low_load_p50_vs_fsync_p50", 1.0, 1.5, true),
                ("half_rate_p99_vs_fsync_p99", 4.0, 3.0, false),
                ("fsyncs_a_hook", 0.01, 0.02, true),
            ]
        );
    }
}
