//! The most memory this process had at a time.

use std::fs;

/// Forgets the most so far. Answers what there is now, in KiB.
pub(super) fn reset() -> Option<f64> {
    // 5: the peak is what there is now.
    fs::write("/proc/self/clear_refs", "5").ok()?;
    field("VmRSS:")
}

/// The most since then, in KiB.
pub(super) fn since() -> Option<f64> {
    field("VmHWM:")
}

fn field(name: &str) -> Option<f64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
