//! Some of the images again, with a real node: it must come up on them by itself, and then keep every promise to the end.

use std::sync::Arc;
use std::time::Duration;

use ankusa_drills_check::{Evidence, Moment, judge};
use ankusa_drills_replay::{Mirror, Rng};

use super::images::{Finding, Recording, Shot, What};
use super::timeline::Cut;
use crate::drill::{Broken, CannotInject, OrCannot};
use crate::journal::Journal;
use crate::node::{NodeSetup, NotReady, store_below};
use crate::reader::Reader;
use crate::scratch::Scratch;
use crate::worker::Worker;

/// Longest wait for a restarted node to deliver what it owes.
const DRAINED_WITHIN: Duration = Duration::from_secs(60);

/// Images of `cuts` drawn from the seed, to start a node on.
#[must_use]
pub fn draw(recording: Recording<'_>, cuts: &[Cut], count: usize) -> Vec<Shot> {
    let mut rng = Rng::new(recording.seed.rotate_left(41));
    let mut drawn = Vec::new();
    for _ in 0..count {
        let cut = cuts.get(rng.up_to(cuts.len().saturating_sub(1)));
        let policy = recording.policies.get(rng.up_to(recording.policies.len().saturating_sub(1)));
        let draw = rng.below(recording.draws);
        drawn.extend(cut.zip(policy).map(|(cut, policy)| Shot {
            cut: *cut,
            policy: *policy,
            draw,
        }));
    }
    drawn
}

/// Starts a node on each of these images. Answers what was wrong.
///
/// # Errors
/// When an image cannot be built, or no node be started at all.
pub async fn judge_some(
    recording: Recording<'_>,
    mut shots: Vec<Shot>,
    scratch: &Scratch,
) -> Result<Vec<Finding>, CannotInject> {
    shots.sort_by_key(|shot| (shot.cut.end, shot.draw));
    let mut disk = recording.base.clone();
    let mut replayed = 0;
    let mut findings = Vec::new();
    for (index, shot) in shots.into_iter().enumerate() {
        for op in recording.ops.get(replayed..shot.cut.end).unwrap_or_default() {
            disk.apply(op).or_cannot("replay the recording")?;
        }
        replayed = shot.cut.end;
        let directory = scratch.subdirectory(&format!("restart-{index}"))?;
        let data_dir = directory.join("data");
        let mut mirror = Mirror::new(&data_dir).or_cannot("prepare a directory for an image")?;
        mirror
            .show(&disk.image(shot.policy, &mut shot.rng(recording.seed)))
            .or_cannot("build an image")?;
        let found = restart(recording, shot.cut, &directory, &data_dir, scratch).await?;
        findings.extend(found.map(|what| Finding { shot, restarted: true, what }));
        std::fs::remove_dir_all(&directory).or_cannot("remove an image")?;
    }
    Ok(findings)
}

/// Starts a node on an image, lets it deliver what it owes, and judges what was told before the cut against all that was
/// delivered, before and after.
async fn restart(
    recording: Recording<'_>,
    cut: Cut,
    directory: &std::path::Path,
    data_dir: &std::path::Path,
    scratch: &Scratch,
) -> Result<Option<What>, CannotInject> {
    let mut history = recording.history.clone();
    let reader = Reader::new(&scratch.subdirectory("logs-restart")?);
    if let Ok(dump) = reader.dump(&store_below(data_dir)) {
        history.learn(&dump);
    }
    let journal = Arc::new(Journal::new());
    // What still waits is what the recorded sink refused: the same sink would refuse all of it again, in a row.
    let worker = Worker::start(recording.seed.rotate_left(23), Arc::clone(&journal)).await?;
    let node = match NodeSetup::with_lanes(directory, data_dir, &worker.url())?.start().await {
        Ok(node) => node,
        Err(NotReady::CannotStart(error)) => {
            return Err(CannotInject(format!("cannot start the node: {error}")));
        }
        Err(down) => return Ok(Some(What::Unreadable(down.brief()))),
    };
    let drained = node.drain(DRAINED_WITHIN).await?;
    let dump = node.settled_dump().await?;
    drop(node);
    let requests = recording.timeline.requests_at(cut, &recording.timeline.unanswered());
    let mut deliveries = recording.timeline.deliveries_at(cut);
    deliveries.extend(journal.deliveries());
    let evidence = Evidence {
        requests: &requests,
        deliveries: &deliveries,
        dump: &dump,
        history: &history,
        moment: Moment::Drained,
    };
    if let Some(broken) = Broken::by(judge(&evidence)) {
        return Ok(Some(What::Broken(broken)));
    }
    Ok((!drained)
        .then(|| What::Unreadable(format!("the queue had not drained after {DRAINED_WITHIN:?}"))))
}
