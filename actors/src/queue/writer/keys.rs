//! The Writer's part in dedupe keys: it decides by what others have read, and ends what has expired.

use std::collections::BTreeSet;

use ractor::ActorRef;
use tokio::time::Instant;
use tracing::warn;

use super::{WriterMsg, WriterState};
use crate::model::batch::Batch;
use crate::model::cf::Cf;
use crate::model::ids::Seq;
use crate::model::keys::{DedupeKey, Held};
use crate::model::ops::Ops;
use crate::ports::KvError;
use crate::queue::group::Known;
use crate::queue::ledger::Group;
use crate::queue::recent_keys::KeyClaim;
use crate::queue::writer_handle::{CommitEntry, Ended, ExpiredKey, ExpiredKeys};

impl WriterState {
    /// Sees to it that the group can be decided without the store. A hook whose key cannot be is dropped, and its guard
    /// refuses it: it is never stored without.
    pub(super) async fn ready_keys(&mut self, entries: &mut Vec<CommitEntry>) {
        if entries.iter().all(|entry| entry.key.is_none()) {
            return;
        }
        if let Err(error) = self.read_keys(entries).await {
            warn!(%error, "dedupe keys cannot be read; their hooks are refused");
            entries.retain(|entry| entry.key.is_none());
        }
    }

    async fn read_keys(&mut self, entries: &mut [CommitEntry]) -> Result<(), KvError> {
        let Some(Known { tenants, keys, quota }) = &mut self.known else { return Ok(()) };
        let is_stale = |claim: &&mut KeyClaim| !keys.completes(claim.seen);
        let claims = entries.iter_mut().filter_map(|entry| entry.key.as_deref_mut());
        let stale: Vec<&mut KeyClaim> = claims.filter(is_stale).collect();
        // Rare: they were read before something was fenced, or long ago.
        if !stale.is_empty() {
            let wanted = stale.iter().map(|claim| claim.key.to_vec()).collect();
            let found = self.args.store.multi_get(Cf::Index, wanted).await?;
            for (claim, found) in stale.into_iter().zip(found) {
                claim.held = Held::read(found.as_deref());
            }
        }
        let keyed = entries.iter().filter(|entry| entry.key.is_some());
        let whose: BTreeSet<_> = keyed.filter_map(|entry| tenants.known(&entry.tenant)).collect();
        quota.read(&self.args.store, whose)
    }

    /// Ends the keys that the sweep hands over, if it does. True where it has.
    ///
    /// They are applied as a group without hooks, so that a failure is one of the commit path: until it is known what has
    /// reached the disk, nothing is decided by what was under those keys.
    pub(super) async fn end_expired(&mut self, myself: &ActorRef<WriterMsg>) -> bool {
        let Some(ExpiredKeys { keys, seen, reply }) = self.args.handle.take_expired() else {
            return false;
        };
        let Some(known) = &mut self.known else { return true };
        if !known.keys.completes(seen) {
            let _ = reply.send(Ended::default());
            return true;
        }
        let last = Seq(self.next_seq.0.saturating_sub(1));
        let (batch, ended) = end(keys, known, last);
        let (first, opened_at) = (self.next_seq, Instant::now());
        let group = Group { first, last, opened_at, callers: Vec::new() };
        if self.apply(group, batch, || {}, myself).await {
            let _ = reply.send(ended);
        }
        true
    }
}

/// The batch that ends what has expired and is still held as it was read.
fn end(expired: Vec<ExpiredKey>, known: &mut Known, last: Seq) -> (Batch, Ended) {
    let (mut ops, mut ended) = (Ops::default(), Ended { looked: true, ..Ended::default() });
    for ExpiredKey { entry, key, expires_at_ms, held } in expired {
        let Some((encoded, key)) =
            key.as_ref().and_then(|key| Some((key, DedupeKey::decode(key)?)))
        else {
            ops.end_expiry(&entry);
            ended.unreadable += 1;
            continue;
        };
        let (held, changed_by) = known.keys.now(encoded, held);
        match held {
            Held::By(value) if value.expires_at_ms == expires_at_ms => ended.keys += 1,
            Held::Unreadable => ended.unreadable += 1,
            // Somebody has taken the key since: it is theirs, and so is another entry.
            Held::By(_) | Held::Nothing => {
                ops.end_expiry(&entry);
                ended.entries += u64::from(changed_by.is_none());
                continue;
            }
        }
        let tenant = known.tenants.known(key.tenant());
        ops.end_key(tenant, key, expires_at_ms);
        known.keys.change(encoded.clone(), Held::Nothing, last);
        if let Some(tenant) = tenant {
            known.quota.ended(tenant);
        }
    }
    (ops.finish(), ended)
}
