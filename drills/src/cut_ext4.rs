//! Power cuts of a running node on a real ext4: its disk is cloned at an instant, and the node is started on the clone,
//! whose journal the kernel replays.
//!
//! What was promised before the clone was begun must be on it. Whatever was answered later counts as not answered: to that
//! disk it has not happened. The instrument is tried first, on a program that is known to be right.

use ankusa_drills_replay::Rng;
use tokio::time::sleep;

use crate::control;
use crate::drill::{CannotInject, DrillOptions, Report};
use crate::scratch::Scratch;
use crate::snapshots::Snapshots;
use crate::stage::{Stage, on_a_runtime};

/// Cuts, unless asked otherwise.
const CUTS: u64 = 8;

/// Cuts of the program that tries the instrument.
const TRIALS: u64 = 5;

const CLIENTS: usize = 32;

/// The cut comes this long after the load began, in milliseconds.
const AFTER_MS: std::ops::Range<u64> = 50..800;

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::in_memory()?;
        let mut disk = Snapshots::mount(&scratch.subdirectory("disk")?)?;
        let tried = try_out(&mut disk, &scratch, options.seed)?;
        let data_dir = disk.path().join("data");
        let mut stage = Stage::new("cut_ext4", options, scratch, &data_dir, 0..1).await?;
        let mut cuts = 0;
        // A store that lost something has nothing more to tell.
        while stage.report.violations_total == 0 && stage.goes_on(cuts, CUTS) {
            cuts += 1;
            let Some(node) = stage.start(&format!("start {cuts}")).await? else { break };
            let load = stage.load(CLIENTS);
            sleep(stage.draw_ms(&AFTER_MS)).await;
            let told = stage.journal.answers();
            let snapshot = disk.take()?;
            node.kill()?;
            load.stop().await;
            stage.journal.back_to(&told);
            disk.put(snapshot)?;
            stage.judge_files(&format!("after cut {cuts}"));
        }
        if stage.report.violations_total == 0
            && let Some(node) = stage.start("the last start").await?
        {
            stage.drain_and_judge(&node, "after the drain").await?;
            stage.stop(node, "after the drain").await?;
        }
        stage.report.count("control_records_kept", tried);
        Ok(stage.conclude(cuts))
    })
}

/// Clones the disk under the control program. Answers how many records it had acknowledged, all of which were kept.
fn try_out(disk: &mut Snapshots, scratch: &Scratch, seed: u64) -> Result<usize, CannotInject> {
    let mut rng = Rng::new(seed.rotate_left(17));
    let mut kept = 0;
    for trial in 0..TRIALS {
        let records = disk.path().join(format!("records-{trial}"));
        let mark = scratch.path().join("control-mark");
        let running = control::start(&records, &mark)?;
        running.wait_for(rng.up_to(control::RECORDS - 1), &mark)?;
        let acknowledged = control::acknowledged(&mark)?;
        let snapshot = disk.take()?;
        running.kill()?;
        disk.put(snapshot)?;
        control::holds(&records, acknowledged)?;
        kept += acknowledged;
    }
    Ok(kept)
}
