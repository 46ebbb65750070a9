//! A power cut at every operation on the disk: what no fsync covered is gone, kept, torn at a sector, or zeros.
//!
//! How it is recorded and judged: [`crate::recorded`]. Pages written back out of order are `cut_reorder`'s.

use ankusa_drills_replay::Policy;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::recorded::ImageDrill;

/// The drill.
const DRILL: ImageDrill = ImageDrill {
    name: "cut_every_op",
    policies: &[Policy::DropUnsynced, Policy::KeepAll, Policy::Torn512, Policy::ZeroTail],
    draws: 1,
};

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    DRILL.run(options)
}
