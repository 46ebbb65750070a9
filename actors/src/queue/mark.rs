//! How far the log is known to be on the disk. Nothing external looks past it.

use std::sync::Arc;

use tokio::sync::watch;

use crate::model::ids::Seq;

/// The highest seq that an fsync has covered: raised by the Syncer, read by dispatch, the archive and `ctl status`.
#[derive(Clone, Debug)]
pub struct SyncedMark {
    seq: Arc<watch::Sender<Seq>>,
}

impl SyncedMark {
    pub fn get(&self) -> Seq {
        *self.seq.borrow()
    }

    /// Never goes back.
    pub fn raise(&self, to: Seq) {
        self.seq.send_if_modified(|seq| {
            let higher = to > *seq;
            if higher {
                *seq = to;
            }
            higher
        });
    }
}

impl Default for SyncedMark {
    fn default() -> Self {
        Self { seq: Arc::new(watch::channel(Seq(0)).0) }
    }
}
