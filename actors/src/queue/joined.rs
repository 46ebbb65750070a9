//! Which ordering lanes hooks have joined since dispatch looked.
//!
//! The lane markers in the store say the same and more, and survive a crash; but between those that stand lie all that
//! were taken away, and a look through them costs as much as there were lanes. So dispatch reads the markers at its
//! start and when it is told that something was lost here, and is told of every other lane.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::model::keys::LaneKey;

/// Lanes remembered. It is memory, and without dispatch nobody takes them.
const MAX: usize = 65_536;

#[derive(Debug, Default)]
struct Lanes {
    joined: BTreeSet<LaneKey>,
    /// There were too many: the markers have to be read.
    lost: bool,
}

/// What was joined.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Joined {
    pub lanes: BTreeSet<LaneKey>,
    /// Others too, and which is not known.
    pub lost: bool,
}

/// Shared by the Writer and dispatch; survives both.
#[derive(Clone, Debug, Default)]
pub struct JoinedLanes {
    lanes: Arc<Mutex<Lanes>>,
}

impl JoinedLanes {
    /// Hooks were applied that have joined these. To be said before they can be taken for synced.
    pub fn add(&self, lanes: impl IntoIterator<Item = LaneKey>) {
        let mut lanes = lanes.into_iter().peekable();
        // A store without lanes does without the lock.
        if lanes.peek().is_none() {
            return;
        }
        let mut known = self.lanes();
        known.joined.extend(lanes);
        if known.lost || known.joined.len() > MAX {
            *known = Lanes { joined: BTreeSet::new(), lost: true };
        }
    }

    /// Everything since the last call.
    pub fn take(&self) -> Joined {
        let Lanes { joined, lost } = std::mem::take(&mut *self.lanes());
        Joined { lanes: joined, lost }
    }

    fn lanes(&self) -> MutexGuard<'_, Lanes> {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ids::TenantOrd;

    fn lane(lane: usize) -> LaneKey {
        LaneKey { tenant: TenantOrd(1), lane: u128::try_from(lane).unwrap() }
    }

    #[test]
    fn each_lane_is_told_once_until_it_is_taken() {
        let joined = JoinedLanes::default();
        joined.add([lane(2), lane(1)]);
        joined.add([lane(2)]);
        joined.add([]);
        let taken = Joined { lanes: BTreeSet::from([lane(1), lane(2)]), lost: false };
        assert_eq!(joined.take(), taken);
        assert_eq!(joined.take(), Joined::default());
    }

    #[test]
    fn more_than_can_be_remembered_are_lost_and_that_is_told() {
        let joined = JoinedLanes::default();
        joined.add((0..MAX).map(lane));
        assert_eq!(joined.take().lanes.len(), MAX);
        joined.add((0..=MAX).map(lane));
        joined.add([lane(7)]);
        assert_eq!(joined.take(), Joined { lanes: BTreeSet::new(), lost: true });
        joined.add([lane(7)]);
        assert_eq!(joined.take().lanes, BTreeSet::from([lane(7)]));
    }
}
