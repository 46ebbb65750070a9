//! Power cuts of a running node, on a file system that forgets what was not fsynced; restart on what is left, again and
//! again.
//!
//! The recorded drills see what goes through libc and cut between any two operations; this one sees whatever reaches the
//! kernel and cuts where it happens to. The instrument is tried first, on a program that is known to be right: should that
//! lose a record, nothing here would mean anything.

use ankusa_drills_replay::Rng;
use tokio::time::sleep;

use crate::control;
use crate::drill::{CannotInject, DrillOptions, Report};
use crate::forgetful::Forgetful;
use crate::scratch::Scratch;
use crate::stage::{Stage, on_a_runtime};

/// Cuts, unless asked otherwise.
const CUTS: u64 = 10;

/// Cuts of the program that tries the instrument.
const TRIALS: u64 = 20;

const CLIENTS: usize = 32;

/// The cut comes this long after the load began, in milliseconds.
const AFTER_MS: std::ops::Range<u64> = 50..800;

/// Runs the drill.
///
/// # Errors
/// When the drill could not do what it is about.
pub fn run(options: &DrillOptions) -> Result<Report, CannotInject> {
    on_a_runtime(async {
        let scratch = Scratch::on_disk()?;
        let mut disk = Forgetful::mount(&scratch.subdirectory("disk")?)?;
        let tried = try_out(&mut disk, &scratch, options.seed)?;
        let data_dir = disk.path().join("data");
        let mut stage = Stage::new("cut_fuse", options, scratch, &data_dir, 0..1).await?;
        let (mut cuts, mut forgotten, mut syncs) = (0, 0, 0);
        // A store that lost something has nothing more to tell.
        while stage.report.violations_total == 0 && stage.goes_on(cuts, CUTS) {
            cuts += 1;
            let Some(node) = stage.start(&format!("start {cuts}")).await? else { break };
            let load = stage.load(CLIENTS);
            sleep(stage.draw_ms(&AFTER_MS)).await;
            let cut = disk.cut(stage.rng.draw())?;
            node.kill()?;
            load.stop().await;
            disk.power_on()?;
            forgotten += cut.forgotten;
            syncs = cut.syncs;
            stage.judge_files(&format!("after cut {cuts}"));
        }
        if stage.report.violations_total == 0
            && let Some(node) = stage.start("the last start").await?
        {
            stage.drain_and_judge(&node, "after the drain").await?;
            stage.stop(node, "after the drain").await?;
        }
        stage.report.count("control_records_kept", tried);
        stage.report.count("fsyncs", syncs);
        stage.report.count("writes_forgotten", forgotten);
        Ok(stage.conclude(cuts))
    })
}

/// Cuts the power on the control program. Answers how many records it had acknowledged, all of which were kept.
fn try_out(disk: &mut Forgetful, scratch: &Scratch, seed: u64) -> Result<usize, CannotInject> {
    let mut rng = Rng::new(seed.rotate_left(17));
    let mut kept = 0;
    for trial in 0..TRIALS {
        let records = disk.path().join(format!("records-{trial}"));
        let mark = scratch.path().join("control-mark");
        let running = control::start(&records, &mark)?;
        running.wait_for(rng.up_to(control::RECORDS - 1), &mark)?;
        disk.cut(rng.draw())?;
        running.kill()?;
        disk.power_on()?;
        let acknowledged = control::acknowledged(&mark)?;
        control::holds(&records, acknowledged)?;
        kept += acknowledged;
    }
    Ok(kept)
}
