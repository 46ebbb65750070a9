//! Which dedupe keys changed lately: what makes a look that was taken beside the Writer as good as one it takes itself.
//!
//! A batcher reads the keys of its batch from the store, and some groups later the Writer decides by what was read. Only
//! the Writer changes keys, so all it has to know is what it changed since the look began. Every change belongs to an
//! epoch; the epoch is published once its change can be read. A look remembers the epoch that was published when it began,
//! and may have missed the changes of later ones: those are here. What is forgotten here makes older looks worthless, and
//! whatever hangs on one is looked up again.
//!
//! Changes that are not synced are never forgotten: who repeats a hook that is not on the disk yet has to wait for it.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;

use crate::model::ids::{HookId, Seq};
use crate::model::keys::Held;

/// Keys remembered although they are synced. More than pass by while a batch waits for its group.
const KEEP: usize = 4_096;

/// The epoch up to which changes can be read by everybody. Made with the tree, so that no Writer begins again at an epoch
/// that a look remembers.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyEpoch(Arc<AtomicU64>);

impl KeyEpoch {
    /// To be asked before a look is taken.
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    fn publish(&self, epoch: u64) {
        self.0.store(epoch, Ordering::Release);
    }
}

/// The dedupe key of a hook on its way to the Writer, and what a look has found under it.
#[derive(Clone, Debug)]
pub struct KeyClaim {
    /// As the store has it.
    pub key: Bytes,
    /// The hook it is for.
    pub hook: HookId,
    /// How long it lives from the commit of its hook, in milliseconds.
    pub ttl_ms: u64,
    pub held: Held,
    /// The epoch that was published before the look.
    pub seen: u64,
}

#[derive(Clone, Copy, Debug)]
struct Recent {
    held: Held,
    /// The hook that holds it, or the last one before it was ended.
    seq: Seq,
    epoch: u64,
}

/// The changes of one epoch.
#[derive(Debug)]
struct Changes {
    epoch: u64,
    /// They are synced once this is.
    last: Seq,
    keys: Vec<Bytes>,
}

/// Asked by key and never gone through, so its order is nobody's; a tree compares keys that differ at their ends.
#[expect(clippy::disallowed_types, reason = "see above")]
type ByKey = std::collections::HashMap<Bytes, Recent, BuildHasherDefault<DefaultHasher>>;

/// Kept by the Writer alone.
#[derive(Debug)]
pub(super) struct RecentKeys {
    epoch: KeyEpoch,
    by_key: ByKey,
    /// Oldest first.
    changes: VecDeque<Changes>,
    /// Of the group in the making.
    changing: Vec<Bytes>,
    /// Looks that began in an earlier epoch may have missed what is not here any more.
    known_from: u64,
}

impl RecentKeys {
    /// Trusts no look that began before this moment.
    pub(super) fn new(epoch: KeyEpoch) -> Self {
        let mut recent = Self {
            epoch,
            by_key: ByKey::default(),
            changes: VecDeque::new(),
            changing: Vec::new(),
            known_from: 0,
        };
        recent.forget_all();
        recent
    }

    /// Something else has changed keys, or may have: no look that began before this moment is trusted.
    pub(super) fn forget_all(&mut self) {
        self.by_key.clear();
        self.changes.clear();
        self.changing.clear();
        self.known_from = self.next_epoch();
        self.epoch.publish(self.known_from);
    }

    fn next_epoch(&self) -> u64 {
        self.epoch.get().saturating_add(1)
    }

    /// Whether a look of that epoch, and what is remembered here, are together the truth.
    pub(super) fn completes(&self, seen: u64) -> bool {
        seen >= self.known_from
    }

    /// What is under a key by now, where a look found `held`; and the hook that put it there, if that may not be synced.
    pub(super) fn now(&self, key: &[u8], held: Held) -> (Held, Option<Seq>) {
        self.by_key.get(key).map_or((held, None), |recent| (recent.held, Some(recent.seq)))
    }

    /// The group in the making, which ends with `seq` or later, changes a key.
    pub(super) fn change(&mut self, key: Bytes, held: Held, seq: Seq) {
        let epoch = self.next_epoch();
        self.by_key.insert(key.clone(), Recent { held, seq, epoch });
        self.changing.push(key);
    }

