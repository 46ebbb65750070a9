//! Builds that break one rule of the commit path on purpose, for a drill to catch. Features, never in a release.

use super::ledger::{Group, Ledger};
use crate::model::batch::Batch;
use crate::ports::{KvError, Lane};
use crate::store::StoreHandle;

/// Answers before the group is applied.
pub(super) fn before_apply(mut group: Group) -> Group {
    if cfg!(feature = "canary-ack-before-apply") {
        for caller in group.callers.drain(..) {
            caller.reply.send(caller.answer);
        }
    }
    group
}

/// Whether the Syncer answers before its fsync.
pub(super) fn acks_before_sync() -> bool {
    cfg!(feature = "canary-ack-before-sync")
}

/// Applies a group: as one batch, or, broken, its hooks first and then what they owe.
pub(super) async fn apply(store: &StoreHandle, batch: Batch) -> Result<(), KvError> {
    if cfg!(feature = "canary-split-batch") {
        let [hooks, others] = batch.split_off_hooks();
        store.apply(hooks, Lane::Commit).await?;
        return store.apply(others, Lane::Commit).await;
    }
    store.apply(batch, Lane::Commit).await
}

/// Refuses what is to be fenced before it is.
pub(super) fn before_fence(ledger: &Ledger) {
    if cfg!(feature = "canary-refuse-before-fence") {
        ledger.refuse_unfenced();
    }
}

/// What became of a write or an fsync; or, broken, that all is well.
pub(super) fn heeded(result: Result<(), KvError>) -> Result<(), KvError> {
    if cfg!(feature = "canary-ignore-error") { Ok(()) } else { result }
}

/// Makes a fence durable; or, broken, does not.
pub(super) async fn sync_fence(store: &StoreHandle) -> Result<(), KvError> {
    if cfg!(feature = "canary-fence-unsynced") { Ok(()) } else { store.sync().await }
}

/// Whether a hook is committed by what was found under its dedupe key, whatever has happened since.
pub(super) fn trusts_the_look() -> bool {
    cfg!(feature = "canary-dedupe-unchecked")
}

/// Whether what is to be fenced is left where it is.
pub(super) fn fences_nothing() -> bool {
    cfg!(feature = "canary-no-fence")
}
