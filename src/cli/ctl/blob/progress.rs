//! How far a transfer is: a bar for whoever watches a terminal, nothing for a script.

use std::io::{IsTerminal, stderr};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

const KNOWN: &str = "{msg} [{bar:30}] {bytes}/{total_bytes} {bytes_per_sec} {eta}";
const UNKNOWN: &str = "{msg} {spinner} {bytes} {bytes_per_sec}";

/// Draws on standard error, and is gone when it is dropped.
#[derive(Clone)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// Of so many bytes, if it is known how many.
    pub(super) fn of(what: &'static str, bytes: Option<u64>) -> Self {
        Self::on(stderr().is_terminal(), what, bytes)
    }

    fn on(is_terminal: bool, what: &'static str, bytes: Option<u64>) -> Self {
        let target =
            if is_terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(bytes, target).with_message(what);
        let template = if bytes.is_some() { KNOWN } else { UNKNOWN };
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self(bar)
    }

    pub(super) fn add(&self, bytes: usize) {
        self.0.inc(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Everything is sent, and it goes on elsewhere.
    pub(super) fn say(&self, what: &'static str) {
        self.0.set_message(what);
    }

    /// Takes it off the screen.
    pub(super) fn done(&self) {
        self.0.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn a_bar_counts_and_is_drawn_for_a_terminal_alone() {
        for template in [KNOWN, UNKNOWN] {
            assert!(ProgressStyle::with_template(template).is_ok(), "{template}");
        }
        let Progress(bar) = Progress::on(false, "reading", Some(10));
        let progress = Progress(bar);
        progress.add(4);
        assert_eq!((progress.0.position(), progress.0.length()), (4, Some(10)));
        assert!(progress.0.is_hidden());
        progress.done();
        assert!(progress.0.is_finished());
    }
}
