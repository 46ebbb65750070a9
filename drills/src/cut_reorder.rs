//! A power cut at every operation, with the page cache written back in any order: of each file, any of the 4 KiB pages
//! that no fsync covered may have reached the disk, whatever was written before or after it.
//!
//! So the log can be damaged in its middle with good records behind the damage, which looks like rot and is none: nothing
//! behind it was synced. Such an image is judged up to the damage, where everything acked must be, and some of them are
//! given to a real node, which has to come to the same verdict and boot by itself.
//!
//! How it is recorded and judged: [`crate::recorded`].

use ankusa_drills_replay::Policy;

use crate::drill::{CannotInject, DrillOptions, Report};
use crate::recorded::ImageDrill;

/// The drill.
const DRILL: ImageDrill =
    ImageDrill { name: "cut_reorder", policies: &[Policy::PageReorder], draws: 3 };

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    DRILL.run(options)
}