    /// The group in the making was applied, and everybody can read what it changed.
    pub(super) fn applied(&mut self, last: Seq, synced: Seq) {
        if self.changing.is_empty() {
            return;
        }
        let (epoch, keys) = (self.next_epoch(), std::mem::take(&mut self.changing));
        self.changes.push_back(Changes { epoch, last, keys });
        self.epoch.publish(epoch);
        self.forget(synced);
    }

    fn forget(&mut self, synced: Seq) {
        while self.by_key.len() > KEEP
            && self.changes.front().is_some_and(|oldest| oldest.last <= synced)
            && let Some(oldest) = self.changes.pop_front()
        {
            self.known_from = oldest.epoch;
            for key in oldest.keys {
                // It may have changed again since.
                if self.by_key.get(&key).is_some_and(|recent| recent.epoch == oldest.epoch) {
                    self.by_key.remove(&key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::keys::DedupeValue;

    fn by(expires_at_ms: u64) -> Held {
        Held::By(DedupeValue { expires_at_ms, original: HookId::v7(1, 1) })
    }

    fn key(n: usize) -> Bytes {
        Bytes::from(format!("u{n:06}"))
    }

    #[test]
    fn what_changed_since_a_look_is_known_and_what_did_not_is_as_it_was_found() {
        let epoch = KeyEpoch::default();
        let mut recent = RecentKeys::new(epoch.clone());
        let seen = epoch.get();
        recent.change(key(1), by(100), Seq(7));
        assert_eq!(recent.now(&key(1), Held::Nothing), (by(100), Some(Seq(7))));
        assert_eq!(epoch.get(), seen, "nobody can read it before it is applied");
        recent.applied(Seq(7), Seq(0));
        assert_eq!(epoch.get(), seen + 1);
        assert_eq!(recent.now(&key(1), Held::Nothing), (by(100), Some(Seq(7))));
        assert_eq!(recent.now(&key(2), by(50)), (by(50), None));
        assert!(recent.completes(seen) && recent.completes(epoch.get()));
        recent.applied(Seq(8), Seq(0));
        assert_eq!(epoch.get(), seen + 1, "a group without keys is no epoch");
    }

    #[test]
    fn a_writer_that_begins_or_fences_trusts_no_look_from_before() {
        let epoch = KeyEpoch::default();
        let mut recent = RecentKeys::new(epoch.clone());
        let seen = epoch.get();
        recent.change(key(1), by(100), Seq(7));
        recent.applied(Seq(7), Seq(0));
        recent.forget_all();
        assert!(!recent.completes(seen) && recent.completes(epoch.get()));
        assert_eq!(recent.now(&key(1), Held::Nothing), (Held::Nothing, None));
        let seen = epoch.get();
        let next = RecentKeys::new(epoch.clone());
        assert!(!next.completes(seen) && next.completes(epoch.get()));
    }

    #[test]
    fn the_oldest_are_forgotten_once_they_are_many_and_synced() {
        let epoch = KeyEpoch::default();
        let mut recent = RecentKeys::new(epoch.clone());
        let seen = epoch.get();
        let group = |recent: &mut RecentKeys, n: usize, synced: u64| {
            (0..KEEP).for_each(|k| recent.change(key(n * KEEP + k), by(100), Seq(n as u64)));
            recent.change(key(0), by(n as u64), Seq(n as u64));
            recent.applied(Seq(n as u64), Seq(synced));
        };
        group(&mut recent, 1, 0);
        group(&mut recent, 2, 0);
        assert!(recent.completes(seen), "nothing is synced");
        group(&mut recent, 3, 1);
        assert!(!recent.completes(seen) && recent.completes(seen + 1));
        assert_eq!(recent.now(&key(KEEP), Held::Nothing), (Held::Nothing, None));
        assert_eq!(recent.now(&key(2 * KEEP), Held::Nothing), (by(100), Some(Seq(2))));
        assert_eq!(recent.now(&key(0), Held::Nothing), (by(3), Some(Seq(3))), "changed again");
        assert_eq!(epoch.get(), seen + 3);
    }
}
