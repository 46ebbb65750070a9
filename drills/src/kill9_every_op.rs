//! A SIGKILL at every operation on the disk: the page cache outlives the process, so everything it wrote by then is there.
//!
//! Random kills (`kill9`) almost never fall between two writes that belong together, or between a delete and the send it
//! should have followed. Here every such moment is looked at. How it is recorded and judged: [`crate::recorded`].

use ankusa_drills_replay::Policy;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::recorded::ImageDrill;

/// The drill.
const DRILL: ImageDrill =
    ImageDrill { name: "kill9_every_op", policies: &[Policy::KeepAll], draws: 1 };

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    DRILL.run(options)
}
