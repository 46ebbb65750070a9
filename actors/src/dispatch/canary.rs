//! Builds that break a rule of dispatch on purpose, for a drill to catch. Features, never in a release.

use super::load::Claimable;
use super::page::Percents;
use super::writing::Writing;
use crate::model::ops::Ops;
use crate::ports::KvError;

/// Whether hooks are deleted before they are sent, and outcomes change nothing any more.
pub(super) fn deletes_before_send() -> bool {
    cfg!(feature = "canary-delete-before-send")
}

/// The shares of a tenant; or, broken, everything.
pub(super) fn percents(configured: Percents) -> Percents {
    let everything = Percents { share: 100, start: 100 };
    if cfg!(feature = "canary-no-shares") { everything } else { configured }
}

/// Whether an attempt that takes long keeps its slot.
pub(super) fn keeps_slots() -> bool {
    cfg!(feature = "canary-no-shares")
}

/// Deletes what is about to be sent.
pub(super) async fn before_send(
    writing: &mut Writing,
    claimable: &Claimable,
) -> Result<(), KvError> {
    if !deletes_before_send() {
        return Ok(());
    }
    let mut ops = Ops::default();
    for job in &claimable.jobs {
        let marker = ops.delivered(&job.claimed);
        ops.reclaim(job.claimed.seq, [marker], false);
    }
    writing.apply(ops.finish()).await
}

/// Whether a lane hands on to its next member although its head is not done.
pub(super) const fn skips_heads() -> bool {
    cfg!(feature = "canary-lane-skips-head")
}

/// What was read; or, broken, that `count` hooks are not there when they cannot be read.
pub(super) fn misses(
    read: Result<Vec<Option<Vec<u8>>>, KvError>,
    count: usize,
) -> Result<Vec<Option<Vec<u8>>>, KvError> {
    if cfg!(feature = "canary-miss-on-error") {
        return Ok(read.unwrap_or_else(|_| vec![None; count]));
    }
    read
}
