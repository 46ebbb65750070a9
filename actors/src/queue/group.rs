//! One group: seqs, ordinals and stamps given out, every row and counter of it in one batch. Pure but for its callers.

use tokio::time::Instant;

use super::ledger::{Caller, Group};
use super::reply::{CommitAnswer, Refusal};
use super::tenants::{Resolved, Tenants};
use super::writer_handle::CommitEntry;
use crate::model::batch::Batch;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::LaneKey;
use crate::model::ops::{NewHook, Ops};

/// What the group is built from, besides its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupPlan {
    pub(super) first: Seq,
    /// When its rows are due.
    pub(super) at_ms: u64,
    pub(super) archive: bool,
    /// `tenants.max`.
    pub(super) max_tenants: u32,
    /// The highest seq known to be on the disk: every group carries it, so that recovery can tell a torn log from a
    /// rotten one.
    pub(super) synced_through: Seq,
}

/// A group ready to be applied.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) group: Group,
    pub(super) batch: Batch,
    /// Lanes its hooks join.
    pub(super) lanes: Vec<LaneKey>,
    pub(super) next_seq: Seq,
}

impl GroupPlan {
    /// Takes on every entry whose caller still waits. `None` when there is none.
    pub(super) fn build(self, entries: Vec<CommitEntry>, tenants: &mut Tenants) -> Option<Built> {
        let now = Instant::now();
        let mut ops = Ops::with_capacity(entries.len() * 4 + 32, entries.len() * 512 + 1024);
        let mut callers = Vec::with_capacity(entries.len());
        let mut next = self.first;
        for entry in entries {
            if now > entry.deadline || !entry.reply.start() {
                continue;
            }
            let Some(tenant) = self.ordinal(&entry.tenant, tenants, &mut ops) else {
                entry.reply.send(CommitAnswer::Refused(Refusal::TenantLimit));
                continue;
            };
            let seq = next;
            next = next.plus(1);
            self.write(&mut ops, seq, tenant, &entry);
            callers.push(Caller { reply: entry.reply, seq, permit: entry.permit });
        }
        let last = callers.last()?.seq;
        ops.set_next_seq(next);
        ops.set_synced_through(self.synced_through);
        let group = Group { first: self.first, last, opened_at: now, callers };
        let lanes = ops.marked_lanes();
        Some(Built { group, batch: ops.finish(), lanes, next_seq: next })
    }

    fn ordinal(&self, id: &str, tenants: &mut Tenants, ops: &mut Ops) -> Option<TenantOrd> {
        match tenants.resolve(id, self.max_tenants) {
            Resolved::Known(ord) => Some(ord),
            Resolved::New(ord) => {
                ops.new_tenant(ord, id, tenants.next());
                Some(ord)
            }
            Resolved::Full => None,
        }
    }

    /// A hook owed to nobody is acked with a seq and not stored.
    fn write(&self, ops: &mut Ops, seq: Seq, tenant: TenantOrd, entry: &CommitEntry) {
        ops.commit_hook(NewHook {
            seq,
            tenant,
            at_ms: self.at_ms,
            value: entry.value.clone(),
            rows: &entry.rows,
            archive: self.archive,
        });
    }
}
