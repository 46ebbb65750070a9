//! Ordering lanes: a row waits as a member, becomes the head of its lane, and hands the lane on when it ends.
//!
//! Only dispatch makes heads and ends them, so between its look at a lane and its batch nothing happens there but that
//! members join at the end. A joining member brings the lane's marker. A marker is therefore taken away only in a batch
//! that leaves a head behind, whose end looks again; or by [`Ops::unmark_lane`], after which the caller looks again.

use super::{Claimed, Ops};
use crate::model::cf::Cf;
use crate::model::counters::Field;
use crate::model::keys::{
    ClearedKey, DueKey, DueKind, DueValue, LaneHeadValue, LaneKey, LaneMemberKey, SizeValue,
};

/// A row waiting in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub key: LaneMemberKey,
    /// Bytes of the stored hook value.
    pub size: u32,
}

impl Member {
    /// From a key of the index and its value; `None` where it is none or cannot be read.
    pub fn decode(key: &[u8], value: &[u8]) -> Option<Self> {
        Some(Self { key: LaneMemberKey::decode(key)?, size: SizeValue::decode(value)?.0 })
    }
}

/// What a lane had before a member became its head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LaneWas {
    Idle,
    /// Its head ends in the same batch.
    Busy,
}

impl Ops {
    /// The lane may have members and no head. Once a batch.
    pub fn mark_lane(&mut self, lane: LaneKey) {
        if self.marked_lanes.insert(lane) {
            self.batch.put(Cf::Index, &lane.marker().encode(), &[]);
        }
    }

    /// Lanes marked in this batch.
    pub fn marked_lanes(&self) -> Vec<LaneKey> {
        self.marked_lanes.iter().copied().collect()
    }

    /// The lane has a head, or it was seen to have no members. In the second case a commit may slip one in meanwhile:
    /// look again afterwards, and [`Ops::mark_lane`] if one did.
    pub fn unmark_lane(&mut self, lane: LaneKey) {
        self.marked_lanes.remove(&lane);
        self.batch.delete(Cf::Index, &lane.marker().encode());
    }

    /// The member is the head of its lane, due at `at_ms`. Its row is not written: nothing relies on the time it says.
    pub fn promote(&mut self, member: Member, was: LaneWas, at_ms: u64) {
        let LaneMemberKey { tenant, lane: _, seq, sink } = member.key;
        self.make_head(member, was);
        let due = DueKey { tenant, at_ms, seq, sink };
        let kind = DueKind::LaneHeadFirst;
        self.put_due(&due, DueValue { size: member.size, kind });
        self.count_due(tenant, kind, 1);
    }

    /// The member is the head of its lane, and claimed at once.
    pub fn promote_claimed(&mut self, member: Member, was: LaneWas) -> Claimed {
        let LaneMemberKey { tenant, lane: _, seq, sink } = member.key;
        self.make_head(member, was);
        let claimed = Claimed { tenant, seq, sink, size: member.size };
        let size = SizeValue(member.size).encode();
        self.batch.put(Cf::Index, &claimed.key().encode(), &size);
        self.count(tenant, &[(Field::Inflight, 1)]);
        claimed
    }

    /// The head of the lane ends in this batch, and no member takes its place. Unless it is known that there is none,
    /// [`Ops::mark_lane`] belongs into the same batch.
    pub fn end_lane(&mut self, lane: LaneKey) {
        self.batch.delete(Cf::Index, &lane.head().encode());
        self.count(lane.tenant, &[(Field::Lanes, -1)]);
    }

    /// A member goes without having been tried: its row too, and a marker asks whether the hook can go.
    pub fn drop_member(&mut self, member: Member) -> ClearedKey {
        let LaneMemberKey { tenant, lane: _, seq, sink } = member.key;
        self.leave_lane(member);
        self.remove_row(&Claimed { tenant, seq, sink, size: member.size })
    }

    /// A member is given up without having been tried; see [`Ops::dead`].
    pub fn dead_member(
        &mut self,
        member: Member,
        row: &[u8],
        at_ms: u64,
        source_id: &str,
        hook_id: &str,
    ) {
        let LaneMemberKey { tenant, lane: _, seq, sink } = member.key;
        self.leave_lane(member);
        let claimed = Claimed { tenant, seq, sink, size: member.size };
        self.put_dead(&claimed, row, at_ms, source_id, hook_id);
    }

    /// A member of a row that does not exist. No row, so no bytes are counted for it either.
    pub fn drop_member_key(&mut self, member: Member) {
        self.leave_lane(member);
    }

    fn leave_lane(&mut self, member: Member) {
        self.batch.delete(Cf::Index, &member.key.encode());
        self.count(member.key.tenant, &[(Field::LaneMembers, -1)]);
    }

    fn make_head(&mut self, member: Member, was: LaneWas) {
        let lane = member.key.of();
        self.leave_lane(member);
        let head = LaneHeadValue { seq: member.key.seq, sink: member.key.sink };
        self.batch.put(Cf::Index, &lane.head().encode(), &head.encode());
        self.unmark_lane(lane);
        match was {
            LaneWas::Idle => self.count(lane.tenant, &[(Field::Lanes, 1)]),
            LaneWas::Busy => {}
        }
    }
}
