//! One group: seqs, ordinals and stamps given out, every row and counter of it in one batch. Pure but for its callers.

use tokio::time::Instant;

use super::canary;
use super::key_quota::KeyQuota;
use super::ledger::{Caller, Group};
use super::recent_keys::{KeyClaim, RecentKeys};
use super::reply::{CommitAnswer, Refusal};
use super::tenants::{Resolved, Tenants};
use super::writer_handle::CommitEntry;
use crate::model::batch::Batch;
use crate::model::ids::{Seq, TenantOrd};
use crate::model::keys::{DedupeKey, DedupeValue, Held, LaneKey};
use crate::model::ops::{NewHook, Ops};

/// What the group is built from, besides its entries.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupPlan {
    pub(super) first: Seq,
    /// When its rows are due, and the moment keys are live or not at.
    pub(super) at_ms: u64,
    pub(super) archive: bool,
    /// `tenants.max`.
    pub(super) max_tenants: u32,
    /// The highest seq known to be on the disk: every group carries it, so that recovery can tell a torn log from a
    /// rotten one.
    pub(super) synced_through: Seq,
}

/// What the Writer remembers between groups. A group that was built and never applied leaves it wrong: it has to be read
/// back then, before another is built.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) tenants: Tenants,
    pub(super) keys: RecentKeys,
    pub(super) quota: KeyQuota,
}

/// What became of the entries.
#[derive(Debug)]
pub(super) struct Built {
    /// What is to be applied; `None` where nothing is new.
    pub(super) new: Option<NewGroup>,
    /// Callers that repeat a hook of an earlier group, with its seq.
    pub(super) repeated: Vec<(Seq, Caller)>,
}

/// A group ready to be applied.
#[derive(Debug)]
pub(super) struct NewGroup {
    pub(super) group: Group,
    pub(super) batch: Batch,
    /// Lanes its hooks join.
    pub(super) lanes: Vec<LaneKey>,
    pub(super) next_seq: Seq,
}

/// What a hook's dedupe key says of it.
enum Verdict {
    /// It is new, and takes the place of what is held.
    New(Held),
    /// It repeats a hook, which has this seq unless it is synced.
    Repeats(DedupeValue, Option<Seq>),
    /// It is new, and there may be no more keys.
    TooMany,
}

/// A group in the making.
struct Making<'k> {
    plan: GroupPlan,
    known: &'k mut Known,
    ops: Ops,
    next: Seq,
    callers: Vec<Caller>,
    repeated: Vec<(Seq, Caller)>,
}

impl GroupPlan {
    /// Takes on every entry whose caller still waits.
    pub(super) fn build(self, entries: Vec<CommitEntry>, known: &mut Known) -> Built {
        let now = Instant::now();
        let ops = Ops::with_capacity(entries.len() * 4 + 32, entries.len() * 512 + 1024);
        let callers = Vec::with_capacity(entries.len());
        let (next, repeated) = (self.first, Vec::new());
        let mut making = Making { plan: self, known, ops, next, callers, repeated };
        for entry in entries {
            if now <= entry.deadline && entry.reply.start() {
                making.take(entry);
            }
        }
        making.done(now)
    }
}

impl Making<'_> {
    fn take(&mut self, entry: CommitEntry) {
        let held = match self.verdict(&entry) {
            Some(Verdict::Repeats(value, seq)) => return self.repeat(entry, value, seq),
            Some(Verdict::TooMany) => {
                return entry.reply.send(CommitAnswer::Refused(Refusal::DedupeQuota));
            }
            Some(Verdict::New(held)) => Some(held),
            None => None,
        };
        let Some(tenant) = self.ordinal(&entry.tenant) else {
            return entry.reply.send(CommitAnswer::Refused(Refusal::TenantLimit));
        };
        let seq = self.next;
        self.next = self.next.plus(1);
        self.write(seq, tenant, &entry);
        if let (Some(claim), Some(held)) = (entry.key, held) {
            self.take_key(seq, tenant, *claim, held);
        }
        let answer = CommitAnswer::Committed(seq);
        self.callers.push(Caller { reply: entry.reply, answer, permit: entry.permit });
    }

    /// `None` of a hook without a key, and of one that is not stored: it must not stand in the way of one that is.
    fn verdict(&self, entry: &CommitEntry) -> Option<Verdict> {
        let claim = entry.key.as_deref().filter(|_| self.plan.archive || !entry.rows.is_empty())?;
        let Known { tenants, keys, quota } = &*self.known;
        let (held, seq) = if canary::trusts_the_look() {
            (claim.held, None)
        } else {
            keys.now(&claim.key, claim.held)
        };
        if let Some(value) = held.live_at(self.plan.at_ms) {
            return Some(Verdict::Repeats(value, seq));
        }
        let is_one_more = held == Held::Nothing;
        if is_one_more && !quota.admits(tenants.known(&entry.tenant)) {
            return Some(Verdict::TooMany);
        }
        Some(Verdict::New(held))
    }

    fn repeat(&mut self, entry: CommitEntry, value: DedupeValue, seq: Option<Seq>) {
        let answer = CommitAnswer::Duplicate(value.original);
        match seq {
            None => entry.reply.send(answer),
            Some(seq) => {
                let caller = Caller { reply: entry.reply, answer, permit: entry.permit };
                if seq < self.plan.first {
                    self.repeated.push((seq, caller));
                } else {
                    self.callers.push(caller);
                }
            }
        }
    }

    fn ordinal(&mut self, id: &str) -> Option<TenantOrd> {
        match self.known.tenants.resolve(id, self.plan.max_tenants) {
            Resolved::Known(ord) => Some(ord),
            Resolved::New(ord) => {
                self.ops.new_tenant(ord, id, self.known.tenants.next());
                Some(ord)
            }
            Resolved::Full => None,
        }
    }

    /// A hook owed to nobody is acked with a seq and not stored.
    fn write(&mut self, seq: Seq, tenant: TenantOrd, entry: &CommitEntry) {
        self.ops.commit_hook(NewHook {
            seq,
            tenant,
            at_ms: self.plan.at_ms,
            value: entry.value.clone(),
            rows: &entry.rows,
            archive: self.plan.archive,
        });
    }

    fn take_key(&mut self, seq: Seq, tenant: TenantOrd, claim: KeyClaim, held: Held) {
        // It was encoded from one.
        let Some(key) = DedupeKey::decode(&claim.key) else { return };
        let expires_at_ms = self.plan.at_ms.saturating_add(claim.ttl_ms);
        let value = DedupeValue { expires_at_ms, original: claim.hook };
        self.ops.take_key(tenant, key, value, held);
        if held == Held::Nothing {
            self.known.quota.took(tenant);
        }
        self.known.keys.change(claim.key, Held::By(value), seq);
    }

    fn done(mut self, now: Instant) -> Built {
        let (first, next_seq) = (self.plan.first, self.next);
        if next_seq == first {
            return Built { new: None, repeated: self.repeated };
        }
        self.ops.set_next_seq(next_seq);
        self.ops.set_synced_through(self.plan.synced_through);
        let last = Seq(next_seq.0.saturating_sub(1));
        let group = Group { first, last, opened_at: now, callers: self.callers };
        let lanes = self.ops.marked_lanes();
        let batch = self.ops.finish();
        let new = NewGroup { group, batch, lanes, next_seq };
        Built { new: Some(new), repeated: self.repeated }
    }
}
